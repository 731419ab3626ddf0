//! Lines of the ledger and the archive, as their readers ask for them. No step depends on any of
//! them.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;
use std::path::Path;
use std::str::FromStr;

use uuid::Uuid;

use crate::error::Result;
use crate::model::id::{RunId, minted_at};
use crate::model::message::Message;
use crate::model::record::Record;
use crate::model::time::Time;

use super::super::elsewhere::ReadView;
use super::layout;
use super::layout::AgentDir;
use super::lines;
use super::months::{self, LineHashes};
use super::record::{at_line, decode_at, line_text};
use super::view::View;

/// The files that tell how messages have ended, of a month and those after it.
pub fn files_of_ends(view: &View<'_>, first_month: &str) -> Result<Vec<String>> {
    let [mut months, ended] = months::archives(view, [Message::KIND, months::ENDED])?;
    months.reverse();
    months.extend(ended);
    months.extend(months::ledger(view)?);
    months.retain(|month| month.name.as_str() >= first_month);
    Ok(months.into_iter().map(|month| month.path).collect())
}

/// Takes a line. Returns `false` if no more are wanted.
type EachLine<'e> = dyn FnMut(&str) -> Result<bool> + 'e;

/// Calls `each` with the lines of the ledger, oldest first. `since` skips the months before it
/// without opening them.
pub fn events(view: &View<'_>, since: Option<Time>, each: &mut EachLine<'_>) -> Result<()> {
    let first_month = since.map(Time::month).unwrap_or_default();
    for month in months::ledger(view)?.iter().filter(|month| month.name >= first_month) {
        let (spot, bytes) = (view.agent.join(&month.path), view.lines(&month.path)?);
        for (number, line) in in_order(lines::once(&bytes).collect()) {
            let goes_on = each(line_text(&spot, number, line)?);
            if !goes_on.map_err(|error| at_line(error, &spot, number))? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Calls `each` with the lines of the ledger, newest first. No more is read of a month than that
/// takes, unless the lines of two clones are mixed at its end.
pub fn newest_events(view: &View<'_>, each: &mut EachLine<'_>) -> Result<()> {
    for month in months::ledger(view)?.iter().rev() {
        let spot = view.agent.join(&month.path);
        let mut tell = |lines: Vec<(usize, &[u8])>| -> Result<bool> {
            for (number, line) in lines.into_iter().rev() {
                let goes_on = each(line_text(&spot, number, line)?);
                if !goes_on.map_err(|error| at_line(error, &spot, number))? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let (end, is_whole) = months::tail(view, &month.path)?;
        let last: Vec<(usize, &[u8])> = lines::records(&end).collect();
        let goes_on = if is_whole {
            tell(in_order(last))?
        } else {
            // An error is met again among all lines, where the line has its number.
            let is_enough = is_in_order(&last) && matches!(tell(last), Ok(false));
            !is_enough && tell(in_order(lines::records(&view.lines(&month.path)?).collect()))?
        };
        if !goes_on {
            break;
        }
    }
    Ok(())
}

/// Brings events into the order of their numbers. They are in it already, but where two clones have
/// added some.
fn in_order(mut lines: Vec<(usize, &[u8])>) -> Vec<(usize, &[u8])> {
    if !is_in_order(&lines) {
        lines.sort_by_key(|(_, line)| seq_in(line));
    }
    lines
}

fn is_in_order(lines: &[(usize, &[u8])]) -> bool {
    lines.is_sorted_by_key(|(_, line)| seq_in(line))
}

/// The number of an event, which its line begins with.
fn seq_in(line: &[u8]) -> Option<u64> {
    const SEQ: &[u8] = b"\"seq\":";
    let start = line.windows(SEQ.len()).take(100).position(|window| window == SEQ)? + SEQ.len();
    let digits = line[start..].split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Calls `each` with the lines of these kinds, newest first, of these records if there are ids.
/// Months before the first of the records came to be are not looked at.
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
    let first_month = ids.and_then(|ids| ids.iter().map(born).min()).map(Time::month).unwrap_or_default();
    let wanted: Option<HashSet<&str>> = ids.map(|ids| ids.iter().map(String::as_str).collect());
    let mut months = Vec::new();
    for kind in kinds {
        months.extend(months::archive(view, kind)?);
    }
    months.retain(|month| month.name >= first_month);
    months.sort_by(|one, other| other.name.cmp(&one.name));
    for month in months {
        let goes_on = months::newest_first(view, &month, |spot, number, line| {
            let is_wanted = |wanted: &HashSet<&str>| id_text(line).is_some_and(|id| wanted.contains(id));
            if !wanted.as_ref().is_none_or(is_wanted) {
                return Ok(true);
            }
            each(line_text(spot, number, line)?).map_err(|error| at_line(error, spot, number))
        })?;
        if !goes_on {
            break;
        }
    }
    Ok(())
}

/// Calls `each` with the newest lines of this month's and last month's archive. Reads a bounded
/// tail: what a turn is told of the past must not cost more with every turn.
pub fn recent(view: &View<'_>, kind: &str, now: Time, each: &mut EachLine<'_>) -> Result<()> {
    let mut paths = vec![layout::archive(now, kind), layout::archive(months::four_weeks_before(now), kind)];
    paths.dedup();
    for path in paths {
        let spot = view.agent.join(&path);
        let (tail, _) = months::tail(view, &path)?;
        for (_, line) in lines::records(&tail).rev() {
            if !each(line_text(&spot, 0, line)?).map_err(|error| at_line(error, &spot, 0))? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Calls `each` with the ended records of a kind in any store, newest first, until it returns
/// `false`; with ids, with those of them. A line that a merge has left twice is one. `place`: of
/// the archive, for people.
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

/// The newest versions of those of the records that have ended. `id`: which one it is.
pub fn last_versions<'i, T: Record, Id: Eq + Hash + Display + 'i>(
    view: &dyn ReadView,
    place: &Path,
    ids: impl IntoIterator<Item = &'i Id>,
    id: impl Fn(&T) -> Id,
) -> Result<HashMap<Id, T>> {
    let (mut found, ids) = (HashMap::new(), ids.into_iter().map(Id::to_string).collect::<Vec<_>>());
    for some in ids.chunks(view.most_ids()) {
        each_ended(view, place, Some(some), |record: T| {
            found.entry(id(&record)).or_insert(record);
            found.len() < ids.len()
        })?;
    }
    Ok(found)
}

/// The records of one kind in the archive, newest first, until `each` says stop (`false`). A line
/// that a merge has left twice is one. No more is read of it than that takes.
pub fn archived<T: Record>(view: &View<'_>, mut each: impl FnMut(T) -> bool) -> Result<()> {
    for month in months::archive(view, T::KIND)?.iter().rev() {
        if !months::newest_first(view, month, |spot, number, line| Ok(each(decode_at(spot, number, line)?)))?
        {
            break;
        }
    }
    Ok(())
}

/// The ids of the runs that have a directory, newest first.
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

/// Returns the id at the beginning of a line of the archive, if it is of this kind.
pub fn id_in<Id: FromStr>(line: &[u8]) -> Option<Id> {
    id_text(line)?.parse().ok()
}

/// Returns the id at the beginning of a line of the archive.
fn id_text(line: &[u8]) -> Option<&str> {
    const ID: &[u8] = b"\"id\":\"";
    let start = line.windows(ID.len()).take(200).position(|window| window == ID)? + ID.len();
    std::str::from_utf8(line.get(start..)?.split(|byte| *byte == b'"').next()?).ok()
}
