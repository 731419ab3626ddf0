//! Transactions on the records of one agent under its lock, each applied as a whole or not at all.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::local::LockGuard;
use crate::model::agent::Identity;
use crate::model::dedupe::DedupeEntry;
use crate::model::digest::sha256;
use crate::model::id::{AgentName, TriggerId};
use crate::model::preemption::Checkpoint;
use crate::model::retention::Retention;
use crate::model::state::State;
use crate::model::time::{Span, Time};
use crate::model::transaction::{Delete, Put, Transaction};

use super::super::backend::{self, Op, Ops, RemoteTxn, Txn};
use super::super::dir::{DirExport, DirTxn, Dropped, QuarantineOutcome, quarantine};
use super::super::settings::Settings;
use super::agent::{Agent, moved_away};
use super::snapshot::{LeftOut, Snapshot, Source};
use super::source::RecordsIn;
use super::{export, ops};

/// Agent whose lock is held: the only way to change its records.
#[derive(Debug, derive_new::new)]
pub struct AgentTxn<'a> {
    agent: &'a Agent<'a>,
    /// Lock of the records.
    lock: RecordsIn<DirTxn<'a>, Box<dyn RemoteTxn>>,
    /// Time at which the command took the agent's lock, by its clock.
    now: Time,
    /// Revision that was read last, and true if its state marks the agent as moved.
    #[new(default)]
    base: Cell<Option<(u64, bool)>>,
    /// Operations to add to the next commit.
    #[new(default)]
    along: RefCell<Vec<Op>>,
    /// Names of inbox entries that the last snapshot left out, because steps can't process them.
    #[new(default)]
    left_out: RefCell<Vec<String>>,
    /// This machine's lock of the agent, if the records are in a remote store. The last field, so
    /// that it is released last.
    here: Option<LockGuard>,
}

impl Agent<'_> {
    /// Takes the agent's lock, and applies the transaction of an interrupted command.
    pub fn change(&self, now: Time) -> Result<AgentTxn<'_>> {
        let locked = self.lock(now)?;
        locked.records().finish()?;
        Ok(locked)
    }

    /// Takes the agent's lock for `doctor`: an interrupted transaction that can't be applied stays.
    pub fn change_damaged(&self, now: Time) -> Result<AgentTxn<'_>> {
        let locked = self.lock(now)?;
        // `doctor` reports later why the transaction can't be applied.
        let _ = locked.records().finish();
        Ok(locked)
    }

    fn lock(&self, now: Time) -> Result<AgentTxn<'_>> {
        let begun = Instant::now();
        let held = self.in_local_dir(|| self.local().lock(now))?;
        let left = self.store().local.patience().saturating_sub(begun.elapsed());
        self.lock_records(held, left, now)?.ok_or_else(|| self.busy(begun.elapsed()))
    }

    /// Takes the agent's lock without waiting. Returns `None` if another process has it.
    pub fn try_change(&self, now: Time) -> Result<Option<AgentTxn<'_>>> {
        let Some(held) = self.in_local_dir(|| self.local().try_lock(now))? else { return Ok(None) };
        let locked = self.lock_records(held, Duration::ZERO, now)?;
        locked.as_ref().map_or(Ok(()), |locked| locked.records().finish())?;
        Ok(locked)
    }

    /// Applies a transaction that a killed command has committed. Returns false if another process
    /// has the agent's lock, which may be that command.
    pub fn finish_interrupted(&self, now: Time) -> Result<bool> {
        Ok(!self.records().is_interrupted()? || self.try_change(now)?.is_some())
    }

    /// Takes the records' lock, or returns `None` after `patience`. For files, `held` is that lock.
    fn lock_records(&self, held: LockGuard, patience: Duration, now: Time) -> Result<Option<AgentTxn<'_>>> {
        let lock = match &self.source().records {
            RecordsIn::Files(files) => Some((RecordsIn::Files(DirTxn::new(files, held)), None)),
            RecordsIn::Remote(remote) => {
                remote.lock(patience)?.map(|lock| (RecordsIn::Remote(lock), Some(held)))
            }
        };
        Ok(lock.map(|(lock, here)| AgentTxn::new(self, lock, now, here)))
    }

    /// Replaces the agent's settings by `after` if they are still `before`. Takes the agent's lock,
    /// so that two editors can't overwrite each other. Returns `false`, and changes nothing, if the
    /// settings have changed meanwhile.
    pub fn replace_policy(&self, before: &str, after: &str, now: Time) -> Result<bool> {
        let locked = self.change(now)?;
        locked.state()?;
        let are_same = self.policy_text()? == before;
        if are_same {
            locked.records().put(Op::Policy(Settings::of(after.to_owned())))?;
        }
        Ok(are_same)
    }
}

/// Maximum time by which the admission of a dedupe entry may lie in the future, because the clock
/// may have been set back. The state directory has an equal limit.
const AHEAD: Span = Span::from_secs(24 * 3600);

