//! Events of an agent, each stored as one line of the ledger.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::id::{AgentName, EventId, RunId};
use super::time::Time;

names! {
    "event kind" EventKind {
        AgentCreated = "agent_created",
        ControlRequestAdmitted = "control_request_admitted",
        ControlApplied = "control_applied",
        CurrentRunAborted = "current_run_aborted",
        SchedulerDecision = "scheduler_decision",
        StateTransition = "state_transition",
        MessageAdmitted = "message_admitted",
        MessageSettled = "message_settled",
        MessageRejected = "message_rejected",
        RejectedAccepted = "rejected_accepted",
        RejectedRemoved = "rejected_removed",
        MessageRequeued = "message_requeued",
        TaskTransition = "task_transition",
        WaitTransition = "wait_transition",
        WorkTransition = "work_transition",
        TimerTransition = "timer_transition",
        WakeHintCoalesced = "wake_hint_coalesced",
        WakeHintIgnored = "wake_hint_ignored",
        TriggerIgnored = "trigger_ignored",
        TriggerTransition = "trigger_transition",
        RunInterrupted = "run_interrupted",
        RunSettled = "run_settled",
        RecordRepaired = "record_repaired",
        Collected = "collected",
        MovedAway = "moved_away",
        MovedIn = "moved_in",
        WorkspaceReleased = "workspace_released",
        HookEnded = "hook_ended",
        PreemptionRequested = "preemption_requested",
        PreemptionForced = "preemption_forced",
        RunYielded = "run_yielded",
        CheckpointSaved = "checkpoint_saved",
        CheckpointLost = "checkpoint_lost",
        Advisory = "advisory",
        Attention = "attention",
        AttentionAcknowledged = "attention_acknowledged",
    }
}

names! {
    /// Point of a step or command at which the status of an agent changes. The event of the change
    /// names the point.
    "boundary" Boundary {
        /// Control command on the agent: `stop`, `fail`, `recover`, a `start` after the first.
        Control = "control",
        /// Creation of the agent, its first start, or the timeout of that start.
        Bootstrap = "bootstrap",
        /// The agent stops itself, or a `stop` command ends its run.
        Shutdown = "shutdown",
        /// The agent comes to rest.
        LifecycleSleep = "lifecycle_sleep",
        /// Admission, claim, deferral or settlement of a message, or the failure of a recovery.
        MessageAdmission = "message_admission",
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Event {
    pub schema: EventSchema,
    /// Sequence number: +1 with every event of the agent.
    pub seq: u64,
    pub id: EventId,
    pub at: Time,
    pub kind: EventKind,
    pub agent: AgentName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    #[serde(default, deserialize_with = "super::json::plain", skip_serializing_if = "Value::is_null")]
    pub data: Value,
}

names! {
    /// Version of the format of an event.
    "event schema" EventSchema {
        V1 = "dormouse/event/1",
    }
}
