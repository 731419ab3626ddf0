//! Runs one command and observes its end, its output, its use of resources, and the processes that
//! it leaves behind.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process, pidfd_open, prlimit};

use super::tree::Owner;

/// Processor time after which a command counts as hanging.
const PROCESSOR: Duration = Duration::from_secs(5);
/// Time after which every command counts as hanging; long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum memory of one process.
pub const MEMORY_KIB: i64 = 64 << 10;
/// Memory limit that the kernel enforces: far above `MEMORY_KIB`, and small enough for the machine.
const MEMORY_AT_ALL: u64 = 600 << 20;

/// Command line with its environment, stdin and directory.
#[derive(Debug, Clone, Default)]
pub struct Line {
    pub args: Vec<OsString>,
    pub env: Vec<(String, OsString)>,
    pub dir: PathBuf,
    pub stdin: Vec<u8>,
    /// Redirections in shell syntax, for instance `>&-`.
    pub redirections: String,
    /// True if the working directory is removed before the command begins.
    pub dir_goes: bool,
    /// True if the command may wait forever, so that it gets a signal after a moment.
    pub may_wait: bool,
}

impl Line {
    /// Returns the command line for a shell.
    pub fn shown(&self, program: &Path) -> String {
        let made =
            if self.dir_goes { format!("mkdir {} && ", quoted(self.dir.as_os_str())) } else { String::new() };
        let mut line = format!("{made}cd {} && ", quoted(self.dir.as_os_str()));
        if self.dir_goes {
            line.push_str("rmdir \"$PWD\" && ");
        }
        if !self.stdin.is_empty() {
            line.push_str(&format!("printf %s {} | ", quoted(OsStr::from_bytes(&self.stdin))));
        }
        line.push_str("env -i");
        for (name, value) in &self.env {
            line.push_str(&format!(" {name}={}", quoted(value)));
        }
        line.push_str(&format!(" {}", quoted(program.as_os_str())));
        for arg in &self.args {
            line.push_str(&format!(" {}", quoted(arg)));
        }
        format!("{line} {}", self.redirections)
    }
}

/// Quotes a word for bash. A long word is made by a command of the shell.
fn quoted(word: &OsStr) -> String {
    let bytes = word.as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:=,@+{}".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(is_plain) && bytes.len() < 1_000 {
        word.to_string_lossy().into_owned()
    } else if bytes.len() >= 1_000 && bytes.iter().all(|byte| *byte == bytes[0]) {
        format!("\"$(printf '{}%.0s' {{1..{}}})\"", bytes[0].escape_ascii(), bytes.len())
    } else {
        format!("$'{}'", bytes.escape_ascii().to_string().replace('\'', "\\'").replace("\\\\'", "\\'"))
    }
}

/// Result of a command.
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub peak_kib: i64,
    /// Reason why the command counts as hanging.
    pub stuck: Option<String>,
    /// True if the command got a signal to end.
    pub was_told: bool,
    /// Descriptions of leftover processes that have crashed or used too much memory.
    pub left: Vec<String>,
}

/// Settings for all commands of a worker.
pub struct Place {
    pub program: PathBuf,
    /// User of the commands, if the tests run as root.
    pub owner: Owner,
    /// Path of the files for stdin, stdout and stderr, without extension.
    pub streams: PathBuf,
    /// Number of commands that have run, and maximum memory of one command.
    pub commands: Cell<u64>,
    pub peak_kib: Cell<i64>,
}

impl Place {
    /// Runs a command, and waits for the processes that it leaves behind.
    pub fn run(&self, line: &Line) -> Ran {
        let pid = self.start(line);
        if line.dir_goes {
            fs::remove_dir(&line.dir).unwrap();
        }
        let (stuck, was_told) = watch(pid, line.may_wait);
        let (status, peak_kib) = wait(Some(pid)).expect("it is our child");
        let left = reap();
        self.commands.set(self.commands.get() + 1);
        self.peak_kib.set(self.peak_kib.get().max(peak_kib));
        Ran {
            status,
            stdout: fs::read(self.stream("stdout")).unwrap(),
            stderr: fs::read(self.stream("stderr")).unwrap(),
            peak_kib,
            stuck,
            was_told,
            left,
        }
    }

