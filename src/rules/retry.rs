//! Delay between a failed turn and its next attempt (contract, execution §7).

use crate::model::recovery::{RecoveryPolicy, Strategy};
use crate::model::time::Span;

/// Returns the delay after attempt number `attempt`, from 1. `chance` is a number in `0.0..1.0`.
pub fn delay(policy: &RecoveryPolicy, attempt: u32, chance: f64) -> Span {
    let doublings = attempt.saturating_sub(1);
    let exponential = || {
        let factor = 1u64.checked_shl(doublings).unwrap_or(u64::MAX);
        Span::from_millis(policy.base.as_millis().saturating_mul(factor)).min(policy.max_delay)
    };
    match policy.strategy {
        Strategy::Fixed => policy.base.min(policy.max_delay),
        Strategy::Exponential => exponential(),
        Strategy::Jittered => {
            let delay = exponential();
            let extra = delay.as_millis() as f64 * policy.jitter * chance;
            Span::from_millis(delay.as_millis().saturating_add(extra as u64))
        }
    }
}
