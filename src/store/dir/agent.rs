//! Lock-free reads of the records of one agent.

use std::path::Path;

use crate::beneath::{Content, Spot, Version};
use crate::error::{Error, Result};
use crate::model::agent::Identity;
use crate::model::bound::{MAX_SETTINGS, RECORD};
use crate::model::id::AgentName;
use crate::model::message::{Message, WakeHint};
use crate::model::policy::Policy;
use crate::model::state::State;
use crate::model::time::{Span, Time};

use super::change::DirTxn;
use super::journal::{FoundJournal, Journal, JournalEntry};
use super::layout::{self, AgentDir};
use super::record::{decode, encode};
use super::snapshot::DirReadView;
use super::view::{Touched, View};
use super::{DirStore, config, files, inbox, lock, quarantine};

/// Agent whose records are files of an open state directory.
#[derive(Debug, Clone)]
pub struct DirAgent<'s> {
    pub(super) store: &'s DirStore,
    pub(super) name: AgentName,
    pub(super) dir: AgentDir,
}

impl<'s> DirAgent<'s> {
    pub(super) fn new(store: &'s DirStore, name: AgentName, dir: AgentDir) -> DirAgent<'s> {
        DirAgent { store, name, dir }
    }

    pub(in crate::store) fn name(&self) -> &AgentName {
        &self.name
    }

    pub(in crate::store) fn dir(&self) -> &AgentDir {
        &self.dir
    }

    pub(in crate::store) fn store(&self) -> &'s DirStore {
        self.store
    }

    pub(in crate::store) fn policy(&self) -> Result<Policy> {
        let policy = config::policy(&self.dir.join(layout::POLICY), &self.store.config);
        self.unless_gone(policy.map_err(|error| {
            if matches!(&error, Error::Damaged { hint: None, .. }) {
                error.with_hint(format!("mend it with `dormouse edit {}`", self.name))
            } else {
                error
            }
        }))
    }

    /// Path of the agent's settings file, for display.
    pub(in crate::store) fn settings(&self) -> String {
        self.dir.join(layout::POLICY).display().to_string()
    }

    /// Returns the text of the agent's settings file.
    pub(in crate::store) fn policy_text(&self) -> Result<String> {
        let path = self.dir.join(layout::POLICY);
        let bytes = path.read(MAX_SETTINGS)?.ok_or_else(|| missing(&path))?;
        config::utf8(&path, &bytes).map(str::to_owned)
    }

    pub(in crate::store) fn identity(&self) -> Result<Identity> {
        let path = self.dir.join(layout::IDENTITY);
        let read = files::read(&path).and_then(|bytes| decode(&path, &bytes.ok_or_else(|| missing(&path))?));
        self.unless_gone(read)
    }

    /// Reads the current `state.json` without the lock: the only read of a step with nothing to do.
    pub(in crate::store) fn peek(&self) -> Result<State> {
        let found = self.state_file()?;
        self.unless_gone(self.state_of(found.as_ref()).or_else(|error| {
            // A power cut may have torn a `state.json` that was not synced; the journal has its
            // content.
            let view = View::over(&self.dir, self.pending(found.as_ref())?);
            if view.has_journal() { self.state_in(&view) } else { Err(error) }
        }))
    }

    pub(super) fn state_file(&self) -> Result<Option<Content>> {
        files::read_owned(&self.dir.join(layout::STATE))
    }

    pub(super) fn state_of(&self, found: Option<&Content>) -> Result<State> {
        let path = self.dir.join(layout::STATE);
        let state: State = decode(&path, &found.ok_or_else(|| missing(&path))?.bytes)?;
        self.checked(state)
    }

    /// Returns the version of the `state.json` from its file metadata, without reading the content.
    /// `None` if the file is missing or its metadata can't be read.
    pub(in crate::store) fn version(&self) -> Option<Version> {
        Some(Version::of(&self.dir.join(layout::STATE).look().ok()??))
    }

    /// True if the inbox has nothing for a step to admit and no interrupted transaction is pending.
    pub(in crate::store) fn is_quiet(&self, state: &State) -> Result<bool> {
        let is_finished = match Journal::look(&self.dir, false)? {
            FoundJournal::Nothing | FoundJournal::Blank | FoundJournal::Applied(_) => true,
            FoundJournal::Open(_) => false,
        };
        Ok(is_finished && inbox::is_empty(&View::settled(&self.dir), &self.passed_over(state))?)
    }

    /// Returns the committed transactions that are not applied to the records of this `state.json`.
    pub(super) fn pending(&self, state: Option<&Content>) -> Result<Vec<JournalEntry>> {
        match Journal::look(&self.dir, false)? {
            FoundJournal::Nothing | FoundJournal::Blank | FoundJournal::Applied(_) => Ok(Vec::new()),
            FoundJournal::Open(found) if found.is_of_another_machine() => Ok(Vec::new()),
            FoundJournal::Open(found) => {
                found.check_paths()?;
                let goes_on = found.goes_on_from(&self.dir.join(layout::STATE), state)?;
                Ok(if goes_on { found.into_entries() } else { Vec::new() })
            }
        }
    }

