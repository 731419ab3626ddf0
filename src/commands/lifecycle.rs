//! `start`, `stop`, `fail`, `preempt`, `resume` and `recover` (contract, execution §6, §9 and §10).

use std::time::Duration;

use serde_json::json;

use crate::cli;
use crate::engine::authority::{self, refuse_from_inside};
use crate::engine::context::{Committed, Context};
use crate::engine::effects::{self, Effect, after_failure};
use crate::engine::gate::{Stop, Stopped, TICK_GRACE, end_run, is_over, start_agent, wait_for_section};
use crate::engine::hooks::HookName;
use crate::engine::monitor::KILL_GRACE;
use crate::engine::owner::{away, away_task, refuse_foreign_claim};
use crate::engine::resources::run_preempt_hook;
use crate::engine::session::Session;
use crate::engine::stop::stop_agent;
use crate::engine::{hooks, tasks};
use crate::error::{Error, Result, Status};
use crate::local::Subject;
use crate::model::agent::Status as AgentStatus;
use crate::model::execution::ExecutionState;
use crate::model::id::{AgentName, RunId, TaskId};
use crate::model::place::Away;
use crate::model::refusal::Refusal;
use crate::model::run::Terminal;
use crate::model::state::{CurrentRun, State};
use crate::model::task::Task;
use crate::model::time::{Span, Time};
use crate::report::text::relative;
use crate::rules::transition::lifecycle::{self, Given, retry_held};
use crate::rules::transition::moved::let_go;
use crate::rules::transition::preemption::{self, cut_sections};
use crate::store::{Agent, Store};

use super::args::{answer, note_settings_fault, optional_text, short_text};

pub fn start(session: &Session, store: &Store, args: cli::StartArgs) -> Result<Status> {
    let names = authority::governed(session, store, &args.agents.agents, args.agents.all)?;
    Ok(session.each_agent(store, &names, args.agents.all, start_one))
}

fn start_one(context: Context<'_>) -> Result<Status> {
    authority::reach(context, "start")?;
    let by = authority::actor(context.session, context.store())?;
    let (previous, Committed { state, is_changed, .. }) = start_agent(context, &by)?;
    let started =
        Stopped { state, previous, changed: is_changed, run: None, tasks: Vec::new(), cleared: Ok(()) };
    report(context.session, "start", &started, false);
    note_settings_fault(context)?;
    Ok(Status::Done)
}

fn report(session: &Session, action: &str, done: &Stopped, requeue: bool) {
    let Stopped { state, previous, changed, run, tasks, .. } = done;
    let mut object = json!({
        "agent": state.agent,
        "action": action,
        "previous_status": previous,
        "status": state.status,
        "changed": changed,
        "tasks": tasks,
    });
    let how = |is_completed| if is_completed { "completed" } else { "aborted" };
    if let Some(run) = run {
        object[format!("{}_run_id", how(run.is_completed))] = json!(run.id);
    }
    session.out.result(&object, |_| {
        let aborted = run.as_ref().filter(|run| !run.is_completed && !requeue).map(|run| run.id);
        let turn = state.last_turn.as_ref().filter(|turn| Some(turn.run_id) == aborted);
        let id = turn.filter(|turn| turn.terminal == Terminal::Aborted).map(|turn| turn.message_id);
        let cure = id.map(|id| format!("; `dormouse queue requeue {id}` puts its message back"));
        let run = run.as_ref().map(|run| format!(", {} {}", how(run.is_completed), run.id));
        let ended: Vec<String> = tasks.iter().map(TaskId::to_string).collect();
        let ended = if ended.is_empty() { String::new() } else { format!(", ended {}", ended.join(", ")) };
        let ended = format!("{}{ended}{}", run.unwrap_or_default(), cure.unwrap_or_default());
        match (*changed, action) {
            (true, _) => format!("{}  {previous} → {}{ended}", state.agent, state.status),
            (false, "start") => format!("{}  already started ({})", state.agent, state.status),
            (false, _) => format!("{}  {} already{ended}", state.agent, state.status),
        }
    });
}

pub fn stop(session: &Session, store: &Store, args: cli::StopArgs) -> Result<Status> {
    let names = authority::governed(session, store, &args.agents.agents, args.agents.all)?;
    let by = authority::actor(session, store)?;
    let reason = optional_text("--reason", args.reason)?;
    let stop = Stop { grace: args.grace, now: args.now, requeue: args.requeue, reason, by };
    Ok(session.each_agent(store, &names, args.agents.all, |context| {
        refuse_from_inside(context, "stop")?;
        authority::reach(context, "stop")?;
        let stopped = stop_agent(context, &stop)?;
        context.settle_parent();
        report(session, "stop", &stopped, stop.requeue);
        stopped.cleared.map(|()| Status::Done)
    }))
}

