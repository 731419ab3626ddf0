//! `logs`, and the output of a turn while it runs.

use std::collections::HashMap;

use serde_json::json;

use crate::cli::Logs;
use crate::commands::words::{several_agents, time_or_ago};
use crate::engine::session::{Chosen, Session};
use crate::error::{Result, Status};
use crate::model::event::{Event, EventKind};
use crate::model::id::{AgentName, RunId};
use crate::model::state::State;
use crate::model::time::Time;
use crate::report::log;
use crate::report::text::Characters;
use crate::store::{Agent, Store, Watch};
use crate::workdir::{Log, Stream};

/// What tells of the end of a turn.
const ENDS: [EventKind; 2] = [EventKind::RunSettled, EventKind::RunInterrupted];

/// What a turn writes, line by line, while it is written.
pub struct Tail {
    streams: Vec<Followed>,
}

struct Followed {
    stream: Stream,
    log: Log,
    characters: Characters,
    /// The beginning of a line that has not ended.
    begun: String,
}

impl Tail {
    pub fn of(agent: &Agent<'_>, run: RunId, streams: &[Stream]) -> Tail {
        let dir = agent.workdir().run(run);
        let followed = |stream: &Stream| Followed {
            stream: *stream,
            log: dir.follow(*stream, None),
            characters: Characters::default(),
            begun: String::new(),
        };
        Tail { streams: streams.iter().map(followed).collect() }
    }

    /// The lines that have come since the last look. `ended`: no more comes.
    pub fn news(&mut self, ended: bool) -> Result<Vec<(Stream, String)>> {
        let mut lines = Vec::new();
        for followed in &mut self.streams {
            let bytes = followed.log.news()?;
            followed.begun.push_str(&followed.characters.take(&bytes, ended));
            let whole =
                if ended { followed.begun.len() } else { followed.begun.rfind('\n').map_or(0, |at| at + 1) };
            let rest = followed.begun.split_off(whole);
            let text = std::mem::replace(&mut followed.begun, rest);
            lines.extend(text.lines().map(|line| (followed.stream, line.to_owned())));
        }
        Ok(lines)
    }
}

/// What is known of an agent that is listened to.
#[derive(Default)]
struct Heard {
    events: u64,
    tails: HashMap<RunId, Tail>,
}

pub fn logs(session: &mut Session, args: Logs) -> Result<Status> {
    let store = session.store()?;
    let since = time_or_ago("--since", &args.since, session.clock.now())?;
    let everybody =
        args.agents.all || args.agents.words.is_empty() && args.agents.agent.is_empty() && no_turn();
    let mut heard: HashMap<AgentName, Heard> = HashMap::new();
    let mut watch = args.follow.then(Watch::new);
    let mut were_some = false;
    loop {
        let chosen = if everybody {
            Chosen { names: store.agents()?, are_told_apart: true }
        } else {
            several_agents(&store, &args.agents)?
        };
        let (status, mut events) = news(session, &store, &chosen, since, &mut heard, watch.as_mut());
        // What happened to several comes in the order in which it happened.
        events.sort_by_key(|event| event.at);
        let has_ended = events.iter().any(|event| ENDS.contains(&event.kind));
        for event in &events {
            session.out.is_about(chosen.are_told_apart.then(|| event.agent.to_string()));
            tell(session, &store, event, &mut heard)?;
        }
        let status = status.graver(live(session, &store, &chosen, &mut heard, watch.as_mut()));
        session.out.is_about(None);
        session.out.flush();
        were_some |= !chosen.names.is_empty();
        let is_over = chosen.names.is_empty() && were_some || status != Status::Done;
        match &watch {
            // The directories of turns that have ended need no watch any more.
            Some(_) if !is_over && has_ended => watch = Some(Watch::new()),
            Some(watch) if !is_over && session.out.has_reader() => watch.wait(None),
            Some(_) | None => return Ok(status),
        }
    }
}

/// Whether no turn calls this, of which the agent could be meant.
fn no_turn() -> bool {
    std::env::var_os("DORMOUSE_AGENT").is_none_or(|name| name.is_empty())
}

