//! Commands `run`, `briefs`, `events` and `logs`: history of agents.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use crate::cli::{BriefsArgs, CommandGroup, EventsArgs, LogsArgs, RunCommand};
use crate::commands::args::{answer, each_listed, optional_agent, several_agents, time_or_ago};
use crate::engine::context::Context;
use crate::engine::follow::{Beginning, Follower, OutputTail, print_output};
use crate::engine::lookup;
use crate::engine::session::{Chosen, Session};
use crate::error::{Error, Result, Status};
use crate::local::workdir::Stream;
use crate::model::event::{Event, EventKind};
use crate::model::id::{AgentName, MessageId, RunId};
use crate::model::message::Message;
use crate::model::state::CurrentRun;
use crate::model::time::{Span, Time};
use crate::report::output::{Output, Tone};
use crate::report::text::{one_line, relative};
use crate::report::timeline::span;
use crate::report::{log, summary};
use crate::store::{RecordWatch, Store};

pub fn run(session: &Session, store: &Store, args: CommandGroup<RunCommand>) -> Result<Status> {
    match args.command {
        RunCommand::List { agents, limit } => {
            each_listed(session, store, &agents, |context| list(context, limit))
        }
        RunCommand::Show { id, agent, stdout, stderr, follow } => {
            let (agent, id) = lookup::run(store, optional_agent(&agent)?, &id)?;
            let context = Context::new(session, &agent);
            let stream = if stderr { Stream::Stderr } else { Stream::Stdout };
            if follow || stdout || stderr {
                show_output(context, id, stream, follow)
            } else {
                show(context, id)
            }
        }
    }
}

/// Returns the fields of a live run that are known already, named as in the record of an ended run.
fn live_object(agent: &AgentName, run: &CurrentRun) -> Value {
    json!({
        "id": run.run_id,
        "agent": agent,
        "message_id": run.message_id,
        "attempt": run.attempt,
        "started_at": run.claimed_at,
        "host": run.host,
        "pid": run.pid,
        "continuation": run.continuation,
    })
}

fn run_line(run: &Value, out: &Output) -> String {
    let word = |field: &str| run[field].as_str().unwrap_or_default().to_owned();
    let terminal = match run["terminal"].as_str() {
        Some("completed") => out.paint(Tone::Good, "completed"),
        Some(other) => out.paint(Tone::Bad, other),
        None => "running".to_owned(),
    };
    let said = run["brief"].as_str().or(run["reason"].as_str()).unwrap_or_default();
    let took = run["duration_ms"].as_u64().map(|ms| format!("  {}", span(Span::from_millis(ms))));
    let took = took.unwrap_or_default();
    let (id, at) = (out.safe(&word("id")), out.safe(&summary::for_people("started_at", &run["started_at"])));
    format!("{id}  {at}  {terminal}{took}  {}", out.safe(&one_line(said, 80)))
}

fn list(Context { session, agent }: Context<'_>, limit: usize) -> Result<Status> {
    let most = if limit > 0 { limit } else { usize::MAX };
    let (runs, more) = agent.read(|seen, state| {
        let live = state.current_run.map(|run| live_object(agent.name(), &run));
        let (settled, more) = seen.runs(most - usize::from(live.is_some()))?;
        Ok((live.into_iter().chain(settled.iter().map(|run| json!(run))).collect::<Vec<Value>>(), more))
    })?;
    for run in &runs {
        session.out.result(run, |out| run_line(run, out));
    }
    if more {
        session.out.note(&format!("the newest {}; --limit 0 lists all", runs.len()));
    }
    Ok(Status::Done)
}

fn show(Context { session, agent }: Context<'_>, id: RunId) -> Result<Status> {
    let run = agent.read(|seen, state| match state.current_run.filter(|run| run.run_id == id) {
        Some(live) => Ok(Some(live_object(agent.name(), &live))),
        None => Ok(seen.run(id)?.map(|run| json!(run))),
    })?;
    let run = run.ok_or(Error::NoRecord { what: "run", id: id.to_string() })?;
    answer(session, &run, |out| {
        let mut text = format!("{}\n", run_line(&run, out));
        for (name, value) in run.as_object().into_iter().flatten().filter(|(name, _)| *name != "id") {
            let value = summary::for_people(name, value);
            text.push_str(&format!("{}: {}\n", out.safe(name), out.indented(&value)));
        }
        text
    })
}

fn show_output(context: Context<'_>, run: RunId, stream: Stream, is_followed: bool) -> Result<Status> {
    let dir = context.agent.local().run(run);
    let object = |text: &str| json!({ "run_id": run, "log": stream.name(), "text": text });
    let has_ended = || Ok(context.agent.peek()?.current_run.is_none_or(|current| current.run_id != run));
    print_output(context, (&dir, stream, None), is_followed, object, has_ended)
}

