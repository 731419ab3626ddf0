//! Inbox of an agent: messages arrive without a lock, and finding the next message costs the same
//! with any backlog.
//!
//! An arrival is a file directly in `inbox/`. Large numbers of messages are in directories, each
//! named after its first message: buckets, of any number, and segments, of at most [`SEGMENT`]
//! messages, which steps make from the next bucket (see `backlog`). To find the next message, a
//! step lists only the files directly in `inbox/` and the first segment.
//!
//! A message only ever moves from the inbox to a bucket and from there to a segment. A reader
//! without the lock reads in this order, so it may see a message twice but never misses one.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::cap_fs::CapPath;
use crate::error::Result;
use crate::local::{authors, files::fault_of_file, layout};
use crate::model::id::{AgentName, MessageId};
use crate::model::message::{InboxKey, Message, Priority, WakeHint};
use crate::model::records::MalformedFile;

use super::view::View;

/// Maximum number of messages directly in `inbox/`, and in one segment.
pub const SEGMENT: usize = 1024;

/// Modification time, in seconds and nanoseconds since 1970, of a large message directory (bucket)
/// into which no file has been put since a step scanned the bucket.
pub const CLEAN: (i64, u64) = (1, 0);

/// Placeholder for the modification time of a large message directory that was not read yet.
const UNKNOWN: (i64, u64) = (0, 0);

/// Smallest key of a message: it precedes every message.
const LEAST: InboxKey = InboxKey { priority: Priority::Interject, id: MessageId(Uuid::nil()) };

/// Inbox file of another program, or one that is named like a message or a hint but is neither. A
/// step admits or rejects it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dropped {
    /// Path of the entry, relative to the inbox.
    pub(super) place: PathBuf,
}

/// Result of moving a malformed file out of the inbox.
#[derive(Debug)]
pub enum QuarantineOutcome {
    /// The file is now in `rejected/`, under this name.
    Moved(String),
    /// The file can't be moved, for this reason, and stays in the inbox.
    Stays(String),
    Gone,
}

impl Dropped {
    /// Path relative to the inbox, for display and for the list of files that steps skip.
    pub fn name(&self) -> Cow<'_, str> {
        self.place.to_string_lossy()
    }
}

impl From<&MalformedFile> for Dropped {
    fn from(file: &MalformedFile) -> Dropped {
        Dropped { place: PathBuf::from(&file.name) }
    }
}

/// Kind of an inbox entry, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    Message(InboxKey),
    Hint(MessageId),
    /// Directory of messages; its name states that none of them precedes this key.
    Segment(InboxKey),
    /// File that another program has put into the inbox for admission.
    Drop,
    /// Directory of files that could not be admitted.
    Rejected,
    /// Hidden file, which the program ignores.
    Other,
}

/// Parses a name. A name that is neither hidden nor in a form that the program uses belongs to a
/// file of another program.
pub fn parse_name(name: &[u8], is_dir: bool) -> Name {
    let Ok(text) = std::str::from_utf8(name) else { return Name::Drop };
    if text.starts_with('.') {
        return Name::Other;
    }
    if is_dir && text == layout::REJECTED {
        return Name::Rejected;
    }
    if is_dir {
        let first = InboxKey::parse(text).or_else(|| layout::parse_bucket(text));
        return first.map_or(Name::Drop, Name::Segment);
    }
    let Some(stem) = text.strip_suffix(".json") else { return Name::Drop };
    if let Some(id) = stem.strip_prefix("w-").and_then(|id| id.parse().ok()) {
        return Name::Hint(id);
    }
    InboxKey::parse(stem).map_or(Name::Drop, Name::Message)
}

/// Directory of messages in the inbox, sorted by the least message key that it may contain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// Least key of the messages in the directory.
    pub from: InboxKey,
    /// Path relative to the agent's directory.
    pub path: String,
    /// Modification time, in s and ns, of a large directory (bucket); `None` for a small one.
    pub bucket_changed_at: Option<(i64, u64)>,
}

impl Segment {
    /// True if a file may have arrived in the directory since a step last read it as a whole.
    pub fn is_dirty(&self) -> bool {
        self.bucket_changed_at.is_some_and(|changed_at| changed_at != CLEAN)
    }
}

