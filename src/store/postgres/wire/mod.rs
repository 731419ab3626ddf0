//! A small client for PostgreSQL: one connection, simple queries, and a deadline for each
//! operation.
//!
//! - [`Url`]: address of a store.
//! - [`Connection`]: opened by [`Connection::open`]; [`Connection::flight`] sends statements and
//!   waits for their answers.
//! - [`WireFault`]: errors, grouped by the action that is left to the caller.
//!
//! The client uses only the simple query protocol, because PgBouncer supports it in transaction
//! mode. The answers of a server are not trusted: a truncated, huge or invalid message causes a
//! [`WireFault`], and never a panic.

#![cfg_attr(
    not(test),
    allow(
        dead_code,
        unused_imports,
        reason = "the store on top calls a part of it; notices and names of servers it does not"
    )
)]

mod answer;
mod connection;
mod dial;
mod fault;
mod files;
mod line;
mod login;
mod message;
mod password;
mod tls;
mod url;

#[cfg(test)]
pub mod tests;

pub use answer::{Row, ServerAnswer};
pub use connection::Connection;
pub use fault::WireFault;
pub use url::Url;

/// Quotes a text as an SQL literal. No text can end the literal early, because a server with
/// `standard_conforming_strings` off is refused. PostgreSQL has no text with NUL, so statements
/// with NUL are refused before any of them is sent.
pub fn literal(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for part in text.split_inclusive('\'') {
        quoted.push_str(part);
        if part.ends_with('\'') {
            quoted.push('\'');
        }
    }
    quoted.push('\'');
    quoted
}

/// Quotes bytes as an SQL literal of type `bytea`.
pub fn bytes_literal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut quoted = String::with_capacity(bytes.len() * 2 + 12);
    quoted.push_str("'\\x");
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            quoted.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
    quoted.push_str("'::bytea");
    quoted
}
