//! Command `timer`: messages that are sent at a set time.

use serde_json::json;

use crate::cli::{self, CommandGroup, TimerCommand};
use crate::engine::context::Context;
use crate::engine::session::Session;
use crate::error::{Result, Status};
use crate::model::action::TimerRequest;
use crate::model::bound::Bound;
use crate::model::time::Time;
use crate::model::timer::{Schedule, Timer};
use crate::model::zone::{self, Zone};
use crate::report::output::Output;
use crate::report::text::{one_line, relative};
use crate::rules::schedule::calendar;
use crate::rules::transition::timer;

use super::change;
use crate::commands::args::{
    agent_and_text, answer, find_open, moment, parse, requester, several_agents, text, wrong_word,
};
use crate::store::Store;

/// Returns the time zone of a timer's schedule, else the local zone, else UTC.
fn zone_of(timer: &Timer) -> Zone {
    let named: Option<Zone> = match &timer.schedule {
        Schedule::Cron { time_zone, .. } => time_zone.parse().ok(),
        Schedule::At { .. } | Schedule::Every { .. } => None,
    };
    named.or_else(|| zone::local().ok().cloned()).unwrap_or(Zone::UTC)
}

pub fn timer(session: &Session, store: &Store, args: CommandGroup<TimerCommand>) -> Result<Status> {
    match args.command {
        TimerCommand::Add { said, schedule, tz, seconds, past_ok, catch_up, grace, name: key } => {
            let (name, word) = agent_and_text(said)?;
            let agent = store.agent(&name)?;
            let bound = Bound::message("the text", agent.policy()?.limits.max_message);
            let by = requester(Context::new(session, &agent))?;
            let cli::ScheduleArgs { within, at, every, cron } = schedule;
            let new = TimerRequest {
                within,
                at: at.map(|word| moment("--at", &word, by.since, past_ok)).transpose()?,
                past_ok,
                every,
                time_zone: cron_zone(session, cron.as_deref(), tz, seconds)?,
                cron,
                seconds,
                text: word.map(|word| text("TEXT", Some(&word), &bound)).transpose()?,
                catch_up,
                grace,
                name: key,
            };
            let (timer, action) = change(Context::new(session, &agent), |draft| timer::add(draft, new, by))?;
            let zone = zone_of(&timer);
            let (time_zone, next_local) = (zone.to_string(), timer.next_at.in_zone(&zone));
            let mut added = json!(timer);
            added["action"] = json!(action);
            added["time_zone"] = json!(time_zone);
            added["next_local"] = json!(next_local);
            let next = relative(timer.next_at, session.clock.now());
            answer(session, &added, |out| {
                // A script uses the whole line as the id, so only a terminal shows more than that.
                let more = format!("  {action}, next {next_local} ({time_zone}), {next}");
                format!("{}{}", timer.id, if out.is_on_terminal() { &*more } else { "" })
            })
        }
        TimerCommand::List(agents) => {
            let chosen = several_agents(store, &agents)?;
            let (now, mut timers) = (session.clock.now(), Vec::new());
            let status = session.each_chosen(store, &chosen, |Context { agent, .. }| {
                let open = agent.read(|seen, _| seen.open::<Timer>())?;
                timers.extend(open.into_iter().map(|timer| (agent.name().to_string(), timer)));
                Ok(Status::Done)
            })?;
            timers.sort_by_key(|(_, timer)| timer.next_at);
            for (name, timer) in timers {
                session.out.is_about(chosen.are_told_apart.then_some(name));
                session.out.result(&timer, |out| timer_line(&timer, now, out));
            }
            session.out.is_about(None);
            Ok(status)
        }
        TimerCommand::Cancel(timer) => {
            let (agent, id) = find_open::<Timer>(store, &timer)?;
            let timer = change(Context::new(session, &agent), |draft| timer::cancel(draft, id))?;
            answer(session, &timer, |_| format!("cancelled {}", timer.id))
        }
    }
}

/// Checks --cron and --tz, and returns the time zone of the calendar; `None` without --cron.
fn cron_zone(
    session: &Session,
    cron: Option<&str>,
    tz: Option<String>,
    seconds: bool,
) -> Result<Option<String>> {
    let Some(expression) = cron else { return Ok(None) };
    if let Some(zone) = &tz {
        parse::<Zone>("--tz", zone)?;
    }
    let zone = tz.map_or_else(|| session.clock.time_zone(), Ok)?;
    calendar(expression.to_owned(), zone.clone(), seconds)
        .map_err(|refusal| wrong_word("--cron", refusal))?;
    Ok(Some(zone))
}

fn timer_line(timer: &Timer, now: Time, out: &Output) -> String {
    let schedule = match &timer.schedule {
        Schedule::At { .. } => "once".to_owned(),
        Schedule::Every { every, .. } => format!("every {every}"),
        Schedule::Cron { expression, time_zone } => format!("{expression} ({time_zone})"),
    };
    let name = timer.name.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
    let next = relative(timer.next_at, now);
    format!(
        "{}  {}  next {} ({next})  {}",
        timer.id,
        out.safe(&format!("{name}{schedule}")),
        timer.next_at.local(),
        out.safe(&one_line(&timer.text(), 60))
    )
}
