//! `safe-point`, `yield` and `non-preemptible`: what a turn says to the machine that runs it
//! (contract, execution §6).

use std::ffi::OsString;

use serde_json::{Value, json};

use crate::cli::{self, PlaneAgent, SectionCommand};
use crate::error::{Error, Result, Status};
use crate::model::id::{AgentName, RunId};
use crate::model::message::{InboxKey, Message, MessageStatus, Priority};
use crate::model::policy::Size;
use crate::model::preemption::Section;
use crate::model::state::{CurrentRun, State};
use crate::model::submission::CalledBy;
use crate::model::time::Span;
use crate::process::foreground;
use crate::rules::preemption::{asks_to_yield, is_interjection};
use crate::rules::transition::draft::Draft;
use crate::rules::transition::inbox::staleness;
use crate::rules::transition::preemption as rules;
use crate::store::inbox::{self, Scan};
use crate::store::view::View;
use crate::store::{Agent, Locked, Store};

use super::hooks;
use super::load::{self, Purpose, begin};
use super::session::Session;
use super::words::{bytes, parse};

/// How many messages one safe point hands over; the next one has more.
const HANDED_OVER: usize = 64;

/// The largest checkpoint, in bytes.
const CHECKPOINT_MAX: Size = Size(64 << 20);

/// The run inside whose turn this is called.
fn own_run(session: &Session, store: &Store, named: &PlaneAgent) -> Result<(AgentName, RunId)> {
    let named: Option<AgentName> = named.agent.as_deref().map(|name| parse("--agent", name)).transpose()?;
    if let Some(caller) = session.caller(store)?
        && let CalledBy::Turn { run_id, .. } = caller.by
        && named.is_none_or(|named| named == caller.agent)
    {
        return Ok((caller.agent, run_id));
    }
    Err(Error::Refused {
        kind: "not_in_turn",
        message: "this is not called from inside a turn of that agent".to_owned(),
        hint: Some(
            "a turn finds DORMOUSE_AGENT and DORMOUSE_RUN in its environment: pass them on".to_owned(),
        ),
    })
}

pub fn safe_point(session: &mut Session, args: cli::SafePoint) -> Result<Status> {
    let store = session.store()?;
    let (name, run_id) = own_run(session, &store, &args.agent)?;
    let agent = store.agent(&name)?;
    let (state, waiting) = agent.consistently(|view, state| {
        let waiting = !interjections_in(view, &inbox::scan(view)?, &state)?.is_empty();
        Ok((state, waiting))
    })?;
    let (state, handed_over) =
        if waiting { hand_over(session, &agent, run_id)? } else { (state, Vec::new()) };
    let run = current(&state, run_id)?;
    let reason = asks_to_yield(run, session.clock.now());
    if session.out.is_json() {
        let interjections: Vec<Value> = handed_over.iter().map(shown).collect();
        session.out.json_line(&json!({
            "agent": name,
            "run_id": run_id,
            "yield": reason.is_some(),
            "reason": reason,
            "interjections": interjections,
        }));
    } else {
        handed_over.iter().for_each(|message| session.out.json_line(&shown(message)));
    }
    if let Some(reason) = reason {
        session.out.detail(&format!("please yield: {reason}"));
        return Ok(Status::PleaseYield);
    }
    Ok(Status::Done)
}

fn shown(message: &Message) -> Value {
    let mut value = json!(message);
    value["status"] = json!(MessageStatus::Interjected);
    value
}

fn current(state: &State, run_id: RunId) -> Result<&CurrentRun> {
    let run = state.current_run.as_ref().filter(|run| run.run_id == run_id);
    run.ok_or_else(|| Error::Refused {
        kind: "run_not_current",
        message: format!("{run_id} is no longer the current run of `{}`", state.agent),
        hint: Some("exit: it was settled without this turn".to_owned()),
    })
}

/// Where messages of the highest priority wait. They come first, so no others are looked at.
fn interjections_in(view: &View<'_>, scan: &Scan, state: &State) -> Result<Vec<(InboxKey, String)>> {
    let claimed = state.current_run.as_ref().map(|run| run.message_id);
    let mut found = inbox::first(view, scan, HANDED_OVER)?;
    found.retain(|(key, _)| key.priority == Priority::Interject && Some(key.id) != claimed);
    Ok(found)
}

/// Marks what waits as handed over, and returns it. From then on nobody else gets it; a turn that
/// is killed before it reads it leaves it to the next run of its message.
fn hand_over(session: &Session, agent: &Agent<'_>, run_id: RunId) -> Result<(State, Vec<Message>)> {
    let (mut draft, locked) = begin(session, agent)?;
    let messages = fresh_interjections(agent, &draft, &locked)?;
    if messages.is_empty() {
        return Ok((draft.records.state, messages));
    }
    rules::interject(&mut draft, run_id, &messages)?;
    Ok((hooks::commit(session, &locked, draft)?, messages))
}

/// Those that no step would drop.
fn fresh_interjections(agent: &Agent<'_>, draft: &Draft, locked: &Locked<'_>) -> Result<Vec<Message>> {
    let (view, now) = (locked.view(), draft.now());
    let (state, policy) = (&draft.records.state, &draft.records.policy);
    let mut messages = Vec::new();
    for (key, path) in interjections_in(&view, &locked.scan()?, state)? {
        let Some(message) = inbox::read(&view, key, &path)?.filter(is_interjection) else { continue };
        let first = load::first_of_its_key(agent, &view, &message, state, policy, now, Purpose::Change)?;
        if staleness(&message, first, now).is_none() {
            messages.push(message);
        }
    }
    Ok(messages)
}

