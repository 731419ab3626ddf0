//! Operations that copy an agent from its directory into another kind of store.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::beneath::Spot;
use crate::error::{Error, IoContext, Result};
use crate::model::bound::{CHECKPOINT, MAX_SETTINGS};
use crate::model::digest;
use crate::model::json;
use crate::model::message::Message;
use crate::model::record::{Plane, Record};
use crate::model::run::Brief;
use crate::model::state::State;
use crate::model::time::Time;
use crate::model::trigger::Trigger;
use crate::model::work::WorkItem;
use crate::workdir;

use super::super::backend::{Arrival, ENDED, ImportedFile, Op, due, parts};
use super::super::settings::Settings;
use super::inbox::{self, Name};
use super::layout::AgentDir;
use super::months::{self, Month};
use super::record::{line_text, text};
use super::travel::{FileKind, place};
use super::view::View;
use super::{archive, files, layout, lines};

/// Handles the next operation of a copy.
type EachPiece<'e> = dyn FnMut(Op) -> Result<()> + 'e;

/// Calls `each` with the operations that copy an agent. Error if an exported file can't be
/// expressed as an operation.
pub fn all(view: &View<'_>, state: &State, each: &mut EachPiece<'_>) -> Result<()> {
    let dir = view.agent;
    brought(dir, Path::new(""), each)?;
    each(Op::Identity(read_text(&dir.join(layout::IDENTITY), files::MAX_RECORD)?))?;
    each(Op::Policy(Settings::of(read_text(&dir.join(layout::POLICY), MAX_SETTINGS)?)))?;
    each(Op::State {
        revision: state.revision,
        due: due(state),
        is_at_rest: state.is_at_rest(),
        text: read_text(&dir.join(layout::STATE), files::MAX_RECORD)?,
    })?;
    each(Op::Shut(state.moved.is_some()))?;
    for plane in Plane::ALL {
        open(dir, plane, each)?;
    }
    let read = history(view, None, |_| true, each)?;
    let mut there = Vec::new();
    plain_files(dir.spot(), Path::new(layout::ARCHIVE), &mut there)?;
    if there.len() != read {
        return Err(unfit(&dir.join(layout::ARCHIVE), NOT_OURS));
    }
    arrivals(&dir.join(layout::INBOX), Path::new(""), each)?;
    saved(dir, each)
}

/// Calls `each` with the lines of the months before the month of `moment`, without the remains of
/// deleted months.
pub fn before(view: &View<'_>, moment: Time, each: &mut EachPiece<'_>) -> Result<()> {
    history(view, Some(&moment.month()), |kind| kind != ENDED, each).map(drop)
}

/// Lists the files of the agent's records, with their digests and times.
fn brought(dir: &AgentDir, below: &Path, each: &mut EachPiece<'_>) -> Result<()> {
    for entry in dir.join(below).entries()? {
        let path = below.join(&entry.name);
        if !matches!(place(&path), FileKind::Records { .. }) {
            continue;
        }
        if entry.is_dir {
            brought(dir, &path, each)?;
            continue;
        }
        let spot = dir.join(&path);
        let (Some((file, _)), Some(name)) = (spot.open_file()?, path.to_str()) else { continue };
        let written_at = u64::try_from(file.metadata().context("look at", &spot)?.mtime()).unwrap_or(0);
        let (mut file, mut hash) = (BufReader::new(file), Sha256::new());
        loop {
            let some = file.fill_buf().context("read", &spot)?;
            hash.update(some);
            let count = some.len();
            if count == 0 {
                break;
            }
            file.consume(count);
        }
        each(Op::File(ImportedFile { path: name.to_owned(), written_at, digest: digest::of(hash) }))?;
    }
    Ok(())
}

fn read_text(spot: &Spot, most: u64) -> Result<String> {
    let bytes = spot.read(most)?.ok_or_else(|| Error::gone("read", spot))?;
    text(spot, bytes)
}

/// Error for a file that a database can't store.
fn unfit(spot: &Spot, hint: &str) -> Error {
    let name = spot.path().display();
    Error::refused("unfit", format!("{name}: only a state directory can keep that")).with_hint(hint)
}

const NOT_OURS: &str = "take it out of the agent where it comes from, and export it again";

