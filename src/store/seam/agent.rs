//! Lock-free reads of the records of one agent, and its leases.

use std::cell::Cell;
use std::fs::File;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::local::{LocalAgent, LockGuard, Sharing, Subject, layout};
use crate::model::agent::Identity;
use crate::model::digest::sha256;
use crate::model::id::{AgentName, TriggerId};
use crate::model::message::{Message, WakeHint};
use crate::model::moved::Moved;
use crate::model::policy::Policy;
use crate::model::preemption::Checkpoint;
use crate::model::records::MalformedFile;
use crate::model::state::State;
use crate::model::time::Time;
use crate::model::trigger::Trigger;

use super::super::backend::{AgentRecords, Arrival, CHANGED, UseOutcome};
use super::super::dir::record::decode;
use super::super::dir::{self, DirAgent};
use super::leased::HeldLease;
use super::snapshot::{LeftOut, Snapshot, Source};
use super::source::{RecordSource, RecordsIn};
use super::{Store, ops};

/// Minimum number of attempts to read one revision while other commands change the records, even if
/// the reader's timeout is shorter.
const READ_ATTEMPTS: u32 = 100;

/// Pause between two attempts to take a lease.
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// Agent of an open store: its local directory, and its records in files or a database.
#[derive(Debug)]
pub struct Agent<'s> {
    store: &'s Store,
    source: RecordSource<'s>,
    /// True after the local agent directory, prepared under a hidden name, was moved to its path.
    has_moved_in: Cell<bool>,
}