    fn start(&self, line: &Line) -> Pid {
        let mut command = if line.redirections.is_empty() && !line.dir_goes {
            Command::new(&self.program)
        } else {
            let patience = if line.dir_goes { "until [ ! -e \"$PWD\" ]; do :; done; " } else { "" };
            let mut shell = Command::new("/bin/sh");
            shell
                .arg("-c")
                .arg(format!("{patience}exec \"$0\" \"$@\" {}", line.redirections))
                .arg(&self.program);
            shell
        };
        command.args(&line.args).env_clear().envs(line.env.iter().map(|(name, value)| (name, value)));
        command.current_dir(&line.dir);
        if line.stdin.is_empty() {
            command.stdin(Stdio::null());
        } else {
            fs::write(self.stream("stdin"), &line.stdin).unwrap();
            command.stdin(File::open(self.stream("stdin")).unwrap());
        }
        command.stdout(File::create(self.stream("stdout")).unwrap());
        command.stderr(File::create(self.stream("stderr")).unwrap());
        if let Some(owner) = self.owner {
            command.uid(owner).gid(owner);
        }
        let started = command.spawn().map(|child| Pid::from_child(&child));
        started.unwrap_or_else(|error| panic!("{}: {error}", line.shown(&self.program)))
    }

    /// Returns the path of the file that serves as stdin, stdout or stderr of the command.
    fn stream(&self, ending: &str) -> PathBuf {
        self.streams.with_extension(ending)
    }
}

/// Waits for the end of a process. Returns the reason if the process hung and was killed, and true
/// if it got the signal that ends commands which may wait forever (`may_wait`).
fn watch(pid: Pid, may_wait: bool) -> (Option<String>, bool) {
    let most = |most| Rlimit { current: Some(most), maximum: Some(most) };
    let _ = prlimit(Some(pid), Resource::Data, most(MEMORY_AT_ALL));
    let _ = prlimit(Some(pid), Resource::Core, most(0));
    let handle = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let began = Instant::now();
    let mut was_told = false;
    loop {
        let first = if may_wait && !was_told { 300 } else { 1_000 };
        let timeout = Timespec { tv_sec: first / 1_000, tv_nsec: (first % 1_000) * 1_000_000 };
        let ended =
            poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0);
        if ended {
            return (None, was_told);
        }
        if may_wait && !was_told {
            was_told = true;
            let _ = kill_process(pid, Signal::TERM);
        }
        let (taken, waited) = (processor_time(pid), began.elapsed());
        if taken > PROCESSOR || waited > PATIENCE {
            let where_it_is = fs::read_to_string(format!("/proc/{}/wchan", pid.as_raw_nonzero()));
            let _ = kill_process(pid, Signal::KILL);
            let stuck = format!(
                "not at its end after {waited:.0?} and {taken:.1?} of processor; in {}",
                where_it_is.unwrap_or_default()
            );
            return (Some(stuck), was_told);
        }
    }
}

/// Returns the processor time of a process.
fn processor_time(pid: Pid) -> Duration {
    let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // The name in brackets may have any characters; the fields from the third on follow it.
    let fields = text.rsplit_once(") ").map(|(_, fields)| fields).unwrap_or_default();
    let ticks: u64 = fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Waits for the end of a child, or of any ended child if `child` is `None`. Returns its status and
/// its maximum memory in KiB.
fn wait(child: Option<Pid>) -> Option<(ExitStatus, i64)> {
    let (pid, options) = match child {
        Some(child) => (child.as_raw_nonzero().get(), 0),
        None => (-1, libc::WNOHANG),
    };
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are valid for the writes of the call, and `rusage` may be all zeroes.
    let waited = unsafe { libc::wait4(pid, &mut status, options, usage.as_mut_ptr()) };
    // SAFETY: all zeroes is a valid `rusage`.
    let usage = unsafe { usage.assume_init() };
    (waited > 0).then(|| (ExitStatus::from_raw(status), usage.ru_maxrss))
}

/// Waits for the leftover processes of a command, which are children of this process now, and kills
/// those that do not end. Describes each that crashed or used too much memory.
fn reap() -> Vec<String> {
    let mut bad = Vec::new();
    let began = Instant::now();
    loop {
        while let Some((status, peak)) = wait(None) {
            let crashed =
                status.signal().is_some_and(|signal| ![libc::SIGKILL, libc::SIGTERM].contains(&signal));
            if crashed || status.code() == Some(101) || peak > MEMORY_KIB {
                bad.push(format!("{status}, {peak} KiB"));
            }
        }
        let children = children();
        if children.is_empty() {
            return bad;
        }
        if began.elapsed() > Duration::from_secs(1) {
            for child in children {
                let _ = kill_process(child, Signal::KILL);
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn children() -> Vec<Pid> {
    let mut children = Vec::new();
    for thread in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        children.extend(text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    children
}