pub fn pause(session: &Session, store: &Store, args: cli::StopArgs) -> Result<Status> {
    session.out.note("`pause` is deprecated: it does the same as `stop`");
    stop(session, store, args)
}

pub fn fail(session: &Session, store: &Store, args: cli::FailArgs) -> Result<Status> {
    let agent = store.agent(&args.agent)?;
    let context = Context::new(session, &agent);
    let reason = short_text("--reason", &args.reason)?;
    refuse_from_inside(context, "fail")?;
    authority::reach(context, "fail")?;
    let by = authority::actor(session, store)?;
    let mut open = context.open()?;
    let settings = open.draft.records.policy.preemption;
    if args.now {
        cut_sections(&mut open.draft, Span::ZERO);
    }
    let given = lifecycle::fail(&mut open.draft, &reason, &by)?;
    let state = open.commit()?;
    let state = match state.current_run.clone() {
        Some(run) => {
            // A turn that `stop` is already ending gets no further grace.
            let grace = if run.stopping.is_some() { Duration::ZERO } else { KILL_GRACE };
            wait_for_section(context, &run, &settings)?;
            if run.stopping.is_none() {
                // The agent's tick should end the turn, because many programs handle a second
                // signal differently. After `TICK_GRACE` this process ends the turn itself.
                is_over(&agent, run.run_id, TICK_GRACE)?;
            }
            end_run(context, &run, grace, settings.signal)?
        }
        None => state,
    };
    context
        .run_effects([Effect::Tell].into_iter().chain(after_failure(&state)).chain([Effect::TellParent]))?;
    let mut object = json!({
        "agent": agent.name(),
        "action": "fail",
        "status": state.status,
        "execution_state": state.execution.state,
        "reason": reason,
        "run_id": null,
    });
    let what = match given {
        Given::Run(run_id) => {
            object["run_id"] = json!(run_id);
            run_id.to_string()
        }
        Given::Held(message_id) => {
            object["message_id"] = json!(message_id);
            message_id.to_string()
        }
        Given::Recovery => "the recovery".to_owned(),
    };
    answer(session, &object, |_| format!("{}  {} ({what})", agent.name(), state.execution.state))
}

pub fn preempt(session: &Session, store: &Store, args: cli::PreemptArgs) -> Result<Status> {
    let agent = store.agent(&args.agent)?;
    let context = Context::new(session, &agent);
    authority::reach_records(context, "preempt")?;
    let reason = short_text("--reason", &args.reason)?;
    let mut open = context.open()?;
    let now = open.draft.now();
    if !is_live(&agent, &open.draft.records.state, now)? {
        return Err(preemption::no_live_turn(&open.draft.records.state).into());
    }
    let grace = args.grace.unwrap_or(open.draft.records.policy.preemption.grace);
    preemption::request(&mut open.draft, reason, grace, args.resume_after)?;
    let state = open.commit()?;
    let Some((run, request)) =
        state.current_run.as_ref().and_then(|run| Some((run, run.preemption.clone()?)))
    else {
        return Ok(Status::Done);
    };
    run_preempt_hook(context, &state);
    let object = json!({
        "agent": agent.name(),
        "run_id": run.run_id,
        "reason": request.reason,
        "requested_at": request.requested_at,
        "force_at": request.force_at,
        "resume_after": request.resume_after,
    });
    answer(session, &object, |_| {
        let until = relative(request.force_at, now);
        format!("{}  {} is asked to yield, at the latest {until}", agent.name(), run.run_id)
    })
}

/// Returns true if a turn runs on this machine, or may run on another machine. Fails if the turn
/// runs in another state directory, where requests from this directory are not read.
fn is_live(agent: &Agent<'_>, state: &State, now: Time) -> Result<bool> {
    let Some(run) = &state.current_run else { return Ok(false) };
    match away(agent, run, now)? {
        Some(away @ Away::Directory { .. }) => {
            Err(Error::refused("turn_elsewhere", format!("{} runs {away}", run.run_id))
                .with_hint("ask it there to yield"))
        }
        Some(Away::Machine { .. }) => Ok(true),
        None => agent.is_leased(Subject::Run),
    }
}

pub fn resume(session: &Session, store: &Store, args: cli::ResumeArgs) -> Result<Status> {
    let mut names = authority::governed(session, store, &args.agents.agents, args.agents.all)?;
    if args.agents.all {
        names.retain(|name| is_suspended(store, name).unwrap_or(true));
    }
    Ok(session.each_agent(store, &names, args.agents.all, resume_one))
}

