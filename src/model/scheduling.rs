//! `[scheduler]` of `agent.toml`: which machines tick an agent, and when its turn comes among
//! others.

use serde::Deserialize;

use super::limit::Limit;
use super::pool::Pool;
use super::time::Span;

/// The agent's place among others, for a tick that goes through many.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SchedulingPolicy {
    /// From -19, the most urgent, to 20.
    pub priority: i8,
    /// Which machines tick the agent, where several share a database: those of this pool.
    pub pool: Pool,
    /// The time after which something that is due or queued shows that nobody ticks. Absent: that
    /// of `dormouse.toml`. Only what is shown uses it.
    pub overdue_after: Option<Limit>,
}

impl SchedulingPolicy {
    pub const MOST_URGENT: i8 = -19;
    pub const LEAST_URGENT: i8 = 20;
    /// The place of an agent that is stopped or not started yet.
    pub const LEAST: SchedulingPolicy = SchedulingPolicy {
        priority: SchedulingPolicy::LEAST_URGENT,
        pool: Pool::COMMON,
        overdue_after: None,
    };
    /// The `overdue_after` of an agent where no file says otherwise.
    pub const OVERDUE_AFTER: Limit = Limit(Some(Span::from_secs(600)));
}
