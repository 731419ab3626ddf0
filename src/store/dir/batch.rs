//! Batches of messages: all are written and synced in `tmp/` before the first appears in the inbox.

use std::fs::File;

use rustix::fs::Advice;
use uuid::Uuid;

use crate::cap_fs::{Access, CapPath};
use crate::error::Result;
use crate::local::files::{self, Disk};
use crate::local::layout;
use crate::local::stale_files::make_dir_unlocked;
use crate::model::message::{InboxKey, Message};
use crate::model::place::PlaceId;
use crate::model::time::Time;

use super::agent::DirAgent;
use super::backlog;
use super::inbox::SEGMENT;
use super::record::encode;

/// Batch of messages for the inbox. Dropping the batch removes the messages that were not admitted.
#[derive(Debug)]
pub struct DirBatch<'a> {
    agent: &'a DirAgent<'a>,
    /// Identity of the agent's directory when the batch was begun.
    here: PlaceId,
    disk: Disk,
    dir: CapPath,
    /// Directory of the staged messages, which can be renamed into the inbox as a whole.
    bucket: CapPath,
    /// Lock held so that no command deletes the unfinished batch as a stale directory.
    lock: File,
    /// Keys of the staged messages.
    keys: Vec<InboxKey>,
    /// Staged files that are not durable yet, at most [`TOGETHER`].
    unsynced: Vec<(File, CapPath)>,
}

impl DirAgent<'_> {
    /// Starts a batch of messages for the inbox, in its own directory. `name` must be unique among
    /// batches. The next step that comes to rest removes the batches of killed commands.
    pub(in crate::store) fn batch(&self, name: Uuid) -> Result<DirBatch<'_>> {
        let (disk, here) = (self.local.disk(), self.here()?);
        let dir = self.local.staging(&format!("batch-{}", name.simple()));
        let lock = self.unless_departed(make_dir_unlocked(&dir, disk.access), here, 0)?;
        let bucket = dir.join("bucket");
        // From here on, dropping the batch removes its directory.
        let batch = DirBatch { agent: self, here, disk, dir, bucket, lock, keys: vec![], unsynced: vec![] };
        self.unless_departed(batch.bucket.make_dir_for(disk.access).map(|_| batch), here, 0)
    }
}

impl DirBatch<'_> {
    /// Writes a message into the batch. It is durable after `sync`, and in the inbox after `admit`.
    pub fn stage(&mut self, message: &Message) -> Result<()> {
        let path = self.staged(message.key());
        let file = self.disk.stage_unsynced(&path, &encode(message));
        let file = self.agent.unless_departed(file, self.here, 0)?;
        self.keys.push(message.key());
        if self.keys.len() > ONE_BY_ONE || !self.disk.syncs() {
            return Ok(());
        }
        self.unsynced.push((file, path));
        if self.unsynced.len() < TOGETHER { Ok(()) } else { self.sync_files() }
    }

    /// Makes the staged files that were not synced yet durable.
    fn sync_files(&mut self) -> Result<()> {
        let files = std::mem::take(&mut self.unsynced);
        for (file, _) in &files {
            // The kernel begins to write all files before the first is waited for, so that the file
            // system flushes its own journal once or twice instead of once for each file.
            let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
        }
        files.iter().try_for_each(|(file, path)| self.disk.sync_file(file, path.path()))
    }

    /// Makes all staged messages durable. Must be called before the first message is admitted.
    pub fn sync(&mut self) -> Result<()> {
        self.sync_files()?;
        if self.keys.len() <= ONE_BY_ONE {
            return Ok(());
        }
        self.disk.sync_file_system_of(&self.lock, &self.dir)
    }

    /// Moves the staged messages durably into the inbox. A large batch becomes a directory of the
    /// inbox by one rename.
    ///
    /// # Errors
    ///
    /// `moved` if the agent has left by `export --move` or `rm` meanwhile: its inbox keeps only the
    /// messages that were exported. `no_agent` if the agent was removed: no message is kept.
    pub fn admit(self, now: Time) -> Result<()> {
        let names: Vec<String> = self.keys.iter().map(|key| format!("{key}.json")).collect();
        self.agent.confirm(self.place(), self.here, &names, now)
    }

    fn staged(&self, key: InboxKey) -> CapPath {
        self.bucket.join(format!("{key}.json"))
    }

    fn place(&self) -> Result<()> {
        // Steps reject a directory of the inbox that another user than the owner has made.
        if self.disk.access == Access::Owner
            && self.keys.len() > SEGMENT
            && let Some(first) = self.keys.iter().min()
        {
            backlog::mark_clean(&self.bucket)?;
            self.disk.sync_dir(&self.bucket)?;
            files::rename(&self.bucket, &self.agent.local.dir.join(layout::bucket(*first)))?;
            return self.disk.sync_dir(&self.agent.local.dir.join(layout::INBOX));
        }
        let names = self.keys.iter();
        let names = names.map(|key| (self.staged(*key), self.agent.local.dir.join(layout::message(*key))));
        self.disk.place_all(names)
    }
}

impl Drop for DirBatch<'_> {
    fn drop(&mut self) {
        // If this removal fails, the next step that comes to rest removes the directory.
        let _ = self.dir.remove_tree();
    }
}

/// Maximum number of files that are synced one by one. For more files, the whole file system is
/// synced once, which is faster.
const ONE_BY_ONE: usize = 256;

/// Number of files that are open and synced together: enough to share the cost, few enough for the
/// strictest limits of open files in use.
const TOGETHER: usize = 32;