/// True if `resume --all` includes an agent: one that is suspended and not stopped. The caller
/// includes an agent that can't be read, so that its error is reported.
fn is_suspended(store: &Store, name: &AgentName) -> Result<bool> {
    let state = store.agent(name)?.peek()?;
    Ok(state.execution.state == ExecutionState::Suspended && state.status != AgentStatus::Stopped)
}

fn resume_one(context: Context<'_>) -> Result<Status> {
    let Context { session, agent } = context;
    if agent.peek()?.status == AgentStatus::Stopped {
        session.out.note("`resume` of a stopped agent is deprecated: it does the same as `start`");
        return start_one(context);
    }
    authority::reach_records(context, "resume")?;
    let state = context.change(preemption::resume)?.state;
    let (name, message_id) = (agent.name(), state.held.as_ref().map(|held| held.message_id));
    let object = json!({
        "agent": name,
        "action": "resume",
        "status": state.status,
        "execution_state": state.execution.state,
        "message_id": message_id,
    });
    answer(session, &object, |_| match message_id {
        Some(id) => format!("{name}  continues with {id} at the next tick"),
        None => format!("{name}  continues at the next tick"),
    })
}

const ASKED_FOR: &str = "asked for by the operator";

pub fn recover(session: &Session, store: &Store, args: cli::RecoverArgs) -> Result<Status> {
    let agent = store.agent(&args.agent)?;
    let context = Context::new(session, &agent);
    session.is_about(agent.name());
    authority::reach(context, "recover")?;
    let now = session.clock.now();
    let state = agent.peek()?;
    if !args.force {
        refuse_foreign_claim(&agent, &state, now)?;
    }
    if args.force && state.ticked_by.is_some() {
        context.change(|draft| {
            let_go(draft, None);
            Ok::<(), Refusal>(())
        })?;
    }
    if let Some(run) = &state.current_run
        && let Some(away) = away(&agent, run, now)?
        && !args.force
    {
        return leave_alone(context, &state, run, &away);
    }
    let lost_tasks = if args.force { give_up_tasks(context)? } else { 0 };
    let run = state.current_run.as_ref();
    let interrupted = run.map_or(Ok(None), |run| settle(context, run))?;
    let after = if lost_tasks > 0 && interrupted.is_none() {
        agent.peek()?
    } else {
        bring_back(context, interrupted)?
    };
    let object = json!({
        "agent": agent.name(),
        "status": after.status,
        "execution_state": after.execution.state,
        "interrupted_run_id": interrupted,
    });
    answer(session, &object, |_| format!("{}  {} ({})", agent.name(), after.execution.state, after.status))
}

/// Reports that a run in another state directory is left alone. Error if it is on another machine.
fn leave_alone(context: Context<'_>, state: &State, run: &CurrentRun, away: &Away) -> Result<Status> {
    let Context { session, agent } = context;
    let (id, until) = (run.run_id, run.lease_expires_at);
    match away {
        Away::Machine { .. } => {
            Err(Error::refused("run_on_another_host", format!("{id} runs {away} until {until}"))
                .with_hint("if that host does not come back, use --force"))
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
            session.out.note("hint: --force tries its message again here, and leaves its processes alone");
            Ok(Status::Done)
        }
    }
}

/// Abandons tasks whose supervisors are in another state directory. Returns the number of tasks.
fn give_up_tasks(context: Context<'_>) -> Result<usize> {
    let Context { session, agent } = context;
    let mut lost = 0;
    for task in agent.read(|seen, _| seen.open::<Task>())? {
        if let Some(away @ Away::Directory { .. }) = away_task(agent, &task, session.clock.now())? {
            tasks::give_up(context, task.id, &away)?;
            lost += 1;
        }
    }
    Ok(lost)
}

/// Settles a run whose tick has died, or that --force abandons. Returns the id of such a run.
fn settle(context: Context<'_>, run: &CurrentRun) -> Result<Option<RunId>> {
    let Context { session, agent } = context;
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
    context.run_effects([Effect::Settle(run.run_id)])
}

/// Recovers the agent, unless the settlement of the run `interrupted` did so. Returns the state.
fn bring_back(context: Context<'_>, interrupted: Option<RunId>) -> Result<State> {
    let Context { session, agent } = context;
    let now = session.clock.now();
    // The lease of the run keeps other processes from running this hook or ending this recovery.
    let hook = hooks::find(context, HookName::OnRecoveryStart);
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
    let waits = state.execution.state == ExecutionState::WaitingResources;
    let mut draft = context.draft(&locked, state)?;
    if waits {
        retry_held(&mut draft, &authority::actor(session, agent.store())?)?;
        return Ok(context.commit(&locked, draft)?.state);
    }
    let lease = lease.flatten();
    let (records, _) = effects::recover(context, locked, draft, ASKED_FOR, lease.as_ref())?;
    Ok(records.state)
}