/// Entries of the inbox, by name alone.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// Keys of the messages directly in `inbox/`, sorted.
    pub direct: Vec<InboxKey>,
    /// Directories of messages, sorted by the least key that each may contain.
    pub segments: Vec<Segment>,
    pub hints: Vec<MessageId>,
    /// Files that other programs put there, sorted, an entry at the path of `rejected/` first.
    pub drops: Vec<Dropped>,
    /// True if the directory of rejected files exists.
    pub has_rejected: bool,
    /// True if a step was interrupted while it replaced the inbox by an empty directory.
    pub is_unfinished: bool,
    /// Paths, relative to the inbox, of files that can be neither read nor moved. All lists in this
    /// scan leave them out.
    passed_over: HashSet<String>,
}

impl Scan {
    /// Adds an entry of the inbox, or of the former inbox that a step is replacing. `dir` is
    /// relative to the agent's directory.
    fn note(&mut self, dir: &str, name: &[u8], is_dir: bool) {
        match parse_name(name, is_dir) {
            Name::Message(key) => self.direct.push(key),
            Name::Segment(from) => {
                let name = String::from_utf8_lossy(name);
                // The modification time is read later.
                let bucket_changed_at = layout::parse_bucket(&name).map(|_| UNKNOWN);
                self.segments.push(Segment { from, path: format!("{dir}/{name}"), bucket_changed_at });
            }
            Name::Hint(id) => self.hints.push(id),
            Name::Drop => self.drop_at(OsStr::from_bytes(name)),
            Name::Rejected => self.has_rejected = true,
            Name::Other => {}
        }
    }

    /// Leaves out files that can be neither read nor moved. Their paths are relative to the inbox.
    pub fn pass_over(&mut self, paths: impl IntoIterator<Item = String>) {
        self.passed_over.extend(paths);
        let passed_over = &self.passed_over;
        if passed_over.is_empty() {
            return;
        }
        self.direct.retain(|key| !passed_over.contains(&format!("{key}.json")));
        self.segments.retain(|segment| !passed_over.contains(from_inbox(&segment.path)));
        self.hints.retain(|id| !passed_over.contains(&format!("w-{id}.json")));
        self.drops.retain(|file| !passed_over.contains(&*file.name()));
    }

    fn drop_at(&mut self, place: impl Into<PathBuf>) {
        self.drops.push(Dropped { place: place.into() });
    }

    /// Lists the inbox once more. The new scan leaves out the same immovable files.
    pub fn anew(self, view: &View<'_>) -> Result<Scan> {
        let mut again = scan(view)?;
        again.pass_over(self.passed_over);
        Ok(again)
    }

    /// True if this scan leaves out files.
    pub fn passes_over(&self) -> bool {
        !self.passed_over.is_empty()
    }
}

/// True if the inbox has only files that steps skip. A step with nothing to do reads nothing else
/// of the inbox.
pub fn is_empty(view: &View<'_>, passed_over: &[String]) -> Result<bool> {
    let mut empty = true;
    view.agent.join(layout::INBOX).each_entry(|name, is_dir| {
        empty = matches!(parse_name(name, is_dir), Name::Other | Name::Rejected)
            || passed_over.iter().any(|path| *path == String::from_utf8_lossy(name));
        empty
    })?;
    Ok(empty && !view.has_journal())
}

/// Lists the inbox. Without the agent's lock, repeats that until no directory was added in between:
/// if a message was moved meanwhile, either its name or the directory was found.
pub fn scan(view: &View<'_>) -> Result<Scan> {
    let mut found = list(view)?;
    while !view.is_locked() {
        let again = list(view)?;
        if again.segments == found.segments {
            break;
        }
        found = again;
    }
    Ok(found)
}

/// Reads the directories of a scan. A reader without the agent's lock starts over if messages may
/// have been moved from one directory to another meanwhile.
fn within<T>(view: &View<'_>, scan: &Scan, look: impl Fn(&Scan) -> Result<T>) -> Result<T> {
    let mut found = look(scan)?;
    if view.is_locked() || scan.segments.is_empty() {
        return Ok(found);
    }
    let mut before = scan.segments.clone();
    loop {
        let mut again = list(view)?;
        if again.segments == before {
            return Ok(found);
        }
        before.clone_from(&again.segments);
        again.pass_over(scan.passed_over.iter().cloned());
        found = look(&again)?;
    }
}

