//! `state.json`: the state of an agent's execution, and the only record that is rewritten often.

use serde::{Deserialize, Serialize};

use super::agent::Status;
use super::attention::{Attention, AttentionMark, Notification};
use super::closure::Closure;
use super::continuation::Continuation;
use super::decision::DecisionReport;
use super::execution::{Execution, ExecutionState};
use super::id::{AgentName, MessageId, RunId, WaitId, WorkId};
use super::message::{Message, Origin, WakeHint};
use super::meters::Meters;
use super::moved::{Leave, Moved};
use super::place::StatePlace;
use super::preemption::{Checkpoint, Preemption, Section};
use super::record::{Extra, MOST_REVISIONS, ensure, is_default, record, size};
use super::resource::{Deferred, Resource};
use super::run::Terminal;
use super::setbacks::Setbacks;
use super::time::{Span, Time};

/// Run that is live, or whose tick died before the settlement.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CurrentRun {
    pub run_id: RunId,
    pub message_id: MessageId,
    pub work_item_id: Option<WorkId>,
    pub attempt: u32,
    pub claimed_at: Time,
    /// Machine and boot on which the run's processes are. Other machines treat the run as live
    /// until the lease ends.
    pub host: String,
    pub boot_id: String,
    /// State directory from which the run's processes were started. In other directories the run
    /// counts as live until the lease ends.
    pub place: StatePlace,
    /// Process id of the `tick` command that runs the turn.
    pub pid: u32,
    pub lease_expires_at: Time,
    /// Hops of the message: its position in a chain of turns. The turn's messages have one more.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hops: u32,
    pub continuation: Continuation,
    /// Numbers of interruptions, deferrals and suspensions of the message before this run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub setbacks: Setbacks,
    /// Start of the consecutive deferrals, requested by a turn or caused by a missing resource.
    pub deferred_since: Option<Time>,
    /// Reason of the last deferral.
    pub deferred: Option<Deferred>,
    /// Set while `stop` ends this run.
    pub stopping: Option<Stopping>,
    /// Set after the run was asked to yield.
    pub preemption: Option<Preemption>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<Section>,
    /// Time at which the turn asked to be suspended. Only a stop or `fail` prevents the suspension.
    pub yielded_at: Option<Time>,
    /// Duration of the suspension, if the turn named one.
    pub resume_after: Option<Span>,
    /// Last checkpoint of the message, saved by an earlier run or by this one.
    pub checkpoint: Option<Checkpoint>,
    /// Checkpoint that the run continues from. The turn may read it until the run ends.
    pub given: Option<Checkpoint>,
    /// Reason for which the tick has asked the turn to end, or will after the critical section.
    pub told: Option<String>,
    /// Reason for which the run fails, however its turn ends. Written before any process is ended.
    pub condemned: Option<String>,
    /// True if the run fails because it did not yield in time. This costs its message no attempt.
    #[serde(default, skip_serializing_if = "is_default")]
    pub forced: bool,
}

/// Clone that alone may step an agent, until it releases the agent or its claim expires. The claim
/// is made by a push, so of two competing clones only one succeeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TickedBy {
    /// Id of the claim, known only to the clone that made it. Two clones may be on one machine.
    pub id: String,
    pub host: String,
    pub since: Time,
    pub expires_at: Time,
}

/// Request of `stop` to end the current run, pending until the run has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stopping {
    pub requested_at: Time,
    /// Time at which the run's processes are killed.
    pub kill_at: Time,
    /// True if the message goes back to the queue instead of being aborted.
    pub requeue: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Recovery of a failed agent: the failed attempt, and the earliest time of the next one.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Retry {
    /// Message whose attempt failed; absent if the agent's first start failed.
    pub message_id: Option<MessageId>,
    /// Number of the next attempt, unchanged after an interruption; absent for a dead letter.
    pub attempt: Option<u32>,
    pub not_before: Time,
    pub reason: String,
}

/// Held run: suspended, or waiting for a resource. The run's message stays claimed.
#[serde_with::apply(_ => #[new(default)] #[serde(default, skip_serializing_if = "is_default")])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, derive_new::new)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HeldRun {
    #[serde_with(skip_apply)]
    pub message_id: MessageId,
    /// Missing resource, or the cause of the suspension.
    #[serde_with(skip_apply)]
    #[new(default)]
    pub missing: String,
    /// Resource that the run lacks or has released to another agent; every step checks for it.
    pub resource: Option<Resource>,
    /// Time at which the run may resume by itself, if known; with a `resource`, the time of the
    /// next check.
    pub not_before: Option<Time>,
    #[serde_with(skip_apply)]
    pub continuation: Continuation,
    /// Numbers of interruptions, deferrals and suspensions of the message so far.
    pub setbacks: Setbacks,
    /// True if the message was interrupted, deferred or suspended so often that only the operator
    /// can resume it.
    pub needs_operator: bool,
    /// True if the cause of the missing `resource` is known, such as a live agent that occupies the
    /// resource. The time of this waiting counts towards no limit.
    pub is_occupied: bool,
    /// Start of the consecutive deferrals, including claims that lack a resource.
    pub deferred_since: Option<Time>,
    /// Reason of the last deferral.
    pub deferred: Option<Deferred>,
    /// Number of checks that found the `resource` missing.
    pub looks: u32,
    /// Checkpoint that the run continues from.
    pub checkpoint: Option<Checkpoint>,
    /// State `scheduled` or `resumed` that a claim without resources entered: its hook did not run.
    pub entered: Option<ExecutionState>,
    /// More urgent agent for which the run has released its `resource`.
    pub made_way_for: Option<AgentName>,
}

