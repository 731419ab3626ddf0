//! Many arrivals at once: all of them written and synced aside before the first appears in the
//! inbox.

use std::fs::File;

use uuid::Uuid;

use crate::beneath::{Access, Entry, Spot};
use crate::error::Result;
use crate::model::message::{InboxKey, Message};
use crate::model::time::Time;

use super::agent::DirAgent;
use super::backlog;
use super::files::{self, Disk, Unsynced};
use super::inbox::SEGMENT;
use super::layout;
use super::litter::{abandoned, make_dir_unlocked};
use super::record::{decode, encode};

/// Messages on their way into the inbox. Dropping this removes those that were not admitted.
#[derive(Debug)]
pub struct DirBatch<'a> {
    agent: &'a DirAgent<'a>,
    disk: Disk,
    dir: Spot,
    /// The messages that are admitted together. This directory can become a pile as it is.
    pile: Spot,
    /// Held for as long as the batch is being made, so that no command takes it for a leftover.
    _lock: File,
    unsynced: Unsynced,
    count: usize,
}

impl DirAgent<'_> {
    /// Begins to put many messages into the inbox. `name` must be one that no other batch has.
    pub(in crate::store) fn batch(&self, name: Uuid) -> Result<DirBatch<'_>> {
        DirBatch::begin(self, self.store.disk, name)
    }
}

impl<'a> DirBatch<'a> {
    /// Begins a batch in a directory of its own. If the owner makes it, it also removes the batches
    /// of killed commands.
    pub(super) fn begin(agent: &'a DirAgent<'_>, disk: Disk, name: Uuid) -> Result<DirBatch<'a>> {
        if agent.store().guest().is_none() {
            sweep(&agent.tmp())?;
        }
        let dir = agent.staging(&format!("{PREFIX}{}", name.simple()));
        let lock = make_dir_unlocked(&dir, disk.access)?;
        let pile = dir.join("pile");
        let unsynced = disk.unsynced();
        // From here on, dropping the batch removes what was made.
        let batch = DirBatch { agent, disk, dir, pile, _lock: lock, unsynced, count: 0 };
        batch.pile.make_dir_for(disk.access)?;
        Ok(batch)
    }

    /// Writes a message aside that will be admitted together with the others.
    pub fn stage(&mut self, message: &Message) -> Result<()> {
        self.stage_at(staged(&self.pile, message.key()), message)
    }

    /// Writes a message aside that will be read back and admitted in another way.
    pub fn stage_apart(&mut self, message: &Message) -> Result<()> {
        self.stage_at(staged(&self.dir, message.key()), message)
    }

    fn stage_at(&mut self, path: Spot, message: &Message) -> Result<()> {
        let file = self.disk.stage_unsynced(&path, &encode(message))?;
        self.count += 1;
        if self.count <= ONE_BY_ONE { self.unsynced.add(file, &path) } else { Ok(()) }
    }

    /// Makes all staged messages durable. Must be called before the first is admitted.
    pub fn sync(&mut self) -> Result<()> {
        self.unsynced.sync()?;
        if self.count > ONE_BY_ONE { self.disk.sync_file_system(&self.dir) } else { Ok(()) }
    }

    /// Reads a message back that was staged apart.
    pub fn read(&self, key: InboxKey) -> Result<Message> {
        let path = staged(&self.dir, key);
        let bytes = files::read(&path)?.unwrap_or_default();
        decode(&path, &bytes)
    }

    /// Puts all staged messages into the inbox, for good: if there are many, as a pile, in one
    /// call. `keys`: theirs, in any order.
    ///
    /// # Errors
    ///
    /// `moved` if the agent was moved away meanwhile. Of these messages, only those that are in the
    /// agent's stream are then left. `no_agent` if it was removed, with all of them.
    pub fn admit(self, keys: impl Iterator<Item = InboxKey> + Clone, now: Time) -> Result<()> {
        let here = self.agent.here()?;
        self.agent.unless_gone(self.place(keys.clone()))?;
        let names: Vec<String> = keys.map(|key| format!("{key}.json")).collect();
        self.agent.unless_left(here, &names, now)
    }

    fn place(&self, keys: impl Iterator<Item = InboxKey> + Clone) -> Result<()> {
        // A directory that another user has made never counts as a pile.
        if self.disk.access == Access::Owner
            && keys.clone().nth(SEGMENT).is_some()
            && let Some(first) = keys.clone().min()
        {
            backlog::say_looked_through(&self.pile)?;
            self.disk.sync_dir(&self.pile)?;
            files::rename(&self.pile, &self.agent.dir().join(layout::pile(first)))?;
            return self.disk.sync_dir(&self.agent.dir().join(layout::INBOX));
        }
        let names = keys.map(|key| (staged(&self.pile, key), self.agent.dir().join(layout::message(key))));
        self.disk.place_all(names)
    }
}

fn staged(dir: &Spot, key: InboxKey) -> Spot {
    dir.join(format!("{key}.json"))
}

impl Drop for DirBatch<'_> {
    fn drop(&mut self) {
        // If this fails, the next batch removes the directory.
        let _ = self.dir.remove_tree();
    }
}

const PREFIX: &str = "batch-";

/// Up to this many files are synced one by one. For more, the whole file system is synced once,
/// which is faster.
const ONE_BY_ONE: usize = 256;

/// Removes the batches whose makers are gone.
fn sweep(tmp: &Spot) -> Result<()> {
    let is_batch =
        |entry: &&Entry| entry.is_dir && entry.name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
    for entry in tmp.entries()?.iter().filter(is_batch) {
        if let Some((dir, _held)) = abandoned(tmp, entry) {
            dir.remove_tree()?;
        }
    }
    Ok(())
}
