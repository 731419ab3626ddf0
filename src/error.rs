//! Errors, each with its message, hint and exit status.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use thiserror::Error;

/// Errors that end a command early. Each variant is one type of failure.
#[derive(Debug, Error)]
pub enum Error {
    /// A call of the operating system failed.
    #[error("can't {action} {}: {}", path.display(), describe(source))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{message}")]
    Usage { message: String, hint: Option<String> },
    #[error("no state directory here: looked for .dormouse in {} and every directory above it", start.display())]
    NoStore { start: PathBuf },
    #[error("{} is not a state directory: it has no dormouse.toml", path.display())]
    NotAStore { path: PathBuf },
    #[error("no agent `{agent}`")]
    /// No agent has this name. `known`: existing agents, if readable; `renamed`: its new name.
    NoAgent { agent: String, known: Option<Vec<String>>, renamed: Option<String> },
    #[error("no {what} `{id}`")]
    NoRecord { what: &'static str, id: String },
    /// The rules refuse the request. `is_usage`: the request would be refused for any records.
    /// `edge`: two states between which the state machine has no transition.
    #[error("{message}")]
    Refused {
        kind: &'static str,
        message: String,
        hint: Option<String>,
        is_usage: bool,
        edge: Option<Box<(&'static str, &'static str)>>,
    },
    #[error("{} is locked by {holder}; waited {waited_ms} ms", path.display())]
    Busy { path: PathBuf, holder: String, waited_ms: u64 },
    /// A record can't be read. Such a record is never overwritten and never treated as empty.
    #[error("{}{}: {message}", path.display(), place(*line, *column))]
    Damaged { path: PathBuf, line: usize, column: usize, message: String, hint: Option<String> },
    #[error("{} is written in {found}, newer than the {known} that this dormouse reads", path.display())]
    Newer { path: PathBuf, found: String, known: String },
    /// A failure outside this program: git, a template, a process that does not end, a database,
    /// the time limit of the command `await`. `kind` is a word for scripts.
    #[error("{message}")]
    Failed { status: Status, kind: &'static str, message: String, hint: Option<String> },
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Returns the text of a system error for use in a sentence: in lower case, without its number.
pub fn describe(source: &io::Error) -> String {
    let text = source.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

fn place(line: usize, column: usize) -> String {
    match (line, column) {
        (0, _) => String::new(),
        (line, 0) => format!(":{line}"),
        (line, column) => format!(":{line}:{column}"),
    }
}

/// Exit statuses of all commands (contract, command line §1), the most severe last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Done,
    NothingDone,
    PleaseYield,
    /// Exit status of a command that dormouse has run in the foreground.
    OfCommand(u8),
    TimedOut,
    Usage,
    NotFound,
    Refused,
    Busy,
    TurnFailed,
    Failed,
    Damaged,
}

impl Status {
    pub const fn code(self) -> u8 {
        match self {
            Status::Done => 0,
            Status::Failed => 1,
            Status::Usage => 2,
            Status::NotFound => 3,
            Status::Refused => 4,
            Status::Busy => 5,
            Status::Damaged => 6,
            Status::TurnFailed => 7,
            Status::TimedOut => 8,
            Status::NothingDone | Status::PleaseYield => 10,
            Status::OfCommand(code) => code,
        }
    }

    /// Returns the more severe of two statuses, for commands over several agents: damage, then a
    /// failure, then a failed turn, then a busy lock, a refusal, and a missing record.
    pub fn graver(self, other: Status) -> Status {
        self.max(other)
    }
}

impl From<Status> for std::process::ExitCode {
    fn from(status: Status) -> Self {
        status.code().into()
    }
}

impl Error {
    /// Kind of a refusal because the agent was moved to another store by `export --move`.
    pub const MOVED: &str = "moved";
    /// Kind of a refusal to tick an agent of a pool (group of agents) of other machines.
    pub const OTHER_POOL: &'static str = "other_pool";

    /// Kind of a refusal to change files of another user.
    pub const NOT_OWNER: &'static str = "not_owner";

    /// Kind of a refusal because another process has taken over this process's lease.
    pub const FENCED: &str = "fenced";

    /// Action in the error about an unreadable file with the text of an argument (`@FILE`).
    pub const TAKE_TEXT: &str = "take the text from";

    /// Kind of a refusal because a git sync was overtaken by other changes until its time limit.
    pub const CONTENDED: &str = "contended";

    /// Returns the error for an invalid value of a flag, an argument or a variable.
    pub fn in_word(flag: &str, error: impl std::fmt::Display) -> Error {
        Error::usage(format!("{flag}: {error}"))
    }

    pub fn usage(message: impl Into<String>) -> Error {
        Error::Usage { message: message.into(), hint: None }
    }

    /// Returns the error for an action that the rules or the records don't allow. `kind`: word for
    /// scripts.
    pub fn refused(kind: &'static str, message: impl Into<String>) -> Error {
        Error::Refused { kind, message: message.into(), hint: None, is_usage: false, edge: None }
    }

    /// Returns the error for a failure outside this program.
    pub fn failed(message: impl Into<String>) -> Error {
        Error::failed_as(Status::Failed, "failed", message)
    }

    /// Returns the error for a failure outside this program with an exit status and a kind of its
    /// own.
    pub fn failed_as(status: Status, kind: &'static str, message: impl Into<String>) -> Error {
        Error::Failed { status, kind, message: message.into(), hint: None }
    }

    /// Returns the error for damage of a file, without a line number.
    pub fn damaged(path: impl Into<PathBuf>, message: impl Into<String>) -> Error {
        Error::Damaged { path: path.into(), line: 0, column: 0, message: message.into(), hint: None }
    }

    /// Returns the error for a file that another process has just removed.
    pub fn gone(action: &'static str, path: &Path) -> Error {
        Error::Io { action, path: path.to_owned(), source: io::ErrorKind::NotFound.into() }
    }

    /// Returns the error for a file that `holder` has locked for the whole time `waited`.
    pub fn busy(path: impl Into<PathBuf>, holder: String, waited: Duration) -> Error {
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        Error::Busy { path: path.into(), holder, waited_ms }
    }

    /// Sets the hint of an error that can have a hint of its own, in place of an earlier one.
    pub fn with_hint(mut self, text: impl Into<String>) -> Error {
        if let Error::Usage { hint, .. }
        | Error::Refused { hint, .. }
        | Error::Damaged { hint, .. }
        | Error::Failed { hint, .. } = &mut self
        {
            *hint = Some(text.into());
        }
        self
    }

    /// Returns the exit status, and the error kind for scripts.
    fn class(&self) -> (Status, &'static str) {
        match self {
            Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                (Status::Failed, "not_allowed")
            }
            Error::Io { .. } => (Status::Failed, "io"),
            Error::Failed { status, kind, .. } => (*status, kind),
            Error::Usage { .. } => (Status::Usage, "usage"),
            Error::NoStore { .. } | Error::NotAStore { .. } => (Status::NotFound, "no_state_directory"),
            Error::NoAgent { .. } => (Status::NotFound, "no_agent"),
            Error::NoRecord { .. } => (Status::NotFound, "no_record"),
            Error::Refused { kind: kind @ (Error::FENCED | Error::CONTENDED), .. } => (Status::Busy, kind),
            Error::Refused { kind, is_usage: true, .. } => (Status::Usage, kind),
            Error::Refused { kind, .. } => (Status::Refused, kind),
            Error::Busy { .. } => (Status::Busy, "busy"),
            Error::Damaged { .. } => (Status::Damaged, "damaged"),
            Error::Newer { .. } => (Status::Damaged, "newer_schema"),
        }
    }

    pub fn exit_status(&self) -> Status {
        self.class().0
    }

    /// Returns the error kind for scripts, which is `error.kind` in JSON.
    pub fn kind(&self) -> &'static str {
        self.class().1
    }

    /// True if the machine or a limit lacked resources, so that a later attempt may succeed.
    pub fn is_shortage(&self) -> bool {
        matches!(self, Error::Io { source, .. } if is_shortage(source))
    }

    /// Returns the hint for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Usage { hint, .. }
            | Error::Refused { hint, .. }
            | Error::Damaged { hint, .. }
            | Error::Failed { hint, .. } => hint.clone(),
            Error::NoStore { .. } => {
                Some("make one with `dormouse init`, or name one with --dir or DORMOUSE_DIR".into())
            }
            Error::NotAStore { path } if !path.exists() => Some(format!(
                "no such directory: correct --dir or DORMOUSE_DIR, or make it with `dormouse init {}`",
                path.display()
            )),
            Error::NotAStore { path } => Some(format!("make it one with `dormouse init {}`", path.display())),
            Error::NoAgent { renamed: Some(name), .. } => Some(format!("it was renamed: it is `{name}` now")),
            Error::NoAgent { known: Some(known), .. } if known.is_empty() => {
                Some("there is none yet: make one with `dormouse create`".into())
            }
            Error::NoAgent { agent, known, .. } => known.as_ref().map(|known| instead_of(agent, known)),
            Error::Busy { .. } => Some("try again, or wait longer with --lock-timeout".into()),
            Error::Newer { .. } => {
                Some("read it with the newer dormouse that wrote it; nothing was changed".into())
            }
            Error::Io { action: Error::TAKE_TEXT, .. } if self.is_not_found() => {
                Some("`@FILE` is the text in a file; pass a text that begins with `@` on stdin".into())
            }
            Error::Io { source, .. } => hint_at(source),
            Error::NoRecord { what: "manual page", .. } => {
                Some("`dormouse --help` lists the commands, and each has a page".into())
            }
            Error::NoRecord { what, .. } => {
                list_of(what).map(|list| format!("`dormouse {list}` shows the ids"))
            }
        }
    }

    /// Returns the file that the error is about.
    pub fn path(&self) -> Option<&Path> {
        let (Error::Io { path, .. }
        | Error::NotAStore { path }
        | Error::NoStore { start: path }
        | Error::Busy { path, .. }
        | Error::Damaged { path, .. }
        | Error::Newer { path, .. }) = self
        else {
            return None;
        };
        Some(path)
    }

    /// Returns line and column of the damage in a file, both from 1, if they are known.
    pub fn place(&self) -> Option<(usize, usize)> {
        let Error::Damaged { line, column, .. } = self else { return None };
        (*line > 0).then_some((*line, *column))
    }

    /// True for a refusal because the agent was moved to another store by `export --move`.
    pub fn is_moved(&self) -> bool {
        matches!(self, Error::Refused { kind: Error::MOVED, .. })
    }

    /// True for an error because the agent does not exist in this store, was moved to another
    /// store, or is ticked by other machines.
    pub fn has_left(&self) -> bool {
        self.is_moved() || self.kind() == Error::OTHER_POOL || matches!(self, Error::NoAgent { .. })
    }

    /// True if the named file or directory causes the error, not the disk or this process.
    pub fn is_of_file(&self) -> bool {
        const OF_FILE: [Errno; 15] = [
            Errno::EXIST,
            Errno::ACCESS,
            Errno::PERM,
            Errno::LOOP,
            Errno::NXIO,
            Errno::NODEV,
            Errno::ISDIR,
            Errno::NOTDIR,
            Errno::NAMETOOLONG,
            Errno::BUSY,
            Errno::XDEV,
            Errno::NOTEMPTY,
            Errno::OVERFLOW,
            Errno::INVAL,
            // A read of a named pipe that has a writer fails with this error, instead of waiting.
            Errno::AGAIN,
        ];
        let Error::Io { action, source, .. } = self else { return matches!(self, Error::Damaged { .. }) };
        let is = |errno: &Errno| source.raw_os_error() == Some(errno.raw_os_error());
        // An IO error of a read affects one file; an IO error of a write affects the whole disk.
        OF_FILE.iter().any(is) || *action == "read" && is(&Errno::IO)
    }

    /// True for a system error because a file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns the two states of a refused transition.
    pub fn edge(&self) -> Option<(&'static str, &'static str)> {
        let Error::Refused { edge, .. } = self else { return None };
        edge.as_deref().copied()
    }

    /// Returns the name in an error about an agent that does not exist.
    pub fn agent(&self) -> Option<&str> {
        let Error::NoAgent { agent, .. } = self else { return None };
        Some(agent)
    }
}

