//! Deferrals: messages put off because a claim lacks a resource or at the request of their turn,
//! their next try, and their end (contract, execution §8).

use serde_json::json;

use crate::model::attention::{AttentionSubject, Subject};
use crate::model::continuation::Continuation;
use crate::model::decision::DecisionReport;
use crate::model::event::EventKind;
use crate::model::execution::ExecutionState;
use crate::model::id::RunId;
use crate::model::message::Message;
use crate::model::records::InstalledHooks;
use crate::model::refusal::Refusal;
use crate::model::resource::{Deferred, Shortage};
use crate::model::run::Terminal;
use crate::model::setbacks::Setbacks;
use crate::model::state::{CurrentRun, HeldRun};
use crate::model::time::Time;
use crate::model::turn::TurnEnd;

use super::arrival::admitted;
use super::attempt::{Attempt, fail_attempt, held_after};
use super::draft::Draft;
use super::rest::decided;
use super::settlement::drop_message;
use super::start::{approach, hook_state};
use super::trace::cut;

/// Holds a message whose claim lacks a resource. The attempt is not counted.
///
/// If the claim lacks the same resource as before, nothing changes until the next check is due;
/// that check may count as a deferral, and sets the time of the following check. If the claim
/// lacks another resource, the agent enters `waiting_resources` again.
pub fn lack(
    draft: &mut Draft,
    message: &Message,
    continuation: Continuation,
    shortage: &Shortage,
    report: &DecisionReport,
) -> Result<(), Refusal> {
    let state = &draft.records.state;
    let before = state.held.clone();
    // A run that released its resource to another agent stays suspended until the resource is free.
    let made_way = state.execution.state == ExecutionState::Suspended
        && before.as_ref().is_some_and(|held| held.resource.is_some());
    let waits = state.execution.state == ExecutionState::WaitingResources || made_way;
    let again = before.as_ref().filter(|held| waits && held.resource == Some(shortage.resource));
    // A deferral counts towards `recovery.max_deferrals`, unless a known agent has the resource,
    // the resource is a usage limit, or the run stays suspended.
    let is_counted = !shortage.is_occupied && !shortage.resource.is_limit() && !made_way;
    let has_changed = again.is_some_and(|held| held.is_occupied != shortage.is_occupied);
    let looks = again.map_or(0, |held| held.looks).saturating_add(1);
    let row = match again {
        // The deferral time restarts when a known agent takes or releases the resource.
        Some(_) if has_changed => None,
        Some(held) => held.deferred_since,
        None => state.deferred_since(draft.now()),
    };
    let base = before.clone().unwrap_or_else(|| HeldRun {
        checkpoint: message.checkpoint,
        setbacks: message.setbacks,
        ..HeldRun::new(message.id, continuation)
    });
    let mut held = HeldRun {
        missing: shortage.describe(),
        resource: Some(shortage.resource),
        is_occupied: shortage.is_occupied,
        not_before: next_check(draft, shortage, looks),
        deferred: Some(shortage.deferred()),
        // A run that stays suspended is not deferred, so no start of deferrals is stored for it.
        deferred_since: (!made_way || again.is_none()).then(|| row.unwrap_or(draft.now())),
        looks,
        setbacks: if is_counted { base.setbacks.lacking() } else { base.setbacks },
        ..base
    };
    if let Some(again) = again {
        let unchanged = if shortage.resource.is_limit() {
            again.not_before == held.not_before
        } else {
            !has_changed && again.not_before.is_some_and(|at| draft.now() < at)
        };
        if !unchanged {
            let held = bounded(draft, held, is_counted);
            draft.hold(held);
        }
        return Ok(());
    }
    // The admission of a message that was claimed before is already in the event log.
    if before.is_none() && message.attempt == 1 && message.continuation.is_none() {
        admitted(draft, message);
    }
    decided(draft, report);
    held.entered = hook_state(draft.records.state.execution.state, held.entered);
    // No hook runs for a claim that lacks a resource.
    approach(draft, message.id, InstalledHooks::default())?;
    let held = bounded(draft, held, is_counted);
    draft.enter(ExecutionState::WaitingResources, Some(message.id), &held.missing)?;
    draft.hold(held);
    draft.becomes_idle();
    Ok(())
}

