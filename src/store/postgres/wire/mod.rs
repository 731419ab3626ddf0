//! A small client for PostgreSQL: one connection, simple queries, and a deadline for everything.
//!
//! - [`Url`]: where a store is.
//! - [`Connection`]: opened by [`Connection::open`]; [`Connection::flight`] sends statements and
//!   waits for their answers.
//! - [`Fault`]: what can go wrong, by what a caller can do about it.
//!
//! It speaks only the simple query protocol, because that is what PgBouncer passes on in
//! transaction mode. Every answer of a server is taken for hostile until it is read: a torn, huge
//! or senseless message is a [`Fault`], and never a panic.

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

pub use answer::{Answer, Row};
pub use connection::Connection;
pub use fault::Fault;
pub use url::Url;

/// A text as an SQL literal, quotes included. Nothing in the text can end it, because a connection
/// is refused where `standard_conforming_strings` is off. PostgreSQL has no text with NUL in it, as
/// JSON text has none: a flight with one is refused before any of it is sent.
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

/// Bytes as an SQL literal of type `bytea`.
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
