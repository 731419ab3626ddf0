//! State that the parts of one store share, and that the parts of one agent share.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::rc::{Rc, Weak};

use crate::error::{Error, Result};
use crate::model::id::AgentName;

use super::super::elsewhere::{Claim, LeaseClaimant};
use super::pool::ConnectionPool;
use super::sql;
use super::wire::{Row, ServerAnswer};

/// State of one store.
#[derive(Debug)]
pub struct Shared {
    pub pool: ConnectionPool,
    /// Leases of this process: agent and subject, with fence and machine. A change is refused if
    /// another process has taken one over.
    pub leases: RefCell<BTreeMap<(i64, String), (i64, String)>>,
    /// The lease in whose name this process acts, although another process has it.
    pub claim: RefCell<Option<Claim>>,
    /// The role of this process, once the role is known to be a producer.
    pub producer: OnceCell<String>,
    /// Locks of agents that this process has.
    pub locks: RefCell<BTreeMap<i64, Weak<dyn Locked>>>,
}

/// A lease in whose name a process acts.
#[derive(Debug)]
pub struct Spoken {
    pub subject: String,
    pub fence: u64,
    /// The run that has the lease. After a failover another run may get the same fence; the state
    /// then does not contain this run's id.
    pub run: Option<String>,
}

/// State of one agent.
#[derive(Debug)]
pub struct One {
    pub shared: Rc<Shared>,
    pub name: AgentName,
    /// Number of the agent in this store, which is never used again.
    pub id: i64,
    pub policy: RefCell<String>,
    pub identity: RefCell<String>,
    /// Time before which the next change deletes dedupe keys.
    pub forgotten: Cell<Option<i64>>,
}

/// Lock of an agent, for queries that have to run in the transaction of the lock.
pub trait Locked: Debug {
    /// Makes a round trip that only reads, in the open transaction. `None` if no transaction is
    /// open.
    fn ask(&self, statements: &str) -> Option<Result<Vec<ServerAnswer>>>;

    /// True if a transaction with the lock is open.
    fn is_open(&self) -> bool;

    /// True if a transaction is open, over a persistent connection.
    fn is_kept(&self) -> bool;

    fn is_of(&self, agent: &AgentName) -> bool;

    /// Marks the run to take a slot with the next change of the open transaction. Returns `false`
    /// if no transaction is open.
    fn take_slot(&self) -> bool;

    /// Grants a lease that the next change writes. `None` if no transaction is open.
    fn grant(&self, subject: &str, claimant: &LeaseClaimant) -> Option<LeaseGrant>;

    /// Deletes a lease with the next change, which clears `is_written` of its mark.
    fn give_back(&self, subject: &str, anchor: &str, mark: &Rc<PendingLease>);
}

/// Result of a request for a lease under the lock.
#[derive(Debug)]
pub enum LeaseGrant {
    /// Another process has the lease.
    Taken,
    Ours(Rc<PendingLease>),
    /// The agent's last fence is invalid.
    Damaged(Error),
}

/// State of a lease that the lease shares with the change that writes it.
#[derive(Debug)]
pub struct PendingLease {
    pub fence: i64,
    /// Time at which the last write or heartbeat of the lease was sent, by
    /// [`super::lease::boot_time`].
    pub sent_at: Cell<std::time::Duration>,
    pub is_written: Cell<bool>,
    pub is_dropped: Cell<bool>,
}

impl Shared {
    pub fn new(pool: ConnectionPool) -> Shared {
        Shared {
            pool,
            leases: RefCell::default(),
            claim: RefCell::default(),
            producer: OnceCell::new(),
            locks: RefCell::default(),
        }
    }
}

impl Shared {
    /// Removes a lease from the leases of this process.
    pub fn forget_lease(&self, agent: i64, subject: String, fence: i64) {
        let mut leases = self.leases.borrow_mut();
        let key = (agent, subject);
        if leases.get(&key).is_some_and(|(held, _)| *held == fence) {
            leases.remove(&key);
        }
    }

    /// Returns the lock of an agent, if this process has it.
    pub fn lock_of(&self, agent: &AgentName) -> Option<Rc<dyn Locked>> {
        self.locks.borrow().values().filter_map(Weak::upgrade).find(|lock| lock.is_of(agent))
    }
}

impl One {
    pub fn schema(&self) -> &str {
        self.shared.pool.schema()
    }

    pub fn gone(&self) -> Error {
        Error::NoAgent { agent: self.name.to_string(), known: None, renamed: None }
    }

    /// Returns the lease of this agent in whose name the process acts.
    pub fn claimed(&self) -> Option<Spoken> {
        let claim = self.shared.claim.borrow();
        let own = claim.as_ref().filter(|claim| claim.agent == self.name);
        own.map(|claim| Spoken {
            subject: sql::subject(claim.subject),
            fence: claim.fence,
            run: claim.run.map(|run| run.to_string()),
        })
    }

    /// SQL condition: the lease in whose name the process acts is still valid; `true` without one.
    pub fn not_fenced(&self) -> Result<String> {
        let Some(Spoken { subject, fence, run }) = self.claimed() else { return Ok("true".to_owned()) };
        let (schema, id, subject) = (self.schema(), self.id, sql::text(&subject)?);
        let is_known = match run {
            Some(run) => format!(
                " AND EXISTS (SELECT FROM {schema}.state s WHERE s.agent_id = {id} AND strpos(s.body::text, {}) > 0)",
                sql::text(&run)?
            ),
            None => String::new(),
        };
        Ok(format!(
            "EXISTS (SELECT FROM {schema}.lease l WHERE l.agent_id = {id} AND l.subject = {subject} \
             AND l.fence = {fence}{is_known})"
        ))
    }

    /// Returns the lock, if this process has it.
    pub fn lock(&self) -> Option<Rc<dyn Locked>> {
        self.shared.locks.borrow().get(&self.id).and_then(Weak::upgrade)
    }

    /// True if the next round trip uses a persistent connection.
    pub fn is_kept(&self) -> bool {
        match self.lock().filter(|lock| lock.is_open()) {
            Some(lock) => lock.is_kept(),
            None => self.shared.pool.has_kept(),
        }
    }

    /// Makes a round trip that only reads, in the transaction of the lock if this process has one
    /// open.
    pub fn ask(&self, statements: &str) -> Result<Vec<ServerAnswer>> {
        match self.lock().and_then(|lock| lock.ask(statements)) {
            Some(answers) => answers,
            None => self.shared.pool.ask(statements),
        }
    }
}

/// First row of the first answer.
pub fn first(answers: &[ServerAnswer]) -> Option<&Row> {
    answers.first()?.rows.first()
}

pub fn number<T: std::str::FromStr>(row: Option<&Row>, column: usize) -> Option<T> {
    row?.get(column)?.parse().ok()
}
