//! From `failed` back to work.

use crate::model::agent::Status;
use crate::model::execution::ExecutionState;
use crate::model::refusal::Refusal;
use crate::model::state::Retry;
use crate::rules::retry::delay;

use super::draft::Draft;

/// Recovers a failed execution at once: `failed` → `recovering` → `runnable`.
pub fn recover(draft: &mut Draft, cause: &str) -> Result<(), Refusal> {
    begin(draft, cause)?;
    complete(draft)
}

/// `failed` → `recovering`. A recovery that was begun and not ended goes on where it is.
pub fn begin(draft: &mut Draft, cause: &str) -> Result<(), Refusal> {
    if draft.records.state.execution.state == ExecutionState::Recovering {
        return Ok(());
    }
    draft.enter(ExecutionState::Recovering, None, cause)
}

/// `recovering` → `runnable`.
pub fn complete(draft: &mut Draft) -> Result<(), Refusal> {
    draft.enter(ExecutionState::Runnable, None, "recovered")?;
    draft.records.state.retry = None;
    Ok(())
}

/// `recovering` → `failed`: the next try comes after a pause. Costs the message no attempt.
pub fn fail(draft: &mut Draft, reason: &str) -> Result<(), Refusal> {
    draft.enter(ExecutionState::Failed, None, reason)?;
    let pause = delay(&draft.records.policy.recovery, 1, draft.stamp.chance);
    let not_before = draft.now().after(pause);
    let state = &mut draft.records.state;
    let failed = state.last_turn.as_ref().map(|turn| turn.message_id);
    let (message_id, attempt) = match &state.retry {
        Some(retry) => (Some(retry.message_id), retry.attempt),
        None => (failed, None),
    };
    state.retry =
        message_id.map(|message_id| Retry { message_id, attempt, not_before, reason: reason.to_owned() });
    if state.status != Status::Stopped {
        draft.set_status(Status::AwakeIdle);
    }
    Ok(())
}
