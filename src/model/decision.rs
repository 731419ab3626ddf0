//! Decision of one step (contract, semantics §8), as a value for the rules and as a report.

use serde::{Deserialize, Serialize};

use super::continuation::Continuation;
use super::id::{MessageId, RunId, TaskId, WaitId, WorkId};
use super::resource::Shortage;

names! {
    "decision" DecisionKind {
        Stop = "stop",
        Noop = "noop",
        StartRecovery = "start_recovery",
        StartModelTurn = "start_model_turn",
        ReduceMessageOnly = "reduce_message_only",
        EmitSystemTick = "emit_system_tick",
        WaitForResources = "wait_for_resources",
        WaitForOperator = "wait_for_operator",
        WaitForExternalChange = "wait_for_external_change",
        WaitForTimer = "wait_for_timer",
        WaitForTask = "wait_for_task",
        StayIdle = "stay_idle",
        Sleep = "sleep",
    }
}

impl DecisionKind {
    /// True if a step with this decision does work: it recovers the agent, or it claims, reduces or
    /// emits a message. After any other decision, a second step at once would do none of these.
    pub fn moves(self) -> bool {
        match self {
            DecisionKind::StartRecovery
            | DecisionKind::StartModelTurn
            | DecisionKind::ReduceMessageOnly
            | DecisionKind::EmitSystemTick => true,
            DecisionKind::Stop
            | DecisionKind::Noop
            | DecisionKind::WaitForResources
            | DecisionKind::WaitForOperator
            | DecisionKind::WaitForExternalChange
            | DecisionKind::WaitForTimer
            | DecisionKind::WaitForTask
            | DecisionKind::StayIdle
            | DecisionKind::Sleep => false,
        }
    }
}

names! {
    /// Reason for which a failed agent recovers at this step.
    "cause of a recovery" RecoveryCause {
        Retry = "retry",
        AfterStop = "after_stop",
    }
}

names! {
    /// Reason for which a held run resumes at this step.
    "cause of a resumption" ResumeCause {
        Suspended = "resume_suspended",
        ResourcesAvailable = "resources_available",
    }
}

names! {
    /// Reason for which a `system_tick` message about a work item is emitted.
    "reason of a tick" WorkTick {
        ContinueActive = "continue_active",
        QueuedAvailable = "queued_available",
        SystemWait = "system_wait",
    }
}

/// Reason for which a `system_tick` message is emitted, at most once for each key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tick {
    WakeHint {
        key: String,
    },
    Work {
        reason: WorkTick,
        work_item_id: WorkId,
        revision: u64,
    },
    /// Wait of kind `system` that the agent itself has, and not one of its work items.
    OwnSystemWait {
        wait_id: WaitId,
    },
}

impl Tick {
    /// Returns the idempotency key of the `system_tick` message.
    pub fn key(&self) -> String {
        match self {
            Tick::WakeHint { key } => key.clone(),
            Tick::Work { reason, work_item_id, revision } => {
                format!("work_queue:{reason}:{work_item_id}:{revision}")
            }
            Tick::OwnSystemWait { wait_id } => format!("system_wait:{wait_id}"),
        }
    }

    pub fn reason(&self) -> &'static str {
        match self {
            Tick::WakeHint { .. } => "wake_hint",
            Tick::Work { reason, .. } => reason.name(),
            Tick::OwnSystemWait { .. } => "system_wait",
        }
    }

    pub fn work_item_id(&self) -> Option<WorkId> {
        match self {
            Tick::WakeHint { .. } | Tick::OwnSystemWait { .. } => None,
            Tick::Work { work_item_id, .. } => Some(*work_item_id),
        }
    }
}

/// Work item and task that a message is about, as reported in a decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageSummary {
    pub work_item_id: Option<WorkId>,
    pub task_id: Option<TaskId>,
}

/// Decision of a step: its report for people, and its action.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub report: DecisionReport,
    pub action: StepAction,
}

/// Action of a step after its decision. The action contains everything that its transition needs,
/// so that no other code has to decide again.
#[derive(Debug, Clone, PartialEq)]
pub enum StepAction {
    /// Nothing, because another process works on the records.
    Leave,
    /// Nothing; the status of the agent stays.
    Stay,
    /// Nothing; the agent comes to rest.
    Rest,
    Recover,
    StartTurn {
        message_id: MessageId,
        continuation: Continuation,
    },
    /// Hold the message of a claim that lacks a resource. No turn runs.
    Hold {
        message_id: MessageId,
        continuation: Continuation,
        shortage: Shortage,
    },
    Reduce {
        message_id: MessageId,
        continuation: Option<Continuation>,
    },
    EmitTick(Tick),
    /// Remove the pending wake hint, because a `system_tick` for the hint was emitted before.
    DropHint,
}

impl Decision {
    /// Reason of the decision `noop` while a turn is running.
    pub const TURN_IN_PROGRESS: &str = "turn_in_progress";

    pub fn kind(&self) -> DecisionKind {
        self.report.decision
    }

    /// True if the step does work on a message or a recovery, as [`DecisionKind::moves`] tells.
    pub fn moves(&self) -> bool {
        self.kind().moves()
    }

    /// True if the decision is to run a turn, which needs resources: for a message or a held run.
    pub fn is_claim(&self) -> bool {
        self.kind() == DecisionKind::StartModelTurn
    }
}

/// Decision as `tick`, `explain` and the ledger show it.
// `DecisionReport::new` makes a report without ids of records.
#[serde_with::skip_serializing_none]
#[serde_with::apply(Option => #[new(default)], Vec => #[new(default)], String => #[new(into)])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, derive_new::new)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DecisionReport {
    pub decision: DecisionKind,
    pub reason: String,
    pub message_id: Option<MessageId>,
    pub work_item_id: Option<WorkId>,
    pub task_id: Option<TaskId>,
    pub run_id: Option<RunId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    pub continuation: Option<Continuation>,
}
