//! Decision of one step (contract, semantics §8), as a value for the rules and as a report.

use serde::{Deserialize, Serialize};

use super::closure::WaitingReason;
use super::continuation::Continuation;
use super::id::{MessageId, RunId, TaskId, WaitId, WorkId};
use super::message::MessageKind;
use super::place::Away;
use super::resource::Shortage;
use super::time::Time;

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
    /// True if a decision of this kind changes the agent. After a decision of any other kind, and
    /// without new input, the next step makes the same decision.
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
    /// Reason for which a tick for a work item is emitted.
    "reason of a tick" WorkTick {
        ContinueActive = "continue_active",
        QueuedAvailable = "queued_available",
        SystemWait = "system_wait",
    }
}

/// Reason for which a system tick is emitted. For each key at most one tick is emitted.
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
    /// Own wait of the agent for the system, not of a work item.
    OwnSystemWait {
        wait_id: WaitId,
    },
}

impl Tick {
    /// Returns the idempotency key of the tick.
    pub fn key(&self) -> String {
        match self {
            Tick::WakeHint { key } => key.clone(),
            Tick::Work { reason, work_item_id, revision } => {
                format!("work_queue:{reason}:{work_item_id}:{revision}")
            }
            Tick::OwnSystemWait { wait_id } => format!("system_wait:{wait_id}"),
        }
    }

    fn reason(&self) -> &'static str {
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

/// Tick that is not emitted, because a tick with its key was emitted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DuplicateTick {
    WakeHint,
    ContinueActive { work_item_id: WorkId },
    QueuedAvailable { work_item_id: WorkId },
}

impl DuplicateTick {
    fn reason(&self) -> &'static str {
        match self {
            DuplicateTick::WakeHint => "duplicate_wake_hint",
            DuplicateTick::ContinueActive { .. } => "duplicate_continue_active",
            DuplicateTick::QueuedAvailable { .. } => "duplicate_queued_available",
        }
    }
}

/// Condition because of which the agent rests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestReason {
    AgentOperatorWait,
    AgentExternalWait,
    /// An active timer, or a timer wait of the agent itself.
    Timers,
    AgentTaskWait {
        task_id: Option<TaskId>,
    },
    WorkItem {
        work_item_id: WorkId,
        reason: WaitingReason,
        task_id: Option<TaskId>,
    },
    /// A system wait of the agent or of a work item, for which the tick was emitted already.
    SystemWait {
        work_item_id: Option<WorkId>,
    },
}

/// Work item and task that a message is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageSummary {
    pub work_item_id: Option<WorkId>,
    pub task_id: Option<TaskId>,
}

/// Next action of a step. It contains everything that its transition needs, so that no other code
/// has to decide again.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    Stop,
    NotStarted,
    TurnInProgress {
        run_id: Option<RunId>,
    },
    /// The run belongs to another state directory, and its lease lasts.
    TurnElsewhere {
        run_id: Option<RunId>,
        away: Away,
    },
    StartRecovery {
        cause: RecoveryCause,
    },
    RecoveryBackoff {
        until: Time,
    },
    Resume {
        message_id: MessageId,
        about: MessageSummary,
        cause: ResumeCause,
        continuation: Continuation,
    },
    WaitForResources {
        missing: String,
        until: Option<Time>,
        /// Time at which the resource is available again, if known.
        back_at: Option<Time>,
    },
    /// Claim that lacks a resource: the message is held, and no turn runs.
    Lack {
        message_id: MessageId,
        continuation: Continuation,
        shortage: Shortage,
    },
    StartTurn {
        message_id: MessageId,
        about: MessageSummary,
        kind: MessageKind,
        continuation: Continuation,
    },
    Reduce {
        message_id: MessageId,
        about: MessageSummary,
        kind: MessageKind,
        continuation: Option<Continuation>,
    },
    EmitTick(Tick),
    Duplicate(DuplicateTick),
    Rest(RestReason),
    StayIdle,
    Sleep,
}

impl Decision {
    /// Reason of the decision while a turn is running.
    pub const TURN_IN_PROGRESS: &str = "turn_in_progress";

    /// Returns the kind and the reason as named in the contract. If a claim lacks a resource, the
    /// reason is the name of the resource.
    fn words(&self) -> (DecisionKind, &str) {
        use DecisionKind as Kind;
        match self {
            Decision::Stop => (Kind::Stop, "stopped"),
            Decision::NotStarted => (Kind::Noop, "not_started"),
            Decision::TurnInProgress { .. } => (Kind::Noop, Decision::TURN_IN_PROGRESS),
            Decision::TurnElsewhere { .. } => (Kind::Noop, "turn_elsewhere"),
            Decision::StartRecovery { cause } => (Kind::StartRecovery, cause.name()),
            Decision::RecoveryBackoff { .. } => (Kind::WaitForTimer, "recovery_backoff"),
            Decision::Resume { cause, .. } => (Kind::StartModelTurn, cause.name()),
            Decision::WaitForResources { missing, .. } => (Kind::WaitForResources, missing),
            Decision::Lack { shortage, .. } => (Kind::WaitForResources, shortage.resource.name()),
            Decision::StartTurn { kind, .. } => (Kind::StartModelTurn, kind.name()),
            Decision::Reduce { kind, .. } => (Kind::ReduceMessageOnly, kind.name()),
            Decision::EmitTick(tick) => (Kind::EmitSystemTick, tick.reason()),
            Decision::Duplicate(tick) => (Kind::Noop, tick.reason()),
            Decision::Rest(rest) => rest.words(),
            Decision::StayIdle => (Kind::StayIdle, "already_asleep"),
            Decision::Sleep => (Kind::Sleep, "no_pending_scheduler_facts"),
        }
    }

