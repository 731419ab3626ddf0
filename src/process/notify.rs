//! Messages of a long-lived process to its service manager: sd_notify(3), a line per datagram.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use super::MANAGER_VARS;

/// Connection to the service manager, if one has started this process.
pub struct Manager {
    address: Option<SocketAddr>,
    /// Interval of the watchdog messages: half of the manager's timeout.
    every: Option<Duration>,
    pinged_at: Instant,
}

impl Manager {
    /// Returns the service manager that started this process, as the environment names it. An
    /// invalid socket address is ignored, as in other programs.
    pub fn from_env() -> Manager {
        let [socket, watchdog, watchdog_pid] = MANAGER_VARS;
        let name = std::env::var_os(socket).filter(|name| !name.is_empty());
        let address = name.and_then(|name| match name.as_bytes().split_first() {
            Some((b'@', name)) => SocketAddr::from_abstract_name(name).ok(),
            Some((b'/', _)) => SocketAddr::from_pathname(&name).ok(),
            Some(_) | None => None,
        });
        let set = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        let is_ours = set(watchdog_pid).is_none_or(|pid| pid == std::process::id().to_string());
        let span = set(watchdog).and_then(|usec| usec.parse().ok()).map(Duration::from_micros);
        let every = span.filter(|span| is_ours && address.is_some() && !span.is_zero()).map(|span| span / 2);
        Manager { address, every, pinged_at: Instant::now() }
    }

    pub fn notify_ready(&mut self) {
        self.send("READY=1");
    }

    /// Sends a watchdog message if one is due. Returns the time of the next message.
    pub fn ping(&mut self) -> Option<Instant> {
        let every = self.every?;
        if self.pinged_at.elapsed() >= every {
            self.pinged_at = Instant::now();
            self.send("WATCHDOG=1");
        }
        self.pinged_at.checked_add(every)
    }

    /// Sends a message to the service manager. Errors are ignored.
    fn send(&mut self, line: &str) {
        let Some(address) = &self.address else { return };
        let sent = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to_addr(line.as_bytes(), address)
        });
        if let Err(error) = sent
            && error.kind() != io::ErrorKind::WouldBlock
        {
            (self.address, self.every) = (None, None);
        }
    }
}
