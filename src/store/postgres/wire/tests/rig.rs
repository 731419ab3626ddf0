//! The real server of these tests, accessed through the client under test.

use std::sync::OnceLock;

use super::super::super::Url;
use super::super::{Connection, Row};

#[path = "../../../../../tests/it/server.rs"]
mod server;

pub use server::{Bouncer, LONG, Server, free_port};

/// Returns the server that all tests of this process share. It is not started while another test of
/// this process kills its children.
pub fn server() -> &'static Server {
    static IS_THERE: OnceLock<&'static Server> = OnceLock::new();
    IS_THERE.get_or_init(|| {
        let _alone = crate::alone::alone();
        server::server()
    })
}

#[track_caller]
pub fn superuser_sql(sql: &str) -> Vec<Vec<Row>> {
    superuser().script(sql, LONG).unwrap()
}

pub fn superuser() -> Connection {
    Connection::open(&Url::parse(&server().url_of("postgres", "s")).unwrap(), LONG).unwrap()
}
