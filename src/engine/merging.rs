//! What this clone's git does with files of a state directory that two clones have changed.

use std::path::Path;

use crate::error::{Context, Result};
use crate::process::git::Repository;
use crate::store::Store;
use crate::store::git::MERGED;

/// Has git run `merge-driver` in this clone for the files of the state directory. Returns whether
/// it did not already.
pub fn register(store: &Store) -> Result<bool> {
    let program = std::env::current_exe().context("find", Path::new("this program"))?;
    Repository::of(store.anchor().path(), store.git_settings(), store.patience()).merge_by(&program, MERGED)
}
