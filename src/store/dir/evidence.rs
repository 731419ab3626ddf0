//! Readers of the lines of the ledger and the archive. No step depends on these lines.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;
use std::path::Path;
use std::str::FromStr;

use uuid::Uuid;

use crate::cap_fs::CapPath;
use crate::error::Result;
use crate::local::layout::{self, AgentDir};
use crate::model::id::{RunId, minted_at};
use crate::model::message::Message;
use crate::model::record::Record;
use crate::model::time::Time;

use super::super::backend::{EachLine, ReadView};
use super::lines;
use super::months::{self, LineHashes};
use super::record::{at_line, decode_at, line_text};
use super::view::View;

/// Paths of the archive and ledger files, from `first_month` on, that record the ends of messages.
pub fn files_of_ends(view: &View<'_>, first_month: &str) -> Result<Vec<String>> {
    let mut months = months::archive(view, &[Message::KIND, months::ENDED])?;
    months.extend(months::ledger(view)?);
    months.retain(|month| month.name.as_str() >= first_month);
    Ok(months.into_iter().map(|month| month.path).collect())
}

/// Calls `each` with the lines of the ledger, oldest first. Skips the months before `since` without
/// opening their files.
pub fn events(view: &View<'_>, since: Option<Time>, each: &mut EachLine<'_>) -> Result<()> {
    let first_month = since.map(Time::month).unwrap_or_default();
    for month in months::ledger(view)?.iter().filter(|month| month.name >= first_month) {
        let (cap, bytes) = (view.agent.join(&month.path), view.lines(&month.path)?);
        if !pass_lines(in_order(lines::once(&bytes).collect()), &cap, each)? {
            break;
        }
    }
    Ok(())
}

/// Calls `each` with the lines of the ledger, newest first. Reads only the end of a month's file if
/// that is enough and if no merge of two git clones has mixed the order of its lines.
pub fn newest_events(view: &View<'_>, each: &mut EachLine<'_>) -> Result<()> {
    for month in months::ledger(view)?.iter().rev() {
        let cap = view.agent.join(&month.path);
        let mut pass_newest = |lines: Vec<(usize, &[u8])>| pass_lines(lines.into_iter().rev(), &cap, each);
        let (end, is_whole) = months::tail(view, &month.path)?;
        let last: Vec<(usize, &[u8])> = lines::records(&end).collect();
        let continues = if is_whole {
            pass_newest(in_order(last))?
        } else {
            // An error here is dropped: the full read below repeats it, with the line number.
            let is_enough = is_in_order(&last) && matches!(pass_newest(last), Ok(false));
            !is_enough && pass_newest(in_order(lines::records(&view.lines(&month.path)?).collect()))?
        };
        if !continues {
            break;
        }
    }
    Ok(())
}

/// Sorts events by their numbers. They are unsorted only after a git merge of two clones.
fn in_order(mut lines: Vec<(usize, &[u8])>) -> Vec<(usize, &[u8])> {
    if !is_in_order(&lines) {
        lines.sort_by_key(|(_, line)| seq_in(line));
    }
    lines
}

fn is_in_order(lines: &[(usize, &[u8])]) -> bool {
    lines.is_sorted_by_key(|(_, line)| seq_in(line))
}

