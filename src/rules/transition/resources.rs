//! Messages that are put off, by a claim that finds a resource missing or by their turn; how they are tried
//! again, and how that ends (contract, execution §8).

use serde_json::json;

use crate::model::agent::Status;
use crate::model::continuation::Continuation;
use crate::model::decision::DecisionReport;
use crate::model::event::{Boundary, EventKind};
use crate::model::execution::ExecutionState;
use crate::model::id::RunId;
use crate::model::message::Message;
use crate::model::refusal::Refusal;
use crate::model::resource::{Deferred, Shortage};
use crate::model::run::Terminal;
use crate::model::state::{CurrentRun, Held};
use crate::model::time::Time;
use crate::model::turn::TurnEnd;

use crate::rules::deferral::row_since;
use crate::rules::retry::delay;

use super::arrival::admitted;
use super::attempt::{Attempt, fail_attempt, leave};
use super::draft::Draft;
use super::rest::decided;
use super::settlement::drop_message;
use super::start::{hook_state, to_running};
use super::trace::cut;

/// Puts a claim off because a resource is missing. Its attempt does not count.
///
/// If the claim lacks the same resource as before, nothing changes until it is time to look again, and then
/// only the time of the next look. If it lacks another one, the same row of deferrals goes on.
pub fn lack(
    draft: &mut Draft,
    message: &Message,
    continuation: Continuation,
    shortage: &Shortage,
    report: &DecisionReport,
) -> Result<(), Refusal> {
    let state = &draft.records.state;
    let before = state.held.clone();
    // A run that has left its slot to another stays suspended until there is a slot for it.
    let made_way = state.execution.state == ExecutionState::Suspended
        && before.as_ref().is_some_and(|held| held.resource.is_some());
    let waits = state.execution.state == ExecutionState::WaitingResources || made_way;
    let again = before.as_ref().filter(|held| waits && held.resource == Some(shortage.resource));
    let looks = again.map_or(0, |held| held.looks).saturating_add(1);
    let row = again.map_or_else(|| row_since(state, draft.now()), |held| held.deferred_since);
    let mut held = Held {
        missing: shortage.describe(),
        resource: Some(shortage.resource),
        not_before: look_again(draft, shortage, looks),
        deferred: Some(shortage.deferred()),
        // A run that stays suspended is not in a row of deferrals.
        deferred_since: (!made_way || again.is_none()).then(|| row.unwrap_or(draft.now())),
        looks,
        ..before
            .clone()
            .unwrap_or_else(|| Held { checkpoint: message.checkpoint, ..Held::new(message.id, continuation) })
    };
    if let Some(again) = again {
        let unchanged = if shortage.resource.is_limit() {
            again.not_before == held.not_before
        } else {
            again.not_before.is_some_and(|at| draft.now() < at)
        };
        if !unchanged {
            draft.hold(held);
        }
        return Ok(());
    }
    // For a message that was claimed before, the ledger has this event already.
    if before.is_none() && message.attempt == 1 && message.continuation.is_none() {
        admitted(draft, message);
    }
    decided(draft, report);
    held.entered = hook_state(draft.records.state.execution.state, held.entered);
    to_running(draft, message.id)?;
    draft.enter(ExecutionState::WaitingResources, Some(message.id), &held.missing)?;
    draft.hold(held);
    draft.set_status(Status::AwakeIdle, Boundary::MessageAdmission);
    Ok(())
}

/// What a turn that ended with exit status 75 has said about its deferral.
pub(super) fn said(end: &TurnEnd, now: Time) -> Deferred {
    let deferral = end.outcome.as_ref().ok().and_then(|outcome| outcome.deferred.clone()).unwrap_or_default();
    let kept = |text: Option<String>| text.map(|text| cut(text.trim())).filter(|text| !text.is_empty());
    Deferred {
        // A moment that is past says nothing about when to try next.
        until: deferral.until(now).filter(|until| *until > now),
        resource: kept(deferral.resource),
        reason: kept(deferral.reason).or_else(|| kept(end.last_error_line.clone())),
    }
}