    /// Returns a view of one revision, for reads without the lock while other commands may write.
    pub(in crate::store) fn see(&self) -> Result<DirReadView<'_>> {
        let state = self.state_file()?;
        Ok(DirReadView::of(self, View::over(&self.dir, self.pending(state.as_ref())?), Some(state)))
    }

    /// Returns a view of the current records without reading the journal. The caller has just
    /// checked that no transaction was interrupted, or accepts slightly outdated records.
    pub(in crate::store) fn glimpse(&self) -> DirReadView<'_> {
        DirReadView::of(self, View::settled(&self.dir), None)
    }

    /// Returns the versions of the directories of open records, which change if a record is added,
    /// replaced or removed. `None` if a version can't be read.
    pub(in crate::store) fn touched(&self, has_tasks: bool) -> Option<Touched> {
        let planes = [layout::WORK, layout::WAITS, layout::TIMERS, layout::TASKS];
        let read = if has_tasks { &planes[..] } else { &planes[..3] };
        read.iter().map(|dir| self.dir.join(dir).touched().ok()).collect::<Option<_>>().map(Touched)
    }

    fn state_in(&self, view: &View<'_>) -> Result<State> {
        let state: State =
            view.record(layout::STATE)?.ok_or_else(|| missing(&self.dir.join(layout::STATE)))?;
        self.checked(state)
    }

    fn checked(&self, state: State) -> Result<State> {
        quarantine::check_of(&self.name, &state)
            .map_err(|message| Error::damaged(self.dir.join(layout::STATE).path(), message))?;
        Ok(state)
    }

    /// Puts a message into the inbox as a new file, without a lock. When this returns the file is
    /// durable.
    ///
    /// # Errors
    ///
    /// `moved` if the agent was moved away meanwhile and its stream lacks the message, `no_agent`
    /// if the agent was removed. The file is removed then.
    pub(in crate::store) fn arrive(&self, message: &Message) -> Result<()> {
        self.put_arrival(&layout::message(message.key()), &encode(message), message.created_at)
    }

    /// Puts a wake hint into the inbox as a new file, like [`DirAgent::arrive`].
    pub(in crate::store) fn arrive_hint(&self, hint: &WakeHint) -> Result<()> {
        self.put_arrival(&layout::hint(hint.id), &encode(hint), hint.created_at)
    }

    fn put_arrival(&self, path: &str, bytes: &[u8], now: Time) -> Result<()> {
        RECORD.check(bytes.len() as u64)?;
        let name = path.rsplit('/').next().unwrap_or(path);
        let here = self.here()?;
        let put = self.store.disk.replace_unlocked(&self.staging(name), &self.dir.join(path), bytes);
        match self.unless_gone(put) {
            // A new agent has this name now; the staged file was removed with the old agent.
            Err(error) if error.is_not_found() && self.here()? != here => {}
            put => put?,
        }
        self.unless_left(here, &[name.to_owned()], now)
    }

    /// Replaces a file of many lines, for example a ledger by a copy without its broken lines.
    pub(super) fn replace_file(&self, spot: &Spot, bytes: &[u8]) -> Result<()> {
        self.store.disk.replace(&self.dir.join(layout::TMP).join("replacement"), spot, bytes)
    }

    /// Takes the agent's lock and applies the transaction of an interrupted command.
    pub(in crate::store) fn change(&self, now: Time) -> Result<DirTxn<'_>> {
        let path = self.dir.join(layout::LOCK);
        let held = lock::acquire(&path, &self.store.holder(now), self.store.opener.patience);
        self.locked(self.unless_gone(held)?)
    }

    /// Tries once to take the agent's lock. Returns `None` if another process has the lock.
    pub(in crate::store) fn try_change(&self, now: Time) -> Result<Option<DirTxn<'_>>> {
        let held = lock::try_acquire(&self.dir.join(layout::LOCK), Some(&self.store.holder(now)));
        self.unless_gone(held)?.map(|held| self.locked(held)).transpose()
    }

    /// Takes the agent's lock for `doctor`: leaves a transaction that can't be applied as it is.
    pub(in crate::store) fn change_damaged(&self, now: Time) -> Result<DirTxn<'_>> {
        let path = self.dir.join(layout::LOCK);
        let held = lock::acquire(&path, &self.store.holder(now), self.store.opener.patience);
        let locked = DirTxn::new(self, self.unless_gone(held)?);
        // `doctor` reports later why the transaction can't be applied.
        let _ = locked.finish_journal();
        Ok(locked)
    }

    /// Syncs all committed changes and empties the journal. After that a copy of the directory is
    /// complete, and the journal can't undo later changes to the files.
    pub(in crate::store) fn empty_journal(&self, now: Time) -> Result<()> {
        match Journal::look(&self.dir, false)? {
            FoundJournal::Nothing | FoundJournal::Blank => Ok(()),
            FoundJournal::Applied(_) | FoundJournal::Open(_) => self.change(now)?.empty_journal(),
        }
    }

    fn locked(&self, held: lock::LockGuard) -> Result<DirTxn<'_>> {
        let locked = DirTxn::new(self, held);
        locked.finish_journal()?;
        Ok(locked)
    }
}

impl DirTxn<'_> {
    /// Returns the time for which this process waited for the lock. `None` if the lock was free,
    /// and at every later call.
    pub(in crate::store) fn take_wait(&self) -> Option<Span> {
        self.held
            .take_wait()
            .map(|waited| Span::from_millis(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX)))
    }
}

pub(super) fn missing(path: &Path) -> Error {
    Error::damaged(path.to_owned(), "missing: every agent has one")
        .with_hint("bring it back from git or a backup; nothing is made up in its place")
}
