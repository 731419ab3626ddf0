//! Preemption: the request to a run to yield, critical sections and checkpoints (contract,
//! execution §6).

use serde::{Deserialize, Serialize};

use super::id::{AgentName, RunId};
use super::record::is_default;
use super::resource::Resource;
use super::time::{Span, Time};

/// Pending request of a run to yield.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Preemption {
    /// Reason of the latest request.
    pub reason: String,
    /// Time of the first request.
    pub requested_at: Time,
    /// End of the grace. A run that has not yielded by then is ended, once it has no section open.
    pub force_at: Time,
    /// Duration of the suspension; absent: until `resume`.
    pub resume_after: Option<Span>,
    /// More urgent agent that needs a resource of the run, if that is the reason.
    pub asked_by: Option<AgentName>,
    /// Resource that this agent needs.
    pub needed: Option<Resource>,
}

/// Critical section that a turn has open. It protects the run until its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Section {
    /// Number among the open sections; the innermost has the highest.
    pub number: u32,
    pub until: Time,
    /// True if a command runs in the section (`non-preemptible -- CMD`). The process that runs the
    /// command holds a lock while the section is open.
    #[serde(default, skip_serializing_if = "is_default")]
    pub of_command: bool,
}

/// Identity of one checkpoint of a run. Each has its own file, so that the earlier one stays whole
/// until it is no longer needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Checkpoint {
    pub run_id: RunId,
    /// Number from 1, in the order in which the run saved them.
    pub number: u32,
}
