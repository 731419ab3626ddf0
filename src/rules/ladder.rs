//! Decision of a step: a ladder of twenty rungs, of which the first that applies decides (contract,
//! semantics §8).

use crate::model::closure::WaitingReason;
use crate::model::continuation::Continuation;
use crate::model::decision::{
    Decision, DecisionKind, DecisionReport, MessageSummary, StepAction, Tick, WorkTick,
};
use crate::model::id::{MessageId, RunId, WorkId};
use crate::model::place::Away;
use crate::model::work::SchedulingState;

use super::projection::{Gate, Projection, QueuedMessage, WorkFact};
use super::work::waiting_reason;

use DecisionKind::{
    EmitSystemTick, Noop, ReduceMessageOnly, Sleep, StartModelTurn, StartRecovery, StayIdle, Stop,
    WaitForExternalChange, WaitForOperator, WaitForResources, WaitForTask, WaitForTimer,
};

/// Rung of the ladder: a rule that decides a step or leaves the decision to the next rung.
pub struct Rung {
    /// Number of the rung in the contract, from 1.
    pub number: u8,
    /// Kinds of decision that the rung can return.
    kinds: &'static [DecisionKind],
    /// Reasons of the decisions, shown by `explain`.
    pub reason: &'static str,
    pub holds: fn(&Projection) -> Option<Decision>,
}

impl Rung {
    /// Returns the kinds of decision of the rung as text, shown by `explain`.
    pub fn decision(&self) -> String {
        self.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
    }
}

macro_rules! ladder {
    ($($number:literal [$($kind:ident)+] $reason:literal $holds:expr),+ $(,)?) => {
        &[$(Rung { number: $number, kinds: &[$($kind),+], reason: $reason, holds: $holds }),+]
    };
}

/// All rungs, in order of precedence.
pub const LADDER: &[Rung] = ladder![
     1 [Stop Noop] "stopped, not_started" |facts| closed(facts.gate),
     2 [Noop] "turn_in_progress, turn_elsewhere" live_run,
     3 [StartRecovery] "retry, after_stop" recovery,
     4 [WaitForTimer] "recovery_backoff" backoff,
     5 [StartModelTurn] "resume_suspended, resources_available" held_may_go_on,
     6 [WaitForResources] "what is missing" held_may_not,
     7 [StartModelTurn] "the message kind" message_with_reentry,
     8 [ReduceMessageOnly] "the message kind" message_without_reentry,
     9 [EmitSystemTick] "wake_hint" wake_hint,
    10 [EmitSystemTick] "continue_active" current_runnable,
    11 [EmitSystemTick] "queued_available" queued_runnable,
    12 [Noop] "duplicate_wake_hint, duplicate_continue_active, duplicate_queued_available" duplicate,
    13 [WaitForOperator] "agent_operator_wait" agent_operator_wait,
    14 [WaitForExternalChange] "agent_external_wait" agent_external_wait,
    15 [WaitForTimer] "active_timers" timers,
    16 [WaitForTask] "agent_task_wait" agent_task_wait,
    17 [WaitForOperator WaitForTask WaitForExternalChange WaitForTimer]
       "work_item_needs_input, work_item_task_wait, work_item_external_wait, work_item_timer_wait" work_waits,
    18 [EmitSystemTick WaitForResources] "system_wait" system_wait,
    19 [StayIdle] "already_asleep" |facts| facts.asleep.then(stay_idle),
    20 [Sleep] "no_pending_scheduler_facts" |_| Some(sleep()),
];

/// Returns the decision of the first rung that applies; the last rung always applies.
pub fn decide(facts: &Projection) -> Decision {
    LADDER.iter().find_map(|rung| (rung.holds)(facts)).unwrap_or_else(sleep)
}

fn decision(action: StepAction, kind: DecisionKind, reason: &str) -> Decision {
    Decision { action, report: DecisionReport::new(kind, reason) }
}

/// Returns the decision that the agent rests, because of a work item if `item` names one.
fn rest_on(item: Option<WorkId>, kind: DecisionKind, reason: &str) -> Decision {
    let report = DecisionReport { work_item_id: item, ..DecisionReport::new(kind, reason) };
    Decision { action: StepAction::Rest, report }
}

fn of_message(
    action: StepAction,
    report: DecisionReport,
    message_id: MessageId,
    about: MessageSummary,
    continuation: Option<Continuation>,
) -> Decision {
    let MessageSummary { work_item_id, task_id } = about;
    let message_id = Some(message_id);
    Decision { action, report: DecisionReport { message_id, work_item_id, task_id, continuation, ..report } }
}

