//! `recover`: resumes a failed agent (contract, execution §9).

use serde_json::json;

use crate::cli;
use crate::engine::context::Context;
use crate::engine::effects::Effect;
use crate::engine::installed;
use crate::engine::owner::{away, away_task, refuse_taken_elsewhere};
use crate::engine::recover;
use crate::engine::session::Session;
use crate::engine::{authority, hooks, tasks};
use crate::error::{Error, Result, Status};
use crate::model::execution::ExecutionState;
use crate::model::id::RunId;
use crate::model::place::Away;
use crate::model::refusal::Refusal;
use crate::model::state::{CurrentRun, State};
use crate::model::task::Task;
use crate::rules::transition::lifecycle::retry_held;
use crate::rules::transition::taken::let_go;
use crate::store::{Agent, Store, Subject};

use super::words::parse;

const ASKED_FOR: &str = "asked for by the operator";

pub fn recover(session: &mut Session, args: cli::RecoverArgs) -> Result<Status> {
    let store = session.store()?;
    let agent = store.agent(&parse("AGENT", &args.agent)?)?;
    session.is_about(agent.name());
    authority::reach(Context::new(session, &agent), "recover")?;
    let now = session.clock.now();
    let state = agent.peek()?;
    if !args.force {
        refuse_taken_elsewhere(&agent, &state, now)?;
    }
    if args.force && state.ticked_by.is_some() {
        Context::new(session, &agent).change(|draft| {
            let_go(draft, None);
            Ok::<(), Refusal>(())
        })?;
    }
    if let Some(run) = &state.current_run
        && let Some(away) = away(&agent, run, now)?
        && !args.force
    {
        return leave_alone(session, &agent, &state, run, &away);
    }
    let lost_tasks = if args.force { give_up_tasks(session, &agent)? } else { 0 };
    let interrupted = match &state.current_run {
        Some(run) => settle(session, &agent, run)?,
        None => None,
    };
    let after = if lost_tasks > 0 && interrupted.is_none() {
        agent.peek()?
    } else {
        bring_back(session, &store, &agent, interrupted)?
    };
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

/// Leaves a run alone that may still be running in another place. Fails if that is another machine.
fn leave_alone(
    session: &mut Session,
    agent: &Agent<'_>,
    state: &State,
    run: &CurrentRun,
    away: &Away,
) -> Result<Status> {
    let (id, until) = (run.run_id, run.lease_expires_at);
    match away {
        Away::Machine { .. } => {
            Err(Error::refused("run_on_another_host", format!("{id} runs {away} until {until}"))
                .with_hint("if that host is gone for good: --force"))
        }
        Away::Directory { .. } => {
            let object = json!({
                "agent": agent.name(),
                "status": state.status,
                "execution_state": state.execution.state,
                "interrupted_run_id": null,
                "reason": "turn_elsewhere",
                "run_id": id,
                "runs": away.to_string(),
                "lease_expires_at": until,
            });
            session.out.result(&object, |out| {
                let at = out.safe(&away.to_string());
                format!("{}  turn_elsewhere: {id} runs {at} until {until} at the latest", agent.name())
            });
            session.out.note("hint: to try its message again here, and leave its processes alone: --force");
            Ok(Status::Done)
        }
    }
}

/// Gives up the tasks whose supervisors are in another state directory. Returns their number.
fn give_up_tasks(session: &Session, agent: &Agent<'_>) -> Result<usize> {
    let mut lost = 0;
    for task in agent.look(|seen, _| seen.open::<Task>())? {
        if let Some(away @ Away::Directory { .. }) = away_task(agent, &task, session.clock.now())? {
            tasks::give_up(Context::new(session, agent), task.id, &away)?;
            lost += 1;
        }
    }
    Ok(lost)
}

/// Settles a run whose tick has died, or which --force gives up. Returns the run if it was
/// interrupted.
fn settle(session: &Session, agent: &Agent<'_>, run: &CurrentRun) -> Result<Option<RunId>> {
    let now = session.clock.now();
    if let Some(away) = away(agent, run, now)? {
        session.out.note(&format!("{} runs {away}: its processes are left alone", run.run_id));
    }
    let Some(_lease) = agent.lease(Subject::Run, now)? else {
        let message = format!("{} is running: there is nothing to recover", run.run_id);
        let hint = match agent.local().lease_holder(Subject::Run)? {
            Some((holder, true)) => format!("its lease is held by {holder}; `dormouse stop` ends the turn"),
            Some((_, false)) | None => "`dormouse stop` ends it".to_owned(),
        };
        let refusal = Refusal::action(agent.peek()?.execution.state, ExecutionState::Recovering, message);
        return Err(refusal.hint(hint).into());
    };
    Context::new(session, agent).run_effects([Effect::Settle(run.run_id)])
}

/// Resumes the agent unless the settlement of an interrupted run did. Returns its new state.
fn bring_back(
    session: &mut Session,
    store: &Store,
    agent: &Agent<'_>,
    interrupted: Option<RunId>,
) -> Result<State> {
    let now = session.clock.now();
    // The lease keeps other processes from running the hook and finishing this recovery.
    let hook = hooks::find(Context::new(session, agent), installed::ON_RECOVERY_START);
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
    let desk = Context::new(session, agent);
    let waits = state.execution.state == ExecutionState::WaitingResources;
    let mut draft = desk.draft(&locked, state)?;
    if waits {
        retry_held(&mut draft, &authority::actor(session, store)?)?;
        return Ok(desk.commit(&locked, draft)?.state);
    }
    let lease = lease.flatten();
    Ok(recover::recover(Context::new(session, agent), locked, draft, ASKED_FOR, lease.as_ref())?
        .records
        .state)
}
