//! `task`: background work; and the process that looks after it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::messages::PlaneAgent;

/// Work in the background, beyond the end of a turn
#[derive(Debug, Args)]
pub struct Task {
    #[command(subcommand)]
    pub command: TaskCommand,
}

#[derive(Debug, Subcommand)]
pub enum TaskCommand {
    Start(TaskStart),
    /// List open tasks, oldest first
    List {
        #[command(flatten)]
        agent: PlaneAgent,
        /// List those that have ended instead, newest first
        #[arg(long)]
        ended: bool,
    },
    /// Show one task, open or ended
    Status {
        /// The task, or at least four characters of its id
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
    },
    /// Print what a task has said
    Output {
        /// The task, or at least four characters of its id
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
        /// What it said on stderr instead
        #[arg(long)]
        stderr: bool,
        /// Go on until it ends
        #[arg(short, long)]
        follow: bool,
        /// Only the last so many bytes
        #[arg(long, value_name = "N")]
        bytes: Option<u64>,
    },
    /// Write a line to the stdin of a task that was started with --interactive
    Input {
        /// The task, or at least four characters of its id
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
        /// The line; `-`, or nothing, takes stdin as it is
        text: Option<String>,
    },
    /// End a task: SIGTERM, and SIGKILL when the grace is over
    Stop {
        /// The task, or at least four characters of its id
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
        /// How long it may take to end by itself
        #[arg(long, value_name = "DURATION", default_value = "10s")]
        grace: String,
        /// Take one of another host for lost: only if that host is gone for good
        #[arg(long)]
        force: bool,
    },
}

/// Start a command in the background, or hand work to a child; the result is a message to the agent
///
/// Returns at once. A command runs where the agent's turns do, with their environment and
/// DORMOUSE_TASK, until it ends by itself, is stopped, or its agent is. A child is an agent of its
/// own, made and started if it is not there yet; the task ends when it has nothing left to do, and
/// the result is its last brief.
#[derive(Debug, Args)]
pub struct TaskStart {
    #[command(flatten)]
    pub agent: PlaneAgent,
    /// What it is for: the first words of its result
    #[arg(long, value_name = "TEXT")]
    pub summary: Option<String>,
    /// The work item that it is for
    #[arg(long, value_name = "ID")]
    pub work_item: Option<String>,
    /// Let its end start no turn: the next one finds it among what was taken note of
    #[arg(long)]
    pub no_notify: bool,
    /// Let it read what `task input` writes; without this its stdin is empty
    #[arg(long, conflicts_with = "delegate")]
    pub interactive: bool,
    /// End it after this long
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Hand TEXT to this agent as its operator, and take its last brief as the result
    #[arg(long, value_name = "CHILD")]
    pub delegate: Option<String>,
    /// What the child runs if it is to be made [default: the agent.toml of its parent]
    #[arg(long, value_name = "FILE", requires = "delegate")]
    pub from: Option<PathBuf>,
    /// What the child is told; `-`, or nothing, takes stdin, `@FILE` a file
    #[arg(requires = "delegate")]
    pub text: Option<String>,
    /// The program and its arguments
    #[arg(
        last = true,
        required_unless_present = "delegate",
        conflicts_with = "delegate",
        value_name = "COMMAND"
    )]
    pub command: Vec<String>,
}

/// Look after a task; `task start` runs this
#[derive(Debug, Args)]
pub struct Supervise {
    pub agent: String,
    pub task: String,
}
