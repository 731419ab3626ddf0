//! Fires of a timer, computed from its schedule and not from the time at which a step noticed the
//! last fire.

use crate::model::refusal::Refusal;
use crate::model::time::{Span, Time};
use crate::model::timer::Schedule;
use crate::model::zone::Zone;

use super::calendar;

/// Maximum number of due fires of a timer that get a message each.
pub const CATCH_UP_MAX: u64 = 100;

/// Maximum number of due fires of a cron schedule that are counted.
const COUNTED_MAX: u64 = 100_000;

/// Minimum interval between two fires of a timer, or between two rechecks of a wait.
pub const SHORTEST: Span = Span::from_secs(1);

/// Returns the first fire of a new schedule. Refuses one that never fires or is invalid.
pub fn check(schedule: &Schedule, now: Time) -> Result<Time, Refusal> {
    match schedule {
        Schedule::At { at } => Ok(*at),
        Schedule::Every { every, .. } if *every < SHORTEST => {
            let message = format!("every {every} is too often: the shortest is {SHORTEST}");
            Err(Refusal::usage("schedule_too_short", message))
        }
        Schedule::Every { .. } => next_after(schedule, now)
            .ok_or_else(|| Refusal::new("schedule_never", "this schedule never fires")),
        Schedule::Cron { expression, time_zone } => {
            let (zone, calendar) = (zone(time_zone)?, calendar::parse(expression)?);
            calendar.next_after(&zone, now).ok_or_else(|| {
                Refusal::new("schedule_never", format!("`{expression}` names no time that is still to come"))
            })
        }
    }
}

/// Refuses a time before `since`, unless `past_ok` is true.
pub fn to_come(at: Time, since: Time, past_ok: bool) -> Result<Time, Refusal> {
    if at >= since || past_ok {
        return Ok(at);
    }
    Err(Refusal::new("past", format!("{at} is past: it is before {since}"))
        .hint("if this is intended, use --past-ok, or in JSON \"past_ok\": true"))
}

/// Returns the time that a request names: a time, which may not be before `since` unless `past_ok`
/// is true, or else a span from now.
pub fn requested_time(
    within: Option<Span>,
    at: Option<Time>,
    past_ok: bool,
    since: Time,
    now: Time,
) -> Result<Option<Time>, Refusal> {
    let at = at.map(|at| to_come(at, since, past_ok)).transpose()?;
    Ok(at.or(within.map(|span| now.after(span))))
}

/// Returns a cron schedule. The expression has five fields, or six with the seconds first if
/// `seconds` is true.
pub fn calendar(expression: String, time_zone: String, seconds: bool) -> Result<Schedule, Refusal> {
    calendar::parse(&expression)?;
    let fields = expression.split_whitespace().count();
    if (fields == 6) != seconds {
        let (wanted, hint) = if seconds {
            (6, "six fields: second minute hour day month weekday")
        } else {
            (5, "a first field for seconds goes with --seconds, or in JSON with \"seconds\": true")
        };
        let message = format!("`{expression}` is not a cron expression of {wanted} fields: it has {fields}");
        return Err(Refusal::new("invalid_cron", message).hint(hint));
    }
    Ok(Schedule::Cron { expression, time_zone })
}

fn zone(name: &str) -> Result<Zone, Refusal> {
    name.parse().map_err(|error: String| Refusal::new("unknown_time_zone", error))
}

/// Returns the first fire after a time; `None` if no fire follows. A schedule is checked when it is
/// created, so it is valid here.
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
            calendar::parse(expression).ok()?.next_after(&zone(time_zone).ok()?, after)
        }
    }
}

/// Due fires of a timer: the first of them, the latest, and their number. Fires of a cron schedule
/// are counted up to a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fires {
    /// Earliest due fires, at most [`CATCH_UP_MAX`].
    pub first: Vec<Time>,
    pub latest: Time,
    pub count: u64,
}

/// Returns the times from `first` to `now` at which a timer fires; `first` is one of them.
pub fn due(schedule: &Schedule, first: Time, now: Time) -> Fires {
    let mut due = Fires { first: vec![first], latest: first, count: 1 };
    match schedule {
        Schedule::At { .. } => {}
        Schedule::Every { every, .. } => {
            let period = i64::try_from(every.as_millis()).unwrap_or(i64::MAX).max(1);
            let at = |fire: u64| first.after(every.times(fire));
            let more = ((now.as_millis() - first.as_millis()).max(0) / period).unsigned_abs();
            due.first.extend((1..=more.min(CATCH_UP_MAX - 1)).map(at));
            due.latest = at(more);
            due.count += more;
        }
        Schedule::Cron { expression, time_zone } => {
            let (Ok(calendar), Ok(zone)) = (calendar::parse(expression), zone(time_zone)) else { return due };
            let after = |at: Time| calendar.next_after(&zone, at).filter(|next| *next <= now);
            while let Some(next) = after(due.latest) {
                if due.count >= COUNTED_MAX {
                    due.latest = latest(after, due.latest, now);
                    break;
                }
                if due.count < CATCH_UP_MAX {
                    due.first.push(next);
                }
                due.latest = next;
                due.count += 1;
            }
        }
    }
    due
}

/// Returns the last fire up to `now`, without computing each fire between `known` and `now`.
fn latest(after: impl Fn(Time) -> Option<Time>, known: Time, now: Time) -> Time {
    let mut span = SHORTEST;
    let mut latest = loop {
        let since = now.before(span).max(known);
        if since == known {
            break known;
        }
        if let Some(fire) = after(since) {
            break fire;
        }
        span = span.times(2);
    };
    while let Some(next) = after(latest) {
        latest = next;
    }
    latest
}
