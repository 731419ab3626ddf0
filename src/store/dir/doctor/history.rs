//! Checks of the ledger and of the archive.

use std::collections::{BTreeMap, HashSet};

use crate::cap_fs::CapPath;
use crate::error::Result;
use crate::local::files::{self, conflict_marker};
use crate::model::event::Event;
use crate::model::id::MessageId;
use crate::model::message::{Message, MessageStatus, Settlement};
use crate::model::record::Record;
use crate::model::run::{Brief, Run};
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::timer::Timer;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;

use super::super::months::{self, Month};
use super::super::record::{decode_at, decode_plain};
use super::super::view::View;
use super::super::{gc, lines};
use super::records::Checkup;
use super::{ENDED_TWICE, Finding, MERGED_LINES, Remedy};

/// End of a message, as recorded in one line of the archive.
struct MessageEnd {
    path: CapPath,
    line: Vec<u8>,
    settlement: Settlement,
}

impl MessageEnd {
    /// True if this end may be followed by `next`: a person requeued the message, or dropped a dead
    /// letter.
    fn leads_to(&self, next: &Settlement) -> bool {
        let was_requeued = self.settlement.status == MessageStatus::Queued;
        let is_requeued = next.status == MessageStatus::Queued;
        let is_over = matches!(self.settlement.status, MessageStatus::Processed | MessageStatus::Interjected);
        was_requeued != is_requeued && !is_over
            || self.settlement.dead_letter && next.status == MessageStatus::Dropped
    }

    fn describe(&self) -> String {
        let Settlement { status, at, run_id, .. } = &self.settlement;
        let run = run_id.map(|run| format!(" by {run}")).unwrap_or_default();
        format!("{status} at {at}{run}")
    }
}

impl Checkup<'_> {
    /// Reads one month's file of the ledger or the archive. Reports all unreadable lines as one
    /// finding, and the lines that a git merge has doubled or joined as another.
    fn month(&mut self, month: &Month, mut read: impl FnMut(&CapPath, usize, &[u8]) -> Result<()>) {
        let path = self.path(&month.path);
        let bytes = match path.read(files::MAX_LINES) {
            Ok(bytes) => bytes.unwrap_or_default(),
            Err(error) => return self.unreadable(path, &error),
        };
        let mut bad = Vec::new();
        let mut first = None;
        for (number, line) in lines::once(&bytes) {
            self.checked += 1;
            if let Err(error) = read(&path, number, line) {
                bad.push(line.to_vec());
                first.get_or_insert(error);
            }
        }
        if let Some(error) = first {
            let count = bad.len();
            let remedy = Remedy::QuarantineLines(bad);
            let mut finding = Finding::unreadable(path.clone(), &error, remedy);
            if conflict_marker(&bytes).is_none() && count > 1 {
                finding.message = format!("{} ({count} lines like it)", finding.message);
            }
            self.add([finding]);
        }
        if !lines::is_tidy(&bytes) {
            let message = "a merge has left repeated or joined lines; each counts once";
            self.note(path, MERGED_LINES, message, Remedy::Untangle);
        }
    }

    /// Checks the ledger and the archive: every message has ended once, and every run has its
    /// record. Returns the number of dead letters.
    pub fn history(&mut self, state: &State) -> u64 {
        let view = View::settled(&self.agent.local.dir);
        for month in months::ledger(&view).unwrap_or_default() {
            self.month(&month, |path, number, line| decode_plain::<Event>(path, number, line).map(drop));
        }
        let mut runs = HashSet::new();
        let mut ends: BTreeMap<MessageId, Vec<MessageEnd>> = BTreeMap::new();
        let of = |kind: &str| months::archive(&view, &[kind]).unwrap_or_default();
        for month in of(Message::KIND) {
            self.month(&month, |path, number, line| {
                let message: Message = decode_at(path, number, line)?;
                let end = |settlement| MessageEnd { path: path.clone(), line: line.to_vec(), settlement };
                ends.entry(message.id).or_default().extend(message.settlement.map(end));
                Ok(())
            });
        }
        for month in of(Run::KIND) {
            self.month(&month, |path, number, line| {
                runs.insert(decode_at::<Run>(path, number, line)?.id);
                Ok(())
            });
        }
        self.records::<Wait>(&of(Wait::KIND));
        self.records::<WorkItem>(&of(WorkItem::KIND));
        self.records::<Timer>(&of(Timer::KIND));
        self.records::<Task>(&of(Task::KIND));
        self.records::<Trigger>(&of(Trigger::KIND));
        self.records::<Brief>(&of(Brief::KIND));
        for month in of(months::ENDED) {
            self.month(&month, |path, number, line| {
                decode_plain::<gc::EndedIdLine>(path, number, line).map(drop)
            });
        }
        ends.iter_mut().for_each(|(id, ends)| self.ended_twice(*id, ends));
        let is_dead = |ends: &&Vec<MessageEnd>| ends.last().is_some_and(|end| end.settlement.dead_letter);
        let dead = ends.values().filter(is_dead).count() as u64;
        self.runs(state, &runs);
        dead
    }

    fn records<T: Record>(&mut self, months: &[Month]) {
        for month in months {
            self.month(month, |path, number, line| decode_at::<T>(path, number, line).map(drop));
        }
    }

    /// Reports a message that two clones have settled. Its last end as processed, or else its last
    /// end, stays in `ends`. The others are removed, and their lines are to be quarantined.
    fn ended_twice(&mut self, id: MessageId, ends: &mut Vec<MessageEnd>) {
        if ends.windows(2).all(|pair| pair[0].leads_to(&pair[1].settlement)) {
            return;
        }
        let said: Vec<String> = ends.iter().map(MessageEnd::describe).collect();
        let message = format!("{id} has ended twice: {}", said.join(", and "));
        let is_over = |end: &MessageEnd| end.settlement.status == MessageStatus::Processed;
        let kept = ends.iter().rposition(is_over).unwrap_or(ends.len() - 1);
        let kept = ends.remove(kept);
        let mut by_file: Vec<(CapPath, Vec<Vec<u8>>)> = Vec::new();
        for MessageEnd { path, line, .. } in ends.drain(..) {
            match by_file.iter_mut().find(|(other, _)| *other == path) {
                Some((_, lines)) => lines.push(line),
                None => by_file.push((path, vec![line])),
            }
        }
        by_file.sort_by(|(one, _), (other, _)| one.cmp(other));
        ends.push(kept);
        for (path, lines) in by_file {
            self.note(path, ENDED_TWICE, message.clone(), Remedy::QuarantineLines(lines));
        }
    }
}
