//! The journal: a transaction over several files happens whole or not at all.
//!
//! Invariants, and the order of writes that follows from them:
//!
//! 1. Once `journal.json` is durable the transaction **must** become visible, so every file it
//!    names **must** be durable before the journal goes away.
//! 2. Applying a journal twice **must** be the same as applying it once: contents are whole,
//!    appends have a recorded offset, deletes don't mind what is gone.
//! 3. A journal **must not** be applied over later transactions: it holds while `state.json` is at
//!    its base revision or the one after, and is void from then on.
//! 4. Reading goes the other way round: `journal.json` first, then the files, whose contents in
//!    the journal count.
//! 5. A journal belongs to the machine on which it was written, and never to git. One of another machine,
//!    or one that git tracks, **must not** be applied: what it was about happened elsewhere.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::beneath::Spot;
use crate::error::{Context, Error, Result};

use super::files::{self, Disk};
use super::layout::{self, AgentDir};
use super::machine;
use super::record::decode_plain;

/// A file of the transaction, in its new wording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Write {
    pub path: String,
    pub content: String,
}

/// Lines that go to the end of a file, which was `offset` bytes long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Append {
    pub path: String,
    pub offset: u64,
    pub content: String,
}

/// `journal.json`: paths are relative to the agent's directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    pub schema: String,
    /// Where it was written, if the machine has a name of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    pub base_revision: u64,
    pub writes: Vec<Write>,
    pub appends: Vec<Append>,
    pub deletes: Vec<String>,
}

/// What lies in a journal's place.
pub enum Found {
    Nothing,
    Ours(Journal),
    /// One that came from another machine.
    Foreign,
}

pub const SCHEMA: &str = "dormouse/journal/2";
/// Did not say on which machine it was written.
const SCHEMA_1: &str = "dormouse/journal/1";

impl Journal {
    /// The journal of an interrupted transaction, if there is one of this machine.
    pub fn read(agent: &AgentDir) -> Result<Option<Journal>> {
        match Journal::find(agent)? {
            Found::Ours(journal) => {
                journal.check_paths(&agent.join(layout::JOURNAL))?;
                Ok(Some(journal))
            }
            Found::Foreign | Found::Nothing => Ok(None),
        }
    }

    /// The journal that lies there, wherever it comes from and whatever it names.
    pub fn find(agent: &AgentDir) -> Result<Found> {
        let path = agent.join(layout::JOURNAL);
        let Some(bytes) = path.read(files::MAX_JOURNAL)? else { return Ok(Found::Nothing) };
        let journal: Journal = decode_plain(&path, 0, &bytes)?;
        if ![SCHEMA, SCHEMA_1].contains(&journal.schema.as_str()) {
            return Err(Error::Newer {
                path: path.to_path_buf(),
                found: journal.schema,
                known: SCHEMA.to_owned(),
            });
        }
        // Where either has no name nothing speaks against it.
        if let (Some(there), Some(here)) = (&journal.machine, machine::id())
            && *there != here
        {
            return Ok(Found::Foreign);
        }
        Ok(Found::Ours(journal))
    }

    /// A journal names what transactions write, by the layout, and nothing else: no settings, no hooks, and
    /// nothing outside the agent's directory.
    fn check_paths(&self, journal: &Path) -> Result<()> {
        let writes = self.writes.iter().map(|write| &write.path);
        let appends = self.appends.iter().map(|append| &append.path);
        let bad = writes.filter(|path| !layout::may_write(path));
        let bad = bad.chain(appends.filter(|path| !layout::may_append(path)));
        let mut bad = bad.chain(self.deletes.iter().filter(|path| !layout::may_delete(path)));
        match bad.next() {
            None => Ok(()),
            Some(path) => {
                Err(Error::damaged(journal, format!("no transaction changes `{path}`: it is not applied")))
            }
        }
    }

    /// Whether it still counts beside a `state.json` of this revision.
    pub fn counts_at(&self, revision: u64) -> bool {
        revision == self.base_revision || revision.checked_sub(1) == Some(self.base_revision)
    }

