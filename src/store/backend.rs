//! Interface of a store: the state directory, a database, or memory.
//!
//! Records are passed as texts, byte for byte as in the files of a state directory (each record and
//! each line of the archive or of the events ends in a newline), so that an agent is unchanged by a
//! move from one store to another. `seam` reads and writes the texts.
//!
//! `dormouse.toml`, hooks and the directories of runs stay in the state directory of the machine.

pub mod contents;
mod lease;
mod op;
mod view;

use std::fmt::Debug;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::local::{LeaseClaimant, Subject};
use crate::model::id::{AgentName, TriggerId};
use crate::model::pool::Pool;
use crate::model::preemption::Checkpoint;
use crate::model::state::State;
use crate::model::time::{Span, Time};

use super::dir::inbox::{Dropped, QuarantineOutcome};

pub use super::dir::keys::KeyWindow;
pub use super::dir::months::ENDED;
pub use lease::{Beat, Claim, Lease, LocalLease};
#[cfg(all(test, feature = "postgres"))]
pub use op::PART;
pub use op::{Arrival, EachOp, Op, Ops, each_of, parts};
pub use view::{EachLine, Order, ReadView};

/// Error kind of a read during which another command changed the records; the reader retries.
pub const CHANGED: &str = "changed";

/// Permissions of a role of the database. The owner is the role that has created the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseRole {
    /// Steps agents, with all permissions of the owner on them.
    Ticker,
    /// Puts messages and hints into inboxes, with the role's name as the sender.
    Producer,
    /// Reads all records.
    Reader,
}

/// Problem of the store as a whole, not of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFault {
    pub kind: &'static str,
    pub message: String,
    /// True if the store works in spite of the problem.
    pub is_warning: bool,
}

/// Properties of a store that its users have to know.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreProperties {
    /// True if several machines step the agents of the store. Leases then decide which machine
    /// executes a run or a task, and the store reports agents that no machine ticks.
    pub is_shared: bool,
    /// True if each read is a query over a connection, which steps in one process can share.
    pub has_connection: bool,
    /// Environment variables with secrets of the store, which no command of an agent inherits.
    pub secret_variables: &'static [&'static str],
}

/// Store that has the records of all agents.
pub trait Backend: Debug {
    /// Returns the display name of the store: the path of the state directory, or the URL of the
    /// database without a password.
    fn shown(&self) -> String;

    fn properties(&self) -> StoreProperties {
        StoreProperties::default()
    }

    /// Returns the agents whose names begin with `beginning`, sorted by name.
    fn agents(&self, beginning: &str) -> Result<Vec<AgentName>>;

    /// Returns agents to suggest for an unknown name: all, or of many those near it in name order.
    fn agents_around(&self, _name: &AgentName) -> Result<Vec<AgentName>> {
        self.agents("")
    }

    /// Returns the agents of these pools (named groups of agents) that may have work for a step at
    /// `now`, some perhaps without work, and the next time at which another agent may have work.
    /// The cost grows with the number of agents returned. `by`: machine that asks in order to step
    /// the agents. The store then leaves out agents whose turn runs on another machine, and records
    /// that this machine ticks the pools. `None` if the store would have to read each agent.
    fn due(&self, _now: Time, _pools: &[Pool], _by: Option<AskClaimant<'_>>) -> Result<Option<DueAgents>> {
        Ok(None)
    }

    /// True if a new agent can't have this name.
    fn is_taken(&self, name: &AgentName) -> Result<bool>;

    /// Returns names and `identity.json` texts of all agents once named `former`, maybe of others.
    fn formerly_named(&self, former: &AgentName) -> Result<Vec<(AgentName, String)>>;

    /// Puts a message into the inbox of the agent of this name, without a read of the agent first.
    /// Idempotent by the id of the message. `size`: bytes of its body. `default`: maximum size if
    /// the agent's settings have none.
    ///
    /// Returns the text of `state.json` after that, or `None` if nothing was added; a read of the
    /// agent then gives the reason, or shows that the message can be added after all.
    fn deliver(
        &self,
        _name: &AgentName,
        _message: &Arrival,
        _size: u64,
        _default: u64,
    ) -> Result<Option<String>> {
        Ok(None)
    }

