//! Months past their retention: which may be deleted, and what remains of them.
//!
//! 1. The ids of the messages that ended in a month **must** be durable in `ended.jsonl` before the
//!    month's files are deleted: a message whose file comes back must not run again.
//! 2. A reader that has listed the files of a month and finds one deleted **must** notice. So a
//!    commit comes first: it raises the revision, and the reader starts over.
//! 3. A kill between two deletions leaves the rest of the month to the next `gc`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::Result;
use crate::model::id::{MessageId, RunId};
use crate::model::message::Message;
use crate::model::record::Record;
use crate::model::retention::Keep;
use crate::model::state::State;
use crate::model::time::Time;

use super::months;
use super::record::{decode_at, encode_plain_line};
use super::snapshot::DirSnapshot;
use super::view::View;
use super::witness::named;
use super::{DirAgent, DirTxn, archive, evidence, files, inbox, layout, lines, settled};

/// A line of `ended.jsonl`: a message that ended in a month that was deleted.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndedIdLine {
    schema: String,
    id: MessageId,
}

/// A month past its retention.
#[derive(Debug)]
pub struct MonthToDelete {
    pub month: String,
    /// Sum of the sizes of its files.
    pub bytes: u64,
    /// Paths from the agent's directory.
    files: Vec<String>,
    about: Subjects,
}

/// Ids of the records that the lines of a month are about. The month is kept as long as an open
/// record names one of these.
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

    /// True if one of them is in the inbox or is named by an open record.
    pub fn are_needed(&self, queued: &[MessageId], named: &HashSet<Uuid>) -> bool {
        let is_about = |id: &Uuid| self.runs.contains(id) || self.ended.contains(&MessageId(*id));
        queued.iter().any(|id| is_about(&id.0)) || named.iter().any(is_about)
    }
}

/// Line of `ended.jsonl` for a message.
pub fn ended_line(id: MessageId) -> Vec<u8> {
    encode_plain_line(&EndedIdLine { schema: "dormouse/ended/1".to_owned(), id })
}

/// True if a line of the archive is one of `ended.jsonl`.
pub fn is_ended_line(line: &str) -> bool {
    line.starts_with("{\"schema\":\"dormouse/ended/")
}

impl DirAgent<'_> {
    /// Returns the months past their retention. A month with a dead letter that was neither
    /// requeued nor dropped is kept.
    pub(super) fn to_drop(
        &self,
        seen: &DirSnapshot<'_>,
        keep: Keep,
        now: Time,
    ) -> Result<Vec<MonthToDelete>> {
        let view = &seen.view;
        let recent = months::first_recent(now);
        let mut all = months::ledger(view)?;
        for kind in archive::KINDS.iter().filter(|kind| **kind != months::ENDED) {
            all.extend(months::archive(view, kind)?);
        }
        let mut found: BTreeMap<String, MonthToDelete> = BTreeMap::new();
        for month in all {
            let is_over = months::over_at(&month.name).is_some_and(|over| keep.is_past(over, now));
            if month.name >= recent || !is_over {
                continue;
            }
            let Some(looked) = self.dir.join(&month.path).look()? else { continue };
            let dropping = found.entry(month.name.clone()).or_insert_with(|| MonthToDelete {
                month: month.name,
                bytes: 0,
                files: Vec::new(),
                about: Subjects::default(),
            });
            dropping.bytes += u64::try_from(looked.st_size).unwrap_or(0);
            dropping.files.push(month.path);
        }
        if found.is_empty() {
            return Ok(Vec::new());
        }
        for month in months_of_dead_letters(view)? {
            found.remove(&month);
        }
        for month in found.values_mut() {
            for path in &month.files {
                lines::records(&view.lines(path)?).for_each(|(_, line)| month.about.note(line));
            }
        }
        Ok(found.into_values().collect())
    }
}

/// Returns the months in which a message became a dead letter and still is one.
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

impl DirTxn<'_> {
    /// Adds the messages of a month to its `ended.jsonl`, durably. Returns false, and adds none, if
    /// an open record needs the month.
    pub(super) fn note_ended(&self, dropping: &MonthToDelete, state: &State) -> Result<bool> {
        let view = self.view();
        let queued: Vec<_> = inbox::all(&view, &inbox::scan(&view)?)?.iter().map(|key| key.id).collect();
        let named = named(&view, state, usize::MAX)?.unwrap_or_default();
        if dropping.about.are_needed(&queued, &named) {
            return Ok(false);
        }
        let spot = self.agent.dir.join(layout::month(&dropping.month, months::ENDED));
        let noted = spot.read(files::MAX_LINES)?.unwrap_or_default();
        let mut lines: Vec<&[u8]> = lines::once(&noted).map(|(_, line)| line).collect();
        let known: HashSet<&[u8]> = lines.iter().copied().collect();
        let new: Vec<Vec<u8>> = dropping.about.ended.iter().copied().map(ended_line).collect();
        let count = lines.len();
        lines.extend(new.iter().map(|line| line.trim_ascii()).filter(|line| !known.contains(line)));
        if lines.len() > count {
            spot.parent().make_dirs()?;
            self.agent.replace_file(&spot, &lines::join(lines))?;
        }
        Ok(true)
    }

    /// Deletes the files of a month. The caller has committed since [`DirTxn::note_ended`].
    pub(super) fn remove_month(&self, dropping: &MonthToDelete) -> Result<()> {
        for path in &dropping.files {
            let spot = self.agent.dir.join(path);
            spot.remove()?;
            self.agent.dir.join(layout::settled(path)).remove()?;
            if path.starts_with(layout::ARCHIVE) {
                // It fails as long as the month has other files.
                let _ = spot.parent().remove_dir();
            }
        }
        Ok(())
    }
}
