//! Journal that makes a transaction over several files atomic with one sync.
//!
//! Invariants, and the order of writes that follows from them:
//!
//! 1. A transaction is committed once its line is durable in `journal.jsonl`. No file that it names
//!    **must** be touched before that.
//! 2. Lines **must not** be cut off before all their changes are durable.
//! 3. Only the end of the file may be incomplete: one line that was never committed, and the
//!    "applied" mark of the last committed line. A line that can't be read anywhere else is damage.
//! 4. The mark says that a line was applied, and contains the version of `state.json` after that.
//!    Within one boot the mark is reliable. After another boot any line counts as not applied,
//!    because the power may have failed.
//! 5. All lines were written in one boot, and each is based on the line before.
//! 6. A reader reads in the other order: first the journal, then the files. The lines that are not
//!    applied take precedence over the files.
//! 7. A journal belongs to the machine on which it was written, and never to git. A journal of
//!    another machine, or a journal that git tracks, **must not** be applied: its transactions
//!    belong to other files than these.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, FileType};
use rustix::io::Errno;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::cap_fs::{CapPath, Content, VERSION_LENGTH, Version, kind, nanoseconds};
use crate::error::{Error, IoContext, Result};
use crate::local::files::{self, Disk, conflict_marker};
use crate::local::layout::{self, AgentDir};
use crate::local::machine;
use crate::model::digest::hex;
use crate::model::state::State;

use super::changes::{Append, Changes, Write, too_large};
use super::record::{decode, decode_plain};

/// Journal entry of one transaction. Paths are relative to the agent's directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalEntry {
    pub schema: String,
    /// Id of the machine on which the entry was written, if the machine has an id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    pub base_revision: u64,
    /// Version of the `state.json` that the entry replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Version>,
    pub writes: Vec<Write>,
    pub appends: Vec<Append>,
    pub deletes: Vec<String>,
    /// Line number in the journal, from 1.
    pub number: u64,
}

pub const SCHEMA: &str = "dormouse/journal/1";

impl JournalEntry {
    /// Refuses an entry with a path that no transaction may write: settings, hooks, anything
    /// outside the agent's directory.
    pub fn check_paths(&self, journal: &Path) -> Result<()> {
        let writes = self.writes.iter().map(|write| &write.path);
        let appends = self.appends.iter().map(|append| &append.path);
        let bad = writes.filter(|path| !layout::may_write(path));
        let bad = bad.chain(appends.filter(|path| !layout::may_append(path)));
        let mut bad = bad.chain(self.deletes.iter().filter(|path| !layout::may_delete(path)));
        bad.next().map_or(Ok(()), |path| {
            Err(Error::damaged(journal, format!("no transaction changes `{path}`: it is not applied")))
        })
    }

    /// True if the entry was written on another machine. False if either machine has no id.
    pub fn is_of_another_machine(&self) -> bool {
        matches!((&self.machine, machine::id()), (Some(there), Some(here)) if there != here)
    }

    /// True if the entry is not applied, or only in part, given a `state.json` of this revision.
    fn counts_at(&self, revision: u64) -> bool {
        revision == self.base_revision || revision.checked_sub(1) == Some(self.base_revision)
    }

    /// Returns the new content of a file that the entry changes: `Some(None)` if it is deleted.
    pub fn content_of(&self, path: &str) -> Option<Option<&str>> {
        if self.deletes.iter().any(|deleted| deleted == path) {
            return Some(None);
        }
        self.writes.iter().rfind(|write| write.path == path).map(|write| Some(write.content.as_str()))
    }
}

/// Returns the combined changes of these entries, in their order.
pub fn changes<'e>(entries: impl IntoIterator<Item = &'e JournalEntry>) -> Changes<'e> {
    entries
        .into_iter()
        .fold(Changes::default(), |all, entry| all.and(&entry.writes, &entry.appends, &entry.deletes))
}

