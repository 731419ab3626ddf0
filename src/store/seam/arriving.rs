//! Agents from a stream: each is made as files, on this machine, and is looked at there before it
//! appears. Where the records are elsewhere it appears by one change, and what is no record of it
//! goes to its room.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::beneath::Spot;
use crate::error::{Error, IoContext, Result};
use crate::model::bound::{CHECKPOINT, MAX_SETTINGS};
use crate::model::dedupe::DedupeEntry;
use crate::model::digest;
use crate::model::id::AgentName;
use crate::model::json;
use crate::model::message::{Message, MessageStatus};
use crate::model::record::{Plane, Record};
use crate::model::run::Brief;
use crate::model::time::{Span, Time};
use crate::model::timer::Timer;
use crate::model::trigger::Trigger;
use crate::model::work::WorkItem;
use crate::workdir;

use super::super::dir::inbox::{self, Name};
use super::super::dir::prepared::PreparedDir;
use super::super::dir::record::{decode, decode_at};
use super::super::dir::travel::{FileKind, place};
use super::super::dir::view::View;
use super::super::dir::{self, Appeared, agent_exists, archive, files, layout, lines, months};
use super::super::elsewhere::{Arrival, ImportedFile, Op, parts};
use super::{Agent, Store, pieces};

/// An agent that no other command sees yet. Dropping this removes it.
pub struct AgentImport<'s> {
    store: &'s Store,
    dir: dir::DirImport<'s>,
    agent: Agent<'s>,
}

impl Store {
    /// Refuses the name of an agent that is here and was not moved away.
    pub fn refuse_taken(&self, name: &AgentName) -> Result<()> {
        match self.agent(name) {
            Err(Error::NoAgent { .. }) => Ok(()),
            Ok(there) if there.peek()?.moved.is_some_and(|moved| moved.makes_room()) => Ok(()),
            Ok(_) => Err(agent_exists(name)),
            Err(error) => Err(error),
        }
    }

    /// Begins to make an agent of a stream that is named `former` there. Refused if there is an
    /// agent `name` that was not moved away.
    pub fn stage<'s>(&'s self, name: &AgentName, former: &AgentName) -> Result<AgentImport<'s>> {
        self.refuse_taken(name)?;
        self.sweep_rooms();
        let dir = self.local.stage(name, former)?;
        let agent = Agent::of_dir(self, dir.agent().clone());
        Ok(AgentImport { store: self, dir, agent })
    }
}

impl<'s> AgentImport<'s> {
    /// Returns the files of the agent on this machine.
    pub fn local(&self) -> &dir::DirImport<'s> {
        &self.dir
    }

    pub fn local_mut(&mut self) -> &mut dir::DirImport<'s> {
        &mut self.dir
    }

    /// The agent, for checks and changes before it appears.
    pub fn agent(&self) -> &Agent<'s> {
        &self.agent
    }

    /// Puts the agent in place, unless there is one of its name.
    pub fn place_if_free(mut self, now: Time) -> Result<bool> {
        if self.store.elsewhere.is_none() {
            return self.dir.place_if_free();
        }
        let prepared = self.prepare(now)?;
        self.create(&prepared, now)
    }

    /// Puts the agent in place, also of one that was moved away.
    pub fn place(mut self, now: Time) -> Result<Appeared> {
        if self.store.elsewhere.is_none() {
            return self.dir.place(now);
        }
        let prepared = self.prepare(now)?;
        if self.create(&prepared, now)? {
            return Ok(Appeared::New);
        }
        let name = self.agent.name();
        let there = self.store.agent(name)?;
        let locked = there.change(now)?;
        if !locked.any_state()?.moved.is_some_and(|moved| moved.makes_room()) {
            return Err(agent_exists(name));
        }
        // Nothing has arrived there since it left.
        self.dir.may_be_named(true);
        locked.replace(&|each| all(&self.agent, &prepared, now, each))?;
        self.room().move_in(&prepared)?;
        Ok(Appeared::Back)
    }

    /// Makes the agent in the other store. `false`: there is one of its name.
    fn create(&mut self, prepared: &PreparedDir, now: Time) -> Result<bool> {
        let Some(elsewhere) = &self.store.elsewhere else { return Ok(false) };
        self.dir.may_be_named(true);
        let pieces = |each: &mut Each<'_>| all(&self.agent, prepared, now, each);
        let is_new = elsewhere.create(self.agent.name(), &pieces)?;
        if is_new {
            self.room().move_in(prepared)?;
        } else {
            self.dir.may_be_named(false);
        }
        Ok(is_new)
    }

    /// Makes what was staged the room that the records will name.
    fn prepare(&mut self, now: Time) -> Result<PreparedDir> {
        let prepared = self.dir.prepare(now)?;
        self.agent = Agent::of_dir(self.store, self.dir.agent().clone());
        Ok(prepared)
    }

    /// Where that goes once the records have appeared.
    fn room(&self) -> dir::DirAgent<'s> {
        self.store.local.room(self.agent.name())
    }
}

