//! How a work item stands: its scheduling state and readiness, derived from it and the waits on it.

use crate::model::id::WorkId;
use crate::model::wait::{Wait, WaitKind};
use crate::model::work::{PlanStatus, Readiness, SchedulingState, WorkItem, WorkState};

/// The active waits on an item.
pub fn waits_on(item: WorkId, waits: &[Wait]) -> impl Iterator<Item = &Wait> {
    waits.iter().filter(move |wait| wait.is_active() && wait.work_item_id == Some(item))
}

/// Contract, semantics §4: first match wins.
pub fn scheduling_state(item: &WorkItem, waits: &[Wait]) -> SchedulingState {
    let waits_for = |kind: WaitKind| waits_on(item.id, waits).any(|wait| wait.kind == kind);
    if item.state == WorkState::Completed {
        SchedulingState::Completed
    } else if waits_for(WaitKind::Task) {
        SchedulingState::WaitingTask
    } else if waits_for(WaitKind::Operator) || item.plan_status == PlanStatus::NeedsInput {
        SchedulingState::WaitingOperator
    } else if waits_for(WaitKind::Timer) {
        SchedulingState::WaitingTimer
    } else if waits_for(WaitKind::External) {
        SchedulingState::WaitingExternal
    } else if waits_for(WaitKind::System) {
        SchedulingState::WaitingSystem
    } else if item.blocked_by.is_some() {
        SchedulingState::Blocked
    } else {
        SchedulingState::Runnable
    }
}

/// The reduced view: everything open that is neither runnable nor waiting for the operator is blocked.
pub fn readiness(state: SchedulingState) -> Readiness {
    match state {
        SchedulingState::Completed => Readiness::Completed,
        SchedulingState::Runnable => Readiness::Runnable,
        SchedulingState::WaitingOperator => Readiness::WaitingForOperator,
        SchedulingState::WaitingTask
        | SchedulingState::WaitingTimer
        | SchedulingState::WaitingExternal
        | SchedulingState::WaitingSystem
        | SchedulingState::Blocked => Readiness::Blocked,
    }
}

/// The kind of wait that a waiting state is about.
pub fn wait_kind(state: SchedulingState) -> Option<WaitKind> {
    match state {
        SchedulingState::WaitingTask => Some(WaitKind::Task),
        SchedulingState::WaitingOperator => Some(WaitKind::Operator),
        SchedulingState::WaitingTimer => Some(WaitKind::Timer),
        SchedulingState::WaitingExternal => Some(WaitKind::External),
        SchedulingState::WaitingSystem => Some(WaitKind::System),
        SchedulingState::Completed | SchedulingState::Blocked | SchedulingState::Runnable => None,
    }
}
