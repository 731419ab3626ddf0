//! Recovery: the transitions from `failed` back to `runnable`.

use crate::model::agent::Status;
use crate::model::attention::{AttentionSubject, Subject};
use crate::model::execution::ExecutionState;
use crate::model::recovery::OnExhausted;
use crate::model::refusal::Refusal;
use crate::model::state::{Retry, State};
use crate::rules::execution::way_on;

use super::draft::Draft;
use super::gate::give_up;

/// Recovers a failed execution in one transaction: `failed` → `recovering` → `runnable`.
pub fn recover(draft: &mut Draft, cause: &str) -> Result<(), Refusal> {
    begin(draft, cause)?;
    complete(draft)
}

/// Starts a recovery: `failed` → `recovering`. A recovery that has not ended is continued.
pub fn begin(draft: &mut Draft, cause: &str) -> Result<(), Refusal> {
    if draft.records.state.execution.state == ExecutionState::Recovering {
        return Ok(());
    }
    let refusal = nothing_to_recover(&draft.records.state);
    draft.enter(ExecutionState::Recovering, None, cause).map_err(|_| refusal)
}

/// Returns the refusal of a recovery of an agent that has not failed.
pub fn nothing_to_recover(state: &State) -> Refusal {
    let message = format!("`{}` has nothing to recover", state.agent);
    Refusal::action(state.execution.state, ExecutionState::Recovering, message).hint(way_on(state))
}

/// Completes a recovery: `recovering` → `runnable`.
pub fn complete(draft: &mut Draft) -> Result<(), Refusal> {
    draft.enter(ExecutionState::Runnable, None, "recovered")?;
    draft.records.state.retry = None;
    draft.records.state.recovery_failures = 0;
    Ok(())
}

/// Fails a recovery: `recovering` → `failed`. The next recovery comes after a pause, which grows
/// with each failure. The message whose failure began the recovery loses no attempt.
///
/// After `max_attempts` failures in a row the agent stops, or retries after the longest pause, as
/// the policy requires. No message becomes a dead letter, because no message has failed.
pub fn fail(draft: &mut Draft, reason: &str) -> Result<(), Refusal> {
    draft.enter(ExecutionState::Failed, None, reason)?;
    let policy = &draft.records.policy.recovery;
    let failures = draft.records.state.recovery_failures.saturating_add(1);
    let (most, then) = (policy.max_attempts, policy.on_exhausted);
    let exhausted = failures >= most;
    draft.records.state.recovery_failures = failures;
    pause(draft, reason);
    if draft.records.state.status == Status::Stopped {
        return Ok(());
    }
    draft.becomes_idle();
    if exhausted && then == OnExhausted::Stop {
        // After the next start, as many recoveries may fail again before the agent stops.
        draft.records.state.recovery_failures = 0;
        give_up(draft, AttentionSubject::default(), format!("its recovery failed: {reason}"));
    } else if failures == most {
        draft.raise(Subject::RecoveryFailed, AttentionSubject::default(), reason);
    }
    Ok(())
}

/// Sets the time at which the pause before the next recovery of a failed agent ends.
pub(super) fn pause(draft: &mut Draft, reason: &str) {
    let policy = &draft.records.policy.recovery;
    let failures = draft.records.state.recovery_failures;
    let goes_on = failures >= policy.max_attempts && policy.on_exhausted == OnExhausted::Park;
    let pause = if goes_on { policy.max_delay } else { policy.delay(failures.max(1), draft.stamp.chance) };
    let not_before = draft.now().after(pause);
    let state = &mut draft.records.state;
    let (message_id, attempt) = match &state.retry {
        Some(retry) => (retry.message_id, retry.attempt),
        None => (state.last_turn.as_ref().map(|turn| turn.message_id), None),
    };
    state.retry = Some(Retry { message_id, attempt, not_before, reason: reason.to_owned() });
}
