//! Whose a run is: a tick's on this machine, or another machine's.

use crate::model::state::{CurrentRun, State};
use crate::model::time::{Span, Time};
use crate::process::host;

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
    pub fn of(run: &CurrentRun, now: Time) -> Owner {
        // Containers of one machine have other names but the same boot, and share its locks.
        let here = run.host == host::hostname() || run.boot_id == host::boot_id();
        if here || now > run.lease_expires_at { Owner::Here } else { Owner::Elsewhere }
    }
}

/// Whether the run of an agent goes on elsewhere, for all that is known here.
pub fn is_elsewhere(state: &State, now: Time) -> bool {
    state.current_run.as_ref().is_some_and(|run| Owner::of(run, now) == Owner::Elsewhere)
}

/// When a run on another machine stops counting as live; nobody there may be left to end it.
pub fn given_up_at(state: &State, now: Time) -> Option<Time> {
    let run = state.current_run.as_ref().filter(|_| is_elsewhere(state, now))?;
    Some(run.lease_expires_at.after(Span::from_millis(1)))
}