/// Length of the beginning of a line. A line is `{"sum":"…",` with the checksum of the entry, then
/// the entry without its braces, then an end that may change after a sync: the id of the boot in
/// which the line was written, and the version of `state.json` after the line was applied.
const HEAD: usize = 8 + 32 + 2;
const TAIL: usize = 9 + BOOT + 13 + VERSION_LENGTH + 3;
const BOOT: usize = 32;
/// Placeholder for a missing boot id, and for the version if the line is not applied yet.
const NONE: &str = "--------------------------------";

fn encode(entry: &JournalEntry) -> Vec<u8> {
    let entry = serde_json::to_vec(entry).unwrap_or_default();
    let body = entry.get(1..entry.len().saturating_sub(1)).unwrap_or_default();
    let mut line = format!("{{\"sum\":\"{}\",", hex(&[body], 32)).into_bytes();
    line.extend_from_slice(body);
    let boot = machine::boot().unwrap_or(NONE);
    line.extend_from_slice(format!(",\"boot\":\"{boot}\",\"applied\":\"{NONE}\"}}\n").as_bytes());
    line
}

/// End of a journal line, which is overwritten when the line is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LineTail {
    is_of_this_boot: bool,
    /// Version of `state.json` after this line was applied; absent before that.
    left: Option<Version>,
}

impl LineTail {
    fn decode(bytes: &[u8]) -> Option<LineTail> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (boot, rest) = text.strip_prefix(",\"boot\":\"")?.split_once("\",\"applied\":\"")?;
        let left = rest.strip_suffix("\"}\n")?.parse().ok();
        Some(LineTail { is_of_this_boot: machine::boot() == Some(boot), left })
    }
}

/// Committed line of the journal.
#[derive(Debug)]
pub struct JournalLine {
    pub entry: JournalEntry,
    tail: LineTail,
}

/// Decodes a journal line. Returns `None` if it is incomplete. Marking a durable line as applied
/// overwrites the end of the line, so only the length of that end and its line feed are checked.
fn decode_line(path: &Path, number: usize, line: &[u8]) -> Result<Option<JournalLine>> {
    let Some(at) = line.len().checked_sub(TAIL).filter(|at| *at > HEAD && line.ends_with(b"\n")) else {
        return Ok(None);
    };
    let (head, body, tail) = (&line[..HEAD], &line[HEAD..at], &line[at..]);
    if head != format!("{{\"sum\":\"{}\",", hex(&[body], 32)).as_bytes() {
        return Ok(None);
    }
    let entry: JournalEntry = decode_plain(path, number, &[b"{", body, b"}"].concat())?;
    if entry.schema != SCHEMA {
        let path = path.to_owned();
        return Err(Error::Newer { path, found: entry.schema, known: SCHEMA.to_owned() });
    }
    if entry.number != number as u64 {
        return Err(Error::damaged(path, format!("line {number} says that it is line {}", entry.number)));
    }
    let tail = LineTail::decode(tail).unwrap_or(LineTail { is_of_this_boot: false, left: None });
    Ok(Some(JournalLine { entry, tail }))
}

/// Numbers of lines (`LONG`) and of bytes (`LARGE`) at which the journal is emptied.
const LONG: u64 = 64;
const LARGE: u64 = 1 << 20;
/// Maximum number of lines that are read: a longer journal was not written by this program.
const MOST_LINES: usize = 1024;
/// Bytes reserved behind the last line, for a full disk: at least `AHEAD`, at most `ROOM`.
const AHEAD: u64 = 16 << 10;
const ROOM: u64 = 64 << 10;

/// Open journal file. All its transactions are applied to the other files, or about to be.
#[derive(Debug)]
pub struct Journal {
    cap: CapPath,
    file: File,
    length: u64,
    lines: u64,
    /// Version of `state.json` after the last line of the journal was applied; absent before that.
    left: Option<Version>,
}

/// State of the journal file of an agent.
pub enum FoundJournal {
    Nothing,
    /// Journal without lines.
    Blank,
    /// Journal whose lines were all applied in this boot.
    Applied(Journal),
    /// Journal with lines to apply, or an incomplete line to cut off.
    Open(UnfinishedJournal),
}

/// Journal that has lines to apply, or an incomplete line.
#[derive(Debug)]
pub struct UnfinishedJournal {
    pub journal: Journal,
    lines: Vec<JournalLine>,
    /// True if the last line is incomplete.
    pub is_torn: bool,
    /// Time of the last write, in nanoseconds since 1970.
    written: u64,
}

