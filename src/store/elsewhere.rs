//! Interface of a store that keeps the records outside the state directory: in a database, or in
//! memory.
//!
//! Records cross as texts, byte for byte as the directory's files have them (a record ends in a
//! newline, and so does a line of the archive or of the events), so that an agent is the same after
//! a move from one store to another. `seam` reads and writes the texts.
//!
//! Settings, hooks, slots and the directories of runs stay in the state directory of the machine.

pub mod input;
mod lease;
mod view;

use std::fmt::Debug;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use crate::error::Result;
use crate::model::id::{AgentName, MessageId, RunId, TaskId, TriggerId};
use crate::model::message::InboxKey;
use crate::model::pool::Pool;
use crate::model::preemption::Checkpoint;
use crate::model::record::Plane;
use crate::model::state::State;
use crate::model::time::{Span, Time};

use super::settings::Settings;

use input::TaskInput;

pub use super::dir::keys::KeyWindow;
pub use super::dir::months::ENDED;
pub use lease::{Beat, Claim, Lease, LeaseClaimant, Subject};
pub use view::{Order, ReadView};

/// Kind of the error of a read whose revision has changed before the end: the reader tries again.
pub const CHANGED: &str = "changed";

/// Rights of a role of the database. The owner is the role that has made the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseRole {
    /// Steps agents, and does everything that the owner does with them.
    Ticker,
    /// Puts messages and hints into inboxes, in its own name.
    Producer,
    /// Reads everything.
    Reader,
}

/// Something that is wrong with a store as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFault {
    pub kind: &'static str,
    pub message: String,
    /// True if the store works all the same.
    pub is_warning: bool,
}

/// All agents of one store.
pub trait Backend: Debug {
    /// Returns the name of the store for people, without a password.
    fn shown(&self) -> String;

    /// Returns the agents, in order of name.
    fn agents(&self) -> Result<Vec<AgentName>>;

    /// Returns the agents of these pools for which a step may find something to do at `now`, and
    /// the next time at which another agent has something to do. May name an agent for which a step
    /// finds nothing. The cost grows with the number of agents returned. `by`: the machine that
    /// asks in order to step them. It is not told of agents whose turn runs on another machine, and
    /// the store notes that it ticks these pools.
    fn due(&self, now: Time, pools: &[Pool], by: Option<&LeaseClaimant>) -> Result<DueAgents>;

    /// Returns the records of one agent. `None`: there is no such agent.
    fn agent(&self, name: &AgentName) -> Result<Option<Rc<dyn AgentRecords>>>;

    /// Puts a message into the inbox of the agent of this name, without a read of the agent first.
    /// Idempotent by the id of the message. `size`: of its body. `default`: maximum size where the
    /// agent's settings have none.
    ///
    /// Returns the text of `state.json` after that. `None`: nothing has arrived; a read of the
    /// agent shows the reason, or that the message may still arrive.
    fn tell(&self, name: &AgentName, message: &Arrival, size: u64, default: u64) -> Result<Option<String>>;

