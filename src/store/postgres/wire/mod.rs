//! Small client for PostgreSQL: one connection, statements with parameters, and a deadline for each
//! operation.
//!
//! - [`Connection`]: opened by [`Connection::open`]; [`Connection::round_trip`] sends statements
//!   and waits for their answers.
//! - [`WireFault`]: errors, grouped by the possible reaction of the caller.
//!
//! Statements have no names, because every PgBouncer supports unnamed statements in transaction
//! mode. Answers of a server are not trusted: a truncated, huge or invalid message causes a
//! [`WireFault`], and never a panic.

mod connect;
mod connection;
mod fault;
mod files;
mod login;
mod message;
mod password;
mod socket;
mod statement;
mod tls;

#[cfg(test)]
pub mod tests;

pub use connection::Connection;
pub use fault::WireFault;
pub use statement::{Row, Statement, Value};
