//! `run`, `briefs`, `events`, `logs`: history of agents.

pub mod logs;

use serde_json::{Value, json};

use crate::cli::{BriefsArgs, EventsArgs, RunCommand};
use crate::engine::follow::{Beginning, Follower, ProcessOutput, may_be_elsewhere};
use crate::engine::lookup::{self, ResolvedId};
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::event::{Event, EventKind};
use crate::model::id::{AgentName, RunId};
use crate::model::state::CurrentRun;
use crate::report::output::{Output, Tone};
use crate::report::summary;
use crate::report::text::one_line;
use crate::store::{Agent, RecordWatch, Store};
use crate::workdir::Stream;

use crate::commands::words::{optional_agent, parse, several_agents, time_or_ago};

pub fn run(session: &mut Session, command: RunCommand) -> Result<Status> {
    let store = session.store()?;
    match command {
        RunCommand::List { agents, limit } => {
            let chosen = several_agents(&store, &agents)?;
            session.each_chosen(&chosen, |session, name| list(session, &store, name, limit))
        }
        RunCommand::Show { id, agent, stdout, stderr, follow } => {
            let agent = optional_agent(&agent)?;
            let found =
                if id == "latest" { latest(&store, agent)? } else { lookup::run(&store, agent, &id)? };
            let stream = if stderr { Stream::Stderr } else { Stream::Stdout };
            if follow || stdout || stderr {
                show_output(session, &store.agent(&found.agent)?, found.id, stream, follow)
            } else {
                show(session, &store, &found)
            }
        }
    }
}

/// Returns the newest run of one agent, or of all agents.
fn latest(store: &Store, agent: Option<AgentName>) -> Result<ResolvedId<RunId>> {
    let names = agent.map_or_else(|| store.agents(), |name| Ok(vec![name]))?;
    let mut newest: Option<ResolvedId<RunId>> = None;
    for name in names {
        let state = store.agent(&name)?.peek()?;
        let live = state.current_run.map(|run| run.run_id);
        if let Some(id) = live.or(state.last_turn.map(|turn| turn.run_id))
            && newest.as_ref().is_none_or(|newest| newest.id < id)
        {
            newest = Some(ResolvedId { agent: name, id });
        }
    }
    newest.ok_or(Error::NoRecord { what: "run", id: "latest".to_owned() })
}

/// Returns the record of a run, or the known fields of a live run.
fn object(agent: &Agent<'_>, id: RunId) -> Result<Option<Value>> {
    agent.look(|seen, state| match state.current_run.filter(|run| run.run_id == id) {
        Some(live) => Ok(Some(live_object(agent.name(), &live))),
        None => Ok(seen.run(id)?.map(|run| json!(run))),
    })
}

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
    let took = run["duration_ms"].as_u64().map(|ms| format!("  {ms} ms")).unwrap_or_default();
    let (id, at) = (out.safe(&word("id")), out.safe(&summary::for_people("started_at", &run["started_at"])));
    format!("{id}  {at}  {terminal}{took}  {}", out.safe(&one_line(said, 80)))
}

