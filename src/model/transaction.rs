//! Changes of one transition, as a value. The store commits all of them or none.

use serde::Serialize;

use super::attention::PendingTransition;
use super::dedupe::DedupeEntry;
use super::event::Event;
use super::id::{AgentName, MessageId, WorkId};
use super::message::{InboxKey, Message, WakeHint};
use super::preemption::Checkpoint;
use super::record::size;
use super::run::{Brief, Run};
use super::state::State;
use super::task::Task;
use super::timer::Timer;
use super::trigger::Trigger;
use super::wait::Wait;
use super::work::WorkItem;

/// Record to write. It replaces an existing record of the same name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Put {
    Message(Box<Message>),
    Hint(Box<WakeHint>),
    Work(Box<WorkItem>),
    /// Id of a work item, and the text of its plan.
    Plan(WorkId, String),
    Wait(Box<Wait>),
    Timer(Box<Timer>),
    Task(Box<Task>),
    Trigger(Box<Trigger>),
    /// Message to another agent, to be put into the outbox.
    Outgoing(Box<Message>),
    Dedupe(Box<DedupeEntry>),
}

impl Put {
    /// Returns the name of the record, which no other record of the agent has. If a transaction
    /// writes the same record several times, the last one counts.
    pub fn name(&self) -> String {
        match self {
            Put::Message(message) => message.id.to_string(),
            Put::Hint(hint) => hint.id.to_string(),
            Put::Work(item) => item.id.to_string(),
            Put::Plan(id, _) => format!("{id}.plan"),
            Put::Wait(wait) => wait.id.to_string(),
            Put::Timer(timer) => timer.id.to_string(),
            Put::Task(task) => task.id.to_string(),
            Put::Trigger(trigger) => trigger.id.to_string(),
            Put::Outgoing(message) => format!("{}.outgoing", message.id),
            Put::Dedupe(entry) => format!("{}.key", entry.key),
        }
    }

    /// Returns the size of the record as a file, in bytes.
    pub fn size(&self) -> u64 {
        if let Put::Plan(_, text) = self { text.len() as u64 } else { size(self) }
    }
}

/// Record to remove. It is no error if the record does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delete {
    Message(InboxKey),
    Hint(MessageId),
    /// Message to another agent, to be removed from the outbox.
    Outgoing(MessageId),
    /// Checkpoint that a run saved, with its file.
    Checkpoint(Checkpoint),
}

/// Ended record to append to the archive. A wait, work item (with its plan), timer, task or trigger
/// is also removed from the open records.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Archived {
    Message(Box<Message>),
    Wait(Box<Wait>),
    Work(Box<WorkItem>),
    Timer(Box<Timer>),
    Task(Box<Task>),
    Trigger(Box<Trigger>),
    /// Settled run. A second line for the run replaces this one and adds what only its tick knows.
    Run(Box<Run>),
    Brief(Box<Brief>),
}

/// Atomic change of one agent's records (FORMAT §2).
///
/// A store refuses a transaction whose `base_revision` is not the revision of its `state.json`.
/// Applying a transaction twice has the effect of applying it once.
#[derive(Debug, Clone, PartialEq)]
pub struct Transaction {
    pub agent: AgentName,
    pub base_revision: u64,
    /// New `state.json`, with the revision `base_revision + 1`.
    pub state: State,
    pub puts: Vec<Put>,
    pub deletes: Vec<Delete>,
    pub archived: Vec<Archived>,
    pub events: Vec<Event>,
    /// Transitions of the execution state, in the order of their events.
    pub moves: Vec<PendingTransition>,
}
