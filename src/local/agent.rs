//! Files of an agent on this machine, also if its records are in a database: locks, directories of
//! runs and tasks, hooks, checkpoints (saved progress of turns), quarantined files.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::cap_fs::CapPath;
use crate::error::{Error, Result};
use crate::model::id::{AgentName, RunId, TaskId};
use crate::model::policy::Policy;
use crate::model::preemption::Checkpoint;

use super::files::Disk;
use super::layout::{self, AgentDir};
use super::travel::{FileKind, place, walk};
use super::workdir::{CHECKPOINT, Dir};
use super::{StateDir, files};

/// Subdirectories of a local agent directory. `tmp` is created last: if it exists, all do.
const DIRS: &[&str] = &[layout::RUNS, layout::TASKS, layout::HOOKS, layout::CACHE, layout::TMP];

/// Directory of an agent on this machine.
#[derive(Debug, Clone)]
pub struct LocalAgent<'s> {
    pub state_dir: &'s StateDir,
    pub name: AgentName,
    pub dir: AgentDir,
}

impl StateDir {
    /// Returns the directory of an agent on this machine. The directory may not exist yet.
    pub fn agent(&self, name: &AgentName) -> LocalAgent<'_> {
        LocalAgent { state_dir: self, name: name.clone(), dir: AgentDir::new(&self.root, name) }
    }

    /// True if an error is about a file in the local directory of an agent.
    pub fn is_in_agent(&self, name: &AgentName, error: &Error) -> bool {
        error.path().is_some_and(|path| path.starts_with(AgentDir::new(&self.root, name).path()))
    }
}

impl LocalAgent<'_> {
    pub fn disk(&self) -> Disk {
        self.state_dir.disk
    }

    /// Parses the text of the agent's settings. `origin`: source of the text, for error messages.
    pub fn policy_from(&self, origin: &str, text: &str) -> Result<Policy> {
        self.state_dir.policy_from(origin, text).map_err(|error| {
            if matches!(&error, Error::Damaged { hint: None, .. }) {
                error.with_hint(format!("correct it with `dormouse edit {}`", self.name))
            } else {
                error
            }
        })
    }

    /// Replaces a file, durably. Not for concurrent callers: all use the same temporary path.
    pub fn replace_file(&self, cap: &CapPath, bytes: &[u8]) -> Result<()> {
        self.disk().replace(&self.dir.join(layout::TMP).join("replacement"), cap, bytes)
    }

    /// Creates the local agent directory if it is missing.
    pub fn make_local_dir(&self) -> Result<()> {
        if self.dir.join(layout::TMP).exists()? {
            return Ok(());
        }
        // `make_dirs` creates nothing in a missing agent directory, so that directory comes first.
        self.state_dir.cap().join(layout::AGENTS).join(self.dir.cap().name()).make_dirs()?;
        DIRS.iter().try_for_each(|dir| self.dir.join(dir).make_dirs())
    }

    /// Moves files that are no records, such as outputs and hooks, from another agent's directory
    /// to this one, durably. A file stays if this directory has a file of that name.
    pub fn take_over(&self, other: &LocalAgent<'_>) -> Result<()> {
        self.make_local_dir()?;
        transfer_files(other.dir.cap(), self.dir.cap())?;
        self.disk().sync_file_system(self.dir.cap())
    }

    /// Removes the local agent directory. Errors are ignored, because files that stay block no
    /// command.
    pub fn remove_local_dir(&self) {
        let _ = self.dir.cap().remove_tree();
    }

    /// Returns the directory of a run on this machine.
    pub fn run(&self, id: RunId) -> Dir {
        Dir { cap: self.dir.join(layout::RUNS).join(id.to_string()) }
    }

    /// Returns the directory of a task on this machine.
    pub fn task(&self, id: TaskId) -> Dir {
        Dir { cap: self.dir.join(layout::TASKS).join(id.to_string()) }
    }

    /// Returns the file of a checkpoint (saved progress), in the directory of its run.
    pub fn checkpoint(&self, checkpoint: Checkpoint) -> CapPath {
        self.dir.join(layout::checkpoint(checkpoint))
    }

    /// Returns the directories of hooks with their labels. A hook in the first takes precedence.
    pub fn hooks(&self) -> [(&'static str, PathBuf); 2] {
        let dirs = [("agent", self.dir.path()), ("shared", self.state_dir.anchor.path())];
        dirs.map(|(name, dir)| (name, dir.join(layout::HOOKS)))
    }

    /// Writes a checkpoint (saved progress of a turn) to `tmp/`, durably. Checkpoints may be large,
    /// so the caller should not hold the agent's lock.
    pub fn stage_checkpoint(&self, run_id: RunId, bytes: &[u8]) -> Result<StagedCheckpoint> {
        // Several processes of a run may stage a checkpoint at once.
        let name = format!("{run_id}-{}.checkpoint", std::process::id());
        let cap = self.dir.join(layout::TMP).join(name);
        let held = self.disk().stage(&cap, bytes)?;
        Ok(StagedCheckpoint { cap, _held: held })
    }

    /// Moves a checkpoint to its final path. Turns find it once a record of the agent names it.
    pub fn save_checkpoint(&self, checkpoint: Checkpoint, staged: StagedCheckpoint) -> Result<()> {
        let path = self.checkpoint(checkpoint);
        files::rename(&staged.cap, &path)?;
        self.disk().sync_dir(&path.parent())
    }

    /// Removes the older checkpoints (saved progress) of the same run, because no record names them
    /// any more. The caller must hold the agent's lock.
    pub fn remove_older(&self, checkpoint: Checkpoint) -> Result<()> {
        let path = self.checkpoint(checkpoint);
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
    pub fn quarantine(&self, cap: &CapPath) -> Result<CapPath> {
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
        self.disk().replace(&temporary, &place, bytes)?;
        Ok(place.display().to_string())
    }
}

/// Moves files that are no records, such as outputs and hooks, from one agent's directory to
/// another, unless the other has a file of that name.
fn transfer_files(from: &CapPath, to: &CapPath) -> Result<()> {
    walk(from, Path::new(""), &mut |path, entry| match place(path) {
        FileKind::Local => Ok(false),
        FileKind::Records { .. } => Ok(true),
        FileKind::Evidence if entry.is_dir => Ok(true),
        FileKind::Evidence | FileKind::Unknown => {
            let other = to.join(path);
            if !other.exists()? {
                other.parent().make_dirs()?;
                from.join(path).rename_if_free(&other)?;
            }
            Ok(false)
        }
    })
}

/// Checkpoint in `tmp/`. Dropping this removes the file unless it was moved to its final path.
#[derive(Debug)]
pub struct StagedCheckpoint {
    cap: CapPath,
    /// File of the checkpoint, open and locked, so that no other command removes it as stale.
    _held: std::fs::File,
}

impl Drop for StagedCheckpoint {
    fn drop(&mut self) {
        // After a successful save no file is at this path, so the removal does nothing.
        let _ = self.cap.remove();
    }
}