/// Takes the next piece of an agent.
type Each<'e> = dyn FnMut(Op) -> Result<()> + 'e;

/// Calls `each` with all that an agent consists of, whose records are files.
fn all(agent: &Agent<'_>, prepared: &PreparedDir, now: Time, each: &mut Each<'_>) -> Result<()> {
    let dir = agent.local().dir().spot();
    let state = agent.peek()?;
    brought(dir, Path::new(""), each)?;
    each(Op::Room(prepared.name.clone()))?;
    each(Op::Identity(text(&dir.join(layout::IDENTITY), files::MAX_RECORD)?))?;
    each(pieces::policy(text(&dir.join(layout::POLICY), MAX_SETTINGS)?))?;
    each(Op::State {
        revision: state.revision,
        due: pieces::due(&state),
        text: text(&dir.join(layout::STATE), files::MAX_RECORD)?,
    })?;
    each(Op::Shut(state.moved.is_some()))?;
    for plane in Plane::ALL {
        open(dir, plane, each)?;
    }
    let mut keys = DedupeKeys { window: agent.policy()?.limits.dedupe_window, now, found: HashMap::new() };
    history(agent, &mut keys, each)?;
    arrivals(&dir.join(layout::INBOX), Path::new(""), &mut keys, each)?;
    saved(agent, each)?;
    // A message that a timer holds has been admitted as well.
    for timer in agent.glimpse().open::<Timer>()? {
        timer.message.iter().for_each(|message| keys.note(message, MessageStatus::Queued));
    }
    keys.found.into_values().try_for_each(|entry| {
        each(Op::Key { key: entry.key.clone(), admitted_at: entry.admitted_at, text: pieces::text(&entry) })
    })
}

/// Lists the files of its records, with their digests and times.
fn brought(dir: &Spot, below: &Path, each: &mut Each<'_>) -> Result<()> {
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

fn text(spot: &Spot, most: u64) -> Result<String> {
    let bytes = spot.read(most)?.ok_or_else(|| Error::gone("read", spot))?;
    String::from_utf8(bytes).map_err(|error| Error::damaged(spot.path(), error.to_string()))
}

/// The refusal of a file that is nothing that such a store can keep.
fn unfit(spot: &Spot, hint: &str) -> Error {
    let name = spot.path().display();
    Error::refused("unfit", format!("{name}: only a state directory can keep that")).with_hint(hint)
}

const NOT_OURS: &str = "take it out of the agent where it comes from, and export it again";

/// The open records of a kind, in order of id.
fn open(dir: &Spot, plane: Plane, each: &mut Each<'_>) -> Result<()> {
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
            each(Op::Open { plane, id: id.to_owned(), text: text(&spot, files::MAX_RECORD)? })?;
        } else if !name.ends_with(".lock") {
            return Err(unfit(&spot, NOT_OURS));
        }
    }
    plans
        .into_iter()
        .try_for_each(|(work, spot)| each(Op::Plan { work, text: text(&spot, files::MAX_RECORD)? }))
}

