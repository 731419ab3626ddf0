//! Records of one agent: reads without the lock, arrivals, and the lock.

use std::io::{Read, Seek, Write};
use std::num::NonZeroU32;
use std::path::Path;
use std::rc::Rc;

use crate::cap_fs::{CapPath, Content, Version};
use crate::error::{Error, IoContext, Result};
use crate::model::bound::{CHECKPOINT, MAX_SETTINGS};
use crate::model::id::{AgentName, TriggerId};
use crate::model::policy::Policy;
use crate::model::preemption::Checkpoint;
use crate::model::state::State;
use crate::model::time::{Span, Time};
use crate::model::trigger::Uses;

use super::super::backend::{AgentRecords, Arrival, ReadView, UseOutcome};
use super::change::DirTxn;
use super::journal::{FoundJournal, Journal, JournalEntry};
use super::layout::{self, AgentDir};
use super::record::{decode, text};
use super::snapshot::DirReadView;
use super::view::{Touched, View};
use super::{DirStore, config, copying, files, inbox, lock, quarantine};

/// Content of `.gitignore` next to the keys. With it git ignores them, even if the `.gitignore` of
/// the state directory is older than the keys.
const IGNORE_ALL: &str = "# Keys of signatures: this machine's own, never in git.\n*\n";

/// Maximum bytes of a signature key.
const MAX_KEY: u64 = 4096;

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

    /// Parses the text of the agent's settings. `origin`: source of the text, for error messages.
    pub(in crate::store) fn policy_from(&self, origin: &str, text: &str) -> Result<Policy> {
        self.store.policy_from(origin, text).map_err(|error| {
            if matches!(&error, Error::Damaged { hint: None, .. }) {
                error.with_hint(format!("correct it with `dormouse edit {}`", self.name))
            } else {
                error
            }
        })
    }

    /// Reads the current `state.json` without the lock: the only read of a step with nothing to do.
    pub(in crate::store) fn peek(&self) -> Result<State> {
        let found = self.state_file()?;
        self.unless_gone(self.state_of(found.as_ref().map(|found| &*found.bytes)).or_else(|error| {
            // A power cut may have torn a `state.json` that was not synced; the journal has its
            // content.
            let view = View::over(&self.dir, self.pending(found.as_ref())?);
            if view.has_journal() { self.state_of(view.bytes(layout::STATE)?.as_deref()) } else { Err(error) }
        }))
    }

    pub(super) fn state_file(&self) -> Result<Option<Content>> {
        files::read_owned(&self.dir.join(layout::STATE))
    }

    pub(super) fn state_of(&self, found: Option<&[u8]>) -> Result<State> {
        let path = self.dir.join(layout::STATE);
        self.decoded_state(&path, found.ok_or_else(|| missing(&path))?)
    }

    /// Decodes a `state.json` of this agent. `place`: path for errors.
    pub(in crate::store) fn decoded_state(&self, place: &Path, bytes: &[u8]) -> Result<State> {
        let state: State = decode(place, bytes)?;
        quarantine::check_of(&self.name, &state).map_err(|message| Error::damaged(place, message))?;
        Ok(state)
    }

    /// Returns the version of the `state.json` from its file metadata, without reading the content.
    /// `None` if the file is missing or its metadata can't be read.
    pub(in crate::store) fn version(&self) -> Option<Version> {
        Some(Version::of(&self.dir.join(layout::STATE).look().ok()??))
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

    fn put_arrival(&self, arrival: &Arrival) -> Result<()> {
        let (id, path, text) = match arrival {
            Arrival::Message { key, text } => (key.id, layout::message(*key), text),
            Arrival::Hint { id, text } => (*id, layout::hint(*id), text),
        };
        let name = path.rsplit('/').next().unwrap_or(&path);
        let here = self.here()?;
        let put =
            self.store.disk.replace_unlocked(&self.staging(name), &self.dir.join(&path), text.as_bytes());
        match self.unless_gone(put) {
            // A new agent has this name now; the staged file was removed with the old agent.
            Err(error) if error.is_not_found() && self.here()? != here => {}
            put => put?,
        }
        let now = id.minted_at().unwrap_or(Time::from_millis(0));
        self.unless_left(here, &[name.to_owned()], now)
    }

    /// Replaces a file of many lines, for example a ledger by a copy without its broken lines.
    pub(super) fn replace_file(&self, cap: &CapPath, bytes: &[u8]) -> Result<()> {
        self.store.disk.replace(&self.dir.join(layout::TMP).join("replacement"), cap, bytes)
    }

    /// Stores the key of a trigger's signatures, durably. Must be called before the record names
    /// the key's hash. Only the owner can read the file.
    pub(super) fn keep_key(&self, trigger: TriggerId, digest: &str, key: &[u8]) -> Result<()> {
        let ignore = self.dir.join(layout::KEYS).join(".gitignore");
        if !ignore.exists()? {
            self.replace_file(&ignore, IGNORE_ALL.as_bytes())?;
        }
        self.replace_file(&self.dir.join(layout::key(trigger, digest)), key)
    }

    /// Takes the agent's lock, waiting for other processes.
    pub(in crate::store) fn lock(&self, now: Time) -> Result<DirTxn<'_>> {
        let path = self.dir.join(layout::LOCK);
        let held = lock::acquire(&path, &self.store.holder(now), self.store.opener.patience);
        Ok(DirTxn::new(self, held?))
    }

    /// Tries once to take the agent's lock. Returns `None` if another process has the lock.
    pub(in crate::store) fn try_lock(&self, now: Time) -> Result<Option<DirTxn<'_>>> {
        let held = lock::try_acquire(&self.dir.join(layout::LOCK), Some(&self.store.holder(now)))?;
        Ok(held.map(|held| DirTxn::new(self, held)))
    }

    /// Takes the agent's lock and applies the transaction of an interrupted command.
    pub(super) fn change(&self, now: Time) -> Result<DirTxn<'_>> {
        let locked = self.unless_gone(self.lock(now))?;
        locked.finish_journal()?;
        Ok(locked)
    }
}

