//! Local directory of an agent whose records are in a database, created before the records appear.
//!
//! 1. The machine prepares the local directory completely, under a hidden name.
//! 2. The agent's records are committed, and name the hidden directory.
//! 3. The prepared directory replaces any local directory that another agent of this name has left
//!    on the machine.
//!
//! A command can be killed at any point. Before 2 no command uses the prepared directory. After 2
//! the next command that needs the local directory finds the hidden name in the records, and does
//! 3. So the new agent has all of its own hooks and outputs, and none of another agent. A prepared
//! directory that no records name a day later is stale, and is deleted.

use std::fs::File;
use std::time::{Duration, Instant};

use crate::cap_fs::{Access, CapPath, Entry};
use crate::error::{Error, IoContext, Result};
use crate::model::time::Time;

use super::layout::{self, AgentDir};
use super::view::View;
use super::{DirAgent, DirImport, DirStore, HookFile, copying, lock, stale_files};

/// Time for which a prepared directory is kept without records that name it or a living maker. A
/// slow database server may still commit the maker's last transaction.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Prefix of the hidden name, and its suffix once the previous local directory is removed.
const PREPARED: &str = ".room-";
const TAKEN: &str = ".taken";

/// Polling interval of a command that waits for another command.
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// Prepared directory, locked against other commands until this is dropped.
pub struct PreparedDir {
    /// Name of the directory, to be stored in the records.
    pub name: String,
    held: File,
}

/// Prepared directory that was never moved to its final path, and whose maker is long gone.
pub struct UnusedDir {
    /// Name that records may contain.
    pub name: String,
    pub place: CapPath,
}

impl UnusedDir {
    fn of(agents: &CapPath, entry: &Entry) -> Option<UnusedDir> {
        let prepared = entry.name.to_str()?.strip_prefix(PREPARED)?;
        let name = prepared.strip_suffix(TAKEN).unwrap_or(prepared).to_owned();
        let (place, held) = stale_files::abandoned(agents, entry)?;
        let written = held.metadata().ok()?.modified().ok()?;
        (entry.is_dir && written.elapsed().ok()? > KEPT).then_some(UnusedDir { name, place })
    }
}

impl DirStore {
    /// Returns the prepared directories to delete, unless records name them.
    pub(in crate::store) fn unused_local_dirs(&self) -> Result<Vec<UnusedDir>> {
        let agents = self.cap().join(layout::AGENTS);
        Ok(agents.entries()?.iter().filter_map(|entry| UnusedDir::of(&agents, entry)).collect())
    }

    fn prepared(&self, name: &str) -> [CapPath; 2] {
        let agents = self.cap().join(layout::AGENTS);
        [agents.join(format!("{PREPARED}{name}")), agents.join(format!("{PREPARED}{name}{TAKEN}"))]
    }

    fn name_for(&self, agent: &DirAgent<'_>, now: Time) -> String {
        format!("{}-{}-{}", agent.name, std::process::id(), now.as_millis())
    }
}

impl DirAgent<'_> {
    /// Prepares a local directory for an agent of this name that is about to be created.
    pub(in crate::store) fn prepare(&self, hooks: &[HookFile], now: Time) -> Result<PreparedDir> {
        let name = self.store.name_for(self, now);
        let [place, _] = self.store.prepared(&name);
        let held = stale_files::make_dir_unlocked(&place, Access::Owner)?;
        let agent = DirAgent::new(self.store, self.name.clone(), AgentDir::at(place));
        agent.furnish(hooks)?;
        self.store.disk.sync_file_system(agent.dir.cap())?;
        Ok(PreparedDir { name, held })
    }

    /// Removes a prepared directory that no records will name.
    pub(in crate::store) fn discard(&self, prepared: &PreparedDir) -> Result<()> {
        let _no_other_command_takes_it = &prepared.held;
        self.store.prepared(&prepared.name)[0].remove_tree()
    }

    /// Moves a directory that this process has prepared to its final path. The caller has committed
    /// the records that name the directory.
    pub(in crate::store) fn move_in(&self, prepared: &PreparedDir) -> Result<()> {
        let _no_other_command_takes_it = &prepared.held;
        self.take_in(&self.store.prepared(&prepared.name))
    }

    /// Moves the prepared directory that the records name to its final path, if it exists on this
    /// machine and was not moved yet.
    pub(in crate::store) fn move_in_late(&self, name: &str) -> Result<()> {
        // A name with other bytes was not made by this program.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !name.bytes().all(is_plain) {
            return Ok(());
        }
        let places = self.store.prepared(name);
        let [prepared, taken] = &places;
        let found = prepared.open_dir()?.map_or_else(|| taken.open_dir(), |dir| Ok(Some(dir)));
        let Some(dir) = found? else { return Ok(()) };
        let begun = Instant::now();
        while !lock::try_hold(&dir, prepared.path())? {
            if begun.elapsed() >= self.store.opener.patience {
                return Err(Error::busy(prepared.path(), "its maker".to_owned(), begun.elapsed()));
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
        self.take_in(&places)
    }

    /// Moves a prepared directory to its final path. Another command may have done that, or a part
    /// of it.
    fn take_in(&self, [prepared, taken]: &[CapPath; 2]) -> Result<()> {
        if prepared.exists()? {
            // The directory here belongs to an earlier agent, or was exported with the stream.
            self.dir.cap().remove_tree()?;
            prepared.rename(taken)?;
            self.store.disk.sync_dir(&taken.parent())?;
        }
        if taken.exists()? {
            self.take_over(&DirAgent::new(self.store, self.name.clone(), AgentDir::at(taken.clone())))?;
            taken.remove_tree()?;
        }
        Ok(())
    }
}

impl DirImport<'_> {
    /// Renames the staged agent directory to that of a prepared directory, which has the agent's
    /// files from now on. Refuses a file that no other store can have.
    pub(in crate::store) fn prepare(&mut self, now: Time) -> Result<PreparedDir> {
        let store = self.agent.store;
        copying::refuse_unfit(&View::settled(&self.agent.dir))?;
        let name = store.name_for(&self.agent, now);
        let [place, _] = store.prepared(&name);
        store.disk.sync_file_system(self.agent.dir.cap())?;
        self.agent.dir.cap().rename(&place)?;
        self.agent = DirAgent::new(store, self.agent.name.clone(), AgentDir::at(place));
        let held = self.held.try_clone().context("hold", self.agent.dir.path())?;
        Ok(PreparedDir { name, held })
    }

    /// Keeps the staged directory when this is dropped, if `is_so`: records of another store may
    /// name it.
    pub(in crate::store) fn may_be_named(&mut self, is_so: bool) {
        self.is_placed = is_so;
    }
}