    /// Returns the user or role of this process, if it may only put messages and hints into
    /// inboxes: a member of the sharing group, or a producer of the database. The role of a
    /// producer is known only after the first request for an agent.
    fn guest(&self) -> Option<&str>;

    /// Returns those of these names of local agent directories that some agent's records contain.
    fn named_local_dirs(&self, _names: &[String]) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Sets the lease of the turn or task that has started this process. Once another process has
    /// that lease, the store refuses changes of the agent by this process as `fenced`. Does nothing
    /// if only one machine uses the store.
    fn claim(&self, _claim: Claim) {}
}

/// Store outside the state directory, which several machines may share.
pub trait RemoteBackend: Backend {
    /// Returns the records of one agent, or `None` if the agent does not exist.
    fn agent(&self, name: &AgentName) -> Result<Option<Rc<dyn RemoteRecords>>>;

    /// Creates an agent from all operations that make it.
    ///
    /// Returns `false`, and changes nothing, if an agent of this name exists.
    fn create(&self, name: &AgentName, ops: Ops<'_>) -> Result<bool>;

    /// Returns the runs that have one of the `max_running` slots, on all machines. `under`: an
    /// agent whose lock this process has; no other process then gets a slot before the next change
    /// of that agent or the release of the lock.
    fn slots(&self, under: Option<&AgentName>) -> Result<Vec<InSlot>>;

    /// Takes one of the slots for concurrent turns, for the lease of the run of the agent `under`,
    /// with the next change under the agent's lock. The slot is free again when the lease ends.
    fn take_slot(&self, under: &AgentName) -> Result<()>;

    /// Returns faults of the store as a whole at `now`. `overdue_after`: delay of a due step after
    /// which no machine seems to tick. `is_quick`: true to skip checks that read every row.
    fn faults(&self, now: Time, overdue_after: Option<Span>, is_quick: bool) -> Result<Vec<StoreFault>>;

    /// Returns a subscription to changes of agents, for a process that waits for a change.
    fn subscribe(&self) -> Box<dyn Subscription>;

    /// Returns this store with empty caches, as for a new process, and with the open connections.
    fn with_new_caches(&self) -> Rc<dyn RemoteBackend>;
}

/// Notifications of changes, so that a waiting process needs fewer reads. A notification may be
/// missing, and arrivals in an inbox never have one.
pub trait Subscription: Debug {
    /// Subscribes to changes of these agents, if the store sends notifications. Called before each
    /// read of the agents, always with all agents of earlier calls, and a few times a minute while
    /// the process waits. A failure is silent: then no notifications arrive.
    fn listen(&mut self, agents: &[AgentName]);

    /// True if the store is known to send notifications.
    fn notifies(&self) -> bool;

    /// Returns a descriptor that is readable after a change, if the store has one. The caller calls
    /// `was_notified` before it waits, because a notification may have arrived before this call.
    fn readable(&self) -> Option<BorrowedFd<'_>>;

    /// True if a notification has arrived since the last call. The notification does not name the
    /// change: the caller reads the records that it needs.
    fn was_notified(&mut self) -> bool;
}

/// Run that has one of the `max_running` slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InSlot {
    pub agent: AgentName,
    /// Identity of the state directory on the run's machine.
    pub anchor: String,
    /// Display name of the machine.
    pub host: String,
}

/// Agents that may have work for a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DueAgents {
    /// Agents that are due or have arrivals in their inbox, sorted by name.
    pub agents: Vec<DueAgent>,
    /// Next time at which another agent is due, if any. A message may arrive earlier.
    pub next: Option<Time>,
    /// Number of machines that recently asked to tick one of the requested pools (agent groups).
    pub machines: usize,
}

/// Agent that may have work for a step, and the facts that decide its priority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueAgent {
    pub name: AgentName,
    /// Text of the agent's settings, `agent.toml`.
    pub policy: String,
    /// Time of the oldest message or hint in the agent's inbox, according to the ids.
    pub since: Option<Time>,
    /// Time of the next step if no message arrives; [`due_now`] if a step is due already.
    pub due: Option<Time>,
}

impl DueAgents {
    pub fn names(&self) -> impl Iterator<Item = &AgentName> {
        self.agents.iter().map(|agent| &agent.name)
    }
}

