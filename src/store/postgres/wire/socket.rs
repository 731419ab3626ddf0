//! Byte stream of a connection in both directions, with or without TLS.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::{Buf, BytesMut};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustls::ClientConnection;

use super::connect::{DialDeadline, text_of, wait};

/// Reason for which a socket returns no more bytes.
#[derive(Debug)]
pub(super) enum SocketFault {
    /// The deadline has passed. The socket remains usable.
    Overdue,
    /// The server, or a device between this machine and the server, closed the connection.
    Ended(String),
    /// The TLS handshake failed, or a TLS record was invalid.
    Tls(String),
    /// The bytes are no message, or no message that is allowed at this point.
    Senseless(String),
}

impl SocketFault {
    pub(super) fn words(self) -> String {
        match self {
            SocketFault::Overdue => "no answer came in time".to_owned(),
            SocketFault::Ended(why) | SocketFault::Tls(why) => why,
            SocketFault::Senseless(why) => format!("the answer is not PostgreSQL's protocol: {why}"),
        }
    }
}

/// A socket with its receive and send buffers.
pub(super) struct Socket {
    socket: OwnedFd,
    tls: Option<Box<ClientConnection>>,
    outgoing: BytesMut,
    incoming: BytesMut,
    /// Reason for which the socket returns no more bytes, after its end.
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

    /// Returns the send buffer, to which callers append messages.
    pub(super) fn outgoing(&mut self) -> &mut BytesMut {
        &mut self.outgoing
    }

    /// Returns the receive buffer, from which callers remove complete messages.
    pub(super) fn incoming(&mut self) -> &mut BytesMut {
        &mut self.incoming
    }

    fn has_to_send(&self) -> bool {
        !self.outgoing.is_empty() || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Waits until the socket is readable or writable, then receives and sends without blocking.
    /// Neither direction waits for the other, so peers that both send megabytes do not block each
    /// other.
    pub(super) fn step(&mut self, deadline: DialDeadline) -> Result<(), SocketFault> {
        if let Some(why) = &self.ended {
            return Err(SocketFault::Ended(why.clone()));
        }
        let mut flags = PollFlags::IN;
        if self.has_to_send() {
            flags |= PollFlags::OUT;
        }
        let ready =
            wait(&self.socket, flags, deadline).map_err(|errno| SocketFault::Ended(text_of(errno)))?;
        let Some(ready) = ready else { return Err(SocketFault::Overdue) };
        if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            self.receive()?;
        }
        if ready.contains(PollFlags::OUT) && self.ended.is_none() && self.has_to_send() {
            self.send();
            if self.ended.is_some() {
                // The server may have sent its reason before closing the connection.
                let why = self.ended.take();
                self.receive()?;
                self.ended = why;
            }
        }
        Ok(())
    }

    /// Sends the buffer until the system has accepted all bytes.
    pub(super) fn hand_over(&mut self, deadline: DialDeadline) -> Result<(), SocketFault> {
        while self.has_to_send() {
            self.step(deadline)?;
        }
        Ok(())
    }

    /// Waits for one byte and reads no other byte from the socket, because TLS must read the
    /// following bytes.
    pub(super) fn one_byte(&mut self, deadline: DialDeadline) -> Result<u8, SocketFault> {
        let mut byte = [0];
        loop {
            let ready = wait(&self.socket, PollFlags::IN, deadline)
                .map_err(|errno| SocketFault::Ended(text_of(errno)))?;
            if ready.is_none() {
                return Err(SocketFault::Overdue);
            }
            match rustix::io::read(&self.socket, &mut byte) {
                Ok(0) => return Err(SocketFault::Ended(closed())),
                Ok(_) => return Ok(byte[0]),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(SocketFault::Ended(text_of(errno))),
            }
        }
    }

    /// Performs the TLS handshake. Returns the server's certificate.
    pub(super) fn encrypt(
        &mut self,
        tls: ClientConnection,
        deadline: DialDeadline,
    ) -> Result<Vec<u8>, SocketFault> {
        self.tls = Some(Box::new(tls));
        while let Some(tls) = &self.tls {
            if !tls.is_handshaking() && !tls.wants_write() {
                break;
            }
            if deadline.is_over() {
                return Err(SocketFault::Overdue);
            }
            self.step(deadline)?;
        }
        let certificates = self.tls.as_ref().and_then(|tls| tls.peer_certificates());
        let own = certificates.and_then(|all| all.first());
        own.map(|own| own.to_vec())
            .ok_or_else(|| SocketFault::Tls("the server has no certificate".to_owned()))
    }

    /// Sends the remaining bytes and the end of TLS, as far as possible without blocking.
    pub(super) fn part(&mut self) {
        if self.ended.is_some() {
            return;
        }
        if self.tls.is_some() {
            self.fill();
        }
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
                None => rustix::net::send(&self.socket, &self.outgoing, SendFlags::NOSIGNAL)
                    .inspect(|length| self.outgoing.advance(*length))
                    .map_err(io::Error::from),
                // During the handshake, TLS keeps bytes that it can't send yet.
                Some(tls) if !tls.wants_write() => return,
                Some(tls) => tls.write_tls(&mut Raw(&self.socket)),
            };
            match sent {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    self.ended = Some(crate::error::describe(&error));
                    return;
                }
            }
        }
    }

    /// Reads from the socket once, and decrypts.
    fn receive(&mut self) -> Result<(), SocketFault> {
        let Some(tls) = &mut self.tls else {
            let mut buffer = [0; 1 << 16];
            let read = rustix::io::read(&self.socket, &mut buffer).map_err(io::Error::from);
            if let Some(length) = came(read, &mut self.ended) {
                self.incoming.extend_from_slice(&buffer[..length]);
            }
            return Ok(());
        };
        let read = tls.read_tls(&mut Raw(&self.socket));
        if came(read, &mut self.ended).is_none() {
            return Ok(());
        }
        let state = match tls.process_new_packets() {
            Ok(state) => state,
            Err(error) => {
                // The server should receive the TLS alert, if sending does not block.
                let _ = tls.write_tls(&mut Raw(&self.socket));
                return Err(SocketFault::Tls(format!("TLS: {error}")));
            }
        };
        let before = self.incoming.len();
        self.incoming.resize(before + state.plaintext_bytes_to_read(), 0);
        if let Err(error) = tls.reader().read_exact(&mut self.incoming[before..]) {
            self.incoming.truncate(before);
            return Err(SocketFault::Tls(format!("TLS: {error}")));
        }
        if state.peer_has_closed() {
            self.ended = Some(closed());
        }
        Ok(())
    }
}

/// Returns the number of bytes read; `None` without bytes. Stores the reason of an end in `ended`.
fn came(read: io::Result<usize>, ended: &mut Option<String>) -> Option<usize> {
    match read {
        Ok(0) => *ended = Some(closed()),
        Ok(length) => return Some(length),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
        Err(error) => *ended = Some(crate::error::describe(&error)),
    }
    None
}

fn closed() -> String {
    "the server closed the connection".to_owned()
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
