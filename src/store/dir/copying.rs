//! Conversions between the files of an agent and operations on its records.

use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::Value;

use crate::cap_fs::CapPath;
use crate::error::{Error, IoContext, Result};
use crate::local::layout::{self, AgentDir};
use crate::local::travel::walk;
use crate::local::workdir;
use crate::model::json;
use crate::model::message::Message;
use crate::model::preemption::Checkpoint;
use crate::model::record::{Plane, Record};
use crate::model::run::Brief;
use crate::model::time::Time;
use crate::model::trigger::Trigger;
use crate::model::work::WorkItem;

use super::super::backend::{Arrival, ENDED, EachOp, Op};
use super::inbox::{self, Name};
use super::lines;
use super::months::{self, Month};
use super::record::line_text;
use super::view::View;

/// Calls `put` with the file that an operation writes, or with the next part of the file: its path
/// in the agent's directory, and the bytes. Other operations are ignored.
pub fn put(op: Op, put: &mut dyn FnMut(&str, &[u8]) -> Result<()>) -> Result<()> {
    match op {
        Op::Identity(text) => put(layout::IDENTITY, text.as_bytes()),
        Op::Policy(settings) => put(layout::POLICY, settings.text.as_bytes()),
        Op::State { text, .. } => put(layout::STATE, text.as_bytes()),
        Op::Open { plane, id, text } => put(&layout::open(plane, &id), text.as_bytes()),
        Op::Plan { work, text } => put(&layout::plan(&work), text.as_bytes()),
        Op::Arrived(Arrival::Message { key, text }) => put(&layout::message(key), text.as_bytes()),
        Op::Arrived(Arrival::Hint { id, text }) => put(&layout::hint(id), text.as_bytes()),
        Op::Ended { kind, id: _, at, text } => put(&layout::archive(at, kind), text.as_bytes()),
        Op::Saved { checkpoint, part: _, bytes } => put(&layout::checkpoint(checkpoint), &bytes),
        Op::Event { seq: _, at, text } => put(&layout::ledger(at), text.as_bytes()),
        Op::Closed { .. }
        | Op::MessageTaken(_)
        | Op::HintTaken(_)
        | Op::Key { .. }
        | Op::KeysForgotten(_)
        | Op::TriggerKey { .. }
        | Op::InboxClosed(_)
        | Op::Unsaved(_)
        | Op::LocalDir(_)
        | Op::Forgotten { .. } => Ok(()),
    }
}

/// Error if an exported file can't be expressed as an operation.
pub fn refuse_unfit(view: &View<'_>) -> Result<()> {
    let dir = view.agent;
    for plane in Plane::ALL {
        let place = dir.join(layout::plane(plane));
        for entry in place.entries()? {
            let name = entry.name.to_string_lossy();
            let is_ours = |ending: &&str| name.ends_with(ending);
            let is_record =
                [".json", ".lock"].iter().any(is_ours) || plane == Plane::Work && is_ours(&".plan.md");
            if !entry.is_dir && !name.starts_with('.') && !is_record {
                return Err(unfit(&place.join(&entry.name), NOT_OURS));
            }
        }
    }
    let mut read = 0;
    for month in months::archive(view, months::KINDS)? {
        read += usize::from(view.exists(&month.path)?);
    }
    let mut there = 0;
    walk(dir.cap(), Path::new(layout::ARCHIVE), &mut |_, entry| {
        let is_hidden = entry.name.as_encoded_bytes().starts_with(b".");
        there += usize::from(!is_hidden && !entry.is_dir);
        Ok(!is_hidden)
    })?;
    if there != read {
        return Err(unfit(&dir.join(layout::ARCHIVE), NOT_OURS));
    }
    let inbox = dir.join(layout::INBOX);
    walk(&inbox, Path::new(""), &mut |path, entry| {
        let name = inbox::parse_name(entry.name.as_encoded_bytes(), entry.is_dir);
        match name {
            Name::Segment(_) => Ok(true),
            Name::Message(_) | Name::Hint(_) | Name::Rejected | Name::Other => Ok(false),
            Name::Drop => {
                let hint = "tick the agent where it comes from, which admits it, and export it again";
                Err(unfit(&inbox.join(path), hint))
            }
        }
    })
}

