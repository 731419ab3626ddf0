//! `metrics`: what monitors read.

use std::path::PathBuf;

use clap::Args;

/// Print numbers about all agents for Prometheus
///
/// How the agents stand and what they have done, in the text format that Prometheus and its textfile collector read.
/// Nothing of the past is read for this: what has happened is counted as it happens.
#[derive(Debug, Args)]
pub struct Metrics {
    /// Write to this file, whole or not at all, instead of to stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
