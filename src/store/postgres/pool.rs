//! Connections of this process to one store, which are opened when needed, reused, and replaced
//! after a loss.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

use super::errors::{self, RoundTripFault};
use super::url::Url;
use super::wire::{Connection, Row, Statement, WireFault};

/// Format of the tables that this version of the program reads and writes.
pub const FORMAT: &str = "1";

/// SQL that begins a transaction in which each statement sees all earlier commits, whatever
/// isolation is the default of the database or role.
pub const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// State of the transaction after a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Commit,
    /// The transaction stays open for the next round trip.
    Stay,
}

#[derive(Debug)]
pub struct ConnectionPool {
    url: Url,
    /// Timeout for a connection and for an answer.
    patience: Duration,
    /// Open connections without a transaction.
    idle: RefCell<Vec<Connection>>,
    /// True after the store's format was compared with [`FORMAT`].
    is_known: Cell<bool>,
}

impl ConnectionPool {
    pub fn new(url: Url, patience: Duration) -> ConnectionPool {
        ConnectionPool { url, patience, idle: RefCell::default(), is_known: Cell::new(false) }
    }

    /// Creates a pool that never checks the format, for a store that may not exist.
    pub fn unread(url: Url, patience: Duration) -> ConnectionPool {
        ConnectionPool { is_known: Cell::new(true), ..ConnectionPool::new(url, patience) }
    }

    /// Creates a pool with this pool's idle connections that checks the store's format again.
    pub fn with_new_caches(&self) -> ConnectionPool {
        let idle = RefCell::new(self.idle.take());
        ConnectionPool { idle, ..ConnectionPool::new(self.url.clone(), self.patience) }
    }

    pub fn url(&self) -> &Url {
        &self.url
    }

    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Returns a connection without a transaction: an idle connection, or else a new one.
    pub fn take(&self) -> Result<Connection, RoundTripFault> {
        self.take_within(self.patience)
    }

    fn take_within(&self, patience: Duration) -> Result<Connection, RoundTripFault> {
        let idle = self.idle.borrow_mut().pop();
        idle.map_or_else(|| self.open(patience), Ok)
    }

    /// Adds a connection to the idle connections. The connection must have no open transaction.
    pub fn give(&self, connection: Connection) {
        if connection.is_usable() {
            self.idle.borrow_mut().push(connection);
        }
    }

    /// Rolls back the transaction of a connection, and adds it to the idle connections.
    pub fn roll_back(&self, mut connection: Connection) {
        if self.send(&mut connection, &[Statement::new("ROLLBACK")], Then::Stay, Duration::ZERO).is_ok() {
            self.give(connection);
        }
    }

    /// Closes the idle connections, because another connection to the same server was lost.
    pub fn forget(&self) {
        self.idle.borrow_mut().clear();
    }

    /// Opens a connection for one caller, who does not share it with other queries.
    pub fn open(&self, patience: Duration) -> Result<Connection, RoundTripFault> {
        Connection::open(&self.url, patience).map_err(|fault| self.trouble(fault))
    }

    /// Makes one round trip, as one transaction. The statements must only read or be idempotent,
    /// because they are sent again after a loss of the connection.
    pub fn ask(&self, statements: &[Statement]) -> Result<Vec<Vec<Row>>> {
        self.ask_within(statements, self.patience)
    }

    /// Makes one round trip of one statement, which must only read or be safe to run twice.
    pub fn ask_one(&self, statement: Statement) -> Result<Vec<Row>> {
        Ok(self.ask(&[statement])?.pop().unwrap_or_default())
    }

    /// Makes a round trip like [`ConnectionPool::ask`], with another timeout.
    pub fn ask_within(&self, statements: &[Statement], patience: Duration) -> Result<Vec<Vec<Row>>> {
        self.ask_until_answered(statements, statements, patience)
    }

    /// Repeats a round trip after each loss of the connection. Once the server may have executed
    /// `first`, later attempts send `again`.
    pub fn ask_until_answered(
        &self,
        first: &[Statement],
        again: &[Statement],
        patience: Duration,
    ) -> Result<Vec<Vec<Row>>> {
        self.repeat(patience, |left, is_sent| self.ask_once(if is_sent { again } else { first }, left))
    }