/// Calls `each` with the open records of a kind, sorted by id.
fn open(dir: &AgentDir, plane: Plane, each: &mut EachPiece<'_>) -> Result<()> {
    let place = dir.join(layout::plane(plane));
    let mut plans = Vec::new();
    for entry in place.entries()? {
        let spot = place.join(&entry.name);
        let name = entry.name.to_string_lossy();
        if entry.is_dir || name.starts_with('.') {
            continue;
        }
        if let Some(work) = name.strip_suffix(".plan.md").filter(|_| plane == Plane::Work) {
            plans.push((work.to_owned(), spot));
        } else if let Some(id) = name.strip_suffix(".json") {
            each(Op::Open { plane, id: id.to_owned(), text: read_text(&spot, files::MAX_RECORD)? })?;
        } else if !name.ends_with(".lock") {
            return Err(unfit(&spot, NOT_OURS));
        }
    }
    plans
        .into_iter()
        .try_for_each(|(work, spot)| each(Op::Plan { work, text: read_text(&spot, files::MAX_RECORD)? }))
}

/// Calls `each` with the files of the inbox and its directories.
fn arrivals(inbox: &Spot, below: &Path, each: &mut EachPiece<'_>) -> Result<()> {
    for entry in inbox.join(below).entries()? {
        let path = below.join(&entry.name);
        let spot = inbox.join(&path);
        let arrival = match inbox::parse_name(entry.name.as_encoded_bytes(), entry.is_dir) {
            Name::Message(key) => Arrival::Message { key, text: read_text(&spot, files::MAX_RECORD)? },
            Name::Hint(id) => Arrival::Hint { id, text: read_text(&spot, files::MAX_RECORD)? },
            Name::Segment(_) => {
                arrivals(inbox, &path, each)?;
                continue;
            }
            Name::Rejected | Name::Other => continue,
            Name::Drop => {
                let hint = "step the agent where it comes from: that takes it in; and export it again";
                return Err(unfit(&spot, hint));
            }
        };
        each(Op::Arrived(arrival))?;
    }
    Ok(())
}

/// Calls `each` with the lines of the archive and the events, in the order of their files, the
/// oldest month of a kind first. Leaves out the months from `end` on, and the kinds that are not
/// `wanted`. Returns the number of files.
fn history(
    view: &View<'_>,
    end: Option<&str>,
    wanted: impl Fn(&str) -> bool,
    each: &mut EachPiece<'_>,
) -> Result<usize> {
    let is_before = |month: &Month| end.is_none_or(|end| month.name.as_str() < end);
    let mut read = 0;
    for kind in archive::KINDS.iter().filter(|kind| wanted(kind)) {
        for month in months::archive(view, kind)?.into_iter().filter(is_before) {
            let first = first_of(&month.name);
            read += usize::from(view.exists(&month.path)?);
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
    Ok(read)
}

/// Calls `each` with the checkpoints of runs. A checkpoint that no open record names belongs to the
/// run's line of the archive.
fn saved(dir: &AgentDir, each: &mut EachPiece<'_>) -> Result<()> {
    let runs = dir.join(layout::RUNS);
    for run in runs.entries()? {
        let Some(run_id) = run.name.to_str().and_then(|name| name.parse().ok()) else { continue };
        for entry in runs.join(&run.name).entries()? {
            let found = entry.name.to_str().and_then(|name| workdir::checkpoint_named(run_id, name));
            // A turn may have made another kind of file at this path.
            let Some(checkpoint) = found.filter(|_| !entry.is_dir) else { continue };
            match runs.join(&run.name).join(&entry.name).read(CHECKPOINT.most.0) {
                Ok(bytes) => parts(checkpoint, &bytes.unwrap_or_default()).try_for_each(&mut *each)?,
                Err(Error::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn plain_files(dir: &Spot, below: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in dir.join(below).entries()? {
        let path = below.join(&entry.name);
        if entry.name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if entry.is_dir { plain_files(dir, &path, found)? } else { found.push(path) }
    }
    Ok(())
}

/// Calls `each` with the lines of a file, without line feeds. Keeps only one line in memory, if no
/// transaction is pending.
fn each_line(view: &View<'_>, path: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    let spot = view.agent.join(path);
    let mut all =
        |bytes: &[u8]| lines::records(bytes).try_for_each(|(_, line)| each(line_text(&spot, 0, line)?));
    if view.is_appended(path) {
        return all(&view.lines(path)?);
    }
    let Some((opened, _)) = spot.open_file()? else { return Ok(()) };
    let mut opened = BufReader::new(opened);
    let mut line = Vec::new();
    while opened.read_until(b'\n', &mut line).context("read", &spot)? > 0 {
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
