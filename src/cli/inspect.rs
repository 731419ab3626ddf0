//! `get`, `list`, `explain`, `state`, `run`, `briefs`, `events`, `logs`, `watch`.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Subcommand, ValueEnum};

use super::messages::{PlaneAgent, PlaneAgents};

pub const POSTURES: &[&str] = &[
    "archived",
    "active_turn",
    "has_queued_input",
    "has_runnable_work",
    "waiting_for_task",
    "waiting_for_external",
    "waiting_for_operator",
    "blocked",
    "idle",
];
pub const STATUSES: &[&str] =
    &["booting", "awake_idle", "awake_running", "awaiting_task", "asleep", "stopped"];
pub const AGENT_KINDS: &[&str] = &["named", "child"];
/// The numbers of the execution states, as `state` shows them.
pub const STATE_CODES: &[&str] = &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"];
pub const EXECUTION_STATES: &[&str] = &[
    "initializing",
    "runnable",
    "scheduled",
    "running",
    "waiting",
    "waiting_resources",
    "suspended",
    "resumed",
    "completed",
    "failed",
    "shutting_down",
    "recovering",
];

pub const EVENT_KINDS: &[&str] = &[
    "agent_created",
    "control_request_admitted",
    "control_applied",
    "current_run_aborted",
    "scheduler_decision",
    "state_transition",
    "message_admitted",
    "message_settled",
    "message_rejected",
    "rejected_accepted",
    "rejected_removed",
    "message_requeued",
    "task_transition",
    "wait_transition",
    "work_transition",
    "timer_transition",
    "wake_hint_coalesced",
    "wake_hint_ignored",
    "trigger_ignored",
    "trigger_transition",
    "run_interrupted",
    "run_settled",
    "record_repaired",
    "collected",
    "moved_away",
    "moved_in",
    "workspace_released",
    "hook_ended",
    "preemption_requested",
    "preemption_forced",
    "run_yielded",
    "checkpoint_saved",
    "checkpoint_lost",
    "advisory",
    "attention",
    "attention_acknowledged",
];

/// The columns of `list`, and what each has.
pub const COLUMNS: &[(&str, &str)] = &[
    ("agent", "The name; with a `!` where something needs attention"),
    ("posture", "How it stands, in a word"),
    ("queue", "How many messages wait"),
    ("last", "When its last turn ended"),
    ("due", "When it is due although nothing arrives"),
    ("note", "Why it stands so; what is wrong comes first"),
    ("status", "Where it is in its lifecycle"),
    ("state", "The execution state"),
    ("dead", "Dead letters"),
    ("attention", "What needs attention"),
];

fn columns() -> PossibleValuesParser {
    PossibleValuesParser::new(COLUMNS.iter().map(|(name, what)| PossibleValue::new(*name).help(*what)))
}

/// Show a summary of an agent
///
/// Prints the whole summary, or one field of it by its dotted path: `dormouse get a queue.pending`.
#[derive(Debug, Args)]
pub struct Get {
    /// Which agent
    pub agent: String,
    /// A field by its dotted path, printed raw for scripts
    pub field: Option<String>,
}

/// Wait until agents have a posture or status, or a message is settled
///
/// Watches the agents' directories, and runs no step itself. Prints each agent that gets there, and
/// ends when all have. The exit status is 8 if the time was over first.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").args(["posture", "status", "message"]).multiple(true).required(true))]
pub struct Await {
    /// Which agents
    #[arg(value_name = "AGENT", required = true)]
    pub agents: Vec<String>,
    /// Until an agent has this posture (or, repeated, one of these)
    #[arg(long, value_parser = PossibleValuesParser::new(POSTURES))]
    pub posture: Vec<String>,
    /// Until an agent has this status (or, repeated, one of these)
    #[arg(long, value_parser = PossibleValuesParser::new(STATUSES))]
    pub status: Vec<String>,
    /// Until this message is settled: exit status 0 if it was completed, 7 if it failed for good
    #[arg(long, value_name = "ID")]
    pub message: Option<String>,
    /// Give up after this long
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
}

