//! `tick --jobs`: several agents at once, each in a process of its own.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

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

/// Runs this program with each of these command lines, at most `at_once` at a time, or fewer if the machine
/// has no room for more. When a job ends, `done` gets its place among the command lines, all that it wrote to
/// stdout, and how it ended. Jobs share the stderr of this process.
///
/// A signal that asks this process to end is passed on to every running job, no other job begins, and all are
/// waited for. Returns that signal.
pub fn run(
    commands: Vec<Vec<OsString>>,
    at_once: usize,
    mut done: impl FnMut(usize, &[u8], End),
) -> Result<Option<i32>> {
    let program = std::env::current_exe().context("find", Path::new("this program"))?;
    let signals = Signals::hold()?;
    let mut cancelled_by = None;
    let mut trouble = Ok(());
    let mut waiting = commands.iter().enumerate().peekable();
    let mut running: Vec<Job> = Vec::new();
    loop {
        while running.len() < at_once && cancelled_by.is_none() && trouble.is_ok() {
            let Some((at, arguments)) = waiting.peek() else { break };
            match Job::start(*at, &program, arguments) {
                Ok(job) => running.push(job),
                // The end of a running job makes room.
                Err(error) if error.is_shortage() && !running.is_empty() => break,
                Err(error) => trouble = Err(error),
            }
            waiting.next();
        }
        if running.is_empty() {
            return trouble.map(|()| cancelled_by.or(signals.release()));
        }
        let spoke = wait(&signals, &running)?;
        if let Some(signal) = signals.caught() {
            cancelled_by = Some(signal);
            running.iter().for_each(|job| job.pass_on(signal));
        }
        // From the last to the first, so that a removal moves no job that is still to be looked at.
        for at in spoke.into_iter().rev() {
            if running[at].has_ended() {
                let job = running.swap_remove(at);
                let place = job.at;
                let (lines, end) = job.end();
                done(place, &lines, end);
            }
        }
    }
}

/// Waits for a signal or for output of a job. Returns the places of the jobs that have something to read.
fn wait(signals: &Signals, running: &[Job]) -> Result<Vec<usize>> {
    let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
    fds.extend(running.iter().map(|job| PollFd::new(&job.stdout, PollFlags::IN)));
    match rustix::event::poll(&mut fds, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno).context("wait for", Path::new("the jobs")),
    }
    let ready = fds.iter().skip(1).enumerate().filter(|(_, fd)| !fd.revents().is_empty());
    Ok(ready.map(|(at, _)| at).collect())
}

struct Job {
    at: usize,
    child: Child,
    stdout: ChildStdout,
    lines: Vec<u8>,
}

impl Job {
    /// The job has a process group of its own, so that a signal from the terminal reaches it only once,
    /// through this process. If this process is killed, the job gets SIGTERM.
    fn start(at: usize, program: &Path, arguments: &[OsString]) -> Result<Job> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        spawn::tie(&mut command, Signal::TERM);
        spawn::give_back(&mut command);
        let mut child = command.spawn().context("run", program)?;
        let stdout = child.stdout.take().ok_or(Errno::BADF).context("listen to", program)?;
        Ok(Job { at, child, stdout, lines: Vec::new() })
    }

    fn pass_on(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            // The job is not reaped yet, so no other process can have its pid.
            let _ = rustix::process::kill_process(Pid::from_child(&self.child), signal);
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

    fn end(mut self) -> (Vec<u8>, End) {
        let end = self.child.wait().map_or(End::Unknown, |status| match (status.code(), status.signal()) {
            (Some(code), _) => End::Exit(code),
            (None, Some(signal)) => End::Signal(signal),
            (None, None) => End::Unknown,
        });
        (self.lines, end)
    }
}
