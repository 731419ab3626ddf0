//! Supervisor of one background task: its start in a session of its own, and the input pipe of an
//! interactive task.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::patience::wait_for;
use super::turn::Monitor;
use super::{PLACE, RUN, SUPERVISOR, TASK, spawn, wait_until};
use crate::cap_fs::CapPath;
use crate::error::{Error, IoContext, Result};
use crate::model::id::TaskId;
use crate::model::place::PlaceId;

/// Message of a supervisor that has started. Any other message is the reason for a failed start.
const BEGUN: &str = "begun";

/// Maximum time for which `feed` waits for a running task that has not created its pipe yet.
const OPEN_TIMEOUT: Duration = Duration::from_secs(1);
const NO_READER: &str = "no process reads it: the command has not begun, has closed its stdin, or has ended";

/// Starts this program as the supervisor of a task, in its own session. Returns when the supervisor
/// reports its start, or after `patience`. The supervisor receives the task's lock as stdin, so
/// that the lock is held without a gap. `arguments`: arguments for this program as the supervisor.
/// `place`: identity of the state directory. Inner error: the reason that was reported.
pub fn start(
    task_id: TaskId,
    arguments: &[OsString],
    dir: &Path,
    place: PlaceId,
    lock: File,
    patience: Duration,
) -> Result<std::result::Result<(), String>> {
    let program = std::env::current_exe().context("find", Path::new("this program"))?;
    let mut command = Command::new(&program);
    spawn::restore_limits(&mut command);
    let mut child = command
        .args(arguments)
        .current_dir(dir)
        .env_remove(RUN)
        .env_remove(TASK)
        .env(SUPERVISOR, task_id.to_string())
        .env(PLACE, place.to_string())
        .stdin(lock)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("run", &program)?;
    let mut output = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        let is_complete = drain(pipe, &mut output, Instant::now().checked_add(patience));
        if !is_complete.context("hear from", &program)? {
            // The supervisor is only slow: it has the task's lock and will start the task.
            return Ok(Ok(()));
        }
    }
    // The child is not reaped, because a supervisor that has begun outlives this process.
    Ok(match String::from_utf8_lossy(&output).trim_end() {
        BEGUN => Ok(()),
        "" => Err("it ended without saying why".to_owned()),
        problem => Err(problem.to_owned()),
    })
}

/// Reads to the end of the pipe. Returns false if the end is not reached before `until`.
fn drain(mut pipe: impl Read + AsFd, output: &mut Vec<u8>, until: Option<Instant>) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    while wait_for(&pipe, PollFlags::IN, until)? {
        match pipe.read(&mut buffer)? {
            0 => return Ok(true),
            length => output.extend_from_slice(&buffer[..length]),
        }
    }
    Ok(false)
}

/// Pipe from a new supervisor, which is this process, to the process that started it.
#[derive(Debug)]
pub struct StartReport {
    starter: Option<File>,
    /// Message for the starting process once the supervisor has begun.
    begun: String,
}

impl StartReport {
    /// Moves this process into a session of its own, and returns the lock that was passed as stdin.
    /// Afterwards only a pipe connects this process with its starter. `begun`: message for the
    /// starter in place of the default.
    pub fn take(begun: Option<String>) -> Result<(StartReport, File)> {
        let this = Path::new("this process");
        // `setsid` fails only for the leader of a process group, and signals to the starter's group
        // do not reach that leader anyway.
        let _ = rustix::process::setsid();
        let lock = spawn::take_stdin()?;
        let starter = io::stdout().as_fd().try_clone_to_owned().context("keep the stdout of", this)?;
        rustix::stdio::dup2_stdout(spawn::null()?).context("replace the stdout of", this)?;
        let begun = begun.unwrap_or_else(|| BEGUN.to_owned());
        Ok((StartReport { starter: Some(File::from(starter)), begun }, lock))
    }

