//! Attentions: failures, questions and stalls that a person should look at, and the mark that an
//! agent has until all are acknowledged; kinds of warnings; and the notifications of hooks.

use serde::{Deserialize, Serialize};

use super::execution::ExecutionState;
use super::id::{AgentName, MessageId, RunId, TaskId, WaitId, WorkId};
use super::json::tagged;
use super::record::is_default;
use super::time::Time;

names! {
    /// Kind of an attention, with the words that `Display` writes before the id of its record.
    "attention subject" Subject {
        DeadLetter = "dead_letter" as "dead letter",
        MessageDropped = "message_dropped" as "message dropped",
        MessageRejected = "message_rejected" as "message rejected",
        AgentStopped = "agent_stopped" as "the agent stopped itself",
        AnswerLost = "answer_lost" as "answer lost",
        RecoveryFailed = "recovery_failed" as "recovery failed",
        MessageHeld = "message_held" as "message held",
        Asked = "asked" as "asks",
        Stalled = "stalled",
    }
}

impl Subject {
    /// True if a command that raises an attention of this kind exits with 7. Questions and stalls
    /// are no failures.
    pub const fn is_failure(self) -> bool {
        match self {
            Subject::DeadLetter
            | Subject::MessageDropped
            | Subject::MessageRejected
            | Subject::AgentStopped
            | Subject::AnswerLost
            | Subject::RecoveryFailed
            | Subject::MessageHeld => true,
            Subject::Asked | Subject::Stalled => false,
        }
    }
}

/// Records that an attention is about; several fields may be set.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AttentionSubject {
    pub message_id: Option<MessageId>,
    pub run_id: Option<RunId>,
    pub wait_id: Option<WaitId>,
    pub work_item_id: Option<WorkId>,
    pub task_id: Option<TaskId>,
    /// Name of a file in the inbox that was not admitted as a message.
    pub path: Option<String>,
}

impl AttentionSubject {
    pub fn message(id: MessageId) -> AttentionSubject {
        AttentionSubject { message_id: Some(id), ..AttentionSubject::default() }
    }

    /// Returns the first id in this subject, or its file name. A message precedes its run.
    fn first_id(&self) -> Option<String> {
        let AttentionSubject { message_id, run_id, wait_id, work_item_id, task_id, path } = self;
        let ids = [
            message_id.map(|id| id.to_string()),
            run_id.map(|id| id.to_string()),
            wait_id.map(|id| id.to_string()),
            work_item_id.map(|id| id.to_string()),
            task_id.map(|id| id.to_string()),
            path.clone(),
        ];
        ids.into_iter().flatten().next()
    }

    pub fn file(name: &str) -> AttentionSubject {
        AttentionSubject { path: Some(name.to_owned()), ..AttentionSubject::default() }
    }
}

/// Fault, question or stall that a person should look at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Attention {
    /// Sequence number of the event that records the attention.
    pub seq: u64,
    pub at: Time,
    pub subject: Subject,
    /// Records that the attention is about. For merged attentions, records of the first.
    #[serde(flatten)]
    pub about: AttentionSubject,
    /// Reason. A question has its text here; a long text is cut.
    pub reason: String,
    /// Answers that the turn offered with its question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Command that answers a question. Set on output and for hooks only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_with: Option<String>,
    /// Number of equal attentions that one transaction raised, if more than one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u64,
    /// True if the hook `on-attention` was killed at its first run for this attention.
    #[serde(default, skip_serializing_if = "is_default")]
    pub again: bool,
}

impl Attention {
    /// Returns an attention for which no event is logged yet, so that its sequence number is 0.
    pub fn new(subject: Subject, about: AttentionSubject, reason: String, at: Time) -> Attention {
        let (seq, options) = (0, Vec::new());
        Attention { seq, at, subject, about, reason, options, answer_with: None, count: 1, again: false }
    }

    /// Returns the attention; if it is a question, with the command that answers it.
    pub fn shown(mut self, agent: &AgentName) -> Attention {
        let of_wait = self.about.wait_id.map(|wait| format!("--wait {wait}"));
        let names = of_wait.or(self.about.work_item_id.map(|item| format!("--work-item {item}")));
        self.answer_with = names
            .filter(|_| self.subject == Subject::Asked)
            .map(|names| format!("dormouse enqueue {agent} {names} TEXT"));
        self
    }
}

const fn one() -> u64 {
    1
}

const fn is_one(count: &u64) -> bool {
    *count == 1
}

impl std::fmt::Display for Attention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.subject == Subject::Asked {
            write!(f, "asks: {}", self.reason)?;
            if !self.options.is_empty() {
                write!(f, " ({})", self.options.join(" / "))?;
            }
            return self.answer_with.iter().try_for_each(|command| write!(f, "; answer: {command}"));
        }
        f.write_str(self.subject.words())?;
        // The id of a message leads to its run, so one id is enough.
        if let Some(id) = self.about.first_id() {
            write!(f, " {id}")?;
        }
        if self.count > 1 {
            write!(f, " and {} more", self.count - 1)?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// Maximum number of unacknowledged attentions that are stored; older attentions are only counted.
const NEWEST: usize = 10;

/// Unacknowledged attentions of an agent that a person should look at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AttentionMark {
    /// Number of unacknowledged attentions.
    pub count: u64,
    /// Time at which the first unacknowledged attention was raised.
    pub since: Time,
    /// Newest unacknowledged attentions, oldest first.
    pub newest: Vec<Attention>,
}