    /// Makes the transaction durable: from here on it has happened. Refuses one that no reader would take.
    pub fn commit(&self, agent: &AgentDir, disk: Disk) -> Result<()> {
        let journal = agent.join(layout::JOURNAL);
        // Nothing is committed that could not be carried out.
        self.check_paths(&journal)?;
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        let largest = self.writes.iter().max_by_key(|write| write.content.len());
        if let Some(write) = largest.filter(|write| write.content.len() as u64 > files::MAX_RECORD) {
            return Err(too_large(&agent.join(&write.path), write.content.len(), files::MAX_RECORD));
        }
        if bytes.len() as u64 > files::MAX_JOURNAL {
            return Err(too_large(&journal, bytes.len(), files::MAX_JOURNAL));
        }
        disk.replace(&agent.join(layout::TMP).join(layout::JOURNAL), &journal, &bytes)
    }

    /// Carries it out, as often as it takes, and removes it.
    ///
    /// Everything is written and synced, many files at once, before the first name changes; the names are
    /// synced in the same way. The journal goes last. However much it names, few files are open at a time.
    pub fn apply(&self, agent: &AgentDir, disk: Disk) -> Result<()> {
        self.check_paths(&agent.join(layout::JOURNAL))?;
        let mut touched = BTreeSet::new();
        let mut written = disk.unsynced();
        for (at, write) in self.writes.iter().enumerate() {
            let staged = staged_name(agent, at);
            written.add(disk.stage_unsynced(&staged, write.content.as_bytes())?, &staged)?;
        }
        for append in &self.appends {
            let spot = agent.join(&append.path);
            written.add(write_append(&spot, append, &mut touched)?, &spot)?;
        }
        written.sync()?;
        for (at, write) in self.writes.iter().enumerate() {
            note_dirs(&write.path, &mut touched);
            files::rename(&staged_name(agent, at), &agent.join(&write.path))?;
        }
        for delete in &self.deletes {
            agent.join(delete).remove()?;
            touched.extend(Path::new(delete).parent());
        }
        disk.sync_dirs(touched.into_iter().map(|dir| agent.join(dir)))?;
        agent.join(layout::JOURNAL).remove()?;
        self.remove_empty_segments(agent);
        Ok(())
    }

    /// A directory of the inbox that has given its last message is of no more use. One that is
    /// not empty stays by itself.
    fn remove_empty_segments(&self, agent: &AgentDir) {
        for delete in &self.deletes {
            if Path::new(delete).components().count() == 3 && delete.starts_with(layout::INBOX) {
                let _ = agent.join(delete).parent().remove_dir();
            }
        }
    }
}

fn too_large(spot: &Spot, bytes: usize, most: u64) -> Error {
    Error::Refused {
        kind: "transaction_too_large",
        message: format!("{} would have {bytes} bytes, and no reader takes more than {most}", spot.display()),
        hint: Some("nothing was changed; put what is large into files of its own".to_owned()),
    }
}

/// Only whoever holds the lock stages, so that the same names will do every time.
fn staged_name(agent: &AgentDir, at: usize) -> Spot {
    agent.join(layout::TMP).join(format!("apply-{at}"))
}

/// The directory of a new name must be synced, and so must all above it: each may be new itself,
/// made a moment ago for this run, or by an earlier attempt at this very transaction that was killed.
fn note_dirs<'j>(target: &'j str, touched: &mut BTreeSet<&'j Path>) {
    touched.extend(Path::new(target).ancestors().skip(1));
}

fn write_append<'j>(spot: &Spot, append: &'j Append, touched: &mut BTreeSet<&'j Path>) -> Result<File> {
    let begins = append.offset == 0;
    if begins {
        note_dirs(&append.path, touched);
        spot.parent().make_dirs()?;
    }
    let (file, _) = spot.open_in_place(begins)?.ok_or_else(|| Error::gone("append to", spot))?;
    file.write_all_at(append.content.as_bytes(), append.offset).context("append to", spot)?;
    // What a torn earlier attempt may have left behind goes.
    file.set_len(append.offset + append.content.len() as u64).context("append to", spot)?;
    Ok(file)
}
