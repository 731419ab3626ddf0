//! What a store answers that keeps the records elsewhere than in the state directory: in a
//! database, or in memory.
//!
//! Records cross as texts, byte for byte as the directory's files have them (a record ends in a
//! newline, a line of the archive or of the events too), so that an agent which moves from one
//! store to another is the same there. What the texts say is not this file's concern: `seam` reads
//! and writes them.
//!
//! What belongs to the machine stays in the directory in any case: settings, hooks, seats, the
//! directories of runs.

pub mod input;
mod lease;

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
use crate::model::time::{Span, Time};

use super::dir::Subject;
use super::settings::Settings;

use input::TaskInput;

pub use super::dir::months::ENDED;
pub use lease::{Beat, Claim, Claimant, Lease};

/// The kind of the error of a sight whose records have changed before all of them were read: look
/// again.
pub const CHANGED: &str = "changed";

/// What a role of the database may be to a store. The owner is who has made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Steps agents, and does everything that the owner does with them.
    Ticker,
    /// Puts messages and hints into inboxes, in its own name.
    Producer,
    /// Reads everything.
    Reader,
}

/// Something that is wrong with a store as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub kind: &'static str,
    pub message: String,
    /// What is there is in order all the same.
    pub is_warning: bool,
}

/// All agents of one store.
pub trait Elsewhere: Debug {
    /// What people call the store, without a password.
    fn shown(&self) -> String;

    /// The agents, in order of their names.
    fn agents(&self) -> Result<Vec<AgentName>>;

    /// The agents for which a step may find something to do at `now`, and when the next of the
    /// others has something to do by itself. At least these: a step may find nothing all the same.
    /// Costs as much as there are such agents. Only agents of these pools are looked at. `by`: who
    /// asks in order to step them, and is not told of those whose turn runs on another machine;
    /// that a machine ticks these pools is noted for people now and then.
    fn due(&self, now: Time, pools: &[Pool], by: Option<&Claimant>) -> Result<Due>;

    /// The records of one agent. `None`: there is no such agent.
    fn agent(&self, name: &AgentName) -> Result<Option<Rc<dyn Records>>>;

    /// Puts a message into the inbox of the agent of this name, without a look at the agent first.
    /// Once it is there, by its id, it is not there twice. `size`: of its body. `default`: how
    /// large that may be where the agent's settings say nothing.
    ///
    /// Returns the text of `state.json` after that. `None`: nothing has arrived, and only a look at
    /// the agent tells why, or that it may arrive all the same.
    fn tell(&self, name: &AgentName, message: &Arrival, size: u64, default: u64) -> Result<Option<String>>;

    /// Makes an agent out of all of its pieces, or replaces nothing.
    ///
    /// Returns `false` if there is an agent of this name already; it stays as it is.
    fn create(&self, name: &AgentName, pieces: Pieces<'_>) -> Result<bool>;

    /// The agents whose identity names this one as a former name of theirs, with the text of it;
    /// perhaps others, too.
    fn had_name(&self, former: &AgentName) -> Result<Vec<(AgentName, String)>>;

    /// Which of these rooms the records of an agent name.
    fn named_rooms(&self, rooms: &[String]) -> Result<Vec<String>>;

    /// The runs that have a slot, of all machines. `under`: an agent whose lock this process has;
    /// then nobody else gets a slot before that agent's next change, or before the lock is given
    /// back.
    fn slots(&self, under: Option<&AgentName>) -> Result<Vec<InSlot>>;

    /// Has the lease of an agent's run take a slot, with the next change under the agent's lock. It
    /// has it as long as the lease lasts.
    fn take_slot(&self, under: &AgentName) -> Result<()>;

    /// What is wrong with the store as a whole at `now`. `overdue_after`: the time after which
    /// something that is due shows that nobody ticks. `is_quick`: without a look at every row.
    fn faults(&self, now: Time, overdue_after: Option<Span>, is_quick: bool) -> Result<Vec<Fault>>;

    /// What hears of changes of agents, for a process that waits for one.
    fn ear(&self) -> Box<dyn Ear>;

    /// The role of this process, if it may only put messages and hints into inboxes. Known once an
    /// agent was looked for.
    fn guest(&self) -> Option<&str>;

    /// The same store as a process sees it that has just begun, but for the connections, which go
    /// over to it.
    fn afresh(self: Rc<Self>) -> Rc<dyn Elsewhere>;

    /// Says once from inside which lease this process speaks: whatever it changes of that agent is
    /// refused as `fenced` from when the lease is somebody else's.
    fn claim(&self, claim: Claim);
}

/// Hears of changes of agents, so that a process which waits for one need not look again and again.
/// It is a shortcut: a change may go unheard, and what arrives in an inbox always does.
pub trait Ear: Debug {
    /// Hears of the changes of these agents from now on, as far as the store tells of any. To be
    /// called before each look at the agents, always with those of before, and some times a minute
    /// while the process waits. Where it fails nothing is heard, and nothing said of it.
    fn listen(&mut self, agents: &[AgentName]);

