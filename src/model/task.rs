//! Background tasks (contract, semantics §12). A task never leaves a terminal status.

use serde::{Deserialize, Serialize};

use super::id::{AgentName, MessageId, RunId, TaskId, WorkId};
use super::json::tagged;
use super::message::Message;
use super::place::StatePlace;
use super::record::{Extra, Kept, Plane, Record};
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
    /// What a task does.
    #[derive(Debug, Clone, PartialEq)]
    pub enum TaskJob {
        Command {
            argv: Vec<String>,
        },
        /// Ends when the child has dealt with the message and has nothing left to do.
        ChildAgent {
            child: AgentName,
            message_id: MessageId,
            /// What the child has not been given yet. Until it has it, the task is `queued`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            assignment: Option<Box<Assignment>>,
        },
    }
}

/// What a delegation gives to its child: the message, and an `agent.toml` in case the child does
/// not exist yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Assignment {
    pub policy: String,
    pub message: Message,
}

/// How a delegation ended, as the parent sees its child.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildEnd {
    pub status: TaskStatus,
    pub reason: Option<String>,
    /// The child's last brief.
    pub brief: Option<String>,
}

impl ChildEnd {
    /// An end that the child did not bring about.
    pub fn without_brief(status: TaskStatus, reason: Option<String>) -> ChildEnd {
        ChildEnd { status, reason, brief: None }
    }
}

/// Background work. While it is open it has a file of its own; its last state goes to the archive.
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
    /// The turn that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Whether its end may start a turn.
    #[serde(default = "yes")]
    pub notify: bool,
    /// Whether its command takes input.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interactive: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// The hops of the message whose turn started it. Its result carries them on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hops: u32,
    /// The machine of its supervisor, and its boot. Processes elsewhere can't see how the task
    /// stands.
    #[serde(default)]
    pub host: String,
    #[serde(default)]
    pub boot_id: String,
    /// The state directory from which its processes were started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<StatePlace>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supervisor_pid: Option<u32>,
    pub created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Why it ended, if the exit doesn't say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The message that tells the agent of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_id: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_bytes: Option<u64>,
    #[serde(flatten)]
    pub extra: Extra,
}

impl Task {
    /// The agent to which the task is delegated.
    pub fn child(&self) -> Option<&AgentName> {
        match &self.job {
            TaskJob::Command { .. } => None,
            TaskJob::ChildAgent { child, .. } => Some(child),
        }
    }
}

fn yes() -> bool {
    true
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The end of a task's command as its supervisor saw it. It is written beside the logs before it is
/// committed, so that a task whose end was seen never counts as interrupted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskEnd {
    pub exit: Exit,
    pub timed_out: bool,
    /// The signal that the supervisor itself got, if that ended the command.
    pub cancelled_by: Option<i32>,
    pub ended_at: Time,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// The last line of stdout that is not blank, or else of stderr.
    pub last_line: Option<String>,
}

impl Record for Task {
    const KIND: &'static str = "task";
    fn extra_mut(&mut self) -> &mut Extra {
        &mut self.extra
    }

    fn file_id(&self) -> Option<String> {
        Some(self.id.to_string())
    }
}

impl Kept for Task {
    type Id = TaskId;
    const PLANE: Plane = Plane::Tasks;

    fn id(&self) -> TaskId {
        self.id
    }
}
