//! One agent's records: read without a lock.

use std::path::Path;
use std::time::Instant;

use crate::beneath::{Content, Spot, Version};
use crate::error::{Error, Result};
use crate::model::agent::Identity;
use crate::model::bound::{MAX_SETTINGS, RECORD};
use crate::model::id::AgentName;
use crate::model::message::{Message, WakeHint};
use crate::model::policy::Policy;
use crate::model::state::State;
use crate::model::time::{Span, Time};
use crate::model::trigger::Trigger;

use super::change::Change;
use super::journal::{Entry, Found, Journal};
use super::layout::{self, AgentDir};
use super::old_journal::Old;
use super::record::{decode, encode};
use super::snapshot::Snapshot;
use super::view::View;
use super::{Store, aside, config, files, inbox, lock};

/// How often a reader starts over at least because the records move on under it, however little
/// patience it has.
const READ_ATTEMPTS: u32 = 100;

/// An agent of an open store.
#[derive(Debug, Clone)]
pub struct Agent<'s> {
    pub(super) store: &'s Store,
    pub(super) name: AgentName,
    pub(super) dir: AgentDir,
}

impl<'s> Agent<'s> {
    pub(super) fn new(store: &'s Store, name: AgentName, dir: AgentDir) -> Agent<'s> {
        Agent { store, name, dir }
    }

    pub fn name(&self) -> &AgentName {
        &self.name
    }

    pub(in crate::store) fn dir(&self) -> &AgentDir {
        &self.dir
    }

    pub fn store(&self) -> &'s Store {
        self.store
    }

    pub fn policy(&self) -> Result<Policy> {
        config::policy(&self.dir.join(layout::POLICY), &self.store.config)
    }

    /// Where its settings are, for people.
    pub fn settings(&self) -> String {
        self.dir.join(layout::POLICY).display().to_string()
    }

    /// Its settings as they are written.
    pub fn policy_text(&self) -> Result<String> {
        let path = self.dir.join(layout::POLICY);
        let bytes = path.read(MAX_SETTINGS)?.ok_or_else(|| missing(&path))?;
        config::utf8(&path, &bytes).map(str::to_owned)
    }

    pub fn identity(&self) -> Result<Identity> {
        let path = self.dir.join(layout::IDENTITY);
        let Some(bytes) = files::read(&path)? else { return Err(missing(&path)) };
        decode(&path, &bytes)
    }

    pub fn triggers(&self) -> Result<Vec<Trigger>> {
        View::settled(&self.dir).records(layout::TRIGGERS)
    }

    /// The current `state.json`, without the lock: the one read of a step that finds nothing to do.
    pub fn peek(&self) -> Result<State> {
        let found = self.state_file()?;
        self.state_of(found.as_ref()).or_else(|error| {
            // A power cut may have torn what was not synced; then the journal has it.
            let view = View::over(&self.dir, self.pending(found.as_ref())?);
            if view.has_journal() { self.state_in(&view) } else { Err(error) }
        })
    }

    pub(super) fn state_file(&self) -> Result<Option<Content>> {
        files::read_owned(&self.dir.join(layout::STATE))
    }

    pub(super) fn state_of(&self, found: Option<&Content>) -> Result<State> {
        let path = self.dir.join(layout::STATE);
        let state: State = decode(&path, &found.ok_or_else(|| missing(&path))?.bytes)?;
        self.checked(state)
    }

    /// Which `state.json` it is, at the cost of a look. Nothing if there is none to be seen.
    pub fn version(&self) -> Option<Version> {
        Some(Version::of(&self.dir.join(layout::STATE).look().ok()??))
    }

    /// Whether nothing has arrived that a step could take up, and no transaction was interrupted.
    pub fn is_quiet(&self, state: &State) -> Result<bool> {
        let is_finished = match Journal::look(&self.dir, false)? {
            Found::Nothing => !self.dir.join(layout::OLD_JOURNAL).exists()?,
            Found::Blank | Found::Applied(_) => true,
            Found::Open(_) => false,
        };
        Ok(is_finished && inbox::is_empty(&View::settled(&self.dir), &self.passed_over(state))?)
    }

    /// The transactions that were committed and are not applied, beside the `state.json` that was read.
    pub(super) fn pending(&self, state: Option<&Content>) -> Result<Vec<Entry>> {
        match Journal::look(&self.dir, false)? {
            Found::Nothing => match Old::find(&self.dir)? {
                Old::Nothing | Old::Foreign => Ok(Vec::new()),
                old @ Old::Ours(_) => {
                    let entry = old.at(&self.dir, self.state_of(state)?.revision)?;
                    Ok(entry.into_iter().collect())
                }
            },
            Found::Blank | Found::Applied(_) => Ok(Vec::new()),
            Found::Open(found) if found.is_of_another_machine() => Ok(Vec::new()),
            Found::Open(found) => {
                found.check_paths()?;
                let goes_on = found.goes_on_from(&self.dir.join(layout::STATE), state)?;
                Ok(if goes_on { found.into_entries() } else { Vec::new() })
            }
        }
    }