    /// Makes an agent out of all of its pieces.
    ///
    /// Returns `false` if there is an agent of this name already; it stays as it is.
    fn create(&self, name: &AgentName, pieces: Pieces<'_>) -> Result<bool>;

    /// Returns the agents whose identity has this former name, and perhaps others, with its text.
    fn had_name(&self, former: &AgentName) -> Result<Vec<(AgentName, String)>>;

    /// Returns those of these local agent directories that the records of an agent name.
    fn named_rooms(&self, rooms: &[String]) -> Result<Vec<String>>;

    /// Returns the runs that have a slot, on all machines. `under`: an agent whose lock this
    /// process has; no other process then gets a slot before that agent's next change or the end of
    /// the lock.
    fn slots(&self, under: Option<&AgentName>) -> Result<Vec<InSlot>>;

    /// Takes a slot for the lease of an agent's run, with the next change under the agent's lock.
    /// The slot is free again when the lease ends.
    fn take_slot(&self, under: &AgentName) -> Result<()>;

    /// Returns the faults of the store as a whole at `now`. `overdue_after`: delay of a due step
    /// that shows that nothing ticks. `is_quick`: without a look at every row.
    fn faults(&self, now: Time, overdue_after: Option<Span>, is_quick: bool) -> Result<Vec<StoreFault>>;

    /// Returns a subscription to changes of agents, for a process that waits for one.
    fn ear(&self) -> Box<dyn Subscription>;

    /// Returns the role of this process, if it may only put messages and hints into inboxes. Known
    /// after the first request for an agent.
    fn guest(&self) -> Option<&str>;

    /// Returns the same store with fresh caches and the same connections, as for a new process.
    fn afresh(self: Rc<Self>) -> Rc<dyn Backend>;

    /// Sets the lease under which this process acts. Its changes of that agent are refused as
    /// `fenced` once another process has the lease.
    fn claim(&self, claim: Claim);
}

/// Notifications of changes, so that a process that waits for one needs fewer reads. A notification
/// may be missing, and arrivals in an inbox never have one.
pub trait Subscription: Debug {
    /// Subscribes to changes of these agents, as far as the store sends notifications. Called
    /// before each read of the agents, always with the earlier ones too, and a few times a minute
    /// while the process waits. A failure is silent: there are no notifications then.
    fn listen(&mut self, agents: &[AgentName]);

    /// True if the store is known to send notifications.
    fn is_sure(&self) -> bool;

    /// Returns a descriptor that is readable after a change, if there is one. A notification may
    /// have come before this call.
    fn readable(&self) -> Option<BorrowedFd<'_>>;

    /// True if a notification came since the last call. It does not name the change: the caller
    /// reads what it needs.
    fn has_heard(&mut self) -> bool;
}

/// A run that has one of the `max_running` slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InSlot {
    pub agent: AgentName,
    /// The state directory of the machine on which it runs.
    pub anchor: String,
    /// The machine, for people.
    pub host: String,
}

/// Calls back with all pieces of an agent, one after the other. A second call begins again.
pub type Pieces<'p> = &'p dyn Fn(&mut dyn FnMut(Op) -> Result<()>) -> Result<()>;

/// Makes the same out of pieces that are in memory.
pub fn each_of(pieces: &[Op]) -> impl Fn(&mut dyn FnMut(Op) -> Result<()>) -> Result<()> {
    |each| pieces.iter().cloned().try_for_each(each)
}

/// The agents that may have something to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DueAgents {
    /// In order of their names: their moment has come, or something is in their inbox.
    pub agents: Vec<DueAgent>,
    /// Next time at which another agent is due, if ever. An arrival may come before.
    pub next: Option<Time>,
    /// Number of machines that have lately asked for agents of these pools in order to step them.
    pub machines: usize,
}

/// An agent for which a step may find something to do, and the facts that decide its priority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueAgent {
    pub name: AgentName,
    /// The text of `agent.toml`.
    pub policy: String,
    /// Time of the oldest message or hint of its inbox, as far as ids show it.
    pub since: Option<Time>,
    /// Time of its next own step; [`at_once`] if it is due already.
    pub due: Option<Time>,
}

impl DueAgents {
    pub fn names(&self) -> impl Iterator<Item = &AgentName> {
        self.agents.iter().map(|agent| &agent.name)
    }
}

/// The records of one agent.
pub trait AgentRecords: Debug {
    /// Returns the text of `identity.json`.
    fn identity(&self) -> Result<String>;

    /// The text of `agent.toml`.
    fn policy(&self) -> Result<String>;

    /// Returns the name of the local agent directory that the machine prepared which made the agent
    /// last.
    fn room(&self) -> Option<String>;

    /// Returns the present text of `state.json`.
    fn state(&self) -> Result<String>;

    /// Returns a number that differs between revisions, at the least cost. `None` if it is unknown.
    fn version(&self) -> Option<u64>;

