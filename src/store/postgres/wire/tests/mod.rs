//! Tests of the client against real servers and incorrect ones.

mod liar;
mod lies;
mod logins;
pub mod rig;
mod statements;
mod urls;

use std::time::Duration;

use super::super::Url;
use super::password::Sources;
use super::{Connection, Row, Statement, WireFault};
use rig::LONG;

fn open(url: &str, password: Option<&str>) -> Result<Connection, WireFault> {
    Connection::open_with(&Url::parse(url).unwrap(), &Sources::of(password, None), LONG)
}

/// Opens a connection that must fail, and returns the error.
#[track_caller]
fn refused(url: &str, password: Option<&str>) -> WireFault {
    match open(url, password) {
        Ok(_) => panic!("{url} was opened"),
        Err(fault) => fault,
    }
}

/// Timeout that a test lets expire.
const SHORT: Duration = Duration::from_millis(300);

/// Sends the statements of `sql`, separated by `; `, in one round trip with this timeout.
fn trip(connection: &mut Connection, sql: &str, patience: Duration) -> Result<Vec<Vec<Row>>, WireFault> {
    let statements: Vec<Statement> = sql.split("; ").map(|one| Statement::new(one.to_owned())).collect();
    connection.round_trip(&statements.iter().collect::<Vec<_>>(), patience)
}
