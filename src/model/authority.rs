//! What people let turns of an agent do to others: `[authority]` in `agent.toml`.

use serde::Deserialize;

names! {
    /// Whom turns and tasks of an agent may create, start, stop, recover and tick.
    #[derive(Default)]
    "reach of an agent" Reach {
        #[default]
        Children = "children",
        All = "all",
    }
}

/// What turns and tasks of the agent may do to others.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Authority {
    /// Its own children alone, unless it is `all`.
    pub lifecycle: Reach,
}