    pub fn kind(&self) -> DecisionKind {
        self.words().0
    }

    /// True if the decision changes the agent's records.
    pub fn moves(&self) -> bool {
        self.kind().moves()
    }

    /// True if the decision claims a message for a turn, so that resources are needed.
    pub fn is_claim(&self) -> bool {
        self.kind() == DecisionKind::StartModelTurn
    }

    pub fn report(&self) -> DecisionReport {
        let (kind, reason) = self.words();
        let mut report = DecisionReport::new(kind, reason.to_owned());
        match self {
            Decision::StartTurn { message_id, about, continuation, .. }
            | Decision::Resume { message_id, about, continuation, .. } => {
                report.message_id = Some(*message_id);
                (report.work_item_id, report.task_id) = (about.work_item_id, about.task_id);
                report.continuation = Some(continuation.clone());
            }
            Decision::Reduce { message_id, about, continuation, .. } => {
                report.message_id = Some(*message_id);
                (report.work_item_id, report.task_id) = (about.work_item_id, about.task_id);
                report.continuation = continuation.clone();
            }
            Decision::Lack { message_id, shortage, .. } => {
                report.message_id = Some(*message_id);
                report.evidence = shortage.evidence.clone();
            }
            Decision::WaitForResources { back_at, .. } => {
                report.evidence = back_at.iter().map(|at| format!("back at {at}")).collect();
            }
            Decision::TurnInProgress { run_id } => report.run_id = *run_id,
            Decision::TurnElsewhere { run_id, away } => {
                report.run_id = *run_id;
                report.evidence = vec![format!("it runs {away}")];
            }
            Decision::EmitTick(tick) => report.work_item_id = tick.work_item_id(),
            Decision::Duplicate(
                DuplicateTick::ContinueActive { work_item_id }
                | DuplicateTick::QueuedAvailable { work_item_id },
            ) => report.work_item_id = Some(*work_item_id),
            Decision::Rest(rest) => {
                (report.work_item_id, report.task_id) = rest.subjects();
            }
            Decision::Stop
            | Decision::NotStarted
            | Decision::StartRecovery { .. }
            | Decision::RecoveryBackoff { .. }
            | Decision::Duplicate(DuplicateTick::WakeHint)
            | Decision::StayIdle
            | Decision::Sleep => {}
        }
        report
    }
}

impl RestReason {
    fn words(&self) -> (DecisionKind, &'static str) {
        use DecisionKind as Kind;
        match self {
            RestReason::AgentOperatorWait => (Kind::WaitForOperator, "agent_operator_wait"),
            RestReason::AgentExternalWait => (Kind::WaitForExternalChange, "agent_external_wait"),
            RestReason::Timers => (Kind::WaitForTimer, "active_timers"),
            RestReason::AgentTaskWait { .. } => (Kind::WaitForTask, "agent_task_wait"),
            RestReason::SystemWait { .. } => (Kind::WaitForResources, "system_wait"),
            RestReason::WorkItem { reason, .. } => match reason {
                WaitingReason::AwaitingOperatorInput => (Kind::WaitForOperator, "work_item_needs_input"),
                WaitingReason::AwaitingExternalChange => {
                    (Kind::WaitForExternalChange, "work_item_external_wait")
                }
                WaitingReason::AwaitingTimer => (Kind::WaitForTimer, "work_item_timer_wait"),
                WaitingReason::AwaitingTaskResult => (Kind::WaitForTask, "work_item_task_wait"),
            },
        }
    }

    fn subjects(&self) -> (Option<WorkId>, Option<TaskId>) {
        match self {
            RestReason::AgentOperatorWait | RestReason::AgentExternalWait | RestReason::Timers => {
                (None, None)
            }
            RestReason::AgentTaskWait { task_id } => (None, *task_id),
            RestReason::SystemWait { work_item_id } => (*work_item_id, None),
            RestReason::WorkItem { work_item_id, task_id, .. } => (Some(*work_item_id), *task_id),
        }
    }
}

/// Decision as `tick`, `explain` and the ledger show it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

impl DecisionReport {
    fn new(decision: DecisionKind, reason: String) -> DecisionReport {
        DecisionReport {
            decision,
            reason,
            message_id: None,
            work_item_id: None,
            task_id: None,
            run_id: None,
            evidence: Vec::new(),
            continuation: None,
        }
    }
}
