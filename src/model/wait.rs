//! Waits: the reason why an agent or work item can't continue, and the events that end the wait
//! (contract, semantics §5).

use serde::{Deserialize, Serialize};

use super::id::{AgentName, MessageId, TaskId, TriggerId, WaitId, WorkId};
use super::record::{Extra, Plane, ensure, is_default, record};
use super::time::{Span, Time};

names! {
    "wait kind" WaitKind {
        Operator = "operator",
        Task = "task",
        External = "external",
        Timer = "timer",
        System = "system",
    }
}

names! {
    "wait status" WaitStatus {
        Active = "active",
        Resolved = "resolved",
        Cancelled = "cancelled",
        Expired = "expired",
    }
}

names! {
    /// Protection of an external wait against a lost answer: present, waived, or missing.
    "recoverability" Recoverability {
        Recoverable = "recoverable",
        ExplicitNoFallback = "explicit_no_fallback",
        Weak = "weak",
    }
}

// `Wait::new` makes an active wait of the agent itself, without a resource or a deadline.
#[serde_with::skip_serializing_none]
#[serde_with::apply(Option => #[new(default)], Vec => #[new(default)], u32 => #[new(default)])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, derive_new::new)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Wait {
    pub id: WaitId,
    pub agent: AgentName,
    pub kind: WaitKind,
    pub reason: String,
    /// Answers that an `operator` wait offers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Task id for kind `task`; else an opaque reference such as `github:org/repo#12`.
    pub resource: Option<String>,
    /// Work item that waits. Absent: the agent itself waits.
    pub work_item_id: Option<WorkId>,
    pub trigger_id: Option<TriggerId>,
    /// Time at which a `timer` wait ends.
    pub wake_at: Option<Time>,
    /// Time of the next message that asks the agent to check its wait, without ending the wait.
    pub recheck_at: Option<Time>,
    /// Interval between two messages that ask for a check; absent: only one message asks.
    pub recheck_every: Option<Span>,
    /// Message in the inbox that asks the agent to check its wait. There is at most one.
    pub recheck_id: Option<MessageId>,
    pub expires_at: Option<Time>,
    /// Outside system that is expected to answer.
    pub source: Option<String>,
    /// Reason for which the wait has no fallback, if that is intended.
    pub no_fallback: Option<String>,
    #[new(value = "WaitStatus::Active")]
    pub status: WaitStatus,
    /// Message that satisfies the wait, set when a step takes that message up. The wait is resolved
    /// when a turn for the message has completed, and blocks nothing until then.
    pub resolved_by: Option<MessageId>,
    /// Message that should have ended the wait. No turn for it has completed: the answer is lost.
    pub lost_answer: Option<MessageId>,
    /// Message that reports the end of the task and that no step has taken up yet.
    pub result_id: Option<MessageId>,
    /// Time at which a step queued the message that `expires_at` has passed. The wait ends when a
    /// step takes that message up.
    pub expiry_told_at: Option<Time>,
    /// Time at which a step emitted the only `system_tick` of the agent's own `system` wait.
    pub ticked_at: Option<Time>,
    /// Hops of the messages at `wake_at`, `recheck_at` and `expires_at`; 0 if the first of these
    /// times is so late that a new chain of messages starts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hops: u32,
    /// Time at which a message woke the agent because `wake_at` had come.
    pub woken_at: Option<Time>,
    /// Time at which a message last asked the agent to check its wait.
    pub rechecked_at: Option<Time>,
    pub created_at: Time,
    pub ended_at: Option<Time>,
    /// Cause of the end: the resolving message, `expires_at`, or a command and its subject.
    pub cause: Option<String>,
    #[new(default)]
    #[serde(flatten)]
    pub extra: Extra,
}

impl Wait {
    pub fn is_active(&self) -> bool {
        self.status == WaitStatus::Active
    }

    /// True if the wait keeps the agent or work item from continuing: the wait is active, and no
    /// step has taken up a message that satisfies the wait.
    pub fn is_waiting(&self) -> bool {
        self.is_active() && self.resolved_by.is_none()
    }

    /// Returns the next time at which a step asks the agent to check its wait; `None` while such a
    /// message is in the inbox.
    pub fn recheck_due(&self) -> Option<Time> {
        self.recheck_at.filter(|_| self.recheck_id.is_none())
    }

    /// Moves a repeated check past `now` by whole intervals. Removes a single check.
    pub fn advance_recheck(&mut self, now: Time) {
        let Some(at) = self.recheck_at.filter(|at| *at <= now) else { return };
        self.recheck_at = self.recheck_every.map(|every| {
            let period = every.as_millis().max(1);
            let periods = now.since(at).as_millis() / period + 1;
            at.after(Span::from_millis(period.saturating_mul(periods)))
        });
    }

    pub fn is_agents_own(&self) -> bool {
        self.work_item_id.is_none()
    }

    /// Returns the task for which a wait of kind `task` waits.
    pub fn task_id(&self) -> Option<TaskId> {
        match self.kind {
            WaitKind::Task => self.resource.as_deref()?.parse().ok(),
            WaitKind::Operator | WaitKind::External | WaitKind::Timer | WaitKind::System => None,
        }
    }

    pub fn recoverability(&self) -> Recoverability {
        if self.recheck_at.is_some() || self.expires_at.is_some() || self.source.is_some() {
            Recoverability::Recoverable
        } else if self.no_fallback.is_some() {
            Recoverability::ExplicitNoFallback
        } else {
            Recoverability::Weak
        }
    }
}

record! { Wait of agent = "wait", WaitId in Plane::Waits; check }

impl Wait {
    fn fault(&self) -> Result<(), String> {
        let names_task = self.kind != WaitKind::Task || self.task_id().is_some();
        ensure(names_task, "a wait of kind `task` needs the id of a task (--resource, in JSON `resource`)")?;
        let has_end = self.kind != WaitKind::Timer || self.wake_at.is_some();
        ensure(has_end, "a wait of kind `timer` needs a time (--in or --at, in JSON `wake_at`)")?;
        ensure(!self.reason.trim().is_empty(), "the reason is empty")?;
        let (most, longest) = Wait::OPTIONS;
        let is_question = self.options.is_empty() || self.kind == WaitKind::Operator;
        ensure(is_question, "options belong to a wait of kind `operator`")?;
        let count = self.options.len();
        ensure(count <= most, &format!("{count} options: a question has at most {most}"))?;
        let fits = |option: &String| !option.trim().is_empty() && option.chars().count() <= longest;
        let all_fit = self.options.iter().all(fits);
        ensure(all_fit, &format!("an option is empty or longer than {longest} characters"))
    }

    /// Maximum number of options of a question, and maximum length of each in characters.
    const OPTIONS: (usize, usize) = (10, 100);
}
