//! `task`: background tasks, and their supervisor.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::model::id::{AgentName, TaskId};
use crate::model::time::Span;

use super::groups::{AgentAndText, AgentFlag, AgentFlags, RecordArg};

/// Background tasks, which outlive the turn that starts them
#[derive(Debug, Subcommand)]
pub enum TaskCommand {
    Start(TaskStartArgs),
    /// List open tasks, oldest first
    List {
        #[command(flatten)]
        agents: AgentFlags,
        /// List tasks that have ended instead, newest first
        #[arg(long)]
        ended: bool,
    },
    /// Show one task, open or ended
    Status(RecordArg),
    /// Print the output of a task
    Output {
        #[command(flatten)]
        task: RecordArg,
        /// Print the task's stderr instead of its stdout
        #[arg(long)]
        stderr: bool,
        /// Keep printing until the task ends
        #[arg(short, long)]
        follow: bool,
        /// Only the last N bytes
        #[arg(long, value_name = "N")]
        bytes: Option<u64>,
    },
    /// Write a line to the stdin of a task that was started with --interactive
    Input {
        /// Id of the task, at least four digits of it, or `latest`
        id: String,
        /// The line for the task; with `-` or without TEXT, stdin is passed through
        text: Option<String>,
        #[command(flatten)]
        agent: AgentFlag,
    },
    /// End a task: SIGTERM, and SIGKILL after the grace
    Stop {
        #[command(flatten)]
        task: RecordArg,
        /// Time for the task to end by itself
        #[arg(long, value_name = "DURATION", default_value = "10s")]
        grace: Span,
        /// Count a task of another host or state directory as lost, and leave its processes alone
        #[arg(long)]
        force: bool,
    },
}

/// Start a command in the background, or delegate work to a child; the result arrives as a message
///
/// Returns at once. A command runs in the directory of the agent's turns, with their environment
/// and DORMOUSE_TASK. It runs until it ends by itself, or until it or its agent is stopped. A child
/// is a separate agent, which is created and started if it does not exist yet. Its task ends when
/// the child has nothing left to do, and the result is the child's last brief.
#[derive(Debug, Args)]
pub struct TaskStartArgs {
    #[command(flatten)]
    pub said: AgentAndText,
    /// Purpose of the task; its result begins with this
    #[arg(long, value_name = "TEXT")]
    pub summary: Option<String>,
    /// The work item that the task is for
    #[arg(long, value_name = "ID")]
    pub work_item: Option<String>,
    /// Start no turn for the result: the next turn gets it
    #[arg(long)]
    pub no_notify: bool,
    /// Let the command read input from `task input`; without this its stdin is empty
    #[arg(long, conflicts_with = "delegate")]
    pub interactive: bool,
    /// End the task after this long
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<Span>,
    /// Send TEXT (`-` or nothing for stdin, `@FILE` for a file) to this agent as its operator, and
    /// use its last brief as the result
    #[arg(long, value_name = "CHILD")]
    pub delegate: Option<AgentName>,
    /// The agent.toml of a child that is created [default: that of its parent]
    #[arg(long, value_name = "FILE", requires = "delegate")]
    pub from: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        last = true,
        required_unless_present = "delegate",
        conflicts_with = "delegate",
        value_name = "COMMAND"
    )]
    pub command: Vec<String>,
}

/// Supervise a task; `task start` runs this
#[derive(Debug, Args)]
pub struct SuperviseArgs {
    pub agent: AgentName,
    pub task: TaskId,
}