    /// True if a message or a hint is in the inbox.
    fn has_arrivals(&self) -> Result<bool>;

    /// Puts messages and hints into the inbox, all or none, without the agent's lock. They are
    /// durable when this returns. Idempotent by id.
    ///
    /// Returns `false` if the agent is shut ([`Op::Shut`]), and adds nothing then. A reader of
    /// the inbox that comes after the agent was shut sees all arrivals.
    fn arrive(&self, arrivals: &[Arrival]) -> Result<bool>;

    /// Returns one revision, to be read without a lock.
    fn see(&self) -> Result<Rc<dyn ReadView>>;

    /// Calls `each` with a checkpoint, part by part. `false`: there is none. Under the agent's lock
    /// all parts are of the same checkpoint.
    fn saved(&self, checkpoint: Checkpoint, each: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Takes the agent's lock, and waits for it up to `patience`. `None`: timed out.
    fn hold(&self, patience: Duration) -> Result<Option<Box<dyn Txn>>>;

    /// Takes the lease of a run or a task, or takes over an expired one. `None`: another process
    /// has it.
    fn lease(&self, subject: Subject, claimant: &LeaseClaimant) -> Result<Option<Box<dyn Lease>>>;

    /// True if a process at another anchor than this one keeps the lease alive. For this anchor the
    /// local lock is enough, and faster.
    fn is_leased(&self, subject: Subject, anchor: &str) -> Result<bool>;

    /// True if this process acts under a lease of this agent that another process has by now. False
    /// if it acts under none.
    fn is_fenced(&self) -> Result<bool>;

    /// Returns the input of a task whose supervisor is on another machine.
    fn task_input(&self, task: TaskId) -> Result<Box<dyn TaskInput>>;

    /// Returns the key of a trigger's signatures, if `digest` is its SHA-256. No revision has it.
    fn trigger_key(&self, trigger: TriggerId, digest: &str) -> Result<Option<Vec<u8>>>;

    /// True if that key is stored. A reader of the store may ask this, and may not read the key.
    fn has_trigger_key(&self, trigger: TriggerId, digest: &str) -> Result<bool>;

    /// Counts one use of a trigger, if all machines together have not used it `most` times in this
    /// minute. `Err` in the result: time until the next use. Takes no lock that a step has. `now`:
    /// for a store without a clock of its own.
    fn use_trigger(
        &self,
        trigger: TriggerId,
        most: NonZeroU32,
        now: Time,
    ) -> Result<std::result::Result<(), Span>>;
}

/// An agent's lock, and the records as they are under it. Dropping it gives the lock back.
pub trait Txn: Debug {
    /// Returns the time that this process waited for the lock.
    fn waited(&self) -> Duration;

    /// Returns the current revision, with all earlier commits under this lock.
    fn now(&self) -> Result<Rc<dyn ReadView>>;

    /// Changes records as a whole or not at all.
    ///
    /// # Errors
    ///
    /// `stale_revision` if the records are not at `base` any more; `fenced` if this process has
    /// lost its lease of this agent, or the lease under which it acts. Every other change is
    /// refused as `fenced` in the same way.
    fn commit(&self, base: u64, pieces: &[Op]) -> Result<()>;

    /// Forgets the dedupe keys that were admitted before a moment, perhaps not all of them at once.
    fn forget_keys(&self, before: Time) -> Result<()>;

    /// Puts other settings in the place of `agent.toml`.
    fn replace_policy(&self, settings: &Settings) -> Result<()>;

    /// Puts another text in the place of `identity.json`.
    fn replace_identity(&self, identity: &str) -> Result<()>;