/// Returns the decision of rung 1 for an agent that is stopped or not started; `None` for others.
pub(super) fn closed(gate: Gate) -> Option<Decision> {
    match gate {
        Gate::Stopped => Some(decision(StepAction::Stay, Stop, "stopped")),
        Gate::NotStarted => Some(decision(StepAction::Stay, Noop, "not_started")),
        Gate::Open => None,
    }
}

fn live_run(facts: &Projection) -> Option<Decision> {
    facts.live_run.map(|run_id| running(run_id, facts.away.as_ref()))
}

/// Returns the decision while a run is live. `away`: other machine or state directory of the run.
pub(super) fn running(run_id: Option<RunId>, away: Option<&Away>) -> Decision {
    let (reason, evidence) = match away {
        Some(Away::Directory { .. }) => {
            ("turn_elsewhere", away.iter().map(|away| format!("it runs {away}")).collect())
        }
        // A run on another machine is reported like a run on this one, because they share records.
        Some(Away::Machine { .. }) | None => (Decision::TURN_IN_PROGRESS, Vec::new()),
    };
    let report = DecisionReport { run_id, evidence, ..DecisionReport::new(Noop, reason) };
    Decision { action: StepAction::Leave, report }
}

fn recovery(facts: &Projection) -> Option<Decision> {
    let backoff = facts.backoff.filter(|backoff| backoff.is_over)?;
    Some(decision(StepAction::Recover, StartRecovery, backoff.cause.name()))
}

fn backoff(facts: &Projection) -> Option<Decision> {
    let backoff = facts.backoff.filter(|backoff| !backoff.is_over);
    backoff.map(|_| decision(StepAction::Stay, WaitForTimer, "recovery_backoff"))
}

fn start_turn(reason: &str, id: MessageId, about: MessageSummary, continuation: &Continuation) -> Decision {
    let action = StepAction::StartTurn { message_id: id, continuation: continuation.clone() };
    let report = DecisionReport::new(StartModelTurn, reason);
    of_message(action, report, id, about, Some(continuation.clone()))
}

fn held_may_go_on(facts: &Projection) -> Option<Decision> {
    let held = facts.held.as_ref().filter(|held| held.may_go_on && facts.shortage.is_none())?;
    Some(start_turn(held.cause.name(), held.run.message_id, held.about, &held.run.continuation))
}

/// Returns the decision for a held run that may not resume, or for a claim that lacks a resource.
fn held_may_not(facts: &Projection) -> Option<Decision> {
    let hold = |message_id, continuation: &Continuation| {
        let shortage = facts.shortage.clone()?;
        let report = DecisionReport {
            message_id: Some(message_id),
            evidence: shortage.evidence.clone(),
            ..DecisionReport::new(WaitForResources, shortage.resource.name())
        };
        let continuation = continuation.clone();
        Some(Decision { report, action: StepAction::Hold { message_id, continuation, shortage } })
    };
    match &facts.held {
        Some(held) if !held.may_go_on => {
            let evidence = held.back_at().iter().map(|at| format!("back at {at}")).collect();
            let report = DecisionReport::new(WaitForResources, &held.run.missing);
            Some(Decision { action: StepAction::Stay, report: DecisionReport { evidence, ..report } })
        }
        Some(held) => hold(held.run.message_id, &held.run.continuation),
        None => {
            let (message, continuation) = next_with_reentry(facts)?;
            hold(message.id, continuation)
        }
    }
}

/// Returns the message at the head of the queue with its continuation, if a turn runs for it.
fn next_with_reentry(facts: &Projection) -> Option<(&QueuedMessage, &Continuation)> {
    let message = facts.message.as_ref()?;
    let continuation = message.continuation.as_ref().filter(|continuation| continuation.model_reentry)?;
    Some((message, continuation))
}

fn message_with_reentry(facts: &Projection) -> Option<Decision> {
    let (message, continuation) = next_with_reentry(facts).filter(|_| facts.shortage.is_none())?;
    Some(start_turn(message.kind.name(), message.id, message.about, continuation))
}

fn message_without_reentry(facts: &Projection) -> Option<Decision> {
    let message = facts.message.as_ref().filter(|_| next_with_reentry(facts).is_none())?;
    let (message_id, continuation) = (message.id, message.continuation.clone());
    let report = DecisionReport::new(ReduceMessageOnly, message.kind.name());
    let action = StepAction::Reduce { message_id, continuation: continuation.clone() };
    Some(of_message(action, report, message_id, message.about, continuation))
}

fn emit(tick: Tick) -> Option<Decision> {
    let report = DecisionReport::new(EmitSystemTick, tick.reason());
    let report = DecisionReport { work_item_id: tick.work_item_id(), ..report };
    Some(Decision { report, action: StepAction::EmitTick(tick) })
}

