//! What can go wrong with a server, in words: what failed, on which server (never with a password), and what to do.

use crate::error::{Error, Status};

use super::super::elsewhere::CHANGED;
use super::wire::{Fault, Url};

/// Why a flight has no answer.
#[derive(Debug)]
pub enum Trouble {
    /// The connection broke. `is_sent`: what was asked may have been done.
    Lost {
        is_sent: bool,
        why: String,
    },
    /// The lock was somebody else's for as long as this process waited.
    Locked,
    /// A row is there already: two did the same at once.
    Taken(Error),
    /// Whoever runs into another transaction may try again.
    Crossed(Error),
    /// The server does not answer at all.
    Unreachable(Error),
    /// The server has refused, and says why by a code.
    Refused {
        code: String,
        error: Error,
    },
    Other(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Other(error)
    }
}

impl Trouble {
    pub fn of(fault: Fault, url: &Url) -> Trouble {
        let server = url.shown();
        match fault {
            Fault::Lost { sent, ref why } => Trouble::Lost { is_sent: sent, why: why.clone() },
            // One that the server closed while nobody used it.
            Fault::NotSent(ref why) if !why.contains("NUL") => {
                Trouble::Lost { is_sent: false, why: why.clone() }
            }
            Fault::Server { ref code, ref message, .. } => match code.as_str() {
                "55P03" => Trouble::Locked,
                "23505" | "42P06" | "42P07" => Trouble::Taken(Error::database(
                    Status::Failed,
                    "database",
                    format!("{server}: {message}"),
                )),
                "40001" | "40P01" => Trouble::Crossed(crossed(url)),
                // The server ends, or ends this connection: whether it did what was asked first is not known.
                "57P01" | "57P02" | "57P03" | "25P03" | "57P05" => {
                    Trouble::Lost { is_sent: true, why: message.clone() }
                }
                "3F000" | "42P01" => Trouble::Other(not_made(url)),
                "42501" => Trouble::Other(
                    Error::database(
                        Status::Refused,
                        "not_allowed",
                        format!("{server} does not allow it: {message}"),
                    )
                    .with_hint("ask whoever looks after the database for the right"),
                ),
                "53100" | "53200" | "53300" | "53400" | "54000" => Trouble::Other(
                    Error::database(
                        Status::Failed,
                        "database",
                        format!("{server} has no room for it: {message}"),
                    )
                    .with_hint("nothing was changed; make room there, and try again"),
                ),
                "25006" => Trouble::Other(
                    Error::database(Status::Failed, "database", format!("{server} only reads: {message}"))
                        .with_hint("it may be a standby: name the server that takes changes"),
                ),
                "57014" => Trouble::Other(Error::database(
                    Status::Failed,
                    "database",
                    format!("{server} has ended what was asked: {message}"),
                )),
                _ => Trouble::Refused {
                    code: code.clone(),
                    error: Error::database(
                        Status::Failed,
                        "database",
                        format!("{server} has refused: {message} ({code})"),
                    ),
                },
            },
            Fault::Unreachable(_) => Trouble::Unreachable(plain(&fault, url)),
            Fault::NotSent(_) | Fault::Unfit(_) => Trouble::Other(plain(&fault, url)),
        }
    }

    /// The error for a command that gives up.
    pub fn into_error(self, url: &Url) -> Error {
        match self {
            Trouble::Lost { why, .. } => Error::database(
                Status::Failed,
                "database",
                format!("the connection to {} was lost: {why}", url.shown()),
            )
            .with_hint("see whether the server runs and can be reached, and try again"),
            Trouble::Locked => crossed(url),
            Trouble::Taken(error)
            | Trouble::Crossed(error)
            | Trouble::Unreachable(error)
            | Trouble::Refused { error, .. }
            | Trouble::Other(error) => error,
        }
    }
}

/// An error of the client that is none of a statement: not reached, not let in, not fit.
fn plain(fault: &Fault, url: &Url) -> Error {
    let error = Error::database(Status::Failed, "database", format!("can't use {}: {fault}", url.shown()));
    if matches!(fault, Fault::Unreachable(_)) {
        error.with_hint("see whether the server runs and can be reached from here")
    } else {
        error
    }
}

fn crossed(url: &Url) -> Error {
    Error::database(
        Status::Busy,
        "busy",
        format!("another process was at the same records in {}", url.shown()),
    )
    .with_hint("nothing was changed: try again")
}

/// What was read is not of one revision any more.
pub fn changed(url: &Url, agent: &str) -> Error {
    Error::database(
        Status::Busy,
        CHANGED,
        format!("`{agent}` has changed in {} while it was read", url.shown()),
    )
    .with_hint("try again")
}

pub fn fenced(agent: &str) -> Error {
    Error::refused(
        Error::FENCED,
        format!("another machine has taken `{agent}` over: nothing of this turn was recorded"),
    )
    .with_hint("the turn's output is kept on this machine; end what still runs for it here")
}

pub fn stale(agent: &str, base: u64, revision: u64) -> Error {
    Error::refused("stale_revision", format!("`{agent}` is at revision {revision}, not at {base}"))
}

/// A transaction of which nobody can say whether it was committed.
pub fn unknown(url: &Url, why: &str) -> Error {
    Error::database(
        Status::Failed,
        "database",
        format!("{} has not said whether the change was committed: {why}", url.shown()),
    )
    .with_hint("look at the agent before you do it again")
}

fn not_made(url: &Url) -> Error {
    Error::database(Status::NotFound, "no_schema", format!("there is no store in {}", url.shown()))
        .with_hint(format!("make it: run `dormouse -C '{}' init`", url.shown()))
}

pub fn other_format(url: &Url, found: &str, known: &str) -> Error {
    let is_newer = found.parse::<u64>().ok() > known.parse::<u64>().ok();
    let hint = if is_newer {
        "use the newer dormouse that made it; nothing was changed"
    } else {
        "it was never released: move its agents with the dormouse that made it; nothing was changed"
    };
    Error::database(
        Status::Damaged,
        "newer_schema",
        format!("the store in {} has format {found}; this dormouse knows format {known}", url.shown()),
    )
    .with_hint(hint)
}

pub fn too_old(url: &Url, found: u32, oldest: u32) -> Error {
    Error::database(
        Status::Refused,
        "server_too_old",
        format!("{} is PostgreSQL {found}; dormouse needs {oldest} or newer", url.shown()),
    )
}

pub fn unexpected(url: &Url, what: &str) -> Error {
    Error::database(
        Status::Failed,
        "database",
        format!("{} has answered something else than {what}", url.shown()),
    )
}
