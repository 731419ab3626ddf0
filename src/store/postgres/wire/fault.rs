//! Errors of a connection, grouped by the possible reaction of the caller.

use std::fmt;

/// Reason for which statements were not, or may not have been, executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireFault {
    /// The server has refused a statement or the login. Statements after the refused one were not
    /// executed. The connection remains usable.
    Server { code: String, message: String, detail: Option<String>, hint: Option<String> },
    /// The connection is lost or the deadline has passed, so the connection is unusable. `sent`:
    /// true if all bytes were passed to the system, so the server may have executed the statements
    /// or may do so later. If false, the server never executes them.
    Lost { sent: bool, why: String },
    /// Nothing was sent, because the connection was already lost.
    NotSent(String),
    /// Nothing was sent, because a text contains NUL or the statements are too long.
    Invalid(String),
    /// No connection was made in time, but a later attempt may succeed: the server does not answer,
    /// is starting or stopping, or has too many connections.
    Unreachable(String),
    /// Every attempt fails until a person changes the configuration: version or encoding of the
    /// server, TLS, a missing password, or permissions of the password file.
    Unfit(String),
}

impl WireFault {
    /// Returns the SQLSTATE of a refusal; `None` for other faults.
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