impl HeldRun {
    /// True if the resume time is known: the missing resource is a limit that renews itself, or the
    /// turn named a time.
    pub fn knows_time(&self) -> bool {
        self.resource.is_some_and(Resource::is_limit)
            || self.deferred.as_ref().is_some_and(|deferred| deferred.until.is_some())
    }

    /// True if the waiting time does not count towards the timeout: the resume time is known, a
    /// known agent has the missing resource, or only the operator can resume the run.
    pub fn is_not_late(&self) -> bool {
        self.knows_time() || self.is_occupied || self.needs_operator
    }
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LastTurn {
    pub run_id: RunId,
    pub message_id: MessageId,
    pub attempt: u32,
    pub terminal: Terminal,
    pub ended_at: Time,
    pub brief: Option<String>,
    pub reason: Option<String>,
    /// Model that the turn reported.
    pub model: Option<String>,
}

/// Messages that steps settled without a turn, and that no turn has been told of yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetAside {
    #[serde(default)]
    pub count: u64,
    /// Newest of the messages settled without a turn, oldest first: at most [`SetAside::KEPT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub newest: Vec<KeptOut>,
}

impl SetAside {
    pub const KEPT: usize = 50;
}

/// Message that a step settled without a turn, and the wait of the agent at that moment.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeptOut {
    pub message_id: MessageId,
    pub wait_id: Option<WaitId>,
    pub work_item_id: Option<WorkId>,
    /// True if a step has emitted the `system_tick` message that tells the agent of this message.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ticked: bool,
}

/// Number and size of the messages that are still to be delivered to other agents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Outbox {
    pub messages: u64,
    /// Total size of the messages' files.
    pub bytes: u64,
}

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    pub fn add(&mut self, message: &Message) {
        self.messages = self.messages.saturating_add(1);
        self.bytes = self.bytes.saturating_add(size(message));
    }

    /// Returns the size of an outbox that contains these messages.
    pub fn of<'m>(messages: impl IntoIterator<Item = &'m Message>) -> Outbox {
        let mut outbox = Outbox::default();
        messages.into_iter().for_each(|message| outbox.add(message));
        outbox
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Counters {
    /// Sequence number of the last event.
    pub events: u64,
    pub turns: u64,
    pub turns_failed: u64,
    pub messages_processed: u64,
    pub messages_reduced: u64,
    pub messages_dropped: u64,
    /// Dead letters that have been neither requeued nor dropped.
    pub dead: u64,
    /// Number of hints that became pending. After each, runnable work may get one `system_tick`.
    pub wakes: u64,
    /// Messages settled without a turn since the last turn that completed.
    pub reduced_since_turn: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cost_usd: f64,
    #[serde(flatten)]
    pub extra: Extra,
}

/// Usage of the agent since the start of an hour or a day, in UTC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Spent {
    pub since: Time,
    #[serde(default)]
    pub turns: u64,
    #[serde(default)]
    pub tokens: u64,
    #[serde(default)]
    pub cost_usd: f64,
}

