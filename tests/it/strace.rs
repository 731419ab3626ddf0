//! System calls of one command: recorded, cut at, or made to fail.
//!
//! strace runs without `-f`, so it looks at the command itself and never at the turn that it starts. It does
//! not look at the command's threads either: all that these do is to sync, which a kill can't undo. A power
//! cut can, so recordings for power cuts follow the threads.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;

use crate::harness::{Ran, Sandbox, dormouse};

/// What changes something, or is a place where something else has just changed: the turn's end, the
/// command's own.
const TRACED: &str = "openat,openat2,open,creat,write,pwrite64,writev,rename,renameat,renameat2,link,linkat,\
    symlink,symlinkat,unlink,unlinkat,rmdir,mkdir,mkdirat,mknodat,fsync,fdatasync,syncfs,fallocate,ftruncate,truncate,flock,\
    chmod,fchmod,fchmodat,copy_file_range,sendfile,lseek,clone,clone3,fork,vfork,wait4,waitid,poll,\
    ppoll,pidfd_open,pidfd_send_signal,kill,exit_group";

/// Looked at, but not cut at: they change nothing.
const HARMLESS: &[&str] = &["lseek"];

/// One system call of a recording.
#[derive(Debug, Clone)]
pub struct Call {
    pub name: String,
    /// Which one of its name, from 1.
    pub nth: usize,
    /// The arguments and the result, as strace shows them, but with whole paths.
    pub rest: String,
    /// Seconds.
    pub at: f64,
}

impl Call {
    /// What it does, whichever call of several does that.
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

    /// Whether a cut here can differ from one at the call before.
    fn is_write_side(&self) -> bool {
        match self.act() {
            "open" => ["O_CREAT", "O_WRONLY", "O_RDWR"].iter().any(|flag| self.rest.contains(flag)),
            // A look in vain: how many there are is a matter of how busy the machine is.
            "poll" | "ppoll" => !self.rest.ends_with("= 0 (Timeout)"),
            "flock" => !self.rest.contains("= -1 EAGAIN"),
            name => !HARMLESS.contains(&name),
        }
    }

    /// Whether it adds a line to a journal, or marks one.
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

/// A command and its system calls in order.
pub struct Recording {
    pub calls: Vec<Call>,
}

impl Recording {
    /// Where to cut: every call that changes something, and those around which things change.
    pub fn points(&self) -> Vec<Call> {
        // Before main there is nothing to lose; the runtime looks at the standard streams there.
        let is_own = |call: &Call| call.is_write_side() && call.name != "poll";
        let first = self.calls.iter().position(is_own).unwrap_or(0);
        self.calls[first..].iter().filter(|call| call.is_write_side()).cloned().collect()
    }
}

/// What to do to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// SIGKILL at the entry: the call itself is not carried out any more.
    Kill,
    /// It fails with this error, and does nothing.
    Error(&'static str),
    /// It and every later one of its name fails.
    ErrorsFrom(&'static str),
}

impl Harm {
    /// The option of strace.
    pub fn option(self, call: &Call) -> String {
        let Call { name, nth, .. } = call;
        match self {
            Harm::Kill => format!("inject={name}:signal=SIGKILL:when={nth}"),
            Harm::Error(error) => format!("inject={name}:error={error}:when={nth}"),
            Harm::ErrorsFrom(error) => format!("inject={name}:error={error}:when={nth}+"),
        }
    }
}

/// A command that was harmed, and what it came to.
pub struct Harmed {
    pub ran: Ran,
    /// The calls that were harmed, as strace shows them. Runs differ a little in what they read, so
    /// it need not be the one that was asked for.
    pub hit: Vec<String>,
}

fn traced(sandbox: &Sandbox, args: &[&str], stdin: &str, options: &[&str]) -> (Ran, String) {
    let log = sandbox.root().join("strace.log");
    let mut line: Vec<OsString> = ["-qq", "-o"].iter().map(OsString::from).collect();
    line.push(log.clone().into());
    line.extend(options.iter().map(OsString::from));
    line.push(dormouse().into());
    line.extend(args.iter().map(OsString::from));
    let ran = sandbox.program("strace", line).stdin(stdin).output();
    assert!(!ran.stderr.contains("strace:"), "strace itself has trouble: {ran}");
    let text = fs::read_to_string(&log).unwrap();
    fs::remove_file(&log).unwrap();
    (ran, text)
}

/// Runs a command and records its calls. Times are those of the call's beginning.
pub fn record(sandbox: &Sandbox, args: &[&str], stdin: &str) -> Recording {
    record_inside(sandbox, &[], args, stdin)
}

/// The same with these variables (`NAME=VALUE`) set, as inside a turn.
pub fn record_inside(sandbox: &Sandbox, variables: &[String], args: &[&str], stdin: &str) -> Recording {
    let trace = format!("trace={TRACED}");
    let mut options = vec!["-ttt", "-y", "-s", "300", "-e", &trace];
    options.extend(variables.iter().flat_map(|variable| ["-E", variable.as_str()]));
    let (_, text) = traced(sandbox, args, stdin, &options);
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

/// Puts the path of a directory, which strace shows beside its descriptor, before a path that begins there.
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

/// How many system calls of each name a command makes that succeeds: all but those about memory, time
/// and processes, and those with which it waits for its turn. They differ from run to run.
pub fn calls(sandbox: &Sandbox, args: &[&str]) -> BTreeMap<String, usize> {
    const OTHERS: &str = "trace=!brk,mmap,munmap,mremap,mprotect,madvise,futex,clock_gettime,clock_nanosleep,\
        poll,ppoll,wait4,waitid,rt_sigreturn,sched_yield";
    let (ran, text) = traced(sandbox, args, "", &["-y", "-e", OTHERS]);
    assert_eq!(ran.code(), 0, "{args:?}: {ran}");
    // As long as its turn runs, a tick looks at the record of its agent; and at its own threads after it.
    let differs = |line: &str| line.contains("/proc/") || line.contains("/state.json");
    let mut calls = BTreeMap::new();
    for line in text.lines().filter(|line| !differs(line)) {
        if let Some((name, _)) = line.split_once('(') {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    calls
}

/// How many calls of this name a command makes that fails because of damage.
pub fn tried(sandbox: &Sandbox, args: &[&str], call: &str) -> usize {
    let (ran, text) = traced(sandbox, args, "", &["-e", &format!("trace={call}")]);
    assert_eq!(ran.code(), 6, "{args:?}: {ran}");
    text.lines().filter(|line| line.contains(&format!("{call}("))).count()
}

/// The calls of a command, and of all that it starts, that name a file, a line each: also those that fail.
pub fn named(sandbox: &Sandbox, args: &[&str]) -> String {
    let (ran, text) = traced(sandbox, args, "", &["-f", "-e", "trace=%file"]);
    assert_eq!(ran.code(), 0, "{args:?}: {ran}");
    text
}

/// Records everything that touches files, for a model of the disk: whole contents, in hexadecimal.
///
/// `harm`: what befalls it meanwhile.
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

/// The calls of the first process of a recording that followed others as well, each at the time
/// when it had its effect. Of its threads there are the syncs; no turn makes any.
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

/// Runs a command and harms it at one call.
pub fn harm(sandbox: &Sandbox, args: &[&str], stdin: &str, call: &Call, harm: Harm) -> Harmed {
    harm_inside(sandbox, &[], args, stdin, call, harm)
}

/// The same with these variables (`NAME=VALUE`) set, as inside a turn.
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