impl Journal {
    /// Reads the journal of an agent. `writes`: true to open it for writing as well.
    pub fn look(agent: &AgentDir, writes: bool) -> Result<FoundJournal> {
        let cap = agent.join(layout::JOURNAL);
        match cap.glance()? {
            None => return Ok(FoundJournal::Nothing),
            Some(found) if kind(&found) == FileType::RegularFile && found.st_size == 0 => {
                return Ok(FoundJournal::Blank);
            }
            Some(_) => {}
        }
        let opened = if writes { cap.open_in_place()? } else { cap.open_file()? };
        let Some((file, length)) = opened else { return Ok(FoundJournal::Nothing) };
        if let Some((lines, tail)) = end(&file, length).context("read", &cap)?
            && tail.is_of_this_boot
            && tail.left.is_some()
        {
            return Ok(FoundJournal::Applied(Journal { cap, file, length, lines, left: tail.left }));
        }
        UnfinishedJournal::read(cap, file).map(FoundJournal::Open)
    }

    /// Error if a line to apply can't be read, or names a path that no transaction may write.
    pub fn check(agent: &AgentDir) -> Result<()> {
        match Journal::look(agent, false)? {
            FoundJournal::Open(found) => found.check_paths(),
            FoundJournal::Nothing | FoundJournal::Blank | FoundJournal::Applied(_) => Ok(()),
        }
    }

    /// Opens an empty or missing journal, creating the file if needed.
    pub fn begin(agent: &AgentDir) -> Result<Journal> {
        let cap = agent.join(layout::JOURNAL);
        let (file, _) = cap.create_in_place()?;
        Ok(Journal { cap, file, length: 0, lines: 0, left: None })
    }

    /// Number of the next line that is added to the journal.
    pub fn next_number(&self) -> u64 {
        self.lines + 1
    }

    pub fn is_blank(&self) -> bool {
        self.lines == 0
    }

    /// True if the journal is so long that the files that its lines change should be synced.
    pub fn is_long(&self) -> bool {
        self.lines >= LONG || self.length >= LARGE
    }

    /// True if the entry fits, and replaces the `state.json` that the last line has left, if any.
    pub fn accepts(&self, entry: &JournalEntry, line: &Encoded) -> bool {
        self.is_blank()
            || (self.left == entry.over && self.length + line.0.len() as u64 <= files::MAX_JOURNAL)
    }

    /// Adds a line and makes it durable, which commits the transaction. After a failed write the
    /// transaction is not committed; after a failed sync that is unknown.
    pub fn commit(&mut self, line: &Encoded, disk: Disk) -> Result<()> {
        let end = self.length + line.0.len() as u64;
        let written = self.make_room(end).and_then(|()| self.file.write_all_at(&line.0, self.length));
        if let Err(error) = written {
            // An incomplete line is ignored. Cutting it off saves the next command the check.
            let _ = self.file.set_len(self.length);
            return Err(error).context("write", &self.cap);
        }
        (self.length, self.lines, self.left) = (end, self.lines + 1, None);
        disk.sync_content(&self.file, &self.cap)
    }

