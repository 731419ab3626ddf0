//! Agent of a state directory: reading its state without the lock, and replacing whole files.

use std::path::Path;

use crate::cap_fs::{CapPath, Content};
use crate::error::{Error, Result};
use crate::local::files;
use crate::local::layout::{self, AgentDir};
use crate::model::id::{AgentName, TriggerId};
use crate::model::policy::Policy;
use crate::model::state::State;

use super::super::backend::AgentRecords;
use super::DirStore;
use super::journal::{FoundJournal, Journal, JournalEntry};
use super::record::text;

/// Content of `.gitignore` next to the signature keys. With it git ignores the keys, even if the
/// `.gitignore` of the state directory is older.
const IGNORE_ALL: &str = "# Keys of signatures: this machine's own, never in git.\n*\n";

/// Agent whose records are files of an open state directory.
#[derive(Debug, Clone)]
pub struct DirAgent<'s> {
    pub(in crate::store) store: &'s DirStore,
    pub(in crate::store) name: AgentName,
    pub(in crate::store) dir: AgentDir,
}

impl<'s> DirAgent<'s> {
    pub(super) fn new(store: &'s DirStore, name: AgentName, dir: AgentDir) -> DirAgent<'s> {
        DirAgent { store, name, dir }
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

    /// Reads the current `state.json` without the lock.
    pub(super) fn peek(&self) -> Result<State> {
        AgentRecords::peek(self, &|text| self.state_of(text.as_bytes()))
    }

    pub(super) fn state_file(&self) -> Result<Option<Content>> {
        files::read_owned(&self.dir.join(layout::STATE))
    }

    pub(super) fn state_of(&self, bytes: &[u8]) -> Result<State> {
        self.decoded_state(&self.dir.join(layout::STATE), bytes)
    }

    /// Returns the content of a `state.json` as text. Error if the file is missing.
    pub(super) fn state_text(&self, bytes: Option<Vec<u8>>) -> Result<String> {
        let cap = self.dir.join(layout::STATE);
        text(&cap, bytes.ok_or_else(|| missing(&cap))?)
    }

    /// Returns the committed transactions that the records with this `state.json` lack.
    pub(super) fn pending(&self, state: Option<&Content>) -> Result<Vec<JournalEntry>> {
        match Journal::look(&self.dir, false)? {
            FoundJournal::Nothing | FoundJournal::Blank | FoundJournal::Applied(_) => Ok(Vec::new()),
            FoundJournal::Open(found) if found.is_of_another_machine() => Ok(Vec::new()),
            FoundJournal::Open(found) => {
                found.check_paths()?;
                let continues = found.continues_state(&self.dir.join(layout::STATE), state)?;
                Ok(if continues { found.into_entries() } else { Vec::new() })
            }
        }
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
}

pub(super) fn missing(path: &Path) -> Error {
    Error::damaged(path.to_owned(), "missing: every agent has one")
        .with_hint("restore it from git or a backup; dormouse creates no replacement")
}
