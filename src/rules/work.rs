//! Scheduling state and readiness of a work item, derived from the item and the waits on it.

use std::collections::BTreeMap;

use crate::model::closure::WaitingReason;
use crate::model::id::WorkId;
use crate::model::records::Records;
use crate::model::wait::{Wait, WaitKind};
use crate::model::work::{PlanStatus, Readiness, SchedulingState, Ticked, WorkItem, WorkState};

/// Waits on work items that are active and not bound to a message, grouped by item once, so that
/// reading all items takes one pass over the waits.
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

    pub fn is_runnable(&self, item: &WorkItem) -> bool {
        scheduling_state(item, self) == SchedulingState::Runnable
    }

    /// Returns the waits on an item, in the order of the records.
    pub fn on(&self, item: WorkId) -> &[&'a Wait] {
        self.0.get(&item).map_or(&[], Vec::as_slice)
    }
}

/// Waiting states by precedence, each with the kind of wait that causes it and the waiting reason
/// for a closure and a decision (contract, semantics §4).
const WAITING: [(SchedulingState, WaitKind, Option<WaitingReason>); 5] = [
    (SchedulingState::WaitingTask, WaitKind::Task, Some(WaitingReason::AwaitingTaskResult)),
    (SchedulingState::WaitingOperator, WaitKind::Operator, Some(WaitingReason::AwaitingOperatorInput)),
    (SchedulingState::WaitingTimer, WaitKind::Timer, Some(WaitingReason::AwaitingTimer)),
    (SchedulingState::WaitingExternal, WaitKind::External, Some(WaitingReason::AwaitingExternalChange)),
    (SchedulingState::WaitingSystem, WaitKind::System, None),
];

/// Returns the scheduling state of an item.
pub fn scheduling_state(item: &WorkItem, waits: &WaitsByItem<'_>) -> SchedulingState {
    let waits = waits.on(item.id);
    let needs_input = |kind| kind == WaitKind::Operator && item.plan_status == PlanStatus::NeedsInput;
    let waits_for = |kind| waits.iter().any(|wait| wait.kind == kind) || needs_input(kind);
    if item.state == WorkState::Completed {
        SchedulingState::Completed
    } else if let Some((state, ..)) = WAITING.iter().find(|(_, kind, _)| waits_for(*kind)) {
        *state
    } else if item.blocked_by.is_some() {
        SchedulingState::Blocked
    } else {
        SchedulingState::Runnable
    }
}

/// Returns the kind of wait that causes a waiting state; `None` for other states.
pub fn wait_kind(state: SchedulingState) -> Option<WaitKind> {
    WAITING.iter().find(|(waiting, ..)| *waiting == state).map(|(_, kind, _)| *kind)
}

/// Returns the waiting reason of a state, for a closure and a decision; `None` for other states.
pub fn waiting_reason(state: SchedulingState) -> Option<WaitingReason> {
    WAITING.iter().find(|(waiting, ..)| *waiting == state).and_then(|(.., reason)| *reason)
}

/// True if the item had a `system_tick` since its last change and since the agent's last hint.
pub fn is_spent(records: &Records, item: &WorkItem) -> bool {
    item.ticked == Some(Ticked { revision: item.revision, wakes: records.state.counters.wakes })
}

/// Returns the reduced view of a scheduling state: an open item that is neither runnable nor
/// waiting for the operator is blocked.
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