pub fn give_way(session: &mut Session, args: cli::Yield) -> Result<Status> {
    let store = session.store()?;
    let (name, run_id) = own_run(session, &store, &args.agent)?;
    let checkpoint = args.checkpoint.as_deref().map(read_checkpoint).transpose()?;
    let agent = store.agent(&name)?;
    let staged = checkpoint.as_ref().map(|bytes| agent.stage_checkpoint(run_id, bytes)).transpose()?;
    let (mut draft, locked) = begin(session, &agent)?;
    let before = draft.records.state.current_run.as_ref().and_then(|run| run.checkpoint);
    let saved = rules::give_way(&mut draft, run_id, checkpoint.is_some())?;
    // It counts only once that is committed, so a refused or failed one leaves nothing that does.
    if let (Some(place), Some(staged)) = (saved, staged) {
        agent.save_checkpoint(place, staged)?;
    }
    hooks::commit(session, &locked, draft)?;
    // One that an earlier run has saved stays beside that run's record. What can't be removed is in
    // the way of nobody.
    if let Some(before) = before.filter(|before| before.run_id == run_id && saved != Some(*before)) {
        let _ = agent.remove_checkpoint(before);
    }
    let object = json!({
        "agent": name,
        "run_id": run_id,
        "checkpoint": saved.map(|saved| agent.checkpoint(saved).to_string_lossy().into_owned()),
        "bytes": checkpoint.as_ref().map(Vec::len),
    });
    session.out.result(&object, |_| format!("{run_id}  is suspended when this turn exits"));
    Ok(Status::Done)
}

fn read_checkpoint(word: &str) -> Result<Vec<u8>> {
    let checkpoint = bytes(word, CHECKPOINT_MAX)?;
    if checkpoint.len() as u64 > CHECKPOINT_MAX.0 {
        let name = if word == "-" { "stdin" } else { word };
        return Err(Error::Usage {
            message: format!("--checkpoint: {name} has more than {CHECKPOINT_MAX}"),
            hint: Some("keep what is large in a file of its own, and save where that is".to_owned()),
        });
    }
    Ok(checkpoint)
}

pub fn non_preemptible(session: &mut Session, args: cli::NonPreemptible) -> Result<Status> {
    let store = session.store()?;
    match args.command {
        Some(SectionCommand::Begin { agent, deadline }) => {
            let time = parse("--deadline", &deadline)?;
            let (name, run_id) = own_run(session, &store, &agent)?;
            let section = open(session, &store.agent(&name)?, run_id, time)?;
            show(session, &name, run_id, section, "open");
            Ok(Status::Done)
        }
        Some(SectionCommand::End { agent }) => {
            let (name, run_id) = own_run(session, &store, &agent)?;
            let section = close(session, &store.agent(&name)?, run_id, None)?;
            show(session, &name, run_id, section, "closed");
            Ok(Status::Done)
        }
        None => {
            let time = parse("--deadline", args.deadline.as_deref().unwrap_or_default())?;
            let (name, run_id) = own_run(session, &store, &args.agent)?;
            let agent = store.agent(&name)?;
            let section = open(session, &agent, run_id, time)?;
            within(session, &agent, run_id, section, &args.argv)
        }
    }
}

/// Runs a command inside a section.
fn within(
    session: &Session,
    agent: &Agent<'_>,
    run_id: RunId,
    section: Section,
    argv: &[OsString],
) -> Result<Status> {
    let ran = foreground::run(argv);
    match close(session, agent, run_id, Some(section.number)) {
        // The run may have ended meanwhile, and all of its sections with it.
        Ok(_) | Err(Error::Refused { .. }) => {}
        // What the command has come to counts for whoever called it; the section has an end of its own.
        Err(error) => {
            session.out.note(&format!("the section stays open until {}: {error}", section.until));
        }
    }
    let ran = ran?;
    if let Some(trouble) = &ran.trouble {
        session.out.note(trouble);
    }
    Ok(Status::OfCommand(ran.status))
}

fn open(session: &Session, agent: &Agent<'_>, run_id: RunId, time: Span) -> Result<Section> {
    let (mut draft, locked) = begin(session, agent)?;
    let section = rules::open_section(&mut draft, run_id, time)?;
    hooks::commit(session, &locked, draft)?;
    Ok(section)
}

fn close(session: &Session, agent: &Agent<'_>, run_id: RunId, number: Option<u32>) -> Result<Section> {
    let (mut draft, locked) = begin(session, agent)?;
    let section = rules::close_section(&mut draft, run_id, number)?;
    hooks::commit(session, &locked, draft)?;
    Ok(section)
}

/// For scripts; in a turn's own output a line about it would be in the way.
fn show(session: &mut Session, agent: &AgentName, run_id: RunId, section: Section, what: &str) {
    let object = json!({
        "agent": agent,
        "run_id": run_id,
        "section": section.number,
        "until": section.until,
        "state": what,
    });
    if session.out.is_json() {
        session.out.json_line(&object);
    } else {
        session
            .out
            .detail(&format!("section {} is {what}, respected until {}", section.number, section.until));
    }
}
