//! Whose a run is: a tick's on this machine, or another machine's.

use crate::error::{Error, Result};
use crate::model::state::{CurrentRun, State, TickedBy};
use crate::model::time::{Span, Time};
use crate::process::host;
use crate::store::{Agent, Subject};

/// Why a run counts as interrupted.
pub const TICK_GONE: &str = "its tick is gone";

/// Where the tick of a current run is, or was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// On this machine: its lock tells whether it lives.
    Here,
    /// On another machine, and its lease has not ended.
    Elsewhere,
}

impl Owner {
    pub fn of(agent: &Agent<'_>, run: &CurrentRun, now: Time) -> Result<Owner> {
        let is_elsewhere = if agent.store().is_beside() {
            // Where machines share a store, it says whether the other one lives, and no clock does. Two containers of one
            // machine are two machines then.
            agent.is_leased_elsewhere(Subject::Run)?
        } else {
            // Containers of one machine have other names but the same boot, and share its locks.
            let is_here = run.host == host::hostname() || run.boot_id == host::boot_id();
            !is_here && now <= run.lease_expires_at
        };
        Ok(if is_elsewhere { Owner::Elsewhere } else { Owner::Here })
    }
}

/// Whether the agent is stepped elsewhere, for all that is known here: its run goes on there, or another clone has taken
/// it.
pub fn is_elsewhere(agent: &Agent<'_>, state: &State, now: Time) -> Result<bool> {
    Ok(given_up_at(agent, state, now)?.is_some())
}

/// When a run that goes on elsewhere stops counting as live, because its machine may be gone.
pub fn given_up_at(agent: &Agent<'_>, state: &State, now: Time) -> Result<Option<Time>> {
    let mut run = state.current_run.as_ref();
    if let Some(current) = run
        && Owner::of(agent, current, now)? == Owner::Here
    {
        run = None;
    }
    let taken = taken_elsewhere(agent, state, now)?;
    let ends = run.map(|run| run.lease_expires_at).into_iter().chain(taken.map(|by| by.expires_at));
    Ok(ends.max().map(|end| end.after(Span::from_millis(1))))
}

/// The other clone that has taken the agent, to step it alone, if its time is not over.
pub fn taken_elsewhere<'s>(agent: &Agent<'_>, state: &'s State, now: Time) -> Result<Option<&'s TickedBy>> {
    let Some(by) = state.ticked_by.as_ref().filter(|by| now <= by.expires_at) else { return Ok(None) };
    let is_own = agent.has_taken(&by.id)?;
    Ok(Some(by).filter(|_| !is_own))
}

/// Fails if another clone has taken the agent.
pub fn refuse_taken_elsewhere(agent: &Agent<'_>, state: &State, now: Time) -> Result<()> {
    let Some(by) = taken_elsewhere(agent, state, now)? else { return Ok(()) };
    let name = agent.name();
    Err(Error::refused(
        "ticked_elsewhere",
        format!("`{name}` is stepped by a clone on {} until {}", by.host, by.expires_at),
    )
    .with_hint(format!("if that clone is gone for good: `dormouse recover {name} --force`")))
}
