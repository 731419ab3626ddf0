//! Background tasks (contract, semantics §12). Nothing leaves a terminal status.

use serde::{Deserialize, Serialize};

use super::id::{AgentName, TaskId, WorkId};
use super::record::{Extra, Record};
use super::time::Time;

names! {
    "task status" TaskStatus {
        Queued = "queued",
        Running = "running",
        Cancelling = "cancelling",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
        Interrupted = "interrupted",
    }
}

impl TaskStatus {
    pub const fn is_terminal(self) -> bool {
        match self {
            TaskStatus::Queued | TaskStatus::Running | TaskStatus::Cancelling => false,
            TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled | TaskStatus::Interrupted => {
                true
            }
        }
    }
}

/// What a task does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum TaskJob {
    Command { argv: Vec<String> },
    ChildAgent { child: AgentName },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Task {
    pub id: TaskId,
    pub agent: AgentName,
    pub job: TaskJob,
    pub status: TaskStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_item_id: Option<WorkId>,
    pub created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for Task {
    const KIND: &'static str = "task";
    fn extra_mut(&mut self) -> &mut Extra {
        &mut self.extra
    }
}
