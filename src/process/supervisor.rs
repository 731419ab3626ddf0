//! Supervisor of one background task: its start in a session of its own, and the pipe for the input
//! of an interactive task.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::patience::{poll, wait_for};
use super::turn::{Fate, Monitor};
use super::{PLACE, RUN, SUPERVISOR, TASK, spawn};
use crate::beneath::Spot;
use crate::error::{Error, IoContext, Result};
use crate::model::place::PlaceId;

/// Word that a supervisor writes to its starter once it has begun. Anything else is the reason why
/// it has not.
const BEGUN: &str = "begun";

/// Number of times that `feed` looks for the pipe of a running task that has not created it yet,
/// and the pause between two looks.
const LOOKS: u32 = 100;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Supervisor to start.
pub struct SupervisorSpec<'s> {
    /// Arguments of this program.
    pub arguments: &'s [OsString],
    pub dir: &'s Path,
    pub task_id: String,
    pub place: PlaceId,
}

/// Starts this program as the supervisor of a task, in a session of its own. Returns when the
/// supervisor reports its begin, or after `patience`. The supervisor gets the task's lock as its
/// stdin, so that the lock is held without a gap. The inner error is the one that the supervisor
/// reports.
pub fn start(
    spec: &SupervisorSpec<'_>,
    lock: File,
    patience: Duration,
) -> Result<std::result::Result<(), String>> {
    let program = std::env::current_exe().context("find", Path::new("this program"))?;
    let mut command = Command::new(&program);
    spawn::give_back(&mut command);
    let mut child = command
        .args(spec.arguments)
        .current_dir(spec.dir)
        .env_remove(RUN)
        .env_remove(TASK)
        .env(SUPERVISOR, &spec.task_id)
        .env(PLACE, spec.place.to_string())
        .stdin(lock)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("run", &program)?;
    let mut said = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        let whole = hear(pipe, &mut said, Instant::now().checked_add(patience));
        if !whole.context("hear from", &program)? {
            // The supervisor lives and holds the lock, but is blocked. It will begin when it can.
            return Ok(Ok(()));
        }
    }
    // The supervisor is not reaped, because it outlives this process.
    Ok(match String::from_utf8_lossy(&said).trim_end() {
        BEGUN => Ok(()),
        "" => Err("it ended without saying why".to_owned()),
        trouble => Err(trouble.to_owned()),
    })
}

/// Reads to the end of the pipe. Returns false if the end does not come before `until`.
fn hear(mut pipe: impl Read + AsFd, said: &mut Vec<u8>, until: Option<Instant>) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    while wait_for(&pipe, PollFlags::IN, until)? {
        match pipe.read(&mut buffer)? {
            0 => return Ok(true),
            length => said.extend_from_slice(&buffer[..length]),
        }
    }
    Ok(false)
}

/// This process as a new supervisor.
#[derive(Debug)]
pub struct Seat {
    starter: Option<File>,
    /// Word for the starter once the supervisor has begun.
    begun: String,
}

impl Seat {
    /// Moves this process into a session of its own, and returns the lock that it got as stdin.
    /// After that it shares nothing with its starter except the pipe to it. `begun` replaces the
    /// usual word for the starter.
    pub fn take(begun: Option<String>) -> Result<(Seat, File)> {
        let this = Path::new("this process");
        // This fails only for the leader of a group, which signals to the starter's group don't
        // reach anyway.
        let _ = rustix::process::setsid();
        let lock = spawn::take_stdin()?;
        let starter = io::stdout().as_fd().try_clone_to_owned().context("keep the stdout of", this)?;
        rustix::stdio::dup2_stdout(spawn::null()?).context("replace the stdout of", this)?;
        let begun = begun.unwrap_or_else(|| BEGUN.to_owned());
        Ok((Seat { starter: Some(File::from(starter)), begun }, lock))
    }

    /// Tells the starter that the supervisor has begun.
    pub fn begun(&mut self) {
        let begun = std::mem::take(&mut self.begun);
        self.say(&begun);
    }

    /// Tells the starter why the supervisor has not begun.
    pub fn not_begun(&mut self, why: &str) {
        self.say(why);
    }

    fn say(&mut self, word: &str) {
        if let Some(mut starter) = self.starter.take() {
            // The starter may have ended meanwhile.
            let _ = writeln!(starter, "{word}");
        }
    }
}

/// The supervisor's end of the pipe from which a task reads its input.
pub struct TaskInputPipe {
    /// Held until the command has opened the pipe itself, so that earlier input is kept.
    reader: Option<OwnedFd>,
    /// While this is open, the command sees no end of its input when another writer closes the
    /// pipe.
    writer: OwnedFd,
}

