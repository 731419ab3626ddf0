//! What one transition changes, as a value: the store commits it whole or not at all.

use super::dedupe::DedupeEntry;
use super::event::Event;
use super::id::{AgentName, MessageId, TaskId, TimerId, TriggerId, WaitId, WorkId};
use super::message::{InboxKey, Message, WakeHint};
use super::preemption::Checkpoint;
use super::record::size;
use super::run::{Brief, Run};
use super::state::{State, Untold};
use super::task::Task;
use super::timer::Timer;
use super::trigger::Trigger;
use super::wait::Wait;
use super::work::WorkItem;

/// A record to write, in place of the one of the same name if there is one.
#[derive(Debug, Clone, PartialEq)]
pub enum Put {
    Message(Box<Message>),
    Hint(Box<WakeHint>),
    Work(Box<WorkItem>),
    /// The prose plan of a work item.
    Plan(WorkId, String),
    Wait(Box<Wait>),
    Timer(Box<Timer>),
    Task(Box<Task>),
    Trigger(Box<Trigger>),
    /// A message to another agent, for the outbox.
    Outgoing(Box<Message>),
    Dedupe(Box<DedupeEntry>),
}

impl Put {
    /// Tells the record from all others. Of several with one name in a transaction the last is
    /// written.
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

    /// The number of bytes that it has as a file.
    pub fn size(&self) -> u64 {
        match self {
            Put::Message(message) | Put::Outgoing(message) => size(message),
            Put::Hint(hint) => size(hint),
            Put::Work(item) => size(item),
            Put::Plan(_, text) => text.len() as u64,
            Put::Wait(wait) => size(wait),
            Put::Timer(timer) => size(timer),
            Put::Task(task) => size(task),
            Put::Trigger(trigger) => size(trigger),
            Put::Dedupe(entry) => size(entry),
        }
    }
}

/// A record to remove. Removing what is not there is no error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delete {
    Message(InboxKey),
    Hint(MessageId),
    Wait(WaitId),
    /// A work item with its plan.
    Work(WorkId),
    Timer(TimerId),
    Task(TaskId),
    Trigger(TriggerId),
    /// A message that was in the outbox.
    Outgoing(MessageId),
    /// A checkpoint that a run has saved.
    Checkpoint(Checkpoint),
}

/// A terminal record to append to the archive.
#[derive(Debug, Clone, PartialEq)]
pub enum Archived {
    Message(Box<Message>),
    Wait(Box<Wait>),
    Work(Box<WorkItem>),
    Timer(Box<Timer>),
    Task(Box<Task>),
    Trigger(Box<Trigger>),
    /// Settled, or, once more, with what only its tick could tell: the last line counts.
    Run(Box<Run>),
    Brief(Box<Brief>),
}

impl Archived {
    /// The number of bytes that it has as a file, which is more than it has as a line.
    pub fn size(&self) -> u64 {
        match self {
            Archived::Message(message) => size(message),
            Archived::Wait(wait) => size(wait),
            Archived::Work(item) => size(item),
            Archived::Timer(timer) => size(timer),
            Archived::Task(task) => size(task),
            Archived::Trigger(trigger) => size(trigger),
            Archived::Run(run) => size(run),
            Archived::Brief(brief) => size(brief),
        }
    }
}

/// One atomic change of one agent (contract, store §2).
///
/// It applies to `base_revision` alone: a store whose `state.json` has another revision refuses it.
/// Applying it twice is the same as applying it once.
#[derive(Debug, Clone, PartialEq)]
pub struct Transaction {
    pub agent: AgentName,
    pub base_revision: u64,
    /// The new `state.json`; its revision is `base_revision + 1`.
    pub state: State,
    pub puts: Vec<Put>,
    pub deletes: Vec<Delete>,
    pub archived: Vec<Archived>,
    pub events: Vec<Event>,
    /// The transitions among the events, in order, as `on-state-change` is told of them.
    pub moves: Vec<Untold>,
}
