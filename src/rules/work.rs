//! Scheduling state and readiness of a work item, derived from it and the waits on it.

use std::collections::BTreeMap;

use crate::model::id::WorkId;
use crate::model::wait::{Wait, WaitKind};
use crate::model::work::{PlanStatus, Readiness, SchedulingState, WorkItem, WorkState};

/// Active, unbound waits on work items, by item. They are sorted once, so that reading every item
/// takes one pass over the waits and not one for each item.
#[derive(Debug)]
pub struct WaitsByItem<'a>(BTreeMap<WorkId, Vec<&'a Wait>>);

impl<'a> WaitsByItem<'a> {
    pub fn of(waits: &'a [Wait]) -> WaitsByItem<'a> {
        let mut by_item: BTreeMap<WorkId, Vec<&Wait>> = BTreeMap::new();
        for wait in waits.iter().filter(|wait| wait.is_waiting()) {
            if let Some(item) = wait.work_item_id {
                by_item.entry(item).or_default().push(wait);
            }
        }
        WaitsByItem(by_item)
    }

    /// Returns the waits on one item, in the order of the records.
    pub fn on(&self, item: WorkId) -> &[&'a Wait] {
        self.0.get(&item).map_or(&[], Vec::as_slice)
    }
}

/// Returns the scheduling state of an item (contract, semantics §4): the first match wins.
pub fn scheduling_state(item: &WorkItem, waits: &WaitsByItem<'_>) -> SchedulingState {
    let waits = waits.on(item.id);
    let waits_for = |kind: WaitKind| waits.iter().any(|wait| wait.kind == kind);
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

/// Returns the reduced view: an open item that is neither runnable nor waiting for the operator is
/// blocked.
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

/// Returns the kind of wait that a waiting state names.
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
