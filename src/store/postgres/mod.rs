//! The store in PostgreSQL: what many machines share. For now, the client that speaks with the server.

pub mod wire;
