//! Rows of deferrals: how long and how often one message has been put off (contract, execution §8).

use crate::model::resource::Resource;
use crate::model::state::{Held, State};
use crate::model::time::Time;

/// True if it is known when a held run goes on: a limit comes back by itself, and for anything else
/// the turn may have named a time.
pub fn is_known(held: &Held) -> bool {
    held.resource.is_some_and(Resource::is_limit)
        || held.deferred.as_ref().is_some_and(|deferred| deferred.until.is_some())
}

/// True if the time that a held run waits is not counted: its end is known, or an agent that is
/// known has what is missing, or only the operator brings the run on.
pub fn is_not_late(held: &Held) -> bool {
    is_known(held) || held.is_occupied || held.needs_operator
}

/// When a row of deferrals counts as begun, if the held run is claimed or put off again at this
/// moment: the time that it has waited for a known moment or agent is not counted.
pub fn row_since(state: &State, now: Time) -> Option<Time> {
    let held = state.held.as_ref()?;
    let waited = now.since(state.execution.since);
    held.deferred_since.map(|since| if is_not_late(held) { since.after(waited) } else { since })
}
