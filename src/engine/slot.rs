//! Asks a run to make way, and tells its hook.

use crate::error::Result;
use crate::model::execution::ExecutionState;
use crate::model::state::State;
use crate::rules::priority::to_make_way;
use crate::rules::transition::preemption as rules;
use crate::store::{Agent, Store};

use super::desk::Desk;
use super::hooks::{self, Occasion};
use super::installed;
use super::resources::slotted;
use super::session::Session;

/// Asks the least urgent of the running turns for its slot, for an agent that finds none and is more urgent
/// by the margin. To be called without a lock. The request takes the other agent's lock; if that is not free,
/// the next step asks.
pub fn ask_for_slot(session: &Session, store: &Store, agent: &Agent<'_>, priority: i32) {
    let asked = try_to_ask(session, store, agent, priority);
    if let Err(error) = asked {
        session.out.note(&format!("{}: {error}", agent.name()));
    }
}

fn try_to_ask(session: &Session, store: &Store, agent: &Agent<'_>, priority: i32) -> Result<()> {
    let (Some(slots), Some(margin)) = (store.max_running(), store.preempt_margin()) else { return Ok(()) };
    // A free slot is kept for another agent, or was left meanwhile.
    if store.has_slot(slots, agent.name())? {
        return Ok(());
    }
    let turns = slotted(store, slots, session.clock.now());
    let Some(turn) = to_make_way(agent.name(), priority, margin, &turns) else { return Ok(()) };
    let other = store.agent(&turn.agent)?;
    let asked = Desk::new(session, &other).try_change(|draft| {
        let grace = draft.records.policy.preemption.grace;
        rules::request_slot(draft, turn.run_id, agent.name(), grace)
    })?;
    let Some(asked) = asked.filter(|asked| asked.made) else { return Ok(()) };
    session.out.detail(&format!("{}: asked {} for its slot", agent.name(), turn.agent));
    requested(session, store, &other, &asked.state);
    Ok(())
}

/// Runs the hook of a request that has been committed.
pub fn requested(session: &Session, store: &Store, agent: &Agent<'_>, state: &State) {
    let request = state.current_run.as_ref().and_then(|run| run.preemption.as_ref());
    if let Some(hook) = hooks::find(store, agent, installed::ON_PREEMPT_REQUEST) {
        let reason = request.map(|request| request.reason.clone());
        let occasion = Occasion::of(state, ExecutionState::Suspended, reason);
        hooks::recorded(session, hook.run(session, &occasion));
    }
}
