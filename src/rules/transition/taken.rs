//! Claim of an agent by one of several clones, and its release (contract, store §5).

use crate::model::state::{State, TickedBy};

use super::draft::Draft;

/// Returns the state with a clone's claim. This is no draft, because only the remote has the change
/// at first.
pub fn take(state: State, by: TickedBy) -> State {
    State { revision: state.revision + 1, resting: None, ticked_by: Some(by), ..state }
}

/// Releases the agent: from the clone with this `id`, or, with `None`, from any clone.
pub fn let_go(draft: &mut Draft, id: Option<&str>) {
    let state = &mut draft.records.state;
    let is_meant = |by: &mut TickedBy| id.is_none_or(|id| by.id == id);
    if state.ticked_by.take_if(is_meant).is_some() {
        draft.touch();
    }
}
