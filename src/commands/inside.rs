//! Turn commands: `safe-point`, `checkpoint`, `yield`, `non-preemptible` (contract, execution §6).

use std::ffi::OsString;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::{self, AgentFlag, SectionCommand};
use crate::commands::args::{answer, bytes, message_object};
use crate::engine::context::{Context, has_command_section};
use crate::engine::load;
use crate::engine::monitor::{instant_of, of_state};
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::bound::CHECKPOINT;
use crate::model::id::{MessageId, RunId};
use crate::model::message::{Message, MessageStatus, Priority};
use crate::model::preemption::{Checkpoint, Section};
use crate::model::refusal::Refusal;
use crate::model::state::{CurrentRun, State};
use crate::model::submission::CalledBy;
use crate::model::time::Span;
use crate::process::turn::NoMonitor;
use crate::process::{Signal, foreground, signal_named};
use crate::rules::preemption::{asks_to_yield, is_interjection, protected_until};
use crate::rules::transition::arrival::staleness;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::preemption as rules;
use crate::store::{Agent, RecordWatch, Snapshot, Store, Waiting};

/// Returns the agent and run of the turn that calls this command.
fn own_run<'s>(session: &Session, store: &'s Store, named: &AgentFlag) -> Result<(Agent<'s>, RunId)> {
    if let Some(caller) = session.caller(store)?
        && let CalledBy::Turn { run_id, .. } = caller.by
        && named.agent.as_ref().is_none_or(|named| *named == caller.agent)
    {
        return Ok((store.agent(&caller.agent)?, run_id));
    }
    Err(Error::refused("not_in_turn", "this command was not called by a turn of that agent").with_hint(
        "call it from the turn command, with the variables DORMOUSE_AGENT and DORMOUSE_RUN of the turn",
    ))
}

fn current(state: &State, run_id: RunId) -> Result<&CurrentRun> {
    let run = state.current_run.as_ref().filter(|run| run.run_id == run_id);
    run.ok_or_else(|| {
        Error::refused(
            "run_not_current",
            format!("{run_id} is no longer the current run of `{}`", state.agent),
        )
        .with_hint("exit: it was settled without this turn")
    })
}

pub fn checkpoint(session: &Session, store: &Store, args: cli::CheckpointArgs) -> Result<Status> {
    let (agent, run_id) = own_run(session, store, &args.agent)?;
    let bytes = checkpoint_bytes(&args.file)?;
    let rule = |draft: &mut Draft| rules::save(draft, run_id).map(Some);
    let (_, saved) = save(Context::new(session, &agent), run_id, Some(&bytes), rule)?;
    let path = saved.map(|saved| agent.local().checkpoint(saved).to_string_lossy().into_owned());
    let object = json!({ "agent": agent.name(), "run_id": run_id, "checkpoint": path, "bytes": bytes.len() });
    report(session, &object, &format!("saved {}", path.unwrap_or_default()))
}

/// Prints JSON with --json, or text with --verbose only, because stdout belongs to the turn.
fn report(session: &Session, object: &Value, text: &str) -> Result<Status> {
    if session.out.is_json() {
        session.out.json_line(object);
    } else {
        session.out.detail(text);
    }
    Ok(Status::Done)
}

/// Reads a checkpoint. Refuses an empty text, which is usually the result of a failed command.
fn checkpoint_bytes(word: &str) -> Result<Vec<u8>> {
    let bytes = bytes(word, &CHECKPOINT)?;
    if bytes.is_empty() {
        let from = if word == "-" { "stdin" } else { word };
        return Err(Error::refused("empty_checkpoint", format!("{from} is empty: no checkpoint was saved"))
            .with_hint("a checkpoint has at least one byte; the earlier one still counts"));
    }
    Ok(bytes)
}