fn list(session: &mut Session, store: &Store, name: &AgentName, limit: usize) -> Result<Status> {
    let agent = store.agent(name)?;
    let most = if limit > 0 { limit } else { usize::MAX };
    let (runs, more) = agent.look(|seen, state| {
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

fn show(session: &mut Session, store: &Store, found: &ResolvedId<RunId>) -> Result<Status> {
    let agent = store.agent(&found.agent)?;
    let run = object(&agent, found.id)?.ok_or(Error::NoRecord { what: "run", id: found.id.to_string() })?;
    session.out.result(&run, |out| {
        let mut text = format!("{}\n", run_line(&run, out));
        if let Value::Object(fields) = &run {
            for (name, value) in fields.iter().filter(|(name, _)| *name != "id") {
                let value = summary::for_people(name, value);
                text.push_str(&format!("{}: {}\n", out.safe(name), out.indented(&value)));
            }
        }
        text
    });
    Ok(Status::Done)
}

fn show_output(
    session: &mut Session,
    agent: &Agent<'_>,
    run: RunId,
    stream: Stream,
    is_followed: bool,
) -> Result<Status> {
    let dir = agent.workdir().run(run);
    let elsewhere =
        if may_be_elsewhere(agent, &dir) { machine_of(session, agent, run, stream)? } else { None };
    let output = ProcessOutput { agent, dir, stream, last: None, elsewhere };
    let object = |text: &str| json!({ "run_id": run, "log": stream.name(), "text": text });
    let has_ended = || Ok(agent.peek()?.current_run.is_none_or(|current| current.run_id != run));
    output.print(session, is_followed, object, has_ended)?;
    Ok(Status::Done)
}

/// Returns the name of the machine that has the output of a run. `None`: no output exists.
fn machine_of(session: &Session, agent: &Agent<'_>, run: RunId, stream: Stream) -> Result<Option<String>> {
    let (retention, now) = (agent.policy().unwrap_or_default().retention, session.clock.now());
    agent.look(|seen, state| {
        if let Some(live) = state.current_run.filter(|live| live.run_id == run) {
            return Ok(Some(live.host));
        }
        let settled = seen.run(run)?.filter(|run| {
            let bytes = stream.of(run.stdout_bytes, run.stderr_bytes);
            bytes != Some(0) && !retention.of_run(run.terminal).is_past(run.ended_at, now)
        });
        Ok(settled.map(|_| "the machine on which it ran".to_owned()))
    })
}

pub fn briefs(session: &mut Session, args: BriefsArgs) -> Result<Status> {
    let store = session.store()?;
    let count = if args.limit == 0 { usize::MAX } else { args.limit };
    let chosen = several_agents(&store, &args.agents)?;
    session.each_chosen(&chosen, |session, name| {
        let briefs = store.agent(name)?.look(|seen, _| seen.briefs(count))?;
        for brief in &briefs {
            session.out.result(brief, |out| {
                format!("{}  {}", out.paint(Tone::Quiet, &brief.at.local()), out.indented(&brief.text))
            });
        }
        Ok(Status::Done)
    })
}

pub fn events(session: &mut Session, args: EventsArgs) -> Result<Status> {
    let store = session.store()?;
    let chosen = several_agents(&store, &args.agents)?;
    let kinds: Vec<EventKind> = args.kind.iter().map(|kind| parse("--kind", kind)).collect::<Result<_>>()?;
    let since =
        args.since.as_deref().map(|word| time_or_ago("--since", word, session.clock.now())).transpose()?;
    let wanted = |event: &Event| {
        (kinds.is_empty() || kinds.contains(&event.kind)) && since.is_none_or(|since| event.at >= since)
    };
    let beginning = Beginning { since, limit: args.limit };
    let mut follower = Follower::default();
    let mut watch = args.follow.then(RecordWatch::new);
    let mut had_agents = false;
    loop {
        let mut has_agents = false;
        let status = session.each_chosen(&chosen, |session, name| {
            let agent = store.agent(name)?;
            if let Some(watch) = &mut watch {
                watch.follow_records(&agent);
            }
            for event in follower.news(&agent, beginning, wanted)? {
                session.out.result(&event, |out| event_line(&event, out));
            }
            has_agents = true;
            Ok(Status::Done)
        })?;
        session.out.flush();
        if had_agents && !has_agents && status == Status::Done {
            session.out.note("no agent is left to follow");
            return Ok(Status::NotFound);
        }
        had_agents |= has_agents;
        match &mut watch {
            Some(watch) if status == Status::Done && session.out.has_reader() => watch.wait(None),
            Some(_) | None => return Ok(status),
        }
    }
}

fn event_line(event: &Event, out: &Output) -> String {
    let fields = event.data.as_object().into_iter().flatten();
    let data = fields
        .filter(|(_, value)| !value.is_null() && !value.is_object() && !value.is_array())
        .map(|(name, value)| {
            format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        })
        .collect::<Vec<_>>()
        .join(" ");
    let at = out.paint(Tone::Quiet, &event.at.local());
    format!("{at}  {:>6}  {}  {}", event.seq, event.kind, one_line(&out.safe(&data), 400))
}