    /// Whether it is known that changes are heard.
    fn is_sure(&self) -> bool;

    /// A descriptor that is readable after a change, if there is one. Something may have been heard
    /// before it was asked for.
    fn readable(&self) -> Option<BorrowedFd<'_>>;

    /// Whether a change was heard of since the last call. Which one it was does not matter: the
    /// caller looks at what it needs.
    fn has_heard(&mut self) -> bool;
}

/// A run that has one of the slots for which `max_running` says how many there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InSlot {
    pub agent: AgentName,
    /// The state directory of the machine on which it runs.
    pub anchor: String,
    /// The machine, for people.
    pub host: String,
}

/// What calls back with all pieces of an agent, one after the other. It may be called again, and
/// begins anew then.
pub type Pieces<'p> = &'p dyn Fn(&mut dyn FnMut(Piece) -> Result<()>) -> Result<()>;

/// The same out of pieces that are in memory.
pub fn each_of(pieces: &[Piece]) -> impl Fn(&mut dyn FnMut(Piece) -> Result<()>) -> Result<()> {
    |each| pieces.iter().cloned().try_for_each(each)
}

/// What there may be to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Due {
    /// In order of their names: their moment has come, or something is in their inbox.
    pub agents: Vec<DueAgent>,
    /// When the next moment comes, if ever. An arrival may come before.
    pub next: Option<Time>,
    /// How many machines have lately asked for agents of these pools in order to step them.
    pub machines: usize,
}

/// An agent for which a step may find something to do, and what its place among the others depends
/// on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueAgent {
    pub name: AgentName,
    /// The text of `agent.toml`.
    pub policy: String,
    /// When the oldest message or hint of its inbox was made, as far as ids tell.
    pub since: Option<Time>,
    /// When it has something to do by itself; [`at_once`] where that is no moment.
    pub due: Option<Time>,
}

impl Due {
    pub fn names(&self) -> impl Iterator<Item = &AgentName> {
        self.agents.iter().map(|agent| &agent.name)
    }
}

/// The records of one agent.
pub trait Records: Debug {
    /// The text of `identity.json`.
    fn identity(&self) -> Result<String>;

    /// The text of `agent.toml`.
    fn policy(&self) -> Result<String>;

    /// What the machine that has made the agent last, out of a stream for instance, calls the room
    /// that it has prepared then.
    fn room(&self) -> Option<String>;

    /// The text of `state.json`, as it is now.
    fn state(&self) -> Result<String>;

    /// Tells one revision from another at the least cost. `None`: it can't be told now.
    fn version(&self) -> Option<u64>;

    /// Whether a message or a hint is in the inbox.
    fn has_arrivals(&self) -> Result<bool>;

    /// Puts messages and hints into the inbox, all or none, without the agent's lock. They are
    /// durable when this returns. One that is there already, by its id, stays as it is.
    ///
    /// Returns `false` if the agent is shut ([`Piece::Shut`]): then none of them is there. Whoever
    /// looks at the inbox after the agent was shut sees all that have arrived.
    fn arrive(&self, arrivals: &[Arrival]) -> Result<bool>;

    /// One revision, to be read without a lock. Whatever is asked of it later is of that revision.
    fn see(&self) -> Result<Rc<dyn Sight>>;

