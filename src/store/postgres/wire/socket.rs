//! Byte stream of a connection in both directions, with or without TLS.

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustls::ClientConnection;

use crate::error::describe;

/// Maximum duration of a wait: the sum of the current time and a longer one may overflow.
const AGES: Duration = Duration::from_secs(1 << 30);

/// Deadline of a wait, by the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct DialDeadline(Instant);

impl DialDeadline {
    pub(super) fn after(patience: Duration) -> DialDeadline {
        DialDeadline(Instant::now() + patience.min(AGES))
    }

    /// Returns the remaining time.
    pub(super) fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    pub(super) fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

/// Reason for which a socket returns no more bytes.
#[derive(Debug)]
pub(super) enum SocketFault {
    /// No bytes came in time, or the server, or a device between this machine and the server, has
    /// closed the connection.
    Ended(String),
    /// The TLS handshake failed, a TLS record was invalid, or the bytes are no message that is
    /// allowed at this point.
    Unfit(String),
}

impl SocketFault {
    pub(super) fn senseless(why: impl Display) -> SocketFault {
        SocketFault::Unfit(format!("the answer is not PostgreSQL's protocol: {why}"))
    }

    fn tls(why: impl Display) -> SocketFault {
        SocketFault::Unfit(format!("TLS: {why}"))
    }
}

/// Converts an error of the message parser: the received bytes are no valid message.
impl From<io::Error> for SocketFault {
    fn from(error: io::Error) -> SocketFault {
        SocketFault::senseless(error)
    }
}

/// A socket with its receive and send buffers.
pub(super) struct Socket {
    socket: OwnedFd,
    tls: Option<Box<ClientConnection>>,
    /// Send buffer, to which callers append messages.
    pub(super) outgoing: BytesMut,
    /// Receive buffer, from which callers remove complete messages.
    pub(super) incoming: BytesMut,
    /// Reason why the connection has ended; `None` while it is open.
    ended: Option<String>,
}

impl Socket {
    pub(super) fn over(socket: OwnedFd) -> Socket {
        Socket { socket, tls: None, outgoing: BytesMut::new(), incoming: BytesMut::new(), ended: None }
    }

    /// Returns the socket, which is readable when unread bytes have arrived.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn has_to_send(&self) -> bool {
        !self.outgoing.is_empty() || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Waits until the socket is ready for one of `flags`; `None` if the deadline passes first.
    fn wait(&self, flags: PollFlags, deadline: DialDeadline) -> Result<Option<PollFlags>, SocketFault> {
        loop {
            let mut fds = [PollFd::new(&self.socket, flags)];
            match rustix::event::poll(&mut fds, Timespec::try_from(deadline.left()).ok().as_ref()) {
                Ok(0) if deadline.is_over() => return Ok(None),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(Some(fds[0].revents())),
                Err(errno) => return Err(SocketFault::Ended(describe(&errno.into()))),
            }
        }
    }

    /// Waits until the socket is readable or writable, then receives and sends without blocking.
    /// Neither direction waits for the other, so peers that both send megabytes do not block each
    /// other. Returns `false` if the deadline passes first.
    pub(super) fn step(&mut self, deadline: DialDeadline) -> Result<bool, SocketFault> {
        if let Some(why) = &self.ended {
            return Err(SocketFault::Ended(why.clone()));
        }
        let flags = if self.has_to_send() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let Some(ready) = self.wait(flags, deadline)? else { return Ok(false) };
        if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            self.receive()?;
        }
        if ready.contains(PollFlags::OUT) && self.ended.is_none() {
            self.send();
            if let Some(why) = self.ended.take() {
                // The server may have sent its reason before closing the connection.
                self.receive()?;
                self.ended = Some(why);
            }
        }
        Ok(true)
    }

    /// Waits until the socket is ready, then receives and sends. Error if the deadline passes.
    pub(super) fn advance(&mut self, deadline: DialDeadline) -> Result<(), SocketFault> {
        if deadline.is_over() || !self.step(deadline)? {
            return Err(SocketFault::Ended("no answer came in time".to_owned()));
        }
        Ok(())
    }

