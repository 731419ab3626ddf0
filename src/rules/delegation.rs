//! End of a delegation, as the parent derives it from the state of its child (contract, semantics
//! §12).

use crate::model::agent::Status;
use crate::model::closure::ClosureOutcome;
use crate::model::execution::ExecutionState;
use crate::model::id::AgentName;
use crate::model::message::{MessageStatus, Settlement};
use crate::model::records::Records;
use crate::model::task::{ChildEnd, TaskStatus};

use super::closure::derive;
use super::projection::closure_facts;

/// Child as its parent sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Child {
    pub name: AgentName,
    pub status: Status,
    /// End of the message that the child was given; `None` until it has one.
    pub settled: Option<Settlement>,
    /// True if the child has no run, no retry and an empty inbox.
    pub is_idle: bool,
    pub closure: ClosureOutcome,
    pub brief: Option<String>,
}

impl Child {
    pub fn new(records: &Records, settled: Option<Settlement>) -> Child {
        let state = &records.state;
        let inbox = &records.inbox;
        let hears_nothing = inbox.head.is_none()
            && inbox.claimed.is_none()
            && inbox.stale.is_empty()
            && inbox.hints.is_empty()
            && inbox.drops == 0
            && state.pending_wake_hint.is_none();
        let does_nothing = state.current_run.is_none()
            && state.held.is_none()
            && !matches!(state.execution.state, ExecutionState::Failed | ExecutionState::Recovering);
        Child {
            name: state.agent.clone(),
            status: state.status,
            settled,
            is_idle: hears_nothing && does_nothing,
            closure: derive(&closure_facts(records)).outcome,
            brief: state.last_turn.as_ref().and_then(|turn| turn.brief.clone()),
        }
    }
}

/// Returns the end of the delegation, if it has one. Every fate of the child leads to an end, so
/// the parent never waits for ever.
pub fn end(child: &Child) -> Option<ChildEnd> {
    let ended =
        |status, reason: Option<String>| Some(ChildEnd { status, reason, brief: child.brief.clone() });
    let settled = child.settled.as_ref();
    let because = |what: &str| {
        let why = settled.and_then(|settled| settled.reason.as_deref());
        Some(why.map_or_else(
            || format!("`{}` {what}", child.name),
            |why| format!("`{}` {what}: {why}", child.name),
        ))
    };
    match settled.map(|settled| settled.status) {
        Some(MessageStatus::Dropped | MessageStatus::Interjected) => {
            return ended(TaskStatus::Failed, because("has dropped it"));
        }
        Some(MessageStatus::Aborted) if settled.is_some_and(|settled| settled.dead_letter) => {
            return ended(TaskStatus::Failed, because("gave it up"));
        }
        Some(MessageStatus::Aborted) => {
            return ended(TaskStatus::Cancelled, because("was stopped at it"));
        }
        Some(MessageStatus::Processed | MessageStatus::Queued | MessageStatus::Dequeued) | None => {}
    }
    if settled.is_some() && child.is_idle {
        match child.closure {
            ClosureOutcome::Completed => return ended(TaskStatus::Completed, None),
            ClosureOutcome::Failed => {
                return ended(TaskStatus::Failed, Some(format!("the last turn of `{}` failed", child.name)));
            }
            ClosureOutcome::Continuable | ClosureOutcome::Waiting => {}
        }
    }
    if child.status == Status::Stopped {
        return ended(TaskStatus::Cancelled, Some(format!("`{}` was stopped", child.name)));
    }
    None
}
