//! Execution §4: after the clock was set back, the next step replaces each stored moment that is
//! too far ahead by the latest moment that the policy permits.

use super::resources::DAY;
use super::timers::{Schedule, Timer};
use super::{MAX_DEFERRAL, MAX_DELAY, Millis, Model, ms};

impl Model {
    pub fn limit_future_moments(&mut self, now: Millis) {
        // If the agent has entered a state with a timeout or a pause later than now, the entry is
        // moved to now, and moments that were stored at the entry are moved back by the same span.
        let timed =
            ["initializing", "waiting_resources", "suspended", "failed", "recovering", "shutting_down"];
        let ahead = if timed.contains(&self.execution) { (self.since - now).max(0) } else { 0 };
        let back = |at: Millis| (at - ahead).max(at.min(now));
        self.since -= ahead;
        if let Some(retry) = self.retry.as_mut().filter(|_| self.execution == "failed") {
            retry.not_before = back(retry.not_before).min(now + MAX_DELAY);
        }
        if let Some(held) = &mut self.held {
            // `yield --for` and `preempt --for` are bounded by `recovery.max_deferral`.
            let latest = match (held.limit, self.execution) {
                (Some(_), _) => now + DAY,
                (None, "waiting_resources") => now + MAX_DELAY,
                (None, _) => now + MAX_DEFERRAL,
            };
            held.not_before = held.not_before.map(|at| back(at).min(latest));
            held.deferred.since = held.deferred.since.map(|since| since.min(now));
        }
        self.spending.limit_to(now);
        self.timers.iter_mut().filter(|timer| timer.status == "active").for_each(|timer| timer.limit_to(now));
    }
}

impl Timer {
    /// Moves the next fire of a repeating timer to its first scheduled time after now, if the fire
    /// is later than the second one and the clock was set back.
    fn limit_to(&mut self, now: Millis) {
        if self.last_fire.unwrap_or(self.born.0) <= now {
            return;
        }
        let taken = match self.schedule {
            Schedule::Once(_) => None,
            Schedule::Every(span) if self.from > now => {
                Some(now + ms(span)).filter(|_| self.next > now + 2 * ms(span))
            }
            repeated => {
                let next = repeated.after(self.from, now);
                let second = next.and_then(|next| repeated.after(self.from, next));
                next.filter(|_| second.is_some_and(|second| self.next > second))
            }
        };
        if let Some(next) = taken {
            self.next = next;
            self.from = self.from.min(now);
        }
    }
}