/// Result of writing to a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// Number of bytes written. There is no room for more now.
    Some(usize),
    /// No command reads the pipe.
    Closed,
}

impl TaskInputPipe {
    pub fn make(spot: &Spot) -> Result<TaskInputPipe> {
        spot.make_pipe()?;
        // Opening a pipe for writing, without waiting, fails if the pipe has no reader.
        let reader = spot.open_pipe(OFlags::RDONLY)?.context("open", spot)?;
        let writer = spot.open_pipe(OFlags::WRONLY)?.context("open", spot)?;
        Ok(TaskInputPipe { reader: Some(reader), writer })
    }

    /// True if a command reads the pipe, or will.
    pub fn is_read(&self) -> bool {
        let mut fds = [PollFd::new(&self.writer, PollFlags::OUT)];
        let asked = poll(&mut fds, Some(Instant::now()));
        asked.is_err() || !fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }

    /// Writes as much as there is room for, without blocking.
    pub fn write(&self, bytes: &[u8]) -> Written {
        let mut count = 0;
        while count < bytes.len() {
            match rustix::io::write(&self.writer, &bytes[count..]) {
                Ok(some) => count += some,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE) => return Written::Closed,
                // There is no room, or the pipe can't be written now.
                Err(_) => break,
            }
        }
        Written::Some(count)
    }
}

/// Never ends the task. Called after the command has started, when only the command is to read the
/// pipe.
impl Monitor for TaskInputPipe {
    fn ask(&mut self) -> Fate {
        self.reader = None;
        Fate::GoesOn { ask_again: None }
    }
}

/// Writes to the input of a task. Refused as `nobody_listens` if no command reads the pipe, or if
/// the command has not read all of it after `patience`.
pub fn feed(path: &Spot, bytes: &[u8], patience: Duration) -> Result<()> {
    let nobody = |why: &str| {
        Error::refused("nobody_listens", format!("{}: {why}", path.display()))
            .with_hint("`dormouse task status` shows whether it still runs")
    };
    let mut looks = 1;
    let mut pipe = loop {
        match path.open_pipe(OFlags::WRONLY)? {
            Ok(pipe) => break File::from(pipe),
            Err(Errno::NXIO | Errno::NOENT) if looks < LOOKS => {
                std::thread::sleep(BETWEEN_LOOKS);
                looks += 1;
            }
            Err(Errno::NXIO) => {
                return Err(nobody("no process reads it: the command has closed its stdin or ended"));
            }
            Err(Errno::NOENT) => {
                return Err(nobody("the pipe does not exist yet: the command has not begun"));
            }
            Err(errno) => return Err(errno).context("open", path),
        }
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
                    return Err(nobody(&format!("it took {taken} of {} bytes and no more", bytes.len())));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Err(nobody("the command has closed its stdin"));
            }
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
        let path = crate::beneath::at(dir.path()).join("stdin");
        let error = feed(&path, b"too early", Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), "nobody_listens");
        let mut input = TaskInputPipe::make(&path).unwrap();
        assert!(input.is_read(), "what is written before the command is there is kept");
        // Before the command is there.
        feed(&path, b"hello", Duration::ZERO).unwrap();
        let mut reader = File::open(path.path()).unwrap();
        input.ask();
        feed(&path, b" you", Duration::ZERO).unwrap();
        let mut said = [0; 9];
        reader.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"hello you");
        // The supervisor itself writes what it is told elsewhere.
        assert_eq!(input.write(b" too"), Written::Some(4));
        let mut said = [0; 4];
        reader.read_exact(&mut said).unwrap();
        assert_eq!(&said, b" too");
        assert!(input.is_read());
        let much = vec![0; 4 << 20];
        let Written::Some(count) = input.write(&much) else { panic!("somebody reads") };
        assert!(0 < count && count < much.len() && input.write(&much) == Written::Some(0));
        // More than any pipe holds.
        let error = feed(&path, &vec![0; 4 << 20], Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("bytes and no more"), "{error}");
        drop(reader);
        // A child that another test starts holds a copy of every descriptor until it runs its
        // program.
        let until = Instant::now() + Duration::from_secs(60);
        assert!(wait_for(&input.writer, PollFlags::empty(), Some(until)).unwrap(), "the reader is gone");
        assert!(!input.is_read());
        assert_eq!(input.write(b"lost"), Written::Closed);
        let error = feed(&path, b"lost", Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), "nobody_listens");
    }
}