/// Returns the held run; after `recovery.max_deferrals` deferrals, as held for the operator.
fn bounded(draft: &mut Draft, held: HeldRun, is_counted: bool) -> HeldRun {
    let times = held.setbacks.deferrals;
    if !is_counted || times < draft.records.policy.recovery.max_deferrals {
        return held;
    }
    let why = format!("put off {times} times in a row (recovery.max_deferrals): {}", held.missing);
    needs_operator(draft, held, why)
}

/// Returns the run as held until the operator decides about its message, which had too many
/// setbacks, and notifies a person.
pub(super) fn needs_operator(draft: &mut Draft, held: HeldRun, why: String) -> HeldRun {
    let run_id = draft.run_id();
    let about = AttentionSubject { run_id, ..AttentionSubject::message(held.message_id) };
    let agent = &draft.records.state.agent;
    let ways_out = format!(
        "`dormouse recover {agent}` tries it again, `dormouse fail {agent}` gives up this attempt, and `dormouse queue drop {}` the message",
        held.message_id
    );
    draft.raise(Subject::MessageHeld, about, format!("{why}; {ways_out}"));
    HeldRun {
        missing: format!("held for the operator: {why}"),
        needs_operator: true,
        resource: None,
        is_occupied: false,
        not_before: None,
        deferred: None,
        ..held
    }
}

/// Acknowledges the attention about a message held for the operator, who has now decided.
fn acknowledge_held(draft: &mut Draft, held: &HeldRun) {
    if held.needs_operator {
        let id = held.message_id;
        draft.acknowledge(|seen| seen.subject == Subject::MessageHeld && seen.about.message_id == Some(id));
    }
}

/// Returns the deferral that a turn with exit status 75 requests in its outcome. A later time than
/// `recovery.max_deferral` allows is replaced by the latest allowed time.
pub(super) fn said(draft: &Draft, end: &TurnEnd) -> Deferred {
    let now = draft.now();
    let latest = now.after(draft.records.policy.recovery.max_deferral);
    let deferral = end.outcome.as_ref().ok().and_then(|outcome| outcome.deferred.clone()).unwrap_or_default();
    let kept = |text: Option<String>| text.map(|text| cut(text.trim())).filter(|text| !text.is_empty());
    // A time in the past is ignored, as if the turn had named none.
    let until = deferral.until(now).filter(|until| *until > now);
    Deferred {
        until: until.map(|until| until.min(latest)),
        asked_until: until.filter(|until| *until > latest),
        resource: kept(deferral.resource),
        reason: kept(deferral.reason).or_else(|| kept(end.last_error_line.clone())),
    }
}

/// Defers the run: its message stays claimed, and the attempt is not counted. After
/// `recovery.max_deferrals` deferrals the message is held for the operator.
pub(super) fn defer(draft: &mut Draft, run: &CurrentRun, deferred: Deferred) -> Result<(), Refusal> {
    let setbacks = run.setbacks.deferred();
    let now = draft.now();
    let pause = || draft.records.policy.recovery.delay(setbacks.deferrals, draft.stamp.chance);
    let not_before = deferred.until.unwrap_or_else(|| now.after(pause()));
    let said = deferred.describe();
    let cause = said.clone().unwrap_or_else(|| "exit status 75".to_owned());
    let missing = said.unwrap_or_else(|| "the turn asked to come back later (exit status 75)".to_owned());
    let held = HeldRun {
        missing,
        not_before: Some(not_before),
        deferred_since: Some(run.deferred_since.unwrap_or(now)),
        deferred: Some(deferred),
        ..held_after(run, setbacks)
    };
    let held = bounded(draft, held, true);
    let cause = if held.needs_operator { &held.missing } else { &cause };
    draft.enter(ExecutionState::WaitingResources, Some(run.message_id), cause)?;
    draft.records.state.held = Some(held);
    Ok(())
}