/// What the ledgers have that was not told yet.
fn news(
    session: &mut Session,
    store: &Store,
    chosen: &Chosen,
    since: Time,
    heard: &mut HashMap<AgentName, Heard>,
    mut watch: Option<&mut Watch>,
) -> (Status, Vec<Event>) {
    let mut all = Vec::new();
    let status = session.each_agent(&chosen.names, |_, name| {
        let agent = store.agent(name)?;
        if let Some(watch) = &mut watch {
            watch.follow_records(&agent);
        }
        let known = heard.entry(name.clone()).or_default();
        let count = agent.peek()?.counters.events;
        if known.events == count {
            return Ok(Status::Done);
        }
        let (events, state): (Vec<Event>, State) = agent.look(|seen, state| {
            let mut events = Vec::new();
            if known.events == 0 {
                seen.events(&state, Some(since), |event| {
                    events.push(event);
                    Ok(())
                })?;
            } else {
                let more = state.counters.events.saturating_sub(known.events);
                let more = usize::try_from(more).unwrap_or(usize::MAX);
                events = seen.last_events(&state, more, |event| event.seq > known.events)?;
                events.reverse();
            }
            Ok((events, state))
        })?;
        known.events = state.counters.events;
        all.extend(events.into_iter().filter(|event| event.at >= since));
        Ok(Status::Done)
    });
    (status, all)
}

/// Tells of an event; before the end of a turn what the turn has written.
fn tell(
    session: &mut Session,
    store: &Store,
    event: &Event,
    heard: &mut HashMap<AgentName, Heard>,
) -> Result<()> {
    if let Some(run) = event.run_id.filter(|_| ENDS.contains(&event.kind)) {
        let agent = store.agent(&event.agent)?;
        let tail = heard.get_mut(&event.agent).and_then(|known| known.tails.remove(&run));
        let mut tail = tail.unwrap_or_else(|| Tail::of(&agent, run, &[Stream::Stdout, Stream::Stderr]));
        show(session, agent.name(), run, tail.news(true)?);
    }
    let line = log::line(event, &session.out);
    if session.out.is_json() || line.is_some() {
        session.out.result(event, |_| line.unwrap_or_default());
    }
    Ok(())
}

/// What the turns that run now have written since the last look.
fn live(
    session: &mut Session,
    store: &Store,
    chosen: &Chosen,
    heard: &mut HashMap<AgentName, Heard>,
    mut watch: Option<&mut Watch>,
) -> Status {
    session.each_agent(&chosen.names, |session, name| {
        let agent = store.agent(name)?;
        let Some(run) = agent.peek()?.current_run.map(|run| run.run_id) else { return Ok(Status::Done) };
        if let Some(watch) = &mut watch {
            watch.follow_output(&agent, &agent.workdir().run(run));
        }
        let known = heard.entry(name.clone()).or_default();
        let both = [Stream::Stdout, Stream::Stderr];
        let lines = known.tails.entry(run).or_insert_with(|| Tail::of(&agent, run, &both)).news(false)?;
        session.out.is_about(chosen.are_told_apart.then(|| name.to_string()));
        show(session, name, run, lines);
        Ok(Status::Done)
    })
}

/// Shows lines that a turn has written.
fn show(session: &mut Session, agent: &AgentName, run: RunId, lines: Vec<(Stream, String)>) {
    for (stream, text) in lines {
        let object = json!({ "agent": agent, "run_id": run, "log": stream.name(), "text": text });
        session.out.result(&object, |out| log::output(&text, out));
    }
}

/// Prints what a turn writes, until it has ended.
pub fn follow_output(session: &mut Session, agent: &Agent<'_>, run: RunId, stream: Stream) -> Result<Status> {
    let dir = agent.workdir().run(run);
    let mut log = dir.follow(stream, None);
    let mut characters = Characters::default();
    let mut watch = Watch::new();
    loop {
        watch.follow_records(agent);
        watch.follow_output(agent, &dir);
        // In this order: what it has said last is there before it counts as ended.
        let ended = agent.peek()?.current_run.is_none_or(|current| current.run_id != run);
        let said = log.news()?;
        if session.out.is_json() {
            let text = characters.take(&said, ended);
            if !text.is_empty() {
                session.out.json_line(&json!({ "run_id": run, "log": stream.name(), "text": text }));
            }
        } else {
            session.out.log(&said, &mut characters, ended);
        }
        session.out.flush();
        if ended || !session.out.has_reader() {
            return Ok(Status::Done);
        }
        watch.wait(None);
    }
}
