//! Policy for failed turns: pauses, attempts, and limits of interruptions and deferrals.

use serde::Deserialize;
use smart_default::SmartDefault;

use super::time::Span;

names! {
    #[derive(Default)]
    "recovery strategy" Strategy {
        #[default]
        Exponential = "exponential",
        Fixed = "fixed",
        Jittered = "jittered",
    }
}

names! {
    /// Policy for an agent after the last attempt of a message has failed.
    #[derive(Default)]
    "way to continue" OnExhausted {
        #[default]
        Park = "park",
        Stop = "stop",
    }
}

#[derive(Debug, Clone, PartialEq, SmartDefault, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RecoveryPolicy {
    pub strategy: Strategy,
    #[default(Span::from_secs(1))]
    pub base: Span,
    #[default(Span::from_secs(3600))]
    pub max_delay: Span,
    /// Maximum random increase of the delay, as a fraction of the delay.
    #[default = 0.1]
    pub jitter: f64,
    #[default = 5]
    pub max_attempts: u32,
    /// Number of consecutive interruptions after which a message is held for the operator.
    #[default = 20]
    pub max_interruptions: u32,
    /// Number of deferrals, or of suspensions, after which a message is held for the operator.
    #[default = 100]
    pub max_deferrals: u32,
    /// Maximum time for which a turn may defer its message.
    #[default(Span::from_secs(35 * 24 * 3600))]
    pub max_deferral: Span,
    pub on_exhausted: OnExhausted,
}

impl RecoveryPolicy {
    /// Returns the delay between failed attempt number `attempt`, from 1, and the next attempt
    /// (contract, execution §7). `chance` is a number in `0.0..1.0`.
    pub fn delay(&self, attempt: u32, chance: f64) -> Span {
        let factor = 1u64.checked_shl(attempt.saturating_sub(1)).unwrap_or(u64::MAX);
        let exponential = self.base.times(factor).min(self.max_delay);
        match self.strategy {
            Strategy::Fixed => self.base.min(self.max_delay),
            Strategy::Exponential => exponential,
            Strategy::Jittered => {
                let extra = exponential.as_millis() as f64 * self.jitter * chance;
                exponential.plus(Span::from_millis(extra as u64))
            }
        }
    }
}
