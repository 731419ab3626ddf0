//! An agent's own limits: what was used in this hour and this day (execution §8).

use super::reference::{Born, Continuation, Held, Millis, Model, Word};

const HOUR: Millis = 3_600_000;
const DAY: Millis = 24 * HOUR;

/// A limit that is reached, and when it is back; `None`: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    pub limit: Word,
    back_at: Option<Millis>,
}

/// What was used since the hour or day began.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    since: Millis,
    turns: u64,
    tokens: u64,
}

impl Spent {
    /// The sum for a moment, or for a later one if the clock was set back.
    fn at(self, begin: Millis) -> Spent {
        if self.since < begin { Spent { since: begin, turns: 0, tokens: 0 } } else { self }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Spending {
    hour: Spent,
    day: Spent,
}

/// The hours and days of the calendar.
fn begin(now: Millis, length: Millis) -> Millis {
    now - now.rem_euclid(length)
}

impl Model {
    /// A turn counts in the hour and day in which it was claimed, if its attempt counts.
    pub(super) fn count_turn(&mut self, claimed_at: Millis, terminal: Word) {
        if matches!(terminal, "deferred" | "suspended") {
            return;
        }
        for (spent, length) in [(&mut self.spending.hour, HOUR), (&mut self.spending.day, DAY)] {
            *spent = spent.at(begin(claimed_at, length));
            // One of an hour that was over already is no turn of this hour.
            spent.turns += u64::from(spent.since == begin(claimed_at, length));
        }
    }

    /// Tokens count when the turn ends, whatever came of it.
    pub(super) fn count_tokens(&mut self, now: Millis, tokens: u64) {
        for (spent, length) in [(&mut self.spending.hour, HOUR), (&mut self.spending.day, DAY)] {
            *spent = spent.at(begin(now, length));
            spent.tokens += tokens;
        }
    }

    /// What keeps another turn from starting: of several, what is back last.
    pub(super) fn shortage(&self, now: Millis) -> Option<Shortage> {
        let (hour, day) = (self.spending.hour.at(begin(now, HOUR)), self.spending.day.at(begin(now, DAY)));
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

    /// A claim is put off; its attempt does not count.
    pub(super) fn lack(&mut self, message: Born, continuation: &Continuation, shortage: &Shortage) {
        let limit = Some(shortage.limit);
        let again = self.execution == "waiting_resources";
        if let Some(held) = self.held.as_mut().filter(|held| again && held.limit == limit) {
            held.not_before = shortage.back_at;
            return;
        }
        let before = self.held.take();
        let entered = self.enter_running().or(before.as_ref().and_then(|held| held.entered));
        self.enter("waiting_resources", None);
        self.status = "awake_idle";
        self.held = Some(Held {
            message,
            missing: String::new(),
            limit,
            not_before: shortage.back_at,
            continuation: continuation.clone(),
            deferrals: 0,
            checkpoint: before.and_then(|held| held.checkpoint),
            entered,
        });
    }
}