pub fn briefs(session: &Session, store: &Store, args: BriefsArgs) -> Result<Status> {
    let count = if args.limit == 0 { usize::MAX } else { args.limit };
    each_listed(session, store, &args.agents, |Context { session, agent }| {
        let briefs = agent.read(|seen, _| seen.briefs(count))?;
        for brief in &briefs {
            session.out.quote(brief, |out| {
                format!("{}  {}", out.paint(Tone::Quiet, &brief.at.local()), out.indented(&brief.text))
            });
        }
        Ok(Status::Done)
    })
}

pub fn events(session: &Session, store: &Store, args: EventsArgs) -> Result<Status> {
    let now = session.clock.now();
    let since = args.since.as_deref().map(|since| time_or_ago("--since", since, now)).transpose()?;
    let wanted = |event: &Event| {
        (args.kind.is_empty() || args.kind.contains(&event.kind))
            && since.is_none_or(|since| event.at >= since)
    };
    let beginning = Beginning { since, limit: args.limit };
    let mut follower = Follower::default();
    follow(session, args.follow, |session, mut watch| {
        let chosen = several_agents(store, &args.agents)?;
        let mut found = Vec::new();
        let status = session.each_chosen(store, &chosen, |Context { agent, .. }| {
            if let Some(watch) = &mut watch {
                watch.follow_records(agent);
            }
            for event in follower.news(agent, beginning, wanted)? {
                session.out.result(&event, |out| event_line(&event, out));
            }
            found.push(agent.name().clone());
            Ok(Status::Done)
        })?;
        Ok((status, found))
    })
}

/// Calls `look` once, and with --follow also after each change of the agents' records, until `look`
/// fails, stdout is closed, or no agent is left. `look` returns a status and the existing agents.
fn follow(
    session: &Session,
    follows: bool,
    mut look: impl FnMut(&Session, Option<&mut RecordWatch>) -> Result<(Status, Vec<AgentName>)>,
) -> Result<Status> {
    let mut watch = follows.then(RecordWatch::new);
    let mut had_agents = false;
    loop {
        let (status, found) = look(session, watch.as_mut())?;
        session.out.flush();
        if had_agents && found.is_empty() && status == Status::Done {
            session.out.note("no agent is left to follow");
            return Ok(Status::NotFound);
        }
        had_agents |= !found.is_empty();
        match &mut watch {
            Some(watch) if status == Status::Done && session.out.has_reader() => watch.wait(None),
            Some(_) | None => return Ok(status),
        }
    }
}

fn event_line(event: &Event, out: &Output) -> String {
    let fields = event.data.as_object().into_iter().flatten();
    let shown = fields.filter(|(_, value)| !value.is_null() && !value.is_object() && !value.is_array());
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let data = shown.map(|(name, value)| format!("{name}={}", text(value))).collect::<Vec<_>>().join(" ");
    let at = out.paint(Tone::Quiet, &event.at.local());
    format!("{at}  {:>6}  {}  {}", event.seq, event.kind, one_line(&out.safe(&data), 400))
}

/// Events that end a turn.
const ENDS: [EventKind; 2] = [EventKind::RunSettled, EventKind::RunInterrupted];

/// Number of events that `logs` shows without --since.
const LAST: usize = 50;

/// Output readers of the running turns.
type Tails = HashMap<RunId, OutputTail>;

/// Beginnings of the texts of messages; `None` for a message without content.
type Bodies = HashMap<MessageId, Option<String>>;

pub fn logs(session: &Session, store: &Store, args: LogsArgs) -> Result<Status> {
    let now = session.clock.now();
    let since = args.since.as_deref().map(|since| time_or_ago("--since", since, now)).transpose()?;
    let beginning = Beginning { since, limit: if since.is_none() { LAST } else { 0 } };
    let mut follower = Follower::default();
    let mut tails = Tails::new();
    let (mut is_first, mut has_ended) = (true, false);
    follow(session, args.follow, |session, mut watch| {
        // Drops all file watches after the end of a turn. Those still needed are set again below.
        if let Some(watch) = watch.as_mut().filter(|_| has_ended) {
            watch.let_go_of_files();
        }
        let mut chosen = several_agents(store, &args.agents)?;
        let (mut events, mut found) = (Vec::new(), Vec::with_capacity(chosen.names.len()));
        let status = session.each_agent(store, &chosen.names, chosen.are_all, |Context { agent, .. }| {
            if let Some(watch) = &mut watch {
                watch.follow_records(agent);
            }
            // An event that is not shown as text does not count towards the limit.
            let is_shown = |event: &Event| session.out.is_json() || log::words(event).is_some();
            let is_wanted = |event: &Event| since.is_none_or(|since| event.at >= since) && is_shown(event);
            events.extend(follower.news(agent, beginning, is_wanted)?);
            found.push(agent.name().clone());
            Ok(Status::Done)
        });
        // An agent that can't be read was reported before, so its output is not followed.
        chosen.names = found;
        // Events of several agents are shown in order of time.
        events.sort_by_key(|event| event.at);
        if std::mem::take(&mut is_first) {
            if since.is_none() {
                events.drain(..events.len().saturating_sub(LAST));
            }
            if events.is_empty() && status == Status::Done {
                say_nothing(session, store, &chosen, since)?;
            }
        }
        has_ended = events.iter().any(|event| ENDS.contains(&event.kind));
        let texts = if session.out.is_json() { Bodies::new() } else { admitted_texts(store, &events)? };
        for event in &events {
            session.out.is_about(chosen.are_told_apart.then(|| event.agent.to_string()));
            match tell(session, store, event, &texts, &mut tails) {
                Err(error) if chosen.are_all && error.has_left() => {}
                told => told?,
            }
        }
        let status = status.graver(live(session, store, &chosen, &mut tails, watch));
        session.out.is_about(None);
        Ok((status, chosen.names))
    })
}

