//! Runs several agents in parallel, each in its own process, for `tick --jobs` and `tick --follow`.
//! With a database, each process ticks many agents in sequence, so that it keeps its connection.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use super::MANAGER_VARS;
use super::patience::poll;
use super::signals::Signals;
use super::spawn;
use crate::error::{IoContext, Result};

/// Size of the read buffer for a job's output, in bytes.
const BUFFER: usize = 16 << 10;

/// Idle time after which a worker process is ended.
const MAX_IDLE: Duration = Duration::from_secs(60);

/// First character of the line by which a worker reports the end of a job; the exit status follows.
pub const OVER: char = '\u{1e}';

/// Job to run in a process of this program.
#[derive(Debug, Clone)]
pub enum Work {
    /// Job in a new process with this command line.
    Process(Vec<OsString>),
    /// Job as a line for an idle worker, or for a new worker with this command line. The worker
    /// runs the job, writes the job's output and then [`OVER`], and waits for the next line. A
    /// worker that ends without [`OVER`] ends its job, too.
    Line { worker: Vec<OsString>, line: String },
}

/// Ended job: its tag, its complete stdout, and the exit status or signal of its process.
pub struct FinishedJob<T> {
    pub of: T,
    pub lines: Vec<u8>,
    pub end: ExitStatus,
}

/// Runs all work, at most `max_parallel` jobs in parallel, or fewer if the machine lacks resources.
/// `on_end` is called with the index of each job at its end.
///
/// A signal to end this process is passed on to every running job; no further job starts, and the
/// function waits for the running jobs. Returns that signal.
///
/// `relay` receives the stderr of the jobs as they write; without it, jobs inherit stderr.
pub fn run(
    works: Vec<Work>,
    max_parallel: usize,
    relay: Option<Relay>,
    mut on_end: impl FnMut(FinishedJob<usize>),
) -> Result<Option<i32>> {
    let signals = Signals::catch()?;
    let mut jobs = Jobs { relay, ..Jobs::new()? };
    let mut cancelled_by = None;
    let mut result = Ok(());
    let mut queue = works.iter().enumerate().peekable();
    loop {
        while jobs.count() < max_parallel && cancelled_by.is_none() && result.is_ok() {
            let Some((at, work)) = queue.peek() else { break };
            match jobs.start(*at, work) {
                Ok(()) => {}
                // The end of a running job frees resources, so the loop then starts this job again.
                Err(error) if error.is_shortage() && jobs.count() > 0 => break,
                Err(error) => result = Err(error),
            }
            queue.next();
        }
        if jobs.count() == 0 {
            return result.map(|()| cancelled_by.or(signals.release()));
        }
        let ended = jobs.wait(&[signals.as_fd()], None)?;
        if let Some(signal) = signals.caught() {
            cancelled_by = Some(signal);
            jobs.forward_signal(signal);
        }
        ended.into_iter().for_each(&mut on_end);
    }
}

/// Returns the lines on stdin of a worker. The worker's child processes do not inherit stdin.
pub fn lines() -> Result<impl Iterator<Item = Result<String>>> {
    let lines = BufReader::new(spawn::take_stdin()?).lines();
    Ok(lines.map(|line| line.context("read", Path::new("stdin"))))
}

/// Callback that receives the stderr of the jobs in chunks.
pub type Relay = fn(&[u8]);

/// Running jobs. The jobs inherit the stderr of this process, unless `relay` receives their stderr.
pub struct Jobs<T> {
    program: PathBuf,
    relay: Option<Relay>,
    running: Vec<Job<T>>,
    /// Idle workers, the most recently used last, and the start of their idle time.
    idle: Vec<(WorkerProcess, Instant)>,
}

impl<T> Jobs<T> {
    pub fn new() -> Result<Jobs<T>> {
        let program = std::env::current_exe().context("find", Path::new("this program"))?;
        Ok(Jobs { program, relay: None, running: Vec::new(), idle: Vec::new() })
    }

    pub fn count(&self) -> usize {
        self.running.len()
    }

    /// Starts a job. `of`: tag that identifies the job when it ends.
    pub fn start(&mut self, of: T, work: &Work) -> Result<()> {
        let process = match work {
            Work::Process(arguments) => WorkerProcess::start(&self.program, arguments, false, self.relay)?,
            Work::Line { worker, line } => self.worker(worker, line)?,
        };
        self.running.push(Job { of, process, lines: Vec::new() });
        Ok(())
    }

    /// Sends a line to an idle worker, or to a new one. Returns the worker.
    fn worker(&mut self, arguments: &[OsString], line: &str) -> Result<WorkerProcess> {
        while let Some((mut process, _)) = self.idle.pop() {
            // An idle worker may have died, so the next worker is tried.
            if process.send_line(line).is_ok() {
                return Ok(process);
            }
        }
        let mut process = WorkerProcess::start(&self.program, arguments, true, self.relay)?;
        process.send_line(line).context("talk to", &self.program)?;
        Ok(process)
    }

    /// Ends all workers when they become idle, so that new workers start with the current settings.
    pub fn renew(&mut self) {
        self.idle.clear();
        self.running.iter_mut().for_each(|job| job.process.stdin = None);
    }

    /// Sends a signal to every running job.
    pub fn forward_signal(&self, signal: i32) {
        self.running.iter().for_each(|job| job.process.forward_signal(signal));
    }