    /// Replaces all pieces of the agent, as a whole or not at all. Refused as `commit` is. The
    /// fencing tokens continue to grow.
    fn replace(&self, base: u64, pieces: Pieces<'_>) -> Result<()>;

    /// Removes the agent with all of its records. `heir`: an agent with the same triggers, which
    /// gets their keys.
    fn remove(&self, heir: Option<&AgentName>) -> Result<()>;
}

/// A message or a hint that came into an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    Message { key: InboxKey, text: String },
    Hint { id: MessageId, text: String },
}

/// Returns the due time of an agent that has something to do already: an open run or task, or an
/// unfinished step.
pub fn at_once() -> Time {
    Time::from_millis(0)
}

/// When an agent has something to do.
pub fn due(state: &State) -> Option<Time> {
    let is_unfinished = state.current_run.is_some()
        || state.open_tasks > 0
        || !state.outbox.is_empty()
        || state.is_to_be_told()
        || state.resting.is_none();
    match &state.moved {
        Some(_) => None,
        None if is_unfinished => Some(at_once()),
        None => state.next_due_at,
    }
}

/// Maximum length of a part of a checkpoint, in bytes.
pub const PART: usize = 1 << 20;

/// One change of a commit. All changes of a commit take place together, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Only when an agent is made.
    Identity(String),
    /// Only when an agent is made.
    Policy(Settings),
    /// The new `state.json`. `due`: time of the agent's next own step, if there is one; [`at_once`]
    /// if it is due already.
    State {
        revision: u64,
        due: Option<Time>,
        text: String,
    },
    /// Puts an open record in the place of the one of this id, or adds it.
    Open {
        plane: Plane,
        id: String,
        text: String,
    },
    /// Removes an open record; a work item with its plan.
    Closed {
        plane: Plane,
        id: String,
    },
    /// The plan of an existing work item.
    Plan {
        work: String,
        text: String,
    },
    /// True if the inbox accepts arrivals from lock holders alone.
    Shut(bool),
    /// Puts a message or a hint into the inbox, in the place of the one of this id if there is one.
    Arrived(Arrival),
    /// Removes a message from the inbox.
    Taken(InboxKey),
    /// Removes a hint from the inbox.
    Heard(MessageId),
    /// A part of a checkpoint, from 0, with at most [`PART`] bytes. One without bytes has an empty
    /// part.
    Saved {
        checkpoint: Checkpoint,
        part: u32,
        bytes: Vec<u8>,
    },
    /// Removes the checkpoints of a run.
    Unsaved(RunId),
    /// Name of the local agent directory that the machine prepared which makes or replaces the
    /// agent.
    Room(String),
    /// A file that an import has brought. An export writes it unchanged as long as the records are
    /// the same.
    File(ImportedFile),
    Key {
        key: String,
        admitted_at: Time,
        text: String,
    },
    /// The key of a trigger's signatures, which replaces the earlier one. Removed when the trigger
    /// is closed.
    TriggerKey {
        trigger: TriggerId,
        digest: String,
        key: Vec<u8>,
    },
    /// A line of the archive. `id`: of the record, if it has one.
    Ended {
        kind: &'static str,
        id: Option<String>,
        at: Time,
        text: String,
    },
    Event {
        seq: u64,
        at: Time,
        text: String,
    },
    /// Removes the lines of the archive and the events from `from` to before `until`, unless a
    /// later revision than `seen_at` wrote them. The remains of removed months ([`ENDED`]) stay.
    /// Checkpoints that no record names then go, too.
    Forgotten {
        from: Time,
        until: Time,
        seen_at: u64,
    },
}

/// Returns the pieces of a checkpoint.
pub fn parts(checkpoint: Checkpoint, bytes: &[u8]) -> impl Iterator<Item = Op> {
    let whole = bytes.is_empty().then_some(bytes);
    let parts = whole.into_iter().chain(bytes.chunks(PART)).zip(0..);
    parts.map(move |(some, part)| Op::Saved { checkpoint, part, bytes: some.to_vec() })
}

/// A file that an import has brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedFile {
    /// From the directory of the agent.
    pub path: String,
    /// In seconds since 1970.
    pub written_at: u64,
    /// The SHA-256 of its bytes.
    pub digest: String,
}
