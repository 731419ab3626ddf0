//! Records in PostgreSQL: one schema is one store, which many machines share.
//!
//! - [`Postgres`]: the store. `agent`: records of one agent. `read_view`: one revision. `txn`: the
//!   agent's lock and its changes; `change`: the writer of changes, and the creation of an agent.
//!   `lease`: the right to work on a run or a task. `due`: the agents to step. `watch`:
//!   notifications of changes.
//! - `schema.sql`: the tables, with the reasons for their design, and the functions `load` and
//!   `apply`, which read and write the records, `arrive`, which inserts into an inbox, and
//!   `take_lease`. `statements`: calls of these, and other statements; `sql`: values; `tables`:
//!   list of the tables, and privileges of roles; `checks`: faults that `doctor` reports.
//! - [`Url`]: the address of a store. `pool`: the connections; `wire`: the protocol; `context`:
//!   state that these parts share; `errors`: error messages.
//!
//! A round trip is a batch of statements that are sent together and answered together.

mod agent;
mod change;
mod checks;
mod context;
mod due;
mod errors;
mod lease;
mod pool;
mod read_view;
mod sql;
mod statements;
mod tables;
#[cfg(test)]
pub mod tests;
mod txn;
mod url;
mod watch;
pub mod wire;

use std::rc::Rc;
use std::slice;
use std::time::{Duration, Instant};

use crate::error::{Result, SUGGESTED};
use crate::model::id::AgentName;
use crate::model::pool::Pool;
use crate::model::time::{Span, Time};

use super::backend::{
    Arrival, AskClaimant, Backend, Claim, DatabaseRole, DueAgents, InSlot, Ops, RemoteBackend, RemoteRecords,
    StoreFault, StoreProperties, Subscription,
};
use agent::PgAgent;
use context::StoreContext;
use errors::RoundTripFault;
use pool::ConnectionPool;
pub use url::Url;
use wire::Statement;

/// SQL that creates the tables and functions of a store.
const SCHEMA: &str = include_str!("schema.sql");

/// Number of months after the current month with their own partitions of archive and events.
/// Ticking machines create these partitions.
const MONTHS_AHEAD: u32 = 1;

/// All agents of one store in a database.
#[derive(Debug)]
pub struct Postgres {
    shared: Rc<StoreContext>,
}

impl Postgres {
    /// Returns the store of a URL, without connecting to the server. The first query connects and
    /// checks the server's version and the store's format. `patience`: timeout for a connection and
    /// for an answer.
    pub fn open(url: Url, patience: Duration) -> Postgres {
        Postgres { shared: Rc::new(StoreContext::new(ConnectionPool::new(url, patience))) }
    }

