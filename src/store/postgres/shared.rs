//! What all that is made of one store, and of one agent of it, has in common.

use std::cell::{Cell, RefCell};
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
    /// The leases that this process has: agent and subject, with the fence. A change is refused if one was taken over.
    pub leases: RefCell<BTreeMap<(i64, String), i64>>,
    /// The lease in whose name this process speaks, though another one has it.
    pub claim: RefCell<Option<Claim>>,
    /// The agents whose lock this process has.
    pub locks: RefCell<BTreeMap<i64, Weak<dyn Locked>>>,
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

    /// Gives a lease that is written with the next change. `None`: no transaction is open now.
    fn grant(&self, subject: &str, claimant: &Claimant) -> Option<Grant>;
}

/// What becomes of a lease that is asked for under the lock.
#[derive(Debug)]
pub enum Grant {
    /// Somebody has it.
    Taken,
    Ours(Rc<Mark>),
}

/// A lease on its way: what the change that writes it and the lease itself tell each other.
#[derive(Debug)]
pub struct Mark {
    pub fence: i64,
    /// When the flight was sent that wrote it or was its last beat, by the clock that goes on while the machine sleeps.
    pub sent_at: Cell<std::time::Duration>,
    pub is_written: Cell<bool>,
    pub is_dropped: Cell<bool>,
}

impl Shared {
    pub fn new(pool: Pool) -> Shared {
        Shared { pool, leases: RefCell::default(), claim: RefCell::default(), locks: RefCell::default() }
    }
}

impl One {
    pub fn schema(&self) -> &str {
        self.shared.pool.schema()
    }

    pub fn gone(&self) -> Error {
        Error::NoAgent { agent: self.name.to_string(), known: None, renamed: None }
    }

    /// The lease of this agent in whose name the process speaks: its subject and its fence.
    pub fn claimed(&self) -> Option<(String, u64)> {
        let claim = self.shared.claim.borrow();
        let own = claim.as_ref().filter(|claim| claim.agent == self.name);
        own.map(|claim| (sql::subject(claim.subject), claim.fence))
    }

    /// A condition on the rows: the lease in whose name the process speaks is still that one. `true` if it speaks for none.
    pub fn not_fenced(&self) -> Result<String> {
        let Some((subject, fence)) = self.claimed() else { return Ok("true".to_owned()) };
        Ok(format!(
            "EXISTS (SELECT FROM {}.lease l WHERE l.agent_id = {} AND l.subject = {} AND l.fence = {fence})",
            self.schema(),
            self.id,
            sql::text(&subject)?
        ))
    }

    /// The lock, if this process has it.
    pub fn lock(&self) -> Option<Rc<dyn Locked>> {
        self.shared.locks.borrow().get(&self.id).and_then(Weak::upgrade)
    }

    /// One flight that only reads: in the transaction that has the lock, if this process has it, else by itself.
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
