//! Life of a run: it is claimed, and later settled, stopped, or found interrupted.

use serde_json::json;

use crate::model::agent::Status;
use crate::model::closure::{Closure, ClosureOutcome, WaitingReason};
use crate::model::continuation::Continuation;
use crate::model::event::{Boundary, EventKind};
use crate::model::execution::ExecutionState;
use crate::model::id::RunId;
use crate::model::message::{Message, MessageStatus, Settlement};
use crate::model::preemption::Checkpoint;
use crate::model::refusal::Refusal;
use crate::model::run::{Exit, Run, Terminal};
use crate::model::setbacks::Setbacks;
use crate::model::state::CurrentRun;
use crate::model::time::Span;
use crate::model::turn::{RunClaimant, TurnEnd};

use crate::rules::clock::{LEASE_MARGIN, LEASE_WITHOUT_TIMEOUT};
use crate::rules::execution::resting_status;
use crate::rules::limits;
use crate::rules::preemption::{is_overdue, why_suspended};
use crate::rules::projection::closure;

use super::arrival::admitted;
use super::attempt::{Attempt, claimed_message, fail_attempt, held_after, interrupted, leave, release};
use super::draft::Draft;
use super::gate::shut_down;
use super::outcome::{OutcomeContext, apply};
use super::preemption::{FORCED, suspend};
use super::resources::{defer, said};
use super::settlement::settle_message;
use super::start::{approach, go_round, pass_through_running};
use super::trace::{Cost, RunEnd, Settled, archive, count, record_output, verdict};
use super::wait::take_up;

/// Cause in the event of a stopped run that ended before its processes had to be killed.
const IN_TIME: &str = "ended within the grace";

/// Claimed turn that is to run now.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    pub run: CurrentRun,
    pub message: Message,
    /// State before `running` whose hook runs before the turn. The caller calls `start::begin`
    /// after this hook. `None`: no hook runs first, and the agent is already `running`.
    pub stands_in: Option<ExecutionState>,
    /// Missing checkpoint from which the turn should have continued. The turn starts from the
    /// beginning instead.
    pub lost: Option<Checkpoint>,
}

/// Claims a message for a turn, and binds the waits that the message satisfies.
pub fn claim(
    draft: &mut Draft,
    message: Message,
    continuation: Continuation,
    claimant: RunClaimant,
) -> Result<Claimed, Refusal> {
    let now = draft.now();
    let checkpoint = draft.checkpoint_of(&message);
    let deferred_since = draft.records.state.deferred_since(now);
    let held = draft.records.state.held.take();
    let lease = draft.records.policy.turn.timeout.0.unwrap_or(LEASE_WITHOUT_TIMEOUT);
    let run = CurrentRun {
        run_id: RunId(draft.stamp.mint()),
        message_id: message.id,
        work_item_id: message.work_item_id,
        attempt: message.attempt,
        claimed_at: now,
        host: claimant.host,
        boot_id: claimant.boot_id,
        place: claimant.place,
        pid: claimant.pid,
        lease_expires_at: now.after(lease).after(LEASE_MARGIN),
        hops: message.hops,
        continuation: continuation.clone(),
        setbacks: held.as_ref().map_or(message.setbacks, |held| held.setbacks),
        deferred_since,
        deferred: held.as_ref().and_then(|held| held.deferred.clone()),
        stopping: None,
        preemption: None,
        sections: Vec::new(),
        yielded_at: None,
        resume_after: None,
        checkpoint,
        given: checkpoint,
        told: None,
        condemned: None,
        forced: false,
    };
    // A message that was claimed before already has its admission event in the event log.
    if held.is_none() && message.attempt == 1 && message.continuation.is_none() {
        admitted(draft, &message);
    }
    take_up(draft, &message, &continuation.resolves);
    // `current_run` is not set yet, so the transitions that `go_round` records name no run.
    go_round(draft, held.and_then(|held| held.entered))?;
    draft.records.state.current_run = Some(run.clone());
    draft.records.state.last_continuation = Some(continuation);
    let hooks = draft.records.installed_hooks;
    let stands_in = approach(draft, message.id, hooks)?;
    draft.set_status(Status::AwakeRunning, Boundary::MessageAdmission);
    Ok(Claimed { run, message, stands_in, lost: None })
}