/// Returns the number of an event, with which its line begins.
fn seq_in(line: &[u8]) -> Option<u64> {
    const SEQ: &[u8] = b"\"seq\":";
    let start = line.windows(SEQ.len()).take(100).position(|window| window == SEQ)? + SEQ.len();
    let digits = line[start..].split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Calls `each` with the archived lines of these kinds, newest first; with `ids`, only with lines
/// of these records. For messages, skips months before the oldest id was minted, unless that time
/// is later than every month, because the clock was ahead then.
pub fn ended(
    view: &View<'_>,
    kinds: &[&'static str],
    ids: Option<&[String]>,
    each: &mut EachLine<'_>,
) -> Result<()> {
    let born = |id: &String| {
        let minted = id.rsplit('_').next().and_then(|digits| Uuid::parse_str(digits).ok());
        minted.and_then(minted_at).unwrap_or(Time::from_millis(0))
    };
    let ids_of_messages = ids.filter(|_| kinds == [Message::KIND]);
    let first_month = ids_of_messages.and_then(|ids| ids.iter().map(born).min()).map(Time::month);
    let wanted: Option<HashSet<&str>> = ids.map(|ids| ids.iter().map(String::as_str).collect());
    let mut months = months::archive(view, kinds)?;
    months.sort_by(|one, other| other.name.cmp(&one.name));
    let newest = months.first().map(|month| month.name.clone());
    if let Some(first) = first_month.filter(|first| newest.is_some_and(|newest| newest >= *first)) {
        months.retain(|month| month.name >= first);
    }
    for month in months {
        let continues = months::newest_first(view, &month, |cap, number, line| {
            let is_wanted = |wanted: &HashSet<&str>| id_text(line).is_some_and(|id| wanted.contains(id));
            if !wanted.as_ref().is_none_or(is_wanted) {
                return Ok(true);
            }
            pass_lines([(number, line)], cap, each)
        })?;
        if !continues {
            break;
        }
    }
    Ok(())
}

/// Calls `each` with the newest lines of this month's and last month's archive. Reads a tail of
/// bounded size, so that the cost of a turn does not grow with the agent's history.
pub fn recent(view: &View<'_>, kind: &str, now: Time, each: &mut EachLine<'_>) -> Result<()> {
    let mut paths = vec![layout::archive(now, kind), layout::archive(months::four_weeks_before(now), kind)];
    paths.dedup();
    for path in paths {
        let cap = view.agent.join(&path);
        let (tail, _) = months::tail(view, &path)?;
        // Only the end of the file was read, so the numbers of its lines are unknown.
        if !pass_lines(lines::records(&tail).rev().map(|(_, line)| (0, line)), &cap, each)? {
            break;
        }
    }
    Ok(())
}

/// Calls `each` with numbered lines until `each` returns `false`; returns its last result.
fn pass_lines<'l>(
    lines: impl IntoIterator<Item = (usize, &'l [u8])>,
    cap: &CapPath,
    each: &mut EachLine<'_>,
) -> Result<bool> {
    for (number, line) in lines {
        if !each(line_text(cap, number, line)?).map_err(|error| at_line(error, cap, number))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Calls `each` with the ended records of a kind in any store, newest first, until `each` returns
/// `false`; with ids, only with these records. A line that a merge has doubled counts once.
/// `place`: path of the archive for error messages.
pub fn each_ended<T: Record>(
    view: &dyn ReadView,
    place: &Path,
    ids: Option<&[String]>,
    mut each: impl FnMut(T) -> bool,
) -> Result<()> {
    let mut met = LineHashes::default();
    view.ended(&[T::KIND], ids, &mut |line| {
        let record = decode_at(place, 0, line.as_bytes())?;
        Ok(!met.insert(line.as_bytes()) || each(record))
    })
}

/// Returns a part of the newest version of each ended record with one of these ids. `of`: returns
/// the id of a record, and that part.
pub fn last_versions<'i, T: Record, V, Id: Eq + Hash + Display + 'i>(
    view: &dyn ReadView,
    place: &Path,
    ids: impl IntoIterator<Item = &'i Id>,
    of: impl Fn(T) -> (Id, V),
) -> Result<HashMap<Id, V>> {
    let (mut found, ids) = (HashMap::new(), ids.into_iter().map(Id::to_string).collect::<Vec<_>>());
    for some in ids.chunks(view.max_ids()) {
        each_ended(view, place, Some(some), |record: T| {
            let (id, part) = of(record);
            found.entry(id).or_insert(part);
            found.len() < ids.len()
        })?;
    }
    Ok(found)
}

/// Returns the ids of the runs that have a directory, newest first.
pub fn run_dirs(agent: &AgentDir) -> Result<Vec<RunId>> {
    let mut ids = Vec::new();
    agent.join(layout::RUNS).each_entry(|name, is_dir| {
        if is_dir {
            ids.extend(std::str::from_utf8(name).ok().and_then(|name| name.parse::<RunId>().ok()));
        }
        true
    })?;
    ids.sort_unstable_by(|one, other| other.cmp(one));
    Ok(ids)
}

/// Returns the id at the beginning of a line of the archive, if it is an id of this type.
pub fn id_in<Id: FromStr>(line: &[u8]) -> Option<Id> {
    id_text(line)?.parse().ok()
}

/// Returns the id at the beginning of a line of the archive.
fn id_text(line: &[u8]) -> Option<&str> {
    const ID: &[u8] = b"\"id\":\"";
    let start = line.windows(ID.len()).take(200).position(|window| window == ID)? + ID.len();
    std::str::from_utf8(line.get(start..)?.split(|byte| *byte == b'"').next()?).ok()
}
