//! `usage`, `metrics` and `report`: consumption of turns, numbers for monitoring systems, and a
//! page.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::groups::{AgentFlags, SomeAgents};

/// Show what turns have used, and what is left of the budgets
///
/// Turns, failures, tokens, cost and time of the turns that have ended since then. Days are
/// those of the local time zone.
#[derive(Debug, Args)]
pub struct UsageArgs {
    #[command(flatten)]
    pub agents: AgentFlags,
    /// Since this time, or since this long ago
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
