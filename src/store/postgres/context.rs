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
use super::statements::ClaimedLease;
use super::wire::{ServerAnswer, Statement};

/// State of one store.
#[derive(Debug)]
pub struct StoreContext {
    pub pool: ConnectionPool,
    /// Leases of this process: agent and subject, with fence and machine. A change is refused if
    /// another process has taken one over.
    pub leases: RefCell<BTreeMap<(i64, String), (i64, String)>>,
    /// The lease in whose name this process acts, although another process has it.
    pub claim: RefCell<Option<Claim>>,
    /// The role of this process, once the role is known to be a producer.
    pub producer: OnceCell<String>,
    /// Locks of agents that this process has.
    pub locks: RefCell<BTreeMap<i64, Weak<dyn AgentLock>>>,
}

/// State of one agent.
#[derive(Debug)]
pub struct AgentContext {
    pub shared: Rc<StoreContext>,
    pub name: AgentName,
    /// Number of the agent in this store, which is never used again.
    pub id: i64,
    pub policy: RefCell<String>,
    pub identity: RefCell<String>,
    /// Time before which the next change deletes dedupe keys.
    pub forgotten: Cell<Option<i64>>,
}

/// Lock of an agent, for queries that have to run in the transaction of the lock.
pub trait AgentLock: Debug {
    /// Makes a round trip that only reads, in the open transaction. `None` if no transaction is
    /// open.
    fn ask(&self, statements: &[Statement]) -> Option<Result<Vec<ServerAnswer>>>;

    /// True if a transaction with the lock is open.
    fn is_open(&self) -> bool;

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

impl StoreContext {
    pub fn new(pool: ConnectionPool) -> StoreContext {
        StoreContext {
            pool,
            leases: RefCell::default(),
            claim: RefCell::default(),
            producer: OnceCell::new(),
            locks: RefCell::default(),
        }
    }

    /// Removes a lease from the leases of this process.
    pub fn forget_lease(&self, agent: i64, subject: String, fence: i64) {
        let mut leases = self.leases.borrow_mut();
        let key = (agent, subject);
        if leases.get(&key).is_some_and(|(held, _)| *held == fence) {
            leases.remove(&key);
        }
    }

    /// Returns the lock of an agent, if this process has it.
    pub fn lock_of(&self, agent: &AgentName) -> Option<Rc<dyn AgentLock>> {
        self.locks.borrow().values().filter_map(Weak::upgrade).find(|lock| lock.is_of(agent))
    }
}

impl AgentContext {
    pub fn gone(&self) -> Error {
        Error::NoAgent { agent: self.name.to_string(), known: None, renamed: None }
    }

    /// Returns the lease of this agent in whose name the process acts. Its subject is `None` if
    /// there is none.
    pub fn claimed(&self) -> ClaimedLease {
        let claim = self.shared.claim.borrow();
        let own = claim.as_ref().filter(|claim| claim.agent == self.name);
        own.map_or_else(ClaimedLease::default, |claim| ClaimedLease {
            subject: Some(sql::subject(claim.subject)),
            fence: claim.fence,
            run: claim.run.map(|run| run.to_string()),
        })
    }

    /// Returns the present revision. `None` if the agent does not exist any more.
    pub fn revision(&self) -> Result<Option<u64>> {
        let asked = Statement::new("SELECT revision FROM @.state WHERE agent_id = $1").with(self.id);
        Ok(self.ask(asked)?.row().and_then(|row| row.number(0)))
    }

    /// Returns the lock, if this process has it.
    pub fn lock(&self) -> Option<Rc<dyn AgentLock>> {
        self.shared.locks.borrow().get(&self.id).and_then(Weak::upgrade)
    }

    /// Runs a query, in the transaction of the lock if this process has one open.
    pub fn ask(&self, statement: Statement) -> Result<ServerAnswer> {
        let statements = [statement];
        let mut answers = match self.lock().and_then(|lock| lock.ask(&statements)) {
            Some(answers) => answers?,
            None => self.shared.pool.ask(&statements)?,
        };
        Ok(answers.pop().unwrap_or_default())
    }
}
