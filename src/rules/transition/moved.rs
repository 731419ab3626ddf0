//! Move of an agent to another store or name, and back, and its claim by one of several clones.
//! Only one place steps an agent (FORMAT §5 and §7).

use serde_json::json;

use crate::model::event::EventKind;
use crate::model::id::AgentName;
use crate::model::moved::{Leave, Moved};
use crate::model::refusal::Refusal;
use crate::model::state::{State, TickedBy};
use crate::rules::authority;

use super::draft::{Draft, without_nulls};

/// Marks the agent as moving to `to`, and releases its claim by a clone. Refused while a turn runs
/// or a task is open here.
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

/// Marks the agent as moving to `to`, or changes the destination of an agent that is marked.
pub fn mark(draft: &mut Draft, by: Leave, to: String) {
    let data = json!({ "to": to, "by": (by != Leave::Move).then_some(by) });
    draft.event(EventKind::MovedAway, None, without_nulls(data));
    let at = draft.now();
    draft.records.state.moved = Some(Moved { to, at, by });
}

/// Removes the mark `moved` of an agent that was imported into this store, or renamed. `renamed`:
/// its former and its new name, of which the new one is stored in the state.
pub fn arrive(draft: &mut Draft, renamed: Option<(&AgentName, &AgentName)>) {
    if let Some(Moved { to, at, by }) = draft.records.state.moved.take() {
        let former = renamed.map(|(former, name)| {
            draft.records.state.agent.clone_from(name);
            former
        });
        let data = json!({ "to": to, "left_at": at, "by": former.map(|_| by), "from": former });
        draft.event(EventKind::MovedIn, None, without_nulls(data));
    }
}

/// Replaces `former` by `name` in `stopped_by`, so that the renamed agent may start this agent.
pub fn follow_name(draft: &mut Draft, former: &AgentName, name: &AgentName) {
    let stopped_by = &mut draft.records.state.stopped_by;
    if *stopped_by == Some(authority::agent(former)) {
        *stopped_by = Some(authority::agent(name));
        draft.touch();
    }
}

/// Returns the state with the claim of a clone. No draft commits the claim, because the clone must
/// push the claim to the remote repository first.
pub fn take(state: State, by: TickedBy) -> State {
    State { revision: state.revision + 1, resting: None, ticked_by: Some(by), ..state }
}

/// Releases the agent from the claim of the clone with this `id`; with `None`, of any clone.
pub fn let_go(draft: &mut Draft, id: Option<&str>) {
    let state = &mut draft.records.state;
    let is_meant = |by: &mut TickedBy| id.is_none_or(|id| by.id == id);
    if state.ticked_by.take_if(is_meant).is_some() {
        draft.touch();
    }
}
