//! Transitions of a claimed turn to `running`, through states in which hooks run (contract,
//! execution §5).

use crate::model::execution::ExecutionState;
use crate::model::id::{MessageId, RunId};
use crate::model::records::InstalledHooks;
use crate::model::refusal::Refusal;
use crate::model::state::CurrentRun;
use crate::rules::preemption::is_being_ended;

use super::draft::Draft;

/// Moves a claimed turn from `waiting` or `waiting_resources` to a state that `scheduled` or
/// `resumed` can follow, if a hook for that state is installed. The direct way to `running` would
/// skip the hook. `pending`: state whose hook an earlier claim of the run did not run.
pub(super) fn go_round(draft: &mut Draft, pending: Option<ExecutionState>) -> Result<(), Refusal> {
    use ExecutionState::{Completed, Resumed, Runnable, Running, Scheduled, Suspended};
    let from = draft.records.state.execution.state;
    let hooks = draft.records.installed_hooks;
    let hook = hook_state(from, pending).filter(|_| goes_round(from));
    let (steps, hook): (&[ExecutionState], _) = if hook == Some(Resumed) && hooks.on_resume {
        (&[Running, Suspended], Resumed)
    } else if hook == Some(Scheduled) && hooks.on_scheduled {
        (&[Running, Completed, Runnable], Scheduled)
    } else {
        return Ok(());
    };
    steps.iter().try_for_each(|step| draft.enter(*step, None, &format!("on the way to {hook}")))
}

/// Brings a claimed message to `running`, through `scheduled` or `resumed` if the execution state
/// allows that. If a hook is installed for that state, stops there and returns the state; the
/// caller then runs the hook and calls `begin`.
pub(super) fn approach(
    draft: &mut Draft,
    message_id: MessageId,
    hooks: InstalledHooks,
) -> Result<Option<ExecutionState>, Refusal> {
    let from = draft.records.state.execution.state;
    let state = hook_state(from, None).filter(|_| !goes_round(from));
    if from == ExecutionState::Completed {
        draft.enter(ExecutionState::Runnable, None, "ready for the next message")?;
    }
    if let Some(state) = state {
        let cause = if state == ExecutionState::Resumed { "resumed" } else { "claimed" };
        draft.enter(state, Some(message_id), cause)?;
    }
    let hook = state.filter(|state| {
        let has_its_hook =
            if *state == ExecutionState::Resumed { hooks.on_resume } else { hooks.on_scheduled };
        has_its_hook || hooks.on_state_change
    });
    if hook.is_none() {
        start(draft, message_id)?;
    }
    Ok(hook)
}

fn start(draft: &mut Draft, message_id: MessageId) -> Result<(), Refusal> {
    draft.enter(ExecutionState::Running, Some(message_id), "turn command starts")
}

/// Starts the turn of a claim after its hook: enters `running`. Does nothing if the run has ended
/// or is being ended.
pub fn begin(draft: &mut Draft, run_id: RunId) -> Result<(), Refusal> {
    let state = &draft.records.state;
    let is_meant = |run: &&CurrentRun| run.run_id == run_id && !is_being_ended(run);
    match state.current_run.as_ref().filter(is_meant) {
        Some(run) if has_not_begun(state.execution.state) => start(draft, run.message_id),
        Some(_) | None => Ok(()),
    }
}

/// Enters `running` for a run that ends before its turn has started, because its state has no other
/// edge.
pub(super) fn pass_through_running(draft: &mut Draft) -> Result<(), Refusal> {
    let execution = &draft.records.state.execution;
    let task = execution.task_id;
    if has_not_begun(execution.state) {
        draft.enter(ExecutionState::Running, task, "ended before its turn began")?;
    }
    Ok(())
}

/// True in a state of a claimed run whose turn has not started.
pub fn has_not_begun(state: ExecutionState) -> bool {
    matches!(state, ExecutionState::Scheduled | ExecutionState::Resumed)
}

/// Returns the state, `scheduled` or `resumed`, whose hook runs before a turn claimed in `from`.
pub(super) fn hook_state(from: ExecutionState, pending: Option<ExecutionState>) -> Option<ExecutionState> {
    match from {
        ExecutionState::Completed | ExecutionState::Runnable | ExecutionState::Waiting => {
            Some(ExecutionState::Scheduled)
        }
        ExecutionState::Suspended => Some(ExecutionState::Resumed),
        // After a claim that lacked a resource, `pending` is the state whose hook has not run yet.
        ExecutionState::WaitingResources => pending,
        ExecutionState::Initializing
        | ExecutionState::Scheduled
        | ExecutionState::Running
        | ExecutionState::Resumed
        | ExecutionState::Failed
        | ExecutionState::ShuttingDown
        | ExecutionState::Recovering => None,
    }
}

/// True if only `running` may follow `from`, so that a hook's state needs a longer way.
fn goes_round(from: ExecutionState) -> bool {
    matches!(from, ExecutionState::Waiting | ExecutionState::WaitingResources)
}
