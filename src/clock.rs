//! The only source of time, ids and randomness. `DORMOUSE_NOW` pins the time of one invocation.

use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::model::stamp::Stamp;
use crate::model::time::Time;

/// The time of one invocation: the system's, or a pinned one.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    pinned: Option<Time>,
}

impl Clock {
    /// Reads `DORMOUSE_NOW`. Fails with a usage error if it is set and no time.
    pub fn from_env() -> Result<Clock> {
        let pinned = match std::env::var("DORMOUSE_NOW") {
            Ok(text) if !text.is_empty() => {
                Some(Time::parse(&text).map_err(|error| Error::usage(format!("DORMOUSE_NOW: {error}")))?)
            }
            _ => None,
        };
        Ok(Clock { pinned })
    }

    pub fn now(&self) -> Time {
        self.pinned.unwrap_or_else(|| {
            let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Time::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
        })
    }

    /// The moment for one transition, with fresh randomness.
    pub fn stamp(&self) -> Stamp {
        let chance = f64::from(Uuid::new_v4().as_u128() as u32) / (f64::from(u32::MAX) + 1.0);
        Stamp::new(self.now(), Uuid::new_v4().as_u128(), chance)
    }

    /// 256 random bits in hexadecimal: the secret of a trigger.
    pub fn secret(&self) -> String {
        // A version 4 UUID carries 122 random bits; three of them more than 256.
        let bits = || Uuid::new_v4().simple().to_string();
        format!("{}{}{}", bits(), bits(), bits())
    }
}
