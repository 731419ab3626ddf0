//! State machine of the execution of turns: twelve states and 23 edges, the statuses that each
//! state allows, and the timeouts.

use crate::model::agent::Status;
use crate::model::closure::{Closure, WaitingReason};
use crate::model::decision::DecisionKind;
use crate::model::execution::ExecutionState;
use crate::model::id::TaskId;
use crate::model::policy::Timeouts;
use crate::model::records::Records;
use crate::model::refusal::Refusal;
use crate::model::state::{HeldRun, State};
use crate::model::time::Time;
use crate::model::wait::Wait;

use ExecutionState::{
    Completed, Failed, Initializing, Recovering, Resumed, Runnable, Running, Scheduled, ShuttingDown,
    Suspended, Waiting, WaitingResources,
};

/// Failure reason of an agent whose start exceeded its timeout.
pub const INIT_TIMEOUT: &str = "init_timeout";

/// Returns the states that may follow a state (contract, execution §1).
pub const fn next(state: ExecutionState) -> &'static [ExecutionState] {
    match state {
        Initializing => &[Runnable, Failed],
        Runnable => &[Scheduled],
        Scheduled => &[Running],
        Running => &[Waiting, WaitingResources, Suspended, Completed, Failed, ShuttingDown],
        Waiting => &[Running],
        WaitingResources => &[Running, Failed],
        Suspended => &[Resumed, Failed],
        Resumed => &[Running],
        Completed => &[Runnable],
        Failed => &[Recovering],
        ShuttingDown => &[Completed, Failed],
        Recovering => &[Runnable, Failed, ShuttingDown],
    }
}

/// True if an edge leads from state `from` to state `to`.
pub fn can(from: ExecutionState, to: ExecutionState) -> bool {
    next(from).contains(&to)
}

/// Refuses a transition that the state machine lacks (contract, execution §1).
pub fn check(from: ExecutionState, to: ExecutionState) -> Result<(), Refusal> {
    if can(from, to) {
        return Ok(());
    }
    Err(Refusal::action(from, to, format!("invalid state transition: {from} -> {to}")))
}

/// Returns the command with which the operator can continue, for the hint of a refusal.
pub fn way_on(state: &State) -> String {
    let agent = &state.agent;
    if state.status == Status::Stopped && state.current_run.is_some() {
        return format!("`dormouse stop {agent}` finishes its stop");
    }
    if matches!(state.status, Status::Stopped | Status::Booting) {
        return format!("`dormouse start {agent}` starts it");
    }
    match state.execution.state {
        Initializing => format!("`dormouse start {agent}` starts it"),
        Runnable | Completed | Waiting => format!("`dormouse tick {agent}` runs its next step"),
        Scheduled | Running | Resumed | ShuttingDown => format!("`dormouse stop {agent}` ends its turn"),
        WaitingResources => format!("`dormouse recover {agent}` tries again now"),
        Suspended => format!("`dormouse resume {agent}` resumes its turn"),
        Failed => format!("`dormouse recover {agent}` ends the backoff"),
        Recovering => format!("`dormouse recover {agent}` continues its recovery"),
    }
}

/// Returns the statuses that a state allows (contract, execution §3). Every state allows `stopped`.
pub const fn statuses(state: ExecutionState) -> &'static [Status] {
    match state {
        Initializing => &[Status::Booting],
        Runnable | Completed | WaitingResources | Suspended | Failed | Recovering => {
            &[Status::AwakeIdle, Status::Asleep]
        }
        Scheduled | Running | Resumed | ShuttingDown => &[Status::AwakeRunning],
        Waiting => &[Status::AwaitingTask, Status::Asleep, Status::AwakeIdle],
    }
}

/// Returns the status of an agent at rest: `awaiting_task` if the execution waits and either the
/// decision is to wait for a task, or the closure waits for a task that is open; else `asleep`.
pub fn resting_status(records: &Records, closure: &Closure, decision: Option<DecisionKind>) -> Status {
    let is_open = |id: TaskId| records.tasks.iter().any(|task| task.id == id && !task.status.is_terminal());
    let awaits_task = closure.waiting_reason == Some(WaitingReason::AwaitingTaskResult)
        && records.waits.iter().filter(|wait| wait.is_waiting()).filter_map(Wait::task_id).any(is_open);
    let is_decided = decision == Some(DecisionKind::WaitForTask);
    if records.state.execution.state == Waiting && (is_decided || awaits_task) {
        Status::AwaitingTask
    } else {
        Status::Asleep
    }
}

/// True if a state allows a status. Every transition and `doctor` check this.
pub fn agrees(state: ExecutionState, status: Status) -> bool {
    status == Status::Stopped || statuses(state).contains(&status)
}

/// Returns the time at which the present execution state times out, and the failure reason
/// (contract, execution §4); `None` in a state without a timeout, or with one that is switched off.
/// While the agent is being stopped, this is the time at which its processes are killed. `None`
/// also before a start begins, for a held run whose resume time or resource holder is known (its
/// failure would not shorten its wait), and for a message that is held for the operator. For other
/// runs that wait for resources, the timeout counts from the first consecutive deferral.
pub fn deadline(state: &State, timeouts: &Timeouts) -> Option<(Time, &'static str)> {
    let (execution, held) = (&state.execution, state.held.as_ref());
    let mut since = execution.since;
    let (limit, reason) = match execution.state {
        Initializing if execution.reason.is_some() => (timeouts.init.0, INIT_TIMEOUT),
        WaitingResources if !held.is_some_and(HeldRun::is_not_late) => {
            since = held.and_then(|held| held.deferred_since).unwrap_or(since);
            (timeouts.resources.0, "resource_timeout")
        }
        Suspended if held.is_none_or(|held| held.not_before.is_none()) => {
            (timeouts.suspend.0, "suspend_timeout")
        }
        Recovering => (timeouts.recovery.0, "recovery_timeout"),
        ShuttingDown => (Some(timeouts.shutdown), "shutdown_timeout"),
        Initializing | WaitingResources | Suspended | Runnable | Scheduled | Running | Waiting | Resumed
        | Completed | Failed => return None,
    };
    let limit = since.after(limit?);
    let stopping = state.current_run.as_ref().and_then(|run| run.stopping.as_ref());
    Some((stopping.map_or(limit, |stopping| stopping.kill_at), reason))
}

/// Returns the failure reason of an agent whose timeout is exceeded at `now`.
pub fn overdue(state: &State, timeouts: &Timeouts, now: Time) -> Option<&'static str> {
    deadline(state, timeouts).filter(|(limit, _)| is_over(*limit, now)).map(|(_, reason)| reason)
}

/// True if `now` is at least one millisecond after the limit.
pub fn is_over(limit: Time, now: Time) -> bool {
    now > limit
}
