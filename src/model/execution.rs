//! Execution of an agent's turns: its twelve states, as stored.

use serde::{Deserialize, Serialize};

use super::id::MessageId;
use super::time::Time;

names! {
    /// State of the execution of an agent's turns (contract, execution §1). The code of a state is
    /// its position in this list, from 0.
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
    /// Returns the number of the state in the published state machine; it is never stored.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// True if work on a message ends with this state. The agent then takes the next message.
    pub const fn is_terminal(self) -> bool {
        matches!(self, ExecutionState::Completed)
    }
}

/// Execution state as `state.json` stores it. The timeout of the state counts from `since`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Execution {
    pub state: ExecutionState,
    /// Time at which the state was entered.
    pub since: Time,
    /// Message that the execution works on.
    pub task_id: Option<MessageId>,
    pub reason: Option<String>,
}