pub fn yield_turn(session: &Session, store: &Store, args: cli::YieldArgs) -> Result<Status> {
    let (agent, run_id) = own_run(session, store, &args.agent)?;
    let bytes = args.checkpoint.as_deref().map(checkpoint_bytes).transpose()?;
    let rule = |draft: &mut Draft| rules::give_way(draft, run_id, bytes.is_some(), args.resume_after);
    let (state, saved) = save(Context::new(session, &agent), run_id, bytes.as_deref(), rule)?;
    let becomes = match current(&state, run_id)? {
        run if run.stopping.is_some() => "aborted",
        run if run.condemned.is_some() => "failed",
        _ => "suspended",
    };
    let object = json!({
        "agent": agent.name(),
        "run_id": run_id,
        "checkpoint": saved.map(|saved| agent.local().checkpoint(saved).to_string_lossy().into_owned()),
        "bytes": bytes.as_ref().map(Vec::len),
        "becomes": becomes,
    });
    answer(session, &object, |_| format!("{run_id}  is {becomes} when this turn exits"))
}

/// Saves a checkpoint: writes the file, and then commits its name, which makes the file valid.
fn save(
    context: Context<'_>,
    run_id: RunId,
    bytes: Option<&[u8]>,
    rule: impl FnOnce(&mut Draft) -> Result<Option<Checkpoint>, Refusal>,
) -> Result<(State, Option<Checkpoint>)> {
    let agent = context.agent;
    let staged = bytes.map(|bytes| agent.local().stage_checkpoint(run_id, bytes)).transpose()?;
    let mut open = context.open()?;
    let named = rule(&mut open.draft)?;
    let saved = named.zip(staged);
    let is_new = saved.is_some();
    if let Some((place, staged)) = saved {
        agent.local().save_checkpoint(place, staged)?;
        open.locked.keep_checkpoint(place, bytes.unwrap_or_default());
    }
    let state = context.commit(&open.locked, open.draft)?.state;
    if let Some(place) = named.filter(|_| is_new) {
        // A leftover checkpoint file is harmless, so an error is ignored.
        let _ = agent.local().remove_older(place);
    }
    Ok((state, named))
}

pub fn non_preemptible(session: &Session, store: &Store, args: cli::NonPreemptibleArgs) -> Result<Status> {
    match args.command {
        Some(SectionCommand::Begin { agent, deadline }) => {
            let (agent, run_id) = own_run(session, store, &agent)?;
            let open = |draft: &mut Draft| rules::open_section(draft, run_id, deadline, false);
            let section = Context::new(session, &agent).change(open)?.made;
            show(Context::new(session, &agent), run_id, section, "open")
        }
        Some(SectionCommand::End(agent)) => {
            let (agent, run_id) = own_run(session, store, &agent)?;
            let section = close(Context::new(session, &agent), run_id, None)?;
            show(Context::new(session, &agent), run_id, section, "closed")
        }
        None => {
            let (agent, run_id) = own_run(session, store, &args.agent)?;
            let time = args.deadline.unwrap_or(Span::ZERO);
            let mut open = Context::new(session, &agent).open()?;
            let section = rules::open_section(&mut open.draft, run_id, time, true)?;
            // Other processes test by this lock if the process of the critical section is alive.
            let _held = agent.ready_local()?.hold_section(run_id, section.number)?;
            open.commit()?;
            let status = within(Context::new(session, &agent), run_id, section, &args.argv);
            // The next cleanup deletes a leftover section file, so an error is ignored.
            let _ = agent.local().remove_section(run_id, section.number);
            status
        }
    }
}

/// Runs a command inside a non-preemptible (critical) section.
fn within(context: Context<'_>, run_id: RunId, section: Section, argv: &[OsString]) -> Result<Status> {
    let ending = foreground::EndOptions { orphaned: Some(Signal::KILL), ..foreground::EndOptions::default() };
    let ran = foreground::run(argv, &mut NoMonitor, &ending);
    // The critical section ends with this process anyway, so an error must not hide the status.
    let _ = close(context, run_id, Some(section.number));
    let ran = ran?;
    if let Some(trouble) = &ran.trouble {
        context.session.out.note(trouble);
    }
    Ok(Status::OfCommand(ran.status))
}

fn close(context: Context<'_>, run_id: RunId, number: Option<u32>) -> Result<Section> {
    Ok(context.change(|draft| rules::close_section(draft, run_id, number))?.made)
}

fn show(context: Context<'_>, run_id: RunId, section: Section, what: &str) -> Result<Status> {
    let object = json!({
        "agent": context.agent.name(),
        "run_id": run_id,
        "section": section.number,
        "until": section.until,
        "state": what,
    });
    let text = format!("section {} is {what}, respected until {}", section.number, section.until.local());
    report(context.session, &object, &text)
}

