//! Claim of an agent by one of several clones, and its release (contract, store §5).

use crate::model::state::{State, TickedBy};

use super::draft::Draft;

/// Returns the state with a clone's claim. The claim is not committed by a draft, because it is
/// pushed to the remote first.
pub fn take(state: State, by: TickedBy) -> State {
    State { revision: state.revision + 1, resting: None, ticked_by: Some(by), ..state }
}

/// Releases the agent's claim by the clone `id`; with `None`, by any clone.
pub fn let_go(draft: &mut Draft, id: Option<&str>) {
    let state = &mut draft.records.state;
    let is_meant = |by: &mut TickedBy| id.is_none_or(|id| by.id == id);
    if state.ticked_by.take_if(is_meant).is_some() {
        draft.touch();
    }
}
