//! Next due time of an agent. Before that time no step is needed unless something arrives.

use crate::model::agent::Status;
use crate::model::execution::ExecutionState;
use crate::model::records::Records;
use crate::model::state::State;
use crate::model::time::{Span, Time};

use super::execution::deadline;
use super::stall::notify_at;

/// Returns the earliest time at which a step has something to do. `None`: only an arrival can wake
/// the agent.
pub fn next_due(records: &Records) -> Option<Time> {
    next_wake(records).into_iter().chain(notify_at(records)).min()
}

/// Returns the earliest time at which a step has something to do other than report a stall.
pub fn next_wake(records: &Records) -> Option<Time> {
    let state = &records.state;
    // A limit is exceeded from one millisecond after it.
    let past = |limit: Time| limit.after(Span::from_millis(1));
    let over = deadline(state, &records.policy.timeouts).map(|(limit, _)| past(limit));
    if state.moved.is_some() {
        return None;
    }
    match state.status {
        Status::Stopped => return None,
        Status::Booting => return over,
        Status::AwakeIdle | Status::AwakeRunning | Status::AwaitingTask | Status::Asleep => {}
    }
    let waits = records.waits.iter().filter(|wait| wait.is_waiting());
    let rechecks = records.works.iter().filter(|item| item.recheck_consumed_at.is_none());
    let held = state.held.as_ref().and_then(|held| held.not_before);
    // The timeout of a child's task is noticed only by a step of the parent.
    let children = records.tasks.iter().filter(|task| task.child().is_some());
    let overdue = children.filter_map(|task| task.timeout.map(|limit| task.created_at.after(limit)));
    waits
        .flat_map(|wait| {
            let wake_at = wait.wake_at.filter(|_| wait.woken_at.is_none());
            let expiry = wait.expires_at.filter(|_| wait.expiry_told_at.is_none());
            [wake_at, wait.recheck_due(), expiry.map(past)]
        })
        .chain(rechecks.map(|item| item.recheck_at))
        .chain(records.timers.iter().map(|timer| Some(timer.next_at)))
        .chain(overdue.map(Some))
        .chain([recovery_at(state), held, over])
        .flatten()
        .min()
}

/// Returns the end of a failed agent's backoff; `None` if the agent has not failed.
pub fn recovery_at(state: &State) -> Option<Time> {
    let is_failed = state.execution.state == ExecutionState::Failed;
    state.retry.as_ref().filter(|_| is_failed).map(|retry| retry.not_before)
}
