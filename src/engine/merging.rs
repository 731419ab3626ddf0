//! Merge driver of this clone's git for files of a state directory that two clones have changed.

use std::path::Path;

use crate::error::{IoContext, Result};
use crate::process::git::Repository;
use crate::store::Store;
use crate::store::git::MERGED;

/// Registers `merge-driver` in this clone for the files of the state directory. Returns true if it
/// was not registered before.
pub fn register(store: &Store) -> Result<bool> {
    let program = std::env::current_exe().context("find", Path::new("this program"))?;
    Repository::of(store.anchor().path(), store.local().git_settings(), store.local().patience())
        .merge_by(&program, MERGED)
}
