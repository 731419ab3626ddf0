//! Actions in a turn's outcome file (contract, turns). The transaction that settles the turn
//! applies all actions or none.

use serde::{Deserialize, Serialize};

use super::id::{AgentName, TriggerId, WaitId, WorkId};
use super::json::{Sent, tagged};
use super::message::MessageKind;
use super::record::yes;
use super::time::{Span, Time};
use super::timer::CatchUp;
use super::wait::WaitKind;
use super::work::{PlanStatus, Todo};

tagged! {
    "do", [deny_unknown_fields]
    /// One action of an outcome file. Durations count from the end of the turn. A time before the
    /// turn began counts as past.
    #[derive(Debug, Clone, PartialEq)]
    pub enum Action {
        #[serde(rename = "work.add")]
        WorkAdd(WorkRequest),
        #[serde(rename = "work.update")]
        WorkUpdate {
            id: WorkId,
            objective: Option<String>,
            plan_status: Option<PlanStatus>,
            todo: Option<Vec<Todo>>,
            plan: Option<String>,
        },
        #[serde(rename = "work.pick")]
        WorkPick {
            id: WorkId,
            /// Reason for which the blocker is cleared; absent: the blocker stays.
            clear_blocker: Option<String>,
        },
        #[serde(rename = "work.block")]
        WorkBlock {
            id: WorkId,
            reason: String,
            recheck_after: Option<Span>,
        },
        #[serde(rename = "work.unblock")]
        WorkUnblock { id: WorkId, reason: String },
        #[serde(rename = "work.complete")]
        WorkComplete {
            id: WorkId,
            result: Option<String>,
        },
        #[serde(rename = "wait")]
        Wait(WaitRequest),
        /// Starts a task after the turn is settled.
        #[serde(rename = "task.start")]
        TaskStart(TaskRequest),
        #[serde(rename = "timer.add")]
        TimerAdd(TimerRequest),
        #[serde(rename = "enqueue")]
        Enqueue {
            /// Receiving agent; absent: the agent itself.
            agent: Option<AgentName>,
            text: Option<String>,
            body: Option<Sent>,
            kind: Option<MessageKind>,
            origin: Option<String>,
            priority: Option<super::message::Priority>,
            resource: Option<String>,
            work_item_id: Option<WorkId>,
            /// Wait that the message answers.
            wait_id: Option<WaitId>,
            correlation_id: Option<String>,
            allow_empty: bool,
            #[serde(rename = "in")]
            within: Option<Span>,
            at: Option<Time>,
            past_ok: bool,
        },
    }
}

#[serde_with::apply(Option => #[serde(default)], bool => #[serde(default)], Vec => #[serde(default)])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorkRequest {
    pub objective: String,
    pub plan_status: Option<PlanStatus>,
    pub todo: Vec<Todo>,
    pub plan: Option<String>,
    pub blocked_by: Option<String>,
    pub recheck_after: Option<Span>,
    pub pick: bool,
}

#[serde_with::apply(Option => #[serde(default)], bool => #[serde(default)])]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TimerRequest {
    #[serde(rename = "in")]
    pub within: Option<Span>,
    pub at: Option<Time>,
    pub past_ok: bool,
    pub every: Option<Span>,
    pub cron: Option<String>,
    /// True if the first field of `cron` is seconds.
    pub seconds: bool,
    pub time_zone: Option<String>,
    pub text: Option<String>,
    pub catch_up: Option<CatchUp>,
    pub grace: Option<Span>,
    pub name: Option<String>,
}

/// Caller that requests a wait, timer or task, as far as the checks of the request need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requester {
    /// Start of the turn that makes the request, else the present. Earlier times count as past.
    pub since: Time,
    /// Hops of the turn or task that makes the request; absent for other callers.
    pub hops: Option<u32>,
    /// True if the running turn of the agent makes the request.
    pub in_turn: bool,
}

#[serde_with::apply(Option => #[serde(default)], bool => #[serde(default)], Vec => #[serde(default)])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WaitRequest {
    pub kind: WaitKind,
    pub reason: String,
    /// Answers that an operator wait offers.
    pub options: Vec<String>,
    /// Resource that the wait names. Absent in a wait for a task: the task of the preceding action
    /// `task.start`.
    pub resource: Option<String>,
    pub work_item_id: Option<WorkId>,
    pub whole_agent: bool,
    #[serde(rename = "in")]
    pub within: Option<Span>,
    pub at: Option<Time>,
    pub past_ok: bool,
    /// Interval at which a message tells the agent to check the wait.
    pub recheck_after: Option<Span>,
    /// Time of one message that tells the agent to check the wait; not with
    /// `recheck_after`.
    pub recheck_at: Option<Time>,
    pub expires_after: Option<Span>,
    pub source: Option<String>,
    pub no_fallback: Option<String>,
    pub trigger_id: Option<TriggerId>,
}

#[serde_with::apply(Option => #[serde(default)], bool => #[serde(default)], Vec => #[serde(default)])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TaskRequest {
    /// Program and its arguments; excludes `delegate`.
    pub command: Vec<String>,
    /// Child agent that gets `text`.
    pub delegate: Option<AgentName>,
    pub text: Option<String>,
    pub summary: Option<String>,
    pub work_item_id: Option<WorkId>,
    #[serde_with(skip_apply)]
    #[serde(default = "yes")]
    pub notify: bool,
    pub interactive: bool,
    pub timeout: Option<Span>,
}