    /// Waits until a job ends, one of `others` is readable, or the time `until` is reached. Returns
    /// the ended jobs. Also reaps other ended children, because this process may adopt orphans.
    pub fn wait(&mut self, others: &[BorrowedFd<'_>], until: Option<Instant>) -> Result<Vec<FinishedJob<T>>> {
        let mut fds: Vec<PollFd<'_>> = others.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        fds.extend(self.running.iter().map(|job| PollFd::new(&job.process.stdout, PollFlags::IN)));
        let stderrs = self.running.iter().filter_map(|job| job.process.stderr.as_ref());
        fds.extend(stderrs.map(|(stderr, _)| PollFd::new(stderr, PollFlags::IN)));
        poll(&mut fds, until).context("wait for", Path::new("the jobs"))?;
        let ready: Vec<bool> = fds.iter().skip(others.len()).map(|fd| !fd.revents().is_empty()).collect();
        self.running.iter_mut().for_each(|job| job.process.relay_stderr());
        let mut ended = Vec::new();
        // Backward iteration, so that a removal moves no job that is still to be checked.
        for at in (0..self.running.len()).rev() {
            if !ready[at] {
                continue;
            }
            if let Some(end) = self.running[at].read()? {
                let Job { of, mut process, lines } = self.running.swap_remove(at);
                process.relay_stderr();
                ended.push(FinishedJob { of, lines, end });
                if process.stdin.is_some() {
                    self.idle.push((process, Instant::now()));
                }
            }
        }
        self.idle.retain(|(_, since)| since.elapsed() < MAX_IDLE);
        self.reap();
        Ok(ended)
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let mut running = self.running.iter_mut().map(|job| &mut job.process);
            if let Some(process) = running.find(|process| Pid::from_child(&process.child) == pid) {
                process.status = Some(ExitStatus::from_raw(status.as_raw()));
            }
            self.idle.retain(|(process, _)| Pid::from_child(&process.child) != pid);
        }
    }
}

struct Job<T> {
    of: T,
    process: WorkerProcess,
    /// Output on stdout so far.
    lines: Vec<u8>,
}

impl<T> Job<T> {
    /// Reads new output. Returns the end of the job; `None` while the job runs. After the end, the
    /// process has a stdin only if it is a worker that waits for its next line.
    fn read(&mut self) -> Result<Option<ExitStatus>> {
        let mut buffer = [0; BUFFER];
        let length = match self.process.stdout.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
            read => read.unwrap_or(0),
        };
        if length == 0 {
            self.process.stdin = None;
            return self.process.end().map(Some);
        }
        self.lines.extend_from_slice(&buffer[..length]);
        let over = parse_end(&self.lines).filter(|_| self.process.is_worker);
        Ok(over.map(|(at, code)| {
            self.lines.truncate(at);
            ExitStatus::from_raw(i32::from(code) << 8)
        }))
    }
}

/// Parses the last line of a worker, if that line reports the end of a job. Returns the offset of
/// the line, and the exit status in it.
fn parse_end(lines: &[u8]) -> Option<(usize, u8)> {
    let line = lines.strip_suffix(b"\n")?;
    let at = line.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let status = std::str::from_utf8(&line[at..]).ok()?.strip_prefix(OVER)?.parse().ok()?;
    Some((at, status))
}

/// Process of this program that runs jobs.
struct WorkerProcess {
    child: Child,
    is_worker: bool,
    /// Pipe for the lines to a worker; `None` for other processes.
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    /// Pipe from the process's stderr; `None` after its end, or without a relay.
    stderr: Option<(ChildStderr, Relay)>,
    /// Exit status, if the process was reaped before the end of its output.
    status: Option<ExitStatus>,
}

impl WorkerProcess {
    /// Starts a process in its own process group, so that terminal signals reach the process only
    /// through this process. The kernel sends the child SIGTERM if this process is killed.
    fn start(
        program: &Path,
        arguments: &[OsString],
        is_worker: bool,
        relay: Option<Relay>,
    ) -> Result<WorkerProcess> {
        let mut command = Command::new(program);
        let stdin = if is_worker { Stdio::piped() } else { Stdio::null() };
        command.args(arguments).stdin(stdin).stdout(Stdio::piped()).process_group(0);
        if relay.is_some() {
            command.stderr(Stdio::piped());
        }
        // Without these variables, turns can't send messages to this process's service manager.
        for name in MANAGER_VARS {
            command.env_remove(name);
        }
        spawn::tie(&mut command, Signal::TERM);
        spawn::restore_limits(&mut command);
        let mut child = command.spawn().context("run", program)?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or(Errno::BADF).context("listen to", program)?;
        let stderr = child.stderr.take().zip(relay);
        if let Some((stderr, _)) = &stderr {
            rustix::io::ioctl_fionbio(stderr, true).context("listen to", program)?;
        }
        Ok(WorkerProcess { child, is_worker, stdin, stdout, stderr, status: None })
    }

    fn send_line(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(format!("{line}\n").as_bytes())
    }

    fn forward_signal(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal).filter(|_| self.status.is_none()) {
            // The process is not reaped yet, so no other process can have the pid.
            let _ = rustix::process::kill_process(Pid::from_child(&self.child), signal);
        }
    }

    fn relay_stderr(&mut self) {
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

    fn end(&mut self) -> Result<ExitStatus> {
        let status = self.status.map_or_else(|| self.child.wait(), Ok);
        status.context("see the end of", Path::new("a job"))
    }
}
