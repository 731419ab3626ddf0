//! Transitions of a claimed turn to `running`, through states in which hooks run (contract,
//! execution §5).

use crate::model::execution::ExecutionState;
use crate::model::id::{MessageId, RunId};
use crate::model::refusal::Refusal;
use crate::rules::preemption::is_being_ended;

use super::draft::Draft;

/// Leads a claimed turn from `waiting` or `waiting_resources` to a state from which it can be
/// scheduled or resumed, if the hook for that is installed. The direct edge leads to `running` and
/// would skip the hook. `pending` is the state whose hook an earlier claim of the run did not run.
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

/// Leads a claimed turn to `running`. If a hook is to run before, stops at the state of the hook
/// and returns it; the caller then runs the hook and calls `begin`.
pub(super) fn approach(draft: &mut Draft, message_id: MessageId) -> Result<Option<ExecutionState>, Refusal> {
    let hooks = draft.records.installed_hooks;
    let hook = enter_before_running(draft, message_id)?.filter(|state| {
        let has_its_hook =
            if *state == ExecutionState::Resumed { hooks.on_resume } else { hooks.on_scheduled };
        has_its_hook || hooks.on_state_change
    });
    if hook.is_none() {
        start(draft, message_id)?;
    }
    Ok(hook)
}

/// Leads a claim to `running` without hooks, because it lacks a resource.
pub(super) fn to_running(draft: &mut Draft, message_id: MessageId) -> Result<(), Refusal> {
    enter_before_running(draft, message_id)?;
    start(draft, message_id)
}

/// Enters the state that precedes `running`, if an edge leads there from the present state.
fn enter_before_running(draft: &mut Draft, message_id: MessageId) -> Result<Option<ExecutionState>, Refusal> {
    let from = draft.records.state.execution.state;
    let state = hook_state(from, None).filter(|_| !goes_round(from));
    if from == ExecutionState::Completed {
        draft.enter(ExecutionState::Runnable, None, "ready for the next message")?;
    }
    if let Some(state) = state {
        let cause = if state == ExecutionState::Resumed { "resumed" } else { "claimed" };
        draft.enter(state, Some(message_id), cause)?;
    }
    Ok(state)
}

fn start(draft: &mut Draft, message_id: MessageId) -> Result<(), Refusal> {
    draft.enter(ExecutionState::Running, Some(message_id), "turn command starts")
}

/// Completes a claim after its hook: enters `running`. Does nothing if the run has ended meanwhile,
/// or is being ended.
pub fn begin(draft: &mut Draft, run_id: RunId) -> Result<(), Refusal> {
    let run = draft.records.state.current_run.as_ref();
    let Some(run) = run.filter(|run| run.run_id == run_id && !is_being_ended(run)) else { return Ok(()) };
    let message_id = run.message_id;
    if has_not_begun(draft.records.state.execution.state) {
        start(draft, message_id)?;
    }
    Ok(())
}

/// Leads a run that ends before its turn has started through `running`, because no other edge leads
/// on.
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

/// Returns the state whose hook runs before a turn that is claimed in state `from`.
pub(super) fn hook_state(from: ExecutionState, pending: Option<ExecutionState>) -> Option<ExecutionState> {
    match from {
        ExecutionState::Completed | ExecutionState::Runnable | ExecutionState::Waiting => {
            Some(ExecutionState::Scheduled)
        }
        ExecutionState::Suspended => Some(ExecutionState::Resumed),
        // The hook has run for a message that its turn put off, but not if a resource was missing.
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

/// True if the edge to `running` is the only one for a claim in this state.
fn goes_round(from: ExecutionState) -> bool {
    matches!(from, ExecutionState::Waiting | ExecutionState::WaitingResources)
}
