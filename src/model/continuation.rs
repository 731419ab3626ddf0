//! Continuation: the reason for which a message is taken up, and its relation to the agent's waits
//! (contract, semantics §7).

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
    /// Expected effect of taking up a message or hint.
    "effect" Runs {
        Turn = "turn",
        Nothing = "nothing",
        /// Events before the next step decide if a turn runs.
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
    /// True if a turn runs for the message.
    pub model_reentry: bool,
    pub prior_closure_outcome: ClosureOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior_waiting_reason: Option<WaitingReason>,
    pub matched_waiting_reason: bool,
    /// Waits that the message satisfies: bound when the message is taken up, resolved when its turn
    /// has completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolves: Vec<WaitId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}

/// Reason for which the scheduler emitted a `system_tick` message, as far as the continuation
/// depends on the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulerTick {
    /// `expires_at` of a wait has passed. The step that takes up the `system_tick` ends the wait.
    Expiry,
    /// `recheck_at` of a wait has been reached.
    Recheck,
    /// Other reason: runnable work, a recheck of blocked work, set-aside input, or a repaired wait.
    Other,
}
