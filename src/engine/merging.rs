//! What this clone's git does with files of a state directory that two clones have changed.

use std::path::Path;

use crate::error::{Context, Result};
use crate::process::git::Repository;
use crate::store::Store;

/// The files that it merges, below the state directory: those that only grow, and those that only the clone
/// that ticks may write.
const MERGED: &[&str] = &[
    "agents/*/ledger/*.jsonl",
    "agents/*/archive/*/*.jsonl",
    "agents/*/state.json",
    "agents/*/work/*.json",
    "agents/*/waits/*.json",
    "agents/*/timers/*.json",
    "agents/*/tasks/*.json",
    "agents/*/triggers/*.json",
];

/// Has git run `merge-driver` in this clone for the files of the state directory. Returns whether it did not
/// already.
pub fn register(store: &Store) -> Result<bool> {
    let program = std::env::current_exe().context("find", Path::new("this program"))?;
    Repository::of(store.root(), store.git_settings(), store.patience()).merge_by(&program, MERGED)
}
