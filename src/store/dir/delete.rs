//! Deletion of an agent: one rename hides it, and its files are removed after that.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::cap_fs::CapPath;
use crate::error::{Error, IoContext, Result};
use crate::local::layout::{self, AgentDir};
use crate::local::travel::{self, FileKind};
use crate::local::{LocalAgent, lock};
use crate::model::place::PlaceId;

use super::super::backend::AgentRecords;
use super::{DirAgent, DirTxn, moved};

impl DirAgent<'_> {
    /// Returns the number that identifies the agent's directory. Error if the agent no longer
    /// exists.
    pub(super) fn here(&self) -> Result<PlaceId> {
        self.local.dir.cap().number()?.ok_or_else(|| self.gone())
    }

    /// Replaces any error of a command by "no such agent" if the agent has been removed meanwhile.
    pub(super) fn unless_gone<T>(&self, done: Result<T>) -> Result<T> {
        done.map_err(|error| self.explain_if_gone(error))
    }

    pub(super) fn gone(&self) -> Error {
        Error::NoAgent { agent: self.local.name.to_string(), known: None, renamed: None }
    }
}

/// True if only files outside git remain of an agent, because git has removed its records.
pub fn is_deleted_remnant(dir: &CapPath) -> Result<bool> {
    let mut has_only_own = true;
    travel::walk(dir, Path::new(""), &mut |path, entry| {
        has_only_own &= match travel::place(path) {
            FileKind::Local => true,
            FileKind::Evidence | FileKind::Unknown | FileKind::Records { .. } if entry.is_dir => {
                return Ok(has_only_own);
            }
            FileKind::Evidence => path.starts_with(layout::RUNS) || path.starts_with(layout::TASKS),
            FileKind::Unknown => path.starts_with(layout::KEYS),
            FileKind::Records { .. } => false,
        };
        Ok(false)
    })?;
    Ok(has_only_own)
}

impl DirTxn<'_> {
    /// Deletes an agent that is marked as moved, with the lock file that this process holds: a
    /// command that waits for the lock then finds no agent. Returns the names of the inbox files
    /// that came after the export and are deleted with the agent.
    pub(in crate::store) fn delete(&self) -> Result<Vec<String>> {
        let (gone, _held) = self.move_away()?;
        let late = moved::late(&gone)?;
        // If the removal fails, later commands remove the stale directory, and `doctor` reports it.
        let _ = gone.cap().remove_tree();
        Ok(late.into_iter().map(|path| path.to_string_lossy().into_owned()).collect())
    }

    /// Deletes an agent that is not marked as moved. `is_known`: true if an inbox file, by its path
    /// relative to the agent's directory, may be removed. Returns `false`, and keeps the agent, if
    /// another file has arrived.
    pub(super) fn delete_unless_more(&self, is_known: impl Fn(&Path) -> bool) -> Result<bool> {
        let (gone, _held) = self.move_away()?;
        let mut has_more = false;
        let inbox = Path::new(layout::INBOX);
        moved::each_file(&gone.join(inbox), &mut |path| has_more |= !is_known(&inbox.join(path)))?;
        if has_more {
            gone.cap().rename(self.agent.local.dir.cap())?;
        } else {
            let _ = gone.cap().remove_tree();
        }
        Ok(!has_more)
    }

    /// Renames the agent's directory to a hidden name. Also returns the directory open and locked,
    /// so that no command removes it as stale.
    fn move_away(&self) -> Result<(AgentDir, File)> {
        let LocalAgent { state_dir, name, dir } = &self.agent.local;
        let own = dir.cap().open_existing_dir()?;
        if !lock::try_hold(&own, dir.path())? {
            return Err(Error::busy(dir.path(), "another command".to_owned(), Duration::ZERO));
        }
        let gone = AgentDir::at(state_dir.vanishing(name));
        gone.cap().remove_tree()?;
        dir.cap().try_rename(gone.cap())?.context("remove", dir.path())?;
        state_dir.disk.sync_dir(&gone.cap().parent())?;
        Ok((gone, own))
    }
}
