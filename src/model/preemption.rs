//! Preemption: the request that a run yields, its critical sections and its checkpoints (contract,
//! execution §6).

use serde::{Deserialize, Serialize};

use super::id::{AgentName, RunId};
use super::resource::Resource;
use super::time::{Span, Time};

/// The one pending request of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Preemption {
    /// The reason of the latest request.
    pub reason: String,
    /// When the first request was made.
    pub requested_at: Time,
    /// The end of the grace. A run that has not yielded by then is ended, once it has no section
    /// open.
    pub force_at: Time,
    /// How long the run then stays suspended; absent: until `resume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_after: Option<Span>,
    /// The more urgent agent that needs a resource of the run, if that is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<AgentName>,
    /// The resource that this agent needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<Resource>,
}

/// A critical section that a turn has open. It protects the run as long as it has time left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Section {
    /// Its number among the open sections; the innermost has the highest.
    pub number: u32,
    pub until: Time,
    /// True if a command runs in it (`non-preemptible -- CMD`). The process that runs the command
    /// holds a lock for as long as the section is open.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_command: bool,
}

/// Names one checkpoint of a run. Each has a file of its own, so that the earlier one stays whole
/// until it is no longer needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Checkpoint {
    pub run_id: RunId,
    /// From 1, in the order in which the run has saved them.
    pub number: u32,
}
