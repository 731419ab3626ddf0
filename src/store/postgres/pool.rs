//! Connections of this process to one store, which are opened on demand, reused, and replaced after
//! a loss.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

use super::errors::{self, RoundTripFault};
use super::wire::{Connection, ServerAnswer, Statement, Url, WireFault};

/// Format of the tables that this version reads and writes.
pub const FORMAT: &str = "1";

/// Begins a transaction in which each statement sees all earlier commits, whatever default the
/// database or role has.
pub const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// State in which a round trip leaves its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Commit,
    /// The transaction stays open for the next round trip over the connection.
    Stay,
}

#[derive(Debug)]
pub struct ConnectionPool {
    url: Url,
    /// Timeout for a connection and for an answer.
    patience: Duration,
    /// Open connections that are in no transaction.
    idle: RefCell<Vec<Connection>>,
    /// True once the format of the tables has been checked.
    is_known: Cell<bool>,
}

impl ConnectionPool {
    pub fn new(url: Url, patience: Duration) -> ConnectionPool {
        ConnectionPool { url, patience, idle: RefCell::default(), is_known: Cell::new(false) }
    }

    /// Creates a pool that does not check the format, for a store that may not exist yet.
    pub fn unread(url: Url, patience: Duration) -> ConnectionPool {
        ConnectionPool { is_known: Cell::new(true), ..ConnectionPool::new(url, patience) }
    }

    /// Moves the idle connections to a new pool, which checks the format again.
    pub fn afresh(&self) -> ConnectionPool {
        ConnectionPool {
            url: self.url.clone(),
            patience: self.patience,
            idle: RefCell::new(self.idle.take()),
            is_known: Cell::new(false),
        }
    }

    pub fn url(&self) -> &Url {
        &self.url
    }

    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Returns a connection that is in no transaction: an idle one, or else a new one.
    pub fn take(&self) -> Result<Connection, RoundTripFault> {
        self.take_within(self.patience)
    }

    fn take_within(&self, patience: Duration) -> Result<Connection, RoundTripFault> {
        let idle = self.idle.borrow_mut().pop();
        idle.map_or_else(|| self.open(patience), Ok)
    }

    /// Returns a connection to the idle ones. It must be in no transaction.
    pub fn give(&self, connection: Connection) {
        if connection.is_usable() {
            self.idle.borrow_mut().push(connection);
        }
    }

    /// Rolls the transaction of a connection back, and returns the connection to the idle ones.
    pub fn roll_back(&self, mut connection: Connection) {
        if self.send(&mut connection, &[Statement::new("ROLLBACK")], Then::Stay, Duration::ZERO).is_ok() {
            self.give(connection);
        }
    }

    /// Closes the idle connections, because another connection to the same server was lost.
    pub fn forget(&self) {
        self.idle.borrow_mut().clear();
    }

    /// Opens a connection that is not shared with other queries.
    pub fn open(&self, patience: Duration) -> Result<Connection, RoundTripFault> {
        Connection::open(&self.url, patience).map_err(|fault| self.trouble(fault))
    }

    /// Makes one round trip that only reads or is idempotent, as one transaction. If the connection
    /// breaks, it is sent again over a new one.
    pub fn ask(&self, statements: &[Statement]) -> Result<Vec<ServerAnswer>> {
        self.ask_within(statements, self.patience)
    }

    /// Makes a round trip of one statement, like [`ConnectionPool::ask`].
    pub fn ask_one(&self, statement: Statement) -> Result<ServerAnswer> {
        Ok(self.ask(&[statement])?.pop().unwrap_or_default())
    }

    /// Like [`ConnectionPool::ask`], with a timeout.
    pub fn ask_within(&self, statements: &[Statement], patience: Duration) -> Result<Vec<ServerAnswer>> {
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
    pub fn ask_once(&self, statements: &[Statement]) -> Result<Vec<ServerAnswer>, RoundTripFault> {
        self.ask_for(statements, self.patience)
    }

    fn ask_for(
        &self,
        statements: &[Statement],
        patience: Duration,
    ) -> Result<Vec<ServerAnswer>, RoundTripFault> {
        let mut connection = self.take_within(patience)?;
        let answers = self.send_within(&mut connection, statements, Then::Commit, patience);
        if answers.is_ok() {
            self.give(connection);
        }
        answers
    }

    /// Makes one round trip over this connection. `waits`: time that the server may wait for locks.
    pub fn send(
        &self,
        connection: &mut Connection,
        statements: &[Statement],
        then: Then,
        waits: Duration,
    ) -> Result<Vec<ServerAnswer>, RoundTripFault> {
        self.send_within(connection, statements, then, self.patience.saturating_add(waits))
    }

    /// Like [`ConnectionPool::send`], with a timeout. Begins a transaction unless one is open.
    pub fn send_within(
        &self,
        connection: &mut Connection,
        statements: &[Statement],
        then: Then,
        patience: Duration,
    ) -> Result<Vec<ServerAnswer>, RoundTripFault> {
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
        let mut answers: Vec<ServerAnswer> =
            answers.into_iter().skip(before - usize::from(is_first)).collect();
        answers.truncate(statements.len() + usize::from(is_first));
        if is_first {
            let format = answers.remove(0);
            let format = format.row().and_then(|row| row.get(0)).unwrap_or_default();
            if format != FORMAT {
                return Err(errors::other_format(&self.url, format, FORMAT).into());
            }
            self.is_known.set(true);
        }
        Ok(answers)
    }

    /// Makes a round trip of statements without parameters, which is sent only once.
    pub fn script(&self, sql: &str) -> Result<Vec<ServerAnswer>, RoundTripFault> {
        let mut connection = self.take()?;
        let answers = connection.script(sql, self.patience);
        let answers = answers.map_err(|fault| self.trouble(fault))?;
        self.give(connection);
        Ok(answers)
    }

    /// Makes a round trip, again after each loss of the connection. After `first` may have reached
    /// the server, `again` is sent instead, because `first` may have been executed.
    pub fn ask_until_answered(&self, first: &[Statement], again: &[Statement]) -> Result<Vec<ServerAnswer>> {
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
        errors::unexpected(&self.url, what)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
