//! Signals that ask this process to end, held back for as long as a turn runs.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::error::{Context, Result};

const CHILDREN: &str = "children";

/// While this lives, SIGINT, SIGTERM and SIGHUP are reported instead of ending the process. Afterwards they
/// end it, as before. A signal that was ignored from the start (`nohup`, a background job of a script) stays
/// ignored.
pub struct Signals {
    watch: &'static Watch,
}

impl Signals {
    pub fn hold() -> Result<Signals> {
        static WATCH: LazyLock<io::Result<Watch>> = LazyLock::new(Watch::install);
        let watch = WATCH.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()));
        let signals = Signals { watch: watch.context("watch for signals to", Path::new("this process"))? };
        signals.watch.caught.store(0, Ordering::SeqCst);
        signals.watch.ends.store(0, Ordering::SeqCst);
        signals.watch.hung_up.store(false, Ordering::SeqCst);
        signals.watch.idle.store(false, Ordering::SeqCst);
        Ok(signals)
    }

    /// The last signal that came since the last call, if any.
    pub fn caught(&self) -> Option<i32> {
        let mut wakes = [0; 64];
        // This only empties the pipe. Mostly it is empty already, which says nothing about what was caught.
        let _ = (&self.watch.wakes).read(&mut wakes);
        i32::try_from(self.watch.caught.swap(0, Ordering::SeqCst)).ok().filter(|signal| *signal != 0)
    }

    /// What was asked for since the last call, where SIGHUP does not ask for the end.
    pub fn asked(&self) -> Asked {
        let ends = self.watch.ends.swap(0, Ordering::SeqCst);
        let reload = self.watch.hung_up.swap(false, Ordering::SeqCst);
        self.caught();
        Asked { end: i32::try_from(ends).ok().filter(|signal| *signal != 0), reload }
    }

    /// From here on the end of a child wakes whoever waits for a signal.
    pub fn hear_children(&self) -> Result<()> {
        let heard = low_level::pipe::register(
            SIGCHLD,
            self.watch.wake.try_clone().context("watch", Path::new(CHILDREN))?,
        );
        heard.map(drop).context("watch", Path::new(CHILDREN))
    }

    /// Stops holding signals back. Returns a signal that came since the last call of `caught`.
    pub fn release(self) -> Option<i32> {
        self.watch.idle.store(true, Ordering::SeqCst);
        self.caught()
    }
}

/// What signals have asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// The last signal that asked this process to end.
    pub end: Option<i32>,
    /// SIGHUP came: settings are to be read again.
    pub reload: bool,
}

/// Readable when a signal was caught.
impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.wakes.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.watch.idle.store(true, Ordering::SeqCst);
    }
}

/// Handlers are installed once and stay, since removing one would leave its signal ignored. While no turn
/// runs, they end the process, as the signal would have done without them.
struct Watch {
    idle: Arc<AtomicBool>,
    caught: Arc<AtomicUsize>,
    /// The same without SIGHUP.
    ends: Arc<AtomicUsize>,
    hung_up: Arc<AtomicBool>,
    wakes: UnixStream,
    wake: UnixStream,
}

impl Watch {
    fn install() -> io::Result<Watch> {
        let (wakes, wake) = UnixStream::pair()?;
        wakes.set_nonblocking(true)?;
        let watch = Watch {
            idle: Arc::new(AtomicBool::new(true)),
            caught: Arc::default(),
            ends: Arc::default(),
            hung_up: Arc::default(),
            wakes,
            wake,
        };
        let ignored = ignored();
        for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_in(ignored, *signal)) {
            // The order matters: handlers of a signal run in the order in which they are registered.
            flag::register_conditional_default(signal, watch.idle.clone())?;
            flag::register_usize(signal, watch.caught.clone(), signal.unsigned_abs() as usize)?;
            if signal == SIGHUP {
                flag::register(signal, watch.hung_up.clone())?;
            } else {
                flag::register_usize(signal, watch.ends.clone(), signal.unsigned_abs() as usize)?;
            }
            low_level::pipe::register(signal, watch.wake.try_clone()?)?;
        }
        if is_in(ignored, SIGCHLD) {
            // A process that ignores SIGCHLD never learns how a child ended. Any handler changes that.
            flag::register(SIGCHLD, Arc::default())?;
        }
        Ok(watch)
    }
}

/// Whether a signal is in a mask such as `ignored` returns.
pub fn is_in(mask: u64, signal: i32) -> bool {
    u32::try_from(signal - 1).is_ok_and(|bit| mask >> bit & 1 == 1)
}

/// The mask of the signals that this process ignores; empty if the system does not say.
pub fn ignored() -> u64 {
    // One read: the system makes the whole text anew for each.
    let mut status = [0; 4096];
    let read = fs::File::open("/proc/self/status").and_then(|mut file| file.read(&mut status));
    let status = String::from_utf8_lossy(&status[..read.unwrap_or(0)]);
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_ignores_sigpipe_and_that_is_seen() {
        assert!(is_in(ignored(), signal_hook::consts::SIGPIPE));
        assert!(!is_in(ignored(), SIGTERM));
    }
}
