//! Who goes first when one tick goes through many agents: the more urgent one, and among equals
//! the one that has waited longer. Nobody waits for ever: waiting makes urgent.

use std::cmp::Reverse;

use crate::model::policy::SchedulingPolicy;
use crate::model::time::{Span, Time};

/// How long it takes until an agent with due work counts as one step more urgent. The least urgent
/// is as urgent as the most urgent after 39 minutes.
const AGING: Span = Span::from_secs(60);

/// Where an agent stands in line: the smallest goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Its own priority, made more urgent by waiting.
    pub effective: i64,
    waiting: Reverse<Span>,
}

/// `since`: when the oldest thing came that the agent has to do now, if there is any.
pub fn rank(policy: &SchedulingPolicy, since: Option<Time>, now: Time) -> Rank {
    let waiting = since.map_or(Span::ZERO, |since| now.since(since));
    let aged = i64::try_from(waiting.as_millis() / AGING.as_millis()).unwrap_or(i64::MAX);
    let effective =
        i64::from(policy.priority).saturating_sub(aged).max(i64::from(SchedulingPolicy::MOST_URGENT));
    Rank { effective, waiting: Reverse(waiting) }
}
