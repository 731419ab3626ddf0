//! `recover`, and the settlement of runs whose tick is gone (contract, execution §9).

use std::time::Duration;

use serde_json::json;

use crate::cli;
use crate::error::{Error, Result, Status};
use crate::model::execution::ExecutionState;
use crate::model::id::RunId;
use crate::model::records::Records;
use crate::model::state::State;
use crate::process::Mark;
use crate::process::remains::Remains;
use crate::process::turn::Fate;
use crate::rules::execution::{deadline, is_over};
use crate::rules::transition::clock::set_lease_right;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::lifecycle::retry_held;
use crate::rules::transition::recovery;
use crate::rules::transition::turn::{interrupt, settle};
use crate::store::view::View;
use crate::store::{Agent, Locked, Store, layout, lock};

use super::authority;
use super::desk::{Desk, Open};
use super::errand::end_if_stopped;
use super::hooks::{self, Failure, Occasion};
use super::installed;
use super::litter;
use super::oversee::Overseen;
use super::owner::{Owner, TICK_GONE};
use super::session::Session;
use super::turn::{before_suspension, surroundings};
use super::words::parse;

const ASKED_FOR: &str = "asked for by the operator";

/// How long what is left of an interrupted run may take to end by itself.
const LAST_GRACE: Duration = Duration::from_secs(5);

/// Sets the lease of a run on another machine right that was claimed by a clock that ran ahead: nobody there
/// may be left to end it.
pub fn repair_lease(
    session: &Session,
    agent: &Agent<'_>,
    locked: &Locked<'_>,
    state: State,
    run_id: RunId,
) -> Result<()> {
    let desk = Desk::new(session, agent);
    let mut draft = desk.draft(locked, &locked.scan()?, state)?;
    set_lease_right(&mut draft, run_id);
    desk.commit(locked, draft).map(drop)
}

/// Settles a run that nobody holds the lease of but us: first what is left of its processes ends,
/// then its message may replay. A run whose end was noted is settled as it ended. `false`: its own tick
/// has settled it meanwhile.
pub fn settle_abandoned(
    session: &Session,
    store: &Store,
    agent: &Agent<'_>,
    _lease: &lock::Held,
    run_id: RunId,
) -> Result<bool> {
    let leader = agent.dir().run_dir(run_id).join(layout::LEADER);
    Remains::find(&Mark::run(run_id), &leader)?.end(LAST_GRACE)?;
    before_suspension(session, store, agent, run_id)?;
    let desk = Desk::new(session, agent);
    let locked = agent.lock(session.clock.now())?;
    let state = locked.state()?;
    if state.current_run.as_ref().is_none_or(|run| run.run_id != run_id) {
        return Ok(false);
    }
    let mut draft = desk.draft(&locked, &locked.scan()?, state)?;
    account_for(session, store, agent, &locked.view(), &mut draft, run_id)?;
    let (run, retention) = (draft.settled_run().cloned(), draft.records.policy.retention);
    let state = desk.commit(&locked, draft)?;
    drop(locked);
    desk.tell();
    litter::clear(agent, run.as_ref(), retention);
    end_if_stopped(session, store, agent, &state);
    Ok(true)
}

/// Ends a run in a draft, whose tick is gone and whose processes are: as its end was noted, else as interrupted.
pub fn account_for(
    session: &Session,
    store: &Store,
    agent: &Agent<'_>,
    view: &View<'_>,
    draft: &mut Draft,
    run_id: RunId,
) -> Result<()> {
    match agent.noted_end(run_id)? {
        Some(end) => {
            let around = surroundings(session, store, agent, view, &end)?;
            settle(draft, run_id, end, None, &around)?;
        }
        None => interrupt(draft, TICK_GONE)?,
    }
    Ok(())
}

/// What came of a recovery.
pub struct Recovery {
    /// As they are after it.
    pub records: Records,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

/// Brings a failed agent back to work, or goes on with that: at once, or by its hook, which runs
/// without the lock. Whoever calls this holds the lease where there is a hook.
pub fn carry_out(
    session: &Session,
    store: &Store,
    agent: &Agent<'_>,
    locked: Locked<'_>,
    mut draft: Draft,
    cause: &str,
) -> Result<Recovery> {
    let Some(hook) = hooks::find(store, agent, installed::ON_RECOVERY_START) else {
        recovery::recover(&mut draft, cause)?;
        let records = ended(Desk::new(session, agent), locked, draft)?;
        return Ok(Recovery { records, failure: None });
    };
    recovery::begin(&mut draft, cause)?;
    let limit = draft.records.policy.timeouts.recovery.0;
    let desk = Desk::new(session, agent);
    let begun = desk.commit(&locked, draft)?;
    drop(locked);
    desk.tell();
    let occasion = Occasion::of(&begun, ExecutionState::Runnable, Some(cause.to_owned()));
    // A stop, say, ends the recovery, and with it its hook.
    let lasts = |state: &State| {
        if state.execution == begun.execution { Fate::GoesOn { ask_again: None } } else { Fate::Ends }
    };
    let failure = hook.run_within(session, &occasion, limit, &mut Overseen::new(agent, lasts))?.failure;
    let Open { locked, mut draft, .. } = desk.open()?;
    if draft.records.state.execution != begun.execution {
        return Ok(Recovery { records: draft.records, failure: None });
    }
    let overdue = deadline(&draft.records.state, &draft.records.policy.timeouts)
        .filter(|(limit, _)| is_over(*limit, draft.now()));
    let reason = overdue.map(|(_, reason)| reason).or(failure.as_ref().map(Failure::reason));
    match reason {
        None => recovery::complete(&mut draft)?,
        Some(reason) => recovery::fail(&mut draft, reason)?,
    }
    let failure = reason.map(str::to_owned);
    Ok(Recovery { records: ended(desk, locked, draft)?, failure })
}

/// Commits the end of a recovery, and tells of it.
fn ended(desk: Desk<'_>, locked: Locked<'_>, draft: Draft) -> Result<Records> {
    let mut records = draft.records.clone();
    records.state = desk.commit(&locked, draft)?;
    drop(locked);
    desk.tell();
    Ok(records)
}

pub fn recover(session: &mut Session, args: cli::Recover) -> Result<Status> {
    let store = session.store()?;
    let agent = store.agent(&parse("AGENT", &args.agent)?)?;
    authority::reach(session, &store, &agent, "recover")?;
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
        let is_ours = settle_abandoned(session, &store, &agent, &lease, run.run_id)?;
        interrupted = is_ours.then_some(run.run_id);
    }
    // Nobody else may run the hook, or go on with this recovery, as long as it runs.
    let hook = hooks::find(&store, &agent, installed::ON_RECOVERY_START);
    let lease = hook.map(|_| agent.lease(now)).transpose()?;
    if matches!(lease, Some(None)) {
        return Err(Error::Refused {
            kind: "recovery_in_progress",
            message: format!("a tick is at work on `{}`", agent.name()),
            hint: Some("try again when it has ended".to_owned()),
        });
    }
    let locked = agent.lock(now)?;
    let state = locked.state()?;
    let already_fine = interrupted.is_some() && state.execution.state != ExecutionState::Failed;
    let after = if already_fine {
        state
    } else {
        let desk = Desk::new(session, &agent);
        let waits = state.execution.state == ExecutionState::WaitingResources;
        let mut draft = desk.draft(&locked, &locked.scan()?, state)?;
        if waits {
            retry_held(&mut draft, &authority::actor(session, &store)?)?;
            desk.commit(&locked, draft)?
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
