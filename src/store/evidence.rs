//! Reading back what was: the ledger, the archive and the runs. No step depends on any of it.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use crate::error::Result;
use crate::model::event::Event;
use crate::model::id::{EventId, MessageId, RunId};
use crate::model::message::Message;
use crate::model::record::Record;
use crate::model::run::{Brief, Run};
use crate::model::state::State;
use crate::model::time::Time;

use super::layout;
use super::lines;
use super::months;
use super::record::{decode_at, decode_plain};
use super::view::View;

/// The files that tell how messages have ended, of a month and those after it.
pub fn files_of_ends(view: &View<'_>, first_month: &str) -> Result<Vec<String>> {
    let mut months = months::archive(view, Message::KIND)?;
    months.reverse();
    months.extend(months::ledger(view)?);
    months.retain(|month| month.name.as_str() >= first_month);
    Ok(months.into_iter().map(|month| month.file).collect())
}

/// Every event that `each` asks for, oldest first, and once, whatever a merge has left: the ledger, then what
/// still rides in `state.json`. `since` skips the months before it without opening them.
pub fn events(
    view: &View<'_>,
    state: &State,
    since: Option<Time>,
    mut each: impl FnMut(Event) -> Result<()>,
) -> Result<()> {
    let mut seen = HashSet::new();
    let first_month = since.map(Time::month);
    for month in months::ledger(view)? {
        if first_month.as_ref().is_some_and(|first| month.name < *first) {
            continue;
        }
        let month = in_order(&view.agent.join(&month.file), &view.lines(&month.file)?)?;
        month.into_iter().filter(|event| seen.insert(event.id)).try_for_each(&mut each)?;
    }
    let mut riding = state.events.iter().filter(|event| !seen.contains(&event.id));
    riding.try_for_each(|event| each(event.clone()))
}

/// The last events that satisfy `wanted`, newest first, at most `count`.
pub fn last_events(
    view: &View<'_>,
    state: &State,
    count: usize,
    wanted: impl Fn(&Event) -> bool,
) -> Result<Vec<Event>> {
    let mut found: Vec<Event> =
        state.events.iter().rev().filter(|event| wanted(event)).take(count).cloned().collect();
    for month in months::ledger(view)?.into_iter().rev() {
        if found.len() >= count {
            break;
        }
        let bytes = view.lines(&month.file)?;
        let full = view.agent.join(&month.file);
        let newer: HashSet<EventId> = found.iter().map(|event| event.id).collect();
        let is_wanted = |event: &Event| wanted(event) && !newer.contains(&event.id);
        let before = found.len();
        let mut above = u64::MAX;
        for (number, line) in lines::records(&bytes).rev() {
            let event: Event = decode_plain(&full, number, line)?;
            if event.seq >= above {
                // Two clones have added some: the last are those that come last when all are in order.
                found.truncate(before);
                found.extend(in_order(&full, &bytes)?.into_iter().rev().filter(is_wanted));
                break;
            }
            above = event.seq;
            if is_wanted(&event) {
                found.push(event);
                if found.len() >= count {
                    break;
                }
            }
        }
        found.truncate(count);
    }
    Ok(found)
}

/// The events of a file, each once.
fn in_order(path: &Path, bytes: &[u8]) -> Result<Vec<Event>> {
    let events = lines::once(bytes).map(|(number, line)| decode_plain(path, number, line));
    let mut events = events.collect::<Result<Vec<Event>>>()?;
    // In order they are already, but where two clones have added some.
    events.sort_by_key(|event| event.seq);
    Ok(events)
}

/// The records of one kind in the archive, newest first, until `each` says stop (`false`). A line that a merge
/// has left twice is one. No more is read of it than that takes.
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

/// The newest record of the archive that is the one meant, whose line has `needle` in it. Months before it came to
/// be are not looked at.
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

/// Those of the messages that the archive says something about, in one pass. Months before the first of
/// them came to be are not looked at.
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

/// Whether the text of a line has one of these ids in it: that spares most lines the parsing.
fn mentions(line: &[u8], ids: &HashSet<MessageId>) -> bool {
    const PREFIX: &[u8] = b"msg_";
    let starts = line.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    starts
        .filter_map(|(at, _)| std::str::from_utf8(line.get(at..at + PREFIX.len() + 32)?).ok()?.parse().ok())
        .any(|id: MessageId| ids.contains(&id))
}

/// The newest records of this month's and last month's archive, at most `count` that satisfy `wanted`,
/// newest first. Reads a bounded tail: what a turn is told of the past must not cost more with every turn.
pub fn recent<T: Record>(
    view: &View<'_>,
    now: Time,
    count: usize,
    wanted: impl Fn(&T) -> bool,
) -> Result<Vec<T>> {
    let mut found = Vec::new();
    let month_ago = Time::from_millis(now.as_millis() - 28 * 24 * 3600 * 1000);
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
fn run_dirs(view: &View<'_>) -> Result<Vec<RunId>> {
    let mut ids = Vec::new();
    view.agent.join(layout::RUNS).each_entry(|name, is_dir| {
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
    let mut ids = run_dirs(view)?;
    for month in months::archive(view, Run::KIND)? {
        months::newest_first(view, &month, |_, _, line| {
            ids.extend(run_of(line));
            Ok(true)
        })?;
    }
    Ok(ids)
}

/// The run that a line of the archive is about: its id stands at the beginning.
fn run_of(line: &[u8]) -> Option<RunId> {
    const ID: &[u8] = b"\"id\":\"";
    let start = line.windows(ID.len()).take(200).position(|window| window == ID)? + ID.len();
    std::str::from_utf8(line.get(start..start + "run_".len() + 32)?).ok()?.parse().ok()
}

/// The record of a settled run; `None` for a live one.
pub fn run(view: &View<'_>, id: RunId) -> Result<Option<Run>> {
    // Versions before put it into its directory.
    if let Some(run) = view.record(&layout::run(id))? {
        return Ok(Some(run));
    }
    last_word(view, &id.to_string(), None, |run: &Run| run.id == id)
}

/// The records of the settled runs, newest first, at most `count`, and whether there are more.
pub fn runs(view: &View<'_>, count: usize) -> Result<(Vec<Run>, bool)> {
    let mut found = BTreeMap::new();
    archived(view, |run: Run| {
        // The newest line about a run comes first.
        found.entry(run.id).or_insert(run);
        found.len() <= count
    })?;
    let oldest = found.first_key_value().map(|(id, _)| *id).filter(|_| found.len() > count);
    // Those of versions before have their record in their directory.
    let mut before = 0;
    for id in run_dirs(view)? {
        if oldest.is_some_and(|oldest| id < oldest) || before > count {
            break;
        }
        if !found.contains_key(&id)
            && let Some(run) = view.record(&layout::run(id))?
        {
            found.insert(id, run);
            before += 1;
        }
    }
    let more = found.len() > count;
    Ok((found.into_values().rev().take(count).collect(), more))
}

/// The last briefs, newest first.
pub fn briefs(view: &View<'_>, count: usize) -> Result<Vec<Brief>> {
    let mut briefs = Vec::new();
    archived(view, |brief: Brief| {
        briefs.push(brief);
        briefs.len() < count
    })?;
    briefs.truncate(count);
    Ok(briefs)
}