/// Function that returns the identity with which this process requests leases.
pub type AskClaimant<'c> = &'c dyn Fn() -> Result<LeaseClaimant>;

/// Result of a rate-limited use of a trigger. `Err`: time until the next permitted use.
pub type UseOutcome = std::result::Result<(), Span>;

/// Records of one agent.
pub trait AgentRecords: Debug {
    /// Returns the text of `identity.json`.
    fn identity(&self) -> Result<String>;

    /// Returns the text of `agent.toml`.
    fn policy(&self) -> Result<String>;

    /// Returns the current text of `state.json`.
    fn state(&self) -> Result<String>;

    /// Returns the text of `state.json` that a committed but interrupted transaction has still to
    /// write, if any. For a reader that can't read the current text.
    fn pending_state(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Reads the current state without the agent's lock: the only read of a step that finds nothing
    /// to do. `decode`: decodes the text of `state.json`.
    fn peek(&self, decode: &dyn Fn(&str) -> Result<State>) -> Result<State> {
        let read = self.state().and_then(|text| decode(&text));
        let read = read.or_else(|error| match self.pending_state()? {
            Some(text) => decode(&text),
            None => Err(error),
        });
        read.map_err(|error| self.explain_if_gone(error))
    }

    /// True if a transaction is committed, but its changes are not in all records yet. If its
    /// process was killed, the next process that takes the agent's lock applies the changes.
    fn is_interrupted(&self) -> Result<bool> {
        Ok(false)
    }

    /// Takes the lease of a run or a task, or takes over an expired lease. Returns `None` if
    /// another machine has the lease. The caller holds the agent's lock on this machine.
    fn lease(&self, _subject: Subject, _who: AskClaimant<'_>) -> Result<Option<Box<dyn Lease>>> {
        Ok(Some(Box::new(LocalLease)))
    }

    /// True if a process with another state directory than that of `who` keeps the lease alive. For
    /// processes with this state directory the local lock is enough, and faster. `None` if the
    /// store keeps no leases.
    fn is_leased(&self, _subject: Subject, _who: AskClaimant<'_>) -> Result<Option<bool>> {
        Ok(None)
    }

    /// True if this process acts under a lease of this agent that another process has taken over.
    /// False if it acts under no lease.
    fn is_fenced(&self) -> Result<bool> {
        Ok(false)
    }

    /// True if no message or hint is in the inbox that a step would handle, and no transaction was
    /// interrupted.
    fn is_quiet(&self, state: &State) -> Result<bool>;

    /// Puts messages and hints into the inbox, all or none, without the agent's lock. They are
    /// durable when this returns. Idempotent by id.
    ///
    /// Returns `false`, and adds nothing, if the inbox is closed ([`Op::InboxClosed`]). A reader of
    /// the inbox that begins after the inbox was closed sees all arrivals.
    fn arrive(&self, arrivals: &[Arrival]) -> Result<bool>;

    /// Returns a consistent view of the records at one revision, without the agent's lock.
    fn read_view(&self) -> Result<Rc<dyn ReadView + '_>>;

    /// Returns a view of the current records without a check for an interrupted transaction.
    fn unchecked_view(&self) -> Result<Rc<dyn ReadView + '_>> {
        self.read_view()
    }

    /// Replaces the error of a read by "no such agent" if the agent was removed meanwhile.
    fn explain_if_gone(&self, error: Error) -> Error {
        error
    }

    /// Writes all commits to the files of the records, durably, so that a copy of the files is
    /// complete. The caller does not hold the agent's lock.
    fn flush(&self, _now: Time) -> Result<()> {
        Ok(())
    }

    /// Returns the stored checkpoints of runs.
    fn checkpoints(&self) -> Result<Vec<Checkpoint>>;

