//! `usage` and `metrics`: what turns have used, and what monitors read.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Show what turns have used, and what is left of the budgets
///
/// Turns, failures, tokens, cost and time of the turns that have ended since then, of the agents
/// that are named or of all. Days are those of the local time zone.
#[derive(Debug, Args)]
pub struct Usage {
    /// Which agents [default: all]
    #[arg(value_name = "AGENT")]
    pub agents: Vec<String>,
    /// Since this time, or from this long ago on
    #[arg(long, value_name = "TIME|DURATION", default_value = "7d")]
    pub since: String,
    /// What the turns are put together by
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
/// How the agents stand and what they have done, in the text format that Prometheus and its
/// textfile collector read. Nothing of the past is read for this: what has happened is counted as
/// it happens.
#[derive(Debug, Args)]
pub struct Metrics {
    /// Write to this file, whole or not at all, instead of to stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