    fn make_room(&self, end: u64) -> std::io::Result<()> {
        let found = rustix::fs::fstat(&self.file)?;
        let there = u64::try_from(found.st_blocks).unwrap_or(0).saturating_mul(512);
        if there >= end + AHEAD {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, end + ROOM) {
            // A full disk is an error only if there is no space for the line that is written now.
            Err(errno @ (Errno::NOSPC | Errno::DQUOT)) if there < end => Err(errno.into()),
            // Many file systems can't reserve space.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Marks the last line of the journal as applied. `left`: version of `state.json` after that.
    pub fn mark(&mut self, left: Version) -> Result<()> {
        self.write_tail(VERSION_LENGTH + 3, &left.to_string())?;
        self.left = Some(left);
        Ok(())
    }

    /// Marks all lines as not applied, because it is unknown which of their changes are durable.
    pub fn doubt(&mut self) -> Result<()> {
        self.left = None;
        self.write_tail(TAIL - 9, NONE)
    }

    /// Syncs all lines again: the command that wrote the last one may have failed before its sync.
    pub fn sync_again(&self, disk: Disk) -> Result<()> {
        // After a failed sync the kernel may count lost data as written, so the lines are written
        // again before the sync.
        let bytes = read_all(&self.cap, &self.file, self.length)?;
        self.file.write_all_at(&bytes, 0).context("write", &self.cap)?;
        disk.sync_content(&self.file, &self.cap)
    }

    fn write_tail(&self, before_end: usize, text: &str) -> Result<()> {
        let at = self.length.saturating_sub(before_end as u64);
        self.file.write_all_at(text.as_bytes(), at).context("write", &self.cap)
    }

    /// Cuts off an incomplete last line.
    pub fn trim(&self) -> Result<()> {
        self.file.set_len(self.length).context("cut", &self.cap)
    }

    /// Empties the journal, durably. The caller has synced the files that the lines change.
    pub fn cut(&mut self, disk: Disk) -> Result<()> {
        self.file.set_len(0).context("cut", &self.cap)?;
        (self.length, self.lines, self.left) = (0, 0, None);
        disk.sync_content(&self.file, &self.cap)
    }
}

/// Journal entry, encoded as a line.
pub struct Encoded(Vec<u8>);

impl Encoded {
    /// Encodes an entry. Refuses an entry that no reader would accept.
    pub fn of(agent: &AgentDir, entry: &JournalEntry) -> Result<Encoded> {
        let journal = agent.join(layout::JOURNAL);
        // Readers refuse an entry with a forbidden path, so such an entry must not be committed.
        entry.check_paths(&journal)?;
        let largest = entry.writes.iter().max_by_key(|write| write.content.len());
        if let Some(write) = largest.filter(|write| write.content.len() as u64 > files::MAX_RECORD) {
            return Err(too_large(&agent.join(&write.path), write.content.len(), files::MAX_RECORD));
        }
        let line = encode(entry);
        if line.len() as u64 > files::MAX_JOURNAL {
            return Err(too_large(&journal, line.len(), files::MAX_JOURNAL));
        }
        Ok(Encoded(line))
    }
}

/// Returns the number of the last journal line, and its end, which shows if the line was applied.
fn end(file: &File, length: u64) -> std::io::Result<Option<(u64, LineTail)>> {
    const LOOK: usize = TAIL + 32;
    if length < LOOK as u64 {
        return Ok(None);
    }
    let mut bytes = [0; LOOK];
    if file.read_at(&mut bytes, length - LOOK as u64)? < LOOK {
        // Another command has truncated the journal meanwhile.
        return Ok(None);
    }
    let (before, tail) = bytes.split_at(LOOK - TAIL);
    let number = std::str::from_utf8(before).ok().and_then(|text| text.rsplit_once("\"number\":"));
    let number = number.and_then(|(_, digits)| digits.parse().ok());
    Ok(number.zip(LineTail::decode(tail)))
}

/// Returns the first `length` bytes of a journal, or fewer if another command truncates it.
fn read_all(cap: &CapPath, mut file: &File, length: u64) -> Result<Vec<u8>> {
    if length > files::MAX_JOURNAL {
        return Err(cap.too_large(length, files::MAX_JOURNAL));
    }
    let mut bytes = Vec::new();
    file.rewind().context("read", cap)?;
    file.take(length).read_to_end(&mut bytes).context("read", cap)?;
    Ok(bytes)
}

/// Returns the committed lines, the end of the last line, and the number of bytes read.
fn read_lines(cap: &CapPath, file: &File, length: u64) -> Result<(Vec<JournalLine>, usize, usize)> {
    let bytes = read_all(cap, file, length)?;
    let (lines, whole) = decode_all(cap, &bytes)?;
    Ok((lines, whole, bytes.len()))
}

/// Returns all committed lines, and the offset of the end of the last line.
pub fn decode_all(path: &Path, bytes: &[u8]) -> Result<(Vec<JournalLine>, usize)> {
    let (mut lines, mut whole) = (Vec::new(), 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let number = lines.len() + 1;
        if number > MOST_LINES {
            return Err(Error::damaged(path, format!("a journal has at most {MOST_LINES} lines")));
        }
        match decode_line(path, number, line)? {
            Some(line) => lines.push(line),
            None if whole + line.len() == bytes.len() => break,
            None => {
                let message = format!("line {number} is damaged: the lines after it are not applied");
                return Err(Error::damaged(path, message));
            }
        }
        whole += line.len();
    }
    Ok((lines, whole))
}

/// Maximum number of times that a reader starts over because a command is writing the journal.
const READ_ATTEMPTS: usize = 100;

impl UnfinishedJournal {
    /// Reads every line, without the agent's lock if need be: lines that a command writes meanwhile
    /// are read again.
    fn read(cap: CapPath, file: File) -> Result<UnfinishedJournal> {
        let look = || rustix::fs::fstat(&file).context("look at", &cap);
        let mut attempts = 0;
        let (found, (lines, whole, length)) = loop {
            let found = look()?;
            let read = read_lines(&cap, &file, u64::try_from(found.st_size).unwrap_or(0));
            let (same, now) = ((Version::of(&found), found.st_size), look()?);
            attempts += 1;
            if attempts == READ_ATTEMPTS || same == (Version::of(&now), now.st_size) {
                break (found, read?);
            }
        };
        let (count, is_torn) = (lines.len() as u64, whole < length);
        let left = lines.last().and_then(|line| line.tail.left);
        let journal = Journal { cap, file, length: whole as u64, lines: count, left };
        let written = nanoseconds(found.st_mtime, found.st_mtime_nsec);
        Ok(UnfinishedJournal { journal, lines, is_torn, written })
    }

    /// Entries to apply: the last line of an interrupted command, or every line after a reboot.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &JournalEntry> {
        let is_applied = |line: &JournalLine| self.is_of_this_boot() && line.tail.left.is_some();
        let done = match self.lines.last() {
            Some(last) if is_applied(last) => self.lines.len(),
            Some(_) if self.is_of_this_boot() => self.lines.len() - 1,
            Some(_) | None => 0,
        };
        self.lines[done..].iter().map(|line| &line.entry)
    }

    pub fn into_entries(self) -> Vec<JournalEntry> {
        let applied = self.lines.len() - self.entries().count();
        self.lines.into_iter().skip(applied).map(|line| line.entry).collect()
    }

    fn is_of_this_boot(&self) -> bool {
        self.lines.last().is_some_and(|line| line.tail.is_of_this_boot)
    }

    pub fn is_of_another_machine(&self) -> bool {
        self.lines.iter().any(|line| line.entry.is_of_another_machine())
    }

    pub fn check_paths(&self) -> Result<()> {
        self.lines.iter().try_for_each(|line| line.entry.check_paths(&self.journal.cap))
    }

    /// True if the lines to apply continue the current records. False if the records were restored
    /// since, from git or a backup.
    ///
    /// Within one boot the revisions are compared. After another boot `state.json` may be older
    /// than the last line, or torn, because the power failed. The lines then continue the records
    /// if `state.json` is torn, equals what the last line writes or any line replaces, or changed
    /// no later than the journal. A restored `state.json` changed later.
    pub fn continues_state(&self, path: &Path, state: Option<&Content>) -> Result<bool> {
        let Some(last) = self.entries().next_back() else { return Ok(true) };
        let Some(state) = state else { return Ok(!self.is_of_this_boot()) };
        if self.is_of_this_boot() {
            // Within one boot no power cut has torn `state.json`: a read error means damage.
            return Ok(last.counts_at(decode::<State>(path, &state.bytes)?.revision));
        }
        let written = last.content_of(layout::STATE).flatten().map(str::as_bytes);
        match decode_plain::<IgnoredAny>(path, 0, &state.bytes) {
            Err(error) if conflict_marker(&state.bytes).is_some() => Err(error),
            Err(_) => Ok(true),
            Ok(_) => Ok(written == Some(&*state.bytes)
                || self.entries().any(|entry| entry.over == Some(state.version))
                || state.changed <= self.written),
        }
    }
}