/// Settles a run whose command has ended.
///
/// A run that is being stopped is aborted, unless its turn exited in time with status 0. A run that
/// was marked as failed has failed and a run that yielded is suspended, whatever the exit status.
/// For a run that is no longer current, only the output is recorded.
pub fn settle(
    draft: &mut Draft,
    run_id: RunId,
    end: TurnEnd,
    previous: Option<Run>,
    context: &OutcomeContext,
) -> Result<Settled, Refusal> {
    let current = draft.records.state.current_run.clone().filter(|run| run.run_id == run_id);
    let Some(run) = current else { return Ok(record_output(draft, run_id, &end, previous)) };
    if run.stopping.is_none() {
        pass_through_running(draft)?;
    }
    let mut ended = decided_before(&run, Some(&end)).unwrap_or_else(|| verdict(&end));
    if ended.terminal == Terminal::Deferred {
        let why = said(draft, &end).describe();
        ended.reason = Some(why.unwrap_or_else(|| "the turn asks to come back later".to_owned()));
    }
    if let (Terminal::Completed, Ok(outcome)) = (ended.terminal, &end.outcome)
        && let Err((path, refusal)) = apply(draft, &run, &outcome.actions, context)
    {
        (ended.terminal, ended.cost) = (Terminal::Failed, Cost::Message);
        ended.reason = Some(format!("outcome file: {path}: {}", refusal.message));
        // The usage that the turn has reported counts although its outcome is refused.
        if let Some(used) = ended.usage.take() {
            limits::count_usage(&mut draft.records.state.spending, draft.stamp.now, &used);
        }
    }
    if run.stopping.is_some() {
        if ended.terminal != Terminal::Completed && ended.cost != Cost::Message {
            let killed = matches!(end.exit, Exit::Signal { signal: 9 });
            return finish_stop(draft, killed, Some(&end));
        }
        // The turn has done its work, so its message is neither aborted nor requeued.
        shut_down(draft, Span::ZERO)?;
    }
    if let Exit::NotStarted { error } = &end.exit {
        draft.records.state.runtime_error = Some(error.clone());
    }
    conclude(draft, &run, ended)
}

/// Concludes a run that no stop has aborted: counts it, settles or requeues its message, derives
/// the closure, and archives its record.
fn conclude(draft: &mut Draft, run: &CurrentRun, ended: RunEnd<'_>) -> Result<Settled, Refusal> {
    let terminal = ended.terminal;
    count(draft, run, &ended);
    match terminal {
        Terminal::Completed => {
            if let Some(message) = claimed_message(draft, run.message_id) {
                let processed = Settlement::new(MessageStatus::Processed, draft.now());
                settle_message(draft, message, Settlement { run_id: Some(run.run_id), ..processed });
            }
            draft.records.state.retry = None;
        }
        Terminal::Deferred => {
            let said = ended.seen.map(|end| said(draft, end)).unwrap_or_default();
            defer(draft, run, said)?;
        }
        Terminal::Suspended => suspend(draft, run)?,
        Terminal::Failed | Terminal::TimedOut | Terminal::Interrupted | Terminal::Aborted => {
            let reason = ended.reason.clone().unwrap_or_default();
            if ended.cost == Cost::Interruption {
                interrupted(draft, run, &reason)?;
            } else {
                let held = held_after(run, Setbacks::default());
                let (number, run_id, is_last) = (run.attempt, Some(run.run_id), ended.cost == Cost::Message);
                fail_attempt(draft, Attempt { held, number, run_id, terminal, is_last }, reason)?;
            }
        }
    }
    leave(draft, run);
    let closure = close(draft, terminal)?;
    let settled = archive(draft, run, ended, closure);
    draft.ask();
    Ok(settled)
}

/// Returns the end of a run that was decided before the end of its turn; else `None`.
fn decided_before<'e>(run: &CurrentRun, seen: Option<&'e TurnEnd>) -> Option<RunEnd<'e>> {
    if let Some(reason) = &run.condemned {
        let cost = if run.forced { Cost::Interruption } else { Cost::Attempt };
        return Some(RunEnd::new(Terminal::Failed, Some(reason.clone()), cost, seen));
    }
    // A turn that yields has declared that its work is not done.
    run.yielded_at?;
    Some(RunEnd::new(Terminal::Suspended, Some(why_suspended(run).to_owned()), Cost::Attempt, seen))
}

