//! Actions in a turn's outcome file (contract, turns). The settlement of the turn applies all
//! actions or none.

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
    /// One action of an outcome file. Spans count from the end of the turn. A time before the turn
    /// began counts as past.
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
        Wait {
            kind: WaitKind,
            reason: String,
            /// Answers that an operator wait offers.
            #[serde(default)]
            options: Vec<String>,
            /// Resource that the wait names. Absent in a wait for a task: the task of the preceding
            /// `task.start`.
            resource: Option<String>,
            work_item_id: Option<WorkId>,
            whole_agent: bool,
            #[serde(rename = "in")]
            within: Option<Span>,
            at: Option<Time>,
            past_ok: bool,
            /// Interval at which a message tells the agent to check the wait.
            recheck_after: Option<Span>,
            /// Time of one message that tells the agent to check the wait; not with
            /// `recheck_after`.
            recheck_at: Option<Time>,
            expires_after: Option<Span>,
            source: Option<String>,
            no_fallback: Option<String>,
            trigger_id: Option<TriggerId>,
        },
        /// Starts a task after the turn is settled.
        #[serde(rename = "task.start")]
        TaskStart {
            /// Program and its arguments; excludes `delegate`.
            #[serde(default)]
            command: Vec<String>,
            /// Child agent that gets `text`.
            delegate: Option<AgentName>,
            text: Option<String>,
            summary: Option<String>,
            work_item_id: Option<WorkId>,
            #[serde_with(skip_apply)]
            #[serde(default = "yes")]
            notify: bool,
            interactive: bool,
            timeout: Option<Span>,
        },
        #[serde(rename = "timer.add")]
        TimerAdd {
            #[serde(rename = "in")]
            within: Option<Span>,
            at: Option<Time>,
            past_ok: bool,
            every: Option<Span>,
            cron: Option<String>,
            /// True if the first field of `cron` is seconds.
            seconds: bool,
            time_zone: Option<String>,
            text: Option<String>,
            catch_up: Option<CatchUp>,
            grace: Option<Span>,
            name: Option<String>,
        },
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

#[serde_with::apply(Option => #[serde(default)], bool => #[serde(default)])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorkRequest {
    pub objective: String,
    pub plan_status: Option<PlanStatus>,
    #[serde(default)]
    pub todo: Vec<Todo>,
    pub plan: Option<String>,
    pub blocked_by: Option<String>,
    pub recheck_after: Option<Span>,
    pub pick: bool,
}
