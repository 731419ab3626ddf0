//! How the agent stands at the end of a turn (contract, semantics §6).

use crate::model::closure::{Closure, ClosureOutcome, RuntimePosture, WaitingReason};
use crate::model::id::WaitId;
use crate::model::run::Terminal;
use crate::model::work::SchedulingState;

/// The wait of the agent's own of each kind, if there is an active one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AgentWaits {
    pub operator: Option<WaitId>,
    pub external: Option<WaitId>,
    pub timer: Option<WaitId>,
    pub task: Option<WaitId>,
    pub system: Option<WaitId>,
}

/// How the current work item stands, and the wait that decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentWork {
    pub state: SchedulingState,
    pub wait_id: Option<WaitId>,
}

/// What a closure is derived from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosureFacts {
    pub runtime_error: bool,
    pub turn_in_progress: bool,
    /// A turn started and nobody recorded its end.
    pub turn_unaccounted: bool,
    /// How the last turn ended; `None` before the first.
    pub terminal: Option<Terminal>,
    pub current_work: Option<CurrentWork>,
    pub queued_work_runnable: bool,
    pub agent_waits: AgentWaits,
    pub active_tasks: usize,
    pub active_timers: usize,
    pub runtime_posture: RuntimePosture,
}

/// Contract, semantics §6: first match wins. The evidence lists every fact, in this order.
pub fn derive(facts: &ClosureFacts) -> Closure {
    let (outcome, waiting_reason, wait_id) = outcome(facts);
    Closure {
        outcome,
        waiting_reason,
        wait_id,
        runtime_posture: facts.runtime_posture,
        evidence: evidence(facts),
    }
}

fn outcome(facts: &ClosureFacts) -> (ClosureOutcome, Option<WaitingReason>, Option<WaitId>) {
    use WaitingReason::{AwaitingExternalChange, AwaitingOperatorInput, AwaitingTaskResult, AwaitingTimer};
    let waiting = |reason, wait| (ClosureOutcome::Waiting, Some(reason), wait);
    let work = facts.current_work.map(|work| work.state);
    let work_wait = facts.current_work.and_then(|work| work.wait_id);
    let waits = facts.agent_waits;

    if facts.runtime_error {
        return (ClosureOutcome::Failed, None, None);
    }
    if facts.turn_in_progress {
        return waiting(AwaitingExternalChange, None);
    }
    if facts.terminal.is_some_and(|terminal| terminal != Terminal::Completed) {
        return (ClosureOutcome::Failed, None, None);
    }
    if facts.turn_unaccounted {
        return waiting(AwaitingExternalChange, None);
    }
    if work == Some(SchedulingState::Runnable) || facts.queued_work_runnable {
        return (ClosureOutcome::Continuable, None, None);
    }
    if waits.operator.is_some() {
        return waiting(AwaitingOperatorInput, waits.operator);
    }
    if work == Some(SchedulingState::WaitingOperator) {
        return waiting(AwaitingOperatorInput, work_wait);
    }
    if waits.external.is_some() {
        return waiting(AwaitingExternalChange, waits.external);
    }
    if waits.timer.is_some() {
        return waiting(AwaitingTimer, waits.timer);
    }
    if waits.task.is_some() {
        return waiting(AwaitingTaskResult, waits.task);
    }
    match work {
        Some(SchedulingState::WaitingTask) => waiting(AwaitingTaskResult, work_wait),
        Some(SchedulingState::WaitingExternal) => waiting(AwaitingExternalChange, work_wait),
        Some(SchedulingState::WaitingTimer) => waiting(AwaitingTimer, work_wait),
        Some(SchedulingState::WaitingSystem) => (ClosureOutcome::Waiting, None, work_wait),
        Some(
            SchedulingState::WaitingOperator
            | SchedulingState::Completed
            | SchedulingState::Blocked
            | SchedulingState::Runnable,
        )
        | None => (ClosureOutcome::Completed, None, None),
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
        format!("operator_wait={}", waits.operator.is_some()),
        format!("external_wait={}", waits.external.is_some()),
        format!("timer_wait={}", waits.timer.is_some()),
        format!("task_wait={}", waits.task.is_some()),
        format!("system_wait={}", waits.system.is_some()),
        format!("active_tasks={}", facts.active_tasks),
        format!("active_timers={}", facts.active_timers),
    ]
}
