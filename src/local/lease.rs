//! Locks of one agent on this machine: of transactions, runs, tasks, hooks and critical sections.

use std::fs::File;

use crate::cap_fs::CapPath;
use crate::error::Result;
use crate::model::id::{RunId, TaskId};
use crate::model::time::{Span, Time};

use super::lock::{self, LockGuard, Sharing};
use super::{LocalAgent, StateDir, layout, machine, owner};

/// Run or task to which a lease belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The agent's current run. An agent has at most one.
    Run,
    /// Task. Its supervisor holds the lease, or the process that hands the task to a child agent.
    Task(TaskId),
}

/// Process that requests a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseClaimant {
    /// Display name of the machine.
    pub host: String,
    /// Identity of the local state directory. A process with this identity that gets the local lock
    /// of a run or task knows that the former owner of its lease is dead.
    pub anchor: String,
    pub pid: u32,
    /// Time from the last renewal of the lease to its expiry.
    pub lasts: Span,
}

impl StateDir {
    /// Returns the identity with which this process asks for leases.
    pub fn claimant(&self) -> Result<LeaseClaimant> {
        let (anchor, host) = (owner::owner(&self.cap(), self.disk)?, machine::name());
        Ok(LeaseClaimant { anchor, host, pid: std::process::id(), lasts: self.lease })
    }
}

impl LocalAgent<'_> {
    /// Takes the agent's lock. Error `busy` if another process keeps it for `Opener::patience`.
    pub fn lock(&self, now: Time) -> Result<LockGuard> {
        lock::acquire(
            &self.dir.join(layout::LOCK),
            &self.state_dir.holder(now),
            self.state_dir.opener.patience,
        )
    }

    /// Tries once to take the agent's lock. Returns `None` if another process has the lock.
    pub fn try_lock(&self, now: Time) -> Result<Option<LockGuard>> {
        lock::try_acquire(&self.dir.join(layout::LOCK), Some(&self.state_dir.holder(now)))
    }

    /// Takes this machine's lease of a run or task. `None` if a living process here has it.
    pub fn lease(&self, subject: Subject, now: Time) -> Result<Option<LockGuard>> {
        lock::try_acquire(&self.place_of(subject), Some(&self.state_dir.holder(now)))
    }

    /// Takes over a lease from the parent process, which held it when this process was started.
    pub fn inherited_lease(&self, subject: Subject, file: File, now: Time) -> Result<LockGuard> {
        lock::inherited(&self.place_of(subject), file, &self.state_dir.holder(now))
    }

    /// True if a living process has the lease. Does not take the lease.
    pub fn is_leased(&self, subject: Subject) -> Result<bool> {
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

    /// Takes the lock for running the hooks of transitions, or returns `None` if another process
    /// has it. A process shares the lock to run the hooks of its own transitions, and takes it
    /// alone to run hooks that killed processes have left pending.
    pub fn notify_lock(&self, sharing: Sharing) -> Result<Option<LockGuard>> {
        lock::occupy(&self.dir.join(layout::NOTIFY_LOCK), sharing)
    }

    /// Creates and locks the file that shows that a command is in a critical section, in which the
    /// turn must not be ended. The section lasts until the returned file is closed.
    pub fn hold_section(&self, run: RunId, number: u32) -> Result<File> {
        let cap = self.section(run, number);
        // A killed process may have left the lock file of a critical section with this number.
        let _ = cap.remove();
        self.disk().stage(&cap, b"")
    }

    /// True if a living process is in the critical section.
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

    /// Takes the lock under which `safe-point` passes urgent messages to the running turn; `None`
    /// if another `safe-point` has it. The lock is on a directory that only the owner can open:
    /// other users may write to the inbox, and could lock that directory forever.
    pub fn hand_over_alone(&self) -> Result<Option<LockGuard>> {
        lock::try_dir(&self.dir.join(layout::RUNS))
    }
}