    /// Passes a checkpoint to `each`, part by part. Returns `false` if the checkpoint is not
    /// stored. Only a caller with the agent's lock is sure to get all parts from one version.
    fn saved(&self, checkpoint: Checkpoint, each: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Returns the signature key of a trigger, if `digest` is its SHA-256. Views contain no keys.
    fn trigger_key(&self, trigger: TriggerId, digest: &str) -> Result<Option<Vec<u8>>>;

    /// True if a key with this SHA-256 is stored. For the role `Reader`, which may read no keys.
    fn has_trigger_key(&self, trigger: TriggerId, digest: &str) -> Result<bool> {
        Ok(self.trigger_key(trigger, digest)?.is_some())
    }

    /// Removes every signature key of a trigger except that with this SHA-256. Called once no
    /// record names the others. A store whose commits remove such keys does nothing.
    fn forget_trigger_keys(&self, _trigger: TriggerId, _but: Option<&str>) -> Result<()> {
        Ok(())
    }

    /// Counts one use of a trigger, if all machines together have not used it `most` times in this
    /// minute. Takes no lock that steps take. `now`: for a store without its own clock.
    fn use_trigger(&self, trigger: TriggerId, most: NonZeroU32, now: Time) -> Result<UseOutcome>;
}

/// Records of an agent in a store outside the state directory. The agent's local directory has no
/// records, and is created at first need.
pub trait RemoteRecords: AgentRecords {
    /// Returns the display name of the store.
    fn shown(&self) -> String;

    /// Returns the name of the local agent directory that a machine prepared when it created or
    /// last replaced the agent.
    fn local_dir_name(&self) -> Option<String>;

    /// Takes the agent's lock, waiting up to `patience`. Returns `None` after that time.
    fn lock(&self, patience: Duration) -> Result<Option<Box<dyn RemoteTxn>>>;
}

/// Lock of an agent, and its records under the lock. Dropping this releases the lock.
pub trait Txn: Debug {
    /// Returns the time that this process waited for the agent's lock, if any; later calls: `None`.
    fn take_wait(&self) -> Option<Duration> {
        None
    }

    /// Applies the transaction of an interrupted command.
    fn finish(&self) -> Result<()> {
        Ok(())
    }

    /// Returns a view of the current revision, with all earlier commits under this lock.
    fn now(&self) -> Result<Rc<dyn ReadView + '_>>;

    /// Prepares the next view: lists the inbox again, without the names `skipped`. `is_step`: the
    /// caller is a step, which takes messages.
    fn list_inbox(&self, _skipped: &[String], _is_step: bool) -> Result<()> {
        Ok(())
    }

    /// Changes records, all or none. The caller has read the state of revision `base` under this
    /// lock.
    ///
    /// # Errors
    ///
    /// `stale_revision` if the records are no longer at revision `base`; `fenced` if this process
    /// has lost its lease of this agent, or the lease under which it acts. After the loss of such a
    /// lease, every other change is refused as `fenced`, too.
    fn commit(&self, base: u64, ops: &[Op]) -> Result<()>;

    /// Writes all commits to the files of the records, durably, so that a copy of the files is
    /// complete.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Moves a malformed file out of the inbox. An entry that is no file stays, and steps skip it.
    fn quarantine(&self, _file: &Dropped, _reason: &str) -> Result<QuarantineOutcome> {
        Ok(QuarantineOutcome::Stays("it is no file that could be moved".to_owned()))
    }

    /// Replaces `agent.toml` ([`Op::Policy`]) or `identity.json` ([`Op::Identity`]).
    fn put(&self, op: Op) -> Result<()>;
}

/// Lock of an agent in a store outside the state directory.
pub trait RemoteTxn: Txn {
    /// Replaces all records of the agent, or none. Fails with `stale_revision` or `fenced` in the
    /// same cases as [`Txn::commit`]. The fencing tokens continue to grow.
    fn replace(&self, base: u64, ops: Ops<'_>) -> Result<()>;

    /// Removes the agent with all of its records.
    fn remove(&self) -> Result<()>;

    /// Gives the agent another name, which no agent has. Its records keep the former name.
    fn rename(&self, name: &AgentName) -> Result<()>;
}

/// Returns the time that marks an agent as due already, because it has a current run, a task that
/// has not ended, or another unfinished operation.
pub fn due_now() -> Time {
    Time::from_millis(0)
}

/// Returns the time of the next step if no message arrives; `None` if no step is needed.
pub fn due(state: &State) -> Option<Time> {
    let is_unfinished = state.current_run.is_some()
        || state.open_tasks > 0
        || !state.outbox.is_empty()
        || !state.notifications.is_empty()
        || state.resting.is_none();
    match &state.moved {
        Some(_) => None,
        None if is_unfinished => Some(due_now()),
        None => state.next_due_at,
    }
}
