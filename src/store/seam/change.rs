//! Transactions on the records of one agent under its lock, each applied as a whole or not at all.

use std::cell::{Cell, RefCell};

use crate::error::{Error, Result};
use crate::model::agent::Identity;
use crate::model::dedupe::DedupeEntry;
use crate::model::preemption::Checkpoint;
use crate::model::retention::Retention;
use crate::model::state::State;
use crate::model::time::{Span, Time};
use crate::model::transaction::{Delete, Put, Transaction};

use super::super::backend::{self, KeyWindow, Op, Pieces, Txn};
use super::super::dir::{self, Aside, DirExport, Dropped, quarantine};
use super::super::settings::Settings;
use super::agent::{Agent, moved_away};
use super::remote::Remote;
use super::snapshot::{LeftOut, Snapshot, Source};
use super::{export, pieces};

/// Agent whose lock is held: the only way to change its records.
#[derive(Debug)]
pub struct AgentTxn<'a> {
    agent: &'a Agent<'a>,
    remote: Option<RemoteLock<'a>>,
    /// Names in the inbox that the last snapshot left out.
    left_out: RefCell<Vec<String>>,
    // The last field, so that the lock of this machine is released last.
    dir: dir::DirTxn<'a>,
}

/// Maximum time after now of an admission that still counts for a dedupe key, because the clock may
/// have been set back. The state directory has an equal limit.
const AHEAD: Span = Span::from_secs(24 * 3600);

/// Lock of an agent whose records are in a database.
#[derive(Debug)]
struct RemoteLock<'a> {
    of: &'a Remote,
    hold: Box<dyn Txn>,
    /// Time at which the command took the lock, by its clock.
    now: Time,
    /// Revision that was read under this lock.
    base: Cell<Option<u64>>,
    /// True if that revision was marked as moved.
    was_moved: Cell<bool>,
    /// Operations to add to the next commit.
    along: RefCell<Vec<Op>>,
    is_wait_told: Cell<bool>,
}

impl RemoteLock<'_> {
    /// Stores the revision and the mark of the state that was read under this lock.
    fn note(&self, state: &State) {
        self.base.set(Some(state.revision));
        self.was_moved.set(state.moved.is_some());
    }
}

