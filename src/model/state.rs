//! `state.json`: the executor's own record, and the only record that is rewritten again and again.

use serde::{Deserialize, Serialize};

use super::agent::Status;
use super::attention::{Attention, Mark};
use super::closure::Closure;
use super::continuation::Continuation;
use super::decision::DecisionReport;
use super::execution::{Execution, ExecutionState};
use super::id::{AgentName, MessageId, RunId, WaitId, WorkId};
use super::message::{Origin, WakeHint};
use super::meters::Meters;
use super::moved::Moved;
use super::outbox::Outbox;
use super::place::StatePlace;
use super::preemption::{Checkpoint, Preemption, Section};
use super::record::{Extra, MOST_REVISIONS, Record};
use super::resource::{Deferred, Resource};
use super::run::Terminal;
use super::setbacks::Setbacks;
use super::time::{Span, Time};

/// A run that is live, or whose tick is gone without having settled it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CurrentRun {
    pub run_id: RunId,
    pub message_id: MessageId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_item_id: Option<WorkId>,
    pub attempt: u32,
    pub claimed_at: Time,
    /// The machine, and its boot, on which it runs. Elsewhere the run counts as live until the
    /// lease ends.
    pub host: String,
    pub boot_id: String,
    /// The state directory from which its processes were started. In another one the run counts as
    /// live until the lease ends.
    pub place: StatePlace,
    /// The tick's own process id.
    pub pid: u32,
    pub lease_expires_at: Time,
    /// The hops of the message. Messages that the turn sends carry them on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hops: u32,
    pub continuation: Continuation,
    /// How often the message has come to nothing before this run.
    #[serde(default, skip_serializing_if = "Setbacks::is_nothing")]
    pub setbacks: Setbacks,
    /// When the row of deferrals began: with a turn, or with a claim that lacked a resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferred_since: Option<Time>,
    /// Why it was put off last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferred: Option<Deferred>,
    /// Set while `stop` ends this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Stopping>,
    /// Set once the run has been asked to yield.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption: Option<Preemption>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<Section>,
    /// When its turn asked to be suspended. The run is then suspended, however the turn ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yielded_at: Option<Time>,
    /// How long after that the run goes on by itself, if its turn has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_after: Option<Span>,
    /// The last checkpoint that was saved for its message, by an earlier run or by this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// The checkpoint that the run goes on from. Its turn may read it as long as it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Checkpoint>,
    /// Why the tick has told the turn to end, or will after the open section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<String>,
    /// Why the run fails, however its turn ends. Written before its processes are ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condemned: Option<String>,
    /// True if the run is condemned because it did not yield in time. This costs its message no
    /// attempt.
    #[serde(default, skip_serializing_if = "is_false")]
    pub forced: bool,
}

/// The clone that alone may step an agent until it lets go of it, or until its time is over. It has
/// taken the agent by a push: of two clones that tried only one was heard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TickedBy {
    /// Known only to the clone that made it. Two clones may be on one machine.
    pub id: String,
    pub host: String,
    pub since: Time,
    pub expires_at: Time,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A stop that has closed the gate and has not yet seen the run end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stopping {
    pub requested_at: Time,
    /// When the run's processes are killed.
    pub kill_at: Time,
    /// Whether the message goes back to the queue instead of being aborted.
    pub requeue: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// When a failed agent may recover, and for what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Retry {
    /// The message that failed; absent if a start or a recovery failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    /// The attempt that comes next, which is the same one after an interruption; absent when the
    /// message was parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    pub not_before: Time,
    pub reason: String,
}

