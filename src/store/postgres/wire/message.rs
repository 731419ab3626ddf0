//! Parser of the messages that a PostgreSQL server sends.

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{DataRowBody, ErrorResponseBody, Header, Message};

use super::fault::WireFault;
use super::socket::{DialDeadline, Socket, SocketFault};
use super::statement::Row;

/// Maximum bytes of a message after the login: a row can have about this many bytes.
pub(super) const LONGEST: usize = 1 << 30;

/// Maximum bytes of a message from a server before the login is complete.
pub(super) const LONGEST_OF_STRANGER: usize = 1 << 16;

/// Waits for the next message. Returns the message with its length in bytes.
pub(super) fn wait(
    line: &mut Socket,
    longest: usize,
    deadline: DialDeadline,
) -> Result<(Message, usize), SocketFault> {
    loop {
        if let Some(found) = next(&mut line.incoming, longest)? {
            return Ok(found);
        }
        line.advance(deadline)?;
    }
}

/// Removes and returns the next message, with its length in bytes; `None` if the message is
/// incomplete. Allocates no memory for bytes that have not arrived.
pub(super) fn next(incoming: &mut BytesMut, longest: usize) -> Result<Option<(Message, usize)>, SocketFault> {
    let Some(header) = Header::parse(incoming)? else { return Ok(None) };
    let length = usize::try_from(header.len()).unwrap_or(usize::MAX).saturating_add(1);
    if length > longest {
        return Err(SocketFault::senseless(format_args!("a message of {length} bytes")));
    }
    if incoming.len() < length {
        return Ok(None);
    }
    Ok(Message::parse(incoming)?.map(|message| (message, length)))
}

/// Parses an error message. Returns true if the error ends the connection.
pub(super) fn refusal(body: &ErrorResponseBody) -> Result<(WireFault, bool), SocketFault> {
    let [mut code, mut message, mut detail, mut hint] = [const { String::new() }; 4];
    let (mut severity, mut is_plain) = (String::new(), false);
    let mut fields = body.fields();
    while let Some(field) = fields.next()? {
        let text = String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => code = text,
            b'M' => message = text,
            b'D' => detail = format!("; {text}"),
            b'H' => hint = format!("; {text}"),
            // The field `V` takes precedence, because the server may translate the severity in `S`.
            b'V' => (severity, is_plain) = (text, true),
            b'S' if !is_plain => severity = text,
            _ => {}
        }
    }
    let is_end = matches!(severity.as_str(), "FATAL" | "PANIC");
    Ok((WireFault::Server { code, message, more: detail + &hint }, is_end))
}

/// Parses a row, which must have `columns` columns, each of them UTF-8 or NULL.
pub(super) fn row(body: &DataRowBody, columns: usize) -> Result<Row, SocketFault> {
    let bytes = body.buffer_bytes().clone();
    let found: Vec<_> = body.ranges().collect()?;
    let is_text = |range| bytes.get(range).is_some_and(|text| std::str::from_utf8(text).is_ok());
    if !found.iter().flatten().cloned().all(is_text) {
        return Err(SocketFault::senseless("a column is not UTF-8"));
    }
    if found.len() != columns {
        let count = found.len();
        return Err(SocketFault::senseless(format_args!(
            "a row of {count} columns where {columns} were announced"
        )));
    }
    Ok(Row { bytes, columns: found })
}
