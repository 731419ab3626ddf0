//! A command in our own place: with our streams, and with its exit status as ours.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use super::signals::Signals;
use super::{Signal, kernel};
use crate::error::{Context, Result, describe};

/// What a shell says of a command that is not there, and of one that can't be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// As a shell reports it: 128 and the signal for one that a signal ended.
    pub status: u8,
    /// Why it did not start.
    pub trouble: Option<String>,
}

/// Runs a command to its end. A signal that asks us to end is passed on: when the command has ended
/// there is still something to do.
pub fn run(argv: &[OsString]) -> Result<Ran> {
    let Some((program, arguments)) = argv.split_first() else {
        return Ok(Ran { status: NOT_FOUND, trouble: Some("no command".to_owned()) });
    };
    let signals = Signals::hold()?;
    let ran = match Command::new(program).args(arguments).spawn() {
        Ok(child) => Ran { status: code(watch(child, &signals)?), trouble: None },
        Err(error) => {
            let status = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN };
            Ran { status, trouble: Some(format!("{}: {}", Path::new(program).display(), describe(&error))) }
        }
    };
    signals.release();
    Ok(ran)
}

fn watch(mut child: Child, signals: &Signals) -> Result<ExitStatus> {
    let pid = Pid::from_child(&child);
    let this = Path::new("the command");
    let ended = kernel::open(pid).context("watch", this)?;
    loop {
        let mut fds = [PollFd::new(&ended, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("wait for", this),
        }
        if let Some(signal) = signals.caught().and_then(Signal::from_named_raw) {
            // It is not reaped yet, so its pid means nobody else.
            let _ = rustix::process::kill_process(pid, signal);
        }
        if let Some(status) = child.try_wait().context("wait for", this)? {
            return Ok(status);
        }
    }
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
