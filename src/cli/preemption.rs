//! `preempt`, `resume` and `fail` from outside; `safe-point`, `yield` and `non-preemptible` from inside a turn.

use clap::{Args, Subcommand};

use super::lifecycle::Agents;
use super::messages::PlaneAgent;

/// Ask a running turn to yield
///
/// The turn learns of it at its next `dormouse safe-point`, and yields with `dormouse yield`. One
/// that has not when the grace is over is ended: SIGTERM, and SIGKILL 5 s later; that attempt has
/// failed then. With a request pending already the new reason counts, and the earlier end.
///
/// What has yielded is suspended until `--for` is over or somebody says `dormouse resume`. Where
/// nobody does, it is given up after `timeouts.suspend`, an hour unless set: the attempt then begins
/// anew, with the checkpoint.
#[derive(Debug, Args)]
pub struct Preempt {
    /// Which agent
    pub agent: String,
    /// Why: the turn and its hooks are told
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// How long it may take to yield [default: preemption.grace, 30s]
    #[arg(long, value_name = "DURATION")]
    pub grace: Option<String>,
    /// Let it go on by itself after this long [default: when `dormouse resume` says so]
    #[arg(long = "for", value_name = "DURATION")]
    pub resume_after: Option<String>,
}

/// Let suspended runs go on
///
/// The next tick runs the turn again: the same message, the same attempt, with its checkpoint in
/// DORMOUSE_CHECKPOINT. For a stopped agent this is a deprecated word for `start`; with `--all` it
/// is about those that are suspended, and starts nobody.
#[derive(Debug, Args)]
pub struct Resume {
    #[command(flatten)]
    pub agents: Agents,
}

/// Give up what an agent is at: a turn, what waits to go on, a stop or a recovery
///
/// The processes of a turn are ended, when no critical section protects it: SIGTERM, and SIGKILL 5 s
/// later. It counts as a failed
/// attempt: the message is tried again after the backoff, or is a dead letter after the last one.
#[derive(Debug, Args)]
pub struct Fail {
    /// Which agent
    pub agent: String,
    /// Why, for the ledger and the next attempt
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Wait for no critical section of the turn
    #[arg(long)]
    pub now: bool,
}

/// Ask whether to go on, from inside a turn
///
/// Exit status 0 says go on, 10 says please yield. What the operator has said with priority
/// `interject` meanwhile is handed over on stdout, a JSON object a line, each once. Where stdout is
/// /dev/null nothing is handed over: it stays for whoever reads it.
///
/// With a command, that runs, and the records are looked at meanwhile: when the turn is to yield, the
/// command is ended, and the exit status is 10; else it is the command's own. What the operator says
/// ends it too, and stays for the next safe point, which hands it over.
#[derive(Debug, Args)]
pub struct SafePoint {
    #[command(flatten)]
    pub agent: PlaneAgent,
    /// Show what the operator has said, and leave it for the next safe point
    #[arg(long, conflicts_with = "argv")]
    pub peek: bool,
    /// Wait until there is something to say, at most this long
    #[arg(long, value_name = "DURATION", conflicts_with = "argv")]
    pub wait: Option<String>,
    /// What the command gets when the turn is to yield
    #[arg(long, value_name = "NAME", default_value = "TERM", requires = "argv")]
    pub signal: String,
    /// How long the command may take to end then, before it gets SIGKILL
    #[arg(long, value_name = "DURATION", default_value = "2s", requires = "argv")]
    pub grace: String,
    /// A command that knows nothing of safe points
    #[arg(last = true, value_name = "COMMAND")]
    pub argv: Vec<std::ffi::OsString>,
}

/// Save what this turn needs to go on, from inside it
///
/// The latest one stands. The next run of the same message finds it in DORMOUSE_CHECKPOINT: after a
/// `yield`, a failure, a timeout, a kill or a requeue. It goes when the message is dealt with. A turn
/// that was told to end can still save one, until it is killed.
#[derive(Debug, Args)]
pub struct Checkpoint {
    #[command(flatten)]
    pub agent: PlaneAgent,
    /// A file, or `-` for stdin
    #[arg(value_name = "FILE|-")]
    pub file: String,
}

/// Have this turn suspended, from inside it
///
/// Saves the checkpoint; then exit, with whatever status. The message stays claimed, and the same
/// attempt goes on after `dormouse resume`, or when the time is over that whoever asked has named.
#[derive(Debug, Args)]
pub struct Yield {
    #[command(flatten)]
    pub agent: PlaneAgent,
    /// What the turn needs to go on: a file, or `-` for stdin [default: the checkpoint it was given]
    #[arg(long, value_name = "FILE|-")]
    pub checkpoint: Option<String>,
}

/// Run a command that must not be preempted, from inside a turn
///
/// While it runs, `safe-point` says go on, and nobody ends the turn for want of yielding before the
/// deadline. Exits with the command's status. Sections nest, and are one stretch: the first deadline
/// counts, and `preemption.max_section` in any case.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct NonPreemptible {
    #[command(subcommand)]
    pub command: Option<SectionCommand>,
    #[command(flatten)]
    pub agent: PlaneAgent,
    /// How long the section is respected
    #[arg(long, value_name = "DURATION", required = true)]
    pub deadline: Option<String>,
    /// The command
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub argv: Vec<std::ffi::OsString>,
}

#[derive(Debug, Subcommand)]
pub enum SectionCommand {
    /// Begin a section that `end` ends
    Begin {
        #[command(flatten)]
        agent: PlaneAgent,
        /// How long the section is respected
        #[arg(long, value_name = "DURATION")]
        deadline: String,
    },
    /// End the innermost section
    End {
        #[command(flatten)]
        agent: PlaneAgent,
    },
}
