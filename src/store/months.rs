//! What was, month by month: the files of lines of the ledger and of the archive, and how they are read.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Seek, SeekFrom};

use crate::beneath::Spot;
use crate::error::{Context, Result};

use super::layout;
use super::lines;
use super::view::View;

/// One month of the ledger, or of one kind of the archive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month {
    /// `2026-01`
    pub name: String,
    /// Its file, from the agent's directory.
    pub file: String,
}

/// The months of the ledger, oldest first.
pub fn ledger(view: &View<'_>) -> Result<Vec<Month>> {
    let entries = view.agent.join(layout::LEDGER).entries()?;
    let names = entries.into_iter().filter_map(|entry| entry.name.into_string().ok());
    let files = names
        .filter(|name| name.ends_with(".jsonl"))
        .map(|name| format!("{}/{name}", layout::LEDGER))
        .chain(view.overlay_appends(layout::LEDGER));
    Ok(in_order(files))
}

/// The months of the archive that have records of this kind, oldest first.
pub fn archive(view: &View<'_>, kind: &str) -> Result<Vec<Month>> {
    let entries = view.agent.join(layout::ARCHIVE).entries()?;
    let months =
        entries.into_iter().filter(|entry| entry.is_dir).filter_map(|entry| entry.name.into_string().ok());
    let name = format!("/{kind}.jsonl");
    let files = months
        .map(|month| format!("{}/{month}{name}", layout::ARCHIVE))
        .chain(view.overlay_appends(layout::ARCHIVE).filter(|path| path.ends_with(&name)));
    Ok(in_order(files))
}

fn in_order(files: impl Iterator<Item = String>) -> Vec<Month> {
    let month = |file: String| {
        let name = file.split('/').nth(1).unwrap_or_default().trim_end_matches(".jsonl").to_owned();
        Month { name, file }
    };
    let mut months: Vec<Month> = files.map(month).collect();
    months.sort();
    months.dedup();
    months
}

/// How much of the end of a file is read at first where the newest lines are asked for.
const TAIL: u64 = 256 * 1024;

/// Calls `each` with the lines of a month, newest first and each once, until it says stop (`false`), which is
/// returned. It gets the place of the file and the number of the line, from 1; 0 where that is not known. No more
/// of a long file is read than is asked for.
pub fn newest_first(
    view: &View<'_>,
    month: &Month,
    mut each: impl FnMut(&Spot, usize, &[u8]) -> Result<bool>,
) -> Result<bool> {
    let spot = view.agent.join(&month.file);
    let mut seen = Seen::default();
    let (end, is_whole) = tail(view, &month.file)?;
    for (number, line) in lines::records(&end).rev().filter(|(_, line)| seen.insert(line)) {
        match each(&spot, if is_whole { number } else { 0 }, line) {
            Ok(true) => {}
            // It is told with the number of its line.
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
    let bytes = view.lines(&month.file)?;
    for (number, line) in lines::records(&bytes).rev().filter(|(_, line)| seen.insert(line)) {
        if !each(&spot, number, line)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The last whole lines of a file that only grows, at most about [`TAIL`] bytes of it, with those that the
/// journal appends to it, and whether that is all of it.
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
        // The first line is cut: leave it out.
        let cut = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        bytes.drain(..cut);
    }
    Ok((bytes, is_whole))
}

/// Lines that were met already, by their hash: nobody can foresee two that have the same.
#[derive(Default)]
struct Seen {
    keys: (RandomState, RandomState),
    met: HashSet<(u64, u64)>,
}

impl Seen {
    fn hash(&self, line: &[u8]) -> (u64, u64) {
        (self.keys.0.hash_one(line), self.keys.1.hash_one(line))
    }

    /// Whether the line is met for the first time.
    fn insert(&mut self, line: &[u8]) -> bool {
        self.met.insert(self.hash(line))
    }

    fn forget(&mut self, line: &[u8]) {
        self.met.remove(&self.hash(line));
    }
}