impl<'s> Agent<'s> {
    pub(super) fn of_dir(store: &'s Store, files: DirAgent<'s>) -> Agent<'s> {
        let local = files.local.clone();
        Agent::of(store, RecordSource { records: RecordsIn::Files(files), local })
    }

    pub(super) fn of(store: &'s Store, source: RecordSource<'s>) -> Agent<'s> {
        Agent { store, source, has_moved_in: Cell::new(false) }
    }

    pub(super) fn source(&self) -> &RecordSource<'s> {
        &self.source
    }

    pub(super) fn records(&self) -> &(dyn AgentRecords + 's) {
        self.source.records()
    }

    /// Returns the part of the agent that belongs to this machine.
    pub fn local(&self) -> &LocalAgent<'s> {
        &self.source.local
    }

    /// Returns the records as files of this machine, for checks of the files. `None` if they are in
    /// a database.
    pub fn files(&self) -> Option<&DirAgent<'s>> {
        self.source.records.files()
    }

    pub fn name(&self) -> &AgentName {
        &self.source.local.name
    }

    pub fn store(&self) -> &'s Store {
        self.store
    }

    pub fn policy(&self) -> Result<Policy> {
        self.source.local.policy_from(&self.settings(), &self.policy_text()?)
    }

    /// Path or display name of the agent's settings.
    pub fn settings(&self) -> String {
        self.source.place(layout::POLICY).display().to_string()
    }

    /// Returns the text of the agent's settings.
    pub fn policy_text(&self) -> Result<String> {
        self.records().policy()
    }

    /// Fetches a checkpoint from the database, unless this machine has its file. Returns `false` if
    /// neither has the checkpoint. The caller must hold the agent's lock.
    pub fn bring_checkpoint(&self, checkpoint: Checkpoint) -> Result<bool> {
        let place = self.local().checkpoint(checkpoint);
        if place.is_file().is_ok_and(|is_file| is_file) {
            return Ok(true);
        }
        let mut bytes = Vec::new();
        let is_saved = self.records().saved(checkpoint, &mut |part| bytes.extend_from_slice(part))?;
        if is_saved {
            place.parent().make_dirs()?;
            let staged = self.source.local.stage_checkpoint(checkpoint.run_id, &bytes)?;
            self.source.local.save_checkpoint(checkpoint, staged)?;
        }
        Ok(is_saved)
    }

    pub fn identity(&self) -> Result<Identity> {
        decode(&self.source.place(layout::IDENTITY), self.records().identity()?.as_bytes())
    }

    pub fn triggers(&self) -> Result<Vec<Trigger>> {
        self.unchecked_snapshot().open()
    }

    /// Reads the current state without the agent's lock. A step with nothing to do reads no more.
    pub fn peek(&self) -> Result<State> {
        self.records().peek(&|text| self.source.state(text))
    }

    /// True if the inbox has nothing for a step to admit, and no transaction was interrupted.
    pub fn is_quiet(&self, state: &State) -> Result<bool> {
        self.records().is_quiet(state)
    }

    /// Calls `read` with one revision of the records, without a lock. Starts over if other commands
    /// have changed the records meanwhile, up to the timeout of this process for locks.
    pub fn read<T>(&self, read: impl Fn(Snapshot<'_>, State) -> Result<T>) -> Result<T> {
        self.read_unchanged(read).map_err(|error| self.records().explain_if_gone(error))
    }

    fn read_unchanged<T>(&self, read: impl Fn(Snapshot<'_>, State) -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let mut attempts = 0;
        loop {
            let view = self.records().read_view()?;
            let state = self.source.state(&view.state()?)?;
            let found = read(Snapshot::of(&self.source, Rc::clone(&view)), state);
            let has_failed = found.as_ref().is_err_and(|error| error.kind() == CHANGED);
            if !has_failed && view.is_current()? {
                return found;
            }
            attempts += 1;
            let waited = begun.elapsed();
            if attempts >= READ_ATTEMPTS && waited >= self.store.local.patience() {
                let holder = "a writer that never rests".to_owned();
                let busy = Error::busy(self.source.place(layout::STATE), holder, waited);
                return if has_failed { found } else { Err(busy) };
            }
        }
    }

    /// Returns the current records without the agent's lock. Other commands may change the records
    /// during a read.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::new(&self.source, Source::Now, LeftOut::Names(Vec::new()))
    }

    /// Returns the current records without a check for an interrupted transaction. For a caller
    /// that has just made that check, or that accepts slightly outdated records.
    pub fn unchecked_snapshot(&self) -> Snapshot<'_> {
        Snapshot::new(&self.source, Source::Unchecked, LeftOut::Names(Vec::new()))
    }

    /// Puts a message into the inbox without a lock. The message is durable when this returns.
    pub fn add_message(&self, message: &Message) -> Result<()> {
        self.admit(ops::arrival(message))
    }

    /// Puts a hint into the inbox without a lock. The hint is durable when this returns.
    pub fn add_hint(&self, hint: &WakeHint) -> Result<()> {
        self.admit(Arrival::Hint { id: hint.id, text: ops::text(hint) })
    }

    fn admit(&self, arrival: Arrival) -> Result<()> {
        arrival.check()?;
        self.admit_all(&[arrival])
    }

    /// Puts all arrivals into the inbox. Error, and no arrival, if the agent is marked as moved.
    pub(super) fn admit_all(&self, arrivals: &[Arrival]) -> Result<()> {
        let begun = Instant::now();
        while !self.records().arrive(arrivals)? {
            if self.store.guest().is_some() {
                // A user who may only add to inboxes can't read where the agent was moved.
                return Err(Error::refused(Error::MOVED, format!("`{}` was moved away", self.name()))
                    .with_hint("ask the owner where it is"));
            }
            if let Some(moved) = self.peek()?.moved {
                return Err(moved_away(self, &moved));
            }
            // The inbox was closed, but the agent is back now, so the next try may succeed.
            if begun.elapsed() > self.store.local.patience() {
                return Err(self.busy(begun.elapsed()));
            }
        }
        Ok(())
    }

    /// Error for a malformed file in the inbox, with the path of the file and the reason.
    pub fn damage(&self, file: &MalformedFile) -> Error {
        let place = self.source.place(format_args!("{}/{}", layout::INBOX, file.name));
        Error::damaged(place, format!("no message of {}: {}", self.name(), file.reason))
    }

    /// Syncs all changes and empties the journal, so that a copy of the directory is complete.
    pub fn empty_journal(&self, now: Time) -> Result<()> {
        self.records().flush(now)
    }

    /// Takes the lock for running the hooks of transitions; `None` if it is taken. Processes that
    /// run hooks of their own transitions share the lock; a process that runs hooks that others
    /// have left pending takes the lock exclusively.
    pub fn lock_notifications(&self, sharing: Sharing) -> Result<Option<LockGuard>> {
        self.ready_local()?.notify_lock(sharing)
    }

    /// Takes the lease of a run or a task. Returns `None` if another process that is alive, or may
    /// be alive, has the lease.
    pub fn lease(&self, subject: Subject, now: Time) -> Result<Option<HeldLease>> {
        let guard = self.ready_local()?.lease(subject, now)?;
        guard.map_or(Ok(None), |guard| self.lease_along(subject, guard))
    }

    /// Takes the lease, and waits for another holder up to the timeout for locks.
    pub fn lease_in_time(&self, subject: Subject, now: Time) -> Result<HeldLease> {
        let begun = Instant::now();
        loop {
            if let Some(leased) = self.lease(subject, now)? {
                return Ok(leased);
            }
            if begun.elapsed() >= self.store.local.patience() {
                return Err(self.busy(begun.elapsed()));
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
    }

    /// Error when a lock of the agent was not free within the timeout.
    pub(super) fn busy(&self, waited: Duration) -> Error {
        Error::busy(self.source.place(""), "another process".to_owned(), waited)
    }

    /// Takes over a lease from the parent process, which held it when this process was started.
    pub fn inherited_lease(&self, subject: Subject, file: File, now: Time) -> Result<HeldLease> {
        let guard = self.source.local.inherited_lease(subject, file, now)?;
        self.lease_along(subject, guard)?.ok_or_else(|| self.busy(Duration::ZERO))
    }

    /// True if a living process has the lease. Does not take the lease.
    pub fn is_leased(&self, subject: Subject) -> Result<bool> {
        Ok(self.source.local.is_leased(subject)? || self.is_leased_elsewhere(subject)? == Some(true))
    }

    /// True if a process on another machine, or with another state directory, keeps the lease
    /// alive. `None` if the store keeps no leases.
    pub fn is_leased_elsewhere(&self, subject: Subject) -> Result<Option<bool>> {
        self.records().is_leased(subject, &|| self.store.local.claimant())
    }

    /// Error `fenced` if this process acts under a lease of this agent that another process has
    /// taken over.
    pub fn refuse_fenced(&self) -> Result<()> {
        if !self.records().is_fenced()? {
            return Ok(());
        }
        let message = format!("another machine has taken `{}` over: nothing was changed", self.name());
        let hint = "end: nothing of this turn or task counts any more; its output is kept on its machine";
        Err(Error::refused(Error::FENCED, message).with_hint(hint))
    }

    /// Takes the lease in the store, in addition to `guard`, the lock of this machine. Returns
    /// `None` if another process has that lease.
    fn lease_along(&self, subject: Subject, guard: LockGuard) -> Result<Option<HeldLease>> {
        let lease = self.records().lease(subject, &|| self.store.local.claimant())?;
        Ok(lease.map(|lease| HeldLease::new(guard, lease, self.store.local.lease.as_std())))
    }

    /// Runs `work` in the local agent directory, and once more if a command that removes or renames
    /// the agent has removed the directory meanwhile.
    pub(super) fn in_local_dir<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        self.ready_local()?;
        let explained = |error| self.records().explain_if_gone(error);
        match work() {
            Err(error) if error.is_not_found() => {
                // This read fails with a better error if the agent was removed.
                self.records().read_view().map_err(explained)?;
                self.ready_local()?;
                work().map_err(explained)
            }
            done => done.map_err(explained),
        }
    }

    /// Moves the files of this machine from the local directory under the agent's former name, if
    /// the records are in a database. Must be called after the rename; can be repeated.
    pub fn take_local_dir_of(&self, former: &AgentName) -> Result<()> {
        let other = self.store.local.agent(former);
        if !self.store.backend().is_taken(former)? && other.dir.cap().exists()? {
            self.ready_local()?.take_over(&other)?;
            other.remove_local_dir();
        }
        Ok(())
    }

    /// Returns the local part of the agent, after creating its directory if that is missing.
    pub fn ready_local(&self) -> Result<&LocalAgent<'s>> {
        if let Some(remote) = self.source.records.remote() {
            if let Some(prepared) = remote.local_dir_name().filter(|_| !self.has_moved_in.get()) {
                self.source.local.move_in_late(&prepared)?;
                self.has_moved_in.set(true);
            }
            self.source.local.make_local_dir()?;
        }
        Ok(&self.source.local)
    }
}

