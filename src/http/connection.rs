//! HTTP request on a connection that is stdin and stdout, as inetd and systemd pass it.

use std::time::Duration;

use rustix::net::{Shutdown, getpeername, shutdown};
use rustix::stdio::{stdin, stdout};

use super::wire::{IoDeadline, drain, read_body, read_some, send};
use super::{HttpAnswer, HttpRequest, MAX_HEAD, head};

/// Maximum time and number of bytes for reading after the answer.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES: usize = 1 << 20;

/// Reads one request. Later bytes on the connection are not parsed as another request.
pub fn receive(by: IoDeadline) -> Result<HttpRequest, HttpAnswer> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = head::end(&bytes)? {
            break end;
        }
        let most = MAX_HEAD - bytes.len();
        if read_some(stdin(), &mut bytes, most, by)? == 0 {
            return Err(HttpAnswer::new(super::HttpStatus::BadRequest, "the request breaks off"));
        }
    };
    let head::RequestHead { mut request, length, waits } = head::parse(&bytes[..end])?;
    bytes.drain(..end);
    bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
    if waits && (bytes.len() as u64) < length {
        send(stdout(), b"HTTP/1.1 100 Continue\r\n\r\n", by);
    }
    request.body = bytes;
    read_body(stdin(), &mut request.body, length, by)?;
    Ok(request)
}

/// Sends the answer, and closes the connection.
pub fn answer(answer: &HttpAnswer, method: &str, by: IoDeadline) {
    let first = format!("HTTP/1.1 {}\r\nConnection: close", answer.status.line());
    send(stdout(), &answer.encode(&first, method != "HEAD"), by);
    // A pipe can't be shut down, so there is no rest to read.
    if shutdown(stdout(), Shutdown::Write).is_ok() {
        drain(stdin(), LINGER_BYTES, IoDeadline::after(LINGER));
    }
}

/// Returns the address of the peer, if the connection is a socket with an address.
pub fn peer() -> Option<String> {
    let address = std::net::SocketAddr::try_from(getpeername(stdin()).ok()??).ok()?;
    Some(address.ip().to_string())
}
