//! Execution §8: limits of the agent (turns per hour, tokens per day), deferred turns, held
//! messages.

use super::continuation::Continuation;
use super::messages::Setbacks;
use super::preemption::{Deferred, Held};
use super::recovery::backoff;
use super::{Born, MAX_DELAY, Millis, Model, Word};

const HOUR: Millis = 3_600_000;
pub const DAY: Millis = 24 * HOUR;

/// Prefix of a step's reason if only the operator can release the message that the agent holds.
pub const HELD: &str = "held for the operator";

/// Last line on stderr of a turn that exits with 75, which is the reason of its deferral.
pub const NOT_NOW: &str = "not now";

/// A limit that is reached, and the time at which its hour or day ends: `None` if the limit is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    pub limit: Word,
    back_at: Option<Millis>,
}

/// Turns and tokens since the start of an hour or day.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    since: Millis,
    turns: u64,
    tokens: u64,
}

impl Spent {
    /// Starts to count for the hour or day that begins at `begin`, unless a later one up to now has
    /// begun. Counts from the future, left by a clock that was set back, move to that hour or day.
    fn at(self, begin: Millis, now: Millis) -> Spent {
        if self.since > now {
            return Spent { since: begin, ..self };
        }
        if self.since < begin { Spent { since: begin, turns: 0, tokens: 0 } } else { self }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Spending {
    hour: Spent,
    day: Spent,
}

impl Spending {
    /// If the clock was set back, counts the amounts of a future hour or day for the current one.
    pub fn limit_to(&mut self, now: Millis) {
        for (spent, length) in [(&mut self.hour, HOUR), (&mut self.day, DAY)] {
            if spent.since > now {
                spent.since = begin(now, length);
            }
        }
    }
}

/// Returns the start of the hour or day in UTC; `length` is that of an hour or day.
fn begin(now: Millis, length: Millis) -> Millis {
    now - now.rem_euclid(length)
}

impl Model {
    // Limits of turns per hour and tokens per day

    /// Counts a turn in the hour and day of its claim, unless it was deferred or suspended.
    pub fn count_turn(&mut self, now: Millis, claimed_at: Millis, terminal: Word) {
        let claimed_at = claimed_at.min(now);
        if matches!(terminal, "deferred" | "suspended") {
            return;
        }
        for (spent, length) in [(&mut self.spending.hour, HOUR), (&mut self.spending.day, DAY)] {
            *spent = spent.at(begin(claimed_at, length), now);
            // A turn that was claimed in an earlier hour does not count in this one.
            spent.turns += u64::from(spent.since == begin(claimed_at, length));
        }
    }

    /// Counts tokens at the end of a turn, with any result.
    pub fn count_tokens(&mut self, now: Millis, tokens: u64) {
        for (spent, length) in [(&mut self.spending.hour, HOUR), (&mut self.spending.day, DAY)] {
            *spent = spent.at(begin(now, length), now);
            spent.tokens += tokens;
        }
    }

    /// Returns the limit that allows no further turn; if there are several, the one that ends last.
    pub fn shortage(&self, now: Millis) -> Option<Shortage> {
        let hour = self.spending.hour.at(begin(now, HOUR), now);
        let day = self.spending.day.at(begin(now, DAY), now);
        let reached = |limit, used: u64, most: Option<u64>, back_at: Millis| {
            let most = most.filter(|most| used >= *most)?;
            Some(Shortage { limit, back_at: (most > 0).then_some(back_at) })
        };
        let turns = reached("turns_per_hour", hour.turns, self.settings.turns_per_hour, hour.since + HOUR);
        let tokens = reached("tokens_per_day", day.tokens, self.settings.tokens_per_day, day.since + DAY);
        let back = |shortage: &Shortage| shortage.back_at.unwrap_or(Millis::MAX);
        match (turns, tokens) {
            (Some(turns), Some(tokens)) if back(&tokens) > back(&turns) => Some(tokens),
            (turns, tokens) => turns.or(tokens),
        }
    }

    /// Defers a claim because a limit is reached. The attempt does not count.
    pub fn lack(&mut self, now: Millis, message: Born, continuation: &Continuation, shortage: &Shortage) {
        let limit = Some(shortage.limit);
        let again = self.execution == "waiting_resources";
        if let Some(held) = self.held.as_mut().filter(|held| again && held.limit == limit) {
            held.not_before = shortage.back_at;
            return;
        }
        self.count_message(message);
        let before = self.held.take();
        let deferred = before.as_ref().map(|held| self.deferred_until(held, now)).unwrap_or_default();
        let entered = self.enter_lacking(before.as_ref().and_then(|held| held.entered));
        self.status = "awake_idle";
        self.held = Some(Held {
            message,
            limit,
            not_before: shortage.back_at,
            continuation: continuation.clone(),
            deferred: Deferred { since: deferred.since.or(Some(now)), ..deferred },
            entered,
            ..Held::default()
        });
    }

    /// True if a step may try the held run: after a limit was reached any step, because a step
    /// checks the limit again, otherwise only a step at or after `not_before`.
    pub fn may_go_on(held: &Held, now: Millis) -> bool {
        held.limit.is_some() || held.not_before.is_some_and(|at| now >= at)
    }

    /// Lets a deferred run continue at once if an `interject` message has come since its deferral.
    pub fn try_if_asked(&mut self, now: Millis) {
        let came_since = |born: Born| self.since < born.0 && born.0 <= now;
        let last =
            self.queue.iter().filter(|message| message.priority == 0).map(|message| message.born).max();
        if last.is_some_and(came_since)
            && self.execution == "waiting_resources"
            && self.held.as_ref().is_some_and(|held| held.limit.is_none() && !held.needs_operator)
        {
            self.try_now(now);
        }
    }

    /// Returns the deferrals of a held run, with the time up to now that it has waited for a limit.
    pub fn deferred_until(&self, held: &Held, now: Millis) -> Deferred {
        let waited = if held.limit.is_some() { (now - self.since).max(0) } else { 0 };
        Deferred { known: held.deferred.known + waited, ..held.deferred }
    }

    // Turns that exit with 75

    pub fn defer(&mut self, now: Millis) -> Option<Word> {
        let run = self.end_run("deferred")?;
        let setbacks = self.setbacks_of(run.message)?;
        setbacks.interruptions = 0;
        setbacks.deferrals += 1;
        let times = setbacks.deferrals;
        if times >= self.settings.max_deferrals {
            self.hold(run.message, run.continuation);
            return Some("deferred");
        }
        let since = run.deferred.since.unwrap_or(now);
        self.enter("waiting_resources", None);
        self.status = "awake_idle";
        self.held = Some(Held {
            message: run.message,
            missing: NOT_NOW.to_owned(),
            not_before: Some(now + backoff(times).min(MAX_DELAY)),
            continuation: run.continuation,
            deferred: Deferred { since: Some(since), ..run.deferred },
            ..Held::default()
        });
        Some("deferred")
    }

    // Messages that are held for the operator

    /// Holds a message until the operator decides, and raises an attention.
    pub fn hold(&mut self, message: Born, continuation: Continuation) {
        self.enter("waiting_resources", None);
        self.status = "awake_idle";
        let said = self.in_queue(message).map(|queued| queued.said.clone());
        self.raise("message_held", said);
        let missing = HELD.to_owned();
        self.held = Some(Held { message, missing, continuation, needs_operator: true, ..Held::default() });
    }

    /// Removes the need for the operator, who has decided about the held message.
    pub fn release_hold(&mut self) {
        let Some(held) = self.held.as_mut().filter(|held| held.needs_operator) else { return };
        held.needs_operator = false;
        let message = held.message;
        if let Some(said) = self.in_queue(message).map(|queued| queued.said.clone()) {
            self.acknowledge_hold(&said);
        }
    }

    // Transitions out of `waiting_resources`

    /// Lets the next step continue the held run, and resets its interruptions and deferrals to 0.
    pub fn retry_held(&mut self, now: Millis) {
        if self.held.as_ref().is_some_and(|held| held.needs_operator) {
            return;
        }
        self.try_now(now);
        if let Some(held) = self.held.as_mut() {
            held.deferred = Deferred { since: Some(now), ..Deferred::default() };
            let message = held.message;
            self.setbacks_of(message).into_iter().for_each(|setbacks| *setbacks = Setbacks::default());
        }
        self.wake_up();
    }

    fn try_now(&mut self, now: Millis) {
        if let Some(held) = self.held.as_mut() {
            held.not_before = Some(held.not_before.map_or(now, |at| at.min(now)));
        }
    }

    /// Gives up the held run. The agent recovers, then takes up the next message.
    pub fn release_held(&mut self) -> Option<Held> {
        self.release_hold();
        let held = self.held.take()?;
        self.enter("failed", None);
        Some(held)
    }
}
