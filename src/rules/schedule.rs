//! When a timer fires: computed from its schedule, and never from when a step noticed a fire.

use chrono_tz::Tz;
use croner::Cron;
use croner::parser::{CronParser, Seconds};

use crate::model::refusal::Refusal;
use crate::model::time::{Span, Time};
use crate::model::timer::Schedule;

/// How many missed fires are caught up one by one at most.
pub const CATCH_UP_MAX: u64 = 100;

/// How many fires of a calendar schedule are counted at most.
const COUNTED_MAX: usize = 100_000;

/// The shortest time between two fires of one timer.
const SHORTEST: Span = Span::from_secs(1);

/// Refuses a schedule that can't fire; returns its first fire.
pub fn check(schedule: &Schedule, now: Time) -> Result<Time, Refusal> {
    match schedule {
        Schedule::At { at } => Ok(*at),
        Schedule::Every { every, .. } if *every < SHORTEST => Err(Refusal::new(
            "schedule_too_short",
            format!("every {every} is too often: the shortest is {SHORTEST}"),
        )),
        Schedule::Every { .. } => next_after(schedule, now)
            .ok_or_else(|| Refusal::new("schedule_never", "this schedule never fires")),
        Schedule::Cron { expression, time_zone } => {
            zone(time_zone)?;
            cron(expression)?;
            next_after(schedule, now).ok_or_else(|| {
                Refusal::new("schedule_never", format!("`{expression}` names no time that is still to come"))
            })
        }
    }
}

/// Refuses a moment before `since`, unless `past_ok` is set.
pub fn to_come(at: Time, since: Time, past_ok: bool) -> Result<Time, Refusal> {
    if at >= since || past_ok {
        return Ok(at);
    }
    Err(Refusal::new("past", format!("{at} is past: it is before {since}"))
        .hint("if that is meant, say --past-ok, or in JSON \"past_ok\": true"))
}

/// A schedule by the calendar: an expression of five fields, or of six if `seconds` is set, the first of
/// which is the seconds. Timers that were stored before this was checked keep what they have.
pub fn calendar(expression: String, time_zone: String, seconds: bool) -> Result<Schedule, Refusal> {
    let fields = expression.split_whitespace().count();
    let (wanted, hint) = match (seconds, fields) {
        (true, _) => (6, "six fields: second minute hour day month weekday"),
        (false, 6) => (5, "a first field for seconds goes with --seconds, or in JSON with \"seconds\": true"),
        (false, _) => (5, FIVE_FIELDS),
    };
    // A name such as @daily has no fields.
    if fields != wanted && (seconds || !expression.starts_with('@')) {
        let message = format!("`{expression}` is not a cron expression of {wanted} fields: it has {fields}");
        return Err(Refusal::new("invalid_cron", message).hint(hint));
    }
    Ok(Schedule::Cron { expression, time_zone })
}

const FIVE_FIELDS: &str = "five fields: minute hour day month weekday, for example `0 9 * * mon-fri`";

fn cron(expression: &str) -> Result<Cron, Refusal> {
    CronParser::builder().seconds(Seconds::Optional).build().parse(expression).map_err(|error| {
        Refusal::new("invalid_cron", format!("`{expression}` is not a cron expression: {error}"))
            .hint(FIVE_FIELDS)
    })
}

/// The names of all time zones, in order.
pub fn zones() -> impl Iterator<Item = &'static str> {
    chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name())
}

fn zone(name: &str) -> Result<Tz, Refusal> {
    name.parse().map_err(|_| {
        Refusal::new("unknown_time_zone", format!("`{name}` is not a time zone"))
            .hint("write it like Europe/Berlin or UTC")
    })
}

/// The first fire after a moment; `None` if there is none any more. A schedule was checked when it was made,
/// so it can't be wrong here.
pub fn next_after(schedule: &Schedule, after: Time) -> Option<Time> {
    match schedule {
        Schedule::At { at } => (*at > after).then_some(*at),
        Schedule::Every { every, from } => {
            let period = i64::try_from(every.as_millis()).ok().filter(|period| *period > 0)?;
            let gone = after.as_millis() - from.as_millis();
            let periods = if gone < 0 { 1 } else { gone / period + 1 };
            Some(Time::from_millis(from.as_millis().saturating_add(periods.saturating_mul(period))))
        }
        Schedule::Cron { expression, time_zone } => {
            let after = after.utc().with_timezone(&zone(time_zone).ok()?);
            let next = cron(expression).ok()?.find_next_occurrence(&after, false).ok()?;
            Some(Time::from_millis(next.timestamp_millis()))
        }
    }
}

/// The fires of a timer that are due: those that can be caught up one by one, the latest one, and how many
/// there are. A calendar is counted only up to a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fires {
    /// The earliest fires, at most [`CATCH_UP_MAX`] of them.
    pub first: Vec<Time>,
    pub latest: Time,
    pub count: u64,
}

/// The fires from `first`, which is one of them, up to `now`.
pub fn due(schedule: &Schedule, first: Time, now: Time) -> Fires {
    let mut due = Fires { first: vec![first], latest: first, count: 1 };
    while due.count < CATCH_UP_MAX {
        let Some(next) = next_after(schedule, due.latest).filter(|next| *next <= now) else { return due };
        due.first.push(next);
        due.latest = next;
        due.count += 1;
    }
    match schedule {
        Schedule::At { .. } => {}
        Schedule::Every { every, .. } => {
            let period = i64::try_from(every.as_millis()).unwrap_or(i64::MAX).max(1);
            let more = (now.as_millis() - due.latest.as_millis()).max(0) / period;
            due.latest = Time::from_millis(due.latest.as_millis() + more * period);
            due.count += more.unsigned_abs();
        }
        Schedule::Cron { expression, time_zone } => {
            let (Ok(cron), Ok(zone)) = (cron(expression), zone(time_zone)) else { return due };
            let known = due.latest.utc().with_timezone(&zone);
            let more = cron.iter_after(known).take_while(|next| next.timestamp_millis() <= now.as_millis());
            due.count += more.take(COUNTED_MAX).count() as u64;
            let until = now.utc().with_timezone(&zone);
            if let Ok(latest) = cron.find_previous_occurrence(&until, true) {
                due.latest = due.latest.max(Time::from_millis(latest.timestamp_millis()));
            }
        }
    }
    due
}
