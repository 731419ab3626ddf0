//! Signals to end this process, deferred while a turn runs.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::{flag, low_level};

use crate::error::{IoContext, Result};

/// Defers signals while this value exists: SIGINT, SIGTERM and SIGHUP are reported and do not end
/// the process. After the drop of this value, these signals end the process as before. A signal
/// that was ignored at the start (`nohup`, a background job of a script) stays ignored.
pub struct Signals {
    watch: &'static SignalHandlers,
}

impl Signals {
    pub fn catch() -> Result<Signals> {
        let signals = Signals { watch: watch()? };
        // Drops a signal that arrived after the last call of `caught` and did not end this process.
        if signals.watch.idle.load(Ordering::SeqCst) {
            signals.caught();
        }
        signals.watch.idle.store(false, Ordering::SeqCst);
        Ok(signals)
    }

    /// Returns the last signal that was caught since the last call. SIGHUP, which may also ask for
    /// a reload of the settings, is returned only if no other signal was caught.
    pub fn caught(&self) -> Option<i32> {
        // This read only empties the pipe that wakes a poll; the caught signals are in the flags.
        let _ = (&self.watch.wake_reader).read(&mut [0; 64]);
        let mut caught = None;
        for (signal, arrived) in &self.watch.arrived {
            if arrived.swap(false, Ordering::SeqCst) {
                caught = Some(*signal);
            }
        }
        caught
    }

    /// Makes the file descriptor of this value also readable after the end of a child.
    pub fn watch_children(&self) -> Result<()> {
        wake_by(SIGCHLD, &self.watch.wake_writer).context("watch", Path::new("children"))
    }

    /// Makes the file descriptor of this value also readable after a change of the terminal's size.
    /// From now on SIGTSTP does not stop this process, because a stopped process would leave the
    /// terminal as a screen.
    pub fn watch_terminal(&self) -> Result<()> {
        let registered = wake_by(SIGWINCH, &self.watch.wake_writer);
        let registered = registered.and_then(|()| flag::register(SIGTSTP, Arc::default()));
        registered.map(drop).context("watch", Path::new("the terminal"))
    }

    /// Stops deferring signals. Returns a signal that was caught since the last call of `caught`.
    pub fn release(self) -> Option<i32> {
        self.watch.idle.store(true, Ordering::SeqCst);
        self.caught()
    }
}

/// Makes each arrival of a signal write a byte to a pipe.
fn wake_by(signal: i32, pipe: &UnixStream) -> io::Result<()> {
    low_level::pipe::register(signal, pipe.try_clone()?).map(drop)
}

/// Returns a file descriptor that is readable after a signal was caught.
impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.wake_reader.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.watch.idle.store(true, Ordering::SeqCst);
    }
}

/// Signal handlers, installed once and never removed, because a removed handler leaves its signal
/// ignored. While no [`Signals`] exists, the handlers end the process as the signals would.
struct SignalHandlers {
    /// True if signals end this process, because they are not deferred.
    idle: Arc<AtomicBool>,
    /// SIGHUP, SIGINT and SIGTERM, each with the flag that the signal sets.
    arrived: [(i32, Arc<AtomicBool>); 3],
    wake_reader: UnixStream,
    wake_writer: UnixStream,
}

impl SignalHandlers {
    fn install() -> io::Result<SignalHandlers> {
        let (wake_reader, wake_writer) = UnixStream::pair()?;
        wake_reader.set_nonblocking(true)?;
        let watch = SignalHandlers {
            idle: Arc::new(AtomicBool::new(true)),
            arrived: [SIGHUP, SIGINT, SIGTERM].map(|signal| (signal, Arc::default())),
            wake_reader,
            wake_writer,
        };
        let ignored = ignored();
        for (signal, arrived) in watch.arrived.iter().filter(|(signal, _)| !is_in(ignored, *signal)) {
            // Handlers run in registration order, so the one that may end the process comes first.
            flag::register_conditional_default(*signal, watch.idle.clone())?;
            flag::register(*signal, arrived.clone())?;
            wake_by(*signal, &watch.wake_writer)?;
        }
        if is_in(ignored, SIGCHLD) {
            // The kernel reports no exit status of children to a process that ignores SIGCHLD. With
            // a handler, whatever it does, the kernel reports the status.
            flag::register(SIGCHLD, Arc::default())?;
        }
        Ok(watch)
    }
}

fn watch() -> Result<&'static SignalHandlers> {
    static WATCH: LazyLock<io::Result<SignalHandlers>> = LazyLock::new(SignalHandlers::install);
    let watch = WATCH.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()));
    watch.context("watch for signals to", Path::new("this process"))
}

/// True if a mask of signals, such as `ignored` returns, contains the signal.
pub fn is_in(mask: u64, signal: i32) -> bool {
    u32::try_from(signal - 1).is_ok_and(|bit| mask >> bit & 1 == 1)
}

/// Returns the mask of the signals that this process ignores; empty if the system does not report
/// the mask.
pub fn ignored() -> u64 {
    let status = fs::read("/proc/self/status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_of_ignored_signals_contains_sigpipe() {
        assert!(is_in(ignored(), signal_hook::consts::SIGPIPE));
        assert!(!is_in(ignored(), SIGTERM));
    }
}
