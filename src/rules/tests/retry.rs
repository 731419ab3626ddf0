//! Tests of the retry delay: the values of each strategy, the maximum, jitter, and no overflow.

use crate::model::recovery::{RecoveryPolicy, Strategy};
use proptest::prelude::*;

use super::*;

fn policy(strategy: Strategy) -> RecoveryPolicy {
    RecoveryPolicy { strategy, ..RecoveryPolicy::default() }
}

#[test]
fn the_default_is_exponential_from_one_second_capped_at_an_hour_with_five_attempts() {
    let default = RecoveryPolicy::default();
    assert_eq!(default.strategy, Strategy::Exponential);
    assert_eq!((default.base, default.max_delay), (secs(1), secs(3600)));
    assert_eq!((default.jitter, default.max_attempts), (0.1, 5));
}

#[test]
fn exponential_doubles_from_the_base() {
    let rows = [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (11, 1024), (12, 2048)];
    for (attempt, seconds) in rows {
        let found = policy(Strategy::Exponential).delay(attempt, 0.9);
        assert_eq!(found, secs(seconds), "after attempt {attempt}");
    }
    let slow = RecoveryPolicy { base: secs(90), ..policy(Strategy::Exponential) };
    assert_eq!(slow.delay(3, 0.0), secs(360));
}

#[test]
fn exponential_never_exceeds_max_delay_after_any_number_of_attempts() {
    for attempt in [13, 14, 40, 63, 64, 65, 66, 1000, u32::MAX] {
        assert_eq!(policy(Strategy::Exponential).delay(attempt, 0.0), secs(3600), "after attempt {attempt}");
    }
    let unlimited = RecoveryPolicy {
        base: Span::from_millis(u64::MAX),
        max_delay: Span::from_millis(u64::MAX),
        ..policy(Strategy::Exponential)
    };
    assert_eq!(unlimited.delay(u32::MAX, 0.0), Span::from_millis(u64::MAX));
}

#[test]
fn fixed_is_always_the_base_and_at_most_max_delay() {
    let fixed = RecoveryPolicy { base: secs(7), ..policy(Strategy::Fixed) };
    for attempt in [1, 2, 5, 64, u32::MAX] {
        assert_eq!(fixed.delay(attempt, 0.9), secs(7), "after attempt {attempt}");
    }
    let capped = RecoveryPolicy { max_delay: secs(3), ..fixed };
    assert_eq!(capped.delay(1, 0.0), secs(3));
}

#[test]
fn jittered_adds_a_share_that_the_random_number_gives() {
    let jittered = policy(Strategy::Jittered);
    let rows = [(1, 0.0, 1000), (1, 0.5, 1050), (2, 0.5, 2100), (5, 0.0, 16_000), (5, 0.25, 16_400)];
    for (attempt, chance, millis) in rows {
        let found = jittered.delay(attempt, chance);
        assert_eq!(found, Span::from_millis(millis), "attempt {attempt}, chance {chance}");
    }
    let none = RecoveryPolicy { jitter: 0.0, ..jittered };
    assert_eq!(none.delay(5, 0.999), secs(16));
}

proptest! {
    #[test]
    fn jittered_is_never_less_than_exponential_and_at_most_ten_percent_more(
        attempt in 1u32..200, chance in 0.0f64..1.0,
    ) {
        let plain = policy(Strategy::Exponential).delay(attempt, chance).as_millis();
        let jittered = policy(Strategy::Jittered).delay(attempt, chance).as_millis();
        prop_assert!(jittered >= plain);
        prop_assert!(jittered <= plain + plain / 10);
    }

    #[test]
    fn no_attempt_and_no_policy_overflows_and_a_later_attempt_never_waits_less(
        base in any::<u64>(), max in any::<u64>(), attempt in 1u32..u32::MAX, strategy in 0usize..2,
    ) {
        let policy = RecoveryPolicy {
            strategy: [Strategy::Exponential, Strategy::Fixed][strategy],
            base: Span::from_millis(base),
            max_delay: Span::from_millis(max),
            ..RecoveryPolicy::default()
        };
        let this = policy.delay(attempt, 0.5);
        prop_assert!(this <= policy.max_delay);
        prop_assert!(policy.delay(attempt + 1, 0.5) >= this);
    }
}
