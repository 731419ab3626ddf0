//! Results of a turn, from which the settlement is made.

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
    /// Deferral of the turn's message; allowed with exit status 75 only.
    pub deferred: Option<Deferral>,
}

/// End of a turn's process, with everything found in its run directory. It is written there as
/// `end.json` before the turn is settled, so that a turn whose end was seen never runs again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnEnd {
    pub exit: Exit,
    pub timed_out: bool,
    /// Signal that the tick got, if the turn was ended because of that.
    pub cancelled_by: Option<i32>,
    /// True if the command ended before the tick asked it to end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub by_itself: bool,
    /// True if the turn could not start for a reason outside of the turn, such as a failed hook, or
    /// a machine that can't start a process.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_prevented: bool,
    pub ended_at: Time,
    pub duration_ms: u64,
    /// Outcome file; `Err`: reason why it can't be used, with the path of the file.
    pub outcome: Result<Outcome, String>,
    /// Repairs that made the outcome file readable.
    #[serde(default)]
    pub notes: Vec<String>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Last line of stdout that is not blank.
    pub last_line: Option<String>,
    /// Last line of stderr that is not blank. It usually gives the best reason for a failed turn.
    pub last_error_line: Option<String>,
}

/// Identity of a process that claims a run: machine, boot, state directory and process id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunClaimant {
    pub host: String,
    pub boot_id: String,
    pub place: StatePlace,
    pub pid: u32,
}
