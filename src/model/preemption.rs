//! A run that somebody wants to yield (contract, execution §6).

use serde::{Deserialize, Serialize};

use super::id::{AgentName, RunId};
use super::time::{Span, Time};

/// The one pending request of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Preemption {
    /// That of the latest request.
    pub reason: String,
    /// When it was first asked for.
    pub requested_at: Time,
    /// The end of the grace. A run that has not yielded by then is ended, once it has no section open.
    pub force_at: Time,
    /// How long the run then stays suspended; absent: until somebody resumes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_after: Option<Span>,
    /// The more urgent agent that needs the run's slot, if that is what it is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<AgentName>,
}

/// A critical section that a turn has open. It protects the run as long as it has time left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Section {
    /// Its number among those that are open; the innermost has the highest.
    pub number: u32,
    pub until: Time,
}

/// Which checkpoint of which run. One that is saved later has another file, so that the earlier one is
/// whole until it counts no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Checkpoint {
    pub run_id: RunId,
    /// From 1, in the order in which the run has saved them.
    pub number: u32,
}
