//! What all that is made of one store, and of one agent of it, has in common.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::rc::{Rc, Weak};

use crate::error::{Error, Result};
use crate::model::id::AgentName;

use super::super::elsewhere::{Claim, Claimant};
use super::pool::Pool;
use super::sql;
use super::wire::{Answer, Row};

/// One store.
#[derive(Debug)]
pub struct Shared {
    pub pool: Pool,
    /// The leases that this process has: agent and subject, with the fence and the machine. A
    /// change is refused if one was taken over.
    pub leases: RefCell<BTreeMap<(i64, String), (i64, String)>>,
    /// The lease in whose name this process speaks, though another one has it.
    pub claim: RefCell<Option<Claim>>,
    /// The role of this process, once it is known that it is a producer's.
    pub producer: OnceCell<String>,
    /// The agents whose lock this process has.
    pub locks: RefCell<BTreeMap<i64, Weak<dyn Locked>>>,
}

/// A lease in whose name a process speaks.
#[derive(Debug)]
pub struct Spoken {
    pub subject: String,
    pub fence: u64,
    /// The run that has it. After a failover another one may have its number, and the state then
    /// knows nothing of this run.
    pub run: Option<String>,
}

/// One agent.
#[derive(Debug)]
pub struct One {
    pub shared: Rc<Shared>,
    pub name: AgentName,
    /// The number of the agent in this store. It is never given again.
    pub id: i64,
    pub policy: RefCell<String>,
    pub identity: RefCell<String>,
    /// Dedupe keys that were admitted before are forgotten with the next change.
    pub forgotten: Cell<Option<i64>>,
}

/// The agent's lock, for those who would otherwise ask beside it.
pub trait Locked: Debug {
    /// One flight that only reads, in the transaction that has the lock. `None`: none is open now.
    fn ask(&self, statements: &str) -> Option<Result<Vec<Answer>>>;

    /// Whether a transaction is open that has the lock.
    fn is_open(&self) -> bool;

    /// Whether one is open, and over a connection that is kept from step to step.
    fn is_kept(&self) -> bool;

    fn is_of(&self, agent: &AgentName) -> bool;

    /// Has the run take a slot with the next change, in the transaction that is open. `false`: none
    /// is.
    fn take_slot(&self) -> bool;

    /// Gives a lease that is written with the next change. `None`: no transaction is open now.
    fn grant(&self, subject: &str, claimant: &Claimant) -> Option<Grant>;

    /// Takes a lease back with the next change. Its mark then says that it is not written.
    fn give_back(&self, subject: &str, anchor: &str, mark: &Rc<Mark>);
}

/// What becomes of a lease that is asked for under the lock.
#[derive(Debug)]
pub enum Grant {
    /// Somebody has it.
    Taken,
    Ours(Rc<Mark>),
    /// There is no next number.
    Damaged(Error),
}

/// A lease on its way: what the change that writes it and the lease itself tell each other.
#[derive(Debug)]
pub struct Mark {
    pub fence: i64,
    /// When the flight was sent that wrote it or was its last beat, by the clock that goes on while
    /// the machine sleeps.
    pub sent_at: Cell<std::time::Duration>,
    pub is_written: Cell<bool>,
    pub is_dropped: Cell<bool>,
}

impl Shared {
    pub fn new(pool: Pool) -> Shared {
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
    /// This process does not have a lease any more.
    pub fn forget_lease(&self, agent: i64, subject: String, fence: i64) {
        let mut leases = self.leases.borrow_mut();
        let key = (agent, subject);
        if leases.get(&key).is_some_and(|(held, _)| *held == fence) {
            leases.remove(&key);
        }
    }

    /// The lock of an agent, if this process has it.
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

    /// The lease of this agent in whose name the process speaks.
    pub fn claimed(&self) -> Option<Spoken> {
        let claim = self.shared.claim.borrow();
        let own = claim.as_ref().filter(|claim| claim.agent == self.name);
        own.map(|claim| Spoken {
            subject: sql::subject(claim.subject),
            fence: claim.fence,
            run: claim.run.map(|run| run.to_string()),
        })
    }

    /// A condition on the rows: the lease in whose name the process speaks is still that one.
    /// `true` if it speaks for none.
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

    /// The lock, if this process has it.
    pub fn lock(&self) -> Option<Rc<dyn Locked>> {
        self.shared.locks.borrow().get(&self.id).and_then(Weak::upgrade)
    }

    /// Whether the next flight goes over a connection that is kept from step to step.
    pub fn is_kept(&self) -> bool {
        match self.lock().filter(|lock| lock.is_open()) {
            Some(lock) => lock.is_kept(),
            None => self.shared.pool.has_kept(),
        }
    }

    /// One flight that only reads: in the transaction that has the lock, if this process has it,
    /// else by itself.
    pub fn ask(&self, statements: &str) -> Result<Vec<Answer>> {
        match self.lock().and_then(|lock| lock.ask(statements)) {
            Some(answers) => answers,
            None => self.shared.pool.ask(statements),
        }
    }
}

/// The one row of an answer that has one.
pub fn first(answers: &[Answer]) -> Option<&Row> {
    answers.first()?.rows.first()
}

pub fn number<T: std::str::FromStr>(row: Option<&Row>, column: usize) -> Option<T> {
    row?.get(column)?.parse().ok()
}
