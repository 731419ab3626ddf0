//! `recover`: an operator brings a failed agent back to work (contract, execution §9).

use serde_json::json;

use crate::cli;
use crate::engine::authority;
use crate::engine::desk::Desk;
use crate::engine::errand::Errand;
use crate::engine::hooks;
use crate::engine::installed;
use crate::engine::owner::{Owner, refuse_taken_elsewhere};
use crate::engine::recover::carry_out;
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::execution::ExecutionState;
use crate::model::id::RunId;
use crate::model::refusal::Refusal;
use crate::model::state::{CurrentRun, State};
use crate::rules::transition::lifecycle::retry_held;
use crate::rules::transition::taken::let_go;
use crate::store::{Agent, Store, Subject};

use super::words::parse;

const ASKED_FOR: &str = "asked for by the operator";

pub fn recover(session: &mut Session, args: cli::Recover) -> Result<Status> {
    let store = session.store()?;
    let agent = store.agent(&parse("AGENT", &args.agent)?)?;
    session.is_about(agent.name());
    authority::reach(session, &store, &agent, "recover")?;
    let now = session.clock.now();
    let state = agent.peek()?;
    if !args.force {
        refuse_taken_elsewhere(&agent, &state, now)?;
    }
    if args.force && state.ticked_by.is_some() {
        Desk::new(session, &agent).change(|draft| {
            let_go(draft, None);
            Ok::<(), Refusal>(())
        })?;
    }
    let interrupted = match state.current_run {
        Some(run) => settle(session, &agent, &run, args.force)?,
        None => None,
    };
    let after = bring_back(session, &store, &agent, interrupted)?;
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

/// Settles a run whose tick is gone. `force`: also one of another host. Returns the run if it was interrupted.
fn settle(session: &Session, agent: &Agent<'_>, run: &CurrentRun, force: bool) -> Result<Option<RunId>> {
    let now = session.clock.now();
    if Owner::of(agent, run, now)? == Owner::Elsewhere && !force {
        let message = format!("{} runs on {} until {}", run.run_id, run.host, run.lease_expires_at);
        return Err(Error::refused("run_on_another_host", message)
            .with_hint("if that host is gone for good: --force"));
    }
    let Some(_lease) = agent.lease(Subject::Run, now)? else {
        let message = format!("{} is running: there is nothing to recover", run.run_id);
        let refusal = Refusal::action(agent.peek()?.execution.state, ExecutionState::Recovering, message);
        return Err(refusal.hint("`dormouse stop` ends it").into());
    };
    Desk::new(session, agent).carry_out([Errand::Settle(run.run_id)])
}

/// Brings the agent back to work, unless the settlement of an interrupted run has done that. Returns its new state.
fn bring_back(
    session: &mut Session,
    store: &Store,
    agent: &Agent<'_>,
    interrupted: Option<RunId>,
) -> Result<State> {
    let now = session.clock.now();
    // The lease keeps other processes from running the hook, and from going on with this recovery, while the hook runs.
    let hook = hooks::find(store, agent, installed::ON_RECOVERY_START);
    let lease = hook.map(|_| agent.lease(Subject::Run, now)).transpose()?;
    if matches!(lease, Some(None)) {
        let message = format!("a tick is at work on `{}`", agent.name());
        return Err(Error::refused("recovery_in_progress", message).with_hint("try again when it has ended"));
    }
    let locked = agent.change(now)?;
    let state = locked.state()?;
    if interrupted.is_some() && state.execution.state != ExecutionState::Failed {
        return Ok(state);
    }
    let desk = Desk::new(session, agent);
    let waits = state.execution.state == ExecutionState::WaitingResources;
    let mut draft = desk.draft(&locked, state)?;
    if waits {
        retry_held(&mut draft, &authority::actor(session, store)?)?;
        return Ok(desk.commit(&locked, draft)?.state);
    }
    let lease = lease.flatten();
    Ok(carry_out(session, store, agent, locked, draft, ASKED_FOR, lease.as_ref())?.records.state)
}
