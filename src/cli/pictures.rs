//! `report`: what is looked at rather than read.

use std::path::PathBuf;

use clap::Args;

/// Write one HTML page that shows what agents have done
///
/// A timeline of turns, waits and retries of each agent, how long messages waited, how deep the
/// queues were, what turns cost, what failed and what needs attention. The page needs no network
/// and has no script.
#[derive(Debug, Args)]
pub struct Report {
    /// Which agents; all, if none is named
    #[arg(value_name = "AGENT")]
    pub agents: Vec<String>,
    /// Write to this file, whole or not at all; `-` for stdout
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// Show what happened from then on: a time, or a duration before now
    #[arg(long, value_name = "TIME", default_value = "30d")]
    pub since: String,
}