/// List agents, a line each
///
/// Those that need attention come first. On a terminal the last column is cut to its width.
#[derive(Debug, Args)]
pub struct List {
    /// Only agents of this posture (may be repeated)
    #[arg(long, value_parser = PossibleValuesParser::new(POSTURES))]
    pub posture: Vec<String>,
    /// Only agents of this status (may be repeated)
    #[arg(long, value_parser = PossibleValuesParser::new(STATUSES))]
    pub status: Vec<String>,
    /// Only agents of this kind
    #[arg(long, value_parser = PossibleValuesParser::new(AGENT_KINDS))]
    pub kind: Option<String>,
    /// Which columns, in this order [default: agent,posture,queue,last,due,note]
    #[arg(long, value_name = "COLUMNS", value_parser = columns(), value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Sort by this column alone [default: who needs attention, then by name]
    #[arg(long, value_name = "COLUMN", value_parser = columns())]
    pub sort: Option<String>,
    /// At most this many; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub limit: usize,
}

/// Say what the next step would do, and why
///
/// Prints the ladder of rules with the rung that holds, what would wake the agent, and what looks
/// wrong.
#[derive(Debug, Args)]
pub struct Explain {
    /// Which agent
    pub agent: String,
}

/// Show the execution state of an agent: since when, why, and which states can follow
#[derive(Debug, Args)]
pub struct State {
    /// Which agent
    pub agent: String,
    /// Tell by the exit status whether this state, a name or its code, can follow: 0 yes, 4 no
    #[arg(long, value_name = "STATE", value_parser = PossibleValuesParser::new(EXECUTION_STATES.iter().chain(STATE_CODES).copied()))]
    pub can: Option<String>,
    /// Print the machine as a diagram with the current state marked
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, default_missing_value = "mermaid", conflicts_with = "can")]
    pub diagram: Option<Diagram>,
    /// With --diagram: mark the edges that were taken, with how often
    #[arg(long, requires = "diagram")]
    pub history: bool,
    /// List the installed hooks, their paths, and which of them run
    #[arg(long, conflicts_with_all = ["can", "diagram"])]
    pub hooks: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Diagram {
    Mermaid,
    Dot,
}

/// Look at turns
#[derive(Debug, Args)]
pub struct Run {
    #[command(subcommand)]
    pub command: RunCommand,
}

#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// List runs, newest first
    List {
        #[command(flatten)]
        agents: PlaneAgents,
        /// At most this many of each agent; 0 for all
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Show one run
    Show {
        /// The run, at least four characters of its id, or `latest`
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
        /// Print what the turn wrote to stdout instead
        #[arg(long, conflicts_with = "stderr")]
        stdout: bool,
        /// Print what the turn wrote to stderr instead
        #[arg(long)]
        stderr: bool,
        /// Print what the turn writes, to stdout or with --stderr to that, until it ends
        #[arg(short, long)]
        follow: bool,
    },
}

/// Show the briefs of turns, newest first
#[derive(Debug, Args)]
pub struct Briefs {
    #[command(flatten)]
    pub agents: PlaneAgents,
    /// At most this many of each agent; 0 for all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
}

/// Show what happened, oldest first
#[derive(Debug, Args)]
pub struct Events {
    #[command(flatten)]
    pub agents: PlaneAgents,
    /// Only events of this kind (may be repeated)
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(EVENT_KINDS))]
    pub kind: Vec<String>,
    /// Only events since this time (`yesterday`, `friday 17:30`, RFC 3339), or from this long ago
    /// on
    #[arg(long, value_name = "TIME|DURATION")]
    pub since: Option<String>,
    /// Go on printing events as they happen
    #[arg(short, long)]
    pub follow: bool,
    /// At most this many of each agent, the newest; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub limit: usize,
}

/// Show what happened, in plain words and local time, with what turns have written
///
/// Of the agents that are named; of all where none is named, outside a turn.
#[derive(Debug, Args)]
pub struct Logs {
    #[command(flatten)]
    pub agents: PlaneAgents,
    /// Everything since this time, or from this long ago on [default: the last 50 events, however
    /// old]
    #[arg(long, value_name = "TIME|DURATION")]
    pub since: Option<String>,
    /// Go on telling as it happens, and as turns write it
    #[arg(short, long)]
    pub follow: bool,
}

/// Show the agents on the terminal, as they stand and change, with keys that run commands
///
/// Those that need attention come first. Enter looks at one agent: its queue, waits, work, last
/// events, and what its turn writes. `?` lists the keys. The screen follows changes as they happen,
/// and costs nothing while nothing changes.
#[derive(Debug, Args)]
pub struct Watch {
    /// Which agents; all, if none is named
    #[arg(value_name = "AGENT")]
    pub agents: Vec<String>,
}
