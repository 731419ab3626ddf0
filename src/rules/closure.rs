//! Closure: the condition in which a turn leaves the agent (contract, semantics §6).

use serde::Serialize;

use crate::model::closure::{Closure, ClosureOutcome, RuntimePosture, WaitingReason};
use crate::model::id::WaitId;
use crate::model::run::Terminal;
use crate::model::work::SchedulingState;

use super::projection::WorkFact;
use super::work::{wait_kind, waiting_reason};

/// Ids of the agent's own waits that are active and not bound to a message: the first of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct AgentWaits {
    pub operator: Option<WaitId>,
    pub external: Option<WaitId>,
    pub timer: Option<WaitId>,
    pub task: Option<WaitId>,
    pub system: Option<WaitId>,
}

/// Facts from which a closure is derived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosureFacts {
    pub runtime_error: bool,
    pub turn_in_progress: bool,
    /// True if a turn has no recorded end, or was deferred or suspended and its run is still held.
    pub turn_unaccounted: bool,
    /// End of the last turn. `None` before the first turn, and for a turn whose run is still held.
    pub terminal: Option<Terminal>,
    pub current_work: Option<WorkFact>,
    pub queued_work_runnable: bool,
    /// Oldest waiting work item, except the current one.
    pub waiting_work: Option<WorkFact>,
    pub agent_waits: AgentWaits,
    pub active_tasks: usize,
    pub active_timers: usize,
    pub runtime_posture: RuntimePosture,
}

/// Derives the closure from the facts; the first rule that matches decides (contract, semantics
/// §6). The evidence lists every fact in a fixed order.
pub fn derive(facts: &ClosureFacts) -> Closure {
    use WaitingReason::{AwaitingExternalChange, AwaitingOperatorInput, AwaitingTaskResult, AwaitingTimer};
    let closure = |outcome, waiting_reason, wait_id| Closure {
        outcome,
        waiting_reason,
        wait_id,
        work_item_id: None,
        runtime_posture: facts.runtime_posture,
        evidence: evidence(facts),
    };
    let ended = |outcome| closure(outcome, None, None);
    let waiting = |reason, wait| closure(ClosureOutcome::Waiting, reason, wait);
    let of_work = |work: WorkFact| {
        wait_kind(work.state)?;
        Some(Closure { work_item_id: Some(work.id), ..waiting(waiting_reason(work.state), work.wait_id) })
    };
    let current = facts.current_work;
    let is_in = |work: &WorkFact, state| work.state == state;
    let own = facts.agent_waits;

    if facts.runtime_error {
        return ended(ClosureOutcome::Failed);
    }
    if facts.turn_in_progress {
        return waiting(Some(AwaitingExternalChange), None);
    }
    if facts.terminal.is_some_and(|terminal| terminal != Terminal::Completed) {
        return ended(ClosureOutcome::Failed);
    }
    if facts.turn_unaccounted {
        return waiting(Some(AwaitingExternalChange), None);
    }
    if current.is_some_and(|work| is_in(&work, SchedulingState::Runnable)) || facts.queued_work_runnable {
        return ended(ClosureOutcome::Continuable);
    }
    if own.operator.is_some() {
        return waiting(Some(AwaitingOperatorInput), own.operator);
    }
    let needs_operator = current.filter(|work| is_in(work, SchedulingState::WaitingOperator));
    if let Some(closure) = needs_operator.and_then(of_work) {
        return closure;
    }
    let rows =
        [(AwaitingExternalChange, own.external), (AwaitingTimer, own.timer), (AwaitingTaskResult, own.task)];
    if let Some((reason, wait)) = rows.into_iter().find(|(_, wait)| wait.is_some()) {
        return waiting(Some(reason), wait);
    }
    let of_current = current.filter(|work| !is_in(work, SchedulingState::WaitingSystem));
    if let Some(closure) = of_current.and_then(of_work) {
        return closure;
    }
    if own.system.is_some() {
        return waiting(None, own.system);
    }
    current
        .and_then(of_work)
        .or_else(|| facts.waiting_work.and_then(of_work))
        .unwrap_or_else(|| ended(ClosureOutcome::Completed))
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
