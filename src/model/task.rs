//! Background tasks (contract, semantics §12). A terminal status of a task never changes.

use serde::{Deserialize, Serialize};

use super::id::{AgentName, MessageId, RunId, TaskId, WorkId};
use super::json::tagged;
use super::message::Message;
use super::place::StatePlace;
use super::record::{Extra, Plane, is_default, record, yes};
use super::run::Exit;
use super::time::{Span, Time};

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

tagged! {
    "kind", [rename_all = "snake_case", deny_unknown_fields]
    /// Work of a task: a command, or a delegation to a child agent.
    #[derive(Debug, Clone, PartialEq)]
    pub enum TaskJob {
        Command {
            argv: Vec<String>,
        },
        /// Delegation: ends when the child has settled the message and has nothing left to do.
        ChildAgent {
            child: AgentName,
            message_id: MessageId,
            /// Message that the child has not received yet. Until it has, the task is `queued`.
            #[serde(skip_serializing_if = "Option::is_none")]
            assignment: Option<Box<Assignment>>,
        },
    }
}

/// Assignment of a delegation: the message for the child, and an `agent.toml` in case the child
/// does not exist yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Assignment {
    pub policy: String,
    pub message: Message,
}

/// End of a delegated task, derived from the records of the child agent.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildEnd {
    pub status: TaskStatus,
    pub reason: Option<String>,
    /// Last brief (a turn's summary of its result) of the child; absent without one.
    pub brief: Option<String>,
}

impl ChildEnd {
    /// Returns the end of a delegation without a brief, because the child's turns did not cause it.
    pub fn without_brief(status: TaskStatus, reason: Option<String>) -> ChildEnd {
        ChildEnd { status, reason, brief: None }
    }
}

/// Background work. An open task has its own file; its last state is appended to the archive.
// `Task::new` makes a queued task that no machine has started.
#[serde_with::skip_serializing_none]
#[serde_with::apply(Option => #[new(default)], u32 => #[new(default)], String => #[new(default)])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, derive_new::new)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Task {
    pub id: TaskId,
    pub agent: AgentName,
    pub job: TaskJob,
    #[new(value = "TaskStatus::Queued")]
    pub status: TaskStatus,
    pub summary: Option<String>,
    pub work_item_id: Option<WorkId>,
    /// Turn that started the task.
    pub run_id: Option<RunId>,
    /// True if the end of the task is reported as `task_result`, which may start a turn.
    #[new(value = "true")]
    #[serde(default = "yes")]
    pub notify: bool,
    /// True if the command of the task takes input.
    #[serde(default, skip_serializing_if = "is_default")]
    #[new(default)]
    pub interactive: bool,
    pub timeout: Option<Span>,
    /// Hops: one more than the message of the turn that started the task. The task's result has as
    /// many, or 0 if the task lasted longer than `limits.chain_pause`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hops: u32,
    /// Machine and boot of the task's supervisor. Other machines can't check if the task is alive.
    #[serde(default)]
    pub host: String,
    #[serde(default)]
    pub boot_id: String,
    /// State directory from which the task's processes were started.
    pub place: Option<StatePlace>,
    pub supervisor_pid: Option<u32>,
    pub created_at: Time,
    pub started_at: Option<Time>,
    pub ended_at: Option<Time>,
    pub exit: Option<Exit>,
    /// Reason of the end of the task, if its exit status does not show the reason.
    pub reason: Option<String>,
    /// Message that tells the agent of the task's end.
    pub result_id: Option<MessageId>,
    pub stdout_bytes: Option<u64>,
    pub stderr_bytes: Option<u64>,
    #[new(default)]
    #[serde(flatten)]
    pub extra: Extra,
}

impl Task {
    /// Returns the purpose of the task: its summary, else its command or its child.
    pub fn purpose(&self) -> String {
        match (&self.summary, &self.job) {
            (Some(summary), _) => summary.clone(),
            (None, TaskJob::Command { argv }) => argv.join(" "),
            (None, TaskJob::ChildAgent { child, .. }) => child.to_string(),
        }
    }

    /// Returns the child to which the task is delegated; `None` for a command.
    pub fn child(&self) -> Option<&AgentName> {
        match &self.job {
            TaskJob::Command { .. } => None,
            TaskJob::ChildAgent { child, .. } => Some(child),
        }
    }
}

/// End of a task's command, as its supervisor saw it. The supervisor writes this end beside the
/// task's logs before the commit, so that a task whose end was seen never counts as interrupted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskEnd {
    pub exit: Exit,
    pub timed_out: bool,
    /// Signal that made the supervisor end the command, if any.
    pub cancelled_by: Option<i32>,
    pub ended_at: Time,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Last line of stdout that is not blank; without one, the last such line of stderr.
    pub last_line: Option<String>,
}

record! { Task of agent = "task", TaskId in Plane::Tasks }
