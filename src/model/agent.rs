//! Identity of an agent, written when the agent is created and when it is renamed.

use serde::{Deserialize, Serialize};

use super::id::AgentName;
use super::record::{Extra, record};
use super::time::Time;

names! {
    /// Origin of an agent: created by a person, or for a parent.
    "kind of agent" AgentKind {
        Named = "named",
        Child = "child",
    }
}

names! {
    /// Audience of an agent: all senders, or only the operator, its parent and its triggers.
    "visibility" Visibility {
        Public = "public",
        Private = "private",
    }
}

/// `identity.json` (contract, semantics §1).
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Identity {
    pub name: AgentName,
    pub kind: AgentKind,
    pub visibility: Visibility,
    pub owner: Option<AgentName>,
    pub parent: Option<AgentName>,
    pub profile: Option<String>,
    pub created_at: Time,
    /// Earlier names of the agent, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_names: Vec<FormerName>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// Earlier name of a renamed agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FormerName {
    pub name: AgentName,
    pub until: Time,
}

record! { Identity = "identity" }

names! {
    /// Status of an agent: a coarse label (contract, semantics §2). Only with `booting` and
    /// `stopped` do steps take up no messages.
    "status" Status {
        Booting = "booting",
        AwakeIdle = "awake_idle",
        AwakeRunning = "awake_running",
        AwaitingTask = "awaiting_task",
        Asleep = "asleep",
        /// Old records contain `paused`, which is read as `stopped` and never written.
        Stopped = "stopped" | "paused",
    }
}
