//! Reading back what was: the ledger, the archive and the runs. No step depends on any of it.

use std::collections::HashSet;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::{Context, Result};
use crate::model::event::Event;
use crate::model::id::{EventId, MessageId, RunId};
use crate::model::message::Message;
use crate::model::record::Record;
use crate::model::run::{Brief, Run};
use crate::model::state::State;
use crate::model::time::Time;

use super::layout;
use super::lines;
use super::record::{decode_at, decode_plain};
use super::view::View;

/// The months of the ledger, oldest first.
fn ledger_files(view: &View<'_>) -> Result<Vec<String>> {
    let entries = view.agent.join(layout::LEDGER).entries()?;
    let names = entries.into_iter().filter_map(|entry| entry.name.into_string().ok());
    let mut paths: Vec<String> = names
        .filter(|name| name.ends_with(".jsonl"))
        .map(|name| format!("{}/{name}", layout::LEDGER))
        .chain(view.overlay_appends(layout::LEDGER))
        .collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// The months of the archive that have a file of this kind, newest first.
fn archive_files(view: &View<'_>, kind: &str) -> Result<Vec<String>> {
    let entries = view.agent.join(layout::ARCHIVE).entries()?;
    let months =
        entries.into_iter().filter(|entry| entry.is_dir).filter_map(|entry| entry.name.into_string().ok());
    let name = format!("/{kind}.jsonl");
    let mut paths: Vec<String> = months
        .map(|month| format!("{}/{month}{name}", layout::ARCHIVE))
        .chain(view.overlay_appends(layout::ARCHIVE).filter(|path| path.ends_with(&name)))
        .collect();
    paths.sort();
    paths.dedup();
    paths.reverse();
    Ok(paths)
}

/// The files that tell how messages have ended, of a month and those after it.
pub fn files_of_ends(view: &View<'_>, first_month: &str) -> Result<Vec<String>> {
    let mut paths = archive_files(view, Message::KIND)?;
    paths.extend(ledger_files(view)?);
    paths.retain(|path| path.split('/').nth(1).is_some_and(|month| month >= first_month));
    Ok(paths)
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
    let first_month = since.map(|since| format!("{}/{}.jsonl", layout::LEDGER, since.month()));
    for path in ledger_files(view)? {
        if first_month.as_ref().is_some_and(|first| path < *first) {
            continue;
        }
        let month = in_order(&view.agent.join(&path), &view.lines(&path)?)?;
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
    for path in ledger_files(view)?.into_iter().rev() {
        if found.len() >= count {
            break;
        }
        let bytes = view.lines(&path)?;
        let full = view.agent.join(&path);
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
/// has left twice is one.
pub fn archived<T: Record>(view: &View<'_>, mut each: impl FnMut(T) -> bool) -> Result<()> {
    for path in archive_files(view, T::KIND)? {
        let bytes = view.lines(&path)?;
        let mut seen = HashSet::new();
        for (number, line) in lines::records(&bytes).rev().filter(|(_, line)| seen.insert(*line)) {
            if !each(decode_at(&view.agent.join(&path), number, line)?) {
                return Ok(());
            }
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
    let needle = id.to_string();
    let born = id.minted_at().unwrap_or(Time::from_millis(0)).month();
    for path in archive_files(view, Message::KIND)? {
        if path.split('/').nth(1).is_some_and(|month| month < born.as_str()) {
            break;
        }
        let bytes = view.lines(&path)?;
        for (number, line) in lines::records(&bytes).rev() {
            // A look at the text spares most lines the parsing.
            if !contains(line, needle.as_bytes()) {
                continue;
            }
            let message: Message = decode_at(&view.agent.join(&path), number, line)?;
            if message.id == id {
                return Ok(Some(message));
            }
        }
    }
    Ok(None)
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
    for path in archive_files(view, Message::KIND)? {
        if path.split('/').nth(1).is_some_and(|month| month < born.as_str()) {
            break;
        }
        let bytes = view.lines(&path)?;
        for (number, line) in lines::records(&bytes).filter(|(_, line)| mentions(line, ids)) {
            let message: Message = decode_at(&view.agent.join(&path), number, line)?;
            found.extend(Some(message.id).filter(|id| ids.contains(id)));
        }
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

/// How much of an archive's end is read for the last briefs and reduced messages.
const TAIL: u64 = 256 * 1024;

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
        let tail = tail(view, &path)?;
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

/// The last whole lines of a file that only grows, at most about [`TAIL`] bytes of it, with those that the
/// journal appends to it.
fn tail(view: &View<'_>, path: &str) -> Result<Vec<u8>> {
    let (length, appended) = view.appended(path).unwrap_or((u64::MAX, &[]));
    let full = view.agent.join(path);
    let mut bytes = Vec::new();
    if let Some((mut file, there)) = full.open_file()? {
        let length = there.min(length);
        let from = length.saturating_sub(TAIL);
        file.seek(SeekFrom::Start(from)).context("read", &full)?;
        file.take(length - from).read_to_end(&mut bytes).context("read", &full)?;
        if from > 0 {
            // The first line is cut: leave it out.
            let whole = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
            bytes.drain(..whole);
        }
    }
    bytes.extend_from_slice(appended);
    Ok(bytes)
}

/// The ids of the runs that have a directory, newest first.
pub fn run_ids(view: &View<'_>) -> Result<Vec<RunId>> {
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

/// The record of a settled run; `None` for a live one and for one that was swept away.
pub fn run(view: &View<'_>, id: RunId) -> Result<Option<Run>> {
    view.record(&layout::run(id))
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
