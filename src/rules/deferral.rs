//! Consecutive deferrals of one message: their duration and their number (contract, execution §8).

use crate::model::resource::Resource;
use crate::model::state::{HeldRun, State};
use crate::model::time::Time;

/// True if the time at which a held run resumes is known: a limit renews itself, and for any other
/// resource the turn may have named a time.
pub fn is_known(held: &HeldRun) -> bool {
    held.resource.is_some_and(Resource::is_limit)
        || held.deferred.as_ref().is_some_and(|deferred| deferred.until.is_some())
}

/// True if the time that a held run waits is not counted: its end is known, or a known agent has
/// the missing resource, or only the operator can resume the run.
pub fn is_not_late(held: &HeldRun) -> bool {
    is_known(held) || held.is_occupied || held.needs_operator
}

/// Returns the start of the consecutive deferrals, if the held run is claimed or put off again now:
/// the time for which it waited for a known time or agent is not counted.
pub fn row_since(state: &State, now: Time) -> Option<Time> {
    let held = state.held.as_ref()?;
    let waited = now.since(state.execution.since);
    held.deferred_since.map(|since| if is_not_late(held) { since.after(waited) } else { since })
}
