//! `preempt`, `resume` and `fail` from outside; `safe-point`, `yield` and `non-preemptible` from
//! inside a turn.

use clap::{Args, Subcommand, ValueHint};

use crate::model::id::AgentName;
use crate::model::time::Span;

use super::groups::{AgentFlag, AgentsArg};

/// Ask a running turn to yield
///
/// The turn gets the request from its next `dormouse safe-point`, and yields with `dormouse yield`.
/// If it has not yielded within the grace, it gets SIGTERM, and SIGKILL 5 s later. That is an
/// interruption, and costs its message no attempt. If a request is pending already, the new reason
/// replaces the old one, and the earlier of the two deadlines counts.
///
/// A turn that has yielded is suspended until `--for` has passed or until `dormouse resume`. After
/// `timeouts.suspend`, an hour by default, its run is given up, and the attempt begins again with
/// the checkpoint.
#[derive(Debug, Args)]
pub struct PreemptArgs {
    /// Name of the agent
    pub agent: AgentName,
    /// The reason of the request, for the turn and its hooks
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Time for the turn to yield [default: preemption.grace, 30s]
    #[arg(long, value_name = "DURATION")]
    pub grace: Option<Span>,
    /// Resume the turn automatically after this long [default: only `dormouse resume` does]
    #[arg(long = "for", value_name = "DURATION")]
    pub resume_after: Option<Span>,
}

/// Resume suspended runs
///
/// The next tick runs the turn again: the same message, the same attempt, with its checkpoint in
/// DORMOUSE_CHECKPOINT. For a stopped agent this is a deprecated name for `start`. With `--all` it
/// resumes every suspended agent, and starts none.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    pub agents: AgentsArg,
}

/// Fail an agent's turn, held message, stop or recovery
///
/// The processes of a turn are ended once no critical section protects it: SIGTERM, and SIGKILL 5 s
/// later. This counts as a failed attempt: the message is tried again after the backoff, or becomes
/// a dead letter after its last attempt.
#[derive(Debug, Args)]
pub struct FailArgs {
    /// Name of the agent
    pub agent: AgentName,
    /// The reason, for the ledger and the next attempt
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Don't wait for a critical section of the turn
    #[arg(long)]
    pub now: bool,
}

/// Ask inside a turn if it should continue
///
/// Exit status 0 means continue, 10 means please yield. Messages that the operator has sent
/// meanwhile with priority `interject` are printed on stdout, one JSON object a line, each once. If
/// stdout is /dev/null, they stay for the next safe point.
///
/// With COMMAND, that command runs while dormouse watches the records. When the turn should yield,
/// or the operator has sent a message, the command is ended and the exit status is 10. Otherwise
/// the exit status is the command's own. The next safe point prints the message.
#[derive(Debug, Args)]
pub struct SafePointArgs {
    #[command(flatten)]
    pub agent: AgentFlag,
    /// Print the operator's messages, and leave them for the next safe point
    #[arg(long, conflicts_with = "argv")]
    pub peek: bool,
    /// Wait for a message or a request to yield, at most this long
    #[arg(long, value_name = "DURATION", conflicts_with = "argv")]
    pub wait: Option<Span>,
    /// The signal that ends the command
    #[arg(long, value_name = "NAME", default_value = "TERM", requires = "argv")]
    pub signal: String,
    /// Time for the command to end after the signal of --signal, before it gets SIGKILL
    #[arg(long, value_name = "DURATION", default_value = "2s", requires = "argv")]
    pub grace: Span,
    /// The command to run
    #[arg(last = true, value_name = "COMMAND")]
    pub argv: Vec<std::ffi::OsString>,
}

/// Save the state of this turn for its next run
///
/// Only the latest checkpoint counts. The next run of the same message finds its path in
/// DORMOUSE_CHECKPOINT: after a `yield`, a failure, a timeout, a kill or a requeue. It is deleted
/// when the message is settled. A turn that gets SIGTERM can still save a checkpoint until it is
/// killed. An empty one is refused, because it would replace the last one if the command that
/// creates it fails.
#[derive(Debug, Args)]
pub struct CheckpointArgs {
    /// A file, or `-` for stdin
    #[arg(value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub file: String,
    #[command(flatten)]
    pub agent: AgentFlag,
}

/// Suspend this turn, from inside it
///
/// Saves the checkpoint. The turn should exit after that, with any status. Its message stays
/// claimed. The same attempt continues after `dormouse resume`, or after the time of `--for`. If
/// the request to yield has a time, too, the longer time counts.
#[derive(Debug, Args)]
pub struct YieldArgs {
    #[command(flatten)]
    pub agent: AgentFlag,
    /// The saved state of the turn: a file, or `-` for stdin [default: the checkpoint it was given]
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub checkpoint: Option<String>,
    /// Resume this turn automatically after this long [default: only `dormouse resume` does]
    #[arg(long = "for", value_name = "DURATION")]
    pub resume_after: Option<Span>,
}

/// Run a command that must not be preempted, from inside a turn
///
/// While the command runs, `safe-point` returns 0, and the turn is not ended for failing to yield,
/// until the deadline. The exit status is the command's. Sections nest and count as one: the
/// deadline of the outermost holds for all, and `preemption.max_section` in any case.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct NonPreemptibleArgs {
    #[command(subcommand)]
    pub command: Option<SectionCommand>,
    #[command(flatten)]
    pub agent: AgentFlag,
    /// Time for which the critical section protects the turn
    #[arg(long, value_name = "DURATION", required = true)]
    pub deadline: Option<Span>,
    /// The command to run
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub argv: Vec<std::ffi::OsString>,
}

#[derive(Debug, Subcommand)]
pub enum SectionCommand {
    /// Begin a critical section that `end` ends
    Begin {
        #[command(flatten)]
        agent: AgentFlag,
        /// Time for which the critical section protects the turn
        #[arg(long, value_name = "DURATION")]
        deadline: Span,
    },
    /// End the innermost critical section
    End(AgentFlag),
}
