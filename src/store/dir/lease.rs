//! Locks of one agent that last longer than a transaction.

use std::fs::File;

use crate::cap_fs::CapPath;
use crate::error::Result;
use crate::local::layout;
use crate::local::lock::{self, LockGuard, Sharing};
use crate::model::id::RunId;
use crate::model::time::Time;

use super::super::backend::Subject;
use super::DirAgent;

impl DirAgent<'_> {
    /// Takes the lease of a run or a task. Returns `None` if a living process has the lease.
    pub(in crate::store) fn lease(&self, subject: Subject, now: Time) -> Result<Option<LockGuard>> {
        lock::try_acquire(&self.lease_of(subject)?, Some(&self.store.holder(now)))
    }

    /// Takes over a lease from the parent process, which held it when this process was started.
    pub(in crate::store) fn inherited_lease(
        &self,
        subject: Subject,
        file: File,
        now: Time,
    ) -> Result<LockGuard> {
        lock::inherited(&self.place_of(subject), file, &self.store.holder(now))
    }

    /// True if a living process has the lease. Does not take the lease.
    pub(in crate::store) fn is_leased(&self, subject: Subject) -> Result<bool> {
        lock::is_held(&self.place_of(subject))
    }

    /// Returns the process of this machine that has the lease, described for people, and true if
    /// that process is stopped. `None` if no process has the lease.
    pub fn lease_holder(&self, subject: Subject) -> Result<Option<(String, bool)>> {
        if !self.is_leased(subject)? {
            return Ok(None);
        }
        let place = self.place_of(subject);
        let is_stopped = lock::holder(&place).is_some_and(|holder| holder.is_stopped());
        Ok(Some((lock::describe_holder(&place), is_stopped)))
    }

    fn place_of(&self, subject: Subject) -> CapPath {
        match subject {
            Subject::Run => self.dir.join(layout::RUN_LOCK),
            Subject::Task(id) => self.dir.join(layout::task_lock(id)),
        }
    }

    fn lease_of(&self, subject: Subject) -> Result<CapPath> {
        let cap = self.place_of(subject);
        if subject != Subject::Run {
            // A clone may lack the directory, because git stores no empty directories.
            cap.parent().make_dirs()?;
        }
        Ok(cap)
    }

    /// Takes the lock for running the hooks of transitions, or returns `None` if another process
    /// has it. Processes that run the hooks of their own transitions share the lock; a process that
    /// runs hooks that others have left pending takes it exclusively.
    pub fn notify_lock(&self, sharing: Sharing) -> Result<Option<LockGuard>> {
        let path = self.dir.join(layout::NOTIFY_LOCK);
        path.parent().make_dirs()?;
        lock::occupy(&path, sharing)
    }

    /// Creates and locks the file that shows that a command runs in a critical section of a turn.
    /// The section is open until the returned file is closed.
    pub fn hold_section(&self, run: RunId, number: u32) -> Result<File> {
        let cap = self.section(run, number);
        // A killed process may have left the lock file of a critical section with this number.
        let _ = cap.remove();
        self.store.disk.stage_unlocked(&cap, b"")
    }

    /// True if a living process has the critical section open.
    pub fn is_section_held(&self, run: RunId, number: u32) -> Result<bool> {
        lock::is_held(&self.section(run, number))
    }

    /// Removes the lock file of a critical section.
    pub fn remove_section(&self, run: RunId, number: u32) -> Result<()> {
        self.section(run, number).remove()
    }

    fn section(&self, run: RunId, number: u32) -> CapPath {
        self.tmp().join(layout::section(run, number))
    }

    /// Takes the lock for handing interjections over to the agent's turn. `None` if another
    /// `safe-point` has it. The lock is on a directory that no other user can open: a user who may
    /// submit files could hold a lock on the inbox forever.
    pub fn hand_over_alone(&self) -> Result<Option<LockGuard>> {
        lock::try_dir(&self.dir.join(layout::RUNS))
    }
}
