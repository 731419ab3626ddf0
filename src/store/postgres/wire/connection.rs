//! Connection to a server: round trips of statements, and notifications.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::escape::escape_identifier;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use super::super::url::Url;
use super::fault::WireFault;
use super::login::log_in;
use super::message;
use super::password::Sources;
use super::socket::{DialDeadline, Socket, SocketFault};
use super::statement::{Row, SYNC, Statement, complete};

/// Maximum size of the statements of a round trip, below the server's limit of 1 GiB.
const LONGEST_TRIP: usize = (1 << 30) - 64;

/// Maximum size of the answers of one round trip, in bytes.
const MOST_ANSWERED: usize = 2 << 30;

/// Maximum number of notified channels that are kept for `notified`.
const MOST_CHANNELS: usize = 1024;

/// Connection to a server for one caller at a time. A drop sends the protocol's end message.
pub struct Connection {
    line: Socket,
    /// Schema in the URL as a quoted identifier.
    schema: String,
    backend: Option<i32>,
    is_usable: bool,
    is_in_transaction: bool,
    told: Vec<String>,
}

impl Connection {
    /// Connects and logs in, within `patience` and the `connect_timeout` of the URL. A requested
    /// password comes from `PGPASSWORD` or the password file.
    pub fn open(url: &Url, patience: Duration) -> Result<Connection, WireFault> {
        Connection::open_with(url, &Sources::of_environment(), patience)
    }

    pub(super) fn open_with(
        url: &Url,
        sources: &Sources,
        patience: Duration,
    ) -> Result<Connection, WireFault> {
        let deadline = DialDeadline::after(patience.min(url.connect_timeout));
        let (line, backend) = log_in(url, sources, deadline)?;
        Ok(Connection {
            line,
            schema: escape_identifier(url.schema()),
            backend,
            is_usable: true,
            is_in_transaction: false,
            told: Vec::new(),
        })
    }

    /// Sends statements in one round trip, and waits for one answer per statement. If the server
    /// refuses a statement, it skips the others, and the refusal is returned when the server is
    /// ready again. After `patience` the connection is unusable, but the server may still execute:
    /// only SQL limits the time of the server.
    ///
    /// Only the last statement may commit: [`WireFault::Lost`] has `sent` false if the server can't
    /// have received all statements.
    pub fn round_trip(
        &mut self,
        statements: &[&Statement],
        patience: Duration,
    ) -> Result<Vec<Vec<Row>>, WireFault> {
        let answers = self.send(patience, |schema, buffer| {
            statements.iter().try_for_each(|statement| statement.write(schema, buffer))?;
            frontend::sync(buffer);
            Ok(())
        })?;
        if answers.len() == statements.len() {
            return Ok(answers);
        }
        Err(self.lose(true, SocketFault::senseless("an end of answers before its time")))
    }

    /// Sends a text of several statements without parameters, and waits for one answer per
    /// statement. Without `BEGIN`, the text is one transaction.
    pub fn script(&mut self, sql: &str, patience: Duration) -> Result<Vec<Vec<Row>>, WireFault> {
        self.send(patience, |schema, buffer| {
            frontend::query(&complete(sql, schema), buffer).map_err(|error| error.to_string())
        })
    }

    /// Sends the messages that `write` appends to the send buffer, and waits for answers.
    fn send(
        &mut self,
        patience: Duration,
        write: impl FnOnce(&str, &mut BytesMut) -> Result<(), String>,
    ) -> Result<Vec<Vec<Row>>, WireFault> {
        self.refuse_lost()?;
        let deadline = DialDeadline::after(patience);
        // If the server has closed the connection, nothing is sent, and the caller may try again.
        self.catch_up(DialDeadline::after(Duration::ZERO)).map_err(|trouble| self.lose(false, trouble))?;
        let buffer = &mut self.line.outgoing;
        let mut written = write(&self.schema, buffer);
        if buffer.len() > LONGEST_TRIP {
            written = Err(format!("statements of {} bytes are too long for a server", buffer.len()));
        }
        if let Err(why) = written {
            buffer.clear();
            return Err(WireFault::Invalid(why));
        }
        self.answers(deadline).unwrap_or_else(|trouble| {
            // If at most the last message is unsent, the server may have executed all statements.
            let sent = self.line.outgoing.len() <= SYNC;
            Err(self.lose(sent, trouble))
        })
    }

    /// Process id of the server, as reported at login. If `pg_backend_pid()` returns another id, a
    /// pooler is between this process and the server.
    pub fn backend(&self) -> Option<i32> {
        self.backend
    }

    /// True if another round trip is possible. False after a [`WireFault::Lost`].
    pub fn is_usable(&self) -> bool {
        self.is_usable
    }

    /// True if the last round trip left a transaction open, including a failed transaction.
    pub fn is_in_transaction(&self) -> bool {
        self.is_in_transaction
    }