/// A run that waits to go on: suspended, or without a resource. Its message stays claimed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Held {
    pub message_id: MessageId,
    /// What is missing, or what suspended the run.
    pub missing: String,
    /// Set if a claim found it missing: every step then looks for it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// When the run may go on by itself, if that is known; with a `resource`, when to look again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    pub continuation: Continuation,
    /// How often the message has come to nothing so far.
    #[serde(default, skip_serializing_if = "Setbacks::is_nothing")]
    pub setbacks: Setbacks,
    /// True if only the operator brings the message on: it came to nothing too often.
    #[serde(default, skip_serializing_if = "is_false")]
    pub needs_operator: bool,
    /// True if a live agent that is known has the `resource`. Waiting for it is not counted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_occupied: bool,
    /// When the row of deferrals began. Claims that lack a resource belong to it as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferred_since: Option<Time>,
    /// Why it was put off last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferred: Option<Deferred>,
    /// How often the `resource` was looked for in vain.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub looks: u32,
    /// The checkpoint that the run goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// The state that was entered for a turn that has not started yet. The hook of that state is
    /// still to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entered: Option<ExecutionState>,
    /// The more urgent agent to which the run has left its `resource`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_way_for: Option<AgentName>,
}

impl Held {
    /// A claim about which nothing else is known yet.
    pub const fn new(message_id: MessageId, continuation: Continuation) -> Held {
        Held {
            message_id,
            missing: String::new(),
            resource: None,
            not_before: None,
            continuation,
            setbacks: Setbacks { interruptions: 0, deferrals: 0, suspensions: 0 },
            needs_operator: false,
            is_occupied: false,
            deferred_since: None,
            deferred: None,
            looks: 0,
            checkpoint: None,
            entered: None,
            made_way_for: None,
        }
    }
}

/// A committed transition of which its hook has not been told yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Untold {
    /// The sequence number of its event.
    pub seq: u64,
    pub from: ExecutionState,
    pub to: ExecutionState,
    pub cause: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The failure for which a recovery begins or ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureTold>,
    /// The hook was killed while it was told. It is told once more, and not again after that.
    #[serde(default, skip_serializing_if = "is_false")]
    pub again: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The failure that an agent recovers from, as hooks are told of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailureTold {
    pub reason: String,
    /// Absent if a start or a recovery failed that no message caused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    /// The attempt that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Its run, if the failure is that of a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
}

/// The last turn that was settled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LastTurn {
    pub run_id: RunId,
    pub message_id: MessageId,
    pub attempt: u32,
    pub terminal: Terminal,
    pub ended_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brief: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The model that the turn said it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// Input with content that steps took in without a turn, and of which no turn has been told yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetAside {
    #[serde(default)]
    pub count: u64,
    /// The newest, oldest of them first: at most [`SetAside::KEPT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub newest: Vec<KeptOut>,
}

impl SetAside {
    pub const KEPT: usize = 50;

    pub fn is_nothing(&self) -> bool {
        self.count == 0
    }
}

/// A message that was set aside, and what the agent waited for at that time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeptOut {
    pub message_id: MessageId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_id: Option<WaitId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_item_id: Option<WorkId>,
    /// Whether a step has emitted the tick that makes the agent look at it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ticked: bool,
}

/// What has happened so far, as numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Counters {
    /// The sequence number of the last event.
    pub events: u64,
    pub turns: u64,
    pub turns_failed: u64,
    pub messages_processed: u64,
    pub messages_reduced: u64,
    pub messages_dropped: u64,
    /// Dead letters that have been neither requeued nor dropped.
    pub dead: u64,
    /// Wake hints taken in; each makes runnable work eligible for one more tick.
    pub wakes: u64,
    /// Messages reduced without a turn since the last turn that completed.
    pub reduced_since_turn: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cost_usd: f64,
    #[serde(flatten)]
    pub extra: Extra,
}

/// What the agent has used since an hour or a day began, in UTC.
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

/// The two sums that limits are compared with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Spending {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hour: Option<Spent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<Spent>,
}

