//! Preemption: the request to a run to yield, critical sections, checkpoints, and the limits below
//! which a machine counts as low on memory or disk (contract, execution §6).

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::DeserializeFromStr;

use super::id::{AgentName, RunId};
use super::record::is_default;
use super::resource::Resource;
use super::time::{Span, Time};

/// Pending request to a run: it is to yield, so that it is suspended.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Preemption {
    /// Reason of the latest request to yield.
    pub reason: String,
    /// Time of the first request to yield.
    pub requested_at: Time,
    /// End of the grace period. The run is then forced to end, but not within a critical section.
    pub force_at: Time,
    /// Duration of the suspension; absent: until `resume`.
    pub resume_after: Option<Span>,
    /// More urgent agent that needs a resource of the run, if that is the reason.
    pub asked_by: Option<AgentName>,
    /// Resource that the agent in `asked_by` needs.
    pub needed: Option<Resource>,
}

/// Critical section of a turn. Until its deadline the turn is neither told to yield nor forced out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Section {
    /// Number of the critical section. Of a turn's open sections, the innermost has the highest.
    pub number: u32,
    pub until: Time,
    /// True if a command runs in the section (`non-preemptible -- CMD`). The process that runs the
    /// command holds a lock while the section is open.
    #[serde(default, skip_serializing_if = "is_default")]
    pub of_command: bool,
}

/// Identity of one checkpoint of a run. Each checkpoint has its own file, so that the previous file
/// stays intact until it is no longer needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Checkpoint {
    pub run_id: RunId,
    /// Number from 1, in the order in which the run saved its checkpoints.
    pub number: u32,
}

/// Minimum of free memory and disk space while a turn runs. Without a minimum nothing is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Critical {
    /// Minimum of available memory, as a share of all memory.
    pub memory: Option<Percent>,
    /// Minimum of free space in the state directory's file system, as a share of the total.
    pub disk: Option<Percent>,
}

/// Free memory and disk space of the machine, in percent; `None` if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FreeResources {
    pub memory: Option<f64>,
    pub disk: Option<f64>,
}

impl Critical {
    /// Returns a text about memory or disk space if too little is free; `None` if both suffice.
    pub fn lacks(&self, left: &FreeResources) -> Option<String> {
        let low = |what: &str, least: Option<Percent>, left: Option<f64>| {
            let (least, left) = (least?, left?);
            (left < least.0).then(|| {
                format!(
                    "the machine is low on {what}: {left:.1}% is left (preemption.critical.{what} = {least})"
                )
            })
        };
        low("memory", self.memory, left.memory).or_else(|| low("disk", self.disk, left.disk))
    }
}

/// Percentage, written like `"5%"`.
#[derive(Debug, Clone, Copy, PartialEq, DeserializeFromStr)]
pub struct Percent(pub f64);

impl std::fmt::Display for Percent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Percent, String> {
        let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
        let percent = number.filter(|number| (0.0..=100.0).contains(number));
        percent.map(Percent).ok_or_else(|| format!("`{text}` is no percentage such as \"5%\""))
    }
}
