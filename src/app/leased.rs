//! Whose a run is: a live tick's, here or on another machine, or ours to settle.

use crate::error::Result;
use crate::model::records::Lease;
use crate::model::state::State;
use crate::model::time::Time;
use crate::rules::clock::lease_ends;
use crate::rules::transition::clock::set_lease_right;
use crate::rules::transition::draft::Draft;
use crate::store::{Agent, Locked, lock};

use super::hooks;
use super::load::{self, Purpose};
use super::recover::Owner;
use super::session::Session;

/// Who has the lease of a run.
pub enum Leased {
    /// A tick on this machine holds it, or one on another may still.
    Live,
    Ours(lock::Held),
}

/// Tries to take the lease of an agent whose records are these.
pub fn lease(agent: &Agent<'_>, state: &State, now: Time, force: bool) -> Result<Leased> {
    let owner = state.current_run.as_ref().map(|run| Owner::of(run, now));
    match (agent.lease(now)?, owner) {
        (None, _) => Ok(Leased::Live),
        (Some(_), Some(Owner::Elsewhere)) if !force => Ok(Leased::Live),
        (Some(lease), _) => Ok(Leased::Ours(lease)),
    }
}

/// Sets the lease of a run on another machine right, if it was claimed by a clock that ran ahead: nobody
/// there may be left to end it.
pub fn repair_lease(
    session: &Session,
    agent: &Agent<'_>,
    locked: &Locked<'_>,
    state: &State,
    now: Time,
) -> Result<bool> {
    let Some(run) = state.current_run.as_ref().filter(|run| Owner::of(run, now) == Owner::Elsewhere) else {
        return Ok(false);
    };
    if lease_ends(run, now).is_none() {
        return Ok(false);
    }
    let scan = locked.scan()?;
    let view = locked.view();
    let records = load::records(agent, &view, &scan, state.clone(), Lease::Held, now, Purpose::Change)?;
    let mut draft = Draft::new(records, session.clock.stamp()?);
    let is_right = set_lease_right(&mut draft, run.run_id);
    if is_right {
        hooks::commit(session, locked, draft)?;
    }
    Ok(is_right)
}
