//! Tests of the limits of an agent: each limit to the millisecond, the counted turns, and the limit
//! that is reported.

use crate::rules::limits::{count_turn, count_usage, left, shortage};

use super::*;

/// Start of the present hour; the present is 22:13:20.
const HOUR: i64 = NOW_MS - 800_000;
/// Start of the present day.
const DAY: i64 = NOW_MS - 80_000_000;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

fn moment(millis: i64) -> Time {
    Time::from_millis(millis)
}

fn state(spending: Spending) -> State {
    State { spending, ..records().state }
}

fn usage(tokens: u64, cost_usd: f64) -> Usage {
    Usage {
        input_tokens: Some(tokens - tokens / 3),
        output_tokens: Some(tokens / 3),
        cost_usd: Some(cost_usd),
        model: None,
    }
}

/// Returns the state after turns at these times, each with this usage.
fn after(turns: &[i64], tokens: u64, cost_usd: f64) -> State {
    let mut spending = Spending::default();
    for at in turns {
        count_turn(&mut spending, moment(*at), moment(*at), Terminal::Completed);
        count_usage(&mut spending, moment(*at), &usage(tokens, cost_usd));
    }
    state(spending)
}

fn limits(set: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    set(&mut limits);
    limits
}

type Set = fn(&mut Limits);

/// Rows: resource, a limit that two turns of 300 tokens and ten cents each have reached, a limit
/// that they have not reached, and the start and the length of its period in milliseconds.
const ROWS: [(Resource, Set, Set, i64, i64); 4] = [
    (Resource::TurnsPerHour, |l| l.turns_per_hour = Some(2), |l| l.turns_per_hour = Some(3), HOUR, HOUR_MS),
    (Resource::TurnsPerDay, |l| l.turns_per_day = Some(2), |l| l.turns_per_day = Some(3), DAY, DAY_MS),
    (Resource::CostPerDay, |l| l.cost_per_day = Some(0.2), |l| l.cost_per_day = Some(0.21), DAY, DAY_MS),
    (Resource::TokensPerDay, |l| l.tokens_per_day = Some(600), |l| l.tokens_per_day = Some(601), DAY, DAY_MS),
];

#[test]
fn a_limit_that_is_reached_ends_with_its_hour_or_day_to_the_millisecond() {
    for (resource, reached, not_yet, start, length) in ROWS {
        for first in [start, start + length - 20] {
            let state = after(&[first, first + 10], 300, 0.1);
            let end = start + length;
            for at in [first + 10, end - 1] {
                let found = shortage(&state, &limits(reached), moment(at)).expect("reached");
                assert_eq!((found.resource, found.back_at), (resource, Some(moment(end))), "at {at}");
                assert_eq!(shortage(&state, &limits(not_yet), moment(at)), None, "{resource} at {at}");
            }
            assert_eq!(shortage(&state, &limits(reached), moment(end)), None, "{resource} at its end");
        }
        let before = after(&[start - 1, start - 1], 300, 0.1);
        assert_eq!(shortage(&before, &limits(reached), moment(start)), None, "{resource} of the one before");
    }
}

#[test]
fn the_evidence_has_the_used_amount_and_the_end_of_the_period() {
    let state = after(&[HOUR, HOUR + 10], 300, 0.1);
    let told = |set: Set| shortage(&state, &limits(set), moment(HOUR + 20)).expect("reached").evidence;
    assert_eq!(
        told(|l| l.turns_per_hour = Some(2)),
        ["2 of 2 since 2023-11-14T22:00:00.000Z", "back at 2023-11-14T23:00:00.000Z"]
    );
    assert_eq!(
        told(|l| l.cost_per_day = Some(0.15)),
        ["0.2 of 0.15 USD since 2023-11-14T00:00:00.000Z", "back at 2023-11-15T00:00:00.000Z"]
    );
}

