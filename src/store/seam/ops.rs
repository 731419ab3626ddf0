//! Conversion of a transaction into the operations that a store applies.

use crate::model::event::Event;
use crate::model::message::Message;
use crate::model::record::{OpenRecord, Record};
use crate::model::state::State;
use crate::model::time::Time;
use crate::model::transaction::{Archived, Delete, Put};

use super::super::backend::{Arrival, Op, due};
use super::super::dir::NewAgent;
use super::super::dir::record::{encode, encode_line, encode_plain_line};
use super::super::settings::Settings;

/// Converts encoded JSON, which is always UTF-8, so the lossy case can't happen.
fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Returns the text of a record: the content of its file in a state directory.
pub fn text<T: Record>(record: &T) -> String {
    into_text(encode(record))
}

/// Returns the operations that create an agent.
pub fn of_new(new: &NewAgent) -> Vec<Op> {
    let mut ops = vec![
        Op::Identity(text(&new.identity)),
        Op::Policy(Settings::of(new.policy.clone())),
        open(&new.trigger),
    ];
    ops.extend(new.events.iter().map(event));
    ops.push(state(&new.state, text(&new.state)));
    ops
}

/// Returns the operation that replaces the state by this text, with its due time.
///
/// An agent is due at once if it is not idle, or has a run, a task that has not ended, or messages
/// or notifications to deliver: only files outside the records show if their processes are alive.
pub fn state(state: &State, text: String) -> Op {
    Op::State { revision: state.revision, due: due(state), is_at_rest: state.is_at_rest(), text }
}

pub fn event(event: &Event) -> Op {
    Op::Event { seq: event.seq, at: event.at, text: into_text(encode_plain_line(event)) }
}

fn open<T: OpenRecord>(record: &T) -> Op {
    Op::Open { plane: T::PLANE, id: record.id().to_string(), text: text(record) }
}

pub fn arrival(message: &Message) -> Arrival {
    Arrival::Message { key: message.key(), text: text(message) }
}

pub fn put(put: &Put) -> Op {
    match put {
        Put::Message(message) => Op::Arrived(arrival(message)),
        Put::Hint(hint) => Op::Arrived(Arrival::Hint { id: hint.id, text: text(hint.as_ref()) }),
        Put::Work(item) => open(item.as_ref()),
        Put::Plan(id, plan) => Op::Plan { work: id.to_string(), text: plan.clone() },
        Put::Wait(wait) => open(wait.as_ref()),
        Put::Timer(timer) => open(timer.as_ref()),
        Put::Task(task) => open(task.as_ref()),
        Put::Trigger(trigger) => open(trigger.as_ref()),
        Put::Outgoing(message) => open(message.as_ref()),
        Put::Dedupe(entry) => {
            Op::Key { key: entry.key.clone(), admitted_at: entry.admitted_at, text: text(entry.as_ref()) }
        }
    }
}

pub fn delete(delete: Delete) -> Op {
    match delete {
        Delete::Message(key) => Op::MessageTaken(key),
        Delete::Hint(id) => Op::HintTaken(id),
        Delete::Outgoing(id) => Op::Closed { plane: Message::PLANE, id: id.to_string() },
        // Records name only the newest checkpoint of a run, so older ones are deleted with it.
        Delete::Checkpoint(checkpoint) => Op::Unsaved(checkpoint),
    }
}

/// Returns the operations that append an ended record to the archive, and remove it from the
/// records that have not ended, if it was one.
pub fn ended(archived: &Archived) -> Vec<Op> {
    fn line<T: Record>(record: &T, id: Option<String>, at: Time) -> Op {
        Op::Ended { kind: T::KIND, id, at, text: into_text(encode_line(record)) }
    }
    fn closed<T: OpenRecord>(record: &T, at: Time) -> Vec<Op> {
        let id = record.id().to_string();
        vec![line(record, Some(id.clone()), at), Op::Closed { plane: T::PLANE, id }]
    }
    match archived {
        Archived::Message(message) => {
            let at = message.settlement.as_ref().map_or(message.created_at, |end| end.at);
            vec![line(message.as_ref(), Some(message.id.to_string()), at)]
        }
        Archived::Wait(wait) => closed(wait.as_ref(), wait.ended_at.unwrap_or(wait.created_at)),
        Archived::Work(item) => closed(item.as_ref(), item.updated_at),
        Archived::Timer(timer) => closed(timer.as_ref(), timer.ended_at.unwrap_or(timer.created_at)),
        Archived::Task(task) => closed(task.as_ref(), task.ended_at.unwrap_or(task.created_at)),
        Archived::Trigger(trigger) => {
            closed(trigger.as_ref(), trigger.revoked_at.unwrap_or(trigger.created_at))
        }
        Archived::Run(run) => vec![line(run.as_ref(), Some(run.id.to_string()), run.ended_at)],
        Archived::Brief(brief) => vec![line(brief.as_ref(), None, brief.at)],
    }
}
