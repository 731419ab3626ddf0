//! Stored times that are so far in the future that only a wrong clock can have written them
//! (contract, execution §4).
//!
//! Times that were set together with the state of the machine are moved back with it, so that each
//! span stays the same. Times with a limit in the policy are moved to that limit.

use crate::model::execution::ExecutionState;
use crate::model::id::TimerId;
use crate::model::records::Records;
use crate::model::recovery::RecoveryPolicy;
use crate::model::resource::Resource;
use crate::model::state::{CurrentRun, HeldRun, Spent};
use crate::model::task::Task;
use crate::model::time::{Span, Time};
use crate::model::timer::{Schedule, Timer};

use super::limits;
use super::retry::delay;
use super::schedule::next_after;

/// Maximum difference between the clocks of two machines.
pub const SKEW: Span = Span::from_secs(60);

const DAY: Span = Span::from_secs(24 * 3600);

/// Field that stores a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeField {
    Entered,
    Retry,
    Held,
    Known,
    Row,
    Hour,
    Day,
    Timer(TimerId),
}

impl TimeField {
    /// Returns the path of the field in its record, for people and the ledger.
    pub fn name(self) -> String {
        match self {
            TimeField::Entered => "execution.since".to_owned(),
            TimeField::Retry => "retry.not_before".to_owned(),
            TimeField::Held => "held.not_before".to_owned(),
            TimeField::Known => "held.deferred.until".to_owned(),
            TimeField::Row => "held.deferred_since".to_owned(),
            TimeField::Hour => "spending.hour.since".to_owned(),
            TimeField::Day => "spending.day.since".to_owned(),
            TimeField::Timer(id) => format!("next_at of {id}"),
        }
    }
}

/// Time that is too far in the future, and its replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    pub place: TimeField,
    pub stored: Time,
    pub taken: Time,
}

/// Returns every such time, in a fixed order.
pub fn ahead(records: &Records, now: Time) -> Vec<Ahead> {
    let state = &records.state;
    let entered = state.execution.since;
    let is_timed = match state.execution.state {
        ExecutionState::Initializing
        | ExecutionState::WaitingResources
        | ExecutionState::Suspended
        | ExecutionState::Failed
        | ExecutionState::Recovering
        | ExecutionState::ShuttingDown => true,
        ExecutionState::Runnable
        | ExecutionState::Scheduled
        | ExecutionState::Running
        | ExecutionState::Waiting
        | ExecutionState::Resumed
        | ExecutionState::Completed => false,
    };
    let too_late = entered.since(now);
    let back = |at: Time| if is_timed { at.before(too_late).max(now.min(at)) } else { at };
    let longest = now.after(longest(&records.policy.recovery));
    let furthest = now.after(records.policy.recovery.max_deferral.max(DAY));
    let failed = state.retry.as_ref().filter(|_| state.execution.state == ExecutionState::Failed);
    let held = state.held.as_ref();
    let known = held.and_then(|held| held.deferred.as_ref()).and_then(|deferred| deferred.until);
    let window = |spent: &Option<Spent>, start: Time| {
        spent.as_ref().filter(|spent| spent.since > now).map(|spent| (spent.since, start))
    };
    let moments = [
        (TimeField::Entered, is_timed.then(|| (entered, entered.min(now)))),
        (TimeField::Retry, failed.map(|retry| (retry.not_before, back(retry.not_before).min(longest)))),
        (
            TimeField::Held,
            held.and_then(|held| {
                let at = held.not_before?;
                Some((at, back(at).min(latest(held, now, longest, furthest).unwrap_or(at))))
            }),
        ),
        (TimeField::Known, known.map(|at| (at, back(at).min(furthest)))),
        (TimeField::Row, held.and_then(|held| held.deferred_since).map(|at| (at, at.min(now)))),
        (TimeField::Hour, window(&state.spending.hour, limits::hour(now))),
        (TimeField::Day, window(&state.spending.day, limits::day(now))),
    ];
    let timers = records.timers.iter().filter_map(|timer| {
        let next = fires_at(timer, now)?;
        Some(Ahead { place: TimeField::Timer(timer.id), stored: timer.next_at, taken: next })
    });
    moments
        .into_iter()
        .filter_map(|(place, moment)| moment.map(|(stored, taken)| Ahead { place, stored, taken }))
        .filter(|ahead| ahead.taken != ahead.stored)
        .chain(timers)
        .collect()
}

/// Returns the longest pause that a policy can lead to.
pub fn longest(policy: &RecoveryPolicy) -> Span {
    delay(policy, u32::MAX, 1.0).max(policy.max_delay)
}

/// Returns the latest time at which a held run resumes.
fn latest(held: &HeldRun, now: Time, longest: Time, furthest: Time) -> Option<Time> {
    match held.resource {
        Some(resource) if Resource::is_limit(resource) => Some(now.after(DAY)),
        Some(_) => Some(longest),
        // The turn named the time, or `preempt --for` did.
        None if held.deferred.as_ref().is_none_or(|deferred| deferred.until.is_some()) => Some(furthest),
        None => Some(longest),
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
