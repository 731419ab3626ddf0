//! `logs`: events, and the output of turns.

use std::collections::HashMap;

use serde_json::json;

use crate::cli::LogsArgs;
use crate::commands::words::{several_agents, time_or_ago};
use crate::engine::follow::{Beginning, Follower, OutputTail};
use crate::engine::session::{Chosen, Session};
use crate::error::{Result, Status};
use crate::model::event::{Event, EventKind};
use crate::model::id::{AgentName, RunId};
use crate::model::time::Time;
use crate::report::log;
use crate::report::text::relative;
use crate::store::{RecordWatch, Store};
use crate::workdir::Stream;

/// Events that end a turn.
const ENDS: [EventKind; 2] = [EventKind::RunSettled, EventKind::RunInterrupted];

/// Number of events that are shown without --since.
const LAST: usize = 50;

/// Output readers of the running turns.
type Tails = HashMap<RunId, OutputTail>;

pub fn logs(session: &mut Session, args: LogsArgs) -> Result<Status> {
    let store = session.store()?;
    let now = session.clock.now();
    let since = args.since.as_deref().map(|since| time_or_ago("--since", since, now)).transpose()?;
    let everybody =
        args.agents.all || args.agents.words.is_empty() && args.agents.agent.is_empty() && no_turn();
    let mut follower = Follower::default();
    let mut tails = Tails::new();
    let mut watch = args.follow.then(RecordWatch::new);
    let mut were_some = false;
    let mut is_first = true;
    loop {
        let mut chosen = if everybody {
            Chosen { names: store.agents()?, are_all: true, are_told_apart: true }
        } else {
            several_agents(&store, &args.agents)?
        };
        let (status, mut events) = news(session, &store, &mut chosen, since, &mut follower, watch.as_mut());
        // Events of several agents are shown in order of time.
        events.sort_by_key(|event| event.at);
        if is_first {
            if since.is_none() {
                events.drain(..events.len().saturating_sub(LAST));
            }
            if events.is_empty() && status == Status::Done {
                say_nothing(session, &store, &chosen, since)?;
            }
        }
        is_first = false;
        let has_ended = events.iter().any(|event| ENDS.contains(&event.kind));
        for event in &events {
            session.out.is_about(chosen.are_told_apart.then(|| event.agent.to_string()));
            match tell(session, &store, event, &mut tails) {
                Err(error) if chosen.are_all && error.has_left() => {}
                told => told?,
            }
        }
        let status = status.graver(live(session, &store, &chosen, &mut tails, watch.as_mut()));
        session.out.is_about(None);
        session.out.flush();
        were_some |= !chosen.names.is_empty();
        let is_over = chosen.names.is_empty() && were_some || status != Status::Done;
        match &mut watch {
            // The watches on run directories of ended turns are released.
            Some(watch) if !is_over && has_ended => watch.let_go_of_files(),
            Some(watch) if !is_over && session.out.has_reader() => watch.wait(None),
            Some(_) | None => return Ok(status),
        }
    }
}

/// Reports that there is nothing to show, with the time of the last event.
fn say_nothing(session: &Session, store: &Store, chosen: &Chosen, since: Option<Time>) -> Result<()> {
    let mut last = None;
    for name in &chosen.names {
        let of_agent = store.agent(name)?.look(|seen, _| seen.last_events(1, |_| true))?;
        last = last.max(of_agent.first().map(|event| event.at));
    }
    let when = match last {
        Some(at) => format!("; the last event was {} ({})", relative(at, session.clock.now()), at.local()),
        None => ", and nothing ever has".to_owned(),
    };
    let since = since.map(|since| format!(" since {}", since.local())).unwrap_or_default();
    session.out.note(&format!("nothing has happened{since}{when}"));
    Ok(())
}

/// True outside a turn, where DORMOUSE_AGENT names no agent.
fn no_turn() -> bool {
    std::env::var_os("DORMOUSE_AGENT").is_none_or(|name| name.is_empty())
}

/// Returns the events of the ledgers since the last call. An agent that can't be read is reported
/// and removed from `chosen`.
fn news(
    session: &mut Session,
    store: &Store,
    chosen: &mut Chosen,
    since: Option<Time>,
    follower: &mut Follower,
    mut watch: Option<&mut RecordWatch>,
) -> (Status, Vec<Event>) {
    let (mut all, mut read) = (Vec::new(), Vec::with_capacity(chosen.names.len()));
    let status = session.each_agent(&chosen.names, chosen.are_all, |session, name| {
        let agent = store.agent(name)?;
        if let Some(watch) = &mut watch {
            watch.follow_records(&agent);
        }
        // An event without a line in text does not count towards the limit.
        let is_shown = |event: &Event| session.out.is_json() || log::line(event, &session.out).is_some();
        let is_wanted = |event: &Event| since.is_none_or(|since| event.at >= since) && is_shown(event);
        let beginning = Beginning { since, limit: if since.is_none() { LAST } else { 0 } };
        all.extend(follower.news(&agent, beginning, is_wanted)?);
        read.push(name.clone());
        Ok(Status::Done)
    });
    chosen.names = read;
    (status, all)
}

/// Shows an event. The remaining output of a turn is shown before its end.
fn tell(session: &mut Session, store: &Store, event: &Event, tails: &mut Tails) -> Result<()> {
    if let Some(run) = event.run_id.filter(|_| ENDS.contains(&event.kind)) {
        let agent = store.agent(&event.agent)?;
        let mut tail = tails.remove(&run).unwrap_or_else(|| OutputTail::of(&agent, run, None));
        show(session, agent.name(), run, tail.news(true)?);
    }
    let line = log::line(event, &session.out);
    if session.out.is_json() || line.is_some() {
        session.out.result(event, |_| line.unwrap_or_default());
    }
    Ok(())
}

/// Shows the output that running turns have written since the last call.
fn live(
    session: &mut Session,
    store: &Store,
    chosen: &Chosen,
    tails: &mut Tails,
    mut watch: Option<&mut RecordWatch>,
) -> Status {
    session.each_agent(&chosen.names, chosen.are_all, |session, name| {
        let agent = store.agent(name)?;
        let Some(run) = agent.peek()?.current_run.map(|run| run.run_id) else { return Ok(Status::Done) };
        if let Some(watch) = &mut watch {
            watch.follow_output(&agent.workdir().run(run));
        }
        let lines = tails.entry(run).or_insert_with(|| OutputTail::of(&agent, run, None)).news(false)?;
        session.out.is_about(chosen.are_told_apart.then(|| name.to_string()));
        show(session, name, run, lines);
        Ok(Status::Done)
    })
}

/// Shows lines of a turn's output.
fn show(session: &mut Session, agent: &AgentName, run: RunId, lines: Vec<(Stream, String)>) {
    for (stream, text) in lines {
        let object = json!({ "agent": agent, "run_id": run, "log": stream.name(), "text": text });
        session.out.result(&object, |out| log::output(&text, out));
    }
}
