//! From `failed` back to work.

use crate::model::execution::ExecutionState;
use crate::model::refusal::Refusal;

use super::draft::Draft;

/// Recovers a failed execution: `failed` → `recovering` → `runnable`.
pub fn recover(draft: &mut Draft, cause: &str) -> Result<(), Refusal> {
    draft.enter(ExecutionState::Recovering, None, cause)?;
    draft.enter(ExecutionState::Runnable, None, "recovered")?;
    draft.records.state.retry = None;
    Ok(())
}
