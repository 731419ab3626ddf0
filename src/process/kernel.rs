//! System calls that only Linux has.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Result;
use rustix::process::{Pid, PidfdFlags, Signal};

/// Opens a descriptor that always refers to `pid`, and is readable when that process ends.
pub fn open(pid: Pid) -> Result<OwnedFd> {
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
}

pub fn send(process: impl AsFd, signal: Signal) -> Result<()> {
    rustix::process::pidfd_send_signal(process, signal)
}

/// Makes this process the parent of descendants that lose their parent, or stops that.
pub fn adopt_orphans(on: bool) -> Result<()> {
    rustix::process::set_child_subreaper(on.then(rustix::process::getpid))
}

/// Makes the kernel signal this process when its parent ends. Async-signal-safe.
pub fn signal_with_parent(signal: Signal) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(signal))
}
