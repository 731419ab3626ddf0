//! What this clone's git does with files of a state directory that two clones have changed.

use std::path::Path;

use crate::error::{Context, Result};
use crate::process::git::Repository;
use crate::store::Store;
use crate::store::git::MERGED;

/// Registers `merge-driver` for the state directory in this clone. Returns false if it was already.
pub fn register(store: &Store) -> Result<bool> {
    let program = std::env::current_exe().context("find", Path::new("this program"))?;
    Repository::of(store.anchor().path(), store.local().git_settings(), store.local().patience())
        .merge_by(&program, MERGED)
}
