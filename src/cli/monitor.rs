//! `usage` and `metrics`: consumption of turns, and numbers for monitoring systems.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Show the consumption of turns, and what is left of the budgets
///
/// Turns, failures, tokens, cost and time of the turns that have ended since then, of the named
/// agents or of all. Days are those of the local time zone.
#[derive(Debug, Args)]
pub struct UsageArgs {
    /// Which agents [default: all]
    #[arg(value_name = "AGENT")]
    pub agents: Vec<String>,
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