/// Returns the command that lists a type of record, if there is one.
pub fn list_of(what: &str) -> Option<String> {
    let plane = match what.rsplit(' ').next()? {
        "letter" => return Some("queue dead".to_owned()),
        "message" => "queue",
        "item" => "work",
        plane @ ("run" | "wait" | "timer" | "task" | "trigger") => plane,
        _ => return None,
    };
    Some(format!("{plane} list"))
}

/// Maximum number of agents that are searched for a hint about an unknown name.
pub const SUGGESTED: usize = 1000;
/// Maximum number of agents in the hint for an unknown agent name.
const NAMED: usize = 10;

/// Returns a hint with existing agents for an unknown name: the most similar name if one is
/// similar, else the first names.
fn instead_of(agent: &str, known: &[String]) -> String {
    let likeness = |name: &&String| strsim::jaro_winkler(agent, name);
    let nearest = known.iter().map(|name| (likeness(&name), name)).filter(|(likeness, _)| *likeness > 0.8);
    if let Some((_, name)) = nearest.max_by(|one, other| one.0.total_cmp(&other.0)) {
        return format!("did you mean `{name}`?");
    }
    let more = known.len().saturating_sub(NAMED);
    let named = known.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let least = if known.len() < SUGGESTED { "" } else { "at least " };
    if more > 0 { format!("there is {named}, and {least}{more} more") } else { format!("there is {named}") }
}

