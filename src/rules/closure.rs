//! Closure: the condition in which a turn leaves the agent (contract, semantics §6).

use crate::model::closure::{Closure, ClosureOutcome, RuntimePosture, WaitingReason};
use crate::model::id::{WaitId, WorkId};
use crate::model::run::Terminal;
use crate::model::wait::WaitKind;
use crate::model::work::SchedulingState;

use super::work::wait_kind;

/// Active waits of the agent itself, one of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AgentWaits {
    pub operator: Option<WaitId>,
    pub external: Option<WaitId>,
    pub timer: Option<WaitId>,
    pub task: Option<WaitId>,
    pub system: Option<WaitId>,
}

/// Scheduling state of a work item, and the wait that decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkStanding {
    pub id: WorkId,
    pub state: SchedulingState,
    pub wait_id: Option<WaitId>,
}

/// Facts from which a closure is derived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosureFacts {
    pub runtime_error: bool,
    pub turn_in_progress: bool,
    /// True if a turn started and no record has its end, or if it was put off and resumes later.
    pub turn_unaccounted: bool,
    /// End of the last turn. `None` before the first turn, and for one that was put off.
    pub terminal: Option<Terminal>,
    pub current_work: Option<WorkStanding>,
    pub queued_work_runnable: bool,
    /// Oldest item other than the focus that waits for something.
    pub waiting_work: Option<WorkStanding>,
    pub agent_waits: AgentWaits,
    pub active_tasks: usize,
    pub active_timers: usize,
    pub runtime_posture: RuntimePosture,
}

/// Closure without its evidence.
struct ClosureVerdict {
    outcome: ClosureOutcome,
    reason: Option<WaitingReason>,
    wait_id: Option<WaitId>,
    work_item_id: Option<WorkId>,
}

impl ClosureVerdict {
    fn ended(outcome: ClosureOutcome) -> ClosureVerdict {
        ClosureVerdict { outcome, reason: None, wait_id: None, work_item_id: None }
    }

    fn waiting(reason: Option<WaitingReason>, wait_id: Option<WaitId>) -> ClosureVerdict {
        ClosureVerdict { outcome: ClosureOutcome::Waiting, reason, wait_id, work_item_id: None }
    }

    /// Returns the verdict for an item that waits; `None` for any other.
    fn of_work(work: WorkStanding) -> Option<ClosureVerdict> {
        let reason = waiting_reason(work.state);
        let waits = reason.is_some() || work.state == SchedulingState::WaitingSystem;
        waits.then(|| ClosureVerdict {
            work_item_id: Some(work.id),
            ..ClosureVerdict::waiting(reason, work.wait_id)
        })
    }
}

/// Derives the closure (contract, semantics §6): the first match wins. The evidence lists every
/// fact, in this order.
pub fn derive(facts: &ClosureFacts) -> Closure {
    let ClosureVerdict { outcome, reason, wait_id, work_item_id } = verdict(facts);
    Closure {
        outcome,
        waiting_reason: reason,
        wait_id,
        work_item_id,
        runtime_posture: facts.runtime_posture,
        evidence: evidence(facts),
    }
}

fn verdict(facts: &ClosureFacts) -> ClosureVerdict {
    use WaitingReason::{AwaitingExternalChange, AwaitingOperatorInput, AwaitingTaskResult, AwaitingTimer};
    let current = facts.current_work;
    let is_current = |state| current.is_some_and(|work| work.state == state);
    let own = facts.agent_waits;

    if facts.runtime_error {
        return ClosureVerdict::ended(ClosureOutcome::Failed);
    }
    if facts.turn_in_progress {
        return ClosureVerdict::waiting(Some(AwaitingExternalChange), None);
    }
    if facts.terminal.is_some_and(|terminal| terminal != Terminal::Completed) {
        return ClosureVerdict::ended(ClosureOutcome::Failed);
    }
    if facts.turn_unaccounted {
        return ClosureVerdict::waiting(Some(AwaitingExternalChange), None);
    }
    if is_current(SchedulingState::Runnable) || facts.queued_work_runnable {
        return ClosureVerdict::ended(ClosureOutcome::Continuable);
    }
    if own.operator.is_some() {
        return ClosureVerdict::waiting(Some(AwaitingOperatorInput), own.operator);
    }
    if let Some(work) = current.filter(|work| work.state == SchedulingState::WaitingOperator)
        && let Some(verdict) = ClosureVerdict::of_work(work)
    {
        return verdict;
    }
    let rows =
        [(AwaitingExternalChange, own.external), (AwaitingTimer, own.timer), (AwaitingTaskResult, own.task)];
    if let Some((reason, wait)) = rows.into_iter().find(|(_, wait)| wait.is_some()) {
        return ClosureVerdict::waiting(Some(reason), wait);
    }
    let of_current = current.filter(|work| work.state != SchedulingState::WaitingSystem);
    if let Some(verdict) = of_current.and_then(ClosureVerdict::of_work) {
        return verdict;
    }
    if own.system.is_some() {
        return ClosureVerdict::waiting(None, own.system);
    }
    current
        .and_then(ClosureVerdict::of_work)
        .or_else(|| facts.waiting_work.and_then(ClosureVerdict::of_work))
        .unwrap_or_else(|| ClosureVerdict::ended(ClosureOutcome::Completed))
}

/// Returns the waiting reason that an item in this state gives its closure and its decision.
pub fn waiting_reason(state: SchedulingState) -> Option<WaitingReason> {
    match wait_kind(state)? {
        WaitKind::Operator => Some(WaitingReason::AwaitingOperatorInput),
        WaitKind::Task => Some(WaitingReason::AwaitingTaskResult),
        WaitKind::External => Some(WaitingReason::AwaitingExternalChange),
        WaitKind::Timer => Some(WaitingReason::AwaitingTimer),
        WaitKind::System => None,
    }
}

fn evidence(facts: &ClosureFacts) -> Vec<String> {
    let waits = facts.agent_waits;
    vec![
        format!("runtime_error={}", facts.runtime_error),
        format!("turn_in_progress={}", facts.turn_in_progress),
        format!("terminal={}", facts.terminal.map_or("none", Terminal::name)),
        format!("turn_unaccounted={}", facts.turn_unaccounted),
        format!("current_work={}", facts.current_work.map_or("none", |work| work.state.name())),
        format!("queued_work_runnable={}", facts.queued_work_runnable),
        format!("waiting_work={}", facts.waiting_work.map_or("none", |work| work.state.name())),
        format!("operator_wait={}", waits.operator.is_some()),
        format!("external_wait={}", waits.external.is_some()),
        format!("timer_wait={}", waits.timer.is_some()),
        format!("task_wait={}", waits.task.is_some()),
        format!("system_wait={}", waits.system.is_some()),
        format!("active_tasks={}", facts.active_tasks),
        format!("active_timers={}", facts.active_timers),
    ]
}
