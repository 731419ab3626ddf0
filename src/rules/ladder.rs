//! Decision of a step: a ladder of twenty rungs, of which the first that applies decides (contract,
//! semantics §8).

use crate::model::continuation::Continuation;
use crate::model::decision::{Decision, DecisionKind, DuplicateTick, RestReason, Tick, WorkTick};
use crate::model::id::RunId;
use crate::model::place::Away;
use crate::model::work::SchedulingState;

use super::projection::{Gate, Projection, QueuedMessage, WorkFact};
use super::work::waiting_reason;

/// One rung of the ladder. The kind of its decision determines if the agent changes.
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
        &[$(Rung { number: $number, kinds: &[$(DecisionKind::$kind),+], reason: $reason, holds: $holds }),+]
    };
}

/// All rungs, in order of precedence.
pub const LADDER: &[Rung] = ladder![
     1 [Stop Noop] "stopped, not_started" gate,
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
    19 [StayIdle] "already_asleep" already_asleep,
    20 [Sleep] "no_pending_scheduler_facts" nothing,
];

/// Returns the decision of the first rung that applies; the last rung always applies.
pub fn decide(facts: &Projection) -> Decision {
    LADDER.iter().find_map(|rung| (rung.holds)(facts)).unwrap_or(Decision::Sleep)
}

fn gate(facts: &Projection) -> Option<Decision> {
    closed(facts.gate)
}

/// Returns the decision for a gate that is closed; `None` if it is open.
pub(super) fn closed(gate: Gate) -> Option<Decision> {
    match gate {
        Gate::Stopped => Some(Decision::Stop),
        Gate::NotStarted => Some(Decision::NotStarted),
        Gate::Open => None,
    }
}

fn live_run(facts: &Projection) -> Option<Decision> {
    facts.live_run.map(|run_id| running(run_id, facts.away.clone()))
}

/// Returns the decision while a run is live. `away` is the place of the run, if it is elsewhere.
pub(super) fn running(run_id: Option<RunId>, away: Option<Away>) -> Decision {
    match away {
        Some(away @ Away::Directory { .. }) => Decision::TurnElsewhere { run_id, away },
        // Another machine with this state directory sees the same records as this one.
        Some(Away::Machine { .. }) | None => Decision::TurnInProgress { run_id },
    }
}

fn recovery(facts: &Projection) -> Option<Decision> {
    let backoff = facts.backoff.filter(|backoff| backoff.is_over)?;
    Some(Decision::StartRecovery { cause: backoff.cause })
}

fn backoff(facts: &Projection) -> Option<Decision> {
    let backoff = facts.backoff.filter(|backoff| !backoff.is_over)?;
    Some(Decision::RecoveryBackoff { until: backoff.until })
}

fn held_may_go_on(facts: &Projection) -> Option<Decision> {
    let held = facts.held.as_ref().filter(|held| held.may_go_on && facts.shortage.is_none())?;
    Some(Decision::Resume {
        message_id: held.message_id,
        about: held.about,
        cause: held.cause,
        continuation: held.continuation.clone(),
    })
}

/// Returns the decision for a held run that may not resume yet, or for a claim without a resource
/// that it needs.
fn held_may_not(facts: &Projection) -> Option<Decision> {
    let lack = |message_id, continuation| {
        let shortage = facts.shortage.clone()?;
        Some(Decision::Lack { message_id, continuation, shortage })
    };
    match &facts.held {
        Some(held) if !held.may_go_on => {
            let (missing, until) = (held.missing.clone(), held.until);
            Some(Decision::WaitForResources { missing, until, back_at: held.back_at })
        }
        Some(held) => lack(held.message_id, held.continuation.clone()),
        None => {
            let (message, continuation) = next_with_reentry(facts)?;
            lack(message.id, continuation)
        }
    }
}

/// Returns the next message and its continuation, if a turn runs for the message.
fn next_with_reentry(facts: &Projection) -> Option<(&QueuedMessage, Continuation)> {
    let message = facts.message.as_ref()?;
    let continuation = message.continuation.clone().filter(|continuation| continuation.model_reentry)?;
    Some((message, continuation))
}

fn message_with_reentry(facts: &Projection) -> Option<Decision> {
    let (message, continuation) = next_with_reentry(facts).filter(|_| facts.shortage.is_none())?;
    Some(Decision::StartTurn {
        message_id: message.id,
        about: message.about,
        kind: message.kind,
        continuation,
    })
}

