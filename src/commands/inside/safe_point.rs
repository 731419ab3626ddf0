//! `safe-point`: tells a turn if it should yield, and delivers messages of the operator (contract,
//! execution §6).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli;
use crate::commands::words::{parse, parse_optional};
use crate::engine::context::{Context, has_command_section};
use crate::engine::load;
use crate::engine::monitor::{RecordMonitor, instant_of};
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::id::{MessageId, RunId};
use crate::model::message::{Message, MessageStatus, Priority};
use crate::model::state::State;
use crate::model::time::Span;
use crate::process::turn::Fate;
use crate::process::{Signal, foreground, signal_named};
use crate::rules::preemption::{asks_to_yield, is_interjection, protected_until};
use crate::rules::transition::arrival::staleness;
use crate::rules::transition::preemption as rules;
use crate::store::{Agent, RecordWatch, Snapshot, Waiting};

use super::{current, own_run};

/// Maximum number of messages that one safe point delivers.
const HANDED_OVER: usize = 64;

/// Poll interval for changes that no record shows: new messages in the inbox, and sections whose
/// process has ended.
const LISTENS: Duration = Duration::from_millis(200);

/// Reason for ending the command when the turn need not yield but has messages to read.
const SPOKEN_TO: &str = "the operator has something to say";

/// Result of a safe point.
struct Findings {
    state: State,
    /// Reason for which the turn should yield.
    reason: Option<String>,
    /// Messages of the operator that a step would not drop.
    said: Vec<Message>,
}

pub fn safe_point(session: &mut Session, args: cli::SafePointArgs) -> Result<Status> {
    let wait: Option<Span> = parse_optional("--wait", args.wait.as_deref())?;
    let store = session.store()?;
    let (name, run_id) = own_run(session, &store, &args.agent)?;
    let agent = store.agent(&name)?;
    if !args.argv.is_empty() {
        return run_command(session, &agent, run_id, &args);
    }
    // Messages written to /dev/null would be lost.
    let is_read = session.out.is_read();
    let mut found = match wait {
        Some(wait) => wait_for_something(session, &agent, run_id, wait, is_read)?,
        None => look(session, &agent, run_id)?,
    };
    // A lock keeps two concurrent safe points from delivering the same messages.
    let alone = if found.said.is_empty() || !is_read || args.peek {
        None
    } else {
        let alone = agent.ready_local()?.hand_over_alone()?;
        found = look(session, &agent, run_id)?;
        if alone.is_none() {
            found.said.clear();
        }
        alone
    };
    if !is_read && !found.said.is_empty() {
        let count = found.said.len();
        session.out.note(&format!(
            "stdout is /dev/null: {count} of the operator's messages stay for a safe point that is read"
        ));
        found.said.clear();
    }
    tell(session, &found, run_id, args.peek);
    // Messages are written before they are marked. If this process is killed in between, the next
    // safe point delivers them again.
    session.out.flush();
    if alone.is_some() && !session.out.is_closed() {
        let told: Vec<MessageId> = found.said.iter().map(|message| message.id).collect();
        mark(session, &agent, run_id, &told)?;
    }
    if let Some(reason) = found.reason {
        session.out.detail(&format!("please yield: {reason}"));
        return Ok(Status::PleaseYield);
    }
    Ok(Status::Done)
}

fn tell(session: &mut Session, found: &Findings, run_id: RunId, leaves: bool) {
    let status = if leaves { MessageStatus::Queued } else { MessageStatus::Interjected };
    let shown = |message: &Message| {
        let mut value = json!(message);
        value["status"] = json!(status);
        value
    };
    let interjections: Vec<Value> = found.said.iter().map(shown).collect();
    if session.out.is_json() {
        session.out.json_line(&json!({
            "agent": found.state.agent,
            "run_id": run_id,
            "yield": found.reason.is_some(),
            "reason": found.reason,
            "interjections": interjections,
        }));
    } else {
        interjections.iter().for_each(|message| session.out.json_line(message));
    }
}

fn look(session: &Session, agent: &Agent<'_>, run_id: RunId) -> Result<Findings> {
    let (state, said) = agent.look(|seen, state| {
        let said = said(session, agent, &seen, &state)?;
        Ok((state, said))
    })?;
    let state = Context::new(session, agent).end_abandoned_sections(state)?;
    let reason = asks_to_yield(current(&state, run_id)?, session.clock.now()).map(str::to_owned);
    Ok(Findings { state, reason, said })
}

/// Checks at each change of the records, and when a section expires.
fn wait_for_something(
    session: &Session,
    agent: &Agent<'_>,
    run_id: RunId,
    wait: Span,
    is_read: bool,
) -> Result<Findings> {
    let until = Instant::now().checked_add(wait.as_std());
    let mut watch = RecordWatch::new();
    loop {
        watch.follow(agent);
        let found = look(session, agent, run_id)?;
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let has_something = found.reason.is_some() || (is_read && !found.said.is_empty());
        if has_something || left == Some(Duration::ZERO) {
            return Ok(found);
        }
        let now = session.clock.now();
        let section = protected_until(current(&found.state, run_id)?, now);
        let section = section.and_then(|until| instant_of(until, now));
        let section = section.map(|end| end.saturating_duration_since(Instant::now()));
        let unseen = has_command_section(current(&found.state, run_id)?).then_some(LISTENS);
        watch.wait(left.into_iter().chain(section).chain(unseen).min());
    }
}