    /// Reports to the starting process that the supervisor has begun.
    pub fn begun(&mut self) {
        let begun = std::mem::take(&mut self.begun);
        self.report(&begun);
    }

    /// Reports to the starting process why the supervisor can't start. Later reports are dropped.
    pub fn report(&mut self, line: &str) {
        if let Some(mut starter) = self.starter.take() {
            // The starting process may have ended, so an error is ignored.
            let _ = writeln!(starter, "{line}");
        }
    }
}

/// Supervisor's ends of the pipe from which a task reads its input.
pub struct TaskInputPipe {
    /// Read end, open until the command has opened the pipe, so that earlier input is kept.
    reader: Option<OwnedFd>,
    /// Write end, kept open so that the command reads no end of input when a writer closes.
    _writer: OwnedFd,
}

impl TaskInputPipe {
    pub fn make(cap: &CapPath) -> Result<TaskInputPipe> {
        cap.make_pipe()?;
        // A pipe must have a reader before a writer can open the pipe without waiting.
        let reader = cap.open_pipe(OFlags::RDONLY)?.context("open", cap)?;
        let writer = cap.open_pipe(OFlags::WRONLY)?.context("open", cap)?;
        Ok(TaskInputPipe { reader: Some(reader), _writer: writer })
    }
}

impl Monitor for TaskInputPipe {
    /// Closes this process's read end of the input pipe once the command has its own, so that a
    /// write fails when the command closes its end.
    fn ask(&mut self) -> bool {
        self.reader = None;
        false
    }
}

/// Writes to the input of a task. Refused as `nobody_listens` if no command reads the pipe, or if
/// the command has not read all bytes after `patience`.
pub fn feed(path: &CapPath, bytes: &[u8], patience: Duration) -> Result<()> {
    let no_reader = |why: &str| {
        Error::refused("nobody_listens", format!("{}: {why}", path.display()))
            .with_hint("`dormouse task status` shows whether it still runs")
    };
    let mut opened = Err(Errno::NOENT);
    wait_until(OPEN_TIMEOUT, || {
        opened = path.open_pipe(OFlags::WRONLY)?;
        Ok(!matches!(opened, Err(Errno::NXIO | Errno::NOENT)))
    })?;
    let mut pipe = match opened {
        Err(Errno::NXIO | Errno::NOENT) => return Err(no_reader(NO_READER)),
        opened => File::from(opened.context("open", path)?),
    };
    let until = Instant::now().checked_add(patience);
    let mut rest = bytes;
    while !rest.is_empty() {
        match pipe.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !wait_for(&pipe, PollFlags::OUT, until).context("wait for", path)? {
                    let taken = bytes.len() - rest.len();
                    return Err(no_reader(&format!("it took {taken} of {} bytes and no more", bytes.len())));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(no_reader(NO_READER)),
            Err(error) => return Err(error).context("write", path),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_reaches_the_reader_and_never_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let path = crate::cap_fs::at(dir.path()).join("stdin");
        let error = feed(&path, b"too early", Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), "nobody_listens");
        let mut input = TaskInputPipe::make(&path).unwrap();
        // The first input is written before the command opens the pipe.
        feed(&path, b"hello", Duration::ZERO).unwrap();
        let mut reader = File::open(path.path()).unwrap();
        input.ask();
        feed(&path, b" you", Duration::ZERO).unwrap();
        let mut output = [0; 9];
        reader.read_exact(&mut output).unwrap();
        assert_eq!(&output, b"hello you");
        // The input exceeds the size of any pipe, and no process reads it.
        let error = feed(&path, &vec![0; 4 << 20], Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("bytes and no more"), "{error}");
        drop(reader);
        // A child of another test may hold a copy of `reader` until the child's exec.
        let until = Instant::now() + Duration::from_secs(60);
        assert!(wait_for(&input._writer, PollFlags::empty(), Some(until)).unwrap(), "the reader is gone");
        let error = feed(&path, b"lost", Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), "nobody_listens");
    }
}
