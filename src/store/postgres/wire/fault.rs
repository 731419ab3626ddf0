//! What can go wrong with a connection, by what a caller can do about it.

use std::fmt;

/// Why something was not done, or may not have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The server refused a statement, or the login. Of a flight nothing after that statement was
    /// carried out, and the connection can be used on.
    Server { code: String, message: String, detail: Option<String>, hint: Option<String> },
    /// The connection is gone, or its deadline has passed. It can't be used any more. `sent`:
    /// whether the whole flight had been handed to the system, so that the server may have carried
    /// it out, or still does. If it is false, it has not and will not.
    Lost { sent: bool, why: String },
    /// The flight can't be sent at all: text with NUL, too long, or the connection was lost before.
    /// Nothing was carried out.
    NotSent(String),
    /// No connection came about in time. Another attempt may succeed: nobody answers there, the
    /// server is just starting or ending, or it has too many connections.
    Unreachable(String),
    /// Another attempt fails in the same way until somebody changes something: the server's version
    /// or encoding, TLS that could not be agreed on, a password that is missing or lies open.
    Unfit(String),
}

impl Fault {
    /// The SQLSTATE with which the server refused.
    pub fn code(&self) -> Option<&str> {
        match self {
            Fault::Server { code, .. } => Some(code),
            Fault::Lost { .. } | Fault::NotSent(_) | Fault::Unreachable(_) | Fault::Unfit(_) => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Server { code, message, detail, hint } => {
                write!(f, "{message} (SQLSTATE {code})")?;
                for more in [detail, hint].into_iter().flatten() {
                    write!(f, "; {more}")?;
                }
                Ok(())
            }
            Fault::Lost { sent: true, why } => {
                write!(f, "the connection was lost before the answer came: {why}")
            }
            Fault::Lost { sent: false, why } => write!(f, "the connection was lost: {why}"),
            Fault::NotSent(why) | Fault::Unreachable(why) | Fault::Unfit(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Fault {}
