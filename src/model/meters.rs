//! Counters of an agent's turns that only grow, so that a monitoring system can compare two
//! readings. The counters change as turns end, so that reading them needs no history.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::record::is_default;
use super::run::Terminal;
use super::time::Span;

/// Counters since the agent's creation, or since a version with counters first changed the agent.
#[serde_with::apply(_ => #[serde(skip_serializing_if = "is_default")])]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Meters {
    /// Number of turns by their end.
    pub ended: BTreeMap<Terminal, u64>,
    /// Durations of the turns whose end a live process observed.
    pub turns: Lengths,
    /// Lock waits of commands that had to wait for the agent's lock and then changed its records.
    pub lock: Waited,
}

impl Meters {
    /// Counts an ended turn. `took`: duration; `None` if no live process observed the end.
    pub fn count_turn(&mut self, terminal: Terminal, took: Option<Span>) {
        let ended = self.ended.entry(terminal).or_default();
        *ended = ended.saturating_add(1);
        if let Some(took) = took {
            self.turns.count(took);
        }
    }
}

/// Histogram of durations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Lengths {
    pub count: u64,
    pub sum_ms: u64,
    /// Number of durations by upper bound in seconds, which is one of [`Lengths::BOUNDS`]: at most
    /// this bound, and more than the previous one. Longer durations are only in `count`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub within: BTreeMap<u64, u64>,
}

impl Lengths {
    /// Upper bounds of the buckets, in seconds: from a short script to a turn of four hours.
    pub const BOUNDS: [u64; 8] = [1, 5, 15, 60, 300, 900, 3600, 14_400];

    fn count(&mut self, took: Span) {
        self.count = self.count.saturating_add(1);
        self.sum_ms = self.sum_ms.saturating_add(took.as_millis());
        if let Some(bound) = Lengths::BOUNDS.into_iter().find(|bound| took <= Span::from_secs(*bound)) {
            let within = self.within.entry(bound).or_default();
            *within = within.saturating_add(1);
        }
    }

    /// Returns the number of durations of at most `bound` seconds, which must be a bucket's bound.
    pub fn at_most(&self, bound: u64) -> u64 {
        self.within.range(..=bound).fold(0, |sum: u64, (_, count)| sum.saturating_add(*count))
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Waited {
    pub count: u64,
    pub sum_ms: u64,
}

impl Waited {
    pub fn add(&mut self, span: Span) {
        self.count = self.count.saturating_add(1);
        self.sum_ms = self.sum_ms.saturating_add(span.as_millis());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_counted_by_its_end_and_within_the_first_bound_that_holds_it() {
        let mut meters = Meters::default();
        for ms in [0, 1000, 1001, 299_999, 14_400_001] {
            meters.count_turn(Terminal::Completed, Some(Span::from_millis(ms)));
        }
        meters.count_turn(Terminal::Interrupted, None);
        assert_eq!(meters.ended, [(Terminal::Completed, 5), (Terminal::Interrupted, 1)].into());
        assert_eq!(meters.turns.within, [(1, 2), (5, 1), (300, 1)].into());
        assert_eq!((meters.turns.count, meters.turns.sum_ms), (5, 14_702_001));
        assert_eq!(Lengths::BOUNDS.map(|bound| meters.turns.at_most(bound)), [2, 3, 3, 3, 4, 4, 4, 4]);
        let text = serde_json::to_string(&meters).expect("JSON");
        assert_eq!(serde_json::from_str::<Meters>(&text).expect("meters"), meters, "{text}");
        assert_eq!(serde_json::from_str::<Meters>("{}").expect("meters"), Meters::default());
    }
}
