//! `report`: an HTML page.

use std::path::PathBuf;

use clap::Args;

/// Write an HTML page with the history of agents
///
/// A timeline of turns, waits and retries of each agent, waiting times of messages, queue depths,
/// costs of turns, failures, and what needs attention. The page needs no network and has no script.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Which agents [default: all]
    #[arg(value_name = "AGENT")]
    pub agents: Vec<String>,
    /// Write to this file, completely or not at all; `-` for stdout
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// Start of the period: a time, or a duration before now
    #[arg(long, value_name = "TIME", default_value = "30d")]
    pub since: String,
}
