//! The inbox: arrivals without a lock, and the next message at a cost that does not grow with the backlog.
//!
//! Arrivals are files right in `inbox/`. When many have gathered there, the executor files them,
//! in order, into segments: directories of at most [`SEGMENT`] messages, each named after its
//! first. A message is filed once, so a long backlog costs each message one rename, and the next
//! message is found by a look at what is new and at the first segment.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use crate::error::{Context, Result};
use crate::model::id::MessageId;
use crate::model::message::{InboxKey, Message, Priority, WakeHint};

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
    /// Not ours: hidden files, other directories.
    Other,
}

/// Reads a name. Anything that does not look like ours and is not hidden is a hand-written file.
pub fn parse_name(name: &[u8], is_dir: bool) -> Name {
    let Ok(text) = std::str::from_utf8(name) else { return if is_dir { Name::Other } else { Name::Drop } };
    if text.starts_with('.') {
        return Name::Other;
    }
    if is_dir && text == layout::REJECTED {
        return Name::Rejected;
    }
    if is_dir {
        return parse_key(text).map_or(Name::Other, Name::Segment);
    }
    let Some(stem) = text.strip_suffix(".json") else { return Name::Drop };
    if let Some(id) = stem.strip_prefix("w-").and_then(|id| id.parse().ok()) {
        return Name::Hint(id);
    }
    parse_key(stem).map_or(Name::Drop, Name::Message)
}

fn parse_key(text: &str) -> Option<InboxKey> {
    let (digit, id) = text.split_once('-')?;
    let digit = digit.parse::<u8>().ok().filter(|_| digit.len() == 1)?;
    Some(InboxKey { priority: Priority::from_digit(digit)?, id: id.parse().ok()? })
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
}

impl Scan {
    /// Whether a message of background priority may wait. Of a backlog nobody knows without a look.
    pub fn has_background(&self) -> bool {
        !self.segments.is_empty()
            || self.direct.last().is_some_and(|key| key.priority == Priority::Background)
    }
}

