//! `start`, `stop` and `fail` (contract, execution §10).

pub mod preempt;

use std::time::Duration;

use serde_json::json;

use crate::cli;
use crate::commands::words::{parse, parse_optional};
use crate::engine::authority::{self, refuse_from_inside};
use crate::engine::context::Context;
use crate::engine::effects::{Effect, after_failure};
use crate::engine::environment;
use crate::engine::gate::{EndedRun, Stop, TICK_GRACE, end_run, is_current, open_gate, wait_for_section};
use crate::engine::monitor::KILL_GRACE;
use crate::engine::session::Session;
use crate::engine::stop::{Stopped, stop_agent};
use crate::engine::wait::wait_until;
use crate::error::{Result, Status};
use crate::model::agent::Status as AgentStatus;
use crate::model::id::{AgentName, TaskId};
use crate::model::state::State;
use crate::model::time::Span;
use crate::rules::transition::lifecycle::{self, Given};
use crate::rules::transition::preemption::cut_sections;
use crate::store::{Agent, Store, Subject};

pub fn start(session: &mut Session, args: cli::StartArgs) -> Result<Status> {
    let store = session.store()?;
    let names = authority::governed(session, &store, &args.agents.agents, args.agents.all)?;
    Ok(session.each_agent(&names, args.agents.all, |session, name| start_one(session, &store, name)))
}

pub fn start_one(session: &mut Session, store: &Store, name: &AgentName) -> Result<Status> {
    let agent = store.agent(name)?;
    authority::reach(Context::new(session, &agent), "start")?;
    let (previous, state) = open_gate(Context::new(session, &agent), &authority::actor(session, store)?)?;
    report(session, &state, "start", previous, true, None, &[]);
    say_fault(session, &agent)?;
    Ok(Status::Done)
}

/// Warns that the turn command can't be started at present. This is no error, because the program
/// may be installed later.
fn say_fault(session: &Session, agent: &Agent<'_>) -> Result<()> {
    if let Some(fault) = environment::fault(agent, &agent.policy()?) {
        session.out.note(&format!("{}: no turn can start yet: {fault}", agent.name()));
    }
    Ok(())
}

fn report(
    session: &mut Session,
    state: &State,
    action: &str,
    previous: AgentStatus,
    changed: bool,
    run: Option<&EndedRun>,
    tasks: &[TaskId],
) {
    let mut object = json!({
        "agent": state.agent,
        "action": action,
        "previous_status": previous,
        "status": state.status,
        "changed": changed,
        "tasks": tasks,
    });
    if let Some(run) = run {
        object[if run.is_completed { "completed_run_id" } else { "aborted_run_id" }] = json!(run.id);
    }
    session.out.result(&object, |_| {
        let run = run.map(|run| {
            let how = if run.is_completed { "completed" } else { "aborted" };
            format!(", {how} {}", run.id)
        });
        let ended: Vec<String> = tasks.iter().map(TaskId::to_string).collect();
        let ended = if ended.is_empty() { String::new() } else { format!(", ended {}", ended.join(", ")) };
        let ended = format!("{}{ended}", run.unwrap_or_default());
        if changed {
            format!("{}  {previous} → {}{ended}", state.agent, state.status)
        } else {
            format!("{}  {} already{ended}", state.agent, state.status)
        }
    });
}

pub fn stop(session: &mut Session, args: cli::StopArgs) -> Result<Status> {
    let store = session.store()?;
    let names = authority::governed(session, &store, &args.agents.agents, args.agents.all)?;
    let grace: Option<Span> = parse_optional("--grace", args.grace.as_deref())?;
    let by = authority::actor(session, &store)?;
    let stop = Stop { grace, now: args.now, requeue: args.requeue, reason: args.reason, by };
    Ok(session.each_agent(&names, args.agents.all, |session, name| {
        let agent = store.agent(name)?;
        refuse_from_inside(Context::new(session, &agent), "stop")?;
        authority::reach(Context::new(session, &agent), "stop")?;
        let Stopped { state, previous, changed, run, tasks, cleared } =
            stop_agent(Context::new(session, &agent), &stop)?;
        Context::new(session, &agent).tell_parent();
        report(session, &state, "stop", previous, changed, run.as_ref(), &tasks);
        cleared.map(|()| Status::Done)
    }))
}

pub fn fail(session: &mut Session, args: cli::FailArgs) -> Result<Status> {
    let store = session.store()?;
    let agent = store.agent(&parse("AGENT", &args.agent)?)?;
    refuse_from_inside(Context::new(session, &agent), "fail")?;
    authority::reach(Context::new(session, &agent), "fail")?;
    let by = authority::actor(session, &store)?;
    let desk = Context::new(session, &agent);
    let mut open = desk.open()?;
    let preemption = open.draft.records.policy.preemption;
    if args.now {
        cut_sections(&mut open.draft, Span::ZERO);
    }
    let given = lifecycle::fail(&mut open.draft, &args.reason, &by)?;
    let state = open.commit()?;
    let state = match state.current_run.clone() {
        Some(run) => {
            // The grace of the stop has already passed.
            let grace = if run.stopping.is_some() { Duration::ZERO } else { KILL_GRACE };
            wait_for_section(Context::new(session, &agent), &run, &preemption)?;
            if run.stopping.is_none() {
                // The agent's tick ends the turn, because many programs handle a second signal
                // differently. If it does not do so in time, this command ends the turn.
                wait_until(TICK_GRACE, || {
                    Ok(!is_current(&agent, run.run_id)? || !agent.is_leased(Subject::Run)?)
                })?;
            }
            end_run(Context::new(session, &agent), &run, grace, preemption.signal)?
        }
        None => state,
    };
    desk.run_effects([Effect::Tell].into_iter().chain(after_failure(&state)).chain([Effect::TellParent]))?;
    let mut object = json!({
        "agent": agent.name(),
        "action": "fail",
        "status": state.status,
        "execution_state": state.execution.state,
        "reason": args.reason,
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
    session.out.result(&object, |_| format!("{}  {} ({what})", agent.name(), state.execution.state));
    Ok(Status::Done)
}
