//! Local directories of agents whose records are in a database: runs, tasks, hooks and locks, but
//! no records. Each is created at first need.

use std::path::Path;

use crate::cap_fs::CapPath;
use crate::error::{Error, Result};
use crate::local::layout::{self, AgentDir};
use crate::local::owner;
use crate::local::travel::{FileKind, place, walk};
use crate::model::id::AgentName;
use crate::model::time::Span;

use super::super::backend::LeaseClaimant;
use super::{DirAgent, DirStore, HookFile};

/// Subdirectories of a local agent directory. `tmp` is created last: if it exists, all do.
const DIRS: &[&str] = &[layout::RUNS, layout::TASKS, layout::HOOKS, layout::CACHE, layout::TMP];

/// Default time after which a lease without renewal expires.
pub const LEASE: Span = Span::from_secs(60);

impl DirStore {
    /// Sets the time after which a lease without renewal expires.
    #[cfg(test)]
    pub(in crate::store) fn with_lease(self, lasts: Span) -> DirStore {
        DirStore { lease: lasts, ..self }
    }

    /// Display name of the place of the records: the argument of `--dir`, or the name of the
    /// database.
    pub fn shown(&self) -> String {
        match &self.remote {
            Some(shown) => shown.clone(),
            None => self.anchor.path().to_string_lossy().into_owned(),
        }
    }

    /// Refuses an operation on files if the records are in a database. `what`: name of the
    /// operation, as the beginning of a sentence.
    pub fn files_only(&self, what: &str) -> Result<()> {
        let Some(shown) = &self.remote else { return Ok(()) };
        Err(Error::refused(
            "not_files",
            format!("{what} works on files; the records of this store are in {shown}"),
        ))
    }

    /// Returns the local directory of an agent, which may not exist yet.
    pub(in crate::store) fn local_agent(&self, name: &AgentName) -> DirAgent<'_> {
        DirAgent::new(self, name.clone(), AgentDir::new(&self.root, name))
    }

    /// True if an error is about a file in the local directory of an agent.
    pub fn is_in_agent(&self, name: &AgentName, error: &Error) -> bool {
        error.path().is_some_and(|path| path.starts_with(AgentDir::new(&self.root, name).path()))
    }

    /// Returns the identity with which this process asks for leases.
    pub fn claimant(&self) -> Result<LeaseClaimant> {
        let (anchor, host) = (owner::owner(&self.cap(), self.disk)?, (self.opener.host)());
        Ok(LeaseClaimant { anchor, host, pid: std::process::id(), lasts: self.lease })
    }
}

impl DirAgent<'_> {
    /// Creates the local agent directory if it is missing.
    pub(in crate::store) fn make_local_dir(&self) -> Result<()> {
        if self.dir.join(layout::TMP).exists()? {
            return Ok(());
        }
        // `make_dirs` creates nothing in a missing agent directory, so that directory comes first.
        self.store.cap().join(layout::AGENTS).join(self.name.as_str()).make_dirs()?;
        DIRS.iter().try_for_each(|dir| self.dir.join(dir).make_dirs())
    }

    /// Writes hooks into the local agent directory.
    pub(in crate::store) fn furnish(&self, hooks: &[HookFile]) -> Result<()> {
        if hooks.is_empty() {
            return Ok(());
        }
        self.make_local_dir()?;
        let dir = self.dir.join(layout::HOOKS);
        for hook in hooks {
            let cap = dir.join(&hook.name);
            self.replace_file(&cap, &hook.content)?;
            cap.set_mode(if hook.is_program { 0o700 } else { 0o600 })?;
        }
        Ok(())
    }

    /// Moves the files of turns, tasks, hooks and people from another agent's directory to this
    /// one.
    pub(in crate::store) fn take_over(&self, other: &DirAgent<'_>) -> Result<()> {
        self.make_local_dir()?;
        transfer_files(other.dir.cap(), self.dir.cap())?;
        self.store.disk.sync_file_system(self.dir.cap())
    }

    /// Removes the local agent directory. Errors are ignored, because files that stay block no
    /// command.
    pub(in crate::store) fn remove_local_dir(&self) {
        let _ = self.dir.cap().remove_tree();
    }
}

/// Moves files of turns, tasks, hooks and people from one agent's directory to another, unless the
/// other has a file of that name.
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
