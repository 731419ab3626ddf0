//! Correction of stored times that are too far in the future, as only a wrong clock writes them
//! (contract, execution §4).
//!
//! Times that were stored when the agent entered its execution state are moved back by the same
//! span as `execution.since`. Times that the policy limits are moved to the latest allowed time.

use crate::model::execution::ExecutionState;
use crate::model::records::Records;
use crate::model::recovery::RecoveryPolicy;
use crate::model::resource::Resource;
use crate::model::state::{CurrentRun, HeldRun, State};
use crate::model::task::Task;
use crate::model::time::{Span, Time};
use crate::model::timer::{Schedule, Timer};

use super::limits;
use super::schedule::next_after;

/// Maximum tolerated difference between the clocks of two machines.
pub const SKEW: Span = Span::from_secs(60);

const DAY: Span = Span::from_secs(24 * 3600);

/// Stored time that is too far in the future, and the time that replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ahead {
    /// Path of this time's field in its record, shown to people and in the ledger.
    pub field: String,
    pub stored: Time,
    pub corrected: Time,
}

/// Returns every stored time that is too far in the future, in a fixed order.
pub fn ahead(records: &Records, now: Time) -> Vec<Ahead> {
    let mut found = correct_state(&mut records.state.clone(), &records.policy.recovery, now);
    let timers = records.timers.iter().filter_map(|timer| correct_timer(&mut timer.clone(), now));
    found.extend(timers);
    found
}

/// Replaces each time in the state that is too far in the future. Returns the replacements.
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
    let fields = ["spending.hour.since", "spending.day.since"];
    for (field, (length, spent)) in fields.into_iter().zip(limits::windows(&mut state.spending)) {
        let since = spent.as_mut().map(|spent| &mut spent.since);
        correct(field, since, &|at| if at > now { limits::start(length, now) } else { at });
    }
    found
}

/// Replaces the next fire of a timer if it is too far in the future. Returns the replacement.
pub fn correct_timer(timer: &mut Timer, now: Time) -> Option<Ahead> {
    let corrected = fires_at(timer, now)?;
    let stored = std::mem::replace(&mut timer.next_at, corrected);
    if let Schedule::Every { from, .. } = &mut timer.schedule {
        *from = (*from).min(now);
    }
    Some(Ahead { field: format!("next_at of {}", timer.id), stored, corrected })
}

/// Returns the longest pause before a retry that the policy can produce.
pub fn longest(policy: &RecoveryPolicy) -> Span {
    policy.delay(u32::MAX, 1.0).max(policy.max_delay)
}

/// Returns the latest plausible time at which a held run resumes.
fn latest(held: &HeldRun, now: Time, longest: Time, furthest: Time) -> Time {
    match held.resource {
        Some(resource) if Resource::is_limit(resource) => now.after(DAY),
        Some(_) => longest,
        // A turn or `preempt --for` may name a resume time that is later than any retry delay.
        None if held.deferred.as_ref().is_none_or(|deferred| deferred.until.is_some()) => furthest,
        None => longest,
    }
}

/// Returns the corrected next fire of a timer whose `next_at` skips more than one fire. Skipping
/// one fire is correct: after a clock was set back a little, the last fire is in the future again.
fn fires_at(timer: &Timer, now: Time) -> Option<Time> {
    // A wrong next fire is stored only if a fast clock created the timer or fired it last.
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

/// Returns the corrected end of a run's lease, if a machine with a fast clock claimed the run.
pub fn lease_ends(run: &CurrentRun, now: Time) -> Option<Time> {
    let is_ahead = run.claimed_at > now.after(SKEW);
    is_ahead.then(|| now.after(run.lease_expires_at.since(run.claimed_at)))
}

/// Span from the timeout of a turn or task to the end of its lease, for killing and settling it.
pub const LEASE_MARGIN: Span = Span::from_secs(60);

/// Duration of the lease of a turn or task without a timeout, for machines that can't see it run.
pub const LEASE_WITHOUT_TIMEOUT: Span = DAY;

/// Returns the end of a task's lease. Then a supervisor in another state directory counts as dead.
pub fn task_lease_ends(task: &Task) -> Time {
    let begun = task.started_at.unwrap_or(task.created_at);
    begun.after(task.timeout.unwrap_or(LEASE_WITHOUT_TIMEOUT)).after(LEASE_MARGIN)
}

/// Returns times without an upper limit that a user or turn set while the clock was fast, each with
/// the id of its wait, timer or message. Such times are reported and not corrected.
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
