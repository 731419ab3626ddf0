//! Lock-free reads of the records of one agent, and its locks and leases.

use std::cell::Cell;
use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::beneath;
use crate::error::{Error, Result};
use crate::model::agent::Identity;
use crate::model::bound::RECORD;
use crate::model::id::{AgentName, TaskId};
use crate::model::message::{Message, WakeHint};
use crate::model::moved::Moved;
use crate::model::policy::Policy;
use crate::model::preemption::Checkpoint;
use crate::model::records::MalformedFile;
use crate::model::state::State;
use crate::model::time::Time;
use crate::model::trigger::Trigger;
use crate::workdir::Workdir;

use super::super::backend::input::TaskInput;
use super::super::backend::{AgentRecords, Arrival, CHANGED};
use super::super::dir::record::decode;
use super::super::dir::{self, LockGuard, Sharing, Subject, layout};
use super::change::AgentTxn;
use super::leased::HeldLease;
use super::remote::{RecordSource, Remote};
use super::snapshot::{LeftOut, Snapshot, Source};
use super::{Store, pieces};

/// Minimum number of attempts to read one revision while other commands change the records, even if
/// the reader's timeout is shorter.
const READ_ATTEMPTS: u32 = 100;

/// Pause between two attempts to take a lease.
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// Agent of an open store: its local directory, and its records in files or a database.
#[derive(Debug)]
pub struct Agent<'s> {
    store: &'s Store,
    local: dir::DirAgent<'s>,
    remote: Option<Remote>,
}

/// Identifier of a revision, for comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StoreVersion {
    Dir(beneath::Version),
    Remote(u64),
}

