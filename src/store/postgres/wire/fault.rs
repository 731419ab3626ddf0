//! Errors of a connection, grouped by the possible reaction of the caller.

/// Reason for which statements were not, or may not have been, executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireFault {
    /// The server has refused a statement or the login. Statements after the refused one were not
    /// executed. The connection remains usable. `more`: detail and hint, each after a semicolon.
    #[error("{message} (SQLSTATE {code}){more}")]
    Server { code: String, message: String, more: String },
    /// The connection is lost or the deadline has passed, so the connection is unusable. `sent`:
    /// true if all bytes were passed to the system, so the server may have executed the statements
    /// or may do so later. If false, the server never executes them.
    #[error("the connection was lost: {why}")]
    Lost { sent: bool, why: String },
    /// Nothing was sent, because a text contains NUL or the statements are too long.
    #[error("{0}")]
    Invalid(String),
    /// No connection was made in time, but a later attempt may succeed: the server does not answer,
    /// is starting or stopping, or has too many connections.
    #[error("{0}")]
    Unreachable(String),
    /// Every attempt fails until a person changes the configuration: version or encoding of the
    /// server, TLS, a missing password, or permissions of the password file.
    #[error("{0}")]
    Unfit(String),
}

impl WireFault {
    /// Returns the SQLSTATE of a refusal; `None` for other faults.
    pub fn code(&self) -> Option<&str> {
        if let WireFault::Server { code, .. } = self { Some(code) } else { None }
    }
}

/// Returns the error [`WireFault::Unfit`].
pub(super) fn unfit<T>(why: impl Into<String>) -> Result<T, WireFault> {
    Err(WireFault::Unfit(why.into()))
}