/// Reports that there is nothing to show, with the time of the last event.
fn say_nothing(session: &Session, store: &Store, chosen: &Chosen, since: Option<Time>) -> Result<()> {
    let mut last = None;
    for name in &chosen.names {
        let of_agent = store.agent(name)?.read(|seen, _| seen.last_events(1, |_| true))?;
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

/// Returns the id of the message that an event admits.
fn admitted(event: &Event) -> Option<MessageId> {
    let id = event.data["message_id"].as_str().filter(|_| event.kind == EventKind::MessageAdmitted);
    id.and_then(|id| id.parse().ok())
}

/// Returns the beginnings of the messages that events admit. Reads the archive of an agent once.
fn admitted_texts(store: &Store, events: &[Event]) -> Result<Bodies> {
    let text =
        |message: &Message| message.is_contentful().then(|| one_line(&message.body.to_text(), log::LONGEST));
    let mut by_agent: BTreeMap<&AgentName, Vec<MessageId>> = BTreeMap::new();
    for (event, id) in events.iter().filter_map(|event| Some((event, admitted(event)?))) {
        by_agent.entry(&event.agent).or_default().push(id);
    }
    let mut texts = Bodies::new();
    for (name, ids) in by_agent {
        let found = store.agent(name).and_then(|agent| {
            agent.read(|seen, _| {
                let mut found = seen.ended_among(&ids, text)?;
                for id in &ids {
                    let waiting = seen.waiting(*id)?.map(|waiting| seen.read(&waiting)).transpose()?;
                    found.extend(waiting.flatten().map(|message| (*id, text(&message))));
                }
                Ok(found)
            })
        });
        match found {
            Err(error) if error.has_left() => {}
            found => texts.extend(found?),
        }
    }
    Ok(texts)
}

/// Shows an event. An event that ends a turn is preceded by the rest of the turn's output.
fn tell(session: &Session, store: &Store, event: &Event, said: &Bodies, tails: &mut Tails) -> Result<()> {
    if let Some(run) = event.run_id.filter(|_| ENDS.contains(&event.kind)) {
        let agent = store.agent(&event.agent)?;
        let mut tail = tails.remove(&run).unwrap_or_else(|| OutputTail::of(&agent, run, None));
        show_lines(session, agent.name(), run, tail.news(true)?);
    }
    let said = admitted(event).and_then(|id| said.get(&id)?.as_deref());
    let line = log::line(event, said, &session.out);
    if session.out.is_json() || line.is_some() {
        session.out.result(event, |_| line.unwrap_or_default());
    }
    Ok(())
}

/// Shows the output that running turns have written since the last call.
fn live(
    session: &Session,
    store: &Store,
    chosen: &Chosen,
    tails: &mut Tails,
    mut watch: Option<&mut RecordWatch>,
) -> Status {
    session.each_agent(store, &chosen.names, chosen.are_all, |Context { agent, .. }| {
        let Some(run) = agent.peek()?.current_run.map(|run| run.run_id) else { return Ok(Status::Done) };
        if let Some(watch) = &mut watch {
            watch.follow_output(&agent.local().run(run));
        }
        let lines = tails.entry(run).or_insert_with(|| OutputTail::of(agent, run, None)).news(false)?;
        session.out.is_about(chosen.are_told_apart.then(|| agent.name().to_string()));
        show_lines(session, agent.name(), run, lines);
        Ok(Status::Done)
    })
}

/// Shows lines of a turn's output.
fn show_lines(session: &Session, agent: &AgentName, run: RunId, lines: Vec<(Stream, String)>) {
    for (stream, text) in lines {
        let object = json!({ "agent": agent, "run_id": run, "log": stream.name(), "text": text });
        session.out.quote(&object, |out| log::output(&text, out));
    }
}
