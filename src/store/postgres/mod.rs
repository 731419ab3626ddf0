//! The records in PostgreSQL: one schema is one store, which many machines share.
//!
//! - [`Postgres`]: the store. `agent`: records of one agent. `sight`: read view of one revision.
//!   `hold`: the agent's lock and its changes. `lease`: the right to work on a run or a task.
//!   `watch`: notifications of changes. `triggers`: keys and limits of triggers. `input`: input of
//!   a task on another machine.
//! - `statements`: queries and changes as SQL; `kept`: functions of the database that do the same;
//!   `sql`: SQL literals; `grants`: privileges of roles; `tables`: list of the tables.
//!   `schema.sql`: the tables, and the reasons for their design.
//! - `pool`: the connections; `wire`: the protocol. `faults`: error messages.
//!
//! One round trip is a batch of statements that are sent together and answered together.

mod agent;
mod due;
mod fate;
mod faults;
mod fitness;
mod grants;
mod hold;
mod input;
mod kept;
mod lease;
mod make;
mod pool;
mod producer;
mod said;
mod shared;
mod sight;
mod sql;
mod statements;
mod tables;
#[cfg(test)]
pub mod tests;
mod triggers;
mod watch;
mod whole;
pub mod wire;

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::model::id::AgentName;
use crate::model::pool::Pool;
use crate::model::time::{Span, Time};

use super::elsewhere::{
    AgentRecords, Arrival, Backend, Claim, DatabaseRole, DueAgents, InSlot, LeaseClaimant, Pieces,
    StoreFault, Subscription,
};
use faults::RoundTripFault;
use pool::ConnectionPool;
use shared::Shared;
pub use wire::Url;

/// Tables of a store, with `@` for the schema.
const SCHEMA: &str = include_str!("schema.sql");

/// Number of months after the current one that have partitions of their own in the archive and the
/// events. Ticking machines create them.
const MONTHS_AHEAD: u32 = 1;

/// All agents of one store in a database.
#[derive(Debug)]
pub struct Postgres {
    shared: Rc<Shared>,
}

impl Postgres {
    /// Returns the store that a URL names, without connecting to the server. The first query
    /// connects and checks the server's version and the store's format. `patience`: timeout for a
    /// connection and for an answer.
    pub fn open(url: Url, patience: Duration) -> Postgres {
        Postgres { shared: Rc::new(Shared::new(ConnectionPool::new(url, patience))) }
    }

    /// Creates the tables of a store. Returns `false` if the store exists; then only missing
    /// monthly partitions are created.
    pub fn init(url: Url, patience: Duration) -> Result<bool> {
        let pool = ConnectionPool::unread(url, patience);
        let schema = pool.schema().to_owned();
        let until = Instant::now() + patience;
        loop {
            // Checked first, because an existing store may allow this role only to read.
            let there = format!("SELECT to_regclass({})::text", wire::literal(&format!("{schema}.meta")));
            let answers = pool.ask(&there)?;
            if answers.first().and_then(|answer| answer.rows.first()).and_then(|row| row.get(0)).is_some() {
                let months = statements::months(&schema, MONTHS_AHEAD);
                ConnectionPool::new(pool.url().clone(), patience).ask(&months)?;
                return Ok(false);
            }
            let made = SCHEMA.replace('@', &schema);
            let (functions, months) = (kept::make(&schema), statements::months(&schema, MONTHS_AHEAD));
            match pool.ask_once(&format!("BEGIN;{made}{functions}{months};COMMIT")) {
                Ok(_) => return Ok(true),
                // Another process creates the store at the same time or has created it, or the
                // answer was lost.
                Err(RoundTripFault::Taken(_) | RoundTripFault::Lost { .. } | RoundTripFault::Crossed(_))
                    if Instant::now() < until =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(trouble) => return Err(trouble.into_error(pool.url())),
            }
        }
    }
}

impl Postgres {
    /// Grants a role of the database the privileges of one part in an existing store, and revokes
    /// all its other privileges there.
    pub fn grant(url: Url, patience: Duration, part: DatabaseRole, role: &str) -> Result<()> {
        let pool = ConnectionPool::new(url, patience);
        pool.ask(&format!("BEGIN;{};COMMIT", grants::grant(pool.schema(), part, role))).map(drop)
    }
}

impl Backend for Postgres {
    fn shown(&self) -> String {
        self.shared.pool.url().shown().to_string()
    }

    fn agents(&self) -> Result<Vec<AgentName>> {
        let pool = &self.shared.pool;
        let answers = pool.ask(&format!("SELECT name FROM {}.agent ORDER BY name", pool.schema()))?;
        let rows = answers.iter().flat_map(|answer| &answer.rows);
        // Other commands ignore an agent with an invalid name; `doctor` reports it.
        Ok(rows.filter_map(|row| row.get(0).and_then(|name| name.parse().ok())).collect())
    }

