//! Requests for preemption, and the hook of the preempted run.

use crate::error::Result;
use crate::model::execution::ExecutionState;
use crate::model::resource::Resource;
use crate::model::state::State;
use crate::rules::priority::to_make_way;
use crate::rules::transition::preemption as rules;
use crate::store::{Agent, Store};

use super::context::Context;
use super::hooks::{self, HookEvent};
use super::installed;
use super::resources::occupying;
use super::session::Session;

/// Asks the least urgent turn that holds the lacked resource to yield, if the agent is more urgent
/// by the margin. Must be called without a lock. The request takes the other agent's lock; if that
/// is busy, the next step retries.
pub fn ask_for(session: &Session, store: &Store, agent: &Agent<'_>, priority: i32, lacked: Resource) {
    let asked = try_to_ask(session, store, agent, priority, lacked);
    if let Err(error) = asked {
        session.out.note(&format!("{}: {error}", agent.name()));
    }
}

fn try_to_ask(
    session: &Session,
    store: &Store,
    agent: &Agent<'_>,
    priority: i32,
    lacked: Resource,
) -> Result<()> {
    let Some(margin) = store.local().preempt_margin() else { return Ok(()) };
    let turns = occupying(store, agent, lacked, session.clock.now())?;
    let Some(turn) = to_make_way(agent.name(), priority, margin, &turns) else { return Ok(()) };
    let other = store.agent(&turn.agent)?;
    let asked = Context::new(session, &other).try_change(|draft| {
        let grace = draft.records.policy.preemption.grace;
        rules::request_resource(draft, turn.run_id, agent.name(), lacked, grace)
    })?;
    let Some(asked) = asked.filter(|asked| asked.made) else { return Ok(()) };
    session.out.detail(&format!("{}: asked {} for its {lacked}", agent.name(), turn.agent));
    requested(session, store, &other, &asked.state);
    Ok(())
}

/// Runs the hook of a request that has been committed.
pub fn requested(session: &Session, store: &Store, agent: &Agent<'_>, state: &State) {
    let request = state.current_run.as_ref().and_then(|run| run.preemption.as_ref());
    if let Some(hook) = hooks::find(store, agent, installed::ON_PREEMPT_REQUEST) {
        let reason = request.map(|request| request.reason.clone());
        let event = HookEvent::of(state, ExecutionState::Suspended, reason);
        hooks::recorded(session, hook.run(session, &event));
    }
}