#[test]
fn of_several_limits_the_one_that_ends_last_counts_and_a_limit_of_zero_never_ends() {
    let state = after(&[HOUR], 300, 0.1);
    let found = |set: Set| {
        let found = shortage(&state, &limits(set), moment(HOUR));
        found.map(|found| (found.resource, found.back_at.map(Time::as_millis)))
    };
    let both: Set = |l| (l.turns_per_hour, l.tokens_per_day) = (Some(1), Some(1));
    assert_eq!(found(both), Some((Resource::TokensPerDay, Some(DAY + DAY_MS))));
    let none: Set = |l| (l.turns_per_hour, l.turns_per_day) = (Some(0), Some(1));
    assert_eq!(found(none), Some((Resource::TurnsPerHour, None)), "the limit allows no turn at all");
    let free: Set = |l| l.cost_per_day = Some(0.0);
    assert_eq!(found(free), Some((Resource::CostPerDay, None)));
    assert_eq!(found(|_| {}), None);
}

#[test]
fn ten_times_ten_cents_are_a_dollar() {
    let state = after(&[HOUR; 10], 3, 0.1);
    let dollar = limits(|limits| limits.cost_per_day = Some(1.0));
    let found = shortage(&state, &dollar, moment(HOUR)).expect("reached");
    assert!(found.evidence[0].starts_with("1 of 1 USD since"), "{:?}", found.evidence);
}

#[test]
fn a_deferred_or_suspended_turn_does_not_count_and_every_other_turn_does() {
    for terminal in Terminal::ALL {
        let mut spending = Spending::default();
        count_turn(&mut spending, moment(HOUR), moment(HOUR), *terminal);
        let counted = spending.hour.map_or(0, |hour| hour.turns);
        let expected = !matches!(terminal, Terminal::Deferred | Terminal::Suspended);
        assert_eq!(counted, u64::from(expected), "{terminal}");
    }
}

#[test]
fn a_turn_counts_in_the_hour_of_its_claim_and_its_usage_in_the_hour_of_its_end() {
    let mut spending = Spending::default();
    count_usage(&mut spending, moment(HOUR + HOUR_MS), &usage(300, 0.1));
    count_turn(&mut spending, moment(HOUR), moment(HOUR + HOUR_MS), Terminal::Completed);
    let (hour, day) = (spending.hour.expect("an hour"), spending.day.expect("a day"));
    assert_eq!((hour.since, hour.turns, hour.tokens), (moment(HOUR + HOUR_MS), 0, 300));
    assert_eq!((day.since, day.turns, day.tokens), (moment(DAY), 1, 300));
}

#[test]
fn a_clock_that_is_set_back_does_not_reset_a_limit() {
    let state = after(&[HOUR + HOUR_MS; 2], 300, 0.1);
    let two = limits(|limits| limits.turns_per_hour = Some(2));
    let found = shortage(&state, &two, moment(HOUR)).expect("still reached");
    assert_eq!(found.back_at, Some(moment(HOUR + HOUR_MS)), "the end of the present hour");
    let mut spending = Spending::default();
    count_usage(&mut spending, moment(HOUR), &usage(3, -5.0));
    assert_eq!(spending.day.map(|day| day.cost_usd), Some(0.0), "a negative cost counts as zero");
    let mut spending = Spending::default();
    for _ in 0..2 {
        count_usage(&mut spending, moment(HOUR), &usage(u64::MAX, f64::MAX));
    }
    let day = spending.day.expect("a day");
    assert_eq!((day.cost_usd, day.tokens), (f64::MAX, u64::MAX), "the maxima that JSON can store");
}

#[test]
fn the_running_turn_counts_against_the_turns_that_are_left() {
    let all = limits(|limits| {
        limits.turns_per_hour = Some(5);
        limits.turns_per_day = Some(2);
        limits.cost_per_day = Some(0.5);
        limits.tokens_per_day = Some(500);
    });
    let mut state = after(&[HOUR, HOUR], 300, 0.1);
    let found = left(&state, &all, moment(HOUR));
    assert_eq!((found.turns_per_hour, found.turns_per_day), (Some(3), Some(0)));
    assert_eq!((found.cost_per_day, found.tokens_per_day), (Some(0.3), Some(0)));
    state.current_run = Some(CurrentRun { claimed_at: moment(HOUR), ..current_run(&prompt(1)) });
    assert_eq!(left(&state, &all, moment(HOUR)).turns_per_hour, Some(2));
    assert_eq!(
        left(&state, &all, moment(HOUR + HOUR_MS)).turns_per_hour,
        Some(5),
        "the run counts in another hour"
    );
    assert_eq!(left(&state, &Limits::default(), moment(HOUR)), Default::default());
}