/// True for an error of the system because the machine or a limit lacks resources.
pub fn is_shortage(source: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, OutOfMemory, QuotaExceeded, StorageFull, WouldBlock};

    let lacks_files = matches!(Errno::from_io_error(source), Some(Errno::MFILE | Errno::NFILE));
    lacks_files
        || matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge | OutOfMemory | WouldBlock)
}

/// Returns a hint for an error of the system, if there is one.
fn hint_at(source: &io::Error) -> Option<String> {
    let hint = match (Errno::from_io_error(source), source.kind()) {
        (Some(Errno::MFILE), _) => "raise the limit of open files (`ulimit -n`) and try again",
        (Some(Errno::NFILE), _) => "the machine has no room for more open files: try again",
        (_, io::ErrorKind::FileTooLarge) => "raise `ulimit -f` and try again; no record is half-written",
        (_, io::ErrorKind::OutOfMemory) => "not enough memory: raise the limit (`ulimit -v`), or try again",
        // Only the start of a process causes this error, because all other system calls wait.
        (_, io::ErrorKind::WouldBlock) => {
            "no more processes may be started: raise the limit (`ulimit -u`), or try again"
        }
        (_, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
            "free disk space and try again; no record is half-written"
        }
        (_, io::ErrorKind::PermissionDenied) => {
            "see its owner and mode with `ls -ld`: run this as the owner, or give yourself the right with `chmod`"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Adds the action and the path to I/O errors, so that the user always sees both.
pub trait IoContext<T> {
    /// Converts an I/O error to an [`Error`] about `path`. `action` completes "can't …".
    fn context(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> IoContext<T> for std::result::Result<T, E> {
    fn context(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { action, path: path.to_owned(), source: source.into() })
    }
}
