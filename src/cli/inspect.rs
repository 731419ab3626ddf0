//! `get`, `list`, `explain`, `state`, `run`, `briefs`, `events`, `logs`, `watch`, `usage`,
//! `metrics`, `report`.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};

use crate::model::agent::{AgentKind, Status};
use crate::model::event::EventKind;
use crate::model::execution::ExecutionState;
use crate::model::id::AgentName;
use crate::model::posture::Posture;
use crate::model::time::Span;

use super::groups::{AgentFlag, AgentFlags, SomeAgents};

/// Numbers of the execution states, as `state` shows them.
pub const STATE_CODES: &[&str] = &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"];

/// Columns of `list`, each with its content.
pub const COLUMNS: &[(&str, &str)] = &[
    ("agent", "Its name; with `!` if something needs attention"),
    ("posture", "Its posture: what it does or waits for"),
    ("queue", "Number of queued messages"),
    ("last", "Time at which its last turn ended"),
    ("due", "Time of its next step if nothing arrives"),
    ("note", "The reason of the posture; problems come first"),
];

fn columns() -> PossibleValuesParser {
    PossibleValuesParser::new(COLUMNS.iter().map(|(name, what)| PossibleValue::new(*name).help(*what)))
}

/// Parses the name of an execution state, or its code.
fn state_or_code() -> impl TypedValueParser<Value = ExecutionState> {
    let names = ExecutionState::ALL.iter().map(|state| state.name());
    PossibleValuesParser::new(names.chain(STATE_CODES.iter().copied())).try_map(|word| {
        let code = STATE_CODES.iter().position(|code| *code == word);
        code.and_then(|code| ExecutionState::ALL.get(code).copied()).map_or_else(|| word.parse(), Ok)
    })
}

/// Show a summary of an agent
///
/// Prints the whole summary, or one field by its dotted path: `dormouse get a queue.pending`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Name of the agent
    pub agent: AgentName,
    /// A field by its dotted path, printed raw for scripts
    pub field: Option<String>,
}

/// Wait for a posture or status, or for the end of a message
///
/// Watches the records and runs no step itself. Prints each agent that meets the condition, and
/// ends when all do. The exit status is 8 after the timeout.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").args(["posture", "status", "message"]).multiple(true).required(true))]
pub struct AwaitArgs {
    /// Names of the agents
    #[arg(value_name = "AGENT", required = true)]
    pub agents: Vec<AgentName>,
    /// Wait for this posture (or, repeated, for one of these)
    #[arg(long)]
    pub posture: Vec<Posture>,
    /// Wait for this status (or, repeated, for one of these)
    #[arg(long)]
    pub status: Vec<Status>,
    /// Wait for this message to settle, like `enqueue --await`: exit status 0 if it was completed,
    /// 7 if it failed for good
    #[arg(long, value_name = "ID", conflicts_with_all = ["posture", "status"])]
    pub message: Option<String>,
    /// Give up after this long
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<Span>,
}

/// List agents, a line each
///
/// Agents that need attention come first. On a terminal the last column is cut to its width.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only agents of this posture (may be repeated)
    #[arg(long)]
    pub posture: Vec<Posture>,
    /// Only agents of this status (may be repeated)
    #[arg(long)]
    pub status: Vec<Status>,
    /// Only agents of this kind
    #[arg(long)]
    pub kind: Option<AgentKind>,
    /// Which columns, in this order [default: agent,posture,queue,last,due,note]
    #[arg(long, value_name = "COLUMNS", value_parser = columns(), value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Sort by this column alone [default: agents that need attention first, then by name]
    #[arg(long, value_name = "COLUMN", value_parser = columns())]
    pub sort: Option<String>,
    /// Maximum number of agents; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub limit: usize,
}

/// Explain what the next step would do
///
/// Prints the rung of the ladder of rules that decides, and with -v the rungs before it; the events
/// that would wake the agent; and warnings.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Name of the agent
    pub agent: AgentName,
}

