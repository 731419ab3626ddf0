//! Allowance of an agent: the turns, tokens and dollars that it may use per calendar hour or day in
//! UTC (contract, execution §8).
//!
//! Only the sums of the current hour and day are stored. So the cost of a step does not depend on
//! earlier usage, and the time at which the allowance is renewed is exact.

use serde::Serialize;

use crate::model::policy::Limits;
use crate::model::resource::{Resource, Shortage};
use crate::model::run::{Terminal, Usage};
use crate::model::state::{Spending, Spent, State};
use crate::model::time::{Span, Time};

const HOUR: Span = Span::from_secs(3600);
const DAY: Span = Span::from_secs(24 * 3600);

/// Dollars are counted in billionths, so that ten times ten cents are exactly one dollar.
const PARTS_OF_A_DOLLAR: f64 = 1e9;

/// Amount left of each limit that the policy sets. The running turn counts as a used turn.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Allowance {
    pub turns_per_hour: Option<u64>,
    pub turns_per_day: Option<u64>,
    pub cost_per_day: Option<f64>,
    pub tokens_per_day: Option<u64>,
}

pub fn left(state: &State, limits: &Limits, now: Time) -> Allowance {
    let [hour, day] = spent(state, now);
    Allowance {
        turns_per_hour: limits.turns_per_hour.map(|limit| limit.saturating_sub(hour.turns)),
        turns_per_day: limits.turns_per_day.map(|limit| limit.saturating_sub(day.turns)),
        cost_per_day: limits.cost_per_day.map(|limit| dollars(limit - day.cost_usd).max(0.0)),
        tokens_per_day: limits.tokens_per_day.map(|limit| limit.saturating_sub(day.tokens)),
    }
}

/// Returns the limit that prevents another turn; of several limits, the one that is renewed last.
pub fn shortage(state: &State, limits: &Limits, now: Time) -> Option<Shortage> {
    let [hour, day] = spent(state, now);
    let counted = |resource, used: u64, limit: Option<u64>, since: Time, length: Span| {
        let limit = limit.filter(|limit| used >= *limit)?;
        let back_at = (limit > 0).then(|| since.after(length));
        Some(reached(resource, format!("{used} of {limit}"), since, back_at))
    };
    let cost = limits.cost_per_day.filter(|limit| day.cost_usd >= *limit).map(|limit| {
        let back_at = (limit != 0.0).then(|| day.since.after(DAY));
        reached(Resource::CostPerDay, format!("{} of {limit} USD", day.cost_usd), day.since, back_at)
    });
    [
        counted(Resource::TurnsPerHour, hour.turns, limits.turns_per_hour, hour.since, HOUR),
        counted(Resource::TurnsPerDay, day.turns, limits.turns_per_day, day.since, DAY),
        cost,
        counted(Resource::TokensPerDay, day.tokens, limits.tokens_per_day, day.since, DAY),
    ]
    .into_iter()
    .flatten()
    // A limit that is never renewed counts as renewed last. The reversed order makes `max_by_key`
    // return the first listed of several limits that are renewed at the same time.
    .rev()
    .max_by_key(|shortage| (shortage.back_at.is_none(), shortage.back_at))
}

fn reached(resource: Resource, used: String, since: Time, back_at: Option<Time>) -> Shortage {
    let used = format!("{used} since {since}");
    let back = back_at.map(|at| format!("back at {at}"));
    let evidence = std::iter::once(used).chain(back).collect();
    Shortage { resource, evidence, back_at, is_occupied: false }
}

/// Rounds a sum of dollars to billionths, against errors of the additions. The result is finite.
pub fn dollars(sum: f64) -> f64 {
    let parts = (sum * PARTS_OF_A_DOLLAR).round();
    if parts.is_finite() { parts / PARTS_OF_A_DOLLAR } else { sum.min(f64::MAX) }
}

/// Returns the two windows of the allowance (hour and day): the length of each, and its usage.
pub fn windows(spending: &mut Spending) -> [(Span, &mut Option<Spent>); 2] {
    [(HOUR, &mut spending.hour), (DAY, &mut spending.day)]
}

/// Returns the start of the hour or day that contains `at`, for a window of this length.
pub fn start(length: Span, at: Time) -> Time {
    let length = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
    Time::from_millis(at.as_millis().div_euclid(length) * length)
}

/// Counts a turn in the hour and the day in which it was claimed. A deferred or suspended turn is
/// not counted, because it resumes later as part of the same attempt.
///
/// A claim time in the future, which a fast clock wrote, is taken as `now`.
pub fn count_turn(spending: &mut Spending, claimed_at: Time, now: Time, terminal: Terminal) {
    let claimed_at = claimed_at.min(now);
    if matches!(terminal, Terminal::Deferred | Terminal::Suspended) {
        return;
    }
    for (length, slot) in windows(spending) {
        let start = start(length, claimed_at);
        let spent = current(slot, start, now);
        // Usage is stored only for the current hour and day, so an earlier turn is not counted.
        if spent.since == start {
            spent.turns = spent.turns.saturating_add(1);
        }
    }
}

/// Adds a turn's reported usage to the hour and the day of the report, however the turn ended.
pub fn count_usage(spending: &mut Spending, now: Time, usage: &Usage) {
    let tokens = usage.input_tokens.unwrap_or(0).saturating_add(usage.output_tokens.unwrap_or(0));
    // A negative cost would increase the allowance, so it counts as zero.
    let cost = usage.cost_usd.unwrap_or(0.0).max(0.0);
    for (length, slot) in windows(spending) {
        let spent = current(slot, start(length, now), now);
        spent.tokens = spent.tokens.saturating_add(tokens);
        spent.cost_usd = dollars(spent.cost_usd + cost);
    }
}

/// Returns the stored usage of the hour or day that begins at `start`. Usage of an earlier one is
/// first reset to zero. A stored begin after `now`, which a wrong clock wrote, becomes `start`, so
/// that the usage still counts.
fn current(slot: &mut Option<Spent>, start: Time, now: Time) -> &mut Spent {
    let spent = slot.get_or_insert(Spent::nothing(start));
    if spent.since > now {
        spent.since = start;
    }
    if spent.since < start {
        *spent = Spent::nothing(start);
    }
    spent
}

/// Returns the usage in the hour and in the day that contain `now`, including the running turn.
fn spent(state: &State, now: Time) -> [Spent; 2] {
    windows(&mut state.spending.clone()).map(|(length, slot)| {
        let spent = current(slot, start(length, now), now);
        let is_counted = state.current_run.as_ref().is_some_and(|run| run.claimed_at >= spent.since);
        Spent { turns: spent.turns.saturating_add(u64::from(is_counted)), ..spent.clone() }
    })
}