impl<'s> Agent<'s> {
    pub(super) fn of_dir(store: &'s Store, local: dir::DirAgent<'s>) -> Agent<'s> {
        Agent { store, local, remote: None }
    }

    pub(super) fn remote_of(
        store: &'s Store,
        name: &AgentName,
        shown: String,
        records: Rc<dyn AgentRecords>,
    ) -> Agent<'s> {
        let remote = Remote { name: name.clone(), shown, records, has_moved_in: Cell::new(false) };
        Agent { store, local: store.local.room(name), remote: Some(remote) }
    }

    pub(super) fn remote(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    pub(super) fn records(&self) -> RecordSource<'_> {
        RecordSource { local: &self.local, remote: self.remote.as_ref() }
    }

    /// Returns the local part of the agent: its directory on this machine.
    pub fn local(&self) -> &dir::DirAgent<'s> {
        &self.local
    }

    pub fn name(&self) -> &AgentName {
        self.local.name()
    }

    /// Returns the directories of runs and tasks on this machine.
    pub fn workdir(&self) -> Workdir {
        self.local.workdir()
    }

    pub fn store(&self) -> &'s Store {
        self.store
    }

    pub fn policy(&self) -> Result<Policy> {
        let Some(remote) = &self.remote else { return self.local.policy() };
        let text = remote.records.policy()?;
        self.store.local.policy_from(&self.settings(), &text).map_err(|error| {
            if matches!(&error, Error::Damaged { hint: None, .. }) {
                error.with_hint(format!("mend it with `dormouse edit {}`", remote.name))
            } else {
                error
            }
        })
    }

    /// Path or display name of the agent's settings.
    pub fn settings(&self) -> String {
        match &self.remote {
            None => self.local.settings(),
            Some(remote) => remote.place(layout::POLICY).display().to_string(),
        }
    }

    /// Returns the text of the agent's settings.
    pub fn policy_text(&self) -> Result<String> {
        self.remote.as_ref().map_or_else(|| self.local.policy_text(), |remote| remote.records.policy())
    }

    /// Replaces the agent's settings by `after` if they are still `before`. Takes the lock, so that
    /// two editors can't overwrite each other. Returns `false`, and changes nothing, if the
    /// settings have changed meanwhile.
    pub fn replace_policy(&self, before: &str, after: &str, now: Time) -> Result<bool> {
        let locked = self.change(now)?;
        locked.state()?;
        let are_same = self.policy_text()? == before;
        if are_same {
            locked.replace_policy(after)?;
        }
        Ok(are_same)
    }

    /// Fetches a checkpoint from the database, unless this machine has its file. Returns `false` if
    /// neither has the checkpoint. The caller must hold the lock.
    pub fn bring_checkpoint(&self, checkpoint: Checkpoint) -> Result<bool> {
        let place = self.workdir().checkpoint(checkpoint);
        if place.is_file().is_ok_and(|is_file| is_file) {
            return Ok(true);
        }
        let Some(remote) = &self.remote else { return Ok(false) };
        let mut bytes = Vec::new();
        let is_saved = remote.records.saved(checkpoint, &mut |part| bytes.extend_from_slice(part))?;
        if is_saved {
            place.parent().make_dirs()?;
            let staged = self.local.stage_checkpoint(checkpoint.run_id, &bytes)?;
            self.local.save_checkpoint(checkpoint, staged)?;
        }
        Ok(is_saved)
    }

    pub fn identity(&self) -> Result<Identity> {
        let Some(remote) = &self.remote else { return self.local.identity() };
        decode(&self.records().place(layout::IDENTITY), remote.records.identity()?.as_bytes())
    }

    pub fn triggers(&self) -> Result<Vec<Trigger>> {
        self.glimpse().open()
    }

    /// Reads the current state without the lock: the only read of a step that finds nothing to do.
    pub fn peek(&self) -> Result<State> {
        match &self.remote {
            None => self.local.peek(),
            Some(remote) => self.records().state(&remote.records.state()?),
        }
    }

    /// Returns an identifier of the current revision without reading the records. `None` if no
    /// revision exists, or its identifier is unknown.
    pub fn version(&self) -> Option<StoreVersion> {
        match &self.remote {
            None => self.local.version().map(StoreVersion::Dir),
            Some(remote) => remote.records.version().map(StoreVersion::Remote),
        }
    }

    /// True if the inbox has nothing for a step to admit, and no transaction was interrupted.
    pub fn is_quiet(&self, state: &State) -> Result<bool> {
        match &self.remote {
            None => self.local.is_quiet(state),
            Some(remote) => Ok(!remote.records.has_arrivals()?),
        }
    }

    /// Calls `read` with one revision of the records, without a lock. Starts over if other commands
    /// have changed the records meanwhile, up to the timeout of this process for locks.
    pub fn look<T>(&self, read: impl Fn(Snapshot<'_>, State) -> Result<T>) -> Result<T> {
        let found = self.look_until_settled(read);
        // The directory of an agent in a database may be missing on this machine.
        if self.remote.is_some() { found } else { self.local.unless_gone(found) }
    }

    fn look_until_settled<T>(&self, read: impl Fn(Snapshot<'_>, State) -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let mut attempts = 0;
        loop {
            let view = self.records().see()?;
            let state = self.records().state(&view.state()?)?;
            let found = read(Snapshot::of(self.records(), Rc::clone(&view)), state);
            let has_failed = found.as_ref().is_err_and(|error| error.kind() == CHANGED);
            if !has_failed && view.is_current()? {
                return found;
            }
            attempts += 1;
            let waited = begun.elapsed();
            if attempts >= READ_ATTEMPTS && waited >= self.store.local.patience() {
                let holder = "a writer that never rests".to_owned();
                let busy = Error::busy(self.records().place(layout::STATE), holder, waited);
                return if has_failed { found } else { Err(busy) };
            }
        }
    }

    /// Returns the current records without the lock. Other commands may change the records during a
    /// read.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::new(self.records(), Source::Now, LeftOut::Names(Vec::new()))
    }

    /// Returns the current records without a check for an interrupted transaction. For a caller
    /// that has just made that check, or that accepts slightly outdated records.
    pub fn glimpse(&self) -> Snapshot<'_> {
        Snapshot::new(self.records(), Source::Glimpse, LeftOut::Names(Vec::new()))
    }

    /// Puts a message into the inbox without a lock. The message is durable when this returns.
    pub fn arrive(&self, message: &Message) -> Result<()> {
        match &self.remote {
            None => self.local.arrive(message),
            Some(remote) => self.admit(remote, pieces::arrival(message)),
        }
    }

    /// Puts a hint into the inbox without a lock. The hint is durable when this returns.
    pub fn arrive_hint(&self, hint: &WakeHint) -> Result<()> {
        match &self.remote {
            None => self.local.arrive_hint(hint),
            Some(remote) => self.admit(remote, Arrival::Hint { id: hint.id, text: pieces::text(hint) }),
        }
    }

    fn admit(&self, remote: &Remote, arrival: Arrival) -> Result<()> {
        let (Arrival::Message { text, .. } | Arrival::Hint { text, .. }) = &arrival;
        RECORD.check(text.len() as u64)?;
        self.admit_all(remote, &[arrival])
    }

    /// Puts all arrivals into the inbox, or none if the agent was moved away.
    pub(super) fn admit_all(&self, remote: &Remote, arrivals: &[Arrival]) -> Result<()> {
        let begun = Instant::now();
        while !remote.records.arrive(arrivals)? {
            if self.store.guest().is_some() {
                // The user has no permission to read the agent's new place.
                return Err(Error::refused(Error::MOVED, format!("`{}` was moved away", remote.name))
                    .with_hint("ask the owner where it is"));
            }
            if let Some(moved) = self.records().state(&remote.records.state()?)?.moved {
                return Err(moved_away(self, &moved));
            }
            // The agent was just moved back, so the next attempt may succeed.
            if begun.elapsed() > self.store.local.patience() {
                return Err(remote.busy(begun.elapsed()));
            }
        }
        Ok(())
    }

    /// Error with the place and the reason, for a malformed file in the inbox.
    pub fn damage(&self, misfit: &MalformedFile) -> Error {
        let Some(remote) = &self.remote else { return self.local.damage(misfit) };
        let place = remote.place(format_args!("{}/{}", layout::INBOX, misfit.name));
        Error::damaged(place, format!("no message of {}: {}", remote.name, misfit.reason))
    }

    /// Takes the agent's lock, and applies the transaction of an interrupted command.
    pub fn change(&self, now: Time) -> Result<AgentTxn<'_>> {
        let Some(remote) = &self.remote else {
            return Ok(AgentTxn::new(self, self.local.change(now)?, None, now));
        };
        let begun = Instant::now();
        let room = self.in_local_dir(remote, || self.local.lock_room(now))?;
        let left = self.store.local.patience().saturating_sub(begun.elapsed());
        let Some(hold) = remote.records.hold(left)? else { return Err(remote.busy(begun.elapsed())) };
        Ok(AgentTxn::new(self, room, Some(hold), now))
    }

    /// Takes the lock without waiting. Returns `None` if another process has it.
    pub fn try_change(&self, now: Time) -> Result<Option<AgentTxn<'_>>> {
        let Some(remote) = &self.remote else {
            return Ok(self.local.try_change(now)?.map(|dir| AgentTxn::new(self, dir, None, now)));
        };
        let Some(room) = self.in_local_dir(remote, || self.local.try_lock_room(now))? else {
            return Ok(None);
        };
        Ok(remote.records.hold(Duration::ZERO)?.map(|hold| AgentTxn::new(self, room, Some(hold), now)))
    }

    /// Takes the lock for `doctor`: a transaction that can't be applied stays as it is.
    pub fn change_damaged(&self, now: Time) -> Result<AgentTxn<'_>> {
        if self.remote.is_some() {
            return self.change(now);
        }
        Ok(AgentTxn::new(self, self.local.change_damaged(now)?, None, now))
    }

    /// Syncs all committed changes and empties the journal, so that a copy of the directory is
    /// complete.
    pub fn empty_journal(&self, now: Time) -> Result<()> {
        if self.remote.is_none() { self.local.empty_journal(now) } else { Ok(()) }
    }

    /// Takes the lock of notifications, or returns `None` if it is taken. Processes that report
    /// their own transitions share it; a process that reports the transitions of a killed process
    /// takes it exclusively.
    pub fn lock_notifications(&self, sharing: Sharing) -> Result<Option<LockGuard>> {
        self.ready_local()?.telling(sharing)
    }

    /// Takes the lease of a run or a task. Returns `None` if a process has the lease that is or may
    /// be alive.
    pub fn lease(&self, subject: Subject, now: Time) -> Result<Option<HeldLease>> {
        let Some(guard) = self.ready_local()?.lease(subject, now)? else { return Ok(None) };
        Ok(self.leased_or(subject, guard)?.ok())
    }

    /// Takes the lease, and waits for another holder up to the timeout for locks.
    pub fn lease_in_time(&self, subject: Subject, now: Time) -> Result<HeldLease> {
        let begun = Instant::now();
        let mut guard = self.ready_local()?.lease_in_time(subject, now)?;
        loop {
            match self.leased_or(subject, guard)? {
                Ok(leased) => return Ok(leased),
                Err(back) if begun.elapsed() < self.store.local.patience() => guard = back,
                Err(_) => return Err(self.busy(begun.elapsed())),
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
    }

    fn busy(&self, waited: Duration) -> Error {
        match &self.remote {
            Some(remote) => remote.busy(waited),
            None => Error::busy(Path::new(""), "another process".to_owned(), waited),
        }
    }

    /// Takes over a lease from the parent process, which held it when this process was started.
    pub fn inherited_lease(&self, subject: Subject, file: File, now: Time) -> Result<HeldLease> {
        let guard = self.local.inherited_lease(subject, file, now)?;
        self.leased_or(subject, guard)?.map_err(|_| self.busy(Duration::ZERO))
    }

    /// True if a living process has the lease. Does not take it.
    pub fn is_leased(&self, subject: Subject) -> Result<bool> {
        Ok(self.local.is_leased(subject)? || self.is_leased_elsewhere(subject)?)
    }

    /// True if a process on another machine, or with another state directory, keeps the lease
    /// alive.
    pub fn is_leased_elsewhere(&self, subject: Subject) -> Result<bool> {
        let Some(remote) = &self.remote else { return Ok(false) };
        remote.records.is_leased(subject, &self.store.local.claimant()?.anchor)
    }

    /// Returns the input of a task whose supervisor may be on another machine. `None` if the
    /// records are files, which only one machine uses.
    pub fn task_input(&self, task: TaskId) -> Result<Option<Box<dyn TaskInput>>> {
        self.remote.as_ref().map(|remote| remote.records.task_input(task)).transpose()
    }

    /// Error `fenced` if this process acts under a lease of this agent that another process has
    /// taken over.
    pub fn refuse_fenced(&self) -> Result<()> {
        match &self.remote {
            Some(remote) if remote.records.is_fenced()? => Err(Error::refused(
                Error::FENCED,
                format!("another machine has taken `{}` over: nothing was changed", remote.name),
            )
            .with_hint(
                "end: nothing of this turn or task counts any more; its output is kept on its machine",
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Adds the lease of the database to the lock of this machine. Gives the lock back if another
    /// process has that lease.
    fn leased_or(
        &self,
        subject: Subject,
        guard: LockGuard,
    ) -> Result<std::result::Result<HeldLease, LockGuard>> {
        let Some(remote) = &self.remote else { return Ok(Ok(HeldLease::new(guard, None, Duration::ZERO))) };
        let claimant = self.store.local.claimant()?;
        Ok(match remote.records.lease(subject, &claimant)? {
            Some(lease) => Ok(HeldLease::new(guard, Some(lease), claimant.lasts.as_std())),
            None => Err(guard),
        })
    }

    /// Runs `work` in the local agent directory, and once more if a command that removes or renames
    /// the agent has removed the directory meanwhile.
    fn in_local_dir<T>(&self, remote: &Remote, work: impl Fn() -> Result<T>) -> Result<T> {
        self.ready_local()?;
        match work() {
            Err(error) if error.is_not_found() => {
                // Error if the agent is gone.
                remote.records.see()?;
                self.ready_local()?;
                work()
            }
            done => done,
        }
    }

    /// Returns the local part of the agent, after creating its directory if that is missing.
    pub fn ready_local(&self) -> Result<&dir::DirAgent<'s>> {
        if let Some(remote) = &self.remote {
            if let Some(prepared) = remote.records.local_dir_name().filter(|_| !remote.has_moved_in.get()) {
                self.local.move_in_late(&prepared)?;
                remote.has_moved_in.set(true);
            }
            self.local.make_room()?;
        }
        Ok(&self.local)
    }
}

/// Error for every change of an agent that was moved, or is about to be deleted here.
pub fn moved_away(agent: &Agent<'_>, moved: &Moved) -> Error {
    dir::refusal(agent.name(), || agent.identity(), moved)
}