    /// The records as they are now, without the lock. They may move on while they are read.
    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        let state = self.state_file()?;
        Ok(Snapshot::new(self, View::over(&self.dir, self.pending(state.as_ref())?)))
    }

    /// The same for a caller that has just seen that no transaction was interrupted, or to which the records of a
    /// moment ago are as good.
    pub fn glimpse(&self) -> Snapshot<'_> {
        Snapshot::new(self, View::settled(&self.dir))
    }

    /// Reads without a lock whatever `read` takes from one revision: `state.json` first and again
    /// last, and once more from the start if it has moved on. Or is about to: of a transaction that is
    /// being applied `state.json` changes after the other files.
    pub fn look<T>(&self, read: impl Fn(Snapshot<'_>, State) -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let mut attempts = 0;
        loop {
            let before = self.state_file()?;
            let view = View::over(&self.dir, self.pending(before.as_ref())?);
            let state =
                if view.has_journal() { self.state_in(&view)? } else { self.state_of(before.as_ref())? };
            let base_revision = view.base_revision();
            let found = read(Snapshot::new(self, view), state);
            // In this order: a line that is not there yet, or is applied by now, shows in `state.json`.
            let now = View::over(&self.dir, self.pending(before.as_ref())?).base_revision();
            let is_overtaken = now.is_some() && now != base_revision;
            let bytes = |content: Option<Content>| content.map(|content| content.bytes);
            if !is_overtaken && bytes(self.state_file()?) == bytes(before) {
                return found;
            }
            attempts += 1;
            let waited = start.elapsed();
            if attempts >= READ_ATTEMPTS && waited >= self.store.opener.patience {
                let holder = "a writer that never rests".to_owned();
                return Err(Error::busy(self.dir.join(layout::STATE).path(), holder, waited));
            }
        }
    }

    fn state_in(&self, view: &View<'_>) -> Result<State> {
        let state: State =
            view.record(layout::STATE)?.ok_or_else(|| missing(&self.dir.join(layout::STATE)))?;
        self.checked(state)
    }

    fn checked(&self, state: State) -> Result<State> {
        let is_whole = if state.agent == self.name {
            aside::check(&state)
        } else {
            let (of, here) = (&state.agent, &self.name);
            Err(format!("the record of agent `{of}` lies in the directory of `{here}`"))
        };
        is_whole.map_err(|message| Error::damaged(self.dir.join(layout::STATE).path(), message))?;
        Ok(state)
    }

    /// Puts a message into the inbox: one new file, no lock. It is there for good when this returns.
    ///
    /// # Errors
    ///
    /// `moved`, with nothing left of it, if the agent was moved away meanwhile and its stream lacks the message.
    pub fn arrive(&self, message: &Message) -> Result<()> {
        self.put_arrival(&layout::message(message.key()), &encode(message), message.created_at)
    }

    /// The same for a wake hint.
    pub fn arrive_hint(&self, hint: &WakeHint) -> Result<()> {
        self.put_arrival(&layout::hint(hint.id), &encode(hint), hint.created_at)
    }

    fn put_arrival(&self, path: &str, bytes: &[u8], now: Time) -> Result<()> {
        RECORD.check(bytes.len() as u64)?;
        let name = path.rsplit('/').next().unwrap_or(path);
        self.store.disk.replace_unlocked(&self.staging(name), &self.dir.join(path), bytes)?;
        self.unless_moved(&[name.to_owned()], now)
    }

    /// Puts a file that is no record of its own in place, whole: a ledger without its broken lines.
    pub fn replace_file(&self, spot: &Spot, bytes: &[u8]) -> Result<()> {
        self.store.disk.replace(&self.dir.join(layout::TMP).join("replacement"), spot, bytes)
    }

    /// Takes the agent's lock, and finishes a transaction that was interrupted.
    pub fn change(&self, now: Time) -> Result<Change<'_>> {
        let path = self.dir.join(layout::LOCK);
        self.locked(lock::acquire(&path, &self.store.holder(now), self.store.opener.patience)?)
    }

    /// The same for whoever can't wait. `None`: somebody else has it.
    pub fn try_change(&self, now: Time) -> Result<Option<Change<'_>>> {
        let held = lock::try_acquire(&self.dir.join(layout::LOCK), Some(&self.store.holder(now)))?;
        held.map(|held| self.locked(held)).transpose()
    }

    /// The same for whoever looks what is wrong: a transaction that can't be finished stays as it is.
    pub fn change_damaged(&self, now: Time) -> Result<Change<'_>> {
        let path = self.dir.join(layout::LOCK);
        let held = lock::acquire(&path, &self.store.holder(now), self.store.opener.patience)?;
        let locked = Change::new(self, held);
        // Why not is found by whoever looks.
        let _ = locked.finish_journal();
        Ok(locked)
    }

    /// Makes the disk have all that was committed, and empties the journal, so that a copy of the directory is complete, and what is
    /// changed beside the journal is not changed back by it.
    pub fn empty_journal(&self, now: Time) -> Result<()> {
        match Journal::look(&self.dir, false)? {
            Found::Nothing | Found::Blank => Ok(()),
            Found::Applied(_) | Found::Open(_) => self.change(now)?.empty_journal(),
        }
    }

    fn locked(&self, held: lock::Guard) -> Result<Change<'_>> {
        let locked = Change::new(self, held);
        locked.finish_journal()?;
        Ok(locked)
    }
}

impl Change<'_> {
    /// How long the lock was waited for, the first time that anything asks; nothing if it was free.
    pub fn take_wait(&self) -> Option<Span> {
        self.held
            .take_wait()
            .map(|waited| Span::from_millis(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX)))
    }
}

fn missing(path: &Path) -> Error {
    Error::Damaged {
        path: path.to_owned(),
        line: 0,
        column: 0,
        message: "missing: every agent has one".to_owned(),
        hint: Some("bring it back from git or a backup; nothing is made up in its place".to_owned()),
    }
}