/// Returns the queued messages of the highest priority, which come first in the queue.
fn interjections_in(seen: &Snapshot<'_>, state: &State) -> Result<Vec<Waiting>> {
    let claimed = state.current_run.as_ref().map(|run| run.message_id);
    let mut found = seen.first(HANDED_OVER)?;
    found.retain(|Waiting { key, .. }| key.priority == Priority::Interject && Some(key.id) != claimed);
    Ok(found)
}

/// Returns the messages of the operator that a step would not drop.
fn said(session: &Session, agent: &Agent<'_>, seen: &Snapshot<'_>, state: &State) -> Result<Vec<Message>> {
    let found = interjections_in(seen, state)?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let (policy, now) = (agent.policy()?, session.clock.now());
    let mut messages = Vec::new();
    for waiting in found {
        // The next step quarantines a malformed file.
        let Some(Ok(message)) = seen.try_read(&waiting)? else { continue };
        if !is_interjection(&message) {
            continue;
        }
        // A file of an ended message has reappeared, and a step will delete it. This is rare, so
        // the archive is searched.
        let ended = seen.ended_message(message.id)?.and_then(|message| message.settlement);
        if ended.is_some_and(|end| end.status != MessageStatus::Queued) {
            continue;
        }
        let first = load::first_of_its_key(seen, &message, state, &policy, now)?;
        if staleness(&message, first, now).is_none() {
            messages.push(message);
        }
    }
    Ok(messages)
}

/// True if a safe point would deliver a message.
fn is_spoken_to(session: &Session, agent: &Agent<'_>) -> Result<bool> {
    Ok(!agent.look(|seen, state| said(session, agent, &seen, &state))?.is_empty())
}

/// Marks messages as delivered, so that no other safe point delivers them. If the turn is killed
/// before it reads them, the next run of its message gets them.
fn mark(session: &Session, agent: &Agent<'_>, run_id: RunId, told: &[MessageId]) -> Result<()> {
    let mut open = Context::new(session, agent).open()?;
    let seen = open.locked.look_again();
    let mut messages = Vec::new();
    let interjections = interjections_in(&seen, &open.draft.records.state)?;
    for waiting in interjections.iter().filter(|waiting| told.contains(&waiting.key.id)) {
        messages.extend(seen.try_read(waiting)?.and_then(std::result::Result::ok));
    }
    drop(seen);
    if !messages.is_empty() {
        rules::interject(&mut open.draft, run_id, &messages)?;
        open.commit()?;
    }
    Ok(())
}

/// Runs a command, and ends it when the turn should yield or has messages to read.
fn run_command(
    session: &Session,
    agent: &Agent<'_>,
    run_id: RunId,
    args: &cli::SafePointArgs,
) -> Result<Status> {
    let grace: Span = parse("--grace", &args.grace)?;
    let signal: Signal = signal_named(&args.signal).ok_or_else(|| {
        Error::usage(format!("--signal: `{}` is no signal that ends a command", args.signal))
    })?;
    // If this process dies, no other process would end the command.
    let ending = foreground::EndOptions { signal, grace: grace.as_std(), orphaned: Some(signal) };
    let asked = |state: &State| -> Result<Option<String>> {
        let state = Context::new(session, agent).end_abandoned_sections(state.clone())?;
        let (run, now) = (current(&state, run_id)?, session.clock.now());
        if let Some(reason) = asks_to_yield(run, now) {
            return Ok(Some(reason.to_owned()));
        }
        let may_be_told = protected_until(run, now).is_none();
        Ok((may_be_told && is_spoken_to(session, agent)?).then(|| SPOKEN_TO.to_owned()))
    };
    // A turn that should yield already starts no command.
    if let Some(reason) = asked(&agent.peek()?)? {
        session.out.detail(&format!("please yield: {reason}; the command was not started"));
        return Ok(Status::PleaseYield);
    }
    let mut overseer = RecordMonitor::new(agent, |state: &State| match asked(state) {
        Ok(None) => {
            let now = session.clock.now();
            let run = state.current_run.as_ref();
            // The expiry of a section changes no record, so it needs a time of its own.
            let section = run.and_then(|run| protected_until(run, now));
            let section = section.and_then(|until| instant_of(until, now));
            // The arrival of a message changes no record either.
            let listens = Instant::now().checked_add(LISTENS);
            Fate::GoesOn { ask_again: section.into_iter().chain(listens).min() }
        }
        Ok(Some(_)) | Err(_) => Fate::Ends,
    });
    let ran = foreground::run(&args.argv, &mut overseer, &ending)?;
    if let Some(trouble) = &ran.trouble {
        session.out.note(trouble);
    }
    if !ran.was_ended && !ran.was_signalled {
        return Ok(Status::OfCommand(ran.status));
    }
    let reason = asked(&agent.peek()?)?;
    // The process that ends the turn may have signalled the command before the request was seen.
    if !ran.was_ended && reason.is_none() {
        return Ok(Status::OfCommand(ran.status));
    }
    let reason = reason.unwrap_or_default();
    session.out.detail(&format!("please yield: {reason}; the command was ended"));
    Ok(Status::PleaseYield)
}
