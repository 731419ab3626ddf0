//! Records the system calls of a command, kills the command at a call, or makes a call fail.
//!
//! strace runs without `-f`: it sees neither the turn that a command starts nor the command's
//! threads. These threads only sync files, which matters only for a power cut, so recordings for
//! power cuts follow the threads.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;

use crate::harness::{Ran, Sandbox, dormouse};

/// System calls to record: those that change files or processes, that wait for the turn, or that
/// exit.
const TRACED: &str = "openat,openat2,open,creat,write,pwrite64,writev,rename,renameat,renameat2,link,linkat,\
    symlink,symlinkat,unlink,unlinkat,rmdir,mkdir,mkdirat,mknodat,fsync,fdatasync,syncfs,fallocate,ftruncate,truncate,flock,\
    chmod,fchmod,fchmodat,copy_file_range,sendfile,lseek,clone,clone3,fork,vfork,wait4,waitid,poll,\
    ppoll,pidfd_open,pidfd_send_signal,kill,exit_group";

/// Recorded calls that change nothing, so that no test interrupts them.
const HARMLESS: &[&str] = &["lseek"];

/// System call in a recording.
#[derive(Debug, Clone)]
pub struct Call {
    pub name: String,
    /// Number of the call among those of the same name, from 1.
    pub nth: usize,
    /// Arguments and result as strace prints them, with absolute paths.
    pub rest: String,
    /// Time at which the call began, in seconds since 1970.
    pub at: f64,
}

impl Call {
    /// Name of the operation, equal for all variants of a call: `open` for `openat2`.
    pub fn act(&self) -> &str {
        match self.name.as_str() {
            "openat" | "openat2" => "open",
            "renameat" | "renameat2" => "rename",
            "unlinkat" if self.rest.contains("AT_REMOVEDIR") => "rmdir",
            "unlinkat" => "unlink",
            "mkdirat" => "mkdir",
            name => name,
        }
    }

    /// True if a kill at this call can differ in effect from a kill at the call before.
    fn is_write_side(&self) -> bool {
        match self.act() {
            "open" => ["O_CREAT", "O_WRONLY", "O_RDWR"].iter().any(|flag| self.rest.contains(flag)),
            // The number of polls without an event depends on the load of the machine.
            "poll" | "ppoll" => !self.rest.ends_with("= 0 (Timeout)"),
            "flock" => !self.rest.contains("= -1 EAGAIN"),
            name => !HARMLESS.contains(&name),
        }
    }

    /// True if the call appends a line to a journal, or marks a line as applied.
    pub fn is_about_journal(&self) -> bool {
        self.act() == "pwrite64" && self.rest.contains("/journal.jsonl")
    }

    pub fn is_about_end_note(&self) -> bool {
        self.act() == "rename" && self.rest.contains("/end.json\"")
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rest: String = self.rest.chars().take(160).collect();
        write!(f, "{} #{}: {}({rest}", self.name, self.nth, self.name)
    }
}

/// System calls of a command, in order.
pub struct Recording {
    pub calls: Vec<Call>,
}

impl Recording {
    /// Returns the calls to interrupt: those whose interruption can make a difference.
    pub fn points(&self) -> Vec<Call> {
        // Before `main` the runtime polls the standard streams, when nothing can be lost yet.
        let is_own = |call: &Call| call.is_write_side() && call.name != "poll";
        let first = self.calls.iter().position(is_own).unwrap_or(0);
        self.calls[first..].iter().filter(|call| call.is_write_side()).cloned().collect()
    }
}

