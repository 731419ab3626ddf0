//! `recover`, and the settlement of runs whose tick is gone (contract, execution §9).

use std::time::Duration;

use serde_json::json;

use crate::cli;
use crate::error::{Error, Result, Status};
use crate::model::execution::ExecutionState;
use crate::model::id::RunId;
use crate::model::records::Lease;
use crate::model::state::{CurrentRun, State};
use crate::model::time::{Span, Time};
use crate::process::remains::Remains;
use crate::process::{Mark, host};
use crate::rules::transition::draft::Draft;
use crate::rules::transition::recovery;
use crate::rules::transition::turn::{interrupt, settle};
use crate::store::{Agent, Store, layout, lock};

use super::hooks;
use super::load::{self, Purpose};
use super::session::Session;
use super::turn::surroundings;
use super::words::parse;

/// Why a run counts as interrupted.
pub const TICK_GONE: &str = "its tick is gone";

/// How long what is left of an interrupted run may take to end by itself.
const LAST_GRACE: Duration = Duration::from_secs(5);

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

/// When a run on another machine stops counting as live; nobody there may be left to end it.
pub fn given_up_at(state: &State, now: Time) -> Option<Time> {
    let run = state.current_run.as_ref().filter(|run| Owner::of(run, now) == Owner::Elsewhere)?;
    Some(run.lease_expires_at.after(Span::from_millis(1)))
}

/// Settles a run that nobody holds the lease of but us: first what is left of its processes ends,
/// then its message may replay. A run whose end was noted is settled as it ended.
pub fn settle_abandoned(
    session: &Session,
    store: &Store,
    agent: &Agent<'_>,
    _lease: &lock::Held,
    run_id: RunId,
) -> Result<()> {
    let leader = agent.dir().run_dir(run_id).join(layout::LEADER);
    Remains::find(&Mark::run(run_id), &leader)?.end(LAST_GRACE)?;
    let now = session.clock.now();
    let locked = agent.lock(now)?;
    let state = locked.state()?;
    if state.current_run.as_ref().is_none_or(|run| run.run_id != run_id) {
        return Ok(());
    }
    let scan = locked.scan()?;
    let records = load::records(agent, &locked.view(), &scan, state, Lease::Free, now, Purpose::Change)?;
    let mut draft = Draft::new(records, session.clock.stamp()?);
    match agent.noted_end(run_id)? {
        Some(end) => {
            let around = surroundings(session, store, agent, &locked.view(), &end)?;
            settle(&mut draft, run_id, end, None, &around)?;
        }
        None => interrupt(&mut draft, TICK_GONE)?,
    }
    hooks::commit(session, &locked, draft)?;
    drop(locked);
    hooks::tell(session, store, agent);
    Ok(())
}

pub fn recover(session: &mut Session, args: cli::Recover) -> Result<Status> {
    let store = session.store()?;
    let agent = store.agent(&parse("AGENT", &args.agent)?)?;
    let now = session.clock.now();
    let run = agent.peek()?.current_run;
    let mut interrupted = None;
    if let Some(run) = run {
        if Owner::of(&run, now) == Owner::Elsewhere && !args.force {
            return Err(Error::Refused {
                kind: "run_on_another_host",
                message: format!("{} runs on {} until {}", run.run_id, run.host, run.lease_expires_at),
                hint: Some("if that host is gone for good: --force".to_owned()),
            });
        }
        let Some(lease) = agent.lease(now)? else {
            return Err(Error::Refused {
                kind: "turn_in_progress",
                message: format!("{} is running: there is nothing to recover", run.run_id),
                hint: Some("`dormouse stop` ends it".to_owned()),
            });
        };
        settle_abandoned(session, &store, &agent, &lease, run.run_id)?;
        interrupted = Some(run.run_id);
    }
    let locked = agent.lock(now)?;
    let state = locked.state()?;
    let already_fine = interrupted.is_some() && state.execution.state != ExecutionState::Failed;
    let after = if already_fine {
        state
    } else {
        let scan = locked.scan()?;
        let records = load::records(&agent, &locked.view(), &scan, state, Lease::Free, now, Purpose::Change)?;
        let mut draft = Draft::new(records, session.clock.stamp()?);
        recovery::recover(&mut draft, "asked for by the operator")?;
        hooks::commit(session, &locked, draft)?
    };
    drop(locked);
    hooks::tell(session, &store, &agent);
    let object = json!({
        "agent": agent.name(),
        "status": after.status,
        "execution_state": after.execution.state,
        "interrupted_run_id": interrupted,
    });
    session
        .out
        .result(&object, |_| format!("{}  {} ({})", agent.name(), after.execution.state, after.status));
    Ok(Status::Done)
}
