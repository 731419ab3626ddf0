//! Many arrivals at once: all of them written and synced aside before the first appears in the inbox.

use std::fs::File;

use uuid::Uuid;

use crate::beneath::{Entry, Spot};
use crate::error::Result;
use crate::model::message::{InboxKey, Message};

use super::agent::Agent;
use super::files::{self, Disk, Unsynced};
use super::layout::{self, AgentDir};
use super::litter::{abandoned, make_dir_unlocked};
use super::record::{decode, encode};

/// Messages on their way into the inbox. Dropping it drops those that were not admitted.
#[derive(Debug)]
pub struct Batch<'a> {
    agent: &'a AgentDir,
    disk: Disk,
    dir: Spot,
    /// Held for as long as the batch is being made, so that nobody takes it for a leftover.
    _lock: File,
    unsynced: Unsynced,
}

impl<'a> Batch<'a> {
    /// Begins a batch in a directory of its own, and removes what killed ones left where the owner makes his.
    pub(super) fn begin(agent: &'a Agent<'_>, disk: Disk, name: Uuid) -> Result<Batch<'a>> {
        if agent.store().guest().is_none() {
            sweep(&agent.tmp())?;
        }
        let dir = agent.staging(&format!("{PREFIX}{}", name.simple()));
        let lock = make_dir_unlocked(&dir, disk.access)?;
        Ok(Batch { agent: agent.dir(), disk, dir, _lock: lock, unsynced: disk.unsynced() })
    }

    fn staged(&self, key: InboxKey) -> Spot {
        self.dir.join(format!("{key}.json"))
    }

    /// Writes a message aside.
    pub fn stage(&mut self, message: &Message) -> Result<()> {
        let path = self.staged(message.key());
        let file = self.disk.stage_unsynced(&path, &encode(message))?;
        self.unsynced.add(file, &path)
    }

    /// Makes everything durable that was staged. Must come before the first is admitted.
    pub fn sync(&mut self) -> Result<()> {
        self.unsynced.sync()
    }

    /// Reads a staged message back.
    pub fn read(&self, key: InboxKey) -> Result<Message> {
        let path = self.staged(key);
        let bytes = files::read(&path)?.unwrap_or_default();
        decode(&path, &bytes)
    }

    /// Lets a staged message appear in the inbox.
    pub fn admit(&self, key: InboxKey) -> Result<()> {
        files::rename(&self.staged(key), &self.agent.join(layout::message(key)))
    }

    /// Makes the admissions durable: from here on they may be acknowledged.
    pub fn finish(self) -> Result<()> {
        self.disk.sync_dir(&self.agent.join(layout::INBOX))
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // What stays behind is swept by the next batch.
        let _ = self.dir.remove_tree();
    }
}

const PREFIX: &str = "batch-";

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
