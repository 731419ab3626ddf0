//! Facts on which a decision depends: [`project`] derives them from nothing but records and a time.

use crate::model::agent::Status;
use crate::model::closure::{Closure, RuntimePosture};
use crate::model::continuation::Continuation;
use crate::model::decision::{MessageSummary, RecoveryCause, ResumeCause};
use crate::model::execution::ExecutionState;
use crate::model::id::{MessageId, RunId, TaskId, TimerId, WaitId, WorkId};
use crate::model::message::{Message, MessageKind};
use crate::model::place::Away;
use crate::model::records::{LeaseState, Records};
use crate::model::resource::Shortage;
use crate::model::run::Terminal;
use crate::model::state::{HeldRun, LastTurn, State};
use crate::model::time::Time;
use crate::model::wait::{Wait, WaitKind};
use crate::model::work::{SchedulingState, WorkItem};

use super::closure::{AgentWaits, ClosureFacts, derive};
use super::continuation::resolve;
use super::limits;
use super::preemption::is_interjection;
use super::work::{WaitsByItem, is_spent, scheduling_state, wait_kind};

/// Permission for an agent to run: open unless the agent is stopped or was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    NotStarted,
    Open,
    Stopped,
}

/// Pause before a failed agent recovers. If its recovery was interrupted, the pause is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub until: Time,
    pub is_over: bool,
    pub cause: RecoveryCause,
}

/// Held run, which was suspended, deferred, or lacks a resource, with its message.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldFact {
    pub run: HeldRun,
    pub about: MessageSummary,
    pub may_go_on: bool,
    pub cause: ResumeCause,
}

impl HeldFact {
    /// Returns the time at which the missing resource is available again, if known.
    pub fn back_at(&self) -> Option<Time> {
        self.run.deferred.as_ref().and_then(|deferred| deferred.until)
    }
}

/// Message at the head of the queue, with the facts that a decision needs.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuedMessage {
    pub id: MessageId,
    pub kind: MessageKind,
    pub about: MessageSummary,
    /// Continuation of the message; absent for messages that trigger nothing.
    pub continuation: Option<Continuation>,
}

/// Pending wake hint. `seen`: a step has already emitted the `system_tick` with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingHint {
    pub key: String,
    pub seen: bool,
}

/// Facts about a work item that a decision depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkFact {
    pub id: WorkId,
    pub revision: u64,
    pub state: SchedulingState,
    /// True if this revision had its `system_tick`; for runnable work only if no hint came since.
    pub ticked: bool,
    pub wait_id: Option<WaitId>,
    pub task_id: Option<TaskId>,
}

/// All facts on which a step's decision depends.
#[derive(Debug, Clone, PartialEq)]
pub struct Projection {
    pub gate: Gate,
    /// `Some` while a run is live; the inner value is the id of the run, if known.
    pub live_run: Option<Option<RunId>>,
    /// Machine or state directory of the live run, if it is not this one.
    pub away: Option<Away>,
    pub backoff: Option<Backoff>,
    pub held: Option<HeldFact>,
    /// Resource that a claim would lack now.
    pub shortage: Option<Shortage>,
    pub message: Option<QueuedMessage>,
    pub hint: Option<PendingHint>,
    pub current: Option<WorkFact>,
    /// Open work items except the current one, in order of creation.
    pub queued: Vec<WorkFact>,
    pub agent_waits: AgentWaits,
    pub awaited_task: Option<TaskId>,
    /// True if a step has emitted the `system_tick` message for the agent's own `system` wait.
    pub system_wait_ticked: bool,
    /// Active timer that fires next.
    pub timer: Option<TimerId>,
    pub asleep: bool,
    /// Closure before new input is applied.
    pub prior_closure: Closure,
}

