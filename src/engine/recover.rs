//! Settlement of runs whose tick is gone, and recovery from failure (contract, execution §9).

use std::time::Duration;

use crate::error::Result;
use crate::model::execution::ExecutionState;
use crate::model::id::RunId;
use crate::model::records::Records;
use crate::model::state::State;
use crate::model::turn::TurnEnd;
use crate::process::ProcessMark;
use crate::process::leftover::LeftoverProcesses;
use crate::process::turn::MonitorDecision;
use crate::rules::execution::{deadline, is_over};
use crate::rules::transition::draft::Draft;
use crate::rules::transition::recovery;
use crate::rules::transition::turn::{interrupt, settle};
use crate::store::{AgentTxn, HeldLease, Snapshot};

use super::context::{Context, OpenTxn};
use super::effects::{Effect, after_settlement};
use super::hooks::{self, HookEvent, HookFailure};
use super::installed;
use super::monitor::{LeaseKeeper, of_state};
use super::owner::TICK_GONE;
use super::turn::{action_facts, before_suspension, is_refusal, without_outcome};

/// Time that leftover processes of an interrupted run get between SIGTERM and SIGKILL.
const LAST_GRACE: Duration = Duration::from_secs(5);

/// Settles a run whose tick is gone. The caller must hold its lease. Ends leftover processes first,
/// because the message may be claimed again after the settlement. Uses the end that the tick noted,
/// if any. Returns the effects that follow; `None` if the tick had settled the run.
pub fn settle_abandoned(context: Context<'_>, run_id: RunId) -> Result<Option<Vec<Effect>>> {
    let agent = context.agent;
    let leader = agent.workdir().run(run_id).leader();
    LeftoverProcesses::find(&ProcessMark::run(run_id), &leader)?.end(LAST_GRACE)?;
    before_suspension(context, run_id, None)?;
    let locked = agent.change(context.session.clock.now())?;
    let state = locked.state()?;
    if state.current_run.as_ref().is_none_or(|run| run.run_id != run_id) {
        return Ok(None);
    }
    let noted = agent.workdir().run(run_id).noted_end()?;
    let make = |locked: &AgentTxn<'_>, state: State, noted: Option<TurnEnd>| {
        let mut draft = context.draft(locked, state)?;
        let seen = locked.look_past_inbox();
        account_for(context, &seen, &mut draft, (run_id, noted), TICK_GONE)?;
        let (run, retention) = (draft.settled_run().cloned(), draft.records.policy.retention);
        Ok((context.commit(locked, draft)?.state, run, retention))
    };
    let (state, run, retention) = match (make(&locked, state, noted.clone()), noted) {
        // A run whose outcome is refused must end, or it would block every later step.
        (Err(error), Some(noted)) if is_refusal(&error) => {
            make(&locked, locked.state()?, Some(without_outcome(noted, &error)))
        }
        (made, _) => made,
    }?;
    Ok(Some(after_settlement(&state, run, retention)))
}

/// Settles a run in a draft: with the end that its tick noted, else as interrupted for the reason
/// `why`. If the end is refused, the run has failed. No process of the run may be alive.
pub fn account_for(
    context: Context<'_>,
    seen: &Snapshot<'_>,
    draft: &mut Draft,
    (run_id, noted): (RunId, Option<TurnEnd>),
    why: &str,
) -> Result<()> {
    let Some(end) = noted else { return Ok(interrupt(draft, why)?) };
    let make = |end: TurnEnd| {
        let around = action_facts(context, seen, &end)?;
        let mut settled = draft.clone();
        settle(&mut settled, run_id, end, None, &around)?;
        Ok(settled)
    };
    *draft = match make(end.clone()) {
        Err(error) if is_refusal(&error) => make(without_outcome(end, &error)),
        made => made,
    }?;
    Ok(())
}

/// Result of a recovery, which is complete or has failed.
pub struct Recovery {
    /// Records of the agent after the recovery.
    pub records: Records,
    /// Reason why the recovery failed; `None` if it succeeded.
    pub failure: Option<String>,
}

/// Recovers a failed agent, or continues a recovery. If `on-recovery-start` is installed, it runs
/// without the lock and must succeed, and the caller must hold the lease.
pub fn recover(
    context: Context<'_>,
    locked: AgentTxn<'_>,
    mut draft: Draft,
    cause: &str,
    lease: Option<&HeldLease>,
) -> Result<Recovery> {
    let agent = context.agent;
    let Some(hook) = hooks::find(context, installed::ON_RECOVERY_START) else {
        recovery::recover(&mut draft, cause)?;
        let records = ended(context, locked, draft)?;
        return Ok(Recovery { records, failure: None });
    };
    recovery::begin(&mut draft, cause)?;
    let limit = Some(draft.records.policy.timeouts.recovery);
    let begun = context.commit(&locked, draft)?.state;
    drop(locked);
    context.notify();
    let event = HookEvent::of(&begun, ExecutionState::Runnable, Some(cause.to_owned()));
    // A `stop` changes the execution state, which ends the recovery and its hook.
    let lasts = |state: &State| {
        if state.execution == begun.execution {
            MonitorDecision::GoesOn { ask_again: None }
        } else {
            MonitorDecision::Ends
        }
    };
    let mut monitor = (LeaseKeeper(lease), of_state(agent, lasts));
    let failure = hook.run_within(&event, limit, &mut monitor)?;
    lease.map_or(Ok(()), |lease| lease.refuse_lost("the recovery"))?;
    let OpenTxn { locked, mut draft, .. } = context.open()?;
    if draft.records.state.execution != begun.execution {
        return Ok(Recovery { records: draft.records, failure: None });
    }
    let overdue = deadline(&draft.records.state, &draft.records.policy.timeouts)
        .filter(|(limit, _)| is_over(*limit, draft.now()));
    let reason = overdue.map(|(_, reason)| reason).or(failure.as_ref().map(HookFailure::reason));
    match reason {
        None => recovery::complete(&mut draft)?,
        Some(reason) => recovery::fail(&mut draft, reason)?,
    }
    let failure = reason.map(str::to_owned);
    Ok(Recovery { records: ended(context, locked, draft)?, failure })
}

/// Commits the end of a recovery, releases the lock, and notifies the hooks.
fn ended(context: Context<'_>, locked: AgentTxn<'_>, draft: Draft) -> Result<Records> {
    let records = context.commit(&locked, draft)?;
    drop(locked);
    context.notify();
    Ok(records)
}