fn emit_for(reason: WorkTick, work: &WorkFact) -> Option<Decision> {
    emit(Tick::Work { reason, work_item_id: work.id, revision: work.revision })
}

fn wake_hint(facts: &Projection) -> Option<Decision> {
    let hint = facts.hint.as_ref().filter(|hint| !hint.seen)?;
    emit(Tick::WakeHint { key: hint.key.clone() })
}

/// True if a work item is runnable, and had a `system_tick` already (`ticked`) or not yet.
fn is_runnable(work: &WorkFact, ticked: bool) -> bool {
    work.state == SchedulingState::Runnable && work.ticked == ticked
}

fn current_runnable(facts: &Projection) -> Option<Decision> {
    emit_for(WorkTick::ContinueActive, &facts.current.filter(|work| is_runnable(work, false))?)
}

fn queued_runnable(facts: &Projection) -> Option<Decision> {
    emit_for(WorkTick::QueuedAvailable, facts.queued.iter().find(|work| is_runnable(work, false))?)
}

fn duplicate(facts: &Projection) -> Option<Decision> {
    if facts.hint.as_ref().is_some_and(|hint| hint.seen) {
        return Some(decision(StepAction::DropHint, Noop, "duplicate_wake_hint"));
    }
    let ticked = |work: &&WorkFact| is_runnable(work, true);
    let current = facts.current.iter().find(ticked).map(|work| ("duplicate_continue_active", work));
    let queued = || Some(("duplicate_queued_available", facts.queued.iter().find(ticked)?));
    let (reason, work) = current.or_else(queued)?;
    let report = DecisionReport { work_item_id: Some(work.id), ..DecisionReport::new(Noop, reason) };
    Some(Decision { action: StepAction::Stay, report })
}

fn agent_operator_wait(facts: &Projection) -> Option<Decision> {
    facts.agent_waits.operator.map(|_| rest_on(None, WaitForOperator, "agent_operator_wait"))
}

fn agent_external_wait(facts: &Projection) -> Option<Decision> {
    facts.agent_waits.external.map(|_| rest_on(None, WaitForExternalChange, "agent_external_wait"))
}

fn timers(facts: &Projection) -> Option<Decision> {
    let waits = facts.timer.is_some() || facts.agent_waits.timer.is_some();
    waits.then(|| rest_on(None, WaitForTimer, "active_timers"))
}

fn agent_task_wait(facts: &Projection) -> Option<Decision> {
    facts.agent_waits.task?;
    let report = DecisionReport::new(WaitForTask, "agent_task_wait");
    let report = DecisionReport { task_id: facts.awaited_task, ..report };
    Some(Decision { action: StepAction::Rest, report })
}

/// Returns the decision to rest on the current item, else on the oldest other item that waits.
fn work_waits(facts: &Projection) -> Option<Decision> {
    let rests = |work: &WorkFact| {
        let (kind, reason) = match waiting_reason(work.state)? {
            WaitingReason::AwaitingOperatorInput => (WaitForOperator, "work_item_needs_input"),
            WaitingReason::AwaitingExternalChange => (WaitForExternalChange, "work_item_external_wait"),
            WaitingReason::AwaitingTimer => (WaitForTimer, "work_item_timer_wait"),
            WaitingReason::AwaitingTaskResult => (WaitForTask, "work_item_task_wait"),
        };
        let mut rest = rest_on(Some(work.id), kind, reason);
        rest.report.task_id = work.task_id;
        Some(rest)
    };
    facts.current.iter().chain(&facts.queued).find_map(rests)
}

/// Returns the decision for a `system` wait. A wait of the agent or of the current item first emits
/// one `system_tick` message. After that, and for a wait of another item, the agent rests.
fn system_wait(facts: &Projection) -> Option<Decision> {
    let waits = |work: &&WorkFact| work.state == SchedulingState::WaitingSystem;
    let own = facts.agent_waits.system;
    let current = facts.current.as_ref().filter(waits);
    if let Some(wait_id) = own.filter(|_| !facts.system_wait_ticked) {
        return emit(Tick::OwnSystemWait { wait_id });
    }
    if let Some(work) = current.filter(|work| !work.ticked) {
        return emit_for(WorkTick::SystemWait, work);
    }
    let work = current.or_else(|| facts.queued.iter().find(waits));
    own.or_else(|| work?.wait_id)?;
    let work_item_id = work.filter(|_| own.is_none()).map(|work| work.id);
    Some(rest_on(work_item_id, WaitForResources, "system_wait"))
}

/// Returns the decision to stay asleep, which follows the decision to sleep.
pub(super) fn stay_idle() -> Decision {
    rest_on(None, StayIdle, "already_asleep")
}

fn sleep() -> Decision {
    rest_on(None, Sleep, "no_pending_scheduler_facts")
}
