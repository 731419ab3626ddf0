//! The connections of this process to one store: opened when they are first needed, kept, and
//! opened anew after a loss.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

use super::faults::{self, Trouble};
use super::sql;
use super::wire::{Answer, Connection, Fault, Url};

/// The format of the tables that this dormouse reads and writes.
pub const FORMAT: &str = "1";

/// The oldest server that is known to have what the statements need.
const OLDEST_SERVER: u32 = 14;

/// Lets each statement of a transaction see what was committed before it, whatever the default of
/// the database or the role is. It has to come before any question.
const EACH_SEES: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;";

/// After so many flights a connection is one that is kept: a command that makes one step sends
/// fewer.
const OF_ONE_STEP: u32 = 10;

#[derive(Debug)]
pub struct Pool {
    url: Url,
    /// The name of the schema as statements have it, in quotes.
    schema: String,
    /// How long to wait for a connection and for an answer.
    patience: Duration,
    /// Connections that nobody is in a transaction on.
    idle: RefCell<Vec<Connection>>,
    /// Whether the format of the tables has been read.
    is_known: Cell<bool>,
}

impl Pool {
    pub fn new(url: Url, patience: Duration) -> Pool {
        let schema = sql::name(url.schema());
        Pool { url, schema, patience, idle: RefCell::default(), is_known: Cell::new(false) }
    }

    /// The same for a store that may not be made yet: its format is not looked at.
    pub fn unread(url: Url, patience: Duration) -> Pool {
        Pool { is_known: Cell::new(true), ..Pool::new(url, patience) }
    }

    /// The same, of which nothing is known yet, with the connections that this one has kept.
    pub fn afresh(&self) -> Pool {
        Pool {
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

    /// A connection that is in no transaction: a kept one, else a new one.
    pub fn take(&self) -> Result<Connection, Trouble> {
        self.take_within(self.patience)
    }

    fn take_within(&self, patience: Duration) -> Result<Connection, Trouble> {
        let kept = self.idle.borrow_mut().pop();
        kept.map_or_else(|| self.open(patience), Ok)
    }

    /// Whether a connection is kept from step to step: then [`super::kept`] asks for less.
    pub fn is_kept(connection: &Connection) -> bool {
        connection.flights() > OF_ONE_STEP
    }

    /// The same of the connection that the next flight takes.
    pub fn has_kept(&self) -> bool {
        self.idle.borrow().last().is_some_and(Pool::is_kept)
    }

    /// Keeps a connection for whoever needs one next. It has to be in no transaction.
    pub fn give(&self, connection: Connection) {
        if connection.is_usable() {
            self.idle.borrow_mut().push(connection);
        }
    }

    /// Closes the kept connections: one of the same server was lost.
    pub fn forget(&self) {
        self.idle.borrow_mut().clear();
    }

    /// A connection beside the kept ones, for a use of its own.
    pub fn open(&self, patience: Duration) -> Result<Connection, Trouble> {
        let connection = Connection::open(&self.url, patience).map_err(|fault| self.trouble(fault))?;
        let version = connection.server_version();
        // 140005 is 14.5.
        if version / 10_000 < OLDEST_SERVER {
            return Err(faults::too_old(&self.url, version / 10_000, OLDEST_SERVER).into());
        }
        Ok(connection)
    }

    /// One flight that only reads, or whose repetition changes nothing more: where the connection
    /// breaks it is sent again, over a new one.
    pub fn ask(&self, statements: &str) -> Result<Vec<Answer>> {
        self.ask_within(statements, self.patience)
    }

    /// The same, and waits no longer than this for the server.
    pub fn ask_within(&self, statements: &str, patience: Duration) -> Result<Vec<Answer>> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.ask_for(statements, left) {
                Err(Trouble::Lost { .. }) if Instant::now() < until => self.forget(),
                Err(trouble) => return Err(trouble.into_error(&self.url)),
                Ok(answers) => return Ok(answers),
            }
        }
    }

    /// One flight, sent once.
    pub fn ask_once(&self, statements: &str) -> Result<Vec<Answer>, Trouble> {
        self.ask_for(statements, self.patience)
    }

    fn ask_for(&self, statements: &str, patience: Duration) -> Result<Vec<Answer>, Trouble> {
        let mut connection = self.take_within(patience)?;
        let answers = self.fly_within(&mut connection, statements, patience);
        if answers.is_ok() {
            self.give(connection);
        }
        answers
    }

    /// One flight over a connection that the caller has. `waits`: how long the server may wait for
    /// locks in it.
    pub fn fly(
        &self,
        connection: &mut Connection,
        statements: &str,
        waits: Duration,
    ) -> Result<Vec<Answer>, Trouble> {
        self.fly_within(connection, statements, self.patience.saturating_add(waits))
    }

    /// The same, and waits no longer than this for the server.
    pub fn fly_within(
        &self,
        connection: &mut Connection,
        statements: &str,
        patience: Duration,
    ) -> Result<Vec<Answer>, Trouble> {
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

    /// Sends a flight until an answer comes. Once it may have arrived, `again` is sent instead:
    /// what was asked may have been done already.
    pub fn insist(&self, first: &str, again: &str) -> Result<Vec<Answer>> {
        let until = Instant::now() + self.patience;
        let mut flight = first;
        loop {
            match self.ask_once(flight) {
                Err(Trouble::Lost { is_sent, .. }) if Instant::now() < until => {
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

    fn trouble(&self, fault: Fault) -> Trouble {
        Trouble::of(fault, &self.url)
    }

    /// An error about what a server should not answer.
    pub fn unexpected(&self, what: &str) -> Error {
        faults::unexpected(&self.url, what)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
