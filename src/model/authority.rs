//! `[authority]` of `agent.toml`: rights of an agent's turns and tasks over other agents.

use serde::Deserialize;

names! {
    /// Agents that an agent's turns and tasks may create, start, stop, recover and tick.
    #[derive(Default)]
    "reach of an agent" Reach {
        #[default]
        Children = "children",
        All = "all",
    }
}

/// Rights of the agent's turns and tasks over other agents.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Authority {
    /// Reach of its lifecycle commands: its own children, or all agents.
    pub lifecycle: Reach,
}
