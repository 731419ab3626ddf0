//! Shared state of the parts of one store, and of the parts of one agent.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::rc::{Rc, Weak};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::local::LeaseClaimant;
use crate::model::id::AgentName;

use super::super::backend::Claim;
use super::pool::ConnectionPool;
use super::wire::{Row, Statement};

/// Connections, leases and locks of this process in one store.
#[derive(Debug)]
pub struct StoreContext {
    pub pool: ConnectionPool,
    /// Leases of this process that are in the database. A change of an agent is refused if another
    /// process has taken over the lease of the agent's run or task.
    pub leases: RefCell<Vec<Rc<OwnLease>>>,
    /// Lease of the turn or task that has started this process, under which this process acts.
    pub claim: RefCell<Option<Claim>>,
    /// Name of this process's database role, if the role may only deliver messages.
    pub producer: OnceCell<String>,
    /// Agent locks that this process holds, by agent id.
    pub locks: RefCell<BTreeMap<i64, Weak<dyn AgentLock>>>,
}

/// State that several parts of this store share for one agent.
#[derive(Debug)]
pub struct AgentContext {
    pub shared: Rc<StoreContext>,
    pub name: AgentName,
    /// Id of the agent in this store, which is never reused.
    pub id: i64,
    pub policy: RefCell<String>,
    pub identity: RefCell<String>,
}

/// Lock of an agent. The transaction that has the lock runs all queries about the agent.
pub trait AgentLock: Debug {
    /// Runs reading statements in the open transaction, in one round trip; `None` if none is open.
    fn ask(&self, statements: &[Statement]) -> Option<Result<Vec<Vec<Row>>>>;

    /// True if the transaction with the agent's lock is open.
    fn is_open(&self) -> bool;

    fn is_of(&self, agent: &AgentName) -> bool;

    /// Requests that the next change of the open transaction takes a slot, one of a limited number
    /// of concurrent turns, for the run. Returns `false` if no transaction is open.
    fn take_slot(&self) -> bool;

    /// Grants a lease that the next change will write. The inner value is `None` if another process
    /// holds the lease, the outer one if no transaction is open.
    fn grant(&self, subject: &str, claimant: &LeaseClaimant) -> Option<Result<Option<Rc<OwnLease>>>>;

    /// Requests that the next change deletes a lease and clears its `is_written`.
    fn return_lease(&self, lease: &Rc<OwnLease>);
}

/// Lease that this process has, or that its next change will write.
#[derive(Debug)]
pub struct OwnLease {
    pub agent: i64,
    pub subject: String,
    /// Machine that holds the lease. After a failover to a server that lost the last leases, leases
    /// of two machines may have equal fencing tokens.
    pub anchor: String,
    pub fence: i64,
    /// Time since boot at which the last write or heartbeat of the lease was sent.
    pub sent_at: Cell<Duration>,
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

    /// Notes the database role of this process if the role may insert into inboxes but read no
    /// records. Otherwise returns `refusal`, the error of a failed query.
    pub fn learn_producer(&self, refusal: Error) -> Result<()> {
        let asked = Statement::new(
            "SELECT session_user WHERE has_function_privilege('@.deliver(text, smallint[], uuid[], text[], boolean)', \
             'EXECUTE')",
        );
        // A role that may not use the schema can't run this query, and may not add messages.
        let rows = self.pool.ask_one(asked).unwrap_or_default();
        let Some(role) = rows.first().and_then(|row| row.text(0)) else { return Err(refusal) };
        self.producer.get_or_init(|| role);
        Ok(())
    }

    /// Adds a written lease to the list of this process's leases.
    pub fn note_lease(&self, lease: Rc<OwnLease>) {
        let mut leases = self.leases.borrow_mut();
        leases.retain(|other| other.agent != lease.agent || other.subject != lease.subject);
        leases.push(lease);
    }

    /// Removes a lease from the list of this process's leases.
    pub fn forget_lease(&self, lease: &Rc<OwnLease>) {
        self.leases.borrow_mut().retain(|other| !Rc::ptr_eq(other, lease));
    }

    /// Returns the lock of an agent; `None` if this process does not hold the lock.
    pub fn lock_of(&self, agent: &AgentName) -> Option<Rc<dyn AgentLock>> {
        self.locks.borrow().values().filter_map(Weak::upgrade).find(|lock| lock.is_of(agent))
    }
}

impl AgentContext {
    pub fn gone(&self) -> Error {
        Error::NoAgent { agent: self.name.to_string(), known: None, renamed: None }
    }

    /// Returns the lease under which this process acts, if it is a lease of this agent.
    pub fn claim(&self) -> Option<Claim> {
        self.shared.claim.borrow().clone().filter(|claim| claim.agent == self.name)
    }

    /// Returns the current revision of the agent; `None` if the agent does not exist.
    pub fn revision(&self) -> Result<Option<u64>> {
        let asked = Statement::new("SELECT revision FROM @.state WHERE agent_id = $1").with(self.id);
        Ok(self.ask(asked)?.first().and_then(|row| row.number(0)))
    }

    /// Returns the lock of this agent; `None` if this process does not hold the lock.
    pub fn lock(&self) -> Option<Rc<dyn AgentLock>> {
        self.shared.locks.borrow().get(&self.id).and_then(Weak::upgrade)
    }

    /// Runs a query, in the transaction with the agent's lock if that transaction is open.
    pub fn ask(&self, statement: Statement) -> Result<Vec<Row>> {
        let statements = [statement];
        let mut answers = match self.lock().and_then(|lock| lock.ask(&statements)) {
            Some(answers) => answers?,
            None => self.shared.pool.ask(&statements)?,
        };
        Ok(answers.pop().unwrap_or_default())
    }
}