    /// Calls `each` with a checkpoint, part by part. `false`: there is none. Whoever has the
    /// agent's lock gets all parts of the same one.
    fn saved(&self, checkpoint: Checkpoint, each: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Takes the agent's lock, and waits for it at most so long. `None`: somebody else had it all
    /// the time.
    fn hold(&self, patience: Duration) -> Result<Option<Box<dyn Hold>>>;

    /// Takes the lease of a run or a task, or takes over one that nobody keeps alive. `None`: it is
    /// somebody's.
    fn lease(&self, subject: Subject, claimant: &Claimant) -> Result<Option<Box<dyn Lease>>>;

    /// Whether somebody at another anchor than this one keeps the lease alive. Of this one its
    /// local lock tells, and tells it at once.
    fn is_leased(&self, subject: Subject, anchor: &str) -> Result<bool>;

    /// Whether the lease of this agent in whose name the process speaks is somebody else's by now.
    /// `false` where it speaks in the name of none.
    fn is_fenced(&self) -> Result<bool>;

    /// What is said to a task whose supervisor is on another machine.
    fn task_input(&self, task: TaskId) -> Result<Box<dyn TaskInput>>;

    /// The key of a trigger's signatures, if `digest` is the SHA-256 of it. No sight has it, and no
    /// piece that a sight tells.
    fn trigger_key(&self, trigger: TriggerId, digest: &str) -> Result<Option<Vec<u8>>>;

    /// Whether that key is there. A reader of the store may ask this, and not for the key.
    fn has_trigger_key(&self, trigger: TriggerId, digest: &str) -> Result<bool>;

    /// Counts one use of a trigger, if all machines together have not used it `most` times in this
    /// minute. `Err` in the result: how long it is until the next one. Takes no lock that a step
    /// has. `now`: where the store has no clock of its own.
    fn use_trigger(
        &self,
        trigger: TriggerId,
        most: NonZeroU32,
        now: Time,
    ) -> Result<std::result::Result<(), Span>>;
}

/// One revision of an agent's records.
pub trait Sight: Debug {
    fn state(&self) -> Result<String>;

    /// The open records of a kind, in order of id.
    fn open(&self, plane: Plane) -> Result<Vec<String>>;

    fn open_one(&self, plane: Plane, id: &str) -> Result<Option<String>>;

    /// The plan of an open work item.
    fn plan(&self, work: &str) -> Result<Option<String>>;

    /// The keys of the messages in the inbox, in processing order, at most `count`.
    fn messages(&self, count: usize) -> Result<Vec<InboxKey>>;

    /// A message that is in the inbox.
    fn message(&self, key: InboxKey) -> Result<Option<String>>;

    /// Calls `each` with the texts of those of the messages that are in the inbox.
    fn texts(&self, keys: &[InboxKey], each: &mut dyn FnMut(&str)) -> Result<()>;

    /// The hints in the inbox, in order of id.
    fn hints(&self) -> Result<Vec<(MessageId, String)>>;

    /// What is known of a dedupe key, whenever it was admitted.
    fn key(&self, key: &str) -> Result<Option<String>>;

    /// Calls `each` with the lines of the archive of these kinds (`message`, `run`, …), newest
    /// first, until it returns `false`. With ids: only with lines of those records.
    fn ended(
        &self,
        kinds: &[&'static str],
        ids: Option<&[String]>,
        each: &mut dyn FnMut(&str) -> Result<bool>,
    ) -> Result<()>;

    /// Calls `each` with the lines of the archive and the events that are of a time before a
    /// moment, as the pieces that made them, without what is left of months that were removed
    /// ([`ENDED`]). Costs as much as there are such lines.
    fn before(&self, moment: Time, each: &mut dyn FnMut(Piece) -> Result<()>) -> Result<()>;

    /// Calls `each` with the lines of events, until it returns `false`: the oldest first from a
    /// moment on, or the newest first.
    fn events(&self, order: Order, each: &mut dyn FnMut(&str) -> Result<bool>) -> Result<()>;

    /// Calls `each` with all that the agent consists of, as the pieces that make it: lines in the
    /// order in which they were written. There are no dedupe keys among them, which are made out of
    /// the others.
    fn pieces(&self, each: &mut dyn FnMut(Piece) -> Result<()>) -> Result<()>;
}

/// In which order events are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Oldest first. With a moment: none that is older.
    Since(Option<Time>),
    NewestFirst,
}

/// An agent's lock, and the records as they are under it. Dropping it gives the lock back.
pub trait Hold: Debug {
    /// How long this process waited for the lock.
    fn waited(&self) -> Duration;

