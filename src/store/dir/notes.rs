//! Files of an agent that are not records: checkpoints, and the quarantine.

use std::ffi::{OsStr, OsString};

use crate::cap_fs::CapPath;
use crate::error::Result;
use crate::local::workdir::{CHECKPOINT, Workdir};
use crate::local::{files, layout};
use crate::model::id::RunId;
use crate::model::preemption::Checkpoint;

use super::DirAgent;

impl DirAgent<'_> {
    /// Directories of the agent's runs and tasks on this machine, and its hooks.
    pub(in crate::store) fn workdir(&self) -> Workdir {
        Workdir::of(self.dir.cap(), &self.store.cap())
    }

    /// Writes a checkpoint to `tmp/`, durably. Checkpoints may be large, so the caller should not
    /// hold the lock.
    pub fn stage_checkpoint(&self, run_id: RunId, bytes: &[u8]) -> Result<StagedCheckpoint> {
        // Several processes of a run may stage a checkpoint at once.
        let name = format!("{run_id}-{}.checkpoint", std::process::id());
        let cap = self.dir.join(layout::TMP).join(name);
        let held = self.store.disk.stage_unlocked(&cap, bytes)?;
        Ok(StagedCheckpoint { cap, _held: held })
    }

    /// Moves a checkpoint to its final path. The checkpoint takes effect when a record names it.
    pub fn save_checkpoint(&self, checkpoint: Checkpoint, staged: StagedCheckpoint) -> Result<()> {
        let path = self.workdir().checkpoint(checkpoint);
        files::rename(&staged.cap, &path)?;
        self.store.disk.sync_dir(&path.parent())
    }

    /// Removes every other checkpoint of the same run, because no record names it any more. The
    /// caller must hold the lock.
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

    /// Moves a file or directory to `quarantine/`, under a name made from its path. Returns its new
    /// place.
    pub(super) fn quarantine(&self, cap: &CapPath) -> Result<CapPath> {
        let dir = self.dir.join(layout::QUARANTINE);
        dir.make_dirs()?;
        let name = cap.below(self.dir.cap()).to_string_lossy().replace('/', "__");
        let place = files::free_place(&dir, OsStr::new(&name), "")?;
        files::rename(cap, &place).map(|()| place)
    }

    /// Writes content into `quarantine/`, under a name made from the old path. Content that is
    /// there already is not written twice. Returns the path of the quarantined file, for display.
    pub fn quarantine_text(&self, old: &str, bytes: &[u8]) -> Result<String> {
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
        let place = files::free_place(&dir, &name, "")?;
        let temporary = self.dir.join(layout::TMP).join(format!("aside-{}", std::process::id()));
        self.store.disk.replace_unlocked(&temporary, &place, bytes)?;
        Ok(place.display().to_string())
    }
}

/// Checkpoint in `tmp/`. Dropping this removes the file unless it was moved to its final path.
#[derive(Debug)]
pub struct StagedCheckpoint {
    cap: CapPath,
    /// Lock file held so that no command removes the checkpoint as stale.
    _held: std::fs::File,
}

impl Drop for StagedCheckpoint {
    fn drop(&mut self) {
        // After a successful save the checkpoint is in its final path, and this removes nothing.
        let _ = self.cap.remove();
    }
}
