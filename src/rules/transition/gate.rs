//! Stopping an agent, so that steps claim no messages, and shutting down the activity of a stopped
//! agent (contract, semantics §14).

use serde_json::json;

use crate::model::agent::Status;
use crate::model::attention::{AttentionSubject, Subject};
use crate::model::event::{Boundary, EventKind};
use crate::model::execution::ExecutionState;
use crate::model::message::Origin;
use crate::model::refusal::Refusal;
use crate::model::state::{State, Stopping};
use crate::model::time::Span;

use crate::rules::authority;
use crate::rules::preemption::kill_at;

use super::draft::{Draft, without_nulls};
use super::hints::ignore_hints;
use super::start::{has_not_begun, pass_through_running};

/// Stops the agent, and marks a live run as stopping. Returns false if it was stopped already.
pub(super) fn close(
    draft: &mut Draft,
    grace: Span,
    requeue: bool,
    reason: Option<String>,
    by: &Origin,
) -> bool {
    let previous = draft.records.state.status;
    let itself = authority::agent(&draft.records.state.agent);
    let boundary = if *by == itself { Boundary::Shutdown } else { Boundary::Control };
    control(draft, ("stop", boundary), Status::Stopped, by, reason.as_deref());
    if previous == Status::Stopped {
        let stopped_by = &mut draft.records.state.stopped_by;
        if *by == authority::OPERATOR && stopped_by.as_ref().is_some_and(|before| before != by) {
            *stopped_by = Some(by.clone());
        }
        let unfinished = draft.records.state.current_run.as_mut().and_then(|run| run.stopping.as_mut());
        if let Some(stopping) = unfinished.filter(|stopping| requeue && !stopping.requeue) {
            stopping.requeue = true;
        }
        return false;
    }
    draft.records.state.stopped_by = Some(by.clone());
    let now = draft.now();
    let max_section = draft.records.policy.preemption.max_section;
    if let Some(run) = &mut draft.records.state.current_run {
        let kill_at = kill_at(run, now, max_section, grace);
        run.stopping = Some(Stopping { requested_at: now, kill_at, requeue, reason });
    }
    draft.set_status(Status::Stopped, boundary);
    ignore_hints(draft, "stopped");
    true
}

/// Stops the agent after the last attempt of a message or recovery, as the policy requires, and
/// notifies a person of the reason.
pub(super) fn give_up(draft: &mut Draft, about: AttentionSubject, reason: impl Into<String>) {
    let itself = authority::agent(&draft.records.state.agent);
    close(draft, Span::ZERO, false, Some("recovery.on_exhausted".to_owned()), &itself);
    draft.raise(Subject::AgentStopped, about, reason);
}

/// True if a stopped agent has a run or a recovery that has not begun to shut down.
pub fn is_to_be_shut_down(state: &State) -> bool {
    let is_stopping = state.current_run.as_ref().is_some_and(|run| run.stopping.is_some());
    let execution = state.execution.state;
    state.status == Status::Stopped
        && ((is_stopping && (execution == ExecutionState::Running || has_not_begun(execution)))
            || execution == ExecutionState::Recovering)
}

/// Begins to shut down the activity of a stopped agent. `grace` counts from now, or from the end of
/// the open critical section.
pub fn shut_down(draft: &mut Draft, grace: Span) -> Result<(), Refusal> {
    if !is_to_be_shut_down(&draft.records.state) {
        return Ok(());
    }
    let (now, max_section) = (draft.now(), draft.records.policy.preemption.max_section);
    let run = draft.records.state.current_run.as_mut();
    let message_id = run.map(|run| {
        let kill_at = kill_at(run, now, max_section, grace);
        run.stopping.iter_mut().for_each(|stopping| stopping.kill_at = kill_at);
        run.message_id
    });
    pass_through_running(draft)?;
    draft.enter(ExecutionState::ShuttingDown, message_id, "stop")?;
    if message_id.is_none() {
        // The agent has not recovered, so the next start begins with a recovery. No process has to
        // be waited for, so the shutdown ends at once.
        draft.enter(ExecutionState::Failed, None, "stopped while it recovered")?;
    }
    Ok(())
}

/// Records two events: the request of a control action, and its result, the status `next`.
pub(super) fn control(
    draft: &mut Draft,
    (action, boundary): (&str, Boundary),
    next: Status,
    by: &Origin,
    reason: Option<&str>,
) {
    let run_id = draft.run_id();
    let request = json!({ "action": action, "by": by.to_string(), "reason": reason });
    draft.event(EventKind::ControlRequestAdmitted, run_id, without_nulls(request));
    let tasks: Vec<_> = draft.records.tasks.iter().map(|task| task.id).collect();
    let applied = json!({
        "action": action,
        "previous_status": draft.records.state.status,
        "next_status": next,
        "boundary": boundary,
        "run_id": run_id,
        "task_ids": tasks,
        "workspace": draft.records.policy.workspace.path,
    });
    draft.event(EventKind::ControlApplied, run_id, applied);
}
