//! End of a delegation, derived from the records of the child (contract, semantics §12).

use crate::model::agent::Status;
use crate::model::closure::ClosureOutcome;
use crate::model::execution::ExecutionState;
use crate::model::message::{MessageStatus, Settlement};
use crate::model::records::Records;
use crate::model::task::{ChildEnd, TaskStatus};

use super::projection::closure;
use super::stall::has_input;

/// Returns the end of a delegation; `None` while it lasts. `settled`: settlement of the delegated
/// message. A stop of the child ends the delegation too, so that no parent waits for ever.
pub fn end(child: &Records, settled: Option<&Settlement>) -> Option<ChildEnd> {
    let state = &child.state;
    let name = &state.agent;
    let ended = |status, reason: Option<String>| {
        let brief = state.last_turn.as_ref().and_then(|turn| turn.brief.clone());
        Some(ChildEnd { status, reason, brief })
    };
    if let Some(settled) = settled {
        let because = |what: &str| match &settled.reason {
            Some(why) => Some(format!("`{name}` {what}: {why}")),
            None => Some(format!("`{name}` {what}")),
        };
        match settled.status {
            MessageStatus::Dropped | MessageStatus::Interjected => {
                return ended(TaskStatus::Failed, because("has dropped it"));
            }
            MessageStatus::Aborted if settled.dead_letter => {
                return ended(TaskStatus::Failed, because("gave it up"));
            }
            MessageStatus::Aborted => return ended(TaskStatus::Cancelled, because("was stopped at it")),
            MessageStatus::Processed | MessageStatus::Queued | MessageStatus::Dequeued => {}
        }
        match closure(child).outcome {
            ClosureOutcome::Completed if is_idle(child) => return ended(TaskStatus::Completed, None),
            ClosureOutcome::Failed if is_idle(child) => {
                return ended(TaskStatus::Failed, Some(format!("the last turn of `{name}` failed")));
            }
            ClosureOutcome::Completed
            | ClosureOutcome::Failed
            | ClosureOutcome::Continuable
            | ClosureOutcome::Waiting => {}
        }
    }
    if state.status == Status::Stopped {
        return ended(TaskStatus::Cancelled, Some(format!("`{name}` was stopped")));
    }
    None
}

/// True if the agent has no run, no held run, no pending recovery, no pending hint and no input.
fn is_idle(records: &Records) -> bool {
    let (state, inbox) = (&records.state, &records.inbox);
    let does_nothing = state.current_run.is_none()
        && state.held.is_none()
        && !matches!(state.execution.state, ExecutionState::Failed | ExecutionState::Recovering);
    does_nothing && inbox.claimed.is_none() && inbox.stale.is_empty() && !has_input(records)
}
