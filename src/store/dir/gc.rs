//! Months that are over: packed, or dropped once the retention keeps them no longer.
//!
//! 1. What is new **must** be in its place, and durable, before what it stands for goes: a kill
//!    leaves one or the other, or both, and both are one.
//! 2. A reader that has listed the files of a month and opens one that has gone meanwhile **must**
//!    see that it was overtaken. So there is a commit in between: the revision moves on, and the
//!    reader starts over.
//! 3. What has ended **must not** run again because its file came back: of a month that is dropped
//!    the ids of the messages that ended in it stay, packed, as a kind of record of their own.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;

use serde::{Deserialize, Serialize};

use uuid::Uuid;

use crate::beneath::Spot;
use crate::error::{Error, Result};
use crate::model::id::{MessageId, RunId};
use crate::model::message::Message;
use crate::model::record::Record;
use crate::model::retention::Keep;
use crate::model::run::{Brief, Run};
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::time::Time;
use crate::model::timer::Timer;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;

use super::months::{self, Month, Seen};
use super::record::{decode_at, encode_plain_line};
use super::snapshot::Snapshot;
use super::view::View;
use super::witness::named;
use super::{Agent, Change, evidence, files, inbox, layout, lines, packed, settled};

/// The kinds of record that the archive has.
pub const KINDS: [&str; 8] = [
    Message::KIND,
    Run::KIND,
    WorkItem::KIND,
    Wait::KIND,
    Timer::KIND,
    Task::KIND,
    Trigger::KIND,
    Brief::KIND,
];

/// A line of what is left of a month that was dropped: a message that ended in it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    schema: String,
    id: MessageId,
}

/// A file of a month that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Old {
    /// From the agent's directory.
    pub path: String,
    pub bytes: u64,
    /// What its packed files are called before their number, and where they lie.
    #[serde(skip)]
    stem: String,
    #[serde(skip)]
    dir: &'static str,
    /// Tells it from another one of the same name.
    #[serde(skip)]
    inode: u64,
}

/// Lines that are packed and not in their place yet.
#[derive(Debug)]
pub struct Staged {
    pub old: Old,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    temporary: Spot,
    target: Spot,
    bytes: u64,
    /// Held so that no command takes it for litter meanwhile.
    _held: File,
}

impl Staged {
    /// How much the packed files have.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        remove_temporaries(&self.parts);
    }
}

impl Agent<'_> {
    /// The files of lines that can be packed: of months that are over for long enough.
    pub(super) fn to_pack(&self, seen: &Snapshot<'_>, now: Time) -> Result<Vec<Old>> {
        let view = &seen.view;
        let recent = months::first_recent(now);
        let mut found = Vec::new();
        for (dir, kind, month) in all_months(view)? {
            let is_old = month.name < recent && months::over_at(&month.name).is_some();
            for path in month.files.into_iter().filter(|path| is_old && !months::is_packed(path)) {
                if let Some(looked) = self.dir.join(&path).look()? {
                    let bytes = u64::try_from(looked.st_size).unwrap_or(0);
                    found.push(Old { path, bytes, stem: stem(&month.name, kind), dir, inode: looked.st_ino });
                }
            }
        }
        Ok(found)
    }

    /// Packs the lines of a file that no packed file of its month has. Needs no lock, and should
    /// have none: it may take its time.
    pub(super) fn stage_packed(&self, seen: &Snapshot<'_>, old: Old) -> Result<Staged> {
        let view = &seen.view;
        let (last, parts) = parts_of(view, old.dir, &old.stem)?;
        let mut known = known_of(view, &parts)?;
        let bytes = months::read(view, &old.path)?;
        let new = lines::records(&bytes).map(|(_, line)| line).filter(|line| known.insert(line));
        let parts = self.stage_parts(old.dir, &old.stem, &packed::parts(new), last)?;
        Ok(Staged { old, parts })
    }

    /// Packs each content into a file of its own, numbered from after `last`, that has no place
    /// yet.
    fn stage_parts(&self, dir: &str, stem: &str, contents: &[Vec<u8>], last: u32) -> Result<Vec<Part>> {
        let mut parts = Vec::with_capacity(contents.len());
        let staged = contents.iter().zip(last + 1..).try_for_each(|(content, number)| {
            let packed = packed::pack(content).map_err(Error::failed)?;
            let name = packed::name(stem, number, &packed);
            let temporary = self.tmp().join(format!("{}-{name}", std::process::id()));
            let held = self.store.disk.stage_unlocked(&temporary, &packed)?;
            let target = self.dir.join(dir).join(&name);
            parts.push(Part { temporary, target, bytes: packed.len() as u64, _held: held });
            Ok(())
        });
        if staged.is_err() {
            remove_temporaries(&parts);
        }
        staged.map(|()| parts)
    }
}

/// Where the packed files of a month lie, and what they are called before their number.
fn stem(month: &str, kind: Option<&str>) -> String {
    kind.map_or(month.to_owned(), |kind| format!("{month}.{kind}"))
}

