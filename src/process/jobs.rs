//! Several agents at once, each in a process of its own: `tick --jobs` and `tick --follow`.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use super::OF_MANAGER;
use super::patience::timespec;
use super::signals::Signals;
use super::spawn;
use crate::error::{Context, Result};

/// How many bytes of a job's output are read at once.
const BUFFER: usize = 16 << 10;

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Exit(i32),
    Signal(i32),
    /// The system does not say.
    Unknown,
}

/// A job that has ended: what it was for, all that it wrote to stdout, and how it ended.
pub struct Ended<T> {
    pub of: T,
    pub lines: Vec<u8>,
    pub end: End,
}

/// Runs this program with each of these command lines, at most `at_once` at a time, or fewer if the machine
/// has no room for more. When a job ends, `done` is told, with its place among the command lines.
///
/// A signal that asks this process to end is passed on to every running job, no other job begins, and all are
/// waited for. Returns that signal.
///
/// `relay` gets what they write to stderr, as it comes; without it they write to that of this process.
pub fn run(
    commands: Vec<Vec<OsString>>,
    at_once: usize,
    relay: Option<Relay>,
    mut done: impl FnMut(Ended<usize>),
) -> Result<Option<i32>> {
    let signals = Signals::hold()?;
    let mut jobs = Jobs { relay, ..Jobs::new()? };
    let mut cancelled_by = None;
    let mut trouble = Ok(());
    let mut waiting = commands.iter().enumerate().peekable();
    loop {
        while jobs.count() < at_once && cancelled_by.is_none() && trouble.is_ok() {
            let Some((at, arguments)) = waiting.peek() else { break };
            match jobs.start(*at, arguments) {
                Ok(()) => {}
                // The end of a running job makes room.
                Err(error) if error.is_shortage() && jobs.count() > 0 => break,
                Err(error) => trouble = Err(error),
            }
            waiting.next();
        }
        if jobs.count() == 0 {
            return trouble.map(|()| cancelled_by.or(signals.release()));
        }
        let ended = jobs.wait(&[signals.as_fd()], None)?;
        if let Some(signal) = signals.caught() {
            cancelled_by = Some(signal);
            jobs.pass_on(signal);
        }
        ended.into_iter().for_each(&mut done);
    }
}

/// Gets what a job has written to stderr.
pub type Relay = fn(&[u8]);

/// The jobs that run. They share the stderr of this process, unless it passes on what they say there.
pub struct Jobs<T> {
    program: PathBuf,
    relay: Option<Relay>,
    running: Vec<Job<T>>,
}

impl<T> Jobs<T> {
    pub fn new() -> Result<Jobs<T>> {
        let program = std::env::current_exe().context("find", Path::new("this program"))?;
        Ok(Jobs { program, relay: None, running: Vec::new() })
    }

    pub fn count(&self) -> usize {
        self.running.len()
    }

    /// Runs this program with a command line. `of` is what it is for.
    pub fn start(&mut self, of: T, arguments: &[OsString]) -> Result<()> {
        self.running.push(Job::start(of, &self.program, arguments, self.relay)?);
        Ok(())
    }

    /// Sends a signal to every running job.
    pub fn pass_on(&self, signal: i32) {
        self.running.iter().for_each(|job| job.pass_on(signal));
    }

    /// Waits for the end of a job, for one of `others` to be readable, or until a moment. Returns the jobs that have
    /// ended. Also reaps every other child that has ended: an orphan, where this process adopts them.
    pub fn wait(&mut self, others: &[BorrowedFd<'_>], until: Option<Instant>) -> Result<Vec<Ended<T>>> {
        let mut fds: Vec<PollFd<'_>> = others.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        fds.extend(self.running.iter().map(|job| PollFd::new(&job.stdout, PollFlags::IN)));
        let said = self.running.iter().filter_map(|job| job.stderr.as_ref());
        fds.extend(said.map(|(stderr, _)| PollFd::new(stderr, PollFlags::IN)));
        let timeout = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("wait for", Path::new("the jobs")),
        }
        let ready: Vec<bool> = fds.iter().skip(others.len()).map(|fd| !fd.revents().is_empty()).collect();
        self.running.iter_mut().for_each(Job::pass_on_words);
        let mut ended = Vec::new();
        // From the last to the first, so that a removal moves no job that is still to be looked at.
        for at in (0..self.running.len()).rev() {
            if ready[at] && self.running[at].has_ended() {
                ended.push(self.running.swap_remove(at).end());
            }
        }
        self.reap();
        Ok(ended)
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let job = self.running.iter_mut().find(|job| Pid::from_child(&job.child) == pid);
            if let Some(job) = job {
                job.status = Some(ExitStatus::from_raw(status.as_raw()));
            }
        }
    }
}

struct Job<T> {
    of: T,
    child: Child,
    stdout: ChildStdout,
    /// Until its end.
    stderr: Option<(ChildStderr, Relay)>,
    lines: Vec<u8>,
    /// Once it was reaped before the end of its output was seen.
    status: Option<ExitStatus>,
}

impl<T> Job<T> {
    /// The job has a process group of its own, so that a signal from the terminal reaches it only once,
    /// through this process. If this process is killed, the job gets SIGTERM.
    fn start(of: T, program: &Path, arguments: &[OsString], relay: Option<Relay>) -> Result<Job<T>> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        if relay.is_some() {
            command.stderr(Stdio::piped());
        }
        // What the service manager asks of this process is not for the turns below it.
        for name in OF_MANAGER {
            command.env_remove(name);
        }
        spawn::tie(&mut command, Signal::TERM);
        spawn::give_back(&mut command);
        let mut child = command.spawn().context("run", program)?;
        let stdout = child.stdout.take().ok_or(Errno::BADF).context("listen to", program)?;
        let stderr = child.stderr.take().zip(relay);
        if let Some((stderr, _)) = &stderr {
            rustix::io::ioctl_fionbio(stderr, true).context("listen to", program)?;
        }
        Ok(Job { of, child, stdout, stderr, lines: Vec::new(), status: None })
    }

    fn pass_on(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal).filter(|_| self.status.is_none()) {
            // The job is not reaped yet, so no other process can have its pid.
            let _ = rustix::process::kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Passes on what the job has written to stderr by now.
    fn pass_on_words(&mut self) {
        let mut buffer = [0; BUFFER];
        while let Some((stderr, relay)) = &mut self.stderr {
            match stderr.read(&mut buffer) {
                Ok(length @ 1..) => relay(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => self.stderr = None,
            }
        }
    }

    /// Reads what the job has written. Returns whether its output has ended, or can't be read any more.
    fn has_ended(&mut self) -> bool {
        let mut buffer = [0; BUFFER];
        match self.stdout.read(&mut buffer) {
            Ok(length) => {
                self.lines.extend_from_slice(&buffer[..length]);
                length == 0
            }
            Err(error) => error.kind() != io::ErrorKind::Interrupted,
        }
    }

    fn end(mut self) -> Ended<T> {
        let status = self.status.map_or_else(|| self.child.wait(), Ok);
        self.pass_on_words();
        let end = status.map_or(End::Unknown, |status| match (status.code(), status.signal()) {
            (Some(code), _) => End::Exit(code),
            (None, Some(signal)) => End::Signal(signal),
            (None, None) => End::Unknown,
        });
        Ended { of: self.of, lines: self.lines, end }
    }
}
