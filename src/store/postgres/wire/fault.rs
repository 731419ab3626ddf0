//! Errors of a connection, grouped by the action that is left to the caller.

use std::fmt;

/// Reason why statements were not executed, or may not have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireFault {
    /// The server refused a statement or the login. Statements after the refused one were not
    /// executed. The connection remains usable.
    Server { code: String, message: String, detail: Option<String>, hint: Option<String> },
    /// The connection is lost or the deadline has passed, so the connection is unusable. `sent`:
    /// true if all bytes were handed to the system, so the server may have executed the statements
    /// or may still do so. If false, the server never executes them.
    Lost { sent: bool, why: String },
    /// Nothing was sent, because the connection was lost earlier.
    NotSent(String),
    /// Nothing was sent, because a text has a NUL or the statements are too long.
    Invalid(String),
    /// No connection was made in time. A later attempt may succeed: the server does not answer, is
    /// starting or stopping, or has too many connections.
    Unreachable(String),
    /// Each attempt fails until a person changes something: unsuitable version or encoding of the
    /// server, no common TLS, a missing password, or a password file with too open a mode.
    Unfit(String),
}

impl WireFault {
    /// Returns the SQLSTATE of a refusal.
    pub fn code(&self) -> Option<&str> {
        match self {
            WireFault::Server { code, .. } => Some(code),
            WireFault::Lost { .. }
            | WireFault::NotSent(_)
            | WireFault::Invalid(_)
            | WireFault::Unreachable(_)
            | WireFault::Unfit(_) => None,
        }
    }
}

impl fmt::Display for WireFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireFault::Server { code, message, detail, hint } => {
                write!(f, "{message} (SQLSTATE {code})")?;
                for more in [detail, hint].into_iter().flatten() {
                    write!(f, "; {more}")?;
                }
                Ok(())
            }
            WireFault::Lost { sent: true, why } => {
                write!(f, "the connection was lost before the answer came: {why}")
            }
            WireFault::Lost { sent: false, why } => write!(f, "the connection was lost: {why}"),
            WireFault::NotSent(why)
            | WireFault::Invalid(why)
            | WireFault::Unreachable(why)
            | WireFault::Unfit(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for WireFault {}
