//! One agent's records under its lock. A change takes place as a whole or not at all.

use std::cell::{Cell, RefCell};

use crate::error::{Error, Result};
use crate::model::agent::Identity;
use crate::model::dedupe::DedupeEntry;
use crate::model::preemption::Checkpoint;
use crate::model::retention::Retention;
use crate::model::state::State;
use crate::model::time::{Span, Time};
use crate::model::transaction::{Delete, Put, Transaction};

use super::super::dir::{self, Aside, DirExport, Dropped, aside};
use super::super::elsewhere::{self, KeyWindow, Op, Pieces, Txn};
use super::super::settings::Settings;
use super::agent::{Agent, moved_away};
use super::remote::Remote;
use super::snapshot::{LeftOut, Snapshot, Source};
use super::{leaving, pieces};

/// An agent whose lock is held: the only way to change its records.
#[derive(Debug)]
pub struct AgentTxn<'a> {
    agent: &'a Agent<'a>,
    remote: Option<RemoteLock<'a>>,
    /// Names in the inbox that the last look passed over.
    left_out: RefCell<Vec<String>>,
    // The lock of this machine goes last.
    dir: dir::DirTxn<'a>,
}

/// Maximum time ahead of now at which a dedupe key may have been admitted and still count, because
/// the clock may have been set back. The directory has the same limit.
const AHEAD: Span = Span::from_secs(24 * 3600);

/// The lock of an agent whose records are in a database.
#[derive(Debug)]
struct RemoteLock<'a> {
    of: &'a Remote,
    hold: Box<dyn Txn>,
    /// When the lock was taken, by the clock of the command.
    now: Time,
    /// The revision that was read under this lock.
    base: Cell<Option<u64>>,
    /// True if the agent was marked as moved then.
    was_moved: Cell<bool>,
    /// Pieces that the next commit takes along.
    along: RefCell<Vec<Op>>,
    is_wait_told: Cell<bool>,
}

impl RemoteLock<'_> {
    /// Notes the state of the agent under this lock.
    fn note(&self, state: &State) {
        self.base.set(Some(state.revision));
        self.was_moved.set(state.moved.is_some());
    }
}

impl<'a> AgentTxn<'a> {
    /// `now`: by the clock of the command that takes the lock.
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

