//! Opens a socket to a server before a deadline.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::fault::WireFault;
use super::url::{Host, Url};
use crate::error::describe;

/// Deadline of a wait, by the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct DialDeadline(Option<Instant>);

impl DialDeadline {
    /// Returns the deadline after `patience`; no deadline if `patience` is too long for the clock.
    pub(super) fn after(patience: Duration) -> DialDeadline {
        DialDeadline(Instant::now().checked_add(patience))
    }

    /// Returns the remaining time; `None` without a deadline.
    fn left(self) -> Option<Duration> {
        self.0.map(|at| at.saturating_duration_since(Instant::now()))
    }

    pub(super) fn is_over(self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// Returns the end of the first of `parts` equal parts of the remaining time.
    fn part(self, parts: usize) -> DialDeadline {
        let parts = u32::try_from(parts).unwrap_or(u32::MAX).max(1);
        self.left().map_or(self, |left| DialDeadline::after(left / parts))
    }
}

/// Waits until a socket is ready for one of `flags`; `None` if the deadline passes first.
pub(super) fn wait(
    socket: &OwnedFd,
    flags: PollFlags,
    deadline: DialDeadline,
) -> Result<Option<PollFlags>, Errno> {
    loop {
        let left = deadline.left();
        let timeout = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut fds = [PollFd::new(socket, flags)];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(0) if deadline.is_over() => return Ok(None),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(Some(fds[0].revents())),
            Err(errno) => return Err(errno),
        }
    }
}

/// Connects a nonblocking socket. Several addresses share the remaining time equally. The system's
/// resolver looks up names, with its own timeouts.
pub(super) fn connect(url: &Url, deadline: DialDeadline) -> Result<OwnedFd, WireFault> {
    let unreachable =
        |place: String, why: String| WireFault::Unreachable(format!("can't connect to {place}: {why}"));
    let addresses: Vec<SocketAddr> = match &url.host {
        Host::Socket(directory) => {
            let path = format!("{}/.s.PGSQL.{}", directory.trim_end_matches('/'), url.port);
            return by_socket(&path, deadline).map_err(|why| unreachable(path, why));
        }
        Host::Address(address) => vec![(*address, url.port).into()],
        Host::Name(name) => {
            let found = (name.as_str(), url.port).to_socket_addrs();
            let found = found.map_err(|error| unreachable(name.clone(), describe(&error)))?;
            // TLS is not required for `localhost`, so the name must not resolve to another machine.
            found.filter(|address| name != "localhost" || address.ip().is_loopback()).collect()
        }
    };
    let mut troubles = Vec::new();
    for (at, address) in addresses.iter().enumerate() {
        match by_tcp(*address, deadline.part(addresses.len() - at)) {
            Ok(socket) => return Ok(socket),
            Err(why) => troubles.push(format!("{address}: {why}")),
        }
    }
    if troubles.is_empty() {
        troubles.push("the name has no address".to_owned());
    }
    Err(unreachable(url.host.text(), troubles.join("; ")))
}

fn by_socket(path: &str, deadline: DialDeadline) -> Result<OwnedFd, String> {
    let address = SocketAddrUnix::new(path).map_err(text_of)?;
    let socket = socket(AddressFamily::UNIX).map_err(text_of)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            // The listener's queue is full, and the system reports no event when it has room.
            Err(Errno::AGAIN) if !deadline.is_over() => std::thread::sleep(Duration::from_millis(5)),
            Err(Errno::AGAIN) => return Err("the server did not accept the connection in time".to_owned()),
            Err(errno) => return Err(text_of(errno)),
        }
    }
}

fn by_tcp(address: SocketAddr, deadline: DialDeadline) -> Result<OwnedFd, String> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family).map_err(text_of)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            if wait(&socket, PollFlags::OUT, deadline).map_err(text_of)?.is_none() {
                return Err("the server did not answer in time".to_owned());
            }
            sockopt::socket_error(&socket).map_err(text_of)?.map_err(text_of)?;
        }
        Err(errno) => return Err(text_of(errno)),
    }
    // Each round trip is one message, so a wait for more data would only delay the message.
    sockopt::set_tcp_nodelay(&socket, true).map_err(text_of)?;
    Ok(socket)
}

fn socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

pub(super) fn text_of(errno: Errno) -> String {
    describe(&errno.into())
}
