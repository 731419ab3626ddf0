//! One connection to a server.

use std::time::Duration;

use super::{Answer, Fault, Url};

/// One connection to a server.
pub struct Connection;

impl Connection {
    /// Connects and logs in.
    pub fn open(url: &Url, _patience: Duration) -> Result<Connection, Fault> {
        Err(Fault::Unreachable(format!("there is no way to {} yet", url.shown())))
    }

    /// Sends statements as one simple query, and waits for their answers: one for each statement.
    pub fn flight(&mut self, _sql: &str, _patience: Duration) -> Result<Vec<Answer>, Fault> {
        Err(Fault::NotSent("there is no way yet".to_owned()))
    }

    /// The server's version: 150006 is 15.6.
    pub fn server_version(&self) -> u32 {
        0
    }

    /// Whether another flight can be sent.
    pub fn is_usable(&self) -> bool {
        false
    }

    /// Waits for notifications. Returns the channels that were told, none of them if the patience ends first.
    pub fn notified(&mut self, _patience: Duration) -> Result<Vec<String>, Fault> {
        Err(Fault::NotSent("there is no way yet".to_owned()))
    }
}
