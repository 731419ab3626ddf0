//! Agent whose records are files, and reads of its state without the agent's lock.

use std::path::Path;

use crate::cap_fs::Content;
use crate::error::{Error, Result};
use crate::local::{LocalAgent, files, layout};
use crate::model::id::TriggerId;
use crate::model::state::State;

use super::super::backend::AgentRecords;
use super::journal::{FoundJournal, Journal, JournalEntry};
use super::quarantine;
use super::record::text;

/// Content of `.gitignore` next to the signature keys. With it git ignores the keys, even if the
/// `.gitignore` of the state directory is older.
const IGNORE_ALL: &str = "# Keys of signatures: this machine's own, never in git.\n*\n";

/// Agent whose records are files in its local directory.
#[derive(Debug, Clone)]
pub struct DirAgent<'s> {
    pub(in crate::store) local: LocalAgent<'s>,
}

impl DirAgent<'_> {
    /// Reads the current `state.json` without the agent's lock.
    pub(super) fn peek(&self) -> Result<State> {
        AgentRecords::peek(self, &|text| self.state_of(text.as_bytes()))
    }

    pub(super) fn state_file(&self) -> Result<Option<Content>> {
        self.local.dir.join(layout::STATE).read_owned(files::MAX_RECORD)
    }

    pub(super) fn state_of(&self, bytes: &[u8]) -> Result<State> {
        quarantine::decoded_state(&self.local.name, &self.local.dir.join(layout::STATE), bytes)
    }

    /// Returns the content of a `state.json` as text. Error if the file is missing.
    pub(super) fn state_text(&self, bytes: Option<Vec<u8>>) -> Result<String> {
        let cap = self.local.dir.join(layout::STATE);
        text(&cap, bytes.ok_or_else(|| missing(&cap))?)
    }

    /// Returns the journal's transactions that the files lack, given this `state.json`.
    pub(super) fn pending(&self, state: Option<&Content>) -> Result<Vec<JournalEntry>> {
        let dir = &self.local.dir;
        match Journal::look(dir, false)? {
            FoundJournal::Nothing | FoundJournal::Blank | FoundJournal::Applied(_) => Ok(Vec::new()),
            FoundJournal::Open(found) if found.is_of_another_machine() => Ok(Vec::new()),
            FoundJournal::Open(found) => {
                found.check_paths()?;
                let continues = found.continues_state(&dir.join(layout::STATE), state)?;
                Ok(if continues { found.into_entries() } else { Vec::new() })
            }
        }
    }

    /// Stores the key of a trigger's signatures, durably. Must be called before the record names
    /// the key's hash. Only the owner can read the file.
    pub(super) fn keep_key(&self, trigger: TriggerId, digest: &str, key: &[u8]) -> Result<()> {
        let local = &self.local;
        let ignore = local.dir.join(layout::KEYS).join(".gitignore");
        if !ignore.exists()? {
            local.replace_file(&ignore, IGNORE_ALL.as_bytes())?;
        }
        local.replace_file(&local.dir.join(layout::key(trigger, digest)), key)
    }
}

pub(super) fn missing(path: &Path) -> Error {
    Error::damaged(path.to_owned(), "missing: every agent has one")
        .with_hint("restore it from git or a backup; dormouse creates no replacement")
}
