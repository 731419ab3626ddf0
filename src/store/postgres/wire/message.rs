//! Parser of the messages of a server.

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{DataRowBody, ErrorResponseBody, Header, Message};

use super::fault::WireFault;
use super::socket::SocketFault;
use super::statement::Row;

/// Maximum length of a message after the login: a row can have about this many bytes.
pub(super) const LONGEST: usize = 1 << 30;

/// Maximum length of a message before the login is complete.
pub(super) const LONGEST_OF_STRANGER: usize = 1 << 16;

/// Removes and returns the next message, with its length in bytes; `None` if the message is
/// incomplete. Allocates no memory for bytes that have not arrived.
pub(super) fn next(incoming: &mut BytesMut, longest: usize) -> Result<Option<(Message, usize)>, SocketFault> {
    let senseless = |error: std::io::Error| SocketFault::Senseless(error.to_string());
    let Some(header) = Header::parse(incoming).map_err(senseless)? else { return Ok(None) };
    let length = usize::try_from(header.len()).unwrap_or(usize::MAX).saturating_add(1);
    if length > longest {
        return Err(SocketFault::Senseless(format!("a message of {length} bytes")));
    }
    if incoming.len() < length {
        return Ok(None);
    }
    Ok(Message::parse(incoming).map_err(senseless)?.map(|message| (message, length)))
}

/// Parses an error message. Returns true if the error ends the connection.
pub(super) fn refusal(body: &ErrorResponseBody) -> Result<(WireFault, bool), SocketFault> {
    let (mut code, mut message, mut detail, mut hint) = (String::new(), String::new(), None, None);
    let (mut severity, mut is_plain) = (String::new(), false);
    let mut fields = body.fields();
    while let Some(field) = fields.next().map_err(|error| SocketFault::Senseless(error.to_string()))? {
        let text = String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => code = text,
            b'M' => message = text,
            b'D' => detail = Some(text),
            b'H' => hint = Some(text),
            // The server may translate the severity in `S`, but never the severity in `V`.
            b'V' => (severity, is_plain) = (text, true),
            b'S' if !is_plain => severity = text,
            _ => {}
        }
    }
    let is_end = matches!(severity.as_str(), "FATAL" | "PANIC");
    Ok((WireFault::Server { code, message, detail, hint }, is_end))
}

/// Parses a row, which must have `columns` columns, each of them UTF-8 or NULL.
pub(super) fn row(body: &DataRowBody, columns: usize) -> Result<Row, SocketFault> {
    let senseless = |why: String| SocketFault::Senseless(why);
    let bytes = body.buffer_bytes().clone();
    let mut ranges = body.ranges();
    let mut found = Vec::with_capacity(columns);
    while let Some(range) = ranges.next().map_err(|error| senseless(error.to_string()))? {
        if let Some(range) = &range {
            let text = bytes.get(range.clone()).map(std::str::from_utf8);
            if !matches!(text, Some(Ok(_))) {
                return Err(senseless("a column is not UTF-8".to_owned()));
            }
        }
        found.push(range);
    }
    if found.len() != columns {
        return Err(senseless(format!("a row of {} columns where {columns} were announced", found.len())));
    }
    Ok(Row { bytes, columns: found })
}
