//! Records of one agent, as texts.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::model::id::{MessageId, RunId, TriggerId};
use crate::model::message::InboxKey;
use crate::model::preemption::Checkpoint;
use crate::model::record::Plane;
use crate::model::time::Time;

use super::super::backend::{Arrival, ENDED, EachLine, EachOp, KeyWindow, Op, Ops, Order, ReadView};
use super::super::settings::Settings;

/// All records of one agent, as texts.
#[derive(Debug, Clone, Default)]
pub struct Texts {
    pub identity: String,
    pub policy: Settings,
    pub local_dir: Option<String>,
    /// Revision of the state.
    pub number: u64,
    pub state: String,
    pub due: Option<Time>,
    open: BTreeMap<(Plane, String), String>,
    plans: BTreeMap<String, String>,
    pub inbox: BTreeMap<InboxKey, String>,
    pub hints: BTreeMap<MessageId, String>,
    pub keys: BTreeMap<String, (Time, String)>,
    /// Lines of the archive, in the order of writing.
    ended: Vec<EndedLine>,
    events: Vec<EndedLine>,
    pub is_shut: bool,
    /// Last checkpoint of each run: its number and its content.
    saved: BTreeMap<RunId, (u32, Vec<u8>)>,
    /// SHA-256 and signature key of each trigger. No view returns the keys.
    pub trigger_keys: BTreeMap<TriggerId, (String, Vec<u8>)>,
}

/// Line of the archive or of the events, and the revision that wrote it.
#[derive(Debug, Clone)]
struct EndedLine {
    kind: &'static str,
    id: Option<String>,
    /// Sequence number of an event.
    seq: u64,
    at: Time,
    text: String,
    revision: u64,
}

impl EndedLine {
    fn op(&self) -> Op {
        let (at, text) = (self.at, self.text.clone());
        if self.kind == EVENT {
            return Op::Event { seq: self.seq, at, text };
        }
        Op::Ended { kind: self.kind, id: self.id.clone(), at, text }
    }
}

const EVENT: &str = "event";

impl Texts {
    pub fn of(ops: Ops<'_>) -> Result<Texts> {
        let mut texts = Texts::default();
        ops(&mut |op| {
            texts.change(op, 0);
            Ok(())
        })?;
        Ok(texts)
    }

    /// Applies an operation of the commit that makes this revision.
    pub fn change(&mut self, op: Op, revision: u64) {
        match op {
            Op::Identity(text) => self.identity = text,
            Op::Policy(settings) => self.policy = settings,
            Op::State { revision, text, due, is_at_rest: _ } => {
                (self.number, self.state, self.due) = (revision, text, due);
            }
            Op::Open { plane, id, text } => drop(self.open.insert((plane, id), text)),
            Op::Closed { plane, id } => {
                if plane == Plane::Work {
                    self.plans.remove(&id);
                }
                if plane == Plane::Triggers {
                    self.trigger_keys.retain(|trigger, _| trigger.to_string() != id);
                }
                self.open.remove(&(plane, id));
            }
            Op::Plan { work, text } => drop(self.plans.insert(work, text)),
            Op::Arrived(Arrival::Message { key, text }) => {
                self.inbox.retain(|other, _| other.id != key.id);
                self.inbox.insert(key, text);
            }
            Op::Arrived(Arrival::Hint { id, text }) => drop(self.hints.insert(id, text)),
            Op::MessageTaken(key) => drop(self.inbox.remove(&key)),
            Op::HintTaken(id) => drop(self.hints.remove(&id)),
            Op::Key { key, admitted_at, text } => drop(self.keys.insert(key, (admitted_at, text))),
            Op::KeysForgotten(before) => self.keys.retain(|_, (admitted_at, _)| *admitted_at >= before),
            Op::TriggerKey { trigger, digest, key } => {
                self.trigger_keys.insert(trigger, (digest, key));
            }
            Op::Ended { kind, id, text, at } => {
                self.ended.push(EndedLine { kind, id, seq: 0, at, text, revision });
            }
            Op::Event { at, text, seq } => {
                self.events.push(EndedLine { kind: EVENT, id: None, seq, at, text, revision });
            }
            Op::Forgotten { from, until, seen_at } => {
                let stays = |line: &EndedLine| {
                    line.at < from || line.at >= until || line.revision > seen_at || line.kind == ENDED
                };
                let ended = self.ended.iter().filter(|line| stays(line)).map(|line| &line.text);
                let open = self.inbox.values().chain(self.open.values()).chain([&self.state]);
                let named: String = open.chain(ended).map(String::as_str).collect();
                self.saved.retain(|run, _| named.contains(&run.to_string()));
                self.ended.retain(stays);
                self.events.retain(stays);
            }
            Op::Saved { checkpoint, part, bytes } => {
                let saved = self.saved.entry(checkpoint.run_id).or_default();
                if part == 0 {
                    *saved = (checkpoint.number, Vec::new());
                }
                saved.1.extend(bytes);
            }
            Op::LocalDir(name) => self.local_dir = Some(name),
            Op::Unsaved(checkpoint) => drop(self.saved.remove(&checkpoint.run_id)),
            Op::InboxClosed(is_shut) => self.is_shut = is_shut,
        }
    }
}