impl AgentRecords for DirAgent<'_> {
    fn identity(&self) -> Result<String> {
        let path = self.dir.join(layout::IDENTITY);
        let read = files::read(&path).and_then(|bytes| text(&path, bytes.ok_or_else(|| missing(&path))?));
        self.unless_gone(read)
    }

    fn policy(&self) -> Result<String> {
        let path = self.dir.join(layout::POLICY);
        let bytes = path.read(MAX_SETTINGS).and_then(|bytes| {
            bytes.ok_or_else(|| {
                Error::damaged(path.path(), "missing: it names the turn command")
                    .with_hint("restore it from git or a backup, or write a new one")
            })
        });
        let read = bytes.and_then(|bytes| config::utf8(&path, &bytes).map(str::to_owned));
        self.unless_gone(read)
    }

    fn is_quiet(&self, state: &State) -> Result<bool> {
        let is_finished = match Journal::look(&self.dir, false)? {
            FoundJournal::Nothing | FoundJournal::Blank | FoundJournal::Applied(_) => true,
            FoundJournal::Open(_) => false,
        };
        Ok(is_finished && inbox::is_empty(&View::settled(&self.dir), &self.passed_over(state))?)
    }

    /// Returns the versions of the directories of open records.
    fn touched(&self, has_tasks: bool) -> Option<Touched> {
        let planes = [layout::WORK, layout::WAITS, layout::TIMERS, layout::TASKS];
        let read = if has_tasks { &planes[..] } else { &planes[..3] };
        read.iter().map(|dir| self.dir.join(dir).touched().ok()).collect::<Option<_>>().map(Touched)
    }

    /// Puts each arrival into the inbox as a new file.
    ///
    /// # Errors
    ///
    /// `moved` if the agent was moved away meanwhile and its stream lacks the arrival, `no_agent`
    /// if the agent was removed. The file is removed then.
    fn arrive(&self, arrivals: &[Arrival]) -> Result<bool> {
        arrivals.iter().try_for_each(|arrival| self.put_arrival(arrival))?;
        Ok(true)
    }

    fn see(&self) -> Result<Rc<dyn ReadView + '_>> {
        let state = self.state_file()?;
        let view = View::over(&self.dir, self.pending(state.as_ref())?);
        Ok(Rc::new(DirReadView::of(self, view, Some(state))))
    }

    fn glimpse(&self) -> Result<Rc<dyn ReadView + '_>> {
        Ok(Rc::new(DirReadView::of(self, View::settled(&self.dir), None)))
    }

    fn blame(&self, error: Error) -> Error {
        match self.dir.cap().number() {
            Ok(None) => self.gone(),
            Ok(Some(_)) | Err(_) => error,
        }
    }

    fn settle(&self, now: Time) -> Result<()> {
        match Journal::look(&self.dir, false)? {
            FoundJournal::Nothing | FoundJournal::Blank => Ok(()),
            FoundJournal::Applied(_) | FoundJournal::Open(_) => self.change(now)?.empty_journal(),
        }
    }

    fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        copying::checkpoints(&self.dir)
    }

    fn saved(&self, checkpoint: Checkpoint, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match self.workdir().checkpoint(checkpoint).read(CHECKPOINT.most.0) {
            Ok(bytes) => Ok(bytes.map(|bytes| each(&bytes)).is_some()),
            Err(Error::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn trigger_key(&self, trigger: TriggerId, digest: &str) -> Result<Option<Vec<u8>>> {
        self.dir.join(layout::key(trigger, digest)).read(MAX_KEY)
    }

    fn forget_trigger_keys(&self, trigger: TriggerId, but: Option<&str>) -> Result<()> {
        let dir = self.dir.join(layout::KEYS);
        let kept = but.map(|hash| layout::key_name(trigger, hash));
        let of_trigger = format!("{trigger}.");
        for entry in dir.entries()? {
            let Some(name) = entry.name.to_str() else { continue };
            if name.starts_with(&of_trigger) && Some(name) != kept.as_deref() {
                dir.join(name).remove()?;
            }
        }
        Ok(())
    }

    /// The counter belongs to this state directory, and is lost with it.
    fn use_trigger(&self, trigger: TriggerId, most: NonZeroU32, now: Time) -> Result<UseOutcome> {
        let cap = self.dir.join(layout::uses(trigger));
        cap.parent().make_dirs()?;
        let (mut file, _) = cap.open_in_place(true)?.ok_or_else(|| Error::gone("open", &cap))?;
        lock::hold(&file, &cap)?;
        let mut text = String::new();
        // An incomplete file counts as the beginning of a new minute.
        let _ = (&file).take(64).read_to_string(&mut text);
        let found = text.split_once(' ').and_then(|(since, count)| {
            let since = Time::from_millis(since.parse().ok()?);
            Some(Uses { since, count: count.trim().parse().ok()? })
        });
        let uses = match Uses::with_one(found, most, now) {
            Ok(uses) => uses,
            Err(pause) => return Ok(Err(pause)),
        };
        let line = format!("{:<15} {:<10}\n", uses.since.as_millis(), uses.count);
        file.rewind().and_then(|()| file.write_all(line.as_bytes())).context("write", &cap)?;
        Ok(Ok(()))
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
        .with_hint("restore it from git or a backup; dormouse creates no replacement")
}
