//! Errors of the server: each message contains the operation and the server (without a password),
//! and the hint tells the user what to do.

use crate::error::{Error, Status};
use crate::model::id::AgentName;

use super::super::backend::CHANGED;
use super::url::Url;
use super::wire::WireFault;

/// Kind of the error when the role lacks a privilege.
pub const NOT_ALLOWED: &str = "not_allowed";

const ASK: &str = "ask the owner of the store, who lets a role of the database be a ticker, a producer or a reader by \
                   `dormouse init --grant`";

/// Error for an operation of a database role that may only add messages and hints to inboxes.
pub fn producers(url: &Url, role: &str) -> Error {
    let server = url.shown();
    not_allowed(format!("{server}: `{role}` is a producer: it may `enqueue` and `wake`, and reads nothing"))
}

/// Reason for which a round trip has no answer, with the error for a command that does not try
/// again.
#[derive(Debug)]
pub enum RoundTripFault {
    /// The connection was lost. `is_sent`: true if the server may have executed the statements.
    Lost {
        is_sent: bool,
        why: String,
        error: Error,
    },
    /// Another process held a lock that a statement needs, during the whole wait.
    Locked(Error),
    /// Another transaction conflicted with this one, or has created the same row or table. The
    /// caller may try again.
    Crossed(Error),
    /// The server could not be reached.
    Unreachable(Error),
    /// The server refused for another reason, given by the SQLSTATE `code`.
    Refused {
        code: String,
        error: Error,
    },
    Other(Error),
}

impl From<Error> for RoundTripFault {
    fn from(error: Error) -> RoundTripFault {
        RoundTripFault::Other(error)
    }
}

impl From<RoundTripFault> for Error {
    fn from(fault: RoundTripFault) -> Error {
        match fault {
            RoundTripFault::Locked(error)
            | RoundTripFault::Crossed(error)
            | RoundTripFault::Unreachable(error)
            | RoundTripFault::Lost { error, .. }
            | RoundTripFault::Refused { error, .. }
            | RoundTripFault::Other(error) => error,
        }
    }
}

impl RoundTripFault {
    pub fn of(fault: WireFault, url: &Url) -> RoundTripFault {
        let server = url.shown();
        let lost = |is_sent, why: String| {
            let error = failed(format!("the connection to {server} was lost: {why}"))
                .with_hint("check that the server runs and can be reached, and try again");
            RoundTripFault::Lost { is_sent, why, error }
        };
        let (code, message) = match fault {
            WireFault::Server { code, message, .. } => (code, message),
            WireFault::Lost { sent, why } => return lost(sent, why),
            WireFault::Invalid(why) => return RoundTripFault::Other(Error::refused("unfit", why)),
            WireFault::Unreachable(why) => {
                let hint = if why.contains("53300") {
                    "all connections that it allows are in use: try again, or allow more of them"
                } else {
                    "check that the server runs and can be reached from here"
                };
                let error = failed(format!("can't use {server}: {why}")).with_hint(hint);
                return RoundTripFault::Unreachable(error);
            }
            WireFault::Unfit(why) => {
                return RoundTripFault::Other(failed(format!("can't use {server}: {why}")));
            }
        };
        let other =
            |said: String, hint| RoundTripFault::Other(failed(format!("{server} {said}")).with_hint(hint));
        match code.as_str() {
            "55P03" => RoundTripFault::Locked(busy(url)),
            "23505" | "42P06" | "42P07" => RoundTripFault::Crossed(failed(format!("{server}: {message}"))),
            "40001" | "40P01" => RoundTripFault::Crossed(busy(url)),
            // The server is shutting down or closing this connection, and may have executed the
            // statements.
            "57P01" | "57P02" | "57P03" | "25P03" | "57P05" => lost(true, message),
            "3F000" | "42P01" => RoundTripFault::Other(not_made(url)),
            "42501" => RoundTripFault::Other(not_allowed(format!("{server} does not allow it: {message}"))),
            "53100" | "53200" | "53300" | "53400" | "54000" => other(
                format!("has no room for it: {message}"),
                "nothing was changed; free disk space there, and try again",
            ),
            "25006" => other(
                format!("only reads: {message}"),
                "it may be a standby: name the server that takes changes",
            ),
            "57014" => other(
                format!("has cancelled the statement: {message}"),
                "nothing was changed; the limit is one of the server, the database or the role \
                 (`statement_timeout`): allow more, and try again",
            ),
            _ => {
                let error = failed(format!("{server} has refused: {message} ({code})"));
                RoundTripFault::Refused { code, error }
            }
        }
    }
}

fn failed(message: String) -> Error {
    Error::failed_as(Status::Failed, "database", message)
}

fn not_allowed(message: String) -> Error {
    Error::failed_as(Status::Failed, NOT_ALLOWED, message).with_hint(ASK)
}

/// Error when another process holds a needed lock, or has changed the same records.
pub fn busy(url: &Url) -> Error {
    Error::failed_as(
        Status::Busy,
        "busy",
        format!("another process was at the same records in {}", url.shown()),
    )
    .with_hint("nothing was changed: try again")
}

/// Error when the records have changed between two queries of one read view.
pub fn changed(url: &Url, agent: &str) -> Error {
    Error::failed_as(
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

/// Error when the last fencing token of an agent, in the table `state`, is out of range.
pub fn no_fence(url: &Url, agent: &AgentName, fence: i64) -> Error {
    let server = url.shown();
    let message = format!("{server}: the fence of `{agent}` is damaged: {fence} in the table `state`");
    Error::failed_as(Status::Damaged, "damaged", message).with_hint(
        "set it by hand to the number of the last lease that the agent has had, or to a higher one",
    )
}

/// Error when the agent's lock was lost with its connection, and another process changed the agent
/// before this process locked it again.
pub fn stale(agent: &str, base: u64, revision: u64) -> Error {
    Error::failed_as(
        Status::Busy,
        "stale_revision",
        format!("`{agent}` is at revision {revision}, not at {base}"),
    )
    .with_hint("nothing was changed: try again")
}

/// Error when the outcome of a commit is unknown.
pub fn unknown(url: &Url, why: &str) -> Error {
    failed(format!("{} has not confirmed that the change was committed: {why}", url.shown()))
        .with_hint("look at the agent before you do it again")
}

fn not_made(url: &Url) -> Error {
    Error::failed_as(Status::NotFound, "no_schema", format!("there is no store in {}", url.shown()))
        .with_hint(format!("make it: run `dormouse -C '{}' init`", url.shown()))
}

pub fn other_format(url: &Url, found: &str, known: &str) -> Error {
    let is_newer = found.parse::<u64>().ok() > known.parse::<u64>().ok();
    let hint = if is_newer {
        "use the newer dormouse that made it; nothing was changed"
    } else {
        "it was never released: move its agents with the dormouse that made it; nothing was changed"
    };
    Error::failed_as(
        Status::Damaged,
        "newer_schema",
        format!("the store in {} has format {found}; this dormouse knows format {known}", url.shown()),
    )
    .with_hint(hint)
}

pub fn unexpected(url: &Url, what: &str) -> Error {
    failed(format!("{} has answered something else than {what}", url.shown()))
}