/// Every month of the ledger, and of every kind of the archive.
fn all_months(view: &View<'_>) -> Result<Vec<(&'static str, Option<&'static str>, Month)>> {
    let ledger = months::ledger(view)?.into_iter();
    let mut all: Vec<_> = ledger.map(|month| (layout::LEDGER, None, month)).collect();
    for kind in KINDS {
        let of_kind = months::archive(view, kind)?.into_iter();
        all.extend(of_kind.map(|month| (layout::ARCHIVE, Some(kind), month)));
    }
    Ok(all)
}

/// The number of the last packed file of a name, and the paths of all of them.
fn parts_of(view: &View<'_>, dir: &str, stem: &str) -> Result<(u32, Vec<String>)> {
    let mut found: Vec<(u32, String)> = Vec::new();
    for entry in view.agent.join(dir).entries()? {
        let Some(name) = entry.name.to_str() else { continue };
        if let Some((of, number)) = packed::parse(name).filter(|_| !entry.is_dir)
            && of == stem
        {
            found.push((number, format!("{dir}/{name}")));
        }
    }
    found.sort();
    let last = found.last().map_or(0, |(number, _)| *number);
    Ok((last, found.into_iter().map(|(_, path)| path).collect()))
}

/// The lines of packed files.
fn known_of(view: &View<'_>, parts: &[String]) -> Result<Seen> {
    let mut known = Seen::default();
    for path in parts {
        lines::records(&months::read(view, path)?).for_each(|(_, line)| {
            known.insert(line);
        });
    }
    Ok(known)
}

/// A month that the retention keeps no longer.
#[derive(Debug)]
pub struct Dropping {
    pub month: String,
    /// What its files have.
    pub bytes: u64,
    files: Vec<String>,
    about: Subjects,
    /// What stays of it.
    ended: Vec<Part>,
}

/// What the lines of a month are about. The month stays as long as an open record is about one of
/// these.
#[derive(Debug, Default)]
pub struct Subjects {
    /// The messages that ended in it.
    pub ended: BTreeSet<MessageId>,
    runs: HashSet<Uuid>,
}

impl Subjects {
    pub fn note(&mut self, line: &[u8]) {
        self.ended.extend(settled::ended(line).map(|id| MessageId(Uuid::from_bytes(id))));
        self.runs.extend(evidence::id_in::<RunId>(line).map(|id| id.0));
    }

    /// Whether one of them is in the inbox, or an open record names it.
    pub fn are_needed(&self, queued: &[MessageId], named: &HashSet<Uuid>) -> bool {
        let is_about = |id: &Uuid| self.runs.contains(id) || self.ended.contains(&MessageId(*id));
        queued.iter().any(|id| is_about(&id.0)) || named.iter().any(is_about)
    }
}

/// The line that says of a message that it has ended, in a month that was dropped.
pub fn ended_line(id: MessageId) -> Vec<u8> {
    encode_plain_line(&Ended { schema: "dormouse/ended/1".to_owned(), id })
}

/// Whether a line of the archive is such a line.
pub fn is_ended_line(line: &str) -> bool {
    line.starts_with("{\"schema\":\"dormouse/ended/")
}

impl Drop for Dropping {
    fn drop(&mut self) {
        remove_temporaries(&self.ended);
    }
}

impl Agent<'_> {
    /// The months that are kept no longer, each with what is to stay of it if it is `staged`. A
    /// month stays in which a dead letter lies that no person has requeued or dropped.
    pub(super) fn to_drop(
        &self,
        seen: &Snapshot<'_>,
        keep: Keep,
        now: Time,
        is_staged: bool,
    ) -> Result<Vec<Dropping>> {
        let view = &seen.view;
        let recent = months::first_recent(now);
        let is_over = |month: &str| months::over_at(month).is_some_and(|over| keep.is_past(over, now));
        let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (_, _, month) in all_months(view)? {
            if month.name < recent && is_over(&month.name) {
                files.entry(month.name).or_default().extend(month.files);
            }
        }
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let dead = months_of_dead_letters(view)?;
        let mut dropping = Vec::new();
        for (month, files) in files {
            let mut found = Vec::new();
            let mut bytes = 0;
            for path in files {
                if let Some(looked) = self.dir.join(&path).look()? {
                    bytes += u64::try_from(looked.st_size).unwrap_or(0);
                    found.push(path);
                }
            }
            if !found.is_empty() && !dead.contains(&month) {
                dropping.push(self.dropping(view, month, bytes, found, is_staged)?);
            }
        }
        Ok(dropping)
    }

    fn dropping(
        &self,
        view: &View<'_>,
        month: String,
        bytes: u64,
        files: Vec<String>,
        is_staged: bool,
    ) -> Result<Dropping> {
        let mut about = Subjects::default();
        for path in &files {
            for (_, line) in lines::records(&months::read(view, path)?) {
                about.note(line);
            }
        }
        let stem = stem(&month, Some(months::ENDED));
        let (last, parts) = parts_of(view, layout::ARCHIVE, &stem)?;
        let mut known = known_of(view, &parts)?;
        let new: Vec<Vec<u8>> = about.ended.iter().copied().map(ended_line).collect();
        let new = new.iter().map(|line| line.trim_ascii()).filter(|line| known.insert(line));
        let contents = packed::parts(new);
        let ended =
            if is_staged { self.stage_parts(layout::ARCHIVE, &stem, &contents, last)? } else { Vec::new() };
        Ok(Dropping { month, bytes, files, about, ended })
    }
}