/// Lists the inbox with its directories.
fn arrivals(inbox: &Spot, below: &Path, keys: &mut DedupeKeys, each: &mut Each<'_>) -> Result<()> {
    for entry in inbox.join(below).entries()? {
        let path = below.join(&entry.name);
        let spot = inbox.join(&path);
        let arrival = match inbox::parse_name(entry.name.as_encoded_bytes(), entry.is_dir) {
            Name::Message(key) => {
                let text = text(&spot, files::MAX_RECORD)?;
                if let Ok(message) = decode::<Message>(spot.path(), text.as_bytes()) {
                    keys.note(&message, MessageStatus::Queued);
                }
                Arrival::Message { key, text }
            }
            Name::Hint(id) => Arrival::Hint { id, text: text(&spot, files::MAX_RECORD)? },
            Name::Segment(_) => {
                arrivals(inbox, &path, keys, each)?;
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
/// oldest month of a kind first.
fn history(agent: &Agent<'_>, keys: &mut DedupeKeys, each: &mut Each<'_>) -> Result<()> {
    let dir = agent.local().dir();
    let view = View::settled(dir);
    let mut read = 0;
    for kind in archive::KINDS {
        for month in months::archive(&view, kind)? {
            let first = first_of(&month.name);
            read += usize::from(dir.join(&month.path).exists()?);
            each_line(&view, &month.path, &mut |spot, line| {
                if *kind == Message::KIND && line.contains("\"dedupe_key\"") {
                    keys.note_ended(&decode_at::<Message>(spot.path(), 0, line.as_bytes())?);
                }
                let (id, at) = ended(kind, line);
                let at = at.filter(|at| at.month() == month.name).unwrap_or(first);
                each(Op::Ended { kind, id, at, text: format!("{line}\n") })
            })?;
        }
    }
    let mut there = Vec::new();
    plain_files(dir.spot(), Path::new(layout::ARCHIVE), &mut there)?;
    if there.len() != read {
        return Err(unfit(&dir.join(layout::ARCHIVE), NOT_OURS));
    }
    for month in months::ledger(&view)? {
        let first = first_of(&month.name);
        each_line(&view, &month.path, &mut |_, line| {
            let value = json::value(line.as_bytes()).unwrap_or_default();
            let at = moment(&value, "at").filter(|at| at.month() == month.name).unwrap_or(first);
            let seq = value.get("seq").and_then(Value::as_u64).unwrap_or_default();
            each(Op::Event { seq, at, text: format!("{line}\n") })
        })?;
    }
    Ok(())
}

/// Lists the checkpoints of runs. If no record names the file any more, it goes with the run's line
/// of the archive.
fn saved(agent: &Agent<'_>, each: &mut Each<'_>) -> Result<()> {
    let runs = agent.local().dir().join(layout::RUNS);
    for run in runs.entries()? {
        let Some(run_id) = run.name.to_str().and_then(|name| name.parse().ok()) else { continue };
        for entry in runs.join(&run.name).entries()? {
            let found = entry.name.to_str().and_then(|name| workdir::checkpoint_named(run_id, name));
            // A turn may have put something else there.
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

/// Calls `each` with the lines of a file, without their ends. No more than one is in memory.
fn each_line(view: &View<'_>, file: &str, each: &mut dyn FnMut(&Spot, &str) -> Result<()>) -> Result<()> {
    let spot = view.agent.join(file);
    let mut all = |bytes: &[u8]| {
        lines::records(bytes).try_for_each(|(_, line)| {
            let line =
                std::str::from_utf8(line).map_err(|error| Error::damaged(spot.path(), error.to_string()))?;
            each(&spot, line)
        })
    };
    let Some((opened, _)) = spot.open_file()? else { return Ok(()) };
    let mut opened = BufReader::new(opened);
    let mut line = Vec::new();
    while opened.read_until(b'\n', &mut line).context("read", &spot)? > 0 {
        all(&line)?;
        line.clear();
    }
    Ok(())
}

/// The id of a record that has ended, and when that was.
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

/// The first moment of a month, for a line that says nothing of when it was written, or something
/// else.
fn first_of(month: &str) -> Time {
    months::begins_at(month).unwrap_or(Time::from_millis(0))
}

/// The dedupe keys that stand for a message within the window, as the directory makes them anew.
struct DedupeKeys {
    window: Span,
    now: Time,
    found: HashMap<String, DedupeEntry>,
}

impl DedupeKeys {
    fn note_ended(&mut self, message: &Message) {
        let settlement = message.settlement.as_ref().filter(|settlement| !settlement.is_of_duplicate());
        settlement.into_iter().for_each(|settlement| self.note(message, settlement.status));
    }

    fn note(&mut self, message: &Message, status: MessageStatus) {
        let Some(key) = &message.dedupe_key else { return };
        let noted = self.found.get(key);
        let is_later = noted.is_none_or(|noted| {
            noted.admitted_at < message.created_at
                || noted.message_id == message.id && noted.status != MessageStatus::Queued
        });
        if !is_later || self.now.since(message.created_at) >= self.window {
            return;
        }
        let entry = DedupeEntry {
            key: key.clone(),
            message_id: message.id,
            admitted_at: message.created_at,
            status,
            revision: 0,
            extra: Default::default(),
        };
        self.found.insert(key.clone(), entry);
    }
}
