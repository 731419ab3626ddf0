//! Local directories of agents whose records are in another store: runs, tasks, hooks and locks,
//! and no record. Each is made when it is first needed.

use std::path::Path;

use crate::error::{Error, Result};
use crate::model::id::AgentName;
use crate::model::time::{Span, Time};

use super::super::elsewhere::LeaseClaimant;
use super::layout::{self, AgentDir};
use super::{DirAgent, DirStore, DirTxn, HookFile, LockGuard, lock, owner, successor};

/// The directories of a room. `tmp` comes last, and shows that the others are there.
const DIRS: &[&str] = &[layout::RUNS, layout::TASKS, layout::HOOKS, layout::CACHE, layout::TMP];

/// Default time after which a lease expires that is not renewed.
pub const LEASE: Span = Span::from_secs(60);

impl DirStore {
    /// Uses the directory for agents whose records are in another store. `shown`: the name of that
    /// store for people.
    pub(in crate::store) fn remote(self, shown: String) -> DirStore {
        DirStore { elsewhere: Some(shown), ..self }
    }

    /// Sets the time after which a lease without renewal expires.
    #[cfg(test)]
    pub(in crate::store) fn with_lease(self, lasts: Span) -> DirStore {
        DirStore { lease: lasts, ..self }
    }

    /// True if the records of the agents are in another store.
    pub(super) fn is_remote(&self) -> bool {
        self.elsewhere.is_some()
    }

    /// Where the records are, for people: what `--dir` names.
    pub fn shown(&self) -> String {
        match &self.elsewhere {
            Some(shown) => shown.clone(),
            None => self.anchor().path().to_string_lossy().into_owned(),
        }
    }

    /// Refuses what is about files where the records are none. `what`: what was asked for, as the
    /// beginning of a sentence.
    pub fn files_only(&self, what: &str) -> Result<()> {
        let Some(shown) = &self.elsewhere else { return Ok(()) };
        Err(Error::refused(
            "not_files",
            format!("{what} works on files; the records of this store are in {shown}"),
        ))
    }

    /// The room of an agent, be it made or not.
    pub(in crate::store) fn room(&self, name: &AgentName) -> DirAgent<'_> {
        DirAgent::new(self, name.clone(), AgentDir::new(&self.root, name))
    }

    /// Claimant with which this process asks for leases.
    pub(in crate::store) fn claimant(&self) -> Result<LeaseClaimant> {
        let (anchor, host) = (owner::owner(&self.spot(), self.disk)?, (self.opener.host)());
        Ok(LeaseClaimant { anchor, host, pid: std::process::id(), lasts: self.lease })
    }
}

impl DirAgent<'_> {
    /// Makes the room, if it is not there.
    pub(in crate::store) fn make_room(&self) -> Result<()> {
        if self.dir.join(layout::TMP).exists()? {
            return Ok(());
        }
        // Beneath the directory of an agent nothing is made as long as that is not there.
        self.store.spot().join(layout::AGENTS).join(self.name.as_str()).make_dirs()?;
        DIRS.iter().try_for_each(|dir| self.dir.join(dir).make_dirs())
    }

    /// Puts hooks into the room.
    pub(in crate::store) fn furnish(&self, hooks: &[HookFile]) -> Result<()> {
        if hooks.is_empty() {
            return Ok(());
        }
        self.make_room()?;
        let dir = self.dir.join(layout::HOOKS);
        for hook in hooks {
            let spot = dir.join(&hook.name);
            self.replace_file(&spot, &hook.content)?;
            spot.set_mode(if hook.is_program { 0o700 } else { 0o600 })?;
        }
        Ok(())
    }

    /// Takes the lock of the room: of the commands of this machine one comes first, and waits for
    /// those of others.
    pub(in crate::store) fn lock_room(&self, now: Time) -> Result<DirTxn<'_>> {
        self.make_room()?;
        let path = self.dir.join(layout::LOCK);
        let held = lock::acquire(&path, &self.store.holder(now), self.store.opener.patience)?;
        Ok(DirTxn::new(self, held))
    }

    /// Tries once to take the lock of a room. Returns `None` if another process has the lock.
    pub(in crate::store) fn try_lock_room(&self, now: Time) -> Result<Option<DirTxn<'_>>> {
        self.make_room()?;
        let held: Option<LockGuard> =
            lock::try_acquire(&self.dir.join(layout::LOCK), Some(&self.store.holder(now)))?;
        Ok(held.map(|held| DirTxn::new(self, held)))
    }

    /// Brings what is no record of another agent into the room, be it a room or one whose records
    /// are files here.
    pub(in crate::store) fn take_over(&self, other: &DirAgent<'_>) -> Result<()> {
        self.make_room()?;
        successor::hand_on_below(other.dir.spot(), Path::new(""), self.dir.spot())?;
        self.store.disk.sync_file_system(self.dir.spot())
    }

    /// Removes the room with all that is in it. What can't be removed now stays, and is in nobody's
    /// way.
    pub(in crate::store) fn clear_room(&self) {
        let _ = self.dir.spot().remove_tree();
    }
}
