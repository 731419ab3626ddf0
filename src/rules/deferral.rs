//! Consecutive deferrals of one message (contract, execution §8).

use crate::model::resource::Resource;
use crate::model::state::{HeldRun, State};
use crate::model::time::Time;

/// True if the resume time of a held run is known: the missing resource is a limit that renews
/// itself, or the turn named a time.
pub fn is_known(held: &HeldRun) -> bool {
    held.resource.is_some_and(Resource::is_limit)
        || held.deferred.as_ref().is_some_and(|deferred| deferred.until.is_some())
}

/// True if the waiting time of a held run does not count towards the timeout: the resume time is
/// known, a known agent has the missing resource, or only the operator can resume the run.
pub fn is_not_late(held: &HeldRun) -> bool {
    is_known(held) || held.is_occupied || held.needs_operator
}

/// Returns the start of the consecutive deferrals for a held run that is claimed or deferred again
/// now. Waiting time that does not count moves the start forward.
pub fn row_since(state: &State, now: Time) -> Option<Time> {
    let held = state.held.as_ref()?;
    let waited = now.since(state.execution.since);
    held.deferred_since.map(|since| if is_not_late(held) { since.after(waited) } else { since })
}
