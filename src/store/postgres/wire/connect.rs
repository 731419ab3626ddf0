//! Opens a socket to a server before a deadline.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::super::url::{Host, Url};
use super::fault::WireFault;
use super::socket::DialDeadline;
use crate::error::describe;

/// Connects a nonblocking socket. Several addresses share the remaining time equally. The system's
/// resolver looks up names, with its own timeouts.
pub(super) fn connect(url: &Url, deadline: DialDeadline) -> Result<OwnedFd, WireFault> {
    let unreachable =
        |place: &str, why: String| WireFault::Unreachable(format!("can't connect to {place}: {why}"));
    let addresses: Vec<SocketAddr> = match &url.host {
        Host::Socket(directory) => {
            let path = format!("{}/.s.PGSQL.{}", directory.trim_end_matches('/'), url.port);
            return by_socket(&path, deadline).map_err(|error| unreachable(&path, describe(&error)));
        }
        Host::Address(address) => vec![(*address, url.port).into()],
        Host::Name(name) => {
            let found = (name.as_str(), url.port).to_socket_addrs();
            let found = found.map_err(|error| unreachable(name, describe(&error)))?;
            // TLS is not required for `localhost`, so the name must not resolve to another machine.
            found.filter(|address| name != "localhost" || address.ip().is_loopback()).collect()
        }
    };
    let mut troubles = Vec::new();
    for (address, parts) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let part = deadline.left() / u32::try_from(parts).unwrap_or(u32::MAX);
        match by_tcp(*address, part) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                troubles.push(format!("{address}: the server did not answer in time"));
            }
            Err(error) => troubles.push(format!("{address}: {}", describe(&error))),
        }
    }
    if troubles.is_empty() {
        troubles.push("the name has no address".to_owned());
    }
    Err(unreachable(&url.host.text(), troubles.join("; ")))
}

fn by_socket(path: &str, deadline: DialDeadline) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            // The listener's queue is full, and the system reports no event when it has room.
            Err(Errno::AGAIN) if !deadline.is_over() => std::thread::sleep(Duration::from_millis(5)),
            Err(Errno::AGAIN) => {
                return Err(io::Error::other("the server did not accept the connection in time"));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn by_tcp(address: SocketAddr, patience: Duration) -> io::Result<OwnedFd> {
    // A timeout of zero would be an error.
    let stream = TcpStream::connect_timeout(&address, patience.max(Duration::from_millis(1)))?;
    // Each round trip is one message, so a wait for more data would only delay the message.
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream.into())
}
