//! Monthly files of lines of the ledger and the archive, and their readers.
//!
//! A line counts once, even if a git merge has doubled it.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Seek, SeekFrom};

use crate::cap_fs::{CapPath, Entry};
use crate::error::{IoContext, Result};
use crate::local::layout;
use crate::model::message::Message;
use crate::model::record::Record;
use crate::model::run::{Brief, Run};
use crate::model::task::Task;
use crate::model::time::{Span, Time};
use crate::model::timer::Timer;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;

use super::lines;
use super::view::View;

/// Kind of the records that remain of a deleted month of the archive: the ids of the messages that
/// ended in the month.
pub const ENDED: &str = "ended";

/// Kinds of records in the archive.
pub const KINDS: &[&str] = &[
    Message::KIND,
    Wait::KIND,
    WorkItem::KIND,
    Timer::KIND,
    Task::KIND,
    Trigger::KIND,
    Run::KIND,
    Brief::KIND,
    ENDED,
];

/// Returns the kind of archive records with this name, or `None` if the archive has no such kind.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "no store that gives words is built in"))]
pub fn kind(word: &str) -> Option<&'static str> {
    KINDS.iter().find(|kind| **kind == word).copied()
}

/// One month of the ledger, or of one kind of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Month {
    /// Year and month, as in `2026-01`.
    pub name: String,
    /// Path of the file of lines, relative to the agent's directory. The file may be missing.
    pub path: String,
}

