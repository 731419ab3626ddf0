//! Results of a turn, as values that the settlement takes.

use super::action::Action;
use super::place::StatePlace;
use super::record::is_default;
use super::resource::Deferral;
use super::run::{Exit, Usage};
use super::time::Time;
use serde::{Deserialize, Serialize};

/// Document that a turn may write to `$DORMOUSE_OUTCOME`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Outcome {
    /// Summary of the turn in a line or a few; absent: the last line of its stdout.
    pub brief: Option<String>,
    /// Actions that the settlement applies in this order: all of them, or none.
    pub actions: Vec<Action>,
    pub usage: Option<Usage>,
    /// Allowed with exit status 75 only.
    pub deferred: Option<Deferral>,
}

/// End of a turn's process, with everything that was found in its run directory. It is written
/// there (`end.json`) before the turn is settled, so that a turn whose end was seen never runs
/// again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnEnd {
    pub exit: Exit,
    pub timed_out: bool,
    /// Signal that the tick itself got, if that ended the turn.
    pub cancelled_by: Option<i32>,
    /// True if the command ended before anything asked it to.
    #[serde(default, skip_serializing_if = "is_default")]
    pub by_itself: bool,
    /// True if the turn could not begin for a reason outside of it: a hook that failed, or a
    /// machine that can't start a process now.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_prevented: bool,
    pub ended_at: Time,
    pub duration_ms: u64,
    /// Outcome file. `Err`: the reason for which it can't be used, with its path.
    pub outcome: Result<Outcome, String>,
    /// Repairs that made the outcome file readable.
    #[serde(default)]
    pub notes: Vec<String>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Last line of stdout that is not blank.
    pub last_line: Option<String>,
    /// Last line of stderr that is not blank: it usually explains a failed turn best.
    pub last_error_line: Option<String>,
}

/// Machine, its boot, the state directory and the process that claim a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunClaimant {
    pub host: String,
    pub boot_id: String,
    pub place: StatePlace,
    pub pid: u32,
}
