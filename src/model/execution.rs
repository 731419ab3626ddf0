//! The twelve states of an execution, as stored.

use serde::{Deserialize, Serialize};

use super::id::MessageId;
use super::time::Time;

names! {
    /// How the agent's turn is carried out (contract, execution §1). The number that is shown
    /// beside it is its place in this list.
    "execution state" ExecutionState {
        Initializing = "initializing",
        Runnable = "runnable",
        Scheduled = "scheduled",
        Running = "running",
        Waiting = "waiting",
        WaitingResources = "waiting_resources",
        Suspended = "suspended",
        Resumed = "resumed",
        Completed = "completed",
        Failed = "failed",
        ShuttingDown = "shutting_down",
        Recovering = "recovering",
    }
}

impl ExecutionState {
    /// The number of the published machine: shown, never stored.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// True if the state ends the work on one message. The agent goes on with the next one.
    pub const fn is_terminal(self) -> bool {
        matches!(self, ExecutionState::Completed)
    }
}

/// The execution as `state.json` holds it. Timeouts are computed from `since`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Execution {
    pub state: ExecutionState,
    /// When the state was entered.
    pub since: Time,
    /// The message that is being worked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
