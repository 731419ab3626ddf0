//! Stored times that are so far in the future that only a wrong clock can have written them
//! (contract, execution §4).
//!
//! Times that were set together with the state of the machine are moved back with it, so that each
//! span stays the same. Times with a limit in the policy are moved to that limit.

use crate::model::execution::ExecutionState;
use crate::model::records::Records;
use crate::model::recovery::RecoveryPolicy;
use crate::model::resource::Resource;
use crate::model::state::{CurrentRun, HeldRun, State};
use crate::model::task::Task;
use crate::model::time::{Span, Time};
use crate::model::timer::{Schedule, Timer};

use super::limits;
use super::retry::delay;
use super::schedule::next_after;

/// Maximum difference between the clocks of two machines.
pub const SKEW: Span = Span::from_secs(60);

const DAY: Span = Span::from_secs(24 * 3600);

/// Time that is too far in the future, and its replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ahead {
    /// Path of the field in its record, for people and the ledger.
    pub field: String,
    pub stored: Time,
    pub corrected: Time,
}

/// Returns every such time, in a fixed order.
pub fn ahead(records: &Records, now: Time) -> Vec<Ahead> {
    let mut found = correct_state(&mut records.state.clone(), &records.policy.recovery, now);
    let timers = records.timers.iter().filter_map(|timer| correct_timer(&mut timer.clone(), now));
    found.extend(timers);
    found
}

/// Replaces each time in the state that is too far in the future. Returns the replaced ones.
pub fn correct_state(state: &mut State, policy: &RecoveryPolicy, now: Time) -> Vec<Ahead> {
    let entered = state.execution.since;
    let is_timed = matches!(
        state.execution.state,
        ExecutionState::Initializing
            | ExecutionState::WaitingResources
            | ExecutionState::Suspended
            | ExecutionState::Failed
            | ExecutionState::Recovering
            | ExecutionState::ShuttingDown
    );
    let too_late = entered.since(now);
    let back = |at: Time| if is_timed { at.before(too_late).max(now.min(at)) } else { at };
    let longest = now.after(longest(policy));
    let furthest = now.after(policy.max_deferral.max(DAY));
    let mut found = Vec::new();
    let mut correct = |field: &str, at: Option<&mut Time>, corrected: &dyn Fn(Time) -> Time| {
        let Some(at) = at else { return };
        let (stored, corrected) = (*at, corrected(*at));
        if stored != corrected {
            *at = corrected;
            found.push(Ahead { field: field.to_owned(), stored, corrected });
        }
    };
    correct("execution.since", is_timed.then_some(&mut state.execution.since), &|at| at.min(now));
    let failed = state.retry.as_mut().filter(|_| state.execution.state == ExecutionState::Failed);
    correct("retry.not_before", failed.map(|retry| &mut retry.not_before), &|at| back(at).min(longest));
    if let Some(held) = &mut state.held {
        let latest = latest(held, now, longest, furthest);
        correct("held.not_before", held.not_before.as_mut(), &|at| back(at).min(latest));
        let known = held.deferred.as_mut().and_then(|deferred| deferred.until.as_mut());
        correct("held.deferred.until", known, &|at| back(at).min(furthest));
        correct("held.deferred_since", held.deferred_since.as_mut(), &|at| at.min(now));
    }
    let windows = [
        ("spending.hour.since", &mut state.spending.hour, limits::hour(now)),
        ("spending.day.since", &mut state.spending.day, limits::day(now)),
    ];
    for (field, spent, start) in windows {
        let since = spent.as_mut().map(|spent| &mut spent.since);
        correct(field, since, &|at| if at > now { start } else { at });
    }
    found
}

/// Replaces the next fire of a timer if it is too far in the future. Returns it if it was.
pub fn correct_timer(timer: &mut Timer, now: Time) -> Option<Ahead> {
    let corrected = fires_at(timer, now)?;
    let stored = std::mem::replace(&mut timer.next_at, corrected);
    if let Schedule::Every { from, .. } = &mut timer.schedule {
        *from = (*from).min(now);
    }
    Some(Ahead { field: format!("next_at of {}", timer.id), stored, corrected })
}

/// Returns the longest pause that a policy can lead to.
pub fn longest(policy: &RecoveryPolicy) -> Span {
    delay(policy, u32::MAX, 1.0).max(policy.max_delay)
}

/// Returns the latest time at which a held run resumes.
fn latest(held: &HeldRun, now: Time, longest: Time, furthest: Time) -> Time {
    match held.resource {
        Some(resource) if Resource::is_limit(resource) => now.after(DAY),
        Some(_) => longest,
        // The turn named the time, or `preempt --for` did.
        None if held.deferred.as_ref().is_none_or(|deferred| deferred.until.is_some()) => furthest,
        None => longest,
    }
}

/// Returns the next fire of a timer whose `next_at` would skip more than one fire. A single skipped
/// fire is correct: a clock that was set back a little gives a fire that has already happened a
/// time in the future.
fn fires_at(timer: &Timer, now: Time) -> Option<Time> {
    // Only a timer that was written by a fast clock can be wrong.
    if timer.last_fired_at.unwrap_or(timer.created_at) <= now {
        return None;
    }
    match &timer.schedule {
        Schedule::At { .. } => None,
        Schedule::Every { every, from } if *from > now && timer.next_at > now.after(*every).after(*every) => {
            Some(now.after(*every))
        }
        schedule @ (Schedule::Every { .. } | Schedule::Cron { .. }) => {
            let next = next_after(schedule, now)?;
            let second = next_after(schedule, next)?;
            (timer.next_at > second).then_some(next)
        }
    }
}

/// Returns the end of the lease of a run on another machine, if a fast clock claimed it.
pub fn lease_ends(run: &CurrentRun, now: Time) -> Option<Time> {
    let is_ahead = run.claimed_at > now.after(SKEW);
    is_ahead.then(|| now.after(run.lease_expires_at.since(run.claimed_at)))
}

/// Time after its timeout for which a turn or a task may still be live: its processes are ended,
/// and its end is committed.
pub const LEASE_MARGIN: Span = Span::from_secs(60);

/// Lease of a turn or a task without a timeout where its processes can't be seen.
pub const LEASE_WITHOUT_TIMEOUT: Span = DAY;

/// Returns the end of a task's lease: after it, its supervisor in another state directory counts as
/// dead.
pub fn task_lease_ends(task: &Task) -> Time {
    let begun = task.started_at.unwrap_or(task.created_at);
    begun.after(task.timeout.unwrap_or(LEASE_WITHOUT_TIMEOUT)).after(LEASE_MARGIN)
}

/// Returns unlimited times that a user or turn has set while the clock was fast, each with the id
/// of its record. They stay unchanged.
pub fn unbounded(records: &Records, now: Time) -> Vec<(String, Time)> {
    let waits = records.waits.iter().filter(|wait| wait.is_waiting() && wait.created_at > now);
    let waits = waits.filter_map(|wait| {
        let at = [wait.wake_at, wait.recheck_at, wait.expires_at].into_iter().flatten().min()?;
        Some((wait.id.to_string(), at))
    });
    let at = |timer: &&Timer| matches!(timer.schedule, Schedule::At { .. }) && timer.created_at > now;
    let timers = records.timers.iter().filter(at).map(|timer| (timer.id.to_string(), timer.next_at));
    let message = records.inbox.head.iter().filter(|message| message.created_at > now);
    waits.chain(timers).chain(message.map(|message| (message.id.to_string(), message.created_at))).collect()
}