impl Spending {
    fn is_nothing(&self) -> bool {
        *self == Spending::default()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct State {
    pub agent: AgentName,
    /// +1 with every transaction; a commit against another revision is refused.
    pub revision: u64,
    pub status: Status,
    /// The operator or the agent (possibly itself) that stopped it. Absent unless it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<Origin>,
    pub execution: Execution,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_run: Option<CurrentRun>,
    /// The clone that steps the agent now, where several clones tick it by `tick --push`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticked_by: Option<TickedBy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How many recoveries have failed in a row.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub recovery_failures: u32,
    /// The current work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<WorkId>,
    /// When the next step is due for an agent that rests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleeping_until: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_wake_hint: Option<WakeHint>,
    /// The key of the last hint that became a tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_wake_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_turn: Option<LastTurn>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_closure: Option<Closure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_continuation: Option<Continuation>,
    /// What broke in dormouse itself since the last turn that completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_error: Option<String>,
    #[serde(default, skip_serializing_if = "SetAside::is_nothing")]
    pub set_aside: SetAside,
    /// The advisories that still hold and are in the ledger already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advised: Vec<String>,
    /// When a step has something to do even if nothing arrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_due_at: Option<Time>,
    /// The decision of the last step that found nothing to do. It holds until a transition, an
    /// arrival or `next_due_at`, so that a step before that need not look at anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resting: Option<DecisionReport>,
    /// When that step was. A time that is still to come was written by a wrong clock, and the
    /// decision then does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rested_at: Option<Time>,
    /// When the last step of the agent was that changed something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stepped_at: Option<Time>,
    /// The beginning of the stall of which a person was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled: Option<Time>,
    /// The messages to other agents that are still to be delivered. Each is a record of its own.
    #[serde(default, skip_serializing_if = "Outbox::is_empty")]
    pub outbox: Outbox,
    /// How many tasks are open. If there are none, a step that has nothing else to do need not look
    /// for them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub open_tasks: u64,
    /// What was used in the current hour and day, as of the last turn that ended.
    #[serde(default, skip_serializing_if = "Spending::is_nothing")]
    pub spending: Spending,
    /// What a person should look at and has not acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<Mark>,
    /// The open questions to the operator that a person has been told of, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<Attention>,
    /// Set while the agent is in another store: nothing of it changes here then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<Moved>,
    #[serde(default)]
    pub counters: Counters,
    #[serde(default, skip_serializing_if = "Meters::is_nothing")]
    pub meters: Meters,
    /// Transitions of which the hook `on-state-change` is still to be told, oldest first. Empty for
    /// an agent without that hook.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untold: Vec<Untold>,
    #[serde(flatten)]
    pub extra: Extra,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

impl State {
    /// The decision that holds as long as nothing happens. `None` if a wrong clock wrote it.
    pub fn resting(&self, now: Time) -> Option<&DecisionReport> {
        self.resting.as_ref().filter(|_| self.rested_at.is_some_and(|at| at <= now))
    }

    /// Whether the last step has found nothing to do, or nothing is to be done.
    pub fn is_at_rest(&self) -> bool {
        self.resting.is_some() || self.status == Status::Stopped
    }

    /// Whether a hook is still to be told of something. The process that was to tell it is still at
    /// that, or was killed.
    pub fn is_to_be_told(&self) -> bool {
        let newest = self.attention.iter().flat_map(|mark| &mark.newest);
        !self.untold.is_empty() || newest.chain(&self.asked).any(|attention| attention.untold)
    }

    /// Everything that a person should look at, as one mark: first what has gone wrong, and last
    /// the open questions, unless the agent is stopped. Readers show it backwards, so that
    /// questions come first.
    pub fn to_look_at(&self) -> Option<Mark> {
        let questions = self.asked.iter().filter(|_| self.status != Status::Stopped);
        questions.fold(self.attention.clone(), |mark, question| {
            let question = question.clone().shown(&self.agent);
            let since = mark.as_ref().map_or(question.at, |mark| mark.since.min(question.at));
            let mut mark = mark.unwrap_or(Mark { count: 0, since, newest: Vec::new() });
            (mark.count, mark.since) = (mark.count.saturating_add(1), since);
            mark.newest.push(question);
            Some(mark)
        })
    }
}

impl Record for State {
    const KIND: &'static str = "state";
    fn extra_mut(&mut self) -> &mut Extra {
        &mut self.extra
    }

    fn check(&self) -> Result<(), String> {
        if self.revision > MOST_REVISIONS {
            return Err("`revision` is larger than dormouse ever writes".to_owned());
        }
        if self.counters.events > MOST_REVISIONS {
            return Err("`counters.events` is larger than dormouse ever writes".to_owned());
        }
        Ok(())
    }
}
