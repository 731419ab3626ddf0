//! `preempt` and `resume`: suspend a run, and resume it (contract, execution §6).

use serde_json::json;

use crate::cli;
use crate::commands::words::{parse, parse_optional};
use crate::engine::authority;
use crate::engine::context::Context;
use crate::engine::owner::away;
use crate::engine::resources::run_preempt_hook;
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::agent::Status as AgentStatus;
use crate::model::execution::ExecutionState;
use crate::model::id::AgentName;
use crate::model::place::Away;
use crate::model::state::State;
use crate::model::time::{Span, Time};
use crate::report::text::relative;
use crate::rules::transition::preemption as rules;
use crate::store::{Agent, Store, Subject};

use super::start_one;

pub fn preempt(session: &mut Session, args: cli::PreemptArgs) -> Result<Status> {
    let grace: Option<Span> = parse_optional("--grace", args.grace.as_deref())?;
    let resume_after: Option<Span> = parse_optional("--for", args.resume_after.as_deref())?;
    let store = session.store()?;
    let agent = store.agent(&parse("AGENT", &args.agent)?)?;
    authority::reach_records(Context::new(session, &agent), "preempt")?;
    let mut open = Context::new(session, &agent).open()?;
    let now = open.draft.now();
    if !is_live(&agent, &open.draft.records.state, now)? {
        return Err(rules::no_live_turn(&open.draft.records.state).into());
    }
    let grace = grace.unwrap_or(open.draft.records.policy.preemption.grace);
    rules::request(&mut open.draft, args.reason, grace, resume_after)?;
    let state = open.commit()?;
    let Some((run, request)) =
        state.current_run.as_ref().and_then(|run| Some((run, run.preemption.clone()?)))
    else {
        return Ok(Status::Done);
    };
    run_preempt_hook(Context::new(session, &agent), &state);
    let object = json!({
        "agent": agent.name(),
        "run_id": run.run_id,
        "reason": request.reason,
        "requested_at": request.requested_at,
        "force_at": request.force_at,
        "resume_after": request.resume_after,
    });
    session.out.result(&object, |_| {
        let until = relative(request.force_at, now);
        format!("{}  {} is asked to yield, at the latest {until}", agent.name(), run.run_id)
    });
    Ok(Status::Done)
}

/// Returns true if a turn runs on this machine, or may run on another one. Fails if it runs in
/// another state directory, where a request written here is not read.
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

pub fn resume(session: &mut Session, args: cli::ResumeArgs) -> Result<Status> {
    let store = session.store()?;
    let mut names = authority::governed(session, &store, &args.agents.agents, args.agents.all)?;
    if args.agents.all {
        names.retain(|name| is_suspended(&store, name).unwrap_or(true));
    }
    Ok(session.each_agent(&names, args.agents.all, |session, name| resume_one(session, &store, name)))
}

/// True if `--all` includes an agent. Stopped agents stay stopped. An agent that can't be read is
/// included, so that its error is reported.
fn is_suspended(store: &Store, name: &AgentName) -> Result<bool> {
    let state = store.agent(name)?.peek()?;
    Ok(state.execution.state == ExecutionState::Suspended && state.status != AgentStatus::Stopped)
}

fn resume_one(session: &mut Session, store: &Store, name: &AgentName) -> Result<Status> {
    let agent = store.agent(name)?;
    if agent.peek()?.status == AgentStatus::Stopped {
        session.out.note("`resume` of a stopped agent is deprecated: this is `start`");
        return start_one(session, store, name);
    }
    authority::reach_records(Context::new(session, &agent), "resume")?;
    let state = Context::new(session, &agent).change(rules::resume)?.state;
    let message_id = state.held.as_ref().map(|held| held.message_id);
    let object = json!({
        "agent": name,
        "action": "resume",
        "status": state.status,
        "execution_state": state.execution.state,
        "message_id": message_id,
    });
    session.out.result(&object, |_| match message_id {
        Some(id) => format!("{name}  goes on with {id} at the next tick"),
        None => format!("{name}  goes on at the next tick"),
    });
    Ok(Status::Done)
}
