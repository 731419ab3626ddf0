//! `doctor`, `merge-driver`, `schema`, `completions`, `man`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};

/// The record kinds that have a published schema.
pub const SCHEMAS: &[&str] = &[
    "agent",
    "brief",
    "dedupe",
    "event",
    "identity",
    "message",
    "run",
    "state",
    "submission",
    "task",
    "timer",
    "trigger",
    "wait",
    "wake_hint",
    "work",
];

/// Check every record
///
/// Says what is wrong, a line per finding, and exits with 6 if anything is. Changes nothing
/// unless told to repair; a repair moves what it can't read to `quarantine/`, and deletes
/// nothing but what killed commands have left half-made.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Only these agents
    #[arg(value_name = "AGENT")]
    pub agents: Vec<String>,
    /// Repair what has one right answer
    #[arg(long)]
    pub repair: bool,
    /// Let git merge the files of this state directory, in this clone, by `merge-driver`
    #[arg(long)]
    pub merge_driver: bool,
}

/// Merge two versions of a file of the state directory, for git
///
/// git runs it in a clone in which `doctor --merge-driver` has said so. Lines of the ledger and the
/// archive that either side has are kept once and in order. Of a record that only one clone may write
/// the version that has come further is kept, and the other one goes to `quarantine/`.
#[derive(Debug, Args)]
pub struct MergeDriver {
    /// A file with what both had in common (%O)
    pub base: PathBuf,
    /// A file with our version, which becomes the merged one (%A)
    pub ours: PathBuf,
    /// A file with their version (%B)
    pub theirs: PathBuf,
    /// Where it lies, from the top of the work tree (%P)
    pub path: PathBuf,
}

/// Print the JSON Schema of a record
#[derive(Debug, Args)]
pub struct Schema {
    /// Which record; without one, their names
    #[arg(value_parser = PossibleValuesParser::new(SCHEMAS))]
    pub kind: Option<String>,
}

/// Print the completions of a shell
#[derive(Debug, Args)]
pub struct Completions {
    /// Which shell
    pub shell: Shell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Print a manual page
#[derive(Debug, Args)]
pub struct Man {
    /// The command it is about; without one, the page of dormouse itself
    #[arg(value_name = "COMMAND")]
    pub page: Option<String>,
}
