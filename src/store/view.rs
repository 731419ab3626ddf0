//! The files of one agent as they are once an interrupted transaction is finished, read without a lock.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::str::FromStr;

use crate::beneath::Content;
use crate::error::{Error, Result};
use crate::model::record::Record;

use super::authors;
use super::files;
use super::journal::Journal;
use super::layout::AgentDir;
use super::record::decode;

/// An agent's directory, with the contents of a journal over it that nobody has applied yet.
#[derive(Debug)]
pub struct View<'a> {
    pub agent: &'a AgentDir,
    overlay: Option<Overlay>,
    is_locked: bool,
}

/// A journal, and where in it each file is.
#[derive(Debug)]
struct Overlay {
    journal: Journal,
    /// By path, the place of a file among the writes; `None`: it is deleted.
    places: HashMap<String, Option<usize>>,
}

impl Overlay {
    /// As carrying it out would leave the files: the last write counts, and deletes come after all writes.
    fn of(journal: Journal) -> Overlay {
        let writes = journal.writes.iter().enumerate().map(|(at, write)| (write.path.clone(), Some(at)));
        let places = writes.chain(journal.deletes.iter().map(|path| (path.clone(), None))).collect();
        Overlay { journal, places }
    }

    /// The new content of a file: `Some(None)` if the transaction deletes it.
    fn content(&self, path: &str) -> Option<Option<&str>> {
        self.places.get(path).map(|place| place.map(|at| self.journal.writes[at].content.as_str()))
    }
}