/// The months in which a message has become a dead letter that is one still.
fn months_of_dead_letters(view: &View<'_>) -> Result<HashSet<String>> {
    let mut seen = HashSet::new();
    let mut found = HashSet::new();
    for month in months::archive(view, Message::KIND)?.iter().rev() {
        months::newest_first(view, month, |spot, number, line| {
            let message: Message = decode_at(spot, number, line)?;
            let is_dead = message.settlement.is_some_and(|settlement| settlement.dead_letter);
            if seen.insert(message.id) && is_dead {
                found.insert(month.name.clone());
            }
            Ok(true)
        })?;
    }
    Ok(found)
}

impl Dropping {
    /// Whether a file is one of the month's.
    pub fn has(&self, old: &Old) -> bool {
        self.files.contains(&old.path)
    }
}

impl Change<'_> {
    /// Takes the lines out of a plain file that are packed already, as a command leaves it that was
    /// killed between the two; without any other line the file goes.
    pub(super) fn forget_packed_lines(&self, plain: &Spot) -> Result<()> {
        let view = self.view();
        let path = plain.below(self.agent.dir.spot()).to_string_lossy().into_owned();
        for (dir, kind, month) in
            all_months(&view)?.into_iter().filter(|(.., month)| month.files.contains(&path))
        {
            let known = known_of(&view, &parts_of(&view, dir, &stem(&month.name, kind))?.1)?;
            let bytes = months::read(&view, &path)?;
            let kept = lines::records(&bytes).map(|(_, line)| line).filter(|line| !known.has(line));
            let kept = lines::join(kept);
            if kept.is_empty() { self.remove_lines(&path)? } else { self.agent.replace_file(plain, &kept)? }
        }
        Ok(())
    }

    /// Puts packed lines in their place. `false`: what they were packed from is another file by
    /// now, or gone.
    pub(super) fn place_packed(&self, staged: &Staged) -> Result<bool> {
        let is_same = self.is_same(&staged.old)?;
        if is_same {
            self.put_in_place(&staged.parts)?;
        }
        Ok(is_same)
    }

    fn is_same(&self, old: &Old) -> Result<bool> {
        let found = self.agent.dir.join(&old.path).look()?;
        Ok(found.is_some_and(|found| {
            found.st_ino == old.inode && u64::try_from(found.st_size).ok() == Some(old.bytes)
        }))
    }

    /// Puts what is to stay of a month in its place. `false`: an open record is about something in
    /// it, so it stays.
    pub(super) fn place_ended(&self, dropping: &Dropping, state: &State) -> Result<bool> {
        let view = self.view();
        let queued: Vec<_> = inbox::all(&view, &inbox::scan(&view)?)?.iter().map(|key| key.id).collect();
        let named = named(&view, state, usize::MAX)?.unwrap_or_default();
        let is_needed = dropping.about.are_needed(&queued, &named);
        if !is_needed {
            self.put_in_place(&dropping.ended)?;
        }
        Ok(!is_needed)
    }

    fn put_in_place(&self, parts: &[Part]) -> Result<()> {
        for part in parts {
            files::rename(&part.temporary, &part.target)?;
        }
        match parts.first() {
            Some(part) => self.agent.store.disk.sync_dir(&part.target.parent()),
            None => Ok(()),
        }
    }

    /// Removes a file whose lines are packed. Only after a commit since they were put in their
    /// place.
    pub(super) fn remove_packed(&self, staged: &Staged) -> Result<()> {
        // That commit may have added to it: then it stays, and the next `gc` packs the rest.
        if self.is_same(&staged.old)? { self.remove_lines(&staged.old.path) } else { Ok(()) }
    }

    /// Removes a month that is kept no longer. Only after a commit since what stays of it was put
    /// in its place.
    pub(super) fn remove_month(&self, dropping: &Dropping) -> Result<()> {
        dropping.files.iter().try_for_each(|path| self.remove_lines(path))
    }

    fn remove_lines(&self, path: &str) -> Result<()> {
        let spot = self.agent.dir.join(path);
        spot.remove()?;
        self.agent.dir.join(layout::settled(path)).remove()?;
        if !months::is_packed(path) && path.starts_with(layout::ARCHIVE) {
            // The month has other files yet, mostly.
            let _ = spot.parent().remove_dir();
        }
        Ok(())
    }
}

fn remove_temporaries(parts: &[Part]) {
    for part in parts {
        // Mostly it is in its place by now.
        let _ = part.temporary.remove();
    }
}
