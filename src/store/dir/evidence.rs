//! Reading back what was: the ledger, the archive and the runs. No step depends on any of it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::str::FromStr;

use crate::error::Result;
use crate::model::event::Event;
use crate::model::id::{EventId, MessageId, RunId, TaskId, minted_at};
use crate::model::message::Message;
use crate::model::record::Record;
use crate::model::run::Run;
use crate::model::task::Task;
use crate::model::time::Time;

use super::layout;
use super::layout::AgentDir;
use super::lines;
use super::months::{self, Month};
use super::record::{decode_at, decode_plain};
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

/// Calls `each` with every event of the ledger, oldest first, each once even if a merge has doubled
/// its line. `since` skips the months before it without opening them.
pub fn events(view: &View<'_>, since: Option<Time>, mut each: impl FnMut(Event) -> Result<()>) -> Result<()> {
    let mut seen = HashSet::new();
    let first_month = since.map(Time::month);
    for month in months::ledger(view)? {
        if first_month.as_ref().is_some_and(|first| month.name < *first) {
            continue;
        }
        in_order(view, &month)?.into_iter().filter(|event| seen.insert(event.id)).try_for_each(&mut each)?;
    }
    Ok(())
}

/// The last events that satisfy `wanted`, newest first, at most `count`.
pub fn last_events(view: &View<'_>, count: usize, wanted: impl Fn(&Event) -> bool) -> Result<Vec<Event>> {
    let mut found: Vec<Event> = Vec::new();
    for month in months::ledger(view)?.into_iter().rev() {
        if found.len() >= count {
            break;
        }
        let newer: HashSet<EventId> = found.iter().map(|event| event.id).collect();
        let is_wanted = |event: &Event| wanted(event) && !newer.contains(&event.id);
        let before = found.len();
        let (mut above, mut is_mixed) = (u64::MAX, false);
        months::newest_first(view, &month, |spot, number, line| {
            let event: Event = decode_plain(spot, number, line)?;
            is_mixed = event.seq >= above;
            above = event.seq;
            if !is_mixed && is_wanted(&event) {
                found.push(event);
            }
            Ok(!is_mixed && found.len() < count)
        })?;
        if is_mixed {
            // Two clones have added some: the last are those that come last when all are in order.
            found.truncate(before);
            found.extend(in_order(view, &month)?.into_iter().rev().filter(is_wanted));
        }
        found.truncate(count);
    }
    Ok(found)
}