    /// The current revision. What was committed under this lock is seen by what is asked for after
    /// that.
    fn now(&self) -> Result<Rc<dyn Sight>>;

    /// Changes records as a whole or not at all.
    ///
    /// # Errors
    ///
    /// `stale_revision` if the records are not at `base` any more; `fenced` if this process had
    /// taken a lease of this agent, or speaks in the name of one, and it is lost. Each other change
    /// is refused as `fenced` in the same way.
    fn commit(&self, base: u64, pieces: &[Piece]) -> Result<()>;

    /// Forgets the dedupe keys that were admitted before a moment, perhaps not all of them at once.
    fn forget_keys(&self, before: Time) -> Result<()>;

    /// Puts other settings in the place of `agent.toml`.
    fn replace_policy(&self, settings: &Settings) -> Result<()>;

    /// Puts another text in the place of `identity.json`.
    fn replace_identity(&self, identity: &str) -> Result<()>;

    /// Puts all of these pieces in the place of what the agent consists of, as a whole or not at
    /// all. Refused as `commit` is. Its fences go on from where they are.
    fn replace(&self, base: u64, pieces: Pieces<'_>) -> Result<()>;

    /// Removes the agent with all of its records. The keys of its triggers go over to `heir`, which
    /// has the same triggers.
    fn remove(&self, heir: Option<&AgentName>) -> Result<()>;
}

/// What came into an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    Message { key: InboxKey, text: String },
    Hint { id: MessageId, text: String },
}

/// Stands for the moment of an agent that has something to do already: a run that goes on, or a
/// task, or something that is left of the last step.
pub fn at_once() -> Time {
    Time::from_millis(0)
}

/// How many bytes a part of a checkpoint has at most.
pub const PART: usize = 1 << 20;

/// One thing that a commit changes. All of a commit take place together, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Only when an agent is made.
    Identity(String),
    /// Only when an agent is made.
    Policy(Settings),
    /// The new `state.json`. `due`: when the agent has something to do by itself, if ever;
    /// [`at_once`] where that is no moment.
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
    /// The plan of a work item, which is there.
    Plan {
        work: String,
        text: String,
    },
    /// Whether the inbox takes nothing any more from those who have not the lock.
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
    /// Removes all that a run has saved.
    Unsaved(RunId),
    /// What the machine that makes the agent calls the room that it has prepared. Only when an
    /// agent is made or replaced.
    Room(String),
    /// A file that an import has brought. As long as the records are what it had, a stream has it
    /// as it was.
    File(Brought),
    Key {
        key: String,
        admitted_at: Time,
        text: String,
    },
    /// The key of a trigger's signatures, in the place of the one that it has. It goes when the
    /// trigger is closed.
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
    /// Removes the lines of the archive and the events that are of a time from `from` to before
    /// `until`, unless a later revision than `seen_at` wrote them. What is left of months that were
    /// removed before ([`ENDED`]) stays. What runs have saved that no record names then goes, too.
    Forgotten {
        from: Time,
        until: Time,
        seen_at: u64,
    },
}

/// The pieces that put a checkpoint in its place.
pub fn parts(checkpoint: Checkpoint, bytes: &[u8]) -> impl Iterator<Item = Piece> {
    let whole = bytes.is_empty().then_some(bytes);
    let parts = whole.into_iter().chain(bytes.chunks(PART)).zip(0..);
    parts.map(move |(some, part)| Piece::Saved { checkpoint, part, bytes: some.to_vec() })
}

/// What is known of a file that an import has brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brought {
    /// From the directory of the agent.
    pub path: String,
    /// In seconds since 1970.
    pub written_at: u64,
    /// The SHA-256 of its bytes.
    pub digest: String,
    /// How many lines it has, if these are packed.
    pub lines: u64,
}
