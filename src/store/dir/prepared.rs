//! The room of an agent whose records are elsewhere, made before these appear.
//!
//! 1. The machine prepares the room, whole, in a hidden directory.
//! 2. The agent's records appear, and name that directory.
//! 3. The prepared room takes the place of what another agent of this name may have left on the
//!    machine.
//!
//! A command can be killed at any point of that. Before 2 no command looks at what is prepared.
//! After 2 the next command that needs the room finds the name among the records, and does 3. So
//! the new agent has all of its hooks and outputs, and none of another. A room that no records name
//! a day later is left over, and goes.

use std::fs::File;
use std::time::{Duration, Instant};

use crate::beneath::{Access, Entry, Spot};
use crate::error::{Error, IoContext, Result};
use crate::model::time::Time;

use super::layout::{self, AgentDir};
use super::{DirAgent, DirImport, DirStore, HookFile, litter, lock};

/// For how long a room is kept that no records name and whose maker is gone. A server that is held
/// up may still have to commit what the maker sent it last.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Prefix of the directory's name, and its suffix once the room that was there before is removed.
const PREPARED: &str = ".room-";
const TAKEN: &str = ".taken";

/// Interval of looks of a command that waits for another one.
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// A room that nobody else takes in as long as this is there.
pub struct PreparedDir {
    /// Name for the records to store.
    pub name: String,
    held: File,
}

/// A room that is not in its place, and has had no maker for long.
pub struct SpareRoom {
    /// Name by which records may refer to it.
    pub name: String,
    pub place: Spot,
}

impl SpareRoom {
    fn of(agents: &Spot, entry: &Entry) -> Option<SpareRoom> {
        let prepared = entry.name.to_str()?.strip_prefix(PREPARED)?;
        let name = prepared.strip_suffix(TAKEN).unwrap_or(prepared).to_owned();
        let (place, held) = litter::abandoned(agents, entry)?;
        let written = held.metadata().ok()?.modified().ok()?;
        (entry.is_dir && written.elapsed().ok()? > KEPT).then_some(SpareRoom { name, place })
    }
}

impl DirStore {
    /// The rooms that go, but for those which records name.
    pub(in crate::store) fn spare_rooms(&self) -> Result<Vec<SpareRoom>> {
        let agents = self.spot().join(layout::AGENTS);
        Ok(agents.entries()?.iter().filter_map(|entry| SpareRoom::of(&agents, entry)).collect())
    }

    fn prepared(&self, name: &str) -> [Spot; 2] {
        let agents = self.spot().join(layout::AGENTS);
        [agents.join(format!("{PREPARED}{name}")), agents.join(format!("{PREPARED}{name}{TAKEN}"))]
    }

    fn name_for(&self, agent: &DirAgent<'_>, now: Time) -> String {
        format!("{}-{}-{}", agent.name, std::process::id(), now.as_millis())
    }
}

impl DirAgent<'_> {
    /// Prepares a room for an agent of this name that is about to be made.
    pub(in crate::store) fn prepare(&self, hooks: &[HookFile], now: Time) -> Result<PreparedDir> {
        let name = self.store.name_for(self, now);
        let [place, _] = self.store.prepared(&name);
        let held = litter::make_dir_unlocked(&place, Access::Owner)?;
        let room = DirAgent::new(self.store, self.name.clone(), AgentDir::at(place));
        room.furnish(hooks)?;
        self.store.disk.sync_file_system(room.dir.spot())?;
        Ok(PreparedDir { name, held })
    }

    /// Removes a room that no records will name.
    pub(in crate::store) fn discard(&self, prepared: &PreparedDir) -> Result<()> {
        let _no_other_command_takes_it = &prepared.held;
        self.store.prepared(&prepared.name)[0].remove_tree()
    }

    /// Puts a room in its place that this process has prepared. The records name it by now.
    pub(in crate::store) fn move_in(&self, prepared: &PreparedDir) -> Result<()> {
        let _no_other_command_takes_it = &prepared.held;
        self.take_in(&self.store.prepared(&prepared.name))
    }

    /// Puts a room in its place that the records name, if it is still to be done, and if it was
    /// prepared on this machine.
    pub(in crate::store) fn move_in_late(&self, name: &str) -> Result<()> {
        // Another name is none that a machine has given.
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

    /// Another command may have done it meanwhile, or a part of it before it was killed.
    fn take_in(&self, [prepared, taken]: &[Spot; 2]) -> Result<()> {
        if prepared.exists()? {
            // The directory here belongs to an earlier agent, or was exported with the stream.
            self.dir.spot().remove_tree()?;
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
    /// Makes a prepared room of what was staged. The agent's files are there from now on.
    pub(in crate::store) fn prepare(&mut self, now: Time) -> Result<PreparedDir> {
        let store = self.agent.store;
        let name = store.name_for(&self.agent, now);
        let [place, _] = store.prepared(&name);
        store.disk.sync_file_system(self.agent.dir.spot())?;
        self.agent.dir.spot().rename(&place)?;
        self.agent = DirAgent::new(store, self.agent.name.clone(), AgentDir::at(place));
        let held = self.held.try_clone().context("hold", self.agent.dir.path())?;
        Ok(PreparedDir { name, held })
    }

    /// Says whether records elsewhere may name what was staged: then it stays when this is dropped.
    pub(in crate::store) fn may_be_named(&mut self, is_so: bool) {
        self.is_placed = is_so;
    }
}
