//! `[scheduler]` of `agent.toml`: which machines tick an agent, and when its turn comes among others.

use serde::Deserialize;

use super::pool::Pool;

/// The agent's place among others, for a tick that goes through many.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SchedulingPolicy {
    /// From -19, the most urgent, to 20.
    pub priority: i8,
    /// Which machines tick the agent, where several share a database: those of this pool.
    pub pool: Pool,
}

impl SchedulingPolicy {
    pub const MOST_URGENT: i8 = -19;
    pub const LEAST_URGENT: i8 = 20;
    /// The place of an agent that is stopped or not started yet.
    pub const LEAST: SchedulingPolicy =
        SchedulingPolicy { priority: SchedulingPolicy::LEAST_URGENT, pool: Pool::COMMON };
}