/// Derives the facts from the records of an agent at `now`.
pub fn project(records: &Records, now: Time) -> Projection {
    let state = &records.state;
    let waits = WaitsByItem::of(&records.waits);
    let facts = closure_facts(records);
    let prior_closure = derive(&facts);
    Projection {
        gate: gate(state.status),
        live_run: live_run(records),
        away: records.away.clone(),
        backoff: backoff(records, now),
        held: held(records, now),
        shortage: limits::shortage(state, &records.policy.limits, now).or_else(|| records.shortage.clone()),
        message: records.inbox.head.as_ref().map(|message| queued_message(records, &prior_closure, message)),
        hint: state.pending_wake_hint.as_ref().map(|hint| {
            let key = hint.tick_key();
            PendingHint { seen: state.last_wake_key.as_deref() == Some(key.as_str()), key }
        }),
        current: facts.current_work,
        queued: queued_work(records, &waits).collect(),
        agent_waits: facts.agent_waits,
        awaited_task: own_wait(records, WaitKind::Task).and_then(Wait::task_id),
        system_wait_ticked: own_wait(records, WaitKind::System).is_some_and(|wait| wait.ticked_at.is_some()),
        timer: records.timers.iter().min_by_key(|timer| (timer.next_at, timer.id)).map(|timer| timer.id),
        asleep: matches!(state.status, Status::Asleep | Status::AwaitingTask),
        prior_closure,
    }
}

/// Derives the closure of an agent from its records.
pub fn closure(records: &Records) -> Closure {
    derive(&closure_facts(records))
}

/// Returns the facts from which the closure of these records is derived.
pub fn closure_facts(records: &Records) -> ClosureFacts {
    let state = &records.state;
    let waits = WaitsByItem::of(&records.waits);
    ClosureFacts {
        runtime_error: state.runtime_error.is_some(),
        turn_in_progress: (records.lease == LeaseState::Held || records.away.is_some())
            && state.current_run.is_some(),
        turn_unaccounted: state.current_run.is_some() || is_put_off(state),
        terminal: state.last_turn.as_ref().map(|turn| turn.terminal).filter(|_| !is_put_off(state)),
        current_work: current_work(records, &waits),
        queued_work_runnable: queued_work(records, &waits)
            .any(|work| work.state == SchedulingState::Runnable),
        waiting_work: queued_work(records, &waits).find(|work| wait_kind(work.state).is_some()),
        agent_waits: agent_waits(records),
        active_tasks: records.tasks.iter().filter(|task| !task.status.is_terminal()).count(),
        active_timers: records.timers.len(),
        runtime_posture: match state.status {
            Status::Asleep | Status::AwaitingTask | Status::Stopped => RuntimePosture::Sleeping,
            Status::Booting | Status::AwakeIdle | Status::AwakeRunning => RuntimePosture::Awake,
        },
    }
}

/// True if the last turn was deferred or suspended and its run is still held, so that the turn
/// counts as not ended.
fn is_put_off(state: &State) -> bool {
    let put_off = |turn: &LastTurn| matches!(turn.terminal, Terminal::Deferred | Terminal::Suspended);
    state.held.is_some() && state.last_turn.as_ref().is_some_and(put_off)
}

/// Returns the gate for a status: open unless the agent is stopped or was never started.
pub(super) fn gate(status: Status) -> Gate {
    match status {
        Status::Stopped => Gate::Stopped,
        Status::Booting => Gate::NotStarted,
        Status::AwakeIdle | Status::AwakeRunning | Status::AwaitingTask | Status::Asleep => Gate::Open,
    }
}

fn live_run(records: &Records) -> Option<Option<RunId>> {
    match (&records.state.current_run, records.lease) {
        (Some(run), _) => Some(Some(run.run_id)),
        // Another command has ended the run, but processes of its turn are still alive.
        (None, LeaseState::Held) => Some(None),
        (None, LeaseState::Free) => None,
    }
}

