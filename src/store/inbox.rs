//! The inbox: arrivals without a lock, and the next message at a cost that does not grow with the backlog.
//!
//! Arrivals are files right in `inbox/`. When many have gathered there, the executor files them,
//! in order, into segments: directories of at most [`SEGMENT`] messages, each named after its
//! first. A message is filed once, so a long backlog costs each message one rename, and the next
//! message is found by a look at what is new and at the first segment.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::beneath::Spot;
use crate::error::{Error, Result};
use crate::model::id::{AgentName, MessageId};
use crate::model::message::{InboxKey, Message, Priority, WakeHint};
use crate::model::records::Misfit;

use super::authors;
use super::drops::fault_of_file;
use super::files::{self, Disk};
use super::layout;
use super::view::View;

/// How many messages may lie in `inbox/` itself, and in one segment.
pub const SEGMENT: usize = 1024;

/// What a name in the inbox stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    Message(InboxKey),
    Hint(MessageId),
    /// A directory of messages from this one on.
    Segment(InboxKey),
    /// A hand-written file that asks to be admitted.
    Drop,
    /// The directory of files that could not be admitted.
    Rejected,
    /// Not ours: hidden files.
    Other,
}

/// Reads a name. Anything that does not look like ours and is not hidden is taken for a hand-written file.
pub fn parse_name(name: &[u8], is_dir: bool) -> Name {
    let Ok(text) = std::str::from_utf8(name) else { return Name::Drop };
    if text.starts_with('.') {
        return Name::Other;
    }
    if is_dir && text == layout::REJECTED {
        return Name::Rejected;
    }
    if is_dir {
        return InboxKey::parse(text).map_or(Name::Drop, Name::Segment);
    }
    let Some(stem) = text.strip_suffix(".json") else { return Name::Drop };
    if let Some(id) = stem.strip_prefix("w-").and_then(|id| id.parse().ok()) {
        return Name::Hint(id);
    }
    InboxKey::parse(stem).map_or(Name::Drop, Name::Message)
}

/// What lies in the inbox, by name alone.
#[derive(Debug, Default)]
pub struct Scan {
    /// The messages right in `inbox/`, sorted.
    pub direct: Vec<InboxKey>,
    /// Sorted.
    pub segments: Vec<InboxKey>,
    pub hints: Vec<MessageId>,
    /// Names of hand-written files, sorted.
    pub drops: Vec<PathBuf>,
    /// Whether there is a directory of files that could not be admitted.
    pub has_rejected: bool,
    /// What is left out of all these, in segments too: paths from the inbox.
    passed_over: HashSet<String>,
}

impl Scan {
    /// Leaves out what can be neither read nor moved. Its paths are from the inbox.
    pub fn pass_over(&mut self, paths: impl IntoIterator<Item = String>) {
        self.passed_over.extend(paths);
        let passed_over = &self.passed_over;
        if passed_over.is_empty() {
            return;
        }
        self.direct.retain(|key| !passed_over.contains(&format!("{key}.json")));
        self.segments.retain(|key| !passed_over.contains(&key.to_string()));
        self.hints.retain(|id| !passed_over.contains(&format!("w-{id}.json")));
        self.drops.retain(|name| !passed_over.contains(&*name.to_string_lossy()));
    }

    /// Whether a message of background priority may wait. Of a backlog nobody knows without a look.
    pub fn has_background(&self) -> bool {
        !self.segments.is_empty()
            || self.direct.last().is_some_and(|key| key.priority == Priority::Background)
    }
}

/// Whether there is anything in the inbox at all but what is passed over: the one look of a step that finds
/// nothing to do.
pub fn is_empty(view: &View<'_>, passed_over: &[String]) -> Result<bool> {
    let mut empty = true;
    view.agent.join(layout::INBOX).each_entry(|name, is_dir| {
        empty = matches!(parse_name(name, is_dir), Name::Other | Name::Rejected)
            || passed_over.iter().any(|path| *path == String::from_utf8_lossy(name));
        empty
    })?;
    Ok(empty && !view.has_journal())
}

/// Lists the inbox. Whoever has no lock lists it until no segment has come since the time before: of a
/// message that was filed meanwhile either the name was seen, or the segment.
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

/// Names in `inbox/` are read before those of segments, so that a message that is filed meanwhile is
/// seen twice rather than not at all.
fn list(view: &View<'_>) -> Result<Scan> {
    let mut scan = Scan::default();
    let mut note = |name: &[u8], is_dir: bool| match parse_name(name, is_dir) {
        Name::Message(key) => scan.direct.push(key),
        Name::Segment(key) => scan.segments.push(key),
        Name::Hint(id) => scan.hints.push(id),
        Name::Drop => scan.drops.push(PathBuf::from(OsStr::from_bytes(name))),
        Name::Rejected => scan.has_rejected = true,
        Name::Other => {}
    };
    view.agent.join(layout::INBOX).each_entry(|name, is_dir| {
        note(name, is_dir);
        true
    })?;
    let mut overlaid = Vec::new();
    view.overlay_names(layout::INBOX, &mut overlaid);
    for path in overlaid {
        note(path.trim_start_matches("inbox/").as_bytes(), false);
    }
    if view.has_journal() {
        scan.direct.retain(|key| !view.is_deleted(&layout::message(*key)));
        scan.hints.retain(|id| !view.is_deleted(&layout::hint(*id)));
    }
    leave_to_others(view, &mut scan)?;
    scan.direct.sort_unstable();
    scan.direct.dedup();
    scan.segments.sort_unstable();
    scan.hints.sort_unstable();
    scan.hints.dedup();
    scan.drops.sort_unstable();
    Ok(scan)
}