/// Whether there is anything in the inbox at all: the one look of a step that finds nothing to do.
pub fn is_empty(view: &View<'_>) -> Result<bool> {
    let mut empty = true;
    files::each_entry(&view.agent.join(layout::INBOX), |name, is_dir| {
        empty = matches!(parse_name(name, is_dir), Name::Other | Name::Rejected);
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
        Name::Drop => scan.drops.push(files::child(Path::new(""), name)),
        Name::Rejected => scan.has_rejected = true,
        Name::Other => {}
    };
    files::each_entry(&view.agent.join(layout::INBOX), |name, is_dir| {
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
    scan.direct.sort_unstable();
    scan.direct.dedup();
    scan.segments.sort_unstable();
    scan.hints.sort_unstable();
    scan.hints.dedup();
    scan.drops.sort_unstable();
    Ok(scan)
}

fn segment_path(segment: InboxKey) -> String {
    format!("{}/{segment}", layout::INBOX)
}

fn filed_path(segment: InboxKey, key: InboxKey) -> String {
    format!("{}/{segment}/{key}.json", layout::INBOX)
}

fn segment_keys(view: &View<'_>, segment: InboxKey) -> Result<Vec<InboxKey>> {
    let mut keys = Vec::new();
    files::each_entry(&view.agent.join(segment_path(segment)), |name, is_dir| {
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
        let keys = segment_keys(view, *segment)?;
        found.extend(keys.into_iter().map(|key| (key, filed_path(*segment, key))));
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
        keys.extend(segment_keys(view, *segment)?);
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// Where a message lies, if it is in the inbox: `inbox/` or the segment it was filed in.
pub fn find(view: &View<'_>, key: InboxKey) -> Result<Option<String>> {
    let direct = layout::message(key);
    if view.exists(&direct) {
        return Ok(Some(direct));
    }
    Ok(find_filed(view, &scan(view)?.segments, key))
}

/// The same for whoever knows the segments.
pub fn find_among(view: &View<'_>, segments: &[InboxKey], key: InboxKey) -> Option<String> {
    let direct = layout::message(key);
    if view.exists(&direct) { Some(direct) } else { find_filed(view, segments, key) }
}

/// Segments may overlap where late arrivals were filed, so every one that begins before counts.
fn find_filed(view: &View<'_>, segments: &[InboxKey], key: InboxKey) -> Option<String> {
    let before = segments.iter().rev().filter(|segment| **segment <= key);
    before.map(|segment| filed_path(*segment, key)).find(|path| view.exists(path))
}

/// A message by its id alone.
pub fn find_id(view: &View<'_>, scan: &Scan, id: MessageId) -> Option<(InboxKey, String)> {
    if let Some(key) = scan.direct.iter().find(|key| key.id == id) {
        return Some((*key, layout::message(*key)));
    }
    let keys = Priority::ALL.iter().map(|priority| InboxKey { priority: *priority, id });
    keys.filter(|_| !scan.segments.is_empty())
        .find_map(|key| Some((key, find_filed(view, &scan.segments, key)?)))
}

/// Reads a message at its place, or where it was filed since; the name must be that of its content.
pub fn read(view: &View<'_>, key: InboxKey, path: &str) -> Result<Option<Message>> {
    let message = match view.record::<Message>(path)? {
        None if !view.is_locked() => match find_filed(view, &scan(view)?.segments, key) {
            Some(path) => view.record(&path)?,
            None => None,
        },
        found => found,
    };
    let Some(message) = message else { return Ok(None) };
    if message.key() != key {
        let at = view.agent.join(path);
        return Err(crate::error::Error::damaged(
            at,
            format!("the file is named {key}, its content is {}", message.key()),
        ));
    }
    Ok(Some(message))
}

/// How many files lie where those are put that can't be admitted. Costs nothing where there never was one.
pub fn rejected(view: &View<'_>, scan: &Scan) -> Result<usize> {
    let mut count = 0;
    if scan.has_rejected {
        files::each_entry(&view.agent.join(layout::INBOX).join(layout::REJECTED), |name, _| {
            count += usize::from(!is_reason(name));
            true
        })?;
    }
    Ok(count)
}

/// How the name of the file ends that says why another one was rejected.
pub const REASON: &str = ".reason";

pub fn is_reason(name: &[u8]) -> bool {
    name.ends_with(REASON.as_bytes())
}

/// Reads the waiting hints, in order of arrival.
pub fn read_hints(view: &View<'_>, scan: &Scan) -> Result<Vec<WakeHint>> {
    let mut hints = Vec::with_capacity(scan.hints.len());
    for id in &scan.hints {
        hints.extend(view.record::<WakeHint>(&layout::hint(*id))?);
    }
    Ok(hints)
}

/// How the name of a hand-written file begins once a step has taken it.
const TAKEN: &str = "taken~";

/// The name under which a hand-written file is taken: who drops another one of its name from then on
/// replaces nothing, and no step removes what it has not read.
pub fn taken_name(given: &Path) -> PathBuf {
    let mut name = OsString::from(TAKEN);
    name.push(given);
    PathBuf::from(name)
}

/// The name that a hand-written file had when it was dropped; `None` if it is not taken yet.
pub fn given_name(taken: &Path) -> Option<&Path> {
    let name = taken.as_os_str().as_bytes().strip_prefix(TAKEN.as_bytes())?;
    Some(Path::new(OsStr::from_bytes(name)))
}

/// The id of a hand-written file's message. It comes from the file alone, so that a file that is
/// admitted twice, because a crash came in between, is the same message twice.
pub fn drop_identity(path: &Path, bytes: &[u8]) -> Result<MessageId> {
    let modified = std::fs::metadata(path).and_then(|found| found.modified()).context("look at", path)?;
    let millis = modified.duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis());
    let mut hash = Sha256::new();
    let name = Path::new(path.file_name().unwrap_or_default());
    hash.update(given_name(name).unwrap_or(name).as_os_str().as_encoded_bytes());
    hash.update(bytes);
    let random: [u8; 10] = std::array::from_fn({
        let digest = hash.finalize();
        move |at| digest[at]
    });
    let millis = u64::try_from(millis).unwrap_or(0);
    Ok(MessageId(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()))
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
        files::make_dir(&view.agent.join(segment_path(keys[0])))?;
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