/// Fault that strace injects at a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// SIGKILL before the system call, which has no effect.
    Kill,
    /// The system call fails with this error, and has no effect.
    Error(&'static str),
    /// The system call and all later calls of the same name fail with this error.
    ErrorsFrom(&'static str),
}

impl Harm {
    /// Returns the option of strace that injects this fault at the given call.
    pub fn option(self, call: &Call) -> String {
        let Call { name, nth, .. } = call;
        match self {
            Harm::Kill => format!("inject={name}:signal=SIGKILL:when={nth}"),
            Harm::Error(error) => format!("inject={name}:error={error}:when={nth}"),
            Harm::ErrorsFrom(error) => format!("inject={name}:error={error}:when={nth}+"),
        }
    }
}

/// Result of a command with an injected fault.
pub struct Harmed {
    pub ran: Ran,
    /// System calls that got the fault, as strace prints them. strace counts calls by name, and
    /// runs differ in what they read, so it may hit another call than the recorded one.
    pub hit: Vec<String>,
}

fn traced(sandbox: &Sandbox, args: &[&str], stdin: &str, options: &[&str]) -> (Ran, String) {
    traced_line(sandbox, &own_line(args), stdin, options)
}

/// Returns the command line that runs dormouse with these arguments.
pub fn own_line(args: &[&str]) -> Vec<OsString> {
    std::iter::once(dormouse().into()).chain(args.iter().map(OsString::from)).collect()
}

fn traced_line(sandbox: &Sandbox, program: &[OsString], stdin: &str, options: &[&str]) -> (Ran, String) {
    let log = sandbox.root().join("strace.log");
    let mut line: Vec<OsString> = ["-qq", "-o"].iter().map(OsString::from).collect();
    line.push(log.clone().into());
    line.extend(options.iter().map(OsString::from));
    line.extend(program.iter().cloned());
    let ran = sandbox.program("strace", line).stdin(stdin).output();
    assert!(!ran.stderr.contains("strace:"), "strace itself has trouble: {ran}");
    let text = fs::read_to_string(&log).unwrap();
    fs::remove_file(&log).unwrap();
    (ran, text)
}

/// Runs a command and records its system calls.
pub fn record(sandbox: &Sandbox, args: &[&str], stdin: &str) -> Recording {
    record_inside(sandbox, &[], args, stdin)
}

/// Runs a command with `variables` (`NAME=VALUE`), as in a turn, and records its system calls.
pub fn record_inside(sandbox: &Sandbox, variables: &[String], args: &[&str], stdin: &str) -> Recording {
    record_line(sandbox, variables, &own_line(args), stdin)
}

/// Runs a program with its arguments, which may start dormouse by `exec`, and records its system
/// calls.
pub fn record_line(sandbox: &Sandbox, variables: &[String], line: &[OsString], stdin: &str) -> Recording {
    let trace = format!("trace={TRACED}");
    let mut options = vec!["-ttt", "-y", "-s", "300", "-e", &trace];
    options.extend(variables.iter().flat_map(|variable| ["-E", variable.as_str()]));
    let (_, text) = traced_line(sandbox, line, stdin, &options);
    let mut calls: Vec<Call> = Vec::new();
    for line in text.lines() {
        let Some((at, line)) = line.split_once(' ') else { continue };
        let Some((name, rest)) = line.split_once('(') else { continue };
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        let nth = calls.iter().filter(|call| call.name == name).count() + 1;
        let at = at.parse().unwrap_or(0.0);
        calls.push(Call { name: name.to_owned(), nth, rest: with_whole_paths(rest), at });
    }
    assert!(calls.iter().any(|call| call.name == "exit_group"), "not a whole recording: {text}");
    Recording { calls }
}

/// Makes each relative path absolute, with the directory that strace prints after the descriptor.
fn with_whole_paths(rest: &str) -> String {
    let mut whole = String::new();
    let mut left = rest;
    while let Some(at) = left.find(">, \"") {
        let begin = left[..at].rfind('<').unwrap_or(0);
        let number = left[..begin].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
        if number == begin || left[at + 4..].starts_with('/') {
            whole.push_str(&left[..at + 4]);
        } else {
            whole.push_str(&left[..number]);
            whole.push_str(&format!("\"{}/", &left[begin + 1..at]));
        }
        left = &left[at + 4..];
    }
    whole + left
}

/// Counts the system calls of a command that must succeed. Leaves out calls that differ from run to
/// run: those for memory, time and processes, and those that wait for the turn.
pub fn calls(sandbox: &Sandbox, args: &[&str]) -> BTreeMap<String, usize> {
    const OTHERS: &str = "trace=!brk,mmap,munmap,mremap,mprotect,madvise,futex,clock_gettime,clock_nanosleep,\
        poll,ppoll,wait4,waitid,rt_sigreturn,sched_yield";
    let (ran, text) = traced(sandbox, args, "", &["-y", "-e", OTHERS]);
    assert_eq!(ran.code(), 0, "{args:?}: {ran}");
    // A tick polls `state.json` while its turn runs, and then its own threads in `/proc`.
    let differs = |line: &str| line.contains("/proc/") || line.contains("/state.json");
    let mut calls = BTreeMap::new();
    for line in text.lines().filter(|line| !differs(line)) {
        if let Some((name, _)) = line.split_once('(') {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    calls
}

/// Counts the calls of the given name in a command that must fail because of damaged files.
pub fn tried(sandbox: &Sandbox, args: &[&str], call: &str) -> usize {
    let (ran, text) = traced(sandbox, args, "", &["-e", &format!("trace={call}")]);
    assert_eq!(ran.code(), 6, "{args:?}: {ran}");
    text.lines().filter(|line| line.contains(&format!("{call}("))).count()
}

/// Returns all system calls on file names, including failed ones, of a command and its children.
pub fn named(sandbox: &Sandbox, args: &[&str]) -> String {
    let (ran, text) = traced(sandbox, args, "", &["-f", "-e", "trace=%file"]);
    assert_eq!(ran.code(), 0, "{args:?}: {ran}");
    text
}

/// Records all calls on files, with complete contents in hexadecimal, for a model of the disk.
///
/// `harm`: fault to inject.
pub fn record_files(
    sandbox: &Sandbox,
    args: &[&str],
    stdin: &str,
    harm: Option<(&Call, Harm)>,
) -> (Ran, String) {
    let trace = format!("trace={TRACED},close");
    let mut options = vec!["-f", "-y", "-xx", "-s", "100000000", "-e", &trace];
    let option = harm.map(|(call, harm)| harm.option(call));
    if let Some(option) = &option {
        options.extend(["-e", option]);
    }
    let (ran, text) = traced(sandbox, args, stdin, &options);
    (ran, of_one_process(&text))
}

/// Returns the calls of the main thread, and all syncs, each at the time of its end. Turns do not
/// sync, so every sync belongs to a thread of the command.
fn of_one_process(text: &str) -> String {
    let mut unfinished: HashMap<&str, &str> = HashMap::new();
    let mut calls = String::new();
    let main = text.split(' ').next().unwrap_or_default();
    for line in text.lines() {
        let Some((pid, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        let whole = if let Some(begun) = call.strip_suffix(" <unfinished ...>") {
            unfinished.insert(pid, begun);
            continue;
        } else if let Some(resumed) = call.strip_prefix("<... ") {
            let begun = unfinished.remove(pid).unwrap_or_default();
            let end = resumed.split_once(" resumed>").map_or("", |(_, end)| end);
            format!("{begun}{end}\n")
        } else {
            format!("{call}\n")
        };
        if pid == main || whole.starts_with("fsync(") || whole.starts_with("fdatasync(") {
            calls.push_str(&whole);
        }
    }
    calls
}

/// Runs a command and injects a fault at one system call.
pub fn harm(sandbox: &Sandbox, args: &[&str], stdin: &str, call: &Call, harm: Harm) -> Harmed {
    harm_inside(sandbox, &[], args, stdin, call, harm)
}

/// Runs a command with `variables` (`NAME=VALUE`), as in a turn, and a fault at one system call.
pub fn harm_inside(
    sandbox: &Sandbox,
    variables: &[String],
    args: &[&str],
    stdin: &str,
    call: &Call,
    harm: Harm,
) -> Harmed {
    let (trace, option) = (format!("trace={}", call.name), harm.option(call));
    let mut options = vec!["-y", "-s", "300", "-e", &trace, "-e", &option];
    options.extend(variables.iter().flat_map(|variable| ["-E", variable.as_str()]));
    let (ran, text) = traced(sandbox, args, stdin, &options);
    let hit = match harm {
        Harm::Kill if ran.code() == 137 => {
            text.lines().rfind(|line| line.ends_with("= ?")).map(str::to_owned).into_iter().collect()
        }
        Harm::Kill => Vec::new(),
        Harm::Error(_) | Harm::ErrorsFrom(_) => {
            text.lines().filter(|line| line.ends_with("(INJECTED)")).map(str::to_owned).collect()
        }
    };
    Harmed { ran, hit }
}
