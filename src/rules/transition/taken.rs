//! Of several clones one steps an agent: it takes the agent, and lets it go (contract, store §5).

use crate::model::state::{State, TickedBy};

use super::draft::Draft;

/// The same agent, taken by a clone. This is no draft: what only the remote has yet is changed.
pub fn take(state: State, by: TickedBy) -> State {
    State { revision: state.revision + 1, resting: None, ticked_by: Some(by), ..state }
}

/// Lets the agent go. `id`: only if a clone took it under this id; `None`: whatever clone has it.
pub fn let_go(draft: &mut Draft, id: Option<&str>) {
    let state = &mut draft.records.state;
    let is_meant = |by: &mut TickedBy| id.is_none_or(|id| by.id == id);
    if state.ticked_by.take_if(is_meant).is_some() {
        draft.touch();
    }
}
