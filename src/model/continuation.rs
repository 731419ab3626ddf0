//! Why a message is taken up, and how that relates to what the agent waited for (contract,
//! semantics §7).

use serde::{Deserialize, Serialize};

use super::closure::{ClosureOutcome, WaitingReason};
use super::id::WaitId;

names! {
    "trigger kind" TriggerKind {
        OperatorInput = "operator_input",
        TaskResult = "task_result",
        ExternalEvent = "external_event",
        TimerFire = "timer_fire",
        InternalFollowup = "internal_followup",
        SystemTick = "system_tick",
    }
}

names! {
    /// What runs when a message or hint is taken up.
    "effect" Runs {
        Turn = "turn",
        Nothing = "nothing",
        /// It depends on what happens before a step takes the message or hint up.
        Undecided = "undecided",
    }
}

names! {
    "continuation class" ContinuationClass {
        ResumeExpectedWait = "resume_expected_wait",
        ResumeOverride = "resume_override",
        LocalContinuation = "local_continuation",
        LivenessOnly = "liveness_only",
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Continuation {
    pub trigger_kind: TriggerKind,
    pub class: ContinuationClass,
    /// Whether the turn command runs.
    pub model_reentry: bool,
    pub prior_closure_outcome: ClosureOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior_waiting_reason: Option<WaitingReason>,
    pub matched_waiting_reason: bool,
    /// The waits that the message satisfies: bound when it is taken up, resolved when its turn has
    /// completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolves: Vec<WaitId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}