/// Returns the end of a month, which is the start of the next month. `None` if `name` is no month.
pub fn over_at(name: &str) -> Option<Time> {
    let (year, month) = name.split_once('-').filter(|_| name.len() == "2026-01".len())?;
    let (year, month): (u32, u32) = (year.parse().ok()?, month.parse().ok()?);
    let (year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    Time::parse(&format!("{year:04}-{next:02}-01T00:00:00Z")).ok().filter(|_| month > 0)
}

/// Returns the first moment of a month. `None` if `name` is no month.
pub fn begins_at(name: &str) -> Option<Time> {
    Time::parse(&format!("{name}-01T00:00:00Z")).ok()
}

/// Returns the oldest month whose history must not be deleted, because steps still read it.
pub fn first_recent(now: Time) -> String {
    four_weeks_before(now).month()
}

pub fn four_weeks_before(now: Time) -> Time {
    now.before(Span::from_secs(28 * 24 * 3600))
}

/// Returns the months of the ledger, which has the agent's events, oldest first.
pub fn ledger(view: &View<'_>) -> Result<Vec<Month>> {
    let mut months = BTreeMap::new();
    let mut add = |name: &str| {
        if let Some(month) = name.strip_suffix(layout::LINES) {
            months.insert(month.to_owned(), format!("{}/{name}", layout::LEDGER));
        }
    };
    for entry in view.agent.join(layout::LEDGER).entries()? {
        entry.name.to_str().into_iter().for_each(&mut add);
    }
    for path in view.overlay_appends(layout::LEDGER) {
        path.rsplit('/').next().into_iter().for_each(&mut add);
    }
    Ok(in_order(months))
}

/// Returns the months of the archive for each of these kinds, with the path of the kind's file. The
/// months of one kind are together, oldest first.
pub fn archive(view: &View<'_>, kinds: &[&str]) -> Result<Vec<Month>> {
    let entries = view.agent.join(layout::ARCHIVE).entries()?;
    Ok(kinds.iter().flat_map(|kind| archive_among(view, &entries, kind)).collect())
}

fn archive_among(view: &View<'_>, entries: &[Entry], kind: &str) -> Vec<Month> {
    let dirs = entries.iter().filter(|entry| entry.is_dir).filter_map(|entry| entry.name.to_str());
    let mut months: BTreeMap<String, String> =
        dirs.map(|name| (name.to_owned(), layout::month(name, kind))).collect();
    let ending = format!("/{kind}{}", layout::LINES);
    for path in view.overlay_appends(layout::ARCHIVE).filter(|path| path.ends_with(&ending)) {
        let name = path.split('/').nth(1).unwrap_or_default().to_owned();
        months.insert(name, path);
    }
    in_order(months)
}

fn in_order(months: BTreeMap<String, String>) -> Vec<Month> {
    months.into_iter().map(|(name, path)| Month { name, path }).collect()
}

/// Number of bytes at the end of a file that are read first if the newest lines are needed.
const TAIL: u64 = 256 * 1024;

/// Calls `each` with the lines of a month, newest first and each once, until `each` returns
/// `false`; returns the last result of `each`. `each` gets the path of the file and the line
/// number, from 1; 0 if the number is unknown. Reads no more of a long file than needed.
pub fn newest_first(
    view: &View<'_>,
    month: &Month,
    mut each: impl FnMut(&CapPath, usize, &[u8]) -> Result<bool>,
) -> Result<bool> {
    let mut seen = LineHashes::default();
    let cap = view.agent.join(&month.path);
    let (end, is_whole) = tail(view, &month.path)?;
    for (number, line) in lines::records(&end).rev() {
        if !seen.insert(line) {
            continue;
        }
        match each(&cap, if is_whole { number } else { 0 }, line) {
            Ok(true) => {}
            // The whole file is read, so that the error has the number of the line.
            Err(_) if !is_whole => {
                seen.forget(line);
                break;
            }
            other => return other,
        }
    }
    if is_whole {
        return Ok(true);
    }
    let bytes = view.lines(&month.path)?;
    for (number, line) in lines::records(&bytes).rev() {
        if seen.insert(line) && !each(&cap, number, line)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the last complete lines of a file that only grows, at most about [`TAIL`] bytes of it,
/// with the lines that the journal appends; and true if these are all lines.
pub fn tail(view: &View<'_>, path: &str) -> Result<(Vec<u8>, bool)> {
    let (mut bytes, is_whole) = if view.is_appended(path) {
        let mut whole = view.lines(path)?;
        let from = whole.len().saturating_sub(usize::try_from(TAIL).unwrap_or(usize::MAX));
        (whole.split_off(from), from == 0)
    } else {
        let full = view.agent.join(path);
        let Some((mut file, length)) = full.open_file()? else { return Ok((Vec::new(), true)) };
        let from = length.saturating_sub(TAIL);
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from)).context("read", &full)?;
        file.take(length - from).read_to_end(&mut bytes).context("read", &full)?;
        (bytes, from == 0)
    };
    if !is_whole {
        // The first line is incomplete, so it is left out.
        let cut = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        bytes.drain(..cut);
    }
    Ok((bytes, is_whole))
}

/// Set of hashes of the lines that were read already. The hash has a random key, so no writer can
/// make two lines with the same hash.
#[derive(Default)]
pub struct LineHashes {
    keys: (RandomState, RandomState),
    met: HashSet<(u64, u64)>,
}

impl LineHashes {
    fn hash(&self, line: &[u8]) -> (u64, u64) {
        (self.keys.0.hash_one(line), self.keys.1.hash_one(line))
    }

    /// Adds the line. Returns true if it is new.
    pub fn insert(&mut self, line: &[u8]) -> bool {
        self.met.insert(self.hash(line))
    }

    fn forget(&mut self, line: &[u8]) {
        self.met.remove(&self.hash(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_over_when_the_next_one_begins() {
        let over = |name| over_at(name).map(|at| at.to_string());
        assert_eq!(over("2026-01").as_deref(), Some("2026-02-01T00:00:00.000Z"));
        assert_eq!(over("2026-12").as_deref(), Some("2027-01-01T00:00:00.000Z"));
        for other in ["", "2026", "2026-13", "2026-00", "2026-1", "notes", "2026-01-02"] {
            assert_eq!(over(other), None, "{other}");
        }
    }

    #[test]
    fn the_months_of_the_last_four_weeks_are_recent() {
        for (now, first) in [("2026-03-15", "2026-02"), ("2026-03-29", "2026-03"), ("2026-01-02", "2025-12")]
        {
            let now = Time::parse(&format!("{now}T00:00:00Z")).expect("a time");
            assert_eq!(first_recent(now), first);
        }
    }
}
