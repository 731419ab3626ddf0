//! How a turn left the agent (contract, semantics §6).

use serde::{Deserialize, Serialize};

use super::id::{WaitId, WorkId};

names! {
    "closure outcome" ClosureOutcome {
        Completed = "completed",
        Continuable = "continuable",
        Failed = "failed",
        Waiting = "waiting",
    }
}

names! {
    "waiting reason" WaitingReason {
        AwaitingOperatorInput = "awaiting_operator_input",
        AwaitingExternalChange = "awaiting_external_change",
        AwaitingTimer = "awaiting_timer",
        AwaitingTaskResult = "awaiting_task_result",
    }
}

names! {
    /// Recorded beside a closure; never changes its outcome.
    "runtime posture" RuntimePosture {
        Awake = "awake",
        Sleeping = "sleeping",
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Closure {
    pub outcome: ClosureOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_reason: Option<WaitingReason>,
    /// The wait that the closure is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_id: Option<WaitId>,
    /// The work item that the closure is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_item_id: Option<WorkId>,
    pub runtime_posture: RuntimePosture,
    /// Every fact that was looked at, in a fixed order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}