    /// Returns this machine's part of the agent, under its lock.
    pub fn local(&self) -> &dir::DirTxn<'a> {
        &self.dir
    }

    /// Has these pieces change with the next commit under this lock.
    pub(super) fn change_along(&self, pieces: Vec<Op>) {
        if let Some(lock) = &self.remote {
            lock.along.borrow_mut().extend(pieces);
        }
    }

    /// Keeps a checkpoint with the records, from the next commit under this lock on, in the place
    /// of what its run has saved before: the run may go on from it on another machine. Where the
    /// records are files of this machine, its own file is enough.
    pub fn keep_checkpoint(&self, checkpoint: Checkpoint, bytes: &[u8]) {
        if self.remote.is_some() {
            let parts = elsewhere::parts(checkpoint, bytes);
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

    /// Returns the time that this process waited for the lock. `None` if the lock was free, and at
    /// every later call.
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

    /// The current state, to be changed. Refused for an agent that was moved away.
    pub fn state(&self) -> Result<State> {
        let state = self.any_state()?;
        match &state.moved {
            Some(moved) => Err(moved_away(self.agent, moved)),
            None => Ok(state),
        }
    }

    /// Returns the current state, also for an agent that was moved away.
    pub fn any_state(&self) -> Result<State> {
        let Some(lock) = &self.remote else { return self.dir.any_state() };
        let state = self.agent.records().state(&lock.hold.now()?.state()?)?;
        lock.note(&state);
        Ok(state)
    }

    /// The records as they are under this lock, without what steps pass over in the inbox.
    pub fn look(&self, state: &State) -> Result<Snapshot<'_>> {
        self.look_without(aside::all_passed_over(state), false)
    }

    /// Returns the records for a step, which retries the names that have changed since they were
    /// passed over, without `stuck`, the names that it has tried already.
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

    /// The records as they are now. What the last look has passed over in the inbox is passed over
    /// again.
    pub fn look_again(&self) -> Snapshot<'_> {
        Snapshot::new(self.agent.records(), self.source(), LeftOut::Names(self.left_out.borrow().clone()))
    }

    /// Returns the records with an empty inbox, for a change that does not concern the inbox.
    pub fn look_past_inbox(&self) -> Snapshot<'_> {
        Snapshot::new(self.agent.records(), self.source(), LeftOut::All)
    }

    /// Forgets the dedupe keys that no window reaches any more.
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
    /// After an error it is not known whether the transaction has happened, so nothing more is
    /// committed under this lock.
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
                // One that stays goes with the directory of its run.
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

    /// True if a dedupe key belongs to a later message by now, so that it must not note the end of
    /// this one.
    fn is_outdated(&self, put: &Put, now: Time) -> Result<bool> {
        let Put::Dedupe(entry) = put else { return Ok(false) };
        let window = KeyWindow { now, length: AHEAD, revision: u64::MAX };
        let noted = self.look_past_inbox().key(&entry.key, window)?;
        // Here a key has one entry, whereas the directory has one for each day. So one that a clock
        // wrote while it ran ahead gives way to any other: it would keep the key from standing for
        // a message until its time has come.
        let is_possible = |entry: &DedupeEntry| entry.admitted_at <= now.after(AHEAD);
        Ok(noted.is_some_and(|noted| {
            noted.message_id != entry.message_id
                && (is_possible(&noted), noted.admitted_at) > (is_possible(entry), entry.admitted_at)
        }))
    }

    /// Puts other settings in the place of the agent's.
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

    /// Takes everything of the agent that travels. Of the directories of its runs and tasks that is
    /// what this machine has.
    pub fn leaving(&self, is_moved: bool) -> Result<DirExport> {
        let Some(lock) = &self.remote else { return self.dir.leaving(is_moved) };
        // Nothing has arrived since the agent was marked, so no list is needed of what had arrived
        // before.
        leaving::take(&self.dir, &*lock.hold.now()?)
    }

    /// Puts another agent in the place of this one, whose records are elsewhere. Nobody else sees
    /// anything of that before it is whole.
    pub(super) fn replace(&self, pieces: Pieces<'_>) -> Result<()> {
        let base = |lock: &RemoteLock<'_>| lock.base.take().unwrap_or_default();
        self.remote.as_ref().map_or(Ok(()), |lock| lock.hold.replace(base(lock), pieces))
    }

    /// Lets an agent vanish that is marked as moved, with all that this machine has of it. Returns
    /// the names of what was in the inbox and in no stream: there is none where arrivals see the
    /// mark.
    pub fn vanish(&self) -> Result<Vec<String>> {
        let Some(lock) = &self.remote else { return self.dir.vanish() };
        lock.hold.remove(None)?;
        self.agent.local().clear_room();
        Ok(Vec::new())
    }

    /// Removes an agent that is here under another name, `heir`, which takes over the files that no
    /// stream carries.
    pub fn vanish_into(&self, heir: &Agent<'_>) -> Result<Vec<String>> {
        let Some(lock) = &self.remote else { return self.dir.vanish_into(heir.local()) };
        heir.local().take_over(self.agent.local())?;
        lock.hold.remove(Some(heir.name()))?;
        self.agent.local().clear_room();
        Ok(Vec::new())
    }

    /// Moves something aside that lies in the inbox and can't be taken up. Where the records are no
    /// files it stays, and steps pass it over.
    pub fn set_aside(&self, file: &Dropped, reason: &str) -> Result<Aside> {
        match &self.remote {
            None => self.dir.set_aside(file, reason),
            Some(_) => Ok(Aside::Stays("it is no file that could be moved".to_owned())),
        }
    }

    /// Applies what interrupted commands have committed.
    pub fn finish_journal(&self) -> Result<()> {
        if self.remote.is_none() { self.dir.finish_journal() } else { Ok(()) }
    }

    /// Removes a bounded part of what is kept no longer on this machine, where it is time to look.
    /// For a step that comes to rest, and holds the lease.
    pub fn sweep_some(&self, retention: Retention, now: Time) -> Result<()> {
        let records = self.agent.records();
        self.dir.sweep_some(retention, now, || {
            let view = self.source().view(records)?;
            let state = records.state(&view.state()?)?;
            Ok((view, state))
        })
    }

    /// Brings all that was committed to where a copy of the directory has it.
    pub fn empty_journal(&self) -> Result<()> {
        if self.remote.is_none() { self.dir.empty_journal() } else { Ok(()) }
    }
}
