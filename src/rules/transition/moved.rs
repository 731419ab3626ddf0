//! Move of an agent to another store or name, and back: it is stepped in one place only (contract,
//! store §6).

use serde_json::json;

use crate::model::event::EventKind;
use crate::model::id::AgentName;
use crate::model::moved::{Leave, Moved};
use crate::model::refusal::Refusal;
use crate::rules::authority;

use super::draft::Draft;
use super::taken::let_go;

/// Marks the agent as moving to `to`. Refused while anything of it runs here.
pub fn move_away(draft: &mut Draft, by: Leave, to: String) -> Result<(), Refusal> {
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
    mark(draft, by, to);
    Ok(())
}

/// Gives another new name to an agent that is marked for a rename and does not have the new name
/// yet.
pub fn redirect(draft: &mut Draft, name: &AgentName) {
    mark(draft, Leave::Rename, name.to_string());
}

fn mark(draft: &mut Draft, by: Leave, to: String) {
    let mut data = json!({ "to": to });
    if by != Leave::Move {
        data["by"] = json!(by);
    }
    draft.event(EventKind::MovedAway, None, data);
    let at = draft.now();
    draft.records.state.moved = Some(Moved { to, at, by });
}

/// Removes the mark from an agent that has arrived, and returns it.
pub fn arrive(draft: &mut Draft) -> Option<Moved> {
    let moved = draft.records.state.moved.take()?;
    draft.event(EventKind::MovedIn, None, json!({ "to": moved.to, "left_at": moved.at }));
    Some(moved)
}

/// Removes the mark from an agent that has its new name, and records `former`.
pub fn renamed(draft: &mut Draft, former: &AgentName) {
    if let Some(moved) = draft.records.state.moved.take() {
        let data = json!({ "to": moved.to, "left_at": moved.at, "by": moved.by, "from": former });
        draft.event(EventKind::MovedIn, None, data);
    }
}

/// Renames the recorded stopper of this agent, so that its turns may start this agent again.
pub fn follow_name(draft: &mut Draft, former: &AgentName, name: &AgentName) {
    let stopped_by = &mut draft.records.state.stopped_by;
    if *stopped_by == Some(authority::agent(former)) {
        *stopped_by = Some(authority::agent(name));
        draft.touch();
    }
}
