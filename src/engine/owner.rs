//! Place of a run or a task: this state directory on this machine, or another place.

use crate::error::{Error, Result};
use crate::local::{Subject, anchor::Anchor, machine};
use crate::model::decision::{Decision, DecisionReport};
use crate::model::place::{Away, StatePlace};
use crate::model::state::{CurrentRun, State, TickedBy};
use crate::model::task::Task;
use crate::model::time::{Span, Time};
use crate::process::host;
use crate::rules::clock::task_lease_ends;
use crate::store::Agent;

/// Reason with which a run is recorded as interrupted.
pub const TICK_GONE: &str = "its tick is gone";

/// Returns the place of a current run, if it is on another machine or in another state directory
/// and its lease has not ended. `None` does not mean that the run is live: its lock shows that.
pub fn away(agent: &Agent<'_>, run: &CurrentRun, now: Time) -> Result<Option<Away>> {
    if let Some(is_leased) = agent.is_leased_elsewhere(Subject::Run)? {
        // The store decides if a lease of another machine is still valid, so no clocks are
        // compared. Two containers of one machine count as two machines.
        return Ok(is_leased.then(|| Away::Machine { host: run.host.clone() }));
    }
    if now > run.lease_expires_at {
        return Ok(None);
    }
    place_of(agent, &run.host, &run.boot_id, Some(&run.place))
}

/// Returns the place of the agent's current run, if on another machine or in another directory.
pub fn away_run(agent: &Agent<'_>, state: &State, now: Time) -> Result<Option<Away>> {
    state.current_run.as_ref().map_or(Ok(None), |run| away(agent, run, now))
}

/// Returns the place of a task's supervisor: another machine, or another state directory while the
/// lease of the task lasts. `None` for this machine and for delegations.
pub fn away_task(agent: &Agent<'_>, task: &Task, now: Time) -> Result<Option<Away>> {
    if task.child().is_some() {
        return Ok(None);
    }
    let away = place_of(agent, &task.host, &task.boot_id, task.place.as_ref())?;
    Ok(away.filter(|away| match away {
        // The supervisor there uses the same records, so it can settle the task at any time.
        Away::Machine { .. } => true,
        Away::Directory { .. } => now <= task_lease_ends(task),
    }))
}

/// Returns the place of a task that this machine can't settle. `None` in a store that machines
/// share: there the lease shows if the supervisor lives, and a supervisor on another machine learns
/// from the records that its task must end.
pub fn out_of_reach(agent: &Agent<'_>, task: &Task, now: Time) -> Result<Option<Away>> {
    if agent.store().properties().is_shared { Ok(None) } else { away_task(agent, task, now) }
}

fn place_of(agent: &Agent<'_>, host: &str, boot: &str, place: Option<&StatePlace>) -> Result<Option<Away>> {
    let is_same_boot = boot == host::boot_id();
    // Containers of one machine have different host names, but share its boot id and its locks.
    let is_here = is_same_boot || host == machine::name();
    let there = || Some(host.to_owned()).filter(|_| !is_here);
    let here = agent.store().local().state_place()?.id;
    let Some(place) = place.filter(|place| !place.id.is_same(here, is_same_boot)) else {
        return Ok(there().map(|host| Away::Machine { host }));
    };
    let is_known = !is_here || Anchor::is_at(&place.path, place.id);
    let path = Some(place.path.clone()).filter(|_| is_known);
    Ok(Some(Away::Directory { path, host: there() }))
}

/// Returns the time from which a run on another machine or in another directory counts as lost, or
/// the claim of another git clone is over; `None` without such a run or claim, or after that time.
pub fn given_up_at(agent: &Agent<'_>, state: &State, now: Time) -> Result<Option<Time>> {
    let is_away = away_run(agent, state, now)?.is_some();
    let run = state.current_run.as_ref().filter(|_| is_away);
    let taken = foreign_claim(agent, state, now)?;
    let ends = run.map(|run| run.lease_expires_at).into_iter().chain(taken.map(|by| by.expires_at));
    Ok(ends.max().map(|end| end.after(Span::from_millis(1))))
}

/// Adds the process that holds the run's lease to the report of a decision, if the records name no
/// run or a signal has stopped that process.
pub fn name_holder(agent: &Agent<'_>, report: &mut DecisionReport) -> Result<()> {
    if report.reason != Decision::TURN_IN_PROGRESS {
        return Ok(());
    }
    if let Some((holder, is_stopped)) = agent.local().lease_holder(Subject::Run)?
        && (is_stopped || report.run_id.is_none())
    {
        report.evidence.push(format!("its lease is held by {holder}"));
    }
    Ok(())
}

/// Returns the claim of another git clone on the agent, if it has not expired.
fn foreign_claim<'s>(agent: &Agent<'_>, state: &'s State, now: Time) -> Result<Option<&'s TickedBy>> {
    let Some(by) = state.ticked_by.as_ref().filter(|by| now <= by.expires_at) else { return Ok(None) };
    let is_own = agent.local().has_taken(&by.id)?;
    Ok(Some(by).filter(|_| !is_own))
}

/// Error when another git clone has claimed the agent, so that only that clone may step it.
pub fn refuse_foreign_claim(agent: &Agent<'_>, state: &State, now: Time) -> Result<()> {
    let Some(by) = foreign_claim(agent, state, now)? else { return Ok(()) };
    let name = agent.name();
    let message = format!("`{name}` is stepped by a clone on {} until {}", by.host, by.expires_at);
    Err(Error::refused("ticked_elsewhere", message)
        .with_hint(format!("if that clone does not come back: `dormouse recover {name} --force`")))
}
