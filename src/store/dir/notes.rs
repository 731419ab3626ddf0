//! What lies beside the records: directories of runs and tasks, how they ended, checkpoints, and what is in quarantine.

use std::ffi::OsString;
use std::path::Path;

use crate::beneath::Spot;
use crate::error::Result;
use crate::model::id::{RunId, TaskId};
use crate::model::preemption::Checkpoint;
use crate::model::settings::Durability;
use crate::model::task::TaskEnd;
use crate::model::time::Time;
use crate::model::turn::TurnEnd;

use super::files::{self, Disk};
use super::record::{decode_plain, encode_plain_line};
use super::{Agent, layout, lock};

impl Agent<'_> {
    /// Notes how a turn ended, before that is settled. Survives a kill; after a power cut the
    /// run counts as interrupted.
    pub fn note_end(&self, id: RunId, end: &TurnEnd) -> Result<()> {
        let disk = Disk::new(Durability::Process);
        let dir = self.dir.run_dir(id);
        disk.replace(&dir.join(layout::END_NEW), &dir.join(layout::END), &encode_plain_line(end))
    }

    /// How a turn ended that was not settled, if somebody saw it.
    pub fn noted_end(&self, id: RunId) -> Result<Option<TurnEnd>> {
        noted(&self.dir.run_dir(id).join(layout::END))
    }

    /// Makes the directory of a task.
    pub fn make_task_dir(&self, id: TaskId) -> Result<()> {
        self.dir.task_dir(id).make_dirs()
    }

    /// The lock of a task: free, and then held by the caller, or `None`: its supervisor lives, or
    /// somebody gives it to a child.
    pub fn task_lock(&self, id: TaskId, now: Time) -> Result<Option<lock::Held>> {
        self.dir.join(layout::TASKS).make_dirs()?;
        lock::try_acquire(&self.dir.join(layout::task_lock(id)), Some(&self.store.holder(now)))
    }

    /// The same, waiting for whoever has it as long as for any lock.
    pub fn task_lock_in_time(&self, id: TaskId, now: Time) -> Result<lock::Held> {
        self.dir.join(layout::TASKS).make_dirs()?;
        let path = self.dir.join(layout::task_lock(id));
        lock::acquire(&path, &self.store.holder(now), self.store.opener.patience)
    }

    /// The same lock, held already by whoever started us: it came with our start.
    pub fn inherited_task_lock(&self, id: TaskId, file: std::fs::File, now: Time) -> Result<lock::Held> {
        lock::inherited(&self.dir.join(layout::task_lock(id)), file, &self.store.holder(now))
    }

    /// Whether somebody looks after a task, without taking its lock.
    pub fn is_supervised(&self, id: TaskId) -> Result<bool> {
        lock::is_held(&self.dir.join(layout::task_lock(id)))
    }

    /// Notes how a task ended, before that is committed; the same as for a turn.
    pub fn note_task_end(&self, id: TaskId, end: &TaskEnd) -> Result<()> {
        let disk = Disk::new(Durability::Process);
        let dir = self.dir.task_dir(id);
        disk.replace(&dir.join(layout::END_NEW), &dir.join(layout::END), &encode_plain_line(end))
    }

    /// How a task ended that nobody has committed, if its supervisor saw it.
    pub fn noted_task_end(&self, id: TaskId) -> Result<Option<TaskEnd>> {
        noted(&self.dir.task_dir(id).join(layout::END))
    }

    /// Writes a file into a run's directory: material for the turn, not a record.
    pub fn write_run_file(&self, id: RunId, name: &str, bytes: &[u8]) -> Result<Spot> {
        let path = self.dir.run_dir(id).join(name);
        Disk::new(Durability::Process).stage(&path, bytes)?;
        Ok(path)
    }

    /// Makes the directory of a run.
    pub fn make_run_dir(&self, id: RunId) -> Result<()> {
        self.dir.run_dir(id).make_dirs()
    }

    /// Writes a checkpoint aside, durably. It may be large: this needs no lock, and should have none.
    pub fn stage_checkpoint(&self, run_id: RunId, bytes: &[u8]) -> Result<StagedCheckpoint> {
        // Several processes of a run may do this at once.
        let name = format!("{run_id}-{}.checkpoint", std::process::id());
        let spot = self.dir.join(layout::TMP).join(name);
        let held = self.store.disk.stage_unlocked(&spot, bytes)?;
        Ok(StagedCheckpoint { spot, _held: held })
    }

    /// Puts a checkpoint in its place. It counts from when a record names it.
    pub fn save_checkpoint(&self, checkpoint: Checkpoint, staged: StagedCheckpoint) -> Result<()> {
        let path = self.checkpoint(checkpoint);
        files::rename(&staged.spot, &path)?;
        self.store.disk.sync_dir(&path.parent())
    }

    /// Removes every other checkpoint of the same run: no record names any of them any more. Only for
    /// whoever holds the lock.
    pub fn remove_older(&self, checkpoint: Checkpoint) -> Result<()> {
        let path = self.checkpoint(checkpoint);
        let dir = path.parent();
        for entry in dir.entries()? {
            let is_checkpoint = entry.name.as_encoded_bytes().starts_with(layout::CHECKPOINT.as_bytes());
            if is_checkpoint && entry.name != path.name() {
                dir.join(&entry.name).remove()?;
            }
        }
        Ok(())
    }

    /// Keeps what is to have no place among the records in `quarantine/`, under its old path. Nothing is kept
    /// twice. Returns where.
    pub fn put_aside(&self, old: &Path, bytes: &[u8]) -> Result<Spot> {
        let dir = self.dir.join(layout::QUARANTINE);
        dir.make_dirs()?;
        let name = OsString::from(old.to_string_lossy().replace('/', "__"));
        for entry in dir.entries()? {
            let place = dir.join(&entry.name);
            let is_of_it = entry.name.as_encoded_bytes().starts_with(name.as_encoded_bytes());
            if is_of_it && place.read(files::MAX_LINES)?.is_some_and(|kept| kept == bytes) {
                return Ok(place);
            }
        }
        let place = files::free_place(&dir, &name)?;
        let temporary = self.dir.join(layout::TMP).join(format!("aside-{}", std::process::id()));
        self.store.disk.replace_unlocked(&temporary, &place, bytes)?;
        Ok(place)
    }

    /// Where a checkpoint is.
    pub fn checkpoint(&self, checkpoint: Checkpoint) -> Spot {
        self.dir.join(layout::checkpoint(checkpoint))
    }

    /// The right to hand interjections over to the agent's turn. `None`: another safe point is doing it.
    /// The directory that stands for it is one that nobody else can open: who may drop files could hold the
    /// inbox for ever.
    pub fn hand_over_alone(&self) -> Result<Option<std::fs::File>> {
        lock::try_dir(&self.dir.join(layout::RUNS))
    }
}

/// A checkpoint that has no place yet. If it gets none, it goes.
#[derive(Debug)]
pub struct StagedCheckpoint {
    spot: Spot,
    /// Nobody takes it for litter meanwhile.
    _held: std::fs::File,
}

impl Drop for StagedCheckpoint {
    fn drop(&mut self) {
        // Mostly it is in its place by now.
        let _ = self.spot.remove();
    }
}

/// It is not synced: a power cut may leave the name with nothing, zeros or a part behind it.
fn noted<T: serde::de::DeserializeOwned>(path: &Spot) -> Result<Option<T>> {
    let Some(bytes) = files::read(path)? else { return Ok(None) };
    let is_whole = serde_json::from_slice::<serde_json::Value>(&bytes).is_ok();
    if is_whole { decode_plain(path, 0, &bytes).map(Some) } else { Ok(None) }
}
