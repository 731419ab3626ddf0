//! Several agents at once, each in a process of its own: `tick --jobs` and `tick --follow`. Where a
//! process is dear, because it connects to a database, it does one job after the other.

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

use super::OF_MANAGER;
use super::patience::timespec;
use super::signals::Signals;
use super::spawn;
use crate::error::{Context, Result};

/// How many bytes of a job's output are read at once.
const BUFFER: usize = 16 << 10;

/// How long a worker is kept that has nothing to do.
const KEPT: Duration = Duration::from_secs(60);

/// What a worker writes at the beginning of a line when a job is over; its exit status follows.
pub const OVER: char = '\u{1e}';

/// What is to be done by this program.
#[derive(Debug, Clone)]
pub enum Work {
    /// A process with this command line.
    Process(Vec<OsString>),
    /// A line for a worker: for one that has nothing to do, else for a new one with this command
    /// line. It does what the line says, writes what it has to say and then [`OVER`], and waits for
    /// the next line. If it writes no [`OVER`] it ends, and the job is over with it.
    Line { worker: Vec<OsString>, line: String },
}

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

/// Does each of these, at most `at_once` at a time, or fewer if the machine
/// has no room for more. When a job ends, `done` is told, with its place among them.
///
/// A signal that asks this process to end is passed on to every running job, no other job begins,
/// and all are waited for. Returns that signal.
///
/// `relay` gets what they write to stderr, as it comes; without it they write to that of this
/// process.
pub fn run(
    works: Vec<Work>,
    at_once: usize,
    relay: Option<Relay>,
    mut done: impl FnMut(Ended<usize>),
) -> Result<Option<i32>> {
    let signals = Signals::hold()?;
    let mut jobs = Jobs { relay, ..Jobs::new()? };
    let mut cancelled_by = None;
    let mut trouble = Ok(());
    let mut waiting = works.iter().enumerate().peekable();
    loop {
        while jobs.count() < at_once && cancelled_by.is_none() && trouble.is_ok() {
            let Some((at, work)) = waiting.peek() else { break };
            match jobs.start(*at, work) {
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

/// The lines that a worker gets. What it starts does not inherit them.
pub fn lines() -> Result<impl Iterator<Item = Result<String>>> {
    let lines = BufReader::new(spawn::take_stdin()?).lines();
    Ok(lines.map(|line| line.context("read", Path::new("stdin"))))
}

/// Gets what a job has written to stderr.
pub type Relay = fn(&[u8]);

/// The jobs that run. They share the stderr of this process, unless it passes on what they say
/// there.
pub struct Jobs<T> {
    program: PathBuf,
    relay: Option<Relay>,
    running: Vec<Job<T>>,
    /// Workers that have nothing to do, the last one to have had something last, and since when.
    free: Vec<(Process, Instant)>,
}

impl<T> Jobs<T> {
    pub fn new() -> Result<Jobs<T>> {
        let program = std::env::current_exe().context("find", Path::new("this program"))?;
        Ok(Jobs { program, relay: None, running: Vec::new(), free: Vec::new() })
    }

    pub fn count(&self) -> usize {
        self.running.len()
    }

    /// Begins to do something. `of` is what it is for.
    pub fn start(&mut self, of: T, work: &Work) -> Result<()> {
        let process = match work {
            Work::Process(arguments) => Process::start(&self.program, arguments, false, self.relay)?,
            Work::Line { worker, line } => self.worker(worker, line)?,
        };
        self.running.push(Job { of, process, lines: Vec::new() });
        Ok(())
    }

    /// A worker that has this line.
    fn worker(&mut self, arguments: &[OsString], line: &str) -> Result<Process> {
        while let Some((mut process, _)) = self.free.pop() {
            // One that has died meanwhile can't be told anything.
            if process.tell(line).is_ok() {
                return Ok(process);
            }
        }
        let mut process = Process::start(&self.program, arguments, true, self.relay)?;
        process.tell(line).context("talk to", &self.program)?;
        Ok(process)
    }

    /// Lets every worker end when it has nothing to do: those after them begin with what is set
    /// now.
    pub fn renew(&mut self) {
        self.free.clear();
        self.running.iter_mut().for_each(|job| job.process.stdin = None);
    }

    /// Sends a signal to every running job.
    pub fn pass_on(&self, signal: i32) {
        self.running.iter().for_each(|job| job.process.pass_on(signal));
    }

    /// Waits for the end of a job, for one of `others` to be readable, or until a moment. Returns
    /// the jobs that have ended. Also reaps every other child that has ended: an orphan, where this
    /// process adopts them.
    pub fn wait(&mut self, others: &[BorrowedFd<'_>], until: Option<Instant>) -> Result<Vec<Ended<T>>> {
        let mut fds: Vec<PollFd<'_>> = others.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        fds.extend(self.running.iter().map(|job| PollFd::new(&job.process.stdout, PollFlags::IN)));
        let said = self.running.iter().filter_map(|job| job.process.stderr.as_ref());
        fds.extend(said.map(|(stderr, _)| PollFd::new(stderr, PollFlags::IN)));
        let timeout = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("wait for", Path::new("the jobs")),
        }
        let ready: Vec<bool> = fds.iter().skip(others.len()).map(|fd| !fd.revents().is_empty()).collect();
        self.running.iter_mut().for_each(|job| job.process.pass_on_words());
        let mut ended = Vec::new();
        // From the last to the first, so that a removal moves no job that is still to be looked at.
        for at in (0..self.running.len()).rev() {
            if !ready[at] {
                continue;
            }
            if let Some(has_ended) = self.running[at].has_ended() {
                let (job, worker) = self.running.swap_remove(at).end(has_ended);
                ended.push(job);
                self.free.extend(worker.map(|worker| (worker, Instant::now())));
            }
        }
        self.free.retain(|(_, since)| since.elapsed() < KEPT);
        self.reap();
        Ok(ended)
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let mut running = self.running.iter_mut().map(|job| &mut job.process);
            if let Some(process) = running.find(|process| Pid::from_child(&process.child) == pid) {
                process.status = Some(ExitStatus::from_raw(status.as_raw()));
            }
            self.free.retain(|(process, _)| Pid::from_child(&process.child) != pid);
        }
    }
}

struct Job<T> {
    of: T,
    process: Process,
    /// What it has written to stdout.
    lines: Vec<u8>,
}

/// How is known that a job has ended.
enum Sign {
    /// A worker has said so. Where its last line begins, and the exit status.
    Over(usize, i32),
    /// Its output has ended, or can't be read any more.
    EndOfOutput,
}

impl<T> Job<T> {
    /// Reads what the job has written, and whether it has ended.
    fn has_ended(&mut self) -> Option<Sign> {
        let mut buffer = [0; BUFFER];
        match self.process.stdout.read(&mut buffer) {
            Ok(0) => Some(Sign::EndOfOutput),
            Ok(length) => {
                self.lines.extend_from_slice(&buffer[..length]);
                if self.process.is_worker { over(&self.lines) } else { None }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Err(_) => Some(Sign::EndOfOutput),
        }
    }

    /// What came of it, and its worker, if that waits for more.
    fn end(self, sign: Sign) -> (Ended<T>, Option<Process>) {
        let Job { of, mut process, mut lines } = self;
        process.pass_on_words();
        match sign {
            Sign::Over(at, status) => {
                lines.truncate(at);
                let waits = process.stdin.is_some();
                (Ended { of, lines, end: End::Exit(status) }, waits.then_some(process))
            }
            Sign::EndOfOutput => {
                let end = process.end();
                process.pass_on_words();
                (Ended { of, lines, end }, None)
            }
        }
    }
}

/// Whether a worker has said with its last line that a job is over.
fn over(lines: &[u8]) -> Option<Sign> {
    let whole = lines.strip_suffix(b"\n")?;
    let at = whole.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let status = std::str::from_utf8(&whole[at..]).ok()?.strip_prefix(OVER)?.parse().ok()?;
    Some(Sign::Over(at, status))
}

/// A process of this program.
struct Process {
    child: Child,
    is_worker: bool,
    /// By which a worker gets its lines.
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    /// Until its end.
    stderr: Option<(ChildStderr, Relay)>,
    /// Once it was reaped before the end of its output was seen.
    status: Option<ExitStatus>,
}

impl Process {
    /// The process has a process group of its own, so that a signal from the terminal reaches it
    /// only once, through this process. If this process is killed, it gets SIGTERM.
    fn start(
        program: &Path,
        arguments: &[OsString],
        is_worker: bool,
        relay: Option<Relay>,
    ) -> Result<Process> {
        let mut command = Command::new(program);
        let stdin = if is_worker { Stdio::piped() } else { Stdio::null() };
        command.args(arguments).stdin(stdin).stdout(Stdio::piped()).process_group(0);
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
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or(Errno::BADF).context("listen to", program)?;
        let stderr = child.stderr.take().zip(relay);
        if let Some((stderr, _)) = &stderr {
            rustix::io::ioctl_fionbio(stderr, true).context("listen to", program)?;
        }
        Ok(Process { child, is_worker, stdin, stdout, stderr, status: None })
    }

    fn tell(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(format!("{line}\n").as_bytes())
    }

    fn pass_on(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal).filter(|_| self.status.is_none()) {
            // The process is not reaped yet, so no other one can have its pid.
            let _ = rustix::process::kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Passes on what the process has written to stderr by now.
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

    /// Waits for its end.
    fn end(&mut self) -> End {
        let status = self.status.map_or_else(|| self.child.wait(), Ok);
        status.map_or(End::Unknown, |status| match (status.code(), status.signal()) {
            (Some(code), _) => End::Exit(code),
            (None, Some(signal)) => End::Signal(signal),
            (None, None) => End::Unknown,
        })
    }
}
