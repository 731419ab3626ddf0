//! `[authority]` of `agent.toml`: what turns and tasks of an agent may do to other agents.

use serde::Deserialize;

names! {
    /// Which agents the turns and tasks of an agent may create, start, stop, recover and tick.
    #[derive(Default)]
    "reach of an agent" Reach {
        #[default]
        Children = "children",
        All = "all",
    }
}

/// What turns and tasks of the agent may do to other agents.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Authority {
    /// The reach of its lifecycle commands: its own children, or all agents.
    pub lifecycle: Reach,
}