/// Maximum number of messages that one call of `safe-point` delivers to the turn.
const HANDED_OVER: usize = 64;

/// Poll interval for the death of a process that runs a critical section, which raises no event.
const LISTENS: Duration = Duration::from_millis(200);

/// Reason for ending the command that `safe-point` runs, if the operator has sent messages.
const SPOKEN_TO: &str = "the operator has something to say";

/// Result of the check by which a turn asks if it should yield.
struct Findings {
    state: State,
    /// Reason for which the turn should yield; `None` if the turn may continue.
    reason: Option<String>,
    /// Undelivered `interject` messages of the operator, except those that a step would drop.
    interjections: Vec<Message>,
}

pub fn safe_point(session: &Session, store: &Store, args: cli::SafePointArgs) -> Result<Status> {
    let (agent, run_id) = own_run(session, store, &args.agent)?;
    let context = Context::new(session, &agent);
    if !args.argv.is_empty() {
        return run_command(context, run_id, &args);
    }
    // Messages are not delivered to /dev/null, where no process reads them.
    let is_read = session.out.is_read();
    let mut found = match args.wait {
        Some(wait) => wait_for_something(context, run_id, wait, is_read)?,
        None => find(context, run_id)?,
    };
    // A lock keeps two concurrent safe points from delivering the same messages.
    let delivery_lock = if found.interjections.is_empty() || !is_read || args.peek {
        None
    } else {
        let delivery_lock = agent.ready_local()?.hand_over_alone()?;
        found = find(context, run_id)?;
        if delivery_lock.is_none() {
            found.interjections.clear();
        }
        delivery_lock
    };
    if !is_read && !found.interjections.is_empty() {
        let count = found.interjections.len();
        session.out.note(&format!(
            "stdout is /dev/null: {count} of the operator's messages stay for a safe point that is read"
        ));
        found.interjections.clear();
    }
    print_findings(session, &found, run_id, args.peek);
    // Messages are written before they are marked as delivered. After a kill in between, the next
    // safe point delivers the messages again.
    session.out.flush();
    if delivery_lock.is_some() && !session.out.is_closed() {
        let delivered: Vec<MessageId> = found.interjections.iter().map(|message| message.id).collect();
        mark_delivered(context, run_id, &delivered)?;
    }
    if let Some(reason) = found.reason {
        session.out.detail(&format!("please yield: {reason}"));
        return Ok(Status::PleaseYield);
    }
    Ok(Status::Done)
}

