//! Files beside the records: checkpoints, and the quarantine.

use std::ffi::OsString;

use crate::beneath::Spot;
use crate::error::Result;
use crate::model::id::RunId;
use crate::model::preemption::Checkpoint;
use crate::workdir::{CHECKPOINT, Workdir};

use super::{DirAgent, files, layout};

impl DirAgent<'_> {
    /// The directories of the agent's runs and tasks on this machine, and its hooks.
    pub(in crate::store) fn workdir(&self) -> Workdir {
        Workdir::of(self.dir.spot(), &self.store.spot())
    }

    /// Writes a checkpoint aside, durably. It may be large, so this should be called without the
    /// lock.
    pub fn stage_checkpoint(&self, run_id: RunId, bytes: &[u8]) -> Result<StagedCheckpoint> {
        // Several processes of a run may do this at once.
        let name = format!("{run_id}-{}.checkpoint", std::process::id());
        let spot = self.dir.join(layout::TMP).join(name);
        let held = self.store.disk.stage_unlocked(&spot, bytes)?;
        Ok(StagedCheckpoint { spot, _held: held })
    }

    /// Puts a checkpoint in its place. It takes effect when a record names it.
    pub fn save_checkpoint(&self, checkpoint: Checkpoint, staged: StagedCheckpoint) -> Result<()> {
        let path = self.workdir().checkpoint(checkpoint);
        files::rename(&staged.spot, &path)?;
        self.store.disk.sync_dir(&path.parent())
    }

    /// Removes every other checkpoint of the same run, which no record names any more. The caller
    /// must hold the lock.
    pub fn remove_older(&self, checkpoint: Checkpoint) -> Result<()> {
        let path = self.workdir().checkpoint(checkpoint);
        let dir = path.parent();
        for entry in dir.entries()? {
            let is_checkpoint = entry.name.as_encoded_bytes().starts_with(CHECKPOINT.as_bytes());
            if is_checkpoint && entry.name != path.name() {
                dir.join(&entry.name).remove()?;
            }
        }
        Ok(())
    }

    /// Keeps a file in `quarantine/`, under its old path, if it is to have no place among the
    /// records. Content that is there already is not kept twice. Returns where it is, for people.
    pub fn put_aside(&self, old: &str, bytes: &[u8]) -> Result<String> {
        let dir = self.dir.join(layout::QUARANTINE);
        dir.make_dirs()?;
        let name = OsString::from(old.replace('/', "__"));
        for entry in dir.entries()? {
            let place = dir.join(&entry.name);
            let is_of_it = entry.name.as_encoded_bytes().starts_with(name.as_encoded_bytes());
            if is_of_it && place.read(files::MAX_LINES)?.is_some_and(|kept| kept == bytes) {
                return Ok(place.display().to_string());
            }
        }
        let place = files::free_place(&dir, &name)?;
        let temporary = self.dir.join(layout::TMP).join(format!("aside-{}", std::process::id()));
        self.store.disk.replace_unlocked(&temporary, &place, bytes)?;
        Ok(place.display().to_string())
    }
}

/// A checkpoint that has no place yet. If it gets none, dropping this removes it.
#[derive(Debug)]
pub struct StagedCheckpoint {
    spot: Spot,
    /// Held so that no command takes the file for litter meanwhile.
    _held: std::fs::File,
}

impl Drop for StagedCheckpoint {
    fn drop(&mut self) {
        // In most cases the checkpoint is in its place by now, and nothing is here.
        let _ = self.spot.remove();
    }
}