impl<'a> View<'a> {
    /// For whoever holds the lock, after the journal is finished.
    pub fn settled(agent: &'a AgentDir) -> View<'a> {
        View { agent, overlay: None, is_locked: true }
    }

    /// For whoever reads without the lock.
    pub fn open(agent: &'a AgentDir) -> Result<View<'a>> {
        Ok(View { agent, overlay: Journal::read(agent)?.map(Overlay::of), is_locked: false })
    }

    /// Whether nobody else can move anything meanwhile.
    pub fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Takes a journal as void that later transactions have gone past.
    pub fn at_revision(&mut self, revision: u64) {
        if self.overlay.as_ref().is_some_and(|overlay| !overlay.journal.counts_at(revision)) {
            self.overlay = None;
        }
    }

    /// Whether a transaction has begun since to change files under a reader at this revision: one that
    /// this view does not know of.
    pub fn is_overtaken_at(&self, revision: u64) -> Result<bool> {
        let known = self.overlay.as_ref().map(|overlay| overlay.journal.base_revision);
        let now = Journal::read(self.agent)?.filter(|journal| journal.counts_at(revision));
        Ok(now.is_some_and(|journal| Some(journal.base_revision) != known))
    }

    pub fn has_journal(&self) -> bool {
        self.overlay.is_some()
    }

    /// A file's content; `None` if there is none.
    pub fn bytes(&self, path: &str) -> Result<Option<Vec<u8>>> {
        match self.overlay.as_ref().and_then(|overlay| overlay.content(path)) {
            Some(content) => Ok(content.map(|content| content.as_bytes().to_vec())),
            None => files::read(&self.agent.join(path)),
        }
    }

    /// Whether there is such a file.
    pub fn exists(&self, path: &str) -> Result<bool> {
        match self.overlay.as_ref().and_then(|overlay| overlay.content(path)) {
            Some(content) => Ok(content.is_some()),
            None => self.agent.join(path).exists(),
        }
    }

    /// A record; `None` if there is none. One that lies under another's name is refused: its next
    /// change would go elsewhere, and leave it here.
    pub fn record<T: Record>(&self, path: &str) -> Result<Option<T>> {
        let Some(bytes) = self.bytes(path)? else { return Ok(None) };
        self.decoded(path, &bytes).map(Some)
    }

    /// The same for what others may put into the inbox: with the name of the user whose file it is, where
    /// that is not the owner.
    pub fn arrival<T: Record>(&self, path: &str) -> Result<Option<(T, Option<String>)>> {
        if self.overlay.as_ref().is_some_and(|overlay| overlay.content(path).is_some()) {
            return Ok(self.record(path)?.map(|record| (record, None)));
        }
        let spot = self.agent.join(path);
        let Some(Content { bytes, owner }) = files::read_owned(&spot)? else { return Ok(None) };
        let record = self.decoded(path, &bytes)?;
        Ok(Some((record, authors::other(&spot, owner)?)))
    }

    fn decoded<T: Record>(&self, path: &str, bytes: &[u8]) -> Result<T> {
        let path = self.agent.join(path);
        let record: T = decode(&path, bytes)?;
        match record.file_id() {
            Some(id) if path.file_stem() != Some(OsStr::new(&id)) => Err(Error::damaged(
                path.path(),
                format!("its content is {id}: a record lies under its own id"),
            )),
            _ => Ok(record),
        }
    }

    /// Every record of a directory, in the order of their names.
    pub fn records<T: Record>(&self, dir: &str) -> Result<Vec<T>> {
        let paths = self.record_paths(dir)?;
        let mut records = Vec::with_capacity(paths.len());
        for path in paths {
            records.extend(self.record(&path)?);
        }
        Ok(records)
    }

    /// The ids of the records of a directory, in order. A record is named after its id, so none is
    /// opened for this.
    pub fn ids<Id: FromStr>(&self, dir: &str) -> Result<Vec<Id>> {
        let mut paths = self.record_paths(dir)?;
        paths.retain(|path| !self.is_deleted(path));
        let id = |path: &String| Path::new(path).file_stem()?.to_str()?.parse().ok();
        Ok(paths.iter().filter_map(id).collect())
    }

    fn record_paths(&self, dir: &str) -> Result<Vec<String>> {
        let mut paths = Vec::new();
        self.agent.join(dir).each_entry(|name, _| {
            if name.ends_with(b".json") && !name.starts_with(b".") {
                paths.push(format!("{dir}/{}", String::from_utf8_lossy(name)));
            }
            true
        })?;
        self.overlay_names(dir, &mut paths);
        // The prose plan of a work item lies beside it.
        paths.retain(|path| path.ends_with(".json"));
        paths.sort();
        paths.dedup();
        Ok(paths)
    }

    /// Adds the names that the journal puts into a directory; what it deletes reads as absent.
    pub fn overlay_names(&self, dir: &str, paths: &mut Vec<String>) {
        let Some(Overlay { journal, .. }) = &self.overlay else { return };
        let here = |path: &str| Path::new(path).parent() == Some(Path::new(dir));
        paths.extend(journal.writes.iter().map(|write| write.path.clone()).filter(|path| here(path)));
    }

    /// The files below a directory that the journal appends to: the first line of one makes it.
    pub fn overlay_appends<'v>(&'v self, dir: &'v str) -> impl Iterator<Item = String> + 'v {
        let appends = self.overlay.iter().flat_map(|overlay| &overlay.journal.appends);
        appends.map(|append| append.path.clone()).filter(move |path| Path::new(path).starts_with(dir))
    }

    /// Whether the journal deletes this file.
    pub fn is_deleted(&self, path: &str) -> bool {
        self.overlay.as_ref().is_some_and(|overlay| overlay.content(path) == Some(None))
    }

    /// A file that only grows, with the lines that the journal appends to it.
    pub fn lines(&self, path: &str) -> Result<Vec<u8>> {
        let mut bytes = self.agent.join(path).read(files::MAX_LINES)?.unwrap_or_default();
        if let Some((offset, appended)) = self.appended(path) {
            bytes.truncate(usize::try_from(offset).unwrap_or(usize::MAX));
            bytes.extend_from_slice(appended);
        }
        Ok(bytes)
    }

    /// From where on a file that only grows is what the journal says, and what that is.
    pub fn appended(&self, path: &str) -> Option<(u64, &[u8])> {
        let mut appends = self.overlay.iter().flat_map(|overlay| &overlay.journal.appends);
        let append = appends.find(|append| append.path == path)?;
        Some((append.offset, append.content.as_bytes()))
    }
}