impl<'a> AgentTxn<'a> {
    /// Wraps the held locks. `now`: by the clock of the command that takes the lock.
    pub(super) fn new(
        agent: &'a Agent<'a>,
        dir: dir::DirTxn<'a>,
        hold: Option<Box<dyn Txn>>,
        now: Time,
    ) -> AgentTxn<'a> {
        let lock = |hold| {
            Some(RemoteLock {
                of: agent.remote()?,
                hold,
                now,
                base: Cell::new(None),
                was_moved: Cell::new(false),
                along: RefCell::default(),
                is_wait_told: Cell::new(false),
            })
        };
        AgentTxn { agent, remote: hold.and_then(lock), left_out: RefCell::default(), dir }
    }

    pub(super) fn agent(&self) -> &'a Agent<'a> {
        self.agent
    }

    /// Returns the local part of the agent, under its lock.
    pub fn local(&self) -> &dir::DirTxn<'a> {
        &self.dir
    }

    /// Adds these operations to the next commit under this lock.
    pub(super) fn change_along(&self, pieces: Vec<Op>) {
        if let Some(lock) = &self.remote {
            lock.along.borrow_mut().extend(pieces);
        }
    }

    /// Stores a checkpoint with the next commit under this lock, replacing the run's earlier
    /// checkpoint: the run may continue on another machine. Does nothing if the records are files,
    /// because this machine has the checkpoint's file.
    pub fn keep_checkpoint(&self, checkpoint: Checkpoint, bytes: &[u8]) {
        if self.remote.is_some() {
            let parts = backend::parts(checkpoint, bytes);
            self.change_along([Op::Unsaved(checkpoint.run_id)].into_iter().chain(parts).collect());
        }
    }

    fn source(&self) -> Source<'_> {
        match &self.remote {
            None => Source::Locked(&self.dir),
            Some(lock) => Source::Held(&*lock.hold),
        }
    }

    /// Returns the lock in the database, if the records are there.
    pub(super) fn hold(&self) -> Option<&dyn Txn> {
        self.remote.as_ref().map(|lock| &*lock.hold)
    }

    /// Returns the time for which this process waited for the lock. `None` if the lock was free,
    /// and at every later call.
    pub fn take_wait(&self) -> Option<Span> {
        let here = self.dir.take_wait();
        let Some(lock) = self.remote.as_ref().filter(|lock| !lock.is_wait_told.replace(true)) else {
            return here;
        };
        let there = Span::from_millis(u64::try_from(lock.hold.waited().as_millis()).unwrap_or(u64::MAX));
        if there.as_millis() == 0 {
            return here;
        }
        Some(Span::from_millis(here.map_or(0, Span::as_millis).saturating_add(there.as_millis())))
    }

    /// Returns the current state, for a change. Refused for an agent that was moved away.
    pub fn state(&self) -> Result<State> {
        let state = self.any_state()?;
        match &state.moved {
            Some(moved) => Err(moved_away(self.agent, moved)),
            None => Ok(state),
        }
    }

    /// Returns the current state, even of an agent that was moved away.
    pub fn any_state(&self) -> Result<State> {
        let Some(lock) = &self.remote else { return self.dir.any_state() };
        let state = self.agent.records().state(&lock.hold.now()?.state()?)?;
        lock.note(&state);
        Ok(state)
    }

    /// Returns the records under this lock, without the entries of the inbox that steps skip.
    pub fn look(&self, state: &State) -> Result<Snapshot<'_>> {
        self.look_without(quarantine::all_passed_over(state), false)
    }

    /// Returns the records for a step, which retries skipped entries that have changed since.
    /// Leaves out `stuck` too, the names that the step has tried already.
    pub fn look_for_step(&self, state: &State, stuck: &[String]) -> Result<Snapshot<'_>> {
        let mut left_out = self.agent.local().passed_over(state);
        left_out.extend_from_slice(stuck);
        self.look_without(left_out, true)
    }

    fn look_without(&self, left_out: Vec<String>, is_step: bool) -> Result<Snapshot<'_>> {
        if self.remote.is_none() {
            self.dir.list_inbox(left_out.clone(), is_step)?;
        }
        self.left_out.replace(left_out);
        Ok(self.look_again())
    }

    /// Returns the current records, without the entries of the inbox that the last snapshot left
    /// out.
    pub fn look_again(&self) -> Snapshot<'_> {
        Snapshot::new(self.agent.records(), self.source(), LeftOut::Names(self.left_out.borrow().clone()))
    }

    /// Returns the records with an empty inbox, for a change that does not concern the inbox.
    pub fn look_past_inbox(&self) -> Snapshot<'_> {
        Snapshot::new(self.agent.records(), self.source(), LeftOut::All)
    }

    /// Removes the dedupe keys that are older than the window.
    pub fn forget_old_keys(&self, now: Time, window: Span) -> Result<()> {
        match &self.remote {
            None => self.dir.forget_old_keys(now, window),
            Some(lock) => {
                let before = now.as_millis().saturating_sub_unsigned(window.as_millis());
                lock.hold.forget_keys(Time::from_millis(before))
            }
        }
    }

    /// Commits a transaction as a whole or not at all, and returns the new state. Refused if the
    /// transaction was made from another revision.
    ///
    /// After an error it is unknown if the transaction was committed, so nothing more is committed
    /// under this lock.
    pub fn commit(&self, transaction: Transaction) -> Result<State> {
        let Some(lock) = &self.remote else { return self.dir.commit(transaction) };
        let base = transaction.base_revision;
        if lock.base.take() != Some(base) {
            return Err(Error::refused(
                "stale_revision",
                format!("the records of `{}` have moved on from revision {base}", lock.of.name),
            )
            .with_hint("try again"));
        }
        let state = transaction.state.clone();
        let pieces = self.pieces(lock, &transaction, &state)?;
        lock.hold.commit(base, &pieces)?;
        lock.note(&state);
        for delete in &transaction.deletes {
            if let Delete::Checkpoint(checkpoint) = delete {
                // A file that stays is deleted later, with the directory of its run.
                let _ = self.agent.workdir().checkpoint(*checkpoint).remove();
            }
        }
        Ok(state)
    }

    fn pieces(&self, lock: &RemoteLock<'_>, transaction: &Transaction, state: &State) -> Result<Vec<Op>> {
        let mut pieces = Vec::new();
        for put in &transaction.puts {
            if !self.is_outdated(put, lock.now)? {
                pieces.push(pieces::put(put));
            }
        }
        pieces.extend(transaction.deletes.iter().map(|delete| pieces::delete(*delete)));
        pieces.extend(transaction.events.iter().map(pieces::event));
        pieces.extend(transaction.archived.iter().map(pieces::ended));
        pieces.extend(lock.along.take());
        if state.moved.is_some() != lock.was_moved.get() {
            pieces.push(Op::Shut(state.moved.is_some()));
        }
        pieces.push(pieces::state(state));
        Ok(pieces)
    }

    /// True if a dedupe key belongs to a later message by now, so that the end of this message must
    /// not be stored under the key.
    fn is_outdated(&self, put: &Put, now: Time) -> Result<bool> {
        let Put::Dedupe(entry) = put else { return Ok(false) };
        let window = KeyWindow { now, length: AHEAD, revision: u64::MAX };
        let noted = self.look_past_inbox().key(&entry.key, window)?;
        // The database has one entry for each key, a directory one for each day. So any entry
        // replaces an entry from a clock that ran ahead, which would block the key until that time.
        let is_possible = |entry: &DedupeEntry| entry.admitted_at <= now.after(AHEAD);
        Ok(noted.is_some_and(|noted| {
            noted.message_id != entry.message_id
                && (is_possible(&noted), noted.admitted_at) > (is_possible(entry), entry.admitted_at)
        }))
    }

    /// Replaces the agent's settings.
    pub(super) fn replace_policy(&self, policy: &str) -> Result<()> {
        match &self.remote {
            None => self.dir.replace_policy(policy),
            Some(lock) => lock.hold.replace_policy(&Settings::of(policy.to_owned())),
        }
    }

    /// Replaces the identity of the agent.
    pub fn replace_identity(&self, identity: &Identity) -> Result<()> {
        match &self.remote {
            None => self.dir.replace_identity(identity),
            Some(lock) => lock.hold.replace_identity(&pieces::text(identity)),
        }
    }

    /// Collects all exported files of the agent, with those of the run and task directories that
    /// this machine has.
    pub fn leaving(&self, is_moved: bool) -> Result<DirExport> {
        let Some(lock) = &self.remote else { return self.dir.leaving(is_moved) };
        // A moved agent in a database accepts no arrivals, so no list of earlier arrivals is
        // needed.
        export::take(&self.dir, &*lock.hold.now()?)
    }

    /// Replaces the agent's records in the database by those of another agent, in one change.
    pub(super) fn replace(&self, pieces: Pieces<'_>) -> Result<()> {
        let base = |lock: &RemoteLock<'_>| lock.base.take().unwrap_or_default();
        self.remote.as_ref().map_or(Ok(()), |lock| lock.hold.replace(base(lock), pieces))
    }

    /// Deletes an agent that is marked as moved, with its local directory. Returns the names of
    /// inbox files that are in no stream; a database has none, because arrivals check the mark.
    pub fn vanish(&self) -> Result<Vec<String>> {
        let Some(lock) = &self.remote else { return self.dir.vanish() };
        lock.hold.remove(None)?;
        self.agent.local().clear_room();
        Ok(Vec::new())
    }

    /// Deletes an agent that exists under another name, `heir`, and moves the files that no stream
    /// carries to that agent.
    pub fn vanish_into(&self, heir: &Agent<'_>) -> Result<Vec<String>> {
        let Some(lock) = &self.remote else { return self.dir.vanish_into(heir.local()) };
        heir.local().take_over(self.agent.local())?;
        lock.hold.remove(Some(heir.name()))?;
        self.agent.local().clear_room();
        Ok(Vec::new())
    }

    /// Moves a malformed file from the inbox to `rejected/`. In a database a malformed entry stays,
    /// and steps skip it.
    pub fn set_aside(&self, file: &Dropped, reason: &str) -> Result<Aside> {
        match &self.remote {
            None => self.dir.set_aside(file, reason),
            Some(_) => Ok(Aside::Stays("it is no file that could be moved".to_owned())),
        }
    }

    /// Applies the committed transactions of interrupted commands.
    pub fn finish_journal(&self) -> Result<()> {
        if self.remote.is_none() { self.dir.finish_journal() } else { Ok(()) }
    }

    /// Removes a bounded number of expired directories of this machine, if a sweep is due. Called
    /// by a step that leaves the agent idle and holds the lease.
    pub fn sweep_some(&self, retention: Retention, now: Time) -> Result<()> {
        let records = self.agent.records();
        self.dir.sweep_some(retention, now, || {
            let view = self.source().view(records)?;
            let state = records.state(&view.state()?)?;
            Ok((view, state))
        })
    }

    /// Syncs all committed changes and empties the journal, so that a copy of the directory is
    /// complete.
    pub fn empty_journal(&self) -> Result<()> {
        if self.remote.is_none() { self.dir.empty_journal() } else { Ok(()) }
    }
}
