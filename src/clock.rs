//! Only source of time, ids and randomness. `DORMOUSE_NOW` fixes the time of one invocation.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, IoContext, Result};
use crate::model::stamp::Stamp;
use crate::model::time::Time;
use crate::model::zone;

mod local;

/// Clock of one invocation: the system's clock, or a fixed time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    pinned: Option<Time>,
}

impl Clock {
    /// Returns a clock whose time never changes.
    #[cfg(test)]
    pub fn pinned(at: Time) -> Clock {
        Clock { pinned: Some(at) }
    }

    /// Returns the clock that `DORMOUSE_NOW` sets. Usage error if that variable contains no time.
    pub fn from_env() -> Result<Clock> {
        zone::set_source(local::find);
        let pinned = match std::env::var("DORMOUSE_NOW") {
            Ok(text) if !text.is_empty() => {
                Some(Time::parse(&text).map_err(|error| Error::usage(format!("DORMOUSE_NOW: {error}")))?)
            }
            _ => None,
        };
        Ok(Clock { pinned })
    }

    /// True if the time is fixed by `DORMOUSE_NOW`, so that it does not advance.
    pub fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    pub fn now(&self) -> Time {
        self.pinned.unwrap_or_else(|| {
            #[expect(clippy::disallowed_methods, reason = "this is the clock")]
            let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Time::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
        })
    }

    /// Returns the name or the POSIX rule of the local time zone.
    pub fn time_zone(&self) -> Result<String> {
        let zone = zone::local().map_err(|problem| {
            let hint = "name the zone: --tz Europe/Berlin, or in JSON \"time_zone\": \"Europe/Berlin\"";
            let message = format!("the local time zone is not known: {problem}");
            Error::refused("unknown_time_zone", message).with_hint(hint)
        })?;
        Ok(zone.to_string())
    }

    /// Returns the current time with fresh random numbers, for one transition.
    pub fn stamp(&self) -> Result<Stamp> {
        let chance = self.chance()?;
        let id = u128::from(random()?) << 64 | u128::from(random()?);
        Ok(Stamp::new(self.now(), id, chance))
    }

    /// Returns a random number from 0 (included) to 1 (excluded).
    pub fn chance(&self) -> Result<f64> {
        // An `f64` represents 53 bits exactly, so the lowest 11 bits are dropped.
        Ok((random()? >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// Returns 256 random bits in hexadecimal, for the secret of a trigger.
    pub fn secret(&self) -> Result<String> {
        (0..4).map(|_| Ok(format!("{:016x}", random()?))).collect()
    }
}

#[cfg(test)]
thread_local! {
    static SEED: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// Sets the seed of this thread's random numbers; `None` for random numbers of the kernel.
#[cfg(test)]
pub fn seed(seed: Option<u64>) {
    SEED.set(seed);
}

/// Returns a random word from the kernel.
#[expect(clippy::disallowed_methods, reason = "this is where chance comes from")]
fn random() -> Result<u64> {
    #[cfg(test)]
    if let Some(seed) = SEED.get() {
        // Algorithm SplitMix64.
        let next = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        SEED.set(Some(next));
        let mixed = (next ^ next >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        return Ok(mixed ^ mixed >> 31);
    }
    let mut bytes = [0; 8];
    // The kernel never returns fewer than the requested bytes if these are at most 256.
    let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    filled.context("read", Path::new("the kernel's random numbers"))?;
    Ok(u64::from_le_bytes(bytes))
}