fn message_without_reentry(facts: &Projection) -> Option<Decision> {
    let message = facts.message.as_ref()?;
    if message.continuation.as_ref().is_some_and(|continuation| continuation.model_reentry) {
        return None;
    }
    Some(Decision::Reduce {
        message_id: message.id,
        about: message.about,
        kind: message.kind,
        continuation: message.continuation.clone(),
    })
}

fn wake_hint(facts: &Projection) -> Option<Decision> {
    let hint = facts.hint.as_ref().filter(|hint| !hint.seen)?;
    Some(Decision::EmitTick(Tick::WakeHint { key: hint.key.clone() }))
}

fn current_runnable(facts: &Projection) -> Option<Decision> {
    let work = facts.current.filter(|work| work.state == SchedulingState::Runnable && !work.ticked)?;
    Some(work_tick(WorkTick::ContinueActive, &work))
}

fn queued_runnable(facts: &Projection) -> Option<Decision> {
    let work = facts.queued.iter().find(|work| work.state == SchedulingState::Runnable && !work.ticked)?;
    Some(work_tick(WorkTick::QueuedAvailable, work))
}

fn work_tick(reason: WorkTick, work: &WorkFact) -> Decision {
    Decision::EmitTick(Tick::Work { reason, work_item_id: work.id, revision: work.revision })
}

fn duplicate(facts: &Projection) -> Option<Decision> {
    let ticked = |work: &WorkFact| work.state == SchedulingState::Runnable && work.ticked;
    if facts.hint.as_ref().is_some_and(|hint| hint.seen) {
        return Some(Decision::Duplicate(DuplicateTick::WakeHint));
    }
    if let Some(work) = facts.current.filter(|work| ticked(work)) {
        return Some(Decision::Duplicate(DuplicateTick::ContinueActive { work_item_id: work.id }));
    }
    let work = facts.queued.iter().find(|work| ticked(work))?;
    Some(Decision::Duplicate(DuplicateTick::QueuedAvailable { work_item_id: work.id }))
}

fn agent_operator_wait(facts: &Projection) -> Option<Decision> {
    facts.agent_waits.operator.map(|_| Decision::Rest(RestReason::AgentOperatorWait))
}

fn agent_external_wait(facts: &Projection) -> Option<Decision> {
    facts.agent_waits.external.map(|_| Decision::Rest(RestReason::AgentExternalWait))
}

fn timers(facts: &Projection) -> Option<Decision> {
    let waits = facts.timer.is_some() || facts.agent_waits.timer.is_some();
    waits.then_some(Decision::Rest(RestReason::Timers))
}

fn agent_task_wait(facts: &Projection) -> Option<Decision> {
    facts.agent_waits.task.map(|_| Decision::Rest(RestReason::AgentTaskWait { task_id: facts.awaited_task }))
}

/// Returns the decision for the current item, else for the oldest other item that waits.
fn work_waits(facts: &Projection) -> Option<Decision> {
    let rests = |work: &WorkFact| {
        Some(Decision::Rest(RestReason::WorkItem {
            work_item_id: work.id,
            reason: waiting_reason(work.state)?,
            task_id: work.task_id,
        }))
    };
    facts.current.iter().chain(&facts.queued).find_map(rests)
}

/// Returns the decision for a system wait of the agent or of the current item: emit one tick, then
/// rest.
fn system_wait(facts: &Projection) -> Option<Decision> {
    let waits = |work: &&WorkFact| work.state == SchedulingState::WaitingSystem;
    let own = facts.agent_waits.system;
    let current = facts.current.as_ref().filter(waits);
    if let Some(wait_id) = own.filter(|_| !facts.system_wait_ticked) {
        return Some(Decision::EmitTick(Tick::OwnSystemWait { wait_id }));
    }
    if let Some(work) = current.filter(|work| !work.ticked) {
        return Some(work_tick(WorkTick::SystemWait, work));
    }
    let work = current.or_else(|| facts.queued.iter().find(waits));
    own.or_else(|| work?.wait_id)?;
    let work_item_id = work.filter(|_| own.is_none()).map(|work| work.id);
    Some(Decision::Rest(RestReason::SystemWait { work_item_id }))
}

fn already_asleep(facts: &Projection) -> Option<Decision> {
    facts.asleep.then_some(Decision::StayIdle)
}

fn nothing(_: &Projection) -> Option<Decision> {
    Some(Decision::Sleep)
}
