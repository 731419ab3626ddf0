//! `[scheduler]` of `agent.toml`: the machines that tick an agent, and its priority among agents.

use serde::Deserialize;

use super::limit::Limit;
use super::pool::Pool;
use super::time::Span;

/// Priority and pool of the agent, for a tick of many agents.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SchedulingPolicy {
    /// From -19, the most urgent, to 20.
    pub priority: i8,
    /// Machines that tick the agent, where several share a database: those of this pool.
    pub pool: Pool,
    /// Time after which an unprocessed due or queued item shows that nothing ticks the agent.
    /// Absent: the setting of `dormouse.toml`. It affects only output.
    pub overdue_after: Option<Limit>,
}

impl SchedulingPolicy {
    pub const MOST_URGENT: i8 = -19;
    pub const LEAST_URGENT: i8 = 20;
    /// Policy for an agent that is stopped or not started, with the lowest priority.
    pub const LEAST: SchedulingPolicy = SchedulingPolicy {
        priority: SchedulingPolicy::LEAST_URGENT,
        pool: Pool::COMMON,
        overdue_after: None,
    };
    /// Default of `overdue_after`.
    pub const OVERDUE_AFTER: Limit = Limit(Some(Span::from_secs(600)));
}