/// The events of a month.
fn in_order(view: &View<'_>, month: &Month) -> Result<Vec<Event>> {
    let mut events: Vec<Event> = Vec::new();
    let spot = view.agent.join(&month.path);
    for (number, line) in lines::once(&view.lines(&month.path)?) {
        events.push(decode_plain(&spot, number, line)?);
    }
    // In order they are already, but where two clones have added some.
    events.sort_by_key(|event| event.seq);
    Ok(events)
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

/// The newest record of a kind in the archive that satisfies `wanted`.
pub fn archived_record<T: Record>(view: &View<'_>, wanted: impl Fn(&T) -> bool) -> Result<Option<T>> {
    let mut found = None;
    archived(view, |record: T| {
        if wanted(&record) {
            found = Some(record);
        }
        found.is_none()
    })?;
    Ok(found)
}

/// The archive's last word about a message. Months before it came to be are not looked at.
pub fn archived_message(view: &View<'_>, id: MessageId) -> Result<Option<Message>> {
    last_word(view, &id.to_string(), id.minted_at(), |message: &Message| message.id == id)
}

/// The newest record of the archive that is the one meant, whose line has `needle` in it. Months
/// before it came to be are not looked at.
fn last_word<T: Record>(
    view: &View<'_>,
    needle: &str,
    born: Option<Time>,
    is_meant: impl Fn(&T) -> bool,
) -> Result<Option<T>> {
    let born = born.unwrap_or(Time::from_millis(0)).month();
    let mut found = None;
    for month in months::archive(view, T::KIND)?.iter().rev() {
        if month.name < born {
            break;
        }
        let goes_on = months::newest_first(view, month, |spot, number, line| {
            // A look at the text spares most lines the parsing.
            if contains(line, needle.as_bytes()) {
                found = Some(decode_at(spot, number, line)?).filter(&is_meant);
            }
            Ok(found.is_none())
        })?;
        if !goes_on {
            break;
        }
    }
    Ok(found)
}

fn contains(line: &[u8], needle: &[u8]) -> bool {
    line.windows(needle.len()).any(|window| window == needle)
}

/// Those of the messages that the archive says something about, in one pass. Months before the
/// first of them came to be are not looked at.
pub fn archived_among(view: &View<'_>, ids: &HashSet<MessageId>) -> Result<HashSet<MessageId>> {
    let mut found = HashSet::new();
    let born = ids.iter().map(|id| id.minted_at().unwrap_or(Time::from_millis(0))).min();
    let Some(born) = born.map(Time::month) else { return Ok(found) };
    for month in months::archive(view, Message::KIND)?.iter().filter(|month| month.name >= born) {
        months::newest_first(view, month, |spot, number, line| {
            if mentions(line, ids) {
                let message: Message = decode_at(spot, number, line)?;
                found.extend(Some(message.id).filter(|id| ids.contains(id)));
            }
            Ok(true)
        })?;
    }
    Ok(found)
}

/// True if the text of a line contains one of these ids. This saves parsing most lines.
fn mentions(line: &[u8], ids: &HashSet<MessageId>) -> bool {
    const PREFIX: &[u8] = b"msg_";
    let starts = line.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    starts
        .filter_map(|(at, _)| std::str::from_utf8(line.get(at..at + PREFIX.len() + 32)?).ok()?.parse().ok())
        .any(|id: MessageId| ids.contains(&id))
}

/// The newest records of this month's and last month's archive, at most `count` that satisfy
/// `wanted`, newest first. Reads a bounded tail: what a turn is told of the past must not cost more
/// with every turn.
pub fn recent<T: Record>(
    view: &View<'_>,
    now: Time,
    count: usize,
    wanted: impl Fn(&T) -> bool,
) -> Result<Vec<T>> {
    let mut found = Vec::new();
    let month_ago = months::four_weeks_before(now);
    let mut paths = vec![layout::archive(now, T::KIND), layout::archive(month_ago, T::KIND)];
    paths.dedup();
    for path in paths {
        let full = view.agent.join(&path);
        let (tail, _) = months::tail(view, &path)?;
        let mut seen = HashSet::new();
        for (_, line) in lines::records(&tail).rev().filter(|(_, line)| seen.insert(*line)) {
            if found.len() >= count {
                return Ok(found);
            }
            let record: T = decode_at(&full, 0, line)?;
            if wanted(&record) {
                found.push(record);
            }
        }
    }
    Ok(found)
}

/// The ids of the runs that have a directory, newest first.
pub(super) fn run_dirs(agent: &AgentDir) -> Result<Vec<RunId>> {
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

/// The ids of all runs that are known of: by their line in the archive, or by their directory.
pub fn run_ids(view: &View<'_>) -> Result<Vec<RunId>> {
    let mut ids = run_dirs(view.agent)?;
    for month in months::archive(view, Run::KIND)? {
        months::newest_first(view, &month, |_, _, line| {
            ids.extend(id_in::<RunId>(line));
            Ok(true)
        })?;
    }
    Ok(ids)
}

/// Returns the id at the beginning of a line of the archive, if it is of this kind.
pub(super) fn id_in<Id: FromStr>(line: &[u8]) -> Option<Id> {
    const ID: &[u8] = b"\"id\":\"";
    let start = line.windows(ID.len()).take(200).position(|window| window == ID)? + ID.len();
    let id = line.get(start..)?.split(|byte| *byte == b'"').next()?;
    std::str::from_utf8(id).ok()?.parse().ok()
}

/// The records of those of the runs that have one.
pub(super) fn runs_among(view: &View<'_>, ids: &HashSet<RunId>) -> Result<HashMap<RunId, Run>> {
    let mut found = HashMap::new();
    among(view, ids, ids.iter().filter_map(|id| minted_at(id.0)).min(), &mut found)?;
    Ok(found)
}

/// The records of those of the tasks that have ended.
pub(super) fn tasks_among(view: &View<'_>, ids: &HashSet<TaskId>) -> Result<HashMap<TaskId, Task>> {
    let mut found = HashMap::new();
    among(view, ids, ids.iter().filter_map(|id| minted_at(id.0)).min(), &mut found)?;
    Ok(found)
}

/// Adds the last words of the archive about these. Months before the first of them came to be are
/// not looked at.
fn among<T: Record, Id: FromStr + Eq + Hash + Copy>(
    view: &View<'_>,
    ids: &HashSet<Id>,
    born: Option<Time>,
    found: &mut HashMap<Id, T>,
) -> Result<()> {
    let Some(born) = born.map(Time::month) else { return Ok(()) };
    for month in months::archive(view, T::KIND)?.iter().rev().filter(|month| month.name >= born) {
        if found.len() >= ids.len() {
            break;
        }
        months::newest_first(view, month, |spot, number, line| {
            if let Some(id) = id_in::<Id>(line).filter(|id| ids.contains(id))
                && let Entry::Vacant(place) = found.entry(id)
            {
                place.insert(decode_at(spot, number, line)?);
            }
            Ok(found.len() < ids.len())
        })?;
    }
    Ok(())
}

/// The record of a settled run; `None` for a live one.
pub fn run(view: &View<'_>, id: RunId) -> Result<Option<Run>> {
    last_word(view, &id.to_string(), None, |run: &Run| run.id == id)
}
