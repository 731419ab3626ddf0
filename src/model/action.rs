//! Actions in a turn's outcome file (contract, turns). The settlement of the turn applies all of
//! them or none.

use super::id::{AgentName, TriggerId, WaitId, WorkId};
use super::json::{Sent, tagged};
use super::message::MessageKind;
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
        WorkAdd {
            objective: String,
            #[serde(default)]
            plan_status: Option<PlanStatus>,
            #[serde(default)]
            todo: Vec<Todo>,
            #[serde(default)]
            plan: Option<String>,
            #[serde(default)]
            blocked_by: Option<String>,
            #[serde(default)]
            recheck_after: Option<Span>,
            #[serde(default)]
            pick: bool,
        },
        #[serde(rename = "work.update")]
        WorkUpdate {
            id: WorkId,
            #[serde(default)]
            objective: Option<String>,
            #[serde(default)]
            plan_status: Option<PlanStatus>,
            #[serde(default)]
            todo: Option<Vec<Todo>>,
            #[serde(default)]
            plan: Option<String>,
        },
        #[serde(rename = "work.pick")]
        WorkPick {
            id: WorkId,
            /// Reason for which the blocker is cleared; absent: the blocker stays.
            #[serde(default)]
            clear_blocker: Option<String>,
        },
        #[serde(rename = "work.block")]
        WorkBlock {
            id: WorkId,
            reason: String,
            #[serde(default)]
            recheck_after: Option<Span>,
        },
        #[serde(rename = "work.unblock")]
        WorkUnblock { id: WorkId, reason: String },
        #[serde(rename = "work.complete")]
        WorkComplete {
            id: WorkId,
            #[serde(default)]
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
            #[serde(default)]
            resource: Option<String>,
            #[serde(default)]
            work_item_id: Option<WorkId>,
            #[serde(default)]
            whole_agent: bool,
            #[serde(default, rename = "in")]
            within: Option<Span>,
            #[serde(default)]
            at: Option<Time>,
            #[serde(default)]
            past_ok: bool,
            /// Interval at which the agent is told to check.
            #[serde(default)]
            recheck_after: Option<Span>,
            /// Single time at which the agent is told to check; excludes `recheck_after`.
            #[serde(default)]
            recheck_at: Option<Time>,
            #[serde(default)]
            expires_after: Option<Span>,
            #[serde(default)]
            source: Option<String>,
            #[serde(default)]
            no_fallback: Option<String>,
            #[serde(default)]
            trigger_id: Option<TriggerId>,
        },
        /// Starts a task after the turn is settled.
        #[serde(rename = "task.start")]
        TaskStart {
            /// Program and its arguments; excludes `delegate`.
            #[serde(default)]
            command: Vec<String>,
            /// Child agent that gets `text`.
            #[serde(default)]
            delegate: Option<AgentName>,
            #[serde(default)]
            text: Option<String>,
            #[serde(default)]
            summary: Option<String>,
            #[serde(default)]
            work_item_id: Option<WorkId>,
            #[serde(default = "yes")]
            notify: bool,
            #[serde(default)]
            interactive: bool,
            #[serde(default)]
            timeout: Option<Span>,
        },
        #[serde(rename = "timer.add")]
        TimerAdd {
            #[serde(default, rename = "in")]
            within: Option<Span>,
            #[serde(default)]
            at: Option<Time>,
            #[serde(default)]
            past_ok: bool,
            #[serde(default)]
            every: Option<Span>,
            #[serde(default)]
            cron: Option<String>,
            /// True if the first field of `cron` is seconds.
            #[serde(default)]
            seconds: bool,
            #[serde(default)]
            time_zone: Option<String>,
            #[serde(default)]
            text: Option<String>,
            #[serde(default)]
            catch_up: Option<CatchUp>,
            #[serde(default)]
            grace: Option<Span>,
            #[serde(default)]
            name: Option<String>,
        },
        #[serde(rename = "enqueue")]
        Enqueue {
            /// Receiving agent; absent: the agent itself.
            #[serde(default)]
            agent: Option<AgentName>,
            #[serde(default)]
            text: Option<String>,
            #[serde(default)]
            body: Option<Sent>,
            #[serde(default)]
            kind: Option<MessageKind>,
            #[serde(default)]
            origin: Option<String>,
            #[serde(default)]
            priority: Option<super::message::Priority>,
            #[serde(default)]
            resource: Option<String>,
            #[serde(default)]
            work_item_id: Option<WorkId>,
            /// Wait that the message answers.
            #[serde(default)]
            wait_id: Option<WaitId>,
            #[serde(default)]
            correlation_id: Option<String>,
            #[serde(default)]
            allow_empty: bool,
            #[serde(default, rename = "in")]
            within: Option<Span>,
            #[serde(default)]
            at: Option<Time>,
            #[serde(default)]
            past_ok: bool,
        },
    }
}

fn yes() -> bool {
    true
}
