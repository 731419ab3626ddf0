//! Rows of deferrals: how long and how often one message is put off (contract, execution §8).

use crate::model::resource::Resource;
use crate::model::state::{Held, State};
use crate::model::time::Time;

/// Whether it is known when a held run goes on. Until then it is not late. A limit comes back by
/// itself; of anything else the turn has said when.
pub fn is_known(held: &Held) -> bool {
    held.resource.is_some_and(Resource::is_limit)
        || held.deferred.as_ref().is_some_and(|deferred| deferred.until.is_some())
}

/// From when the time of a row counts if the held run were claimed or put off again at this moment:
/// the time that it has waited for a known moment is none of it.
pub fn row_since(state: &State, now: Time) -> Option<Time> {
    let held = state.held.as_ref()?;
    let waited = now.since(state.execution.since);
    held.deferred_since.map(|since| if is_known(held) { since.after(waited) } else { since })
}