/// Settles a run whose `tick` process has died. The caller must have ended the run's processes;
/// otherwise they would run in parallel with the next attempt.
pub fn interrupt(draft: &mut Draft, why: &str) -> Result<(), Refusal> {
    let Some(run) = draft.records.state.current_run.clone() else { return Ok(()) };
    let data =
        json!({ "message_id": run.message_id, "attempt": run.attempt, "host": run.host, "reason": why });
    draft.event(EventKind::RunInterrupted, Some(run.run_id), data);
    if run.stopping.is_some() {
        finish_stop(draft, true, None)?;
        return Ok(());
    }
    pass_through_running(draft)?;
    let now = draft.now();
    // A dead `tick` process, or a missed preemption deadline, costs the message no attempt.
    let ended = |terminal, why: &str| RunEnd::new(terminal, Some(why.to_owned()), Cost::Interruption, None);
    let forced = is_overdue(&run, now).then(|| ended(Terminal::Failed, FORCED));
    let vanished = || ended(Terminal::Interrupted, why);
    let ended = decided_before(&run, None).or(forced).unwrap_or_else(vanished);
    conclude(draft, &run, ended).map(drop)
}

/// Settles a stopped run after its processes have ended. `killed`: they did not end in the grace.
pub fn finish_stop(draft: &mut Draft, killed: bool, end: Option<&TurnEnd>) -> Result<Settled, Refusal> {
    let Some(run) = draft.records.state.current_run.clone() else {
        return Err(Refusal::new("no_run", "there is no run to stop"));
    };
    let requeue = run.stopping.as_ref().is_some_and(|stopping| stopping.requeue);
    let reason = run.stopping.as_ref().and_then(|stopping| stopping.reason.clone());
    let reason = Some(reason.map_or_else(|| "stopped".to_owned(), |reason| format!("stopped: {reason}")));
    // The usage of the turn counts even though the run is aborted.
    let ended = RunEnd::new(Terminal::Aborted, reason, Cost::Attempt, end);
    count(draft, &run, &ended);
    if let Some(message) = claimed_message(draft, run.message_id) {
        if requeue {
            draft.event(EventKind::MessageRequeued, Some(run.run_id), json!({ "message_id": message.id }));
            release(draft, message, held_after(&run, Setbacks::default()));
        } else {
            let aborted = Settlement::new(MessageStatus::Aborted, draft.now());
            let (reason, run_id) = (ended.reason.clone(), Some(run.run_id));
            settle_message(draft, message, Settlement { reason, run_id, ..aborted });
        }
    }
    draft.event(
        EventKind::CurrentRunAborted,
        Some(run.run_id),
        json!({ "message_id": run.message_id, "killed": killed, "requeued": requeue, "boundary": Boundary::Shutdown }),
    );
    // If the run ended before the shutdown was recorded, the shutdown is recorded now.
    shut_down(draft, Span::ZERO)?;
    if draft.records.state.execution.state == ExecutionState::ShuttingDown {
        let (state, cause) = match &run.condemned {
            Some(reason) => (ExecutionState::Failed, reason.as_str()),
            None if killed => (ExecutionState::Failed, "shutdown_timeout"),
            None => (ExecutionState::Completed, IN_TIME),
        };
        draft.enter(state, None, cause)?;
    }
    leave(draft, &run);
    draft.records.state.retry = None;
    let closure = closure(&draft.records);
    Ok(archive(draft, &run, ended, closure))
}

/// Derives the closure, and sets the status and the execution state accordingly.
fn close(draft: &mut Draft, terminal: Terminal) -> Result<Closure, Refusal> {
    let closure = closure(&draft.records);
    if draft.records.state.execution.state == ExecutionState::ShuttingDown {
        draft.enter(ExecutionState::Completed, None, IN_TIME)?;
    } else if terminal == Terminal::Completed {
        match closure.outcome {
            ClosureOutcome::Waiting => {
                let cause = closure.waiting_reason.map_or("waiting_system", WaitingReason::name);
                draft.enter(ExecutionState::Waiting, None, cause)?;
                let status = resting_status(&draft.records, &closure, None);
                draft.set_status(status, Boundary::LifecycleSleep);
            }
            ClosureOutcome::Completed | ClosureOutcome::Continuable | ClosureOutcome::Failed => {
                draft.enter(ExecutionState::Completed, None, closure.outcome.name())?;
                draft.becomes_idle();
            }
        }
    } else {
        draft.becomes_idle();
    }
    Ok(closure)
}

/// Records that the checkpoint of a claimed run is missing, for instance in a clone. The turn
/// starts from the beginning and is notified.
pub fn lose_checkpoint(draft: &mut Draft, claimed: &mut Claimed, path: &str) {
    claimed.lost = claimed.run.checkpoint.take();
    claimed.run.given = None;
    let run_id = claimed.run.run_id;
    draft.records.state.current_run = Some(claimed.run.clone());
    draft.event(EventKind::CheckpointLost, Some(run_id), json!({ "path": path }));
}
