//! `tick --jobs`: several agents at once, each in a process of its own.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use super::Signal;
use super::signals::Signals;
use crate::error::{Context, Error, Result};

/// Runs this program with each of these command lines, at most `at_once` at a time. `done` gets
/// what each wrote to stdout, whole, and its exit status (`None`: ended by a signal), in the order
/// in which they end. What they say on stderr goes where ours goes.
///
/// A signal that asks us to end is passed on, and no other command line is begun. It is returned when
/// those that ran have ended.
pub fn run(
    commands: Vec<Vec<OsString>>,
    at_once: usize,
    mut done: impl FnMut(&[u8], Option<i32>),
) -> Result<Option<i32>> {
    let program = std::env::current_exe().context("find", Path::new("this program"))?;
    let signals = Signals::hold()?;
    let mut waiting = commands.into_iter();
    let mut running: Vec<Job> = Vec::new();
    let mut told = None;
    loop {
        while told.is_none() && running.len() < at_once {
            let Some(arguments) = waiting.next() else { break };
            running.push(Job::start(&program, &arguments)?);
        }
        if running.is_empty() {
            return Ok(told.or(signals.release()));
        }
        wait(&signals, &mut running)?;
        if let Some(signal) = signals.caught() {
            told = Some(signal);
            running.iter().for_each(|job| job.tell(signal));
        }
        for job in running.extract_if(.., |job| job.has_ended) {
            let (lines, code) = job.end();
            done(&lines, code);
        }
    }
}

/// Waits for a signal, or for any of them to say something or end, and takes in what they say.
fn wait(signals: &Signals, running: &mut [Job]) -> Result<()> {
    let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
    fds.extend(running.iter().map(|job| PollFd::from_borrowed_fd(job.stdout.as_fd(), PollFlags::IN)));
    match rustix::event::poll(&mut fds, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => {
            let error = Error::Io { action: "wait for", path: "other ticks".into(), source: errno.into() };
            return Err(error);
        }
    }
    let ready: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
    running.iter_mut().zip(ready).filter(|(_, ready)| *ready).for_each(|(job, _)| job.listen());
    Ok(())
}

/// One command line that runs.
struct Job {
    child: Child,
    stdout: ChildStdout,
    lines: Vec<u8>,
    has_ended: bool,
}

impl Job {
    fn start(program: &Path, arguments: &[OsString]) -> Result<Job> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("run", program)?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("it has no stdout"));
        Ok(Job { stdout: stdout.context("hear", program)?, child, lines: Vec::new(), has_ended: false })
    }

    /// Takes in what it says. It closes its stdout when it ends; one that can't be read still has an
    /// exit status, and that is what counts.
    fn listen(&mut self) {
        let mut buffer = [0; 16 << 10];
        match self.stdout.read(&mut buffer) {
            Ok(0) => self.has_ended = true,
            Ok(length) => self.lines.extend_from_slice(&buffer[..length]),
            Err(error) => self.has_ended = error.kind() != io::ErrorKind::Interrupted,
        }
    }

    /// It is not reaped yet, so its pid means nobody else.
    fn tell(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = rustix::process::kill_process(Pid::from_child(&self.child), signal);
        }
    }

    fn end(mut self) -> (Vec<u8>, Option<i32>) {
        let code = self.child.wait().ok().and_then(|status| status.code());
        (self.lines, code)
    }
}