/// Defers the run: the message stays claimed, and its attempt does not count.
pub(super) fn defer(draft: &mut Draft, run: &CurrentRun, deferred: Deferred) -> Result<(), Refusal> {
    let deferrals = run.deferrals.saturating_add(1);
    let now = draft.now();
    let pause = || delay(&draft.records.policy.recovery, deferrals, draft.stamp.chance);
    let not_before = deferred.until.unwrap_or_else(|| now.after(pause()));
    let missing = deferred.describe();
    draft.enter(
        ExecutionState::WaitingResources,
        Some(run.message_id),
        missing.as_deref().unwrap_or("exit status 75"),
    )?;
    draft.records.state.held = Some(Held {
        missing: missing.unwrap_or_else(|| "the turn asked to come back later (exit status 75)".to_owned()),
        not_before: Some(not_before),
        deferrals,
        deferred_since: Some(run.deferred_since.unwrap_or(now)),
        deferred: Some(deferred),
        checkpoint: run.checkpoint,
        ..Held::new(run.message_id, run.continuation.clone())
    });
    leave(draft, run);
    Ok(())
}

/// Has the next step try what waits for resources, even if it was put off until later. Returns `false` if
/// nothing waits for resources.
pub fn try_now(draft: &mut Draft) -> bool {
    let now = draft.now();
    let state = &mut draft.records.state;
    let waits = state.execution.state == ExecutionState::WaitingResources;
    let Some(held) = state.held.as_mut().filter(|_| waits) else { return false };
    held.not_before = Some(held.not_before.map_or(now, |at| at.min(now)));
    if let Some(deferred) = held.deferred.as_mut().filter(|_| held.resource.is_none()) {
        deferred.until = None;
    }
    draft.touch();
    true
}

/// Like `try_now`, because a person asked for it: the row of deferrals begins anew, so that what is tried now
/// is not late.
pub fn try_anew(draft: &mut Draft) -> bool {
    let now = draft.now();
    if !try_now(draft) {
        return false;
    }
    if let Some(held) = &mut draft.records.state.held {
        (held.deferrals, held.deferred_since) = (0, Some(now));
    }
    true
}

/// Fails the attempt that waits to go on. Its message is treated like any other that has failed.
pub fn fail_held(draft: &mut Draft, reason: &str) -> Result<(), Refusal> {
    let Some(held) = draft.records.state.held.take() else { return Ok(()) };
    let attempt = draft.records.inbox.claimed.as_ref().map_or(1, |message| message.attempt);
    let last = draft.records.state.last_turn.as_ref().filter(|turn| turn.message_id == held.message_id);
    let terminal = match draft.records.state.execution.state {
        ExecutionState::Suspended => Terminal::Suspended,
        ExecutionState::Initializing
        | ExecutionState::Runnable
        | ExecutionState::Scheduled
        | ExecutionState::Running
        | ExecutionState::Waiting
        | ExecutionState::WaitingResources
        | ExecutionState::Resumed
        | ExecutionState::Completed
        | ExecutionState::Failed
        | ExecutionState::ShuttingDown
        | ExecutionState::Recovering => Terminal::Deferred,
    };
    let failed = Attempt {
        message_id: held.message_id,
        number: attempt,
        run_id: last.map(|turn| turn.run_id),
        terminal,
        continuation: held.continuation,
        checkpoint: held.checkpoint,
    };
    fail_attempt(draft, failed, reason.to_owned())?;
    if draft.records.state.status != Status::Stopped {
        draft.set_status(Status::AwakeIdle, Boundary::MessageAdmission);
    }
    Ok(())
}

/// Removes the held run, because its message leaves it. The agent recovers and goes on with the next message.
pub(super) fn let_go(draft: &mut Draft, reason: &str) -> Result<Option<Held>, Refusal> {
    let Some(held) = draft.records.state.held.take() else { return Ok(None) };
    draft.enter(ExecutionState::Failed, Some(held.message_id), reason)?;
    draft.records.state.retry = None;
    Ok(Some(held))
}

/// Drops the message of a run that waits to go on.
pub fn drop_held(draft: &mut Draft, message: Message, reason: &str) -> Result<(), Refusal> {
    let message = match let_go(draft, reason)? {
        Some(held) => {
            Message { checkpoint: held.checkpoint, continuation: Some(held.continuation), ..message }
        }
        None => message,
    };
    drop_message(draft, message, reason);
    Ok(())
}

/// Records that a stopped run has left its workspace.
pub fn released(draft: &mut Draft, run_id: RunId, path: &str) {
    draft.event(EventKind::WorkspaceReleased, Some(run_id), json!({ "path": path }));
}

/// When to look for the resource again. If the time of its return is known, then; otherwise every step looks,
/// and the moments at which a step is due for it grow further apart.
fn look_again(draft: &Draft, shortage: &Shortage, looks: u32) -> Option<Time> {
    if shortage.resource.is_limit() {
        return shortage.back_at;
    }
    let pause = delay(&draft.records.policy.recovery, looks, draft.stamp.chance);
    Some(draft.now().after(pause))
}
