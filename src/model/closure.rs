//! Closure: the condition in which a turn leaves the agent (contract, semantics §6).

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
    /// Activity of the agent when a closure was derived. No outcome depends on the activity.
    "runtime posture" RuntimePosture {
        Awake = "awake",
        Sleeping = "sleeping",
    }
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Closure {
    pub outcome: ClosureOutcome,
    pub waiting_reason: Option<WaitingReason>,
    /// Wait that decided the closure, if a wait did.
    pub wait_id: Option<WaitId>,
    /// Waiting work item that decided the closure, if one did.
    pub work_item_id: Option<WorkId>,
    pub runtime_posture: RuntimePosture,
    /// Facts from which the closure was derived, in a fixed order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}
