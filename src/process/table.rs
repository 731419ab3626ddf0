//! Handles of processes, and processes in /proc: parent, group, start time, environment.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, getpid};

use super::SUPERVISOR;
use crate::error::{Error, IoContext, Result};
use crate::model::id::TaskId;

/// Fields of /proc/PID/stat that this program uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStat {
    pub pid: Pid,
    pub parent: i32,
    pub group: i32,
    /// True if the process has ended, and only waits for its parent to read the exit status.
    pub zombie: bool,
    /// Start time in clock ticks since the boot. Start time and pid identify a process for the
    /// whole boot.
    pub start: u64,
}

impl ProcessStat {
    /// Returns `None` if the process does not exist or the kernel hides it.
    pub fn read(pid: Pid) -> Option<ProcessStat> {
        ProcessStat::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    pub fn is_same(&self, other: &ProcessStat) -> bool {
        self.pid == other.pid && self.start == other.start
    }

    /// Parses a line of /proc/PID/stat. The program's name is in parentheses and may itself contain
    /// spaces and parentheses, so fields are counted from the last closing parenthesis.
    pub fn parse(line: &[u8]) -> Option<ProcessStat> {
        let name_starts = line.iter().position(|byte| *byte == b'(')?;
        let name_ends = line.iter().rposition(|byte| *byte == b')')?;
        let pid = std::str::from_utf8(&line[..name_starts]).ok()?.trim();
        let mut fields = std::str::from_utf8(&line[name_ends + 1..]).ok()?.split_ascii_whitespace();
        let state = fields.next()?;
        Some(ProcessStat {
            pid: pid_of(pid)?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            zombie: matches!(state, "Z" | "X"),
            // The start time is field 22 of the line. The state, the parent and the group are
            // fields 3 to 5.
            start: fields.nth(16)?.parse().ok()?,
        })
    }
}

/// Opens a descriptor that always refers to `pid`, and is readable when that process ends.
pub fn open(pid: Pid) -> rustix::io::Result<OwnedFd> {
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
}

/// Returns every visible process.
pub fn all() -> Result<Vec<ProcessStat>> {
    let proc = Path::new("/proc");
    let mut processes = Vec::new();
    for entry in fs::read_dir(proc).context("list", proc)? {
        let name = entry.context("list", proc)?.file_name();
        processes.extend(name.to_str().and_then(pid_of).and_then(ProcessStat::read));
    }
    Ok(processes)
}

/// Returns the children of this process. The list is exact: a child remains in it until this
/// process reaps the child.
pub fn children() -> Result<Vec<Pid>> {
    let tasks = Path::new("/proc/self/task");
    let mut children = Vec::new();
    for entry in fs::read_dir(tasks).context("list", tasks)? {
        let list = entry.context("list", tasks)?.path().join("children");
        match fs::read_to_string(&list) {
            Ok(pids) => children.extend(pids.split_ascii_whitespace().filter_map(pid_of)),
            // This kernel was built without lists of children.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let is_own = |process: &&ProcessStat| process.parent == getpid().as_raw_pid();
                return Ok(all()?.iter().filter(is_own).map(|process| process.pid).collect());
            }
            Err(error) => return Err(error).context("read", &list),
        }
    }
    Ok(children)
}

/// Initial environment of a process; empty if the process has ended or belongs to another user.
pub struct Environment(Vec<u8>);

impl Environment {
    pub fn of(pid: Pid) -> Environment {
        Environment(fs::read(format!("/proc/{pid}/environ")).unwrap_or_default())
    }

    pub fn is(&self, name: &str, value: &str) -> bool {
        self.values(name).any(|found| found == value.as_bytes())
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.0
            .split(|byte| *byte == 0)
            .filter_map(move |entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }
}

/// True if a process supervises a background task. Any process can have the supervisor's variable,
/// but only a supervisor also holds the lock of that task.
pub fn supervises(pid: Pid) -> bool {
    let environment = Environment::of(pid);
    let task = |value: &[u8]| std::str::from_utf8(value).ok()?.parse::<TaskId>().ok();
    environment.values(SUPERVISOR).filter_map(task).any(|task| holds_lock(pid, &format!("{task}.lock")))
}

/// True if a process holds the exclusive lock on a file of this name. The kernel lists a lock with
/// the descriptor through which the lock was taken, also in a process that inherited the
/// descriptor.
fn holds_lock(pid: Pid, name: &str) -> bool {
    let Ok(descriptors) = fs::read_dir(process_path(pid).join("fd")) else { return false };
    descriptors.flatten().any(|descriptor| {
        let is_of_file = fs::read_link(descriptor.path()).is_ok_and(|file| file.ends_with(name));
        let info = process_path(pid).join("fdinfo").join(descriptor.file_name());
        is_of_file && fs::read_to_string(info).is_ok_and(|info| info.lines().any(is_exclusive_lock))
    })
}

/// True for a line such as `lock:  1: FLOCK  ADVISORY  WRITE 4711 fe:01:131 0 EOF`.
fn is_exclusive_lock(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    words.next() == Some("lock:") && words.nth(1) == Some("FLOCK") && words.nth(1) == Some("WRITE")
}

fn pid_of(text: &str) -> Option<Pid> {
    text.parse().ok().filter(|pid| *pid > 0).and_then(Pid::from_raw)
}

/// Returns the directory of a process in /proc.
pub fn process_path(pid: Pid) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// Returns the error for a process that exists even after SIGKILL.
pub fn cannot_kill(pid: Pid, run_id: &str) -> Error {
    Error::failed(format!("process {pid} of {run_id} does not end, not even by SIGKILL"))
        .with_hint(format!("look at it with `ps -o pid,user,stat,wchan:30,args -p {pid}`, then try again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        "42 (a) b (c) S 7 40 39 0 -1 4194560 1544 28083 2 22 0 1 16 4 20 0 1 0 132282 5124096 936";

    #[test]
    fn a_process_name_with_parentheses_is_parsed() {
        let process = ProcessStat::parse(LINE.as_bytes()).unwrap();
        assert_eq!(
            process,
            ProcessStat { pid: pid_of("42").unwrap(), parent: 7, group: 40, zombie: false, start: 132_282 }
        );
    }

    #[test]
    fn a_malformed_stat_line_is_refused() {
        for line in ["", "(", ")(", "42 (a", "42 (a) S", "0 (a) S 1 2 3", "-5 (a) S 1", "x (y) Z 1 1"] {
            assert_eq!(ProcessStat::parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(ProcessStat::parse(&LINE.as_bytes()[..60]), None);
    }

    #[test]
    fn this_process_is_in_the_table() {
        let this = rustix::process::getpid();
        let process = ProcessStat::read(this).unwrap();
        assert_eq!(process.group, rustix::process::getpgrp().as_raw_pid());
        assert!(all().unwrap().iter().any(|other| other.pid == this && other.start == process.start));
    }

    #[test]
    fn an_environment_is_searched_by_whole_entries() {
        let environment = Environment(b"A=1\0XB=2\0B=run_1\0C\0".to_vec());
        assert!(environment.is("A", "1") && environment.is("XB", "2"));
        assert!(!environment.is("X", "") && !environment.is("C", ""));
        assert!(environment.is("B", "run_1"));
        assert!(!environment.is("B", "run_") && !environment.is("B", "run_11") && !environment.is("B", "2"));
    }
}