fn list(view: &View<'_>) -> Result<Scan> {
    let mut scan = Scan::default();
    list_dir(view, layout::INBOX, &mut scan)?;
    for path in view.overlay_names(layout::INBOX) {
        scan.note(layout::INBOX, from_inbox(path).as_bytes(), false);
    }
    if view.has_journal() {
        scan.direct.retain(|key| !view.is_deleted(&layout::message(*key)));
        scan.hints.retain(|id| !view.is_deleted(&layout::hint(*id)));
    }
    // The new inbox is made with a bucket, so without a bucket there is no former inbox to list.
    if scan.segments.iter().any(|segment| segment.bucket_changed_at.is_some()) {
        list_former(view, &mut scan)?;
    }
    check_dirs(view, &mut scan)?;
    scan.direct.sort_unstable();
    scan.direct.dedup();
    scan.segments.sort_unstable();
    scan.hints.sort_unstable();
    scan.hints.dedup();
    scan.drops.sort_unstable();
    scan.drops.dedup();
    // An entry at the path of `rejected/` comes first, because it is in the way of that directory.
    scan.drops.sort_by_key(|file| file.place != Path::new(layout::REJECTED));
    Ok(scan)
}

fn list_dir(view: &View<'_>, dir: &str, scan: &mut Scan) -> Result<()> {
    view.agent.join(dir).each_entry(|name, is_dir| {
        scan.note(dir, name, is_dir);
        true
    })
}

/// Adds the entries of the former inbox (`inbox.old`), which exists while a step replaces the inbox
/// by an empty one, or after a kill of that step, and counts as one directory of messages. Lists
/// the new inbox again after that, because the step may have moved entries there meanwhile.
fn list_former(view: &View<'_>, scan: &mut Scan) -> Result<()> {
    if !view.agent.join(layout::FORMER).is_dir()? {
        return Ok(());
    }
    let mut former = Scan::default();
    list_dir(view, layout::FORMER, &mut former)?;
    list_dir(view, layout::INBOX, scan)?;
    scan.is_unfinished = true;
    scan.segments.push(Segment {
        from: LEAST,
        path: layout::FORMER.to_owned(),
        bucket_changed_at: Some(UNKNOWN),
    });
    scan.segments.append(&mut former.segments);
    scan.hints.append(&mut former.hints);
    scan.drops.append(&mut former.drops);
    scan.has_rejected |= former.has_rejected;
    scan.segments.sort_unstable();
    scan.segments.dedup();
    Ok(())
}

/// Reads the modification time of each large message directory (bucket): a changed one may contain
/// any message. Treats a directory that another user has made as a malformed file, whatever its
/// name, so that a step rejects the directory.
fn check_dirs(view: &View<'_>, scan: &mut Scan) -> Result<()> {
    if scan.segments.is_empty() && !scan.has_rejected {
        return Ok(());
    }
    let is_shared = view.agent.join(layout::INBOX).look()?.is_some_and(|found| found.st_mode & 0o022 != 0);
    for mut segment in std::mem::take(&mut scan.segments) {
        let cap = view.agent.join(&segment.path);
        if is_shared && !is_own(&cap)? {
            scan.drop_at(from_inbox(&segment.path));
            continue;
        }
        if segment.bucket_changed_at.is_some() {
            segment.bucket_changed_at =
                Some(cap.look()?.map_or(UNKNOWN, |found| (found.st_mtime, found.st_mtime_nsec)));
            if segment.is_dirty() {
                segment.from = LEAST;
            }
        }
        scan.segments.push(segment);
    }
    if is_shared && scan.has_rejected && !is_own(&view.agent.join(layout::INBOX).join(layout::REJECTED))? {
        scan.has_rejected = false;
        scan.drop_at(layout::REJECTED);
    }
    Ok(())
}

/// True if the file belongs to the owner of the state directory or to root, or is missing by now.
pub fn is_own(cap: &CapPath) -> Result<bool> {
    cap.look()?.map_or(Ok(true), |found| Ok(authors::is_owners(cap, found.st_uid)))
}

pub fn from_inbox(path: &str) -> &str {
    path.strip_prefix(layout::INBOX).and_then(|path| path.strip_prefix('/')).unwrap_or(path)
}

fn filed_path(segment: &Segment, key: InboxKey) -> String {
    format!("{}/{key}.json", segment.path)
}

