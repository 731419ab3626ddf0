//! Connections of this process to one store, which are opened on demand, reused, and replaced after
//! a loss.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

use super::faults::{self, RoundTripFault};
use super::sql;
use super::wire::{Connection, ServerAnswer, Url, WireFault};

/// Format of the tables that this version reads and writes.
pub const FORMAT: &str = "1";

/// Oldest major version of PostgreSQL that supports the statements.
const OLDEST_SERVER: u32 = 14;

/// Ensures that each statement of a transaction sees all earlier commits, whatever default the
/// database or role has. It has to be the first statement of a transaction.
const EACH_SEES: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;";

/// Number of round trips after which a connection counts as persistent: a command that makes one
/// step needs fewer.
const OF_ONE_STEP: u32 = 10;

#[derive(Debug)]
pub struct ConnectionPool {
    url: Url,
    /// Schema as a quoted SQL identifier.
    schema: String,
    /// Timeout for a connection and for an answer.
    patience: Duration,
    /// Open connections that are in no transaction.
    idle: RefCell<Vec<Connection>>,
    /// True once the format of the tables has been checked.
    is_known: Cell<bool>,
}

impl ConnectionPool {
    pub fn new(url: Url, patience: Duration) -> ConnectionPool {
        let schema = sql::name(url.schema());
        ConnectionPool { url, schema, patience, idle: RefCell::default(), is_known: Cell::new(false) }
    }

    /// Creates a pool that does not check the format, for a store that may not exist yet.
    pub fn unread(url: Url, patience: Duration) -> ConnectionPool {
        ConnectionPool { is_known: Cell::new(true), ..ConnectionPool::new(url, patience) }
    }

    /// Moves the idle connections to a new pool, which checks the format again.
    pub fn afresh(&self) -> ConnectionPool {
        ConnectionPool {
            url: self.url.clone(),
            schema: self.schema.clone(),
            patience: self.patience,
            idle: RefCell::new(self.idle.take()),
            is_known: Cell::new(false),
        }
    }

    pub fn url(&self) -> &Url {
        &self.url
    }

    pub fn schema(&self) -> &str {
        &self.schema
    }

    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Returns a connection that is in no transaction: an idle one, or else a new one.
    pub fn take(&self) -> Result<Connection, RoundTripFault> {
        self.take_within(self.patience)
    }

    fn take_within(&self, patience: Duration) -> Result<Connection, RoundTripFault> {
        let kept = self.idle.borrow_mut().pop();
        kept.map_or_else(|| self.open(patience), Ok)
    }

    /// True if a connection is persistent, so that functions of [`super::kept`] save time on it.
    pub fn is_kept(connection: &Connection) -> bool {
        connection.flights() > OF_ONE_STEP
    }

    /// True if the next connection that [`ConnectionPool::take`] returns is persistent.
    pub fn has_kept(&self) -> bool {
        self.idle.borrow().last().is_some_and(ConnectionPool::is_kept)
    }

    /// Returns a connection to the idle ones. It must be in no transaction.
    pub fn give(&self, connection: Connection) {
        if connection.is_usable() {
            self.idle.borrow_mut().push(connection);
        }
    }

    /// Closes the idle connections, because another connection to the same server was lost.
    pub fn forget(&self) {
        self.idle.borrow_mut().clear();
    }

    /// Opens a connection that is not shared with other queries.
    pub fn open(&self, patience: Duration) -> Result<Connection, RoundTripFault> {
        let connection = Connection::open(&self.url, patience).map_err(|fault| self.trouble(fault))?;
        let version = connection.server_version();
        // 140005 is version 14.5.
        if version / 10_000 < OLDEST_SERVER {
            return Err(faults::too_old(&self.url, version / 10_000, OLDEST_SERVER).into());
        }
        Ok(connection)
    }

    /// Makes one round trip that only reads or is idempotent. If the connection breaks, it is sent
    /// again over a new one.
    pub fn ask(&self, statements: &str) -> Result<Vec<ServerAnswer>> {
        self.ask_within(statements, self.patience)
    }

    /// Like [`ConnectionPool::ask`], with a timeout.
    pub fn ask_within(&self, statements: &str, patience: Duration) -> Result<Vec<ServerAnswer>> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.ask_for(statements, left) {
                Err(RoundTripFault::Lost { .. }) if Instant::now() < until => self.forget(),
                Err(trouble) => return Err(trouble.into_error(&self.url)),
                Ok(answers) => return Ok(answers),
            }
        }
    }

    /// Makes one round trip, which is sent only once.
    pub fn ask_once(&self, statements: &str) -> Result<Vec<ServerAnswer>, RoundTripFault> {
        self.ask_for(statements, self.patience)
    }

    fn ask_for(&self, statements: &str, patience: Duration) -> Result<Vec<ServerAnswer>, RoundTripFault> {
        let mut connection = self.take_within(patience)?;
        let answers = self.fly_within(&mut connection, statements, patience);
        if answers.is_ok() {
            self.give(connection);
        }
        answers
    }

    /// Makes one round trip over this connection. `waits`: time that the server may wait for locks.
    pub fn fly(
        &self,
        connection: &mut Connection,
        statements: &str,
        waits: Duration,
    ) -> Result<Vec<ServerAnswer>, RoundTripFault> {
        self.fly_within(connection, statements, self.patience.saturating_add(waits))
    }

    /// Like [`ConnectionPool::fly`], with a timeout.
    pub fn fly_within(
        &self,
        connection: &mut Connection,
        statements: &str,
        patience: Duration,
    ) -> Result<Vec<ServerAnswer>, RoundTripFault> {
        let (begins, is_first) = (!connection.is_in_transaction(), !self.is_known.get());
        let mut flight = String::new();
        if begins {
            flight.push_str(EACH_SEES);
        }
        if is_first {
            flight.push_str(&format!("SELECT value FROM {}.meta WHERE key = 'format';", self.schema));
        }
        flight.push_str(statements);
        let mut answers = connection.flight(&flight, patience).map_err(|fault| self.trouble(fault))?;
        answers.drain(..usize::from(begins).min(answers.len()));
        if is_first {
            let format = answers.remove(0);
            let format = format.rows.first().and_then(|row| row.get(0)).unwrap_or_default();
            if format != FORMAT {
                return Err(faults::other_format(&self.url, format, FORMAT).into());
            }
            self.is_known.set(true);
        }
        Ok(answers)
    }

    /// Makes a round trip, again after each loss of the connection. After `first` may have reached
    /// the server, `again` is sent instead, because `first` may have been executed.
    pub fn insist(&self, first: &str, again: &str) -> Result<Vec<ServerAnswer>> {
        let until = Instant::now() + self.patience;
        let mut flight = first;
        loop {
            match self.ask_once(flight) {
                Err(RoundTripFault::Lost { is_sent, .. }) if Instant::now() < until => {
                    self.forget();
                    if is_sent {
                        flight = again;
                    }
                }
                Err(trouble) => return Err(trouble.into_error(&self.url)),
                Ok(answers) => return Ok(answers),
            }
        }
    }

    fn trouble(&self, fault: WireFault) -> RoundTripFault {
        RoundTripFault::of(fault, &self.url)
    }

    /// Error about an answer that no correct server gives.
    pub fn unexpected(&self, what: &str) -> Error {
        faults::unexpected(&self.url, what)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