impl AttentionMark {
    /// Adds an attention to an agent's mark, or makes a mark with this attention.
    pub fn with(mark: Option<AttentionMark>, attention: Attention) -> AttentionMark {
        let mut mark = mark.unwrap_or(AttentionMark { count: 0, since: attention.at, newest: Vec::new() });
        mark.count = mark.count.saturating_add(attention.count);
        mark.newest.push(attention);
        if mark.newest.len() > NEWEST {
            mark.newest.remove(0);
        }
        mark
    }

    /// Removes the attentions for which `is_dealt_with` returns true. Returns `None` if no
    /// attention is left.
    pub fn without(mut self, is_dealt_with: impl Fn(&Attention) -> bool) -> Option<AttentionMark> {
        let (gone, newest): (Vec<_>, Vec<_>) = self.newest.into_iter().partition(is_dealt_with);
        self.newest = newest;
        self.count = self.count.saturating_sub(counted(&gone));
        if self.knows_all()
            && let Some(first) = self.newest.first()
        {
            self.since = first.at;
        }
        (self.count > 0).then_some(self)
    }

    /// True if the attention about dead letter `id`, parked at `at`, is unacknowledged. If not all
    /// attentions are stored, also true for a dead letter older than all stored attentions.
    pub fn covers(&self, id: MessageId, at: Time) -> bool {
        let is_older = self.newest.first().is_none_or(|oldest| at < oldest.at);
        self.newest.iter().any(|one| one.about.message_id == Some(id)) || (!self.knows_all() && is_older)
    }

    /// True if `newest` has all counted attentions, so that no older attention was removed.
    pub fn knows_all(&self) -> bool {
        counted(&self.newest) == self.count
    }
}

fn counted(attentions: &[Attention]) -> u64 {
    attentions.iter().fold(0, |count, attention| attention.count.saturating_add(count))
}

names! {
    /// Kind of a warning (contract, semantics §15).
    "advisory" AdvisoryKind {
        ClockInFuture = "clock_in_future",
        IdlePostureHasRunnableWork = "idle_posture_has_runnable_work",
        BlockedWorkItemWithoutRecheckOrWait = "blocked_work_item_without_recheck_or_wait",
        IdlePostureHasQueuedInput = "idle_posture_has_queued_input",
        MessageRetriedOften = "message_retried_often",
        NobodyTicks = "nobody_ticks",
        InputSetAside = "input_set_aside",
        AnswerLost = "answer_lost",
        WaitWithoutSubject = "wait_without_subject",
        ExternalWaitHasWeakRecoverability = "external_wait_has_weak_recoverability",
        ExternalWaitHasNoFallback = "external_wait_has_no_fallback",
    }
}

tagged! {
    "notify", [rename_all = "snake_case"]
    /// Attention or transition for which no hook has run yet.
    #[derive(Debug, Clone, PartialEq)]
    pub enum Notification {
        Attention(Attention),
        Transition(PendingTransition),
    }
}

impl Notification {
    /// Returns the sequence number of the event that records the attention or transition.
    pub fn seq(&self) -> u64 {
        match self {
            Notification::Attention(attention) => attention.seq,
            Notification::Transition(transition) => transition.seq,
        }
    }

    /// Returns the flag that is true if the hook of this notification was killed once. The second
    /// run of the hook is the last.
    pub fn again(&mut self) -> &mut bool {
        match self {
            Notification::Attention(attention) => &mut attention.again,
            Notification::Transition(transition) => &mut transition.again,
        }
    }

    pub fn attention(&self) -> Option<&Attention> {
        match self {
            Notification::Attention(attention) => Some(attention),
            Notification::Transition(_) => None,
        }
    }
}

/// Committed transition of the execution state, as stored until `on-state-change` has run for it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PendingTransition {
    pub seq: u64,
    pub from: ExecutionState,
    pub to: ExecutionState,
    pub cause: String,
    pub task_id: Option<MessageId>,
    pub run_id: Option<RunId>,
    /// Failure for which a recovery begins or ends.
    pub failure: Option<FailureTold>,
    /// True if the hook `on-state-change` was killed at its first run for this transition.
    #[serde(default, skip_serializing_if = "is_default")]
    pub again: bool,
}

/// Failure that an agent recovers from, as hooks are told of it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailureTold {
    pub reason: String,
    /// Absent if a start or a recovery failed that no message caused.
    pub message_id: Option<MessageId>,
    /// Number of the failed attempt.
    pub attempt: Option<u32>,
    /// Run of the failed attempt, if a turn failed.
    pub run_id: Option<RunId>,
}