fn backoff(records: &Records, now: Time) -> Option<Backoff> {
    let state = &records.state;
    let is_begun = state.execution.state == ExecutionState::Recovering;
    if !is_begun && state.execution.state != ExecutionState::Failed {
        return None;
    }
    let over = |cause| Some(Backoff { until: now, is_over: true, cause });
    let Some(retry) = &state.retry else { return over(RecoveryCause::AfterStop) };
    // The process that started the recovery was killed, so the recovery is due immediately.
    if is_begun {
        return over(RecoveryCause::Retry);
    }
    // A new `interject` message of the operator at the head of the queue ends the backoff. After a
    // failed recovery, which has no `task_id`, the head does not count: it may have started that
    // recovery, and a message ends one backoff only.
    let heads = records.inbox.head.as_ref().is_some_and(|message| {
        is_interjection(message)
            && message.attempt == 1
            && Some(message.id) != retry.message_id
            && state.execution.task_id.is_some()
    });
    // A message of priority `interject` that arrived after the failure ends the backoff, unless
    // that message has failed.
    let follows = records.inbox.last_interject.is_some_and(|id| {
        Some(id) != retry.message_id && id.minted_at().is_some_and(|at| at >= state.execution.since)
    });
    let interjected = heads || follows;
    Some(Backoff {
        until: retry.not_before,
        is_over: now >= retry.not_before || interjected,
        cause: RecoveryCause::Retry,
    })
}

fn held(records: &Records, now: Time) -> Option<HeldFact> {
    let state = records.state.execution.state;
    let cause = if state == ExecutionState::Suspended {
        ResumeCause::Suspended
    } else if state == ExecutionState::WaitingResources {
        ResumeCause::ResourcesAvailable
    } else {
        return None;
    };
    let held = records.state.held.as_ref()?;
    Some(HeldFact {
        run: held.clone(),
        about: records.inbox.claimed.as_ref().map(about).unwrap_or_default(),
        may_go_on: held.resource.is_some() || held.not_before.is_some_and(|until| now >= until),
        cause,
    })
}

/// Returns the message with its continuation. A retry keeps the continuation of the first attempt;
/// a message that triggers nothing has none.
fn queued_message(records: &Records, prior: &Closure, message: &Message) -> QueuedMessage {
    let unmatched = records.policy.inbox.unmatched;
    let first = || resolve(prior, message, &records.waits, unmatched);
    let continuation = message.continuation.clone().or_else(first);
    QueuedMessage { id: message.id, kind: message.kind, about: about(message), continuation }
}

fn about(message: &Message) -> MessageSummary {
    MessageSummary { work_item_id: message.work_item_id, task_id: message.task_id }
}

fn work_fact(records: &Records, waits: &WaitsByItem<'_>, item: &WorkItem) -> WorkFact {
    let state = scheduling_state(item, waits);
    let wait = wait_kind(state).and_then(|kind| waits.on(item.id).iter().find(|wait| wait.kind == kind));
    // A wake hint makes runnable work eligible again, because the hint may report a change.
    let ticked = if state == SchedulingState::Runnable {
        is_spent(records, item)
    } else {
        item.ticked.is_some_and(|last| last.revision == item.revision)
    };
    WorkFact {
        id: item.id,
        revision: item.revision,
        state,
        ticked,
        wait_id: wait.map(|wait| wait.id),
        task_id: wait.and_then(|wait| wait.task_id()),
    }
}

fn current_work(records: &Records, waits: &WaitsByItem<'_>) -> Option<WorkFact> {
    let focus = records.state.focus?;
    records.works.iter().find(|item| item.id == focus).map(|item| work_fact(records, waits, item))
}

fn queued_work<'a>(records: &'a Records, waits: &'a WaitsByItem<'a>) -> impl Iterator<Item = WorkFact> + 'a {
    let focus = records.state.focus;
    records
        .works
        .iter()
        .filter(move |item| Some(item.id) != focus)
        .map(|item| work_fact(records, waits, item))
}

fn own_wait(records: &Records, kind: WaitKind) -> Option<&Wait> {
    records.waits.iter().find(|wait| wait.is_waiting() && wait.is_agents_own() && wait.kind == kind)
}

fn agent_waits(records: &Records) -> AgentWaits {
    let own = |kind| own_wait(records, kind).map(|wait| wait.id);
    AgentWaits {
        operator: own(WaitKind::Operator),
        external: own(WaitKind::External),
        timer: own(WaitKind::Timer),
        task: own(WaitKind::Task),
        system: own(WaitKind::System),
    }
}
