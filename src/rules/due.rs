//! Next due time of an agent, before which no step is needed unless something arrives, and agents
//! with due work that no process ticks (contract, semantics §15, `nobody_ticks`).

use serde::Serialize;

use crate::model::agent::Status;
use crate::model::execution::ExecutionState;
use crate::model::policy::SchedulingPolicy;
use crate::model::records::{LeaseState, Records};
use crate::model::state::State;
use crate::model::time::{Span, Time};
use crate::model::work::WorkItem;

use super::execution::deadline;
use super::ladder::decide;
use super::projection::project;
use super::stall::notify_at;
use super::work::{WaitsByItem, is_spent};

/// Returns the earliest time at which a step has work; `None`: only an arrival wakes the agent.
pub fn next_due(records: &Records) -> Option<Time> {
    next_wake(records).into_iter().chain(notify_at(records)).min()
}

/// Returns the earliest time at which a step has something to do other than report a stall.
pub fn next_wake(records: &Records) -> Option<Time> {
    let state = &records.state;
    // A limit is exceeded one millisecond after its time, so an earlier step would do nothing.
    let past = |limit: Time| limit.after(Span::from_millis(1));
    let over = deadline(state, &records.policy.timeouts).map(|(limit, _)| past(limit));
    if state.moved.is_some() {
        return None;
    }
    match state.status {
        Status::Stopped => return None,
        Status::Booting => return over,
        Status::AwakeIdle | Status::AwakeRunning | Status::AwaitingTask | Status::Asleep => {}
    }
    let waits = records.waits.iter().filter(|wait| wait.is_waiting());
    let held = state.held.as_ref().and_then(|held| held.not_before);
    // Only a step of the parent notices the timeout of a task that it has delegated to a child.
    let children = records.tasks.iter().filter(|task| task.child().is_some());
    let overdue = children.filter_map(|task| task.timeout.map(|limit| task.created_at.after(limit)));
    waits
        .flat_map(|wait| {
            let wake_at = wait.wake_at.filter(|_| wait.woken_at.is_none());
            let expiry = wait.expires_at.filter(|_| wait.expiry_told_at.is_none());
            [wake_at, wait.recheck_due(), expiry.map(past)]
        })
        .chain(records.works.iter().map(|item| item.recheck_due()))
        .chain(records.timers.iter().map(|timer| Some(timer.next_at)))
        .chain(overdue.map(Some))
        .chain([recovery_at(state), held, over])
        .flatten()
        .min()
}

/// Returns the end of a failed agent's backoff; `None` if the agent has not failed.
pub fn recovery_at(state: &State) -> Option<Time> {
    let is_failed = state.execution.state == ExecutionState::Failed;
    state.retry.as_ref().filter(|_| is_failed).map(|retry| retry.not_before)
}

/// Time since which an agent has had work for a step, and time of its last step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Overdue {
    /// Time since which a step has had something to do.
    pub since: Time,
    /// Time of the agent's last step that changed something; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_step_at: Option<Time>,
}

impl Overdue {
    /// Combines the values of several agents: the earliest `since`, and the latest step.
    pub fn of_all<'a>(all: impl Iterator<Item = &'a Overdue>) -> Option<Overdue> {
        all.cloned().reduce(|one, other| Overdue {
            since: one.since.min(other.since),
            last_step_at: one.last_step_at.max(other.last_step_at),
        })
    }

    /// Returns text for people: since when a step has been due, and when the last step was.
    pub fn describe(&self, now: Time) -> String {
        let since = now.since(self.since).rough();
        match self.last_step_at.map(|at| now.since(at).rough()) {
            Some(last) => format!("a step has been due for {since}, and the last one was {last} ago"),
            None => format!("a step has been due for {since}, and none was ever made"),
        }
    }
}

/// Returns the agent's overdue work, if a step has been due for longer than the policy allows.
pub fn overdue(records: &Records, now: Time) -> Option<Overdue> {
    let after = records.policy.scheduler.overdue_after.unwrap_or(SchedulingPolicy::OVERDUE_AFTER).0?;
    longer_than(records, now, after)
}

/// Returns the agent's overdue work, if a step has been due for longer than `after`. Each step that
/// changes something records its time, so the waiting time counts from the last such step.
pub fn longer_than(records: &Records, now: Time, after: Span) -> Option<Overdue> {
    let state = &records.state;
    if state.moved.is_some() || matches!(state.status, Status::Booting | Status::Stopped) {
        return None;
    }
    let causes = causes(records, now);
    // While a backoff lasts or a run is held, no step takes up input, so the delay starts later.
    let delayed = recovery_at(state).or(state.held.as_ref().and_then(|held| held.not_before));
    let began = [Some(state.execution.since), state.stepped_at, delayed];
    let since = causes.min().into_iter().chain(began.into_iter().flatten()).max()?;
    let is_late = now.since(since) > after;
    (is_late && has_step(records, now)).then_some(Overdue { since, last_step_at: state.stepped_at })
}

/// True if a step of a started agent would do something now. False during a live run, however long
/// the run takes.
pub fn has_step(records: &Records, now: Time) -> bool {
    let has_run = records.state.current_run.is_some();
    !(has_run && records.lease == LeaseState::Held)
        && (has_run
            || next_due(records).is_some_and(|due| due <= now)
            || records.inbox.submissions > 0
            || decide(&project(records, now)).moves())
}

/// Returns the time since which a step is needed, for each kind of pending input and work.
fn causes(records: &Records, now: Time) -> impl Iterator<Item = Time> {
    let (state, inbox) = (&records.state, &records.inbox);
    let waits = WaitsByItem::of(&records.waits);
    let is_new = |item: &&WorkItem| waits.is_runnable(item) && !is_spent(records, item);
    let work = records.works.iter().filter(is_new).map(|item| item.updated_at).min();
    let causes = [
        inbox.head.as_ref().map(|message| message.created_at),
        inbox.hints.first().or(state.pending_wake_hint.as_ref()).map(|hint| hint.created_at),
        inbox.dropped_at,
        next_due(records).filter(|due| *due <= now),
        // The run's `tick` process has died, at a time of which only the end of the lease is known.
        state.current_run.as_ref().map(|run| run.lease_expires_at),
        work,
    ];
    causes.into_iter().flatten()
}
