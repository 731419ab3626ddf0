//! Runs a command in the foreground with the streams of this process. The command's exit status
//! becomes that of this process.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::Pid;

use super::patience::{is_past, poll};
use super::signals::Signals;
use super::turn::Monitor;
use super::{Patience, Signal, spawn, table};
use crate::error::{IoContext, Result, describe};

/// Exit statuses of a shell: the command is not found, and the command can't be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// Result of a foreground command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandResult {
    /// Exit status as a shell reports it: 128 plus the signal's number if a signal ended the
    /// command.
    pub status: u8,
    /// Error if the command did not start.
    pub trouble: Option<String>,
    /// True if a signal ended the command, whichever process sent that signal.
    pub was_signalled: bool,
    /// True if the [`Monitor`] decided to end the command.
    pub was_ended: bool,
}

/// Options for ending a command early.
#[derive(Debug, Clone, Copy)]
pub struct EndOptions {
    pub signal: Signal,
    /// Time between the first signal and SIGKILL.
    pub grace: Duration,
    /// Signal to the command when this process dies; `None` to let the command continue.
    pub orphaned: Option<Signal>,
}

impl Default for EndOptions {
    fn default() -> EndOptions {
        EndOptions { signal: Signal::TERM, grace: Duration::ZERO, orphaned: None }
    }
}

/// Runs a command until it ends or `monitor` decides to end it. A signal to end this process is
/// passed on to the command, because this process has work to do after the command.
pub fn run(argv: &[OsString], monitor: &mut dyn Monitor, ending: &EndOptions) -> Result<CommandResult> {
    let failed =
        |status, trouble| CommandResult { status, trouble: Some(trouble), ..CommandResult::default() };
    let Some((program, arguments)) = argv.split_first() else {
        return Ok(failed(NOT_FOUND, "no command".to_owned()));
    };
    let signals = Signals::catch()?;
    let mut command = Command::new(program);
    spawn::restore_limits(command.args(arguments));
    if let Some(signal) = ending.orphaned {
        spawn::tie(&mut command, signal);
    }
    let ran = match command.spawn() {
        Ok(child) => {
            let (status, was_ended) = watch(child, &signals, monitor, ending)?;
            let was_signalled = status.signal().is_some();
            CommandResult { status: code(status), trouble: None, was_signalled, was_ended }
        }
        Err(error) => {
            let status = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN };
            failed(status, format!("{}: {}", Path::new(program).display(), describe(&error)))
        }
    };
    signals.release();
    Ok(ran)
}

/// Waits for the command. Returns the command's status, and true if `monitor` decided to end it.
fn watch(
    mut child: Child,
    signals: &Signals,
    monitor: &mut dyn Monitor,
    ending: &EndOptions,
) -> Result<(ExitStatus, bool)> {
    let pid = Pid::from_child(&child);
    let this = Path::new("the command");
    let ended = table::open(pid).context("watch", this)?;
    // The command is not reaped yet, so no other process can have the command's pid.
    let send = |signal| {
        let _ = rustix::process::kill_process(pid, signal);
    };
    let mut next_check = Some(Instant::now());
    let mut patience: Option<Patience> = None;
    loop {
        if patience.is_none() && is_past(next_check) {
            if monitor.ask() {
                send(ending.signal);
                send(Signal::CONT);
                patience = Some(Patience::of(ending.grace));
            }
            next_check = monitor.pause().map(|pause| Instant::now() + pause);
        }
        let until = match &mut patience {
            None => next_check,
            Some(patience) => patience.next().or_else(|| {
                send(Signal::KILL);
                None
            }),
        };
        let mut fds = [PollFd::new(&ended, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        poll(&mut fds, until).context("wait for", this)?;
        if let Some(signal) = signals.caught().and_then(Signal::from_named_raw) {
            send(signal);
        }
        if let Some(status) = child.try_wait().context("wait for", this)? {
            return Ok((status, patience.is_some()));
        }
    }
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