fn print_findings(session: &Session, found: &Findings, run_id: RunId, leaves: bool) {
    let status = if leaves { MessageStatus::Queued } else { MessageStatus::Interjected };
    let interjections: Vec<Value> =
        found.interjections.iter().map(|message| message_object(message, status)).collect();
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

fn find(context: Context<'_>, run_id: RunId) -> Result<Findings> {
    let (state, interjections) = context.agent.read(|seen, state| {
        let interjections = unread(context, &seen, &state)?;
        Ok((state, interjections))
    })?;
    let state = context.end_abandoned_sections(state)?;
    let reason = asks_to_yield(current(&state, run_id)?, context.session.clock.now()).map(str::to_owned);
    Ok(Findings { state, reason, interjections })
}

/// Waits, at most for `wait`, until the turn should yield or has messages (if stdout `is_read`).
fn wait_for_something(context: Context<'_>, run_id: RunId, wait: Span, is_read: bool) -> Result<Findings> {
    let until = Instant::now().checked_add(wait.as_std());
    let mut watch = RecordWatch::new();
    loop {
        watch.follow(context.agent);
        let found = find(context, run_id)?;
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let has_something = found.reason.is_some() || (is_read && !found.interjections.is_empty());
        if has_something || left == Some(Duration::ZERO) {
            return Ok(found);
        }
        let now = context.session.clock.now();
        let section = protected_until(current(&found.state, run_id)?, now);
        let section = section.and_then(|until| instant_of(until, now));
        let section = section.map(|end| end.saturating_duration_since(Instant::now()));
        let unseen = has_command_section(current(&found.state, run_id)?).then_some(LISTENS);
        watch.wait(left.into_iter().chain(section).chain(unseen).min());
    }
}

/// Returns the unclaimed messages of priority `interject`, which are first in the queue.
fn interjections_in(seen: &Snapshot<'_>, state: &State) -> Result<Vec<Waiting>> {
    let claimed = state.current_run.as_ref().map(|run| run.message_id);
    let mut found = seen.first(HANDED_OVER)?;
    found.retain(|Waiting { key, .. }| key.priority == Priority::Interject && Some(key.id) != claimed);
    Ok(found)
}

/// Returns undelivered `interject` messages of the operator, but none that a step would drop.
fn unread(context: Context<'_>, seen: &Snapshot<'_>, state: &State) -> Result<Vec<Message>> {
    let found = interjections_in(seen, state)?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let (policy, now) = (context.agent.policy()?, context.session.clock.now());
    let mut messages = Vec::new();
    for waiting in found {
        // A malformed file is skipped, because the next step quarantines the file.
        let Some(Ok(message)) = seen.try_read(&waiting)? else { continue };
        if !is_interjection(&message) {
            continue;
        }
        // The file of an ended message may have reappeared; a step then deletes it. Interjections
        // are rare, so a search of the archive is affordable.
        let ended = seen.ended_one::<Message>(message.id)?.and_then(|message| message.settlement);
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

/// Marks messages as delivered, so that no other safe point delivers them. If the turn is killed
/// before reading them, the next run of the turn's message receives them.
fn mark_delivered(context: Context<'_>, run_id: RunId, ids: &[MessageId]) -> Result<()> {
    let mut open = context.open()?;
    let seen = open.locked.current_snapshot();
    let mut messages = Vec::new();
    let interjections = interjections_in(&seen, &open.draft.records.state)?;
    for waiting in interjections.iter().filter(|waiting| ids.contains(&waiting.key.id)) {
        messages.extend(seen.try_read(waiting)?.and_then(std::result::Result::ok));
    }
    drop(seen);
    if !messages.is_empty() {
        rules::interject(&mut open.draft, run_id, &messages)?;
        open.commit()?;
    }
    Ok(())
}

/// Runs a command, and ends the command when the turn should yield or has messages.
fn run_command(context: Context<'_>, run_id: RunId, args: &cli::SafePointArgs) -> Result<Status> {
    let Context { session, agent } = context;
    let signal: Signal = signal_named(&args.signal).ok_or_else(|| {
        Error::usage(format!("--signal: `{}` is no signal that ends a command", args.signal))
    })?;
    // If this process dies, no other process ends the command, so the kernel signals it.
    let ending = foreground::EndOptions { signal, grace: args.grace.as_std(), orphaned: Some(signal) };
    let asked = |state: &State| -> Result<Option<String>> {
        let state = context.end_abandoned_sections(state.clone())?;
        let (run, now) = (current(&state, run_id)?, session.clock.now());
        if let Some(reason) = asks_to_yield(run, now) {
            return Ok(Some(reason.to_owned()));
        }
        let is_spoken_to = protected_until(run, now).is_none()
            && !agent.read(|seen, state| unread(context, &seen, &state))?.is_empty();
        Ok(is_spoken_to.then(|| SPOKEN_TO.to_owned()))
    };
    // The command is not started if the turn should already yield.
    if let Some(reason) = asked(&agent.peek()?)? {
        session.out.detail(&format!("please yield: {reason}; the command was not started"));
        return Ok(Status::PleaseYield);
    }
    let mut monitor = of_state(context, |state: &State| !matches!(asked(state), Ok(None)));
    let ran = foreground::run(&args.argv, &mut monitor, &ending)?;
    if let Some(trouble) = &ran.trouble {
        session.out.note(trouble);
    }
    if !ran.was_ended && !ran.was_signalled {
        return Ok(Status::OfCommand(ran.status));
    }
    let reason = asked(&agent.peek()?)?;
    // Another process has ended the command, so the command's status counts if no yield is due.
    if !ran.was_ended && reason.is_none() {
        return Ok(Status::OfCommand(ran.status));
    }
    let reason = reason.unwrap_or_default();
    session.out.detail(&format!("please yield: {reason}; the command was ended"));
    Ok(Status::PleaseYield)
}