/// Makes the next step try a message that waits for resources, even before its time. Returns
/// `false` if no message waits for resources, or only the operator can resume it.
pub fn try_now(draft: &mut Draft) -> bool {
    let now = draft.now();
    let state = &mut draft.records.state;
    let waits = state.execution.state == ExecutionState::WaitingResources;
    let Some(held) = state.held.as_mut().filter(|held| waits && !held.needs_operator) else { return false };
    held.not_before = Some(held.not_before.map_or(now, |at| at.min(now)));
    if let Some(deferred) = held.deferred.as_mut().filter(|_| held.resource.is_none()) {
        deferred.until = None;
    }
    draft.touch();
    true
}

/// Releases a message that is held for the operator, so that it can be tried again.
pub fn release_hold(draft: &mut Draft) {
    let Some(held) = draft.records.state.held.clone().filter(|held| held.needs_operator) else { return };
    acknowledge_held(draft, &held);
    let missing = "nothing: the operator tries it again".to_owned();
    draft.records.state.held = Some(HeldRun { needs_operator: false, missing, ..held });
}

/// Like [`try_now`], at a person's request: also resets the setbacks of the message to 0.
pub fn try_anew(draft: &mut Draft) -> bool {
    let now = draft.now();
    if !try_now(draft) {
        return false;
    }
    if let Some(held) = &mut draft.records.state.held {
        (held.setbacks, held.deferred_since) = (Setbacks::default(), Some(now));
    }
    true
}

/// Fails the attempt of a held run, in the same way as a failed turn fails its attempt.
pub fn fail_held(draft: &mut Draft, reason: &str) -> Result<(), Refusal> {
    let Some(held) = draft.records.state.held.take() else { return Ok(()) };
    acknowledge_held(draft, &held);
    let attempt = draft.records.inbox.claimed.as_ref().map_or(1, |message| message.attempt);
    let last = draft.records.state.last_turn.as_ref().filter(|turn| turn.message_id == held.message_id);
    let is_suspended = draft.records.state.execution.state == ExecutionState::Suspended;
    let terminal = if is_suspended { Terminal::Suspended } else { Terminal::Deferred };
    let run_id = last.map(|turn| turn.run_id);
    let failed = Attempt { held, number: attempt, run_id, terminal, is_last: false };
    fail_attempt(draft, failed, reason.to_owned())?;
    draft.becomes_idle();
    Ok(())
}

/// Removes the held run, because its message is dropped or requeued. The agent recovers without a
/// pause and continues with the next message.
pub(super) fn let_go(draft: &mut Draft, reason: &str) -> Result<Option<HeldRun>, Refusal> {
    let Some(held) = draft.records.state.held.take() else { return Ok(None) };
    acknowledge_held(draft, &held);
    draft.enter(ExecutionState::Failed, Some(held.message_id), reason)?;
    draft.records.state.retry = None;
    Ok(Some(held))
}

/// Drops the message of a held run, and removes the run.
pub fn drop_held(draft: &mut Draft, message: Message, reason: &str) -> Result<(), Refusal> {
    let message = match let_go(draft, reason)? {
        Some(HeldRun { checkpoint, continuation, .. }) => {
            Message { checkpoint, continuation: Some(continuation), ..message }
        }
        None => message,
    };
    drop_message(draft, message, reason);
    Ok(())
}

/// Logs that the end of a stopped run has released its workspace directory `path`.
pub fn released(draft: &mut Draft, run_id: RunId, path: &str) {
    draft.event(EventKind::WorkspaceReleased, Some(run_id), json!({ "path": path }));
}

/// Returns the time of the next check for a missing resource: for a limit, the time of its renewal;
/// else the end of a pause that grows with the number of checks, `looks`.
fn next_check(draft: &Draft, shortage: &Shortage, looks: u32) -> Option<Time> {
    if shortage.resource.is_limit() {
        return shortage.back_at;
    }
    let pause = draft.records.policy.recovery.delay(looks, draft.stamp.chance);
    Some(draft.now().after(pause))
}
