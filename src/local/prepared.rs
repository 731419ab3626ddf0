//! Local directory of an agent whose records are in a database, created before the records appear.
//!
//! 1. The machine prepares the local directory completely, under a hidden name.
//! 2. The agent's records are committed, and name the hidden directory.
//! 3. The prepared directory replaces any local directory that another agent of this name has left
//!    on the machine.
//!
//! A command can be killed at any point. Before step 2 no command uses the prepared directory.
//! After step 2 the next command that needs the local directory finds the hidden name in the
//! records, and does step 3. So the new agent has all of its own hooks and outputs, and none of
//! another agent. A prepared directory that no records name a day later is stale, and is deleted.

use std::fs::File;
use std::time::{Duration, Instant};

use crate::cap_fs::{Access, CapPath, Entry};
use crate::error::{Error, IoContext, Result};
use crate::model::id::AgentName;
use crate::model::time::Time;

use super::layout::{self, AgentDir};
use super::{HookFile, LocalAgent, StateDir, lock, stale_files};

/// Time for which a directory that was prepared for a new agent is kept without a living maker or
/// records that name it. A slow database server may still commit the maker's last transaction.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Prefix of the hidden name of a local directory that is prepared for a new agent.
const PREPARED: &str = ".room-";
/// Suffix of the hidden name once the older directory at the final path was removed.
const TAKEN: &str = ".taken";

/// Polling interval of a command that waits for another command's lock on a prepared directory.
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// Local directory of an agent that is being created, locked until this value is dropped.
pub struct PreparedDir {
    /// Name of the directory without the hidden prefix, to be stored in the agent's records.
    pub name: String,
    held: File,
}

/// Directory that was prepared for a new agent and never moved to its final path.
pub struct UnusedDir {
    /// Name without hidden prefix and suffix. If an agent's records name it, the directory stays.
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

impl StateDir {
    /// Returns old prepared directories of agents, to be deleted unless an agent's records name
    /// them.
    pub fn unused_local_dirs(&self) -> Result<Vec<UnusedDir>> {
        let agents = self.cap().join(layout::AGENTS);
        Ok(agents.entries()?.iter().filter_map(|entry| UnusedDir::of(&agents, entry)).collect())
    }

    fn prepared(&self, name: &str) -> [CapPath; 2] {
        let agents = self.cap().join(layout::AGENTS);
        [agents.join(format!("{PREPARED}{name}")), agents.join(format!("{PREPARED}{name}{TAKEN}"))]
    }
}

fn name_for(agent: &AgentName, now: Time) -> String {
    format!("{agent}-{}-{}", std::process::id(), now.as_millis())
}

impl LocalAgent<'_> {
    /// Creates a hidden directory with these hooks, durably, for an agent that will be created.
    pub fn prepare(&self, hooks: &[HookFile], now: Time) -> Result<PreparedDir> {
        let name = name_for(&self.name, now);
        let [place, _] = self.state_dir.prepared(&name);
        let held = stale_files::make_dir_unlocked(&place, Access::Owner)?;
        let agent = LocalAgent { dir: AgentDir::at(place), ..self.clone() };
        agent.furnish(hooks)?;
        self.disk().sync_file_system(agent.dir.cap())?;
        Ok(PreparedDir { name, held })
    }

    /// Makes the directory of an imported agent durable, and renames it to a hidden name like that
    /// of `prepare`. `held`: lock on the directory.
    pub fn hide(&mut self, held: &File, now: Time) -> Result<PreparedDir> {
        let name = name_for(&self.name, now);
        let [place, _] = self.state_dir.prepared(&name);
        self.disk().sync_file_system(self.dir.cap())?;
        self.dir.cap().rename(&place)?;
        let held = held.try_clone().context("hold", &place)?;
        self.dir = AgentDir::at(place);
        Ok(PreparedDir { name, held })
    }

    /// Removes a prepared directory that no records will name.
    pub fn discard(&self, prepared: &PreparedDir) -> Result<()> {
        let _no_other_command_takes_it = &prepared.held;
        self.state_dir.prepared(&prepared.name)[0].remove_tree()
    }

    /// Moves a directory that this process has prepared to its final path. The caller has committed
    /// the records that name the directory.
    pub fn move_in(&self, prepared: &PreparedDir) -> Result<()> {
        let _no_other_command_takes_it = &prepared.held;
        self.take_in(&self.state_dir.prepared(&prepared.name))
    }

    /// Moves the prepared directory that the records name to its final path, if it exists on this
    /// machine and was not moved yet. Error `busy` if another command keeps it locked.
    pub fn move_in_late(&self, name: &str) -> Result<()> {
        // The records may be wrong: a name with other bytes was not made by this program.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !name.bytes().all(is_plain) {
            return Ok(());
        }
        let places = self.state_dir.prepared(name);
        let [prepared, taken] = &places;
        let found = prepared.open_dir()?.map_or_else(|| taken.open_dir(), |dir| Ok(Some(dir)));
        let Some(dir) = found? else { return Ok(()) };
        let begun = Instant::now();
        while !lock::try_hold(&dir, prepared.path())? {
            if begun.elapsed() >= self.state_dir.opener.patience {
                return Err(Error::busy(prepared.path(), "its maker".to_owned(), begun.elapsed()));
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
        self.take_in(&places)
    }

    /// Moves a prepared directory to its final path, or finishes such a move of another command.
    fn take_in(&self, [prepared, taken]: &[CapPath; 2]) -> Result<()> {
        if prepared.exists()? {
            // The final path may have a directory of a former agent, or of this one before an
            // export.
            self.dir.cap().remove_tree()?;
            prepared.rename(taken)?;
            self.disk().sync_dir(&taken.parent())?;
        }
        if taken.exists()? {
            self.take_over(&LocalAgent { dir: AgentDir::at(taken.clone()), ..self.clone() })?;
            taken.remove_tree()?;
        }
        Ok(())
    }
}