    fn due(&self, now: Time, pools: &[Pool], by: Option<&LeaseClaimant>) -> Result<DueAgents> {
        let names: Vec<&str> = pools.iter().map(Pool::as_str).collect();
        due::ask(&self.shared.pool, now, &names, by)
    }

    fn agent(&self, name: &AgentName) -> Result<Option<Rc<dyn AgentRecords>>> {
        if self.shared.producer.get().is_some() {
            return Ok(Some(Rc::new(producer::Producer::of(&self.shared, name))));
        }
        match agent::PgAgent::find(&self.shared, name) {
            Ok(found) => Ok(found.map(|agent| Rc::new(agent) as Rc<dyn AgentRecords>)),
            Err(error) if error.kind() == faults::NOT_ALLOWED => {
                Ok(Some(Rc::new(producer::Producer::find(&self.shared, name, error)?)))
            }
            Err(error) => Err(error),
        }
    }

    fn slots(&self, under: Option<&AgentName>) -> Result<Vec<InSlot>> {
        let pool = &self.shared.pool;
        let lock = under.and_then(|agent| self.shared.lock_of(agent));
        let alone = lock.and_then(|lock| lock.ask(&statements::slots(pool.schema(), true)));
        let answers = alone.unwrap_or_else(|| pool.ask(&statements::slots(pool.schema(), false)))?;
        let rows = answers.last().map(|answer| answer.rows.as_slice()).unwrap_or_default();
        let read = |row: &wire::Row| {
            let text = |column| row.get(column).map(str::to_owned);
            Some(InSlot { agent: row.get(0)?.parse().ok()?, anchor: text(1)?, host: text(2)? })
        };
        rows.iter().map(|row| read(row).ok_or_else(|| pool.unexpected("who has a slot"))).collect()
    }

    fn take_slot(&self, under: &AgentName) -> Result<()> {
        let is_taken = self.shared.lock_of(under).is_some_and(|lock| lock.take_slot());
        if is_taken { Ok(()) } else { Err(RoundTripFault::Locked.into_error(self.shared.pool.url())) }
    }

    fn tell(&self, name: &AgentName, message: &Arrival, size: u64, default: u64) -> Result<Option<String>> {
        // This shortcut checks no lease, and a producer may only call the function `deliver`.
        if self.shared.claim.borrow().is_some() || self.shared.producer.get().is_some() {
            return Ok(None);
        }
        match agent::tell(&self.shared, name, message, &statements::takes(size, default)) {
            Err(error) if error.kind() == faults::NOT_ALLOWED => {
                producer::Producer::find(&self.shared, name, error).map(|_| None)
            }
            told => told,
        }
    }

    fn create(&self, name: &AgentName, pieces: Pieces<'_>) -> Result<bool> {
        make::create(&self.shared, name, pieces)
    }

    fn had_name(&self, former: &AgentName) -> Result<Vec<(AgentName, String)>> {
        let pool = &self.shared.pool;
        let quoted = |word: &str| sql::text(&format!("\"{word}\""));
        let (has_names, has_name) = (quoted("former_names")?, quoted(former.as_str())?);
        let asked = format!(
            "SELECT name, identity FROM {}.agent WHERE strpos(identity::text, {has_names}) > 0 \
             AND strpos(identity::text, {has_name}) > 0 ORDER BY name",
            pool.schema()
        );
        let answers = pool.ask(&asked)?;
        let rows = answers.iter().flat_map(|answer| &answer.rows);
        let read = |row: &wire::Row| Some((row.get(0)?.parse().ok()?, row.get(1)?.to_owned()));
        rows.map(|row| read(row).ok_or_else(|| pool.unexpected("identities"))).collect()
    }

    fn named_rooms(&self, rooms: &[String]) -> Result<Vec<String>> {
        let pool = &self.shared.pool;
        let is_one = sql::one_of("room", rooms)?;
        let answers = pool.ask(&format!("SELECT room FROM {}.agent WHERE {is_one}", pool.schema()))?;
        let rows = answers.iter().flat_map(|answer| &answer.rows);
        rows.map(|row| row.get(0).map(str::to_owned).ok_or_else(|| pool.unexpected("rooms"))).collect()
    }

    fn faults(&self, now: Time, overdue_after: Option<Span>, is_quick: bool) -> Result<Vec<StoreFault>> {
        fitness::faults(&self.shared.pool, now, overdue_after, is_quick)
    }

    fn ear(&self) -> Box<dyn Subscription> {
        Box::new(watch::PgSubscription::new(&self.shared))
    }

    fn guest(&self) -> Option<&str> {
        self.shared.producer.get().map(String::as_str)
    }

    fn afresh(self: Rc<Self>) -> Rc<dyn Backend> {
        let shared = Shared::new(self.shared.pool.afresh());
        shared.claim.replace(self.shared.claim.borrow().clone());
        Rc::new(Postgres { shared: Rc::new(shared) })
    }

    fn claim(&self, claim: Claim) {
        self.shared.claim.replace(Some(claim));
    }
}
