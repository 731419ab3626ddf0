//! HTTP request on a connection that is stdin and stdout, as inetd and systemd pass it.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, getpeername, shutdown};
use rustix::stdio::{stdin, stdout};

use super::{HttpAnswer, HttpRequest, HttpStatus, MAX_HEAD, head};

/// Maximum time for reading the rest of a request after the answer.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES: usize = 1 << 20;

/// Reads one request until the deadline `by`. Later bytes are not parsed as another request.
pub fn receive(by: Instant) -> Result<HttpRequest, HttpAnswer> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = head::end(&bytes)? {
            break end;
        }
        let most = MAX_HEAD - bytes.len();
        if read_some(stdin(), &mut bytes, most, by)? == 0 {
            return Err(HttpAnswer::bad_request("the request breaks off"));
        }
    };
    let (mut request, length, waits) = head::parse(&bytes[..end])?;
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
pub fn answer(answer: &HttpAnswer, method: &str, by: Instant) {
    let first = format!("HTTP/1.1 {}\r\nConnection: close", answer.status.0);
    send(stdout(), &answer.encode(&first, method != "HEAD"), by);
    // The shutdown fails for a pipe, whose reader gets the answer even if input is left unread.
    if shutdown(stdout(), Shutdown::Write).is_ok() {
        drain(stdin(), LINGER_BYTES, Instant::now() + LINGER);
    }
}

/// Returns the address of the peer, if the connection is a socket with an address.
pub fn peer() -> Option<String> {
    let address = std::net::SocketAddr::try_from(getpeername(stdin()).ok()??).ok()?;
    Some(address.ip().to_string())
}

/// Waits until a descriptor is ready. Returns false after the deadline `by`.
fn is_ready(fd: BorrowedFd<'_>, for_what: PollFlags, by: Instant) -> bool {
    loop {
        let left = by.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else { return false };
        match poll(&mut [PollFd::from_borrowed_fd(fd, for_what)], Some(&left)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Reads available bytes, at most `most`, or waits for the first byte. Returns 0 at end of input.
fn read_some(from: impl AsFd, into: &mut Vec<u8>, most: usize, by: Instant) -> Result<usize, HttpAnswer> {
    let mut buffer = [0; 16 << 10];
    let most = most.min(buffer.len());
    loop {
        if !is_ready(from.as_fd(), PollFlags::IN, by) {
            return Err(HttpAnswer::new(HttpStatus::REQUEST_TIMEOUT, "the request has not come in time"));
        }
        match rustix::io::read(from.as_fd(), &mut buffer[..most]) {
            Ok(count) => {
                into.extend_from_slice(&buffer[..count]);
                return Ok(count);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(HttpAnswer::bad_request(format!("the request breaks off: {error}"))),
        }
    }
}

/// Reads until the body has `length` bytes.
pub fn read_body(from: impl AsFd, body: &mut Vec<u8>, length: u64, by: Instant) -> Result<(), HttpAnswer> {
    while (body.len() as u64) < length {
        let left = usize::try_from(length - body.len() as u64).unwrap_or(usize::MAX);
        if read_some(from.as_fd(), body, left, by)? == 0 {
            let message = format!("the body breaks off after {} of {length} bytes", body.len());
            return Err(HttpAnswer::bad_request(message));
        }
    }
    Ok(())
}

/// Writes all bytes. Drops the rest if the deadline passes or the peer closes the connection.
pub fn send(to: impl AsFd, mut bytes: &[u8], by: Instant) {
    while !bytes.is_empty() {
        if !is_ready(to.as_fd(), PollFlags::OUT, by) {
            return;
        }
        // A pipe that is ready has room for 4096 bytes; a larger write could block.
        match rustix::io::write(to.as_fd(), &bytes[..bytes.len().min(4096)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}

/// Reads the rest of a request briefly, because the peer may lose the answer if a connection is
/// closed with unread bytes.
fn drain(from: impl AsFd, most: usize, by: Instant) {
    let mut left = most;
    while left > 0 {
        let mut nothing = Vec::new();
        match read_some(from.as_fd(), &mut nothing, left, by) {
            Ok(0) | Err(_) => return,
            Ok(count) => left -= count,
        }
    }
}
