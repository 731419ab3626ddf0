//! The order in which `tick --all` goes through the agents.

use crate::error::Result;
use crate::model::agent::Status;
use crate::model::id::AgentName;
use crate::model::policy::SchedulingPolicy;
use crate::model::time::Time;
use crate::rules::priority::{Rank, rank};
use crate::store::view::View;
use crate::store::{Store, inbox};

/// The most urgent first; agents that are equal in everything stay in the order of their names.
pub fn by_urgency(store: &Store, names: &mut [AgentName], now: Time) {
    // One that can't be read says so when it is its turn.
    names.sort_by_cached_key(|name| {
        urgency(store, name, now).unwrap_or_else(|_| rank(&SchedulingPolicy::default(), None, now))
    });
}

fn urgency(store: &Store, name: &AgentName, now: Time) -> Result<Rank> {
    let agent = store.agent(name)?;
    let state = agent.peek()?;
    if matches!(state.status, Status::Stopped | Status::Booting) {
        return Ok(rank(&SchedulingPolicy::LEAST, None, now));
    }
    let scan = inbox::scan(&View::settled(agent.dir()))?;
    // An id begins with the moment at which it was made.
    let arrived = scan.direct.iter().chain(&scan.segments).map(|key| key.id).chain(scan.hints);
    let due = state.next_due_at.filter(|due| *due <= now);
    let since = arrived.filter_map(|id| id.minted_at()).chain(due).min();
    Ok(rank(&agent.policy()?.scheduler, since, now))
}