/// Error for a file that a database can't store.
fn unfit(cap: &CapPath, hint: &str) -> Error {
    let name = cap.path().display();
    Error::refused("unfit", format!("{name}: only a state directory can keep that")).with_hint(hint)
}

const NOT_OURS: &str = "take it out of the agent where it comes from, and export it again";

/// Calls `each` with the lines of the archive and the events, in the order of their files, the
/// oldest month of a kind first. `before`: only months before the month of this moment, without the
/// lists of ids kept from deleted months.
pub fn history(view: &View<'_>, before: Option<Time>, each: &mut EachOp<'_>) -> Result<()> {
    let end = before.map(Time::month);
    let is_before = |month: &Month| end.as_ref().is_none_or(|end| month.name < *end);
    for kind in months::KINDS.iter().filter(|kind| before.is_none() || **kind != ENDED) {
        for month in months::archive(view, &[kind])?.into_iter().filter(is_before) {
            let first = first_of(&month.name);
            each_line(view, &month.path, &mut |line| {
                let (id, at) = ended(kind, line);
                let at = at.filter(|at| at.month() == month.name).unwrap_or(first);
                each(Op::Ended { kind, id, at, text: format!("{line}\n") })
            })?;
        }
    }
    for month in months::ledger(view)?.into_iter().filter(is_before) {
        let first = first_of(&month.name);
        each_line(view, &month.path, &mut |line| {
            let value = json::value(line.as_bytes()).unwrap_or_default();
            let at = moment(&value, "at").filter(|at| at.month() == month.name).unwrap_or(first);
            let seq = value.get("seq").and_then(Value::as_u64).unwrap_or_default();
            each(Op::Event { seq, at, text: format!("{line}\n") })
        })?;
    }
    Ok(())
}

/// Returns the checkpoints of runs. Skips a directory that a turn has made in the place of one.
pub fn checkpoints(dir: &AgentDir) -> Result<Vec<Checkpoint>> {
    let (runs, mut found) = (dir.join(layout::RUNS), Vec::new());
    for run in runs.entries()? {
        let Some(run_id) = run.name.to_str().and_then(|name| name.parse().ok()) else { continue };
        for entry in runs.join(&run.name).entries()?.iter().filter(|entry| !entry.is_dir) {
            found.extend(entry.name.to_str().and_then(|name| workdir::parse_checkpoint(run_id, name)));
        }
    }
    Ok(found)
}

/// Calls `each` with the lines of a file, without line feeds. Keeps only one line in memory, if no
/// transaction is pending.
fn each_line(view: &View<'_>, path: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    let cap = view.agent.join(path);
    let mut all =
        |bytes: &[u8]| lines::records(bytes).try_for_each(|(_, line)| each(line_text(&cap, 0, line)?));
    if view.is_appended(path) {
        return all(&view.lines(path)?);
    }
    let Some((opened, _)) = cap.open_file()? else { return Ok(()) };
    let mut opened = BufReader::new(opened);
    let mut line = Vec::new();
    while opened.read_until(b'\n', &mut line).context("read", &cap)? > 0 {
        all(&line)?;
        line.clear();
    }
    Ok(())
}

/// Returns the id of a record that has ended, and the time of its end.
fn ended(kind: &str, line: &str) -> (Option<String>, Option<Time>) {
    let value = json::value(line.as_bytes()).unwrap_or_default();
    let at = |field: &str| moment(&value, field);
    let at = match kind {
        Message::KIND => value.get("settlement").and_then(|settlement| moment(settlement, "at")),
        WorkItem::KIND => at("updated_at"),
        Trigger::KIND => at("revoked_at"),
        Brief::KIND => at("at"),
        _ => at("ended_at"),
    }
    .or_else(|| at("created_at"));
    let id = value.get("id").and_then(Value::as_str).filter(|_| kind != Brief::KIND);
    (id.map(str::to_owned), at)
}

fn moment(value: &Value, field: &str) -> Option<Time> {
    Time::parse(value.get(field)?.as_str()?).ok()
}

/// Returns the first moment of a month, for a line without a valid time in that month.
fn first_of(month: &str) -> Time {
    months::begins_at(month).unwrap_or(Time::from_millis(0))
}
