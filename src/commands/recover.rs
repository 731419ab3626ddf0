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
use crate::model::refusal::Refusal;
use crate::rules::transition::lifecycle::retry_held;
use crate::rules::transition::taken::let_go;
use crate::store::Subject;

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
    let run = state.current_run;
    let mut interrupted = None;
    if let Some(run) = run {
        if Owner::of(&run, now) == Owner::Elsewhere && !args.force {
            return Err(Error::Refused {
                kind: "run_on_another_host",
                message: format!("{} runs on {} until {}", run.run_id, run.host, run.lease_expires_at),
                hint: Some("if that host is gone for good: --force".to_owned()),
            });
        }
        let Some(_lease) = agent.lease(Subject::Run, now)? else {
            return Err(Error::Refused {
                kind: "turn_in_progress",
                message: format!("{} is running: there is nothing to recover", run.run_id),
                hint: Some("`dormouse stop` ends it".to_owned()),
            });
        };
        interrupted = Desk::new(session, &agent).carry_out([Errand::Settle(run.run_id)])?;
    }
    // Nobody else may run the hook, or go on with this recovery, as long as it runs.
    let hook = hooks::find(&store, &agent, installed::ON_RECOVERY_START);
    let lease = hook.map(|_| agent.lease(Subject::Run, now)).transpose()?;
    if matches!(lease, Some(None)) {
        return Err(Error::Refused {
            kind: "recovery_in_progress",
            message: format!("a tick is at work on `{}`", agent.name()),
            hint: Some("try again when it has ended".to_owned()),
        });
    }
    let locked = agent.change(now)?;
    let state = locked.state()?;
    let already_fine = interrupted.is_some() && state.execution.state != ExecutionState::Failed;
    let after = if already_fine {
        state
    } else {
        let desk = Desk::new(session, &agent);
        let waits = state.execution.state == ExecutionState::WaitingResources;
        let mut draft = desk.draft(&locked, state)?;
        if waits {
            retry_held(&mut draft, &authority::actor(session, &store)?)?;
            desk.commit(&locked, draft)?.state
        } else {
            carry_out(session, &store, &agent, locked, draft, ASKED_FOR)?.records.state
        }
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