impl Spent {
    pub const fn nothing(since: Time) -> Spent {
        Spent { since, turns: 0, tokens: 0, cost_usd: 0.0 }
    }
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Spending {
    pub hour: Option<Spent>,
    pub day: Option<Spent>,
}

// `State::new` makes the state of an agent that was never started.
#[serde_with::apply(_ => #[new(default)] #[serde(default, skip_serializing_if = "is_default")])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, derive_new::new)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct State {
    #[serde_with(skip_apply)]
    pub agent: AgentName,
    /// Increases by 1 with every transaction; a commit against another revision is refused.
    #[serde_with(skip_apply)]
    #[new(default)]
    pub revision: u64,
    #[serde_with(skip_apply)]
    #[new(value = "Status::Booting")]
    pub status: Status,
    /// Operator or agent that stopped this agent; absent unless this agent is stopped.
    pub stopped_by: Option<Origin>,
    #[serde_with(skip_apply)]
    pub execution: Execution,
    pub current_run: Option<CurrentRun>,
    /// Clone of the repository that steps the agent now, if several clones use `tick --push`.
    pub ticked_by: Option<TickedBy>,
    pub held: Option<HeldRun>,
    pub retry: Option<Retry>,
    /// Number of consecutive failed recoveries.
    pub recovery_failures: u32,
    /// Current work item.
    pub focus: Option<WorkId>,
    /// Time of the next due step of an agent that rests.
    pub sleeping_until: Option<Time>,
    pub pending_wake_hint: Option<WakeHint>,
    /// Key of the last wake hint for which a step emitted a `system_tick` message.
    pub last_wake_key: Option<String>,
    pub last_turn: Option<LastTurn>,
    pub last_closure: Option<Closure>,
    pub last_continuation: Option<Continuation>,
    /// Error of a turn command that could not be started, since the last turn that completed.
    pub runtime_error: Option<String>,
    pub set_aside: SetAside,
    /// Keys of the warnings that still hold and have been logged as events.
    pub advised: Vec<String>,
    /// Time at which a step has work even if nothing arrives.
    pub next_due_at: Option<Time>,
    /// Decision of the last step that found nothing to do. The decision is valid until a
    /// transition, an arrival or `next_due_at`, so that a step before that time reads no other
    /// record.
    pub resting: Option<DecisionReport>,
    /// Time of the step that made the decision in `resting`. If a wrong clock wrote a future time,
    /// the decision does not hold.
    pub rested_at: Option<Time>,
    /// Time of the agent's last step that changed something.
    pub stepped_at: Option<Time>,
    /// Start of the stall (nothing but a person can resume the agent) that a person was told of.
    pub stalled: Option<Time>,
    /// Size of the outbox: the messages that are still to be delivered to other agents. Each
    /// message is a record of its own.
    pub outbox: Outbox,
    /// Number of open tasks. At 0 a step without other work does not read the tasks.
    pub open_tasks: u64,
    /// Usage in the current hour and day, as of the last turn that ended.
    pub spending: Spending,
    /// Problems that a person should look at and has not acknowledged.
    pub attention: Option<AttentionMark>,
    /// Open questions to the operator that a person has been told of, oldest first.
    pub asked: Vec<Attention>,
    /// Set if the agent was moved, or while it is removed or renamed. Its records stay unchanged.
    pub moved: Option<Moved>,
    #[serde_with(skip_apply)]
    #[new(default)]
    #[serde(default)]
    pub counters: Counters,
    pub meters: Meters,
    /// Notification outbox: attentions and transitions of which the installed hooks `on-attention`
    /// and `on-state-change` have not been told yet, oldest first.
    pub notifications: Vec<Notification>,
    #[serde_with(skip_apply)]
    #[new(default)]
    #[serde(flatten)]
    pub extra: Extra,
}

impl State {
    /// Returns the decision of a step that found nothing to do; `None` if a wrong clock dated it.
    pub fn resting(&self, now: Time) -> Option<&DecisionReport> {
        self.resting.as_ref().filter(|_| self.rested_at.is_some_and(|at| at <= now))
    }

    /// True if this is the state of the agent `name`, also during the agent's rename to that name.
    pub fn is_of(&self, name: &AgentName) -> bool {
        let renamed = self.moved.as_ref().filter(|moved| moved.by == Leave::Rename);
        self.agent == *name || renamed.is_some_and(|moved| moved.to == name.as_str())
    }

    /// True if the last step found nothing to do, or if the agent is stopped.
    pub fn is_at_rest(&self) -> bool {
        self.resting.is_some() || self.status == Status::Stopped
    }

    /// Returns the message of the current run or of the held run. An agent never has both.
    pub fn claimed_message(&self) -> Option<MessageId> {
        let run = self.current_run.as_ref().map(|run| run.message_id);
        run.or(self.held.as_ref().map(|held| held.message_id))
    }

    /// Returns the start of the consecutive deferrals for a held run that is claimed or deferred
    /// again now. Waiting time that counts towards no timeout moves the start forward.
    pub fn deferred_since(&self, now: Time) -> Option<Time> {
        let held = self.held.as_ref()?;
        let waited = now.since(self.execution.since);
        held.deferred_since.map(|since| if held.is_not_late() { since.after(waited) } else { since })
    }

    /// Returns all attentions that a person should look at; `None` without any. Problems come
    /// first, then open questions unless the agent is stopped. Readers print the reverse order.
    pub fn attention_mark(&self) -> Option<AttentionMark> {
        let questions = self.asked.iter().filter(|_| self.status != Status::Stopped);
        questions.fold(self.attention.clone(), |mark, question| {
            let question = question.clone().shown(&self.agent);
            let since = mark.as_ref().map_or(question.at, |mark| mark.since.min(question.at));
            let mut mark = mark.unwrap_or(AttentionMark { count: 0, since, newest: Vec::new() });
            (mark.count, mark.since) = (mark.count.saturating_add(1), since);
            mark.newest.push(question);
            Some(mark)
        })
    }
}

record! { State = "state"; check }

impl State {
    fn fault(&self) -> Result<(), String> {
        ensure(self.revision <= MOST_REVISIONS, "`revision` is larger than dormouse ever writes")?;
        let events = self.counters.events;
        ensure(events <= MOST_REVISIONS, "`counters.events` is larger than dormouse ever writes")
    }
}
