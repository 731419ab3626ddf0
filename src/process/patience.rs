//! How long processes have to do something before they are made to.

use std::time::{Duration, Instant};

use super::turn::is_past;

/// In so many parts the time is waited for; so many of them, at least, must have been.
const PARTS: u32 = 20;
const LEAST: u32 = 15;

/// A time by the clock, of which those who are waited for have most: where everything stood still
/// for a while, they have had nothing of that, and get it afterwards.
pub struct Patience {
    until: Option<Instant>,
    part: Duration,
    left: u32,
    /// The half of it.
    half: Option<Instant>,
}

impl Patience {
    pub fn of(duration: Duration) -> Patience {
        // However long it is: nobody needs to know the end of a part that is hours away.
        let part = (duration / PARTS).min(Duration::from_secs(3600));
        let left = if duration.is_zero() { 0 } else { LEAST };
        let now = Instant::now();
        Patience { until: now.checked_add(duration), part, left, half: now.checked_add(duration / 2) }
    }

    /// Whether they have had half of it.
    pub fn is_half_over(&self) -> bool {
        is_past(self.half)
    }

    /// Until when to wait before one looks again; nothing when they have had their time.
    pub fn next(&mut self) -> Option<Instant> {
        let next = Instant::now() + self.part;
        if !is_past(self.until) {
            self.left = self.left.saturating_sub(1);
            return Some(self.until.map_or(next, |until| until.min(next)));
        }
        self.left = self.left.checked_sub(1)?;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_waited_for_while_everything_stood_still_gets_the_rest_of_the_time() {
        let mut patience = Patience::of(Duration::from_millis(1));
        assert!(patience.next().is_some());
        while !is_past(patience.until) {}
        assert_eq!(std::iter::from_fn(|| patience.next()).count(), LEAST as usize - 1);
        assert!(patience.next().is_none());
    }

    #[test]
    fn no_time_is_over_at_once_and_any_other_in_the_end() {
        assert!(Patience::of(Duration::ZERO).next().is_none());
        let mut endless = Patience::of(Duration::MAX);
        assert!((0..1000).all(|_| endless.next().is_some()));
    }
}