impl<'a> AgentTxn<'a> {
    /// Returns the lock of the records.
    pub(super) fn records(&self) -> &dyn Txn {
        match &self.lock {
            RecordsIn::Files(files) => files,
            RecordsIn::Remote(remote) => &**remote,
        }
    }

    pub(super) fn agent(&self) -> &'a Agent<'a> {
        self.agent
    }

    /// Returns the lock of records that are files of this machine, for the files that other
    /// programs put into the inbox, and for repairs of files. `None` if the records are in a
    /// database.
    pub fn files(&self) -> Option<&DirTxn<'a>> {
        self.lock.files()
    }

    /// Adds these operations to the next commit under this lock.
    pub(super) fn change_along(&self, ops: Vec<Op>) {
        self.along.borrow_mut().extend(ops);
    }

    /// Stores the key of a trigger's signatures with the next commit, which must also store the
    /// trigger's record with the key's hash.
    pub fn keep_key(&self, trigger: TriggerId, key: &str) {
        let (key, digest) = (key.as_bytes().to_vec(), sha256(key.as_bytes()));
        self.change_along(vec![Op::TriggerKey { trigger, digest, key }]);
    }

    /// Stores a checkpoint in the database with the next commit, replacing the run's earlier one,
    /// so that the run may continue on another machine. Does nothing if the records are files,
    /// because the checkpoint is a file already.
    pub fn keep_checkpoint(&self, checkpoint: Checkpoint, bytes: &[u8]) {
        if self.files().is_none() {
            let parts = backend::parts(checkpoint, bytes);
            self.change_along([Op::Unsaved(checkpoint)].into_iter().chain(parts).collect());
        }
    }

    /// Returns the time for which this process waited for the agent's lock. `None` if the lock was
    /// free, and at every later call.
    pub fn take_wait(&self) -> Option<Span> {
        let here = self.here.as_ref().and_then(LockGuard::take_wait);
        let waited =
            [here, self.records().take_wait()].into_iter().flatten().reduce(|here, there| here + there)?;
        Some(Span::from_millis(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Returns the current state, for a change. Refused if the state marks the agent as moved.
    pub fn state(&self) -> Result<State> {
        let state = self.any_state()?;
        match &state.moved {
            Some(moved) => Err(moved_away(self.agent, moved)),
            None => Ok(state),
        }
    }

    /// Returns the current state, even if it marks the agent as moved.
    pub fn any_state(&self) -> Result<State> {
        let state = self.agent.source().state(&self.records().now()?.state()?)?;
        self.note(&state);
        Ok(state)
    }

    fn note(&self, state: &State) {
        self.base.set(Some((state.revision, state.moved.is_some())));
    }

    /// Returns the records under this lock, without the entries of the inbox that steps skip.
    pub fn snapshot(&self, state: &State) -> Result<Snapshot<'_>> {
        self.snapshot_without(quarantine::all_passed_over(state), false)
    }

    /// Returns the records for a step, without inbox entries that no step can process: those in
    /// `unmovable`, which this step has found, and unchanged ones that earlier steps have found.
    pub fn step_snapshot(&self, state: &State, unmovable: &[String]) -> Result<Snapshot<'_>> {
        let mut left_out = self.agent.local().passed_over(state);
        left_out.extend_from_slice(unmovable);
        self.snapshot_without(left_out, true)
    }

    fn snapshot_without(&self, left_out: Vec<String>, is_step: bool) -> Result<Snapshot<'_>> {
        self.records().list_inbox(&left_out, is_step)?;
        self.left_out.replace(left_out);
        Ok(self.current_snapshot())
    }

    /// Returns the current records, without the entries of the inbox that the last snapshot left
    /// out.
    pub fn current_snapshot(&self) -> Snapshot<'_> {
        let left_out = LeftOut::Names(self.left_out.borrow().clone());
        Snapshot::new(self.agent.source(), Source::Locked(self.records()), left_out)
    }

    /// Returns the records with an empty inbox, for a change that does not concern the inbox.
    pub fn records_snapshot(&self) -> Snapshot<'_> {
        Snapshot::new(self.agent.source(), Source::Locked(self.records()), LeftOut::All)
    }

    /// With the next commit, removes the dedupe keys that are older than the window.
    pub fn forget_old_keys(&self, now: Time, window: Span) {
        let before = now.as_millis().saturating_sub_unsigned(window.as_millis());
        self.change_along(vec![Op::KeysForgotten(Time::from_millis(before))]);
    }

    /// Commits a transaction as a whole or not at all, and returns the new state. Refused if the
    /// transaction was made from another revision.
    ///
    /// After an error it is unknown if the transaction was committed, so nothing more is committed
    /// under this lock.
    pub fn commit(&self, transaction: Transaction) -> Result<State> {
        let base = transaction.base_revision;
        let Some((_, was_moved)) = self.base.take().filter(|(revision, _)| *revision == base) else {
            return Err(Error::refused(
                "stale_revision",
                format!("the records of `{}` have changed since revision {base}", self.agent.name()),
            )
            .with_hint("try again"));
        };
        let ops = self.ops(&transaction, was_moved)?;
        self.records().commit(base, &ops)?;
        self.note(&transaction.state);
        for delete in &transaction.deletes {
            if let Delete::Checkpoint(checkpoint) = delete {
                // An error is ignored: the file is deleted later with the directory of its run.
                let _ = self.agent.local().checkpoint(*checkpoint).remove();
            }
        }
        Ok(transaction.state)
    }

    fn ops(&self, transaction: &Transaction, was_moved: bool) -> Result<Vec<Op>> {
        let state = &transaction.state;
        let mut ops = Vec::new();
        for put in &transaction.puts {
            if !self.is_outdated(put)? {
                ops.push(ops::put(put));
            }
        }
        ops.extend(transaction.deletes.iter().map(|delete| ops::delete(*delete)));
        ops.extend(transaction.events.iter().map(ops::event));
        ops.extend(transaction.archived.iter().flat_map(ops::ended));
        ops.extend(self.along.take());
        if state.moved.is_some() != was_moved {
            ops.push(Op::InboxClosed(state.moved.is_some()));
        }
        ops.push(ops::state(state, ops::text(state)));
        Ok(ops)
    }

    /// True if a dedupe key belongs to a later message by now, so that the end of this message must
    /// not be stored under the key.
    fn is_outdated(&self, put: &Put) -> Result<bool> {
        let Put::Dedupe(entry) = put else { return Ok(false) };
        let noted = match self.records_snapshot().replaced_key(entry) {
            // A dedupe entry that can't be read counts as missing, and is replaced.
            Err(error) if error.is_of_file() => None,
            noted => noted?,
        };
        // An entry that a wrong clock dated more than a day ahead would block its key until that
        // day, so any other entry replaces such an entry.
        let is_possible = |entry: &DedupeEntry| entry.admitted_at <= self.now.after(AHEAD);
        Ok(noted.is_some_and(|noted| {
            noted.message_id != entry.message_id
                && (is_possible(&noted), noted.admitted_at) > (is_possible(entry), entry.admitted_at)
        }))
    }

    /// Replaces the identity of the agent.
    pub fn replace_identity(&self, identity: &Identity) -> Result<()> {
        self.records().put(Op::Identity(ops::text(identity)))
    }

    /// Collects all exported files of the agent, with those of the run and task directories that
    /// this machine has.
    pub fn exported(&self, is_moved: bool) -> Result<DirExport> {
        if let Some(files) = self.files() {
            return files.exported(is_moved);
        }
        // A database refuses arrivals once an agent is marked as moved, so no list is needed.
        let local = self.agent.local().export_local_files()?;
        export::with_records(local, self.agent.source(), &*self.records().now()?)
    }

    /// Replaces the agent's records in the database by those of another agent, in one change.
    pub(super) fn replace(&self, ops: Ops<'_>) -> Result<()> {
        let (base, _) = self.base.take().unwrap_or_default();
        self.lock.remote().map_or(Ok(()), |remote| remote.replace(base, ops))
    }

    /// Deletes an agent that is marked as moved, with its local directory. Returns the names of
    /// inbox files that no export has; none in a database, which refuses arrivals after that mark.
    pub fn delete(&self) -> Result<Vec<String>> {
        match &self.lock {
            RecordsIn::Files(files) => files.delete(),
            RecordsIn::Remote(remote) => {
                remote.remove()?;
                self.agent.local().remove_local_dir();
                Ok(Vec::new())
            }
        }
    }

    /// Renames an agent that is marked as moved to this name. Its records keep the former name.
    pub fn rename(&self, name: &AgentName) -> Result<()> {
        match &self.lock {
            RecordsIn::Files(files) => files.rename(name),
            RecordsIn::Remote(remote) => {
                // The files are moved first: later another agent may take the former name.
                let (former, new) = (self.agent.local(), self.agent.store().local.agent(name));
                new.take_over(former)?;
                remote.rename(name).or_else(|error| former.take_over(&new).and(Err(error)))
            }
        }
    }

    /// Moves a malformed file from the inbox to `rejected/`. In a database a malformed entry stays,
    /// and steps skip it.
    pub fn quarantine(&self, file: &Dropped, reason: &str) -> Result<QuarantineOutcome> {
        self.records().quarantine(file, reason)
    }

    /// Removes a bounded number of expired run and task directories of this machine, about once a
    /// day. Called by a step that leaves the agent idle and holds the lease.
    pub fn sweep_some(&self, retention: Retention, now: Time) -> Result<()> {
        self.agent.local().sweep_some(retention, now, || {
            let view = self.records().now()?;
            let state = self.agent.source().state(&view.state()?)?;
            Ok((view, state))
        })
    }

    /// Syncs all changes and empties the journal, so that a copy of the directory is complete.
    pub fn empty_journal(&self) -> Result<()> {
        self.records().flush()
    }
}