/// Data of triggers outside their records: the keys of signatures, and the uses of the last minute.
/// This machine has these data if the records are files; in a database all machines share them.
impl Agent<'_> {
    /// Returns the key of a trigger's signatures. `None` if the store lacks the key: clones of a
    /// state directory and exports contain no keys.
    pub fn key_of(&self, trigger: &Trigger) -> Result<Option<Vec<u8>>> {
        let key = self.records().trigger_key(trigger.id, &trigger.secret_sha256)?;
        Ok(key.filter(|key| sha256(key) == trigger.secret_sha256))
    }

    /// True if the key of a trigger's signatures is stored.
    pub fn has_key(&self, trigger: &Trigger) -> Result<bool> {
        self.records().has_trigger_key(trigger.id, &trigger.secret_sha256)
    }

    /// Removes every key of a trigger except that with this hash. Called once no record names the
    /// other keys. Does nothing in a database, whose commit has removed them.
    pub fn forget_keys(&self, trigger: TriggerId, but: Option<&str>) -> Result<()> {
        self.records().forget_trigger_keys(trigger, but)
    }

    /// Counts one use of a trigger, if it has not been used `most` times in this minute. The inner
    /// `Err` is the time until the next permitted use.
    pub fn use_trigger(&self, id: TriggerId, most: NonZeroU32, now: Time) -> Result<UseOutcome> {
        self.records().use_trigger(id, most, now)
    }
}

/// Error for every change of an agent that has left by `export --move`, `rm` or `rename`.
pub fn moved_away(agent: &Agent<'_>, moved: &Moved) -> Error {
    dir::refusal(agent.name(), || agent.identity(), moved)
}
