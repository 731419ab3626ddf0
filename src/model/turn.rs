//! What a turn left behind, as values that the settlement takes.

use super::action::Action;
use super::place::StatePlace;
use super::resource::Deferral;
use super::run::{Exit, Usage};
use super::time::Time;
use serde::{Deserialize, Serialize};

/// The document that a turn may write to `$DORMOUSE_OUTCOME`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Outcome {
    /// What the turn did, in a line or a few; absent: the last line of its stdout.
    pub brief: Option<String>,
    /// Carried out in this order when the turn is settled: all of them, or none.
    pub actions: Vec<Action>,
    pub usage: Option<Usage>,
    /// Allowed with exit status 75 only.
    pub deferred: Option<Deferral>,
}

/// The end of a turn's process, with everything that was found in its run directory. It is written
/// there (`end.json`) before the turn is settled, so that a turn whose end was seen never runs
/// again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnEnd {
    pub exit: Exit,
    pub timed_out: bool,
    /// The signal that the tick itself got, if that ended the turn.
    pub cancelled_by: Option<i32>,
    /// True if the command had ended before anything asked it to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_itself: bool,
    /// True if the turn could not begin for a reason outside of it: a hook that failed, or a
    /// machine that can't start a process now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_prevented: bool,
    pub ended_at: Time,
    pub duration_ms: u64,
    /// The outcome file, or why it can't be used, with its path.
    pub outcome: Result<Outcome, String>,
    /// The repairs without which the outcome file could not have been read.
    #[serde(default)]
    pub notes: Vec<String>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// The last line of stdout that is not blank.
    pub last_line: Option<String>,
    /// The last line of stderr that is not blank: it says best why a turn failed.
    pub last_error_line: Option<String>,
}

/// The machine, its boot, the state directory and the process that claim a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claimant {
    pub host: String,
    pub boot_id: String,
    pub place: StatePlace,
    pub pid: u32,
}