    /// Creates the tables of a store. Returns `false` if the store exists; then creates only
    /// missing monthly partitions.
    pub fn init(url: Url, patience: Duration) -> Result<bool> {
        let pool = ConnectionPool::unread(url, patience);
        let until = Instant::now() + patience;
        loop {
            // The check comes first: the database role may only be allowed to read a store.
            let is_there = pool.ask_one(Statement::new("SELECT to_regclass('@.meta') IS NOT NULL"))?;
            if is_there.first().is_some_and(|row| row.is(0)) {
                let months = Statement::new("SELECT @.make_months($1)").with(MONTHS_AHEAD);
                ConnectionPool::new(pool.url().clone(), patience).ask_one(months)?;
                return Ok(false);
            }
            match pool.script(SCHEMA) {
                Ok(_) => return Ok(true),
                // The store may exist now: another process has made it, or the answer was lost.
                Err(RoundTripFault::Lost { .. } | RoundTripFault::Crossed(_)) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    /// Grants a database role its privileges as `part` in an existing store, and revokes its other
    /// privileges there.
    pub fn grant(url: Url, patience: Duration, part: DatabaseRole, role: &str) -> Result<()> {
        ConnectionPool::new(url, patience).ask(&tables::grant(part, role)).map(drop)
    }
}

/// Returns the names that a query finds, except invalid names, which `doctor` reports.
fn names(pool: &ConnectionPool, asked: Statement) -> Result<Vec<AgentName>> {
    let answer = pool.ask_one(asked)?;
    Ok(answer.iter().filter_map(|row| row.get(0)?.parse().ok()).collect())
}

impl Backend for Postgres {
    fn named_local_dirs(&self, names: &[String]) -> Result<Vec<String>> {
        let asked = Statement::new("SELECT room FROM @.agent WHERE room = ANY ($1)").with(names.to_vec());
        let answer = self.shared.pool.ask_one(asked)?;
        Ok(answer.iter().filter_map(|row| row.text(0)).collect())
    }

    fn shown(&self) -> String {
        self.shared.pool.url().shown().to_string()
    }

    fn agents(&self, beginning: &str) -> Result<Vec<AgentName>> {
        let asked = Statement::new("SELECT name FROM @.agent WHERE starts_with(name, $1) ORDER BY name");
        names(&self.shared.pool, asked.with(beginning))
    }

    fn agents_around(&self, name: &AgentName) -> Result<Vec<AgentName>> {
        let asked = "(SELECT name FROM @.agent WHERE name < $1 ORDER BY name DESC LIMIT $2) UNION ALL \
                     (SELECT name FROM @.agent WHERE name >= $1 ORDER BY name LIMIT $2) ORDER BY name";
        names(&self.shared.pool, Statement::new(asked).with(name.as_str()).with(SUGGESTED as u64 / 2))
    }

    fn due(&self, now: Time, pools: &[Pool], by: Option<AskClaimant<'_>>) -> Result<Option<DueAgents>> {
        due::ask(&self.shared.pool, now, pools, by.map(|who| who()).transpose()?).map(Some)
    }

    fn is_taken(&self, name: &AgentName) -> Result<bool> {
        Ok(self.agent(name)?.is_some())
    }

    fn deliver(
        &self,
        name: &AgentName,
        message: &Arrival,
        size: u64,
        default: u64,
    ) -> Result<Option<String>> {
        // The insertion below checks no lease of this process, and is forbidden to roles that may
        // only deliver, so the caller must insert by another method.
        if self.shared.claim.borrow().is_some() || self.shared.producer.get().is_some() {
            return Ok(None);
        }
        let may_lock = self.shared.lock_of(name).is_none();
        let conditions = (None, Some((size, default)));
        match agent::arrive(&self.shared.pool, (None, name), slice::from_ref(message), conditions, may_lock) {
            Err(error) if error.kind() == errors::NOT_ALLOWED => {
                self.shared.learn_producer(error).map(|()| None)
            }
            // Column 0: the size is permitted; 1: the inbox is closed; 2: the agent's state.
            came => Ok(came?.filter(|row| row.is(0) && !row.is(1)).and_then(|row| row.text(2))),
        }
    }

    fn formerly_named(&self, former: &AgentName) -> Result<Vec<(AgentName, String)>> {
        let pool = &self.shared.pool;
        let asked = Statement::new(
            "SELECT name, identity FROM @.agent WHERE strpos(identity::text, '\"former_names\"') > 0 \
             AND strpos(identity::text, $1) > 0 ORDER BY name",
        );
        let answer = pool.ask_one(asked.with(format!("\"{former}\"")))?;
        pool.parse(&answer, "identities", |row| Some((row.get(0)?.parse().ok()?, row.text(1)?)))
    }

    fn guest(&self) -> Option<&str> {
        self.shared.producer.get().map(String::as_str)
    }

    fn claim(&self, claim: Claim) {
        self.shared.claim.replace(Some(claim));
    }

    fn properties(&self) -> StoreProperties {
        StoreProperties { is_shared: true, has_connection: true, secret_variables: &["PGPASSWORD"] }
    }
}

impl RemoteBackend for Postgres {
    fn agent(&self, name: &AgentName) -> Result<Option<Rc<dyn RemoteRecords>>> {
        let shared = &self.shared;
        if shared.producer.get().is_none() {
            match PgAgent::find(shared, name) {
                Err(error) if error.kind() == errors::NOT_ALLOWED => shared.learn_producer(error)?,
                found => return Ok(found?.map(|agent| Rc::new(agent) as Rc<dyn RemoteRecords>)),
            }
        }
        Ok(Some(Rc::new(PgAgent::of_producer(shared, name))))
    }

    fn create(&self, name: &AgentName, ops: Ops<'_>) -> Result<bool> {
        change::create(&self.shared.pool, name, ops)
    }

    fn slots(&self, under: Option<&AgentName>) -> Result<Vec<InSlot>> {
        let pool = &self.shared.pool;
        let lock = under.and_then(|agent| self.shared.lock_of(agent));
        let slots = Statement::new(
            "SELECT a.name, l.anchor, l.host FROM @.lease l JOIN @.agent a ON a.id = l.agent_id \
             WHERE l.has_slot AND l.expires_at > @now ORDER BY l.fence, a.name",
        );
        // The transaction with the agent's lock also locks the list of slots.
        let alone = Statement::new("SELECT pg_advisory_xact_lock(hashtextextended('@ slots', 0))");
        let answers = match lock.and_then(|lock| lock.ask(&[alone, slots.clone()])) {
            Some(answers) => answers?,
            None => pool.ask(&[slots])?,
        };
        let rows = answers.last().map(Vec::as_slice).unwrap_or_default();
        pool.parse(rows, "who has a slot", |row| {
            Some(InSlot { agent: row.get(0)?.parse().ok()?, anchor: row.text(1)?, host: row.text(2)? })
        })
    }

    fn take_slot(&self, under: &AgentName) -> Result<()> {
        let is_taken = self.shared.lock_of(under).is_some_and(|lock| lock.take_slot());
        if is_taken { Ok(()) } else { Err(errors::busy(self.shared.pool.url())) }
    }

    fn faults(&self, now: Time, overdue_after: Option<Span>, is_quick: bool) -> Result<Vec<StoreFault>> {
        checks::faults(&self.shared.pool, now, overdue_after, is_quick)
    }

    fn subscribe(&self) -> Box<dyn Subscription> {
        Box::new(watch::PgSubscription::new(&self.shared))
    }

    fn with_new_caches(&self) -> Rc<dyn RemoteBackend> {
        let shared = StoreContext::new(self.shared.pool.with_new_caches());
        shared.claim.replace(self.shared.claim.borrow().clone());
        Rc::new(Postgres { shared: Rc::new(shared) })
    }
}
