//! An agent goes to another store, and comes back: it is stepped in one place only (contract, store §6).

use serde_json::json;

use crate::model::event::EventKind;
use crate::model::refusal::Refusal;
use crate::model::state::Moved;

use super::draft::Draft;
use super::taken::let_go;

/// Marks the agent as moved to `to`. Refused while something of it is at work here.
pub fn move_away(draft: &mut Draft, to: String) -> Result<(), Refusal> {
    let state = &draft.records.state;
    let name = &state.agent;
    if let Some(run) = &state.current_run {
        return Err(Refusal::new("turn_running", format!("`{name}` has a turn here, {}", run.run_id))
            .hint(format!("await its end, or end it with `dormouse stop {name}`")));
    }
    if let Some(task) = draft.records.tasks.first() {
        return Err(Refusal::new("task_open", format!("`{name}` has an open task here, {}", task.id))
            .hint(format!("await its end, or end it with `dormouse task stop {}`", task.id)));
    }
    let_go(draft, None);
    draft.event(EventKind::MovedAway, None, json!({ "to": to }));
    let at = draft.now();
    draft.records.state.moved = Some(Moved { to, at });
    Ok(())
}

/// Takes the mark from an agent that has arrived. Returns what it said.
pub fn arrive(draft: &mut Draft) -> Option<Moved> {
    let moved = draft.records.state.moved.take()?;
    draft.event(EventKind::MovedIn, None, json!({ "to": moved.to, "left_at": moved.at }));
    Some(moved)
}
