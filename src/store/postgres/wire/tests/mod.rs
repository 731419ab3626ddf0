//! The client against real servers and lying ones.

mod liar;
mod lies;
mod logins;
pub mod rig;
mod statements;
mod urls;

use std::time::Duration;

use super::password::Sources;
use super::{Connection, Fault, Url};
use rig::LONG;

/// A connection with a password, or without one.
fn open(url: &str, password: Option<&str>) -> Result<Connection, Fault> {
    Connection::open_with(&Url::parse(url).unwrap(), &Sources::of(password, None), LONG)
}

/// Opens what must not open.
#[track_caller]
fn refused(url: &str, password: Option<&str>) -> Fault {
    match open(url, password) {
        Ok(_) => panic!("{url} was opened"),
        Err(fault) => fault,
    }
}

/// A patience that a test lets run out.
const SHORT: Duration = Duration::from_millis(300);