/// Show the execution state of an agent, and what can follow
#[derive(Debug, Args)]
pub struct StateArgs {
    /// Name of the agent
    pub agent: AgentName,
    /// Tell by the exit status if this state, a name or its code, can follow: 0 yes, 4 no
    #[arg(long, value_name = "STATE", value_parser = state_or_code())]
    pub can: Option<ExecutionState>,
    /// Print the state machine as a diagram with the current state marked
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, default_missing_value = "mermaid", conflicts_with = "can")]
    pub diagram: Option<Diagram>,
    /// With --diagram: mark the transitions that were made, each with its count
    #[arg(long, requires = "diagram")]
    pub history: bool,
    /// List the installed hooks with their paths, and those that run
    #[arg(long, conflicts_with_all = ["can", "diagram"])]
    pub hooks: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Diagram {
    Mermaid,
    Dot,
}

/// Show turns
#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// List runs, the newest of each agent first
    List {
        #[command(flatten)]
        agents: AgentFlags,
        /// Maximum number of runs of each agent; 0 for all
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Show one run
    Show {
        /// Id of the run, at least four digits of it, or `latest`
        id: String,
        #[command(flatten)]
        agent: AgentFlag,
        /// Print the stdout of the turn instead of the run's record
        #[arg(long, conflicts_with = "stderr")]
        stdout: bool,
        /// Print the stderr of the turn instead of the run's record
        #[arg(long)]
        stderr: bool,
        /// Print stdout (with --stderr: stderr) as the turn writes it, until the turn ends
        #[arg(short, long)]
        follow: bool,
    },
}

/// Show briefs (summaries of turns), the newest first
#[derive(Debug, Args)]
pub struct BriefsArgs {
    #[command(flatten)]
    pub agents: AgentFlags,
    /// Maximum number of briefs of each agent; 0 for all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
}

/// Show events, oldest first
#[derive(Debug, Args)]
pub struct EventsArgs {
    #[command(flatten)]
    pub agents: AgentFlags,
    /// Only events of this kind (may be repeated)
    #[arg(long, value_name = "KIND")]
    pub kind: Vec<EventKind>,
    /// Only events since this time (`yesterday`, `friday 17:30`, RFC 3339), or since this long ago
    #[arg(long, value_name = "TIME|DURATION")]
    pub since: Option<String>,
    /// Keep printing new events
    #[arg(short, long)]
    pub follow: bool,
    /// Maximum number of events of each agent, the newest; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub limit: usize,
}

/// Show events in plain words, with the output of turns
#[derive(Debug, Args)]
pub struct LogsArgs {
    #[command(flatten)]
    pub agents: AgentFlags,
    /// Events since this time, or since this long ago [default: the last 50 events]
    #[arg(long, value_name = "TIME|DURATION")]
    pub since: Option<String>,
    /// Keep printing new events, and output as turns write it
    #[arg(short, long)]
    pub follow: bool,
}

/// Show agents on the terminal, with keys that run commands
///
/// Agents that need attention come first. Enter shows one agent: its queue, waits, work, last
/// events, and the output of its turn. The screen follows changes as they happen, and costs nothing
/// while nothing changes. `dormouse man watch` lists the keys.
#[derive(Debug, Args)]
pub struct WatchArgs {
    #[command(flatten)]
    pub agents: SomeAgents,
}

/// Show what turns have used, and what is left of the budgets
///
/// Turns, failures, tokens, cost and time of the turns that have ended since --since. Days are
/// those of the local time zone.
#[derive(Debug, Args)]
pub struct UsageArgs {
    #[command(flatten)]
    pub agents: AgentFlags,
    /// Count turns since this time, or since this long ago
    #[arg(long, value_name = "TIME|DURATION", default_value = "7d")]
    pub since: String,
    /// Group turns by this
    #[arg(long, value_enum, default_value_t = UsageBy::Agent)]
    pub by: UsageBy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UsageBy {
    Agent,
    Day,
    Model,
}

/// Print numbers about all agents for Prometheus
///
/// State and history of the agents, in the text format that Prometheus and its textfile collector
/// read. No history is read for this: events are counted as they happen.
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// Write to this file, completely or not at all, instead of to stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Write an HTML page with the history of agents
///
/// A timeline of turns, waits and retries of each agent, waiting times of messages, queue depths,
/// costs of turns, failures, and what needs attention. The page needs no network and has no script.
#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(flatten)]
    pub agents: SomeAgents,
    /// Write to this file, completely or not at all; `-` for stdout
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// Start of the period: a time, or a duration before now
    #[arg(long, value_name = "TIME", default_value = "30d")]
    pub since: String,
}