/// A directory that another user has made is none of ours, whatever its name: it is set aside like any other
/// thing that was dropped. There is none where nobody else may write.
fn leave_to_others(view: &View<'_>, scan: &mut Scan) -> Result<()> {
    if scan.segments.is_empty() && !scan.has_rejected {
        return Ok(());
    }
    let inbox = view.agent.join(layout::INBOX);
    if inbox.look()?.is_none_or(|found| found.st_mode & 0o022 == 0) {
        return Ok(());
    }
    let mut others = Vec::new();
    for segment in std::mem::take(&mut scan.segments) {
        let name = PathBuf::from(segment.to_string());
        if is_own(&inbox.join(&name))? { scan.segments.push(segment) } else { others.push(name) }
    }
    if scan.has_rejected && !is_own(&inbox.join(layout::REJECTED))? {
        scan.has_rejected = false;
        others.push(PathBuf::from(layout::REJECTED));
    }
    scan.drops.extend(others);
    Ok(())
}

/// Whether what lies there was not made by another user. What has gone away counts as the owner's.
pub fn is_own(spot: &Spot) -> Result<bool> {
    spot.look()?.map_or(Ok(true), |found| authors::is_owners(spot, found.st_uid))
}

fn segment_path(segment: InboxKey) -> String {
    format!("{}/{segment}", layout::INBOX)
}

fn filed_path(segment: InboxKey, key: InboxKey) -> String {
    format!("{}/{segment}/{key}.json", layout::INBOX)
}

/// The messages of a segment, and where each lies. One that can't be opened stands for what is in it: who
/// reads it finds what is wrong with it.
fn segment_messages(view: &View<'_>, scan: &Scan, segment: InboxKey) -> Result<Vec<(InboxKey, String)>> {
    let keys = match segment_keys(view, segment) {
        Ok(keys) => keys,
        Err(error) => {
            fault_of_file(error)?;
            return Ok(vec![(segment, segment_path(segment))]);
        }
    };
    let placed = keys.into_iter().map(|key| (key, filed_path(segment, key)));
    let is_left = |path: &str| scan.passed_over.contains(path.trim_start_matches("inbox/"));
    Ok(placed.filter(|(_, path)| scan.passed_over.is_empty() || !is_left(path)).collect())
}

fn segment_keys(view: &View<'_>, segment: InboxKey) -> Result<Vec<InboxKey>> {
    let mut keys = Vec::new();
    view.agent.join(segment_path(segment)).each_entry(|name, is_dir| {
        if let Name::Message(key) = parse_name(name, is_dir) {
            keys.push(key);
        }
        true
    })?;
    if view.has_journal() {
        keys.retain(|key| !view.is_deleted(&filed_path(segment, *key)));
    }
    Ok(keys)
}

/// The first `count` messages in processing order, without those to skip, and where each lies.
///
/// A segment holds nothing before its own name, so segments are opened only until the next one
/// begins behind what was found.
pub fn first(view: &View<'_>, scan: &Scan, count: usize) -> Result<Vec<(InboxKey, String)>> {
    let mut found: Vec<(InboxKey, String)> =
        scan.direct.iter().take(count).map(|key| (*key, layout::message(*key))).collect();
    for segment in &scan.segments {
        if found.len() >= count && found[count - 1].0 < *segment {
            break;
        }
        found.extend(segment_messages(view, scan, *segment)?);
        found.sort();
        // The same message in two places is one message.
        found.dedup_by_key(|(key, _)| *key);
        found.truncate(count);
    }
    Ok(found)
}

