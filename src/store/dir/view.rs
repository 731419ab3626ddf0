//! Files of one agent as if interrupted transactions were applied, for reads without a lock.

use std::path::Path;

use crate::cap_fs::Content;
use crate::error::{Error, Result};
use crate::local::layout::{self, AgentDir};
use crate::local::{authors, files};
use crate::model::agent::Identity;
use crate::model::id::AgentName;
use crate::model::record::Record;

use super::changes::{Append, add_to};
use super::journal::JournalEntry;
use super::record::{decode, encode, text};

/// Agent's directory, overlaid with the transactions of its journal that are not applied yet.
#[derive(Debug)]
pub struct View<'a> {
    pub agent: &'a AgentDir,
    /// Transactions that are not applied, in their order.
    pending: Vec<JournalEntry>,
    is_locked: bool,
}

impl<'a> View<'a> {
    /// Returns a view for a caller that holds the agent's lock and has applied the journal.
    pub fn settled(agent: &'a AgentDir) -> View<'a> {
        View { agent, pending: Vec::new(), is_locked: true }
    }

    /// Returns a view for a caller without the agent's lock, with the unapplied transactions.
    pub fn over(agent: &'a AgentDir, pending: Vec<JournalEntry>) -> View<'a> {
        View { agent, pending, is_locked: false }
    }

    /// Revision on which the last unapplied transaction is based, if there is such a transaction.
    pub fn base_revision(&self) -> Option<u64> {
        self.pending.last().map(|entry| entry.base_revision)
    }

    /// True if this process has the agent's lock, so that no other command changes records.
    pub fn is_locked(&self) -> bool {
        self.is_locked
    }

    pub fn has_journal(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns the content of a file that the journal changes: `Some(None)` if it is deleted.
    fn overlaid(&self, path: &str) -> Option<Option<&str>> {
        self.pending.iter().rev().find_map(|entry| entry.content_of(path))
    }

    /// Returns a file's content after all transactions; `None` if the file is missing then.
    pub fn bytes(&self, path: &str) -> Result<Option<Vec<u8>>> {
        match self.overlaid(path) {
            Some(content) => Ok(content.map(|content| content.as_bytes().to_vec())),
            None => files::read(&self.agent.join(path)),
        }
    }

    pub fn exists(&self, path: &str) -> Result<bool> {
        match self.overlaid(path) {
            Some(content) => Ok(content.is_some()),
            None => self.agent.join(path).exists(),
        }
    }

    /// Returns a record; `None` if the file is missing.
    pub fn record<T: Record>(&self, path: &str) -> Result<Option<T>> {
        self.bytes(path)?.map(|bytes| decode(&self.agent.join(path), &bytes)).transpose()
    }

    /// True if the agent has or had a name. Reads the identity only for a name that is not its own.
    pub fn is_own(&self, name: &AgentName) -> bool {
        let identity = || self.record::<Identity>(layout::IDENTITY).ok().flatten();
        self.agent.path().file_name().is_some_and(|own| own == name.as_str())
            || identity().is_some_and(|own| own.former_names.iter().any(|had| had.name == *name))
    }

    /// Returns the text of a file of the inbox. `said`: sets the author of a record that another
    /// user has put there to that user, whatever the record claims.
    pub fn arrival<T: Record>(
        &self,
        path: &str,
        said: impl FnOnce(T, &str) -> std::result::Result<T, String>,
    ) -> Result<Option<String>> {
        if let Some(content) = self.overlaid(path) {
            return Ok(content.map(str::to_owned));
        }
        let cap = self.agent.join(path);
        let Some(Content { bytes, owner, .. }) = cap.read_owned(files::MAX_RECORD)? else { return Ok(None) };
        let Some(user) = authors::other(&cap, owner) else { return text(&cap, bytes).map(Some) };
        let said = said(decode(&cap, &bytes)?, &user);
        text(&cap, encode(&said.map_err(|wrong| Error::damaged(cap.path(), wrong))?)).map(Some)
    }

    /// Returns the paths of the records of a directory, sorted.
    pub fn record_paths(&self, dir: &str) -> Result<Vec<String>> {
        let mut paths = Vec::new();
        self.agent.join(dir).each_entry(|name, _| {
            if name.ends_with(b".json") && !name.starts_with(b".") {
                paths.push(format!("{dir}/{}", String::from_utf8_lossy(name)));
            }
            true
        })?;
        paths.extend(self.overlay_names(dir).map(str::to_owned));
        // The plan of a work item, a Markdown file, is in the same directory.
        paths.retain(|path| path.ends_with(".json"));
        paths.sort();
        paths.dedup();
        Ok(paths)
    }

    /// Returns the paths that the journal writes in a directory, some of them more than once. Files
    /// that the journal deletes are found missing when they are read.
    pub fn overlay_names(&self, dir: &str) -> impl Iterator<Item = &str> {
        let written = self.pending.iter().flat_map(|entry| &entry.writes).map(|write| write.path.as_str());
        written.filter(move |path| Path::new(path).parent() == Some(Path::new(dir)))
    }

    /// Returns the files below a directory that the journal appends to. Some may not exist yet.
    pub fn overlay_appends<'v>(&'v self, dir: &'v str) -> impl Iterator<Item = String> + 'v {
        let paths = self.appends().map(|append| append.path.clone());
        paths.filter(move |path| Path::new(path).starts_with(dir))
    }

    fn appends(&self) -> impl Iterator<Item = &Append> {
        self.pending.iter().flat_map(|entry| &entry.appends)
    }

    /// True if the journal deletes this file.
    pub fn is_deleted(&self, path: &str) -> bool {
        self.overlaid(path) == Some(None)
    }

    /// Returns the lines of a file that only grows, with the lines that the journal appends.
    pub fn lines(&self, path: &str) -> Result<Vec<u8>> {
        let mut bytes = self.agent.join(path).read(files::MAX_LINES)?.unwrap_or_default();
        self.appends().filter(|append| append.path == path).for_each(|append| add_to(&mut bytes, append));
        Ok(bytes)
    }

    /// True if the journal appends to this file.
    pub fn is_appended(&self, path: &str) -> bool {
        self.appends().any(|append| append.path == path)
    }
}
