//! Work items: the tasks and plans that an agent sets itself (contract, semantics §4).

use serde::{Deserialize, Serialize};

use super::id::{AgentName, WorkId};
use super::record::{Extra, MOST_REVISIONS, Plane, ensure, record};
use super::time::Time;

names! {
    "work item state" WorkState {
        Open = "open",
        Completed = "completed",
    }
}

names! {
    "plan status" PlanStatus {
        Draft = "draft",
        Ready = "ready",
        NeedsInput = "needs_input",
    }
}

names! {
    /// Scheduling state of a work item, derived from the item and its waits. If several apply, the
    /// first one listed is valid.
    "scheduling state" SchedulingState {
        Completed = "completed",
        WaitingTask = "waiting_task",
        WaitingOperator = "waiting_operator",
        WaitingTimer = "waiting_timer",
        WaitingExternal = "waiting_external",
        WaitingSystem = "waiting_system",
        Blocked = "blocked",
        Runnable = "runnable",
    }
}

names! {
    /// Scheduling state of a work item with fewer distinctions.
    "readiness" Readiness {
        Runnable = "runnable",
        WaitingForOperator = "waiting_for_operator",
        Blocked = "blocked",
        Completed = "completed",
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Todo {
    pub text: String,
    #[serde(default)]
    pub done: bool,
}

/// Revision of the item, and the agent's number of wake hints, at the item's last `system_tick`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ticked {
    pub revision: u64,
    pub wakes: u64,
}

// `WorkItem::new` makes an open work item that is not blocked.
#[serde_with::skip_serializing_none]
#[serde_with::apply(Option => #[new(default)], Vec => #[new(default)], Extra => #[new(default)])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, derive_new::new)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorkItem {
    pub id: WorkId,
    pub agent: AgentName,
    pub objective: String,
    #[new(value = "WorkState::Open")]
    pub state: WorkState,
    #[new(value = "PlanStatus::Ready")]
    pub plan_status: PlanStatus,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub todo: Vec<Todo>,
    pub blocked_by: Option<String>,
    pub recheck_at: Option<Time>,
    pub recheck_consumed_at: Option<Time>,
    pub result: Option<String>,
    /// Starts at 1 and increases by 1 with every change.
    #[new(value = "1")]
    pub revision: u64,
    /// Last `system_tick` message that a step emitted to continue this item.
    pub ticked: Option<Ticked>,
    pub created_at: Time,
    #[new(value = "created_at")]
    pub updated_at: Time,
    /// Text of the plan, in the archive only. The plan of an open item is a separate file.
    pub plan: Option<String>,
    #[serde(flatten)]
    pub extra: Extra,
}

impl WorkItem {
    /// Returns the time of a blocked item's recheck; `None` if its message was sent already.
    pub fn recheck_due(&self) -> Option<Time> {
        self.recheck_at.filter(|_| self.recheck_consumed_at.is_none())
    }
}

record! { WorkItem of agent = "work", WorkId in Plane::Work; check }

impl WorkItem {
    fn fault(&self) -> Result<(), String> {
        ensure(!self.objective.trim().is_empty(), "`objective` is empty")?;
        ensure(self.revision > 0, "`revision` counts from 1")?;
        ensure(self.revision <= MOST_REVISIONS, "`revision` is larger than dormouse ever writes")
    }
}