    /// Waits for notifications. Returns the notified channels without repetition as soon as there
    /// is one; no channel after `patience`. Zero `patience` does not wait. PgBouncer forwards no
    /// notifications in transaction mode.
    pub fn notified(&mut self, patience: Duration) -> Result<Vec<String>, WireFault> {
        self.refuse_lost()?;
        let deadline = DialDeadline::after(patience);
        let mut heard = self.catch_up(DialDeadline::after(Duration::ZERO));
        while heard.is_ok() && self.told.is_empty() && !deadline.is_over() {
            heard = self.catch_up(deadline);
        }
        heard.map_err(|trouble| self.lose(false, trouble))?;
        Ok(std::mem::take(&mut self.told))
    }

    fn refuse_lost(&self) -> Result<(), WireFault> {
        if self.is_usable {
            return Ok(());
        }
        Err(WireFault::Lost { sent: false, why: "the connection was lost before".to_owned() })
    }

    fn lose(&mut self, sent: bool, trouble: SocketFault) -> WireFault {
        self.is_usable = false;
        let (SocketFault::Ended(why) | SocketFault::Unfit(why)) = trouble;
        WireFault::Lost { sent, why }
    }

    /// Waits until bytes arrive or the deadline passes, and processes the messages, which are not
    /// answers.
    fn catch_up(&mut self, deadline: DialDeadline) -> Result<(), SocketFault> {
        let is_here = self.line.step(deadline);
        while let Some((message, _)) = message::next(&mut self.line.incoming, message::LONGEST)? {
            if let Some(message) = self.aside(message)? {
                let Message::ErrorResponse(body) = message else {
                    return Err(SocketFault::senseless("an answer to nothing"));
                };
                return Err(SocketFault::Ended(message::refusal(&body)?.0.to_string()));
            }
        }
        is_here.map(drop)
    }

    /// Processes a message that may arrive at any time. Returns any other message.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others are the caller's, and more may be added")]
    fn aside(&mut self, message: Message) -> Result<Option<Message>, SocketFault> {
        match message {
            Message::NoticeResponse(_) => Ok(None),
            Message::ParameterStatus(body) => {
                let (name, value) = (body.name()?, body.value()?);
                if name == "standard_conforming_strings" && value != "on" {
                    return Err(SocketFault::Ended("standard_conforming_strings was turned off".to_owned()));
                }
                Ok(None)
            }
            Message::NotificationResponse(body) => {
                let channel = body.channel()?;
                if self.told.len() < MOST_CHANNELS && !self.told.iter().any(|told| told == channel) {
                    self.told.push(channel.to_owned());
                }
                Ok(None)
            }
            message => Ok(Some(message)),
        }
    }

    /// Waits for the answers to the statements in the send buffer, until the server is ready again.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other has a place here, and more may be added")]
    fn answers(&mut self, deadline: DialDeadline) -> Result<Result<Vec<Vec<Row>>, WireFault>, SocketFault> {
        let (mut answers, mut answer, mut columns, mut refused) = (Vec::new(), Vec::new(), None, None);
        let mut taken = 0usize;
        loop {
            let (message, length) = message::wait(&mut self.line, message::LONGEST, deadline)?;
            taken = taken.saturating_add(length);
            if taken > MOST_ANSWERED {
                return Err(SocketFault::senseless("answers of more than 2 GiB"));
            }
            let Some(message) = self.aside(message)? else { continue };
            match message {
                Message::RowDescription(body) if columns.is_none() => {
                    columns = Some(body.fields().count()?);
                }
                Message::DataRow(body) => {
                    let Some(columns) = columns else {
                        return Err(SocketFault::senseless("a row that was not announced"));
                    };
                    let row = message::row(&body, columns)?;
                    if refused.is_none() {
                        answer.push(row);
                    }
                }
                Message::CommandComplete(body) => {
                    body.tag()?;
                    columns = None;
                    answers.push(std::mem::take(&mut answer));
                }
                Message::EmptyQueryResponse
                | Message::ParseComplete
                | Message::BindComplete
                | Message::NoData => {}
                Message::ErrorResponse(body) => {
                    let (fault, is_end) = message::refusal(&body)?;
                    if is_end {
                        return Err(SocketFault::Ended(fault.to_string()));
                    }
                    refused.get_or_insert(fault);
                    columns = None;
                }
                Message::ReadyForQuery(body) => {
                    if !self.line.outgoing.is_empty() || !matches!(body.status(), b'I' | b'T' | b'E') {
                        return Err(SocketFault::senseless("an end of answers before its time"));
                    }
                    self.is_in_transaction = body.status() != b'I';
                    return Ok(refused.map_or(Ok(answers), Err));
                }
                _ => return Err(SocketFault::senseless("a message that answers no statement")),
            }
        }
    }
}

/// Readable when notifications arrive or the server closes the connection. Notifications that
/// arrived with answers were read already, and only [`Connection::notified`] returns them.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.socket()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.is_usable {
            frontend::terminate(&mut self.line.outgoing);
            self.line.part();
        }
    }
}
