//! The identity of an agent: written when the agent is made, and again only where an agent gets
//! another name.

use serde::{Deserialize, Serialize};

use super::id::AgentName;
use super::record::{Extra, Record};
use super::time::Time;

names! {
    /// Where an agent comes from.
    "kind of agent" AgentKind {
        Named = "named",
        Child = "child",
    }
}

names! {
    /// To whom an agent is shown.
    "visibility" Visibility {
        Public = "public",
        Private = "private",
    }
}

/// `identity.json` (contract, semantics §1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Identity {
    pub name: AgentName,
    pub kind: AgentKind,
    pub visibility: Visibility,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<AgentName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<AgentName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    pub created_at: Time,
    /// The names that it had before it was renamed, the first one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_names: Vec<FormerName>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A name that an agent had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FormerName {
    pub name: AgentName,
    pub until: Time,
}

impl Record for Identity {
    const KIND: &'static str = "identity";
    fn extra_mut(&mut self) -> &mut Extra {
        &mut self.extra
    }
}

names! {
    /// The coarse label of an agent (contract, semantics §2). Only `stopped` is a gate.
    "status" Status {
        Booting = "booting",
        AwakeIdle = "awake_idle",
        AwakeRunning = "awake_running",
        AwaitingTask = "awaiting_task",
        Asleep = "asleep",
        /// Old records say `paused`; it is read as this and never written.
        Stopped = "stopped" | "paused",
    }
}