    /// Repeats an attempt after each loss of the connection, until `patience` has passed. The
    /// attempt gets the remaining time, and true if the server may have executed an earlier one.
    pub fn repeat<T>(
        &self,
        patience: Duration,
        attempt: impl Fn(Duration, bool) -> Result<T, RoundTripFault>,
    ) -> Result<T> {
        let until = Instant::now() + patience;
        let mut may_be_done = false;
        loop {
            match attempt(until.saturating_duration_since(Instant::now()), may_be_done) {
                Err(RoundTripFault::Lost { is_sent, .. }) if Instant::now() < until => {
                    self.forget();
                    may_be_done |= is_sent;
                }
                done => return Ok(done?),
            }
        }
    }

    /// Makes one round trip, without repetition after a loss of the connection.
    pub fn ask_once(
        &self,
        statements: &[Statement],
        patience: Duration,
    ) -> Result<Vec<Vec<Row>>, RoundTripFault> {
        let mut connection = self.take_within(patience)?;
        let answers = self.send_within(&mut connection, statements, Then::Commit, patience);
        if answers.is_ok() {
            self.give(connection);
        }
        answers
    }

    /// Makes one round trip on a connection. `waits`: time for which the server may wait for locks.
    pub fn send(
        &self,
        connection: &mut Connection,
        statements: &[Statement],
        then: Then,
        waits: Duration,
    ) -> Result<Vec<Vec<Row>>, RoundTripFault> {
        self.send_within(connection, statements, then, self.patience.saturating_add(waits))
    }

    /// Makes a round trip with this timeout. Begins a transaction unless one is open.
    pub fn send_within(
        &self,
        connection: &mut Connection,
        statements: &[Statement],
        then: Then,
        patience: Duration,
    ) -> Result<Vec<Vec<Row>>, RoundTripFault> {
        let [begin, format, commit] =
            [BEGIN, "SELECT value FROM @.meta WHERE key = 'format'", "COMMIT"].map(Statement::new);
        let mut all = Vec::with_capacity(statements.len() + 3);
        if !connection.is_in_transaction() {
            all.push(&begin);
        }
        let is_first = !self.is_known.get();
        if is_first {
            all.push(&format);
        }
        let before = all.len();
        all.extend(statements);
        if then == Then::Commit {
            all.push(&commit);
        }
        let answers = connection.round_trip(&all, patience).map_err(|fault| self.trouble(fault))?;
        let mut answers: Vec<Vec<Row>> = answers.into_iter().skip(before - usize::from(is_first)).collect();
        answers.truncate(statements.len() + usize::from(is_first));
        if is_first {
            let format = answers.remove(0);
            let format = format.first().and_then(|row| row.get(0)).unwrap_or_default();
            if format != FORMAT {
                return Err(errors::other_format(&self.url, format, FORMAT).into());
            }
            self.is_known.set(true);
        }
        Ok(answers)
    }

    /// Sends SQL text without parameters once, without repetition after a loss of the connection.
    pub fn script(&self, sql: &str) -> Result<Vec<Vec<Row>>, RoundTripFault> {
        let mut connection = self.take_within(self.patience)?;
        let answers = connection.script(sql, self.patience);
        let answers = answers.map_err(|fault| self.trouble(fault))?;
        self.give(connection);
        Ok(answers)
    }

    fn trouble(&self, fault: WireFault) -> RoundTripFault {
        RoundTripFault::of(fault, &self.url)
    }

    /// Parses all rows of an answer. `what`: name of the answer, for the error about a row that
    /// `read` can't parse.
    pub fn parse<T>(&self, rows: &[Row], what: &str, read: impl Fn(&Row) -> Option<T>) -> Result<Vec<T>> {
        rows.iter().map(|row| read(row).ok_or_else(|| self.unexpected(what))).collect()
    }

    /// Returns the error for an answer that a correct server never gives.
    pub fn unexpected(&self, what: &str) -> Error {
        errors::unexpected(&self.url, what)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
