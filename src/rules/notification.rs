//! Details of transitions and failures that are passed to hooks (contract, execution §5).

use crate::model::attention::{FailureTold, PendingTransition};
use crate::model::id::RunId;
use crate::model::state::State;

/// Adds the run and the message to each transition of one transaction, which concerns at most one
/// run: the current run, else `about`, which is the run that the transaction's events name.
pub fn with_run(
    transitions: Vec<PendingTransition>,
    state: &State,
    about: Option<RunId>,
) -> Vec<PendingTransition> {
    let run_id = state.current_run.as_ref().map(|run| run.run_id).or(about);
    let last = state.last_turn.as_ref().filter(|turn| Some(turn.run_id) == run_id);
    let task_id = state.execution.task_id.or(last.map(|turn| turn.message_id));
    let completed = |transition: PendingTransition| {
        // Transitions of a claim before the run exists must not get the run's id.
        let is_before_run = state.current_run.is_some() && transition.run_id.is_none();
        let (run_id, task_id) = if is_before_run { (None, None) } else { (run_id, task_id) };
        let failure = transition.failure.as_ref();
        PendingTransition {
            task_id: task_id.or(failure.and_then(|failure| failure.message_id)),
            run_id: run_id.or(failure.and_then(|failure| failure.run_id)),
            ..transition
        }
    };
    transitions.into_iter().map(completed).collect()
}

/// Returns the failure that the agent has still to recover from.
pub fn failure(state: &State) -> Option<FailureTold> {
    let retry = state.retry.as_ref()?;
    let turn = state.last_turn.as_ref().filter(|turn| Some(turn.message_id) == retry.message_id);
    Some(FailureTold {
        reason: retry.reason.clone(),
        message_id: retry.message_id,
        attempt: turn.map(|turn| turn.attempt).or(retry.attempt),
        run_id: turn.map(|turn| turn.run_id),
    })
}