impl Texts {
    pub fn checkpoints(&self) -> Vec<Checkpoint> {
        let of = |(run_id, (number, _)): (&RunId, &(u32, Vec<u8>))| Checkpoint {
            run_id: *run_id,
            number: *number,
        };
        self.saved.iter().map(of).collect()
    }

    pub fn saved(&self, checkpoint: Checkpoint) -> Option<&[u8]> {
        let (number, bytes) = self.saved.get(&checkpoint.run_id)?;
        (*number == checkpoint.number).then_some(bytes)
    }
}

impl ReadView for Texts {
    fn state(&self) -> Result<String> {
        Ok(self.state.clone())
    }

    fn open(&self, plane: Plane) -> Result<Vec<(String, String)>> {
        let of_kind = self.open.iter().filter(|((other, _), _)| *other == plane);
        Ok(of_kind.map(|((_, id), text)| (id.clone(), text.clone())).collect())
    }

    fn open_one(&self, plane: Plane, id: &str) -> Result<Option<String>> {
        Ok(self.open.get(&(plane, id.to_owned())).cloned())
    }

    fn plan(&self, work: &str) -> Result<Option<String>> {
        Ok(self.plans.get(work).cloned())
    }

    fn messages(&self, count: usize) -> Result<Vec<InboxKey>> {
        Ok(self.inbox.keys().take(count).copied().collect())
    }

    fn message(&self, key: InboxKey) -> Result<Option<String>> {
        Ok(self.inbox.get(&key).cloned())
    }

    fn hints(&self) -> Result<Vec<MessageId>> {
        Ok(self.hints.keys().copied().collect())
    }

    fn hint(&self, id: MessageId) -> Result<Option<String>> {
        Ok(self.hints.get(&id).cloned())
    }

    fn key(&self, key: &str, _: KeyWindow) -> Result<Option<String>> {
        Ok(self.keys.get(key).map(|(_, text)| text.clone()))
    }

    fn ended(&self, kinds: &[&'static str], ids: Option<&[String]>, each: &mut EachLine<'_>) -> Result<()> {
        for line in self.ended.iter().rev() {
            let is_of = |ids: &[String]| line.id.as_ref().is_some_and(|id| ids.contains(id));
            if kinds.contains(&line.kind) && ids.is_none_or(is_of) && !each(&line.text)? {
                break;
            }
        }
        Ok(())
    }

    fn history(&self, before: Option<Time>, each: &mut EachOp<'_>) -> Result<()> {
        let is_before = |moment: Time, line: &EndedLine| line.at < moment && line.kind != ENDED;
        let lines = self.ended.iter().chain(&self.events);
        let mut lines = lines.filter(|line| before.is_none_or(|moment| is_before(moment, line)));
        lines.try_for_each(|line| each(line.op()))
    }

    fn events(&self, order: Order, each: &mut EachLine<'_>) -> Result<()> {
        let lines: Vec<&EndedLine> = match order {
            Order::Since(since) => {
                self.events.iter().filter(|line| since.is_none_or(|since| line.at >= since)).collect()
            }
            Order::NewestFirst => self.events.iter().rev().collect(),
        };
        for line in lines {
            if !each(&line.text)? {
                break;
            }
        }
        Ok(())
    }
}
