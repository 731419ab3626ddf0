//! What was: the lines of the ledger and of the archive.

use std::collections::HashMap;
use std::path::Path;

use crate::error::Result;
use crate::model::event::Event;
use crate::model::id::MessageId;
use crate::model::message::Message;
use crate::model::record::Record;
use crate::model::run::Brief;
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::timer::Timer;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;
use crate::store::record::{conflict_marker, decode_at, decode_plain};
use crate::store::{files, layout};

use super::check::Checks;
use super::{Finding, Remedy};

impl Checks<'_> {
    /// Files of lines: those that can't be read are told together.
    fn lines(&mut self, path: &Path, mut read: impl FnMut(usize, &[u8]) -> Result<()>) {
        let bytes = match files::read(path) {
            Ok(bytes) => bytes.unwrap_or_default(),
            Err(error) => return self.unreadable(path.to_owned(), &error),
        };
        let mut bad = Vec::new();
        let mut first = None;
        for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            self.checked += 1;
            if let Err(error) = read(at + 1, line) {
                bad.push(at + 1);
                first.get_or_insert(error);
            }
        }
        let Some(error) = first else { return };
        let remedy = Remedy::QuarantineLines(bad.clone());
        let mut finding = Finding::unreadable(self.agent.name(), path.to_owned(), &error, remedy);
        if conflict_marker(&bytes).is_none() && bad.len() > 1 {
            finding.message = format!("{} ({} lines like it)", finding.message, bad.len());
        }
        self.findings.push(finding);
    }

    pub fn ledger(&mut self) {
        let dir = self.path(layout::LEDGER);
        for entry in files::entries(&dir).unwrap_or_default() {
            let path = dir.join(&entry.name);
            if path.extension().is_some_and(|ending| ending == "jsonl") {
                self.lines(&path, |number, line| decode_plain::<Event>(&path, number, line).map(|_| ()));
            }
        }
    }

    /// The archive's lines, and that the dead letters are as many as the counter says.
    pub fn archive(&mut self, state: &State) {
        let mut last_word: HashMap<MessageId, bool> = HashMap::new();
        let dir = self.path(layout::ARCHIVE);
        for month in files::entries(&dir).unwrap_or_default().iter().filter(|entry| entry.is_dir) {
            let of = |kind: &str| dir.join(&month.name).join(format!("{kind}.jsonl"));
            let messages = of(Message::KIND);
            self.lines(&messages, |number, line| {
                let message: Message = decode_at(&messages, number, line)?;
                let dead = message.settlement.as_ref().is_some_and(|settlement| settlement.dead_letter);
                last_word.insert(message.id, dead);
                Ok(())
            });
            let waits = of(Wait::KIND);
            self.lines(&waits, |number, line| decode_at::<Wait>(&waits, number, line).map(|_| ()));
            let works = of(WorkItem::KIND);
            self.lines(&works, |number, line| decode_at::<WorkItem>(&works, number, line).map(|_| ()));
            let timers = of(Timer::KIND);
            self.lines(&timers, |number, line| decode_at::<Timer>(&timers, number, line).map(|_| ()));
            let tasks = of(Task::KIND);
            self.lines(&tasks, |number, line| decode_at::<Task>(&tasks, number, line).map(|_| ()));
            let briefs = of(Brief::KIND);
            self.lines(&briefs, |number, line| decode_at::<Brief>(&briefs, number, line).map(|_| ()));
        }
        let dead = last_word.values().filter(|dead| **dead).count() as u64;
        if dead != state.counters.dead {
            let message =
                format!("{} dead letters are counted, {dead} are in the archive", state.counters.dead);
            self.find(self.path(layout::STATE), "dead_count", message, Remedy::Recount(dead));
        }
    }
}