/// Every message key, in processing order.
pub fn all(view: &View<'_>, scan: &Scan) -> Result<Vec<InboxKey>> {
    let mut keys = scan.direct.clone();
    for segment in &scan.segments {
        keys.extend(segment_messages(view, scan, *segment)?.into_iter().map(|(key, _)| key));
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// Where a message lies that was filed, if it was.
///
/// Segments may overlap where late arrivals were filed, so every one that begins before counts.
pub fn find_filed(view: &View<'_>, segments: &[InboxKey], key: InboxKey) -> Result<Option<String>> {
    for segment in segments.iter().rev().filter(|segment| **segment <= key) {
        let path = filed_path(*segment, key);
        if view.exists(&path)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// A message by its id alone.
pub fn find_id(view: &View<'_>, scan: &Scan, id: MessageId) -> Result<Option<(InboxKey, String)>> {
    if let Some(key) = scan.direct.iter().find(|key| key.id == id) {
        return Ok(Some((*key, layout::message(*key))));
    }
    for priority in Priority::ALL.iter().filter(|_| !scan.segments.is_empty()) {
        let key = InboxKey { priority: *priority, id };
        if let Some(path) = find_filed(view, &scan.segments, key)? {
            return Ok(Some((key, path)));
        }
    }
    Ok(None)
}

/// Reads a message at its place, or where it was filed since. It has to be the one that the name says, and
/// this agent's. A file of another user is that user's word, whatever stands in it.
pub fn read(view: &View<'_>, key: InboxKey, path: &str) -> Result<Option<Message>> {
    let found = match view.arrival::<Message>(path)? {
        None if !view.is_locked() => match find_filed(view, &scan(view)?.segments, key)? {
            Some(path) => view.arrival(&path)?,
            None => None,
        },
        found => found,
    };
    let Some((message, user)) = found else { return Ok(None) };
    let wrong = if message.key() != key {
        format!("the file is named {key}, its content is {}", message.key())
    } else if !is_owner(view, &message.agent) {
        format!("it is a message to `{}`: it belongs into that agent's inbox", message.agent)
    } else {
        let said = match user {
            Some(user) => message.said_by(&user),
            None => return Ok(Some(message)),
        };
        match said {
            Ok(message) => return Ok(Some(message)),
            Err(wrong) => wrong,
        }
    };
    Err(Error::damaged(view.agent.join(path).path(), wrong))
}

fn is_owner(view: &View<'_>, agent: &AgentName) -> bool {
    view.agent.path().file_name().is_some_and(|name| name == agent.as_str())
}

/// The same for whoever goes on with the next one: what can't be read, or is another's, is a misfit.
pub fn try_read(view: &View<'_>, key: InboxKey, path: &str) -> Result<Option<Result<Message, Misfit>>> {
    match read(view, key, path) {
        Ok(found) => Ok(found.map(Ok)),
        Err(error) => Ok(Some(Err(misfit(path, error)?))),
    }
}

/// `path` is from the agent's directory.
fn misfit(path: &str, error: Error) -> Result<Misfit> {
    Ok(unfit(path, fault_of_file(error)?))
}

/// What lies at `path`, from the agent's directory, and why it is no message of the agent.
pub fn unfit(path: &str, reason: String) -> Misfit {
    let path = path.strip_prefix(layout::INBOX).unwrap_or(path).trim_start_matches('/').to_owned();
    Misfit { path, reason }
}

/// Reads the waiting hints, in order of arrival, and what lies there instead of some.
pub fn read_hints(view: &View<'_>, scan: &Scan) -> Result<(Vec<WakeHint>, Vec<Misfit>)> {
    let mut hints = Vec::with_capacity(scan.hints.len());
    let mut misfits = Vec::new();
    for id in &scan.hints {
        let path = layout::hint(*id);
        match read_hint(view, *id, &path) {
            Ok(hint) => hints.extend(hint),
            Err(error) => misfits.push(misfit(&path, error)?),
        }
    }
    Ok((hints, misfits))
}

/// Reads a hint: the one that the name says, and this agent's.
pub fn read_hint(view: &View<'_>, id: MessageId, path: &str) -> Result<Option<WakeHint>> {
    let Some((hint, user)) = view.arrival::<WakeHint>(path)? else { return Ok(None) };
    let wrong = if hint.id != id {
        format!("the file is named {id}, its content is {}", hint.id)
    } else if !is_owner(view, &hint.agent) {
        format!("it is a hint to `{}`: it belongs into that agent's inbox", hint.agent)
    } else {
        return Ok(Some(match user {
            Some(user) => hint.said_by(&user),
            None => hint,
        }));
    };
    Err(Error::damaged(view.agent.join(path).path(), wrong))
}

/// Files the messages that lie in `inbox/` into segments, if there are many. Only whoever holds the
/// lock may do this; a kill in between leaves each message in the one place or the other.
pub fn file_backlog(view: &View<'_>, scan: &mut Scan, disk: Disk) -> Result<()> {
    if scan.direct.len() <= SEGMENT {
        return Ok(());
    }
    let inbox = view.agent.join(layout::INBOX);
    let direct = std::mem::take(&mut scan.direct);
    for keys in direct.chunks(SEGMENT) {
        view.agent.join(segment_path(keys[0])).make_dirs()?;
        scan.segments.push(keys[0]);
    }
    scan.segments.sort_unstable();
    // The directories come first: a message that has left inbox/ must have arrived somewhere.
    disk.sync_dir(&inbox)?;
    for keys in direct.chunks(SEGMENT) {
        for key in keys {
            files::rename(
                &view.agent.join(layout::message(*key)),
                &view.agent.join(filed_path(keys[0], *key)),
            )?;
        }
        disk.sync_dir(&view.agent.join(segment_path(keys[0])))?;
    }
    disk.sync_dir(&inbox)
}