/// Returns the messages in a directory, and their paths. If the directory can't be opened, returns
/// its first key and its own path: the step that reads this path finds the fault.
fn messages_in(view: &View<'_>, scan: &Scan, segment: &Segment) -> Result<Vec<(InboxKey, String)>> {
    let mut keys = Vec::new();
    let listed = view.agent.join(&segment.path).each_entry(|name, is_dir| {
        if let Name::Message(key) = parse_name(name, is_dir) {
            keys.push(key);
        }
        true
    });
    if let Err(error) = listed {
        fault_of_file(error)?;
        return Ok(vec![(segment.from, segment.path.clone())]);
    }
    let placed = keys.into_iter().map(|key| (key, filed_path(segment, key)));
    let is_there = |path: &str| !scan.passed_over.contains(from_inbox(path)) && !view.is_deleted(path);
    Ok(placed.filter(|(_, path)| is_there(path)).collect())
}

/// Returns the first `count` messages in processing order, without immovable files, and their
/// paths.
///
/// A directory has no message before its own name, so directories are opened only until the next
/// one begins after the last message that was found.
pub fn first(view: &View<'_>, scan: &Scan, count: usize) -> Result<Vec<(InboxKey, String)>> {
    within(view, scan, |scan| {
        let mut found: Vec<(InboxKey, String)> =
            scan.direct.iter().take(count).map(|key| (*key, layout::message(*key))).collect();
        for segment in &scan.segments {
            if found.len() >= count && found[count - 1].0 < segment.from {
                break;
            }
            found.extend(messages_in(view, scan, segment)?);
            found.sort();
            // A message that is found in two places counts once.
            found.dedup_by_key(|(key, _)| *key);
            found.truncate(count);
        }
        Ok(found)
    })
}

/// Returns every message in processing order, and its path.
pub fn all(view: &View<'_>, scan: &Scan) -> Result<Vec<(InboxKey, String)>> {
    within(view, scan, |scan| {
        let mut found: Vec<(InboxKey, String)> =
            scan.direct.iter().map(|key| (*key, layout::message(*key))).collect();
        let (buckets, filed): (Vec<_>, Vec<_>) =
            scan.segments.iter().partition(|segment| segment.bucket_changed_at.is_some());
        for segment in buckets.into_iter().chain(filed) {
            found.extend(messages_in(view, scan, segment)?);
        }
        found.sort_unstable();
        found.dedup_by_key(|(key, _)| *key);
        Ok(found)
    })
}

/// Returns the path of a message that is in a directory of the inbox; `None` if it is in none.
///
/// The ranges of directories may overlap if late arrivals were moved into them, so every directory
/// that begins before the message is searched.
pub fn find_filed(view: &View<'_>, scan: &Scan, key: InboxKey) -> Result<Option<String>> {
    within(view, scan, |scan| find_in(view, &scan.segments, key))
}

/// Returns the path of a message in these directories, which were listed under the agent's lock.
pub fn find_in(view: &View<'_>, segments: &[Segment], key: InboxKey) -> Result<Option<String>> {
    for segment in segments.iter().rev().filter(|segment| segment.from <= key) {
        let path = filed_path(segment, key);
        if view.exists(&path)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Function that returns true if the agent has or had this name.
pub type IsOwnName<'n> = &'n dyn Fn(&AgentName) -> bool;

/// Checks a message under this key in an agent's inbox. The error names the fault.
pub fn check_message(
    message: &Message,
    key: InboxKey,
    is_own: IsOwnName<'_>,
) -> std::result::Result<(), String> {
    check_arrival("message", &message.agent, (&message.key(), &key), is_own)
}

/// Checks a hint under this id in an agent's inbox. The error names the fault.
pub fn check_hint(hint: &WakeHint, id: MessageId, is_own: IsOwnName<'_>) -> std::result::Result<(), String> {
    check_arrival("hint", &hint.agent, (&hint.id, &id), is_own)
}

/// Compares the id and the agent of a record with those that its path names.
fn check_arrival<Id: Display + PartialEq>(
    what: &str,
    agent: &AgentName,
    (id, id_in_path): (&Id, &Id),
    is_own: IsOwnName<'_>,
) -> std::result::Result<(), String> {
    if id != id_in_path {
        Err(format!("the file is named {id_in_path}, its content is {id}"))
    } else if !is_own(agent) {
        Err(format!("it is a {what} to `{agent}`: it belongs into that agent's inbox"))
    } else {
        Ok(())
    }
}