    /// Sends the buffer until the system has accepted all bytes.
    pub(super) fn hand_over(&mut self, deadline: DialDeadline) -> Result<(), SocketFault> {
        while self.has_to_send() {
            self.advance(deadline)?;
        }
        Ok(())
    }

    /// Waits for one byte and reads no other byte from the socket, because TLS must read the
    /// following bytes.
    pub(super) fn one_byte(&mut self, deadline: DialDeadline) -> Result<u8, SocketFault> {
        let mut byte = [0];
        while self.wait(PollFlags::IN, deadline)?.is_some() {
            if came(Raw(&self.socket).read(&mut byte)).map_err(SocketFault::Ended)? > 0 {
                return Ok(byte[0]);
            }
        }
        Err(SocketFault::Ended("no answer came in time".to_owned()))
    }

    /// Performs the TLS handshake. Returns the server's certificate.
    pub(super) fn encrypt(
        &mut self,
        tls: ClientConnection,
        deadline: DialDeadline,
    ) -> Result<Vec<u8>, SocketFault> {
        self.tls = Some(Box::new(tls));
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking() || tls.wants_write()) {
            self.advance(deadline)?;
        }
        let certificates = self.tls.as_ref().and_then(|tls| tls.peer_certificates());
        let own = certificates.and_then(|all| all.first());
        own.map(|own| own.to_vec())
            .ok_or_else(|| SocketFault::Unfit("the server has no certificate".to_owned()))
    }

    /// Sends the remaining bytes and the end of TLS, as far as possible without blocking.
    pub(super) fn part(&mut self) {
        if self.ended.is_some() {
            return;
        }
        self.fill();
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        self.send();
    }

    /// Encrypts bytes of the send buffer, as many as TLS accepts.
    fn fill(&mut self) {
        if let Some(tls) = &mut self.tls {
            while !self.outgoing.is_empty() {
                match tls.writer().write(&self.outgoing) {
                    Ok(0) | Err(_) => break,
                    Ok(length) => self.outgoing.advance(length),
                }
            }
        }
    }

    /// Sends the buffer until the socket accepts no more bytes.
    fn send(&mut self) {
        while self.has_to_send() {
            self.fill();
            let sent = match &mut self.tls {
                None => Raw(&self.socket).write(&self.outgoing).map(|length| self.outgoing.advance(length)),
                // During the handshake, TLS keeps bytes that it can't send yet.
                Some(tls) if !tls.wants_write() => return,
                Some(tls) => tls.write_tls(&mut Raw(&self.socket)).map(drop),
            };
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    self.ended = Some(describe(&error));
                    return;
                }
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// Reads from the socket once, and decrypts.
    fn receive(&mut self) -> Result<(), SocketFault> {
        let Some(tls) = &mut self.tls else {
            let mut buffer = [0; 1 << 16];
            match came(Raw(&self.socket).read(&mut buffer)) {
                Ok(length) => self.incoming.extend_from_slice(&buffer[..length]),
                Err(why) => self.ended = Some(why),
            }
            return Ok(());
        };
        match came(tls.read_tls(&mut Raw(&self.socket))) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(why) => {
                self.ended = Some(why);
                return Ok(());
            }
        }
        let state = tls.process_new_packets().map_err(|error| {
            // The server should receive the TLS alert, if sending does not block.
            let _ = tls.write_tls(&mut Raw(&self.socket));
            SocketFault::tls(error)
        })?;
        let before = self.incoming.len();
        self.incoming.resize(before + state.plaintext_bytes_to_read(), 0);
        if let Err(error) = tls.reader().read_exact(&mut self.incoming[before..]) {
            self.incoming.truncate(before);
            return Err(SocketFault::tls(error));
        }
        if state.peer_has_closed() {
            self.ended = Some(CLOSED.to_owned());
        }
        Ok(())
    }
}

const CLOSED: &str = "the server closed the connection";

/// Returns the number of bytes read, 0 if none have come yet, or the reason for the stream's end.
fn came(read: io::Result<usize>) -> Result<usize, String> {
    match read {
        Ok(0) => Err(CLOSED.to_owned()),
        Ok(length) => Ok(length),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
        Err(error) => Err(describe(&error)),
    }
}

/// Adapter by which TLS reads and writes the socket.
struct Raw<'s>(&'s OwnedFd);

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, buffer)?)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
