//! Place of a run or a task: this state directory on this machine, or another one.

use crate::error::{Error, Result};
use crate::model::decision::{Decision, DecisionReport};
use crate::model::place::{Away, StatePlace};
use crate::model::state::{CurrentRun, State, TickedBy};
use crate::model::task::Task;
use crate::model::time::{Span, Time};
use crate::process::host;
use crate::rules::clock::task_lease_ends;
use crate::store::anchor::Anchor;
use crate::store::{Agent, Subject};

/// Reason for which a run is recorded as interrupted.
pub const TICK_GONE: &str = "its tick is gone";

/// Returns the place of a current run, if that is another machine or state directory and its lease
/// has not ended. For a run of this directory the lock tells whether it lives.
pub fn away(agent: &Agent<'_>, run: &CurrentRun, now: Time) -> Result<Option<Away>> {
    if agent.store().is_remote() {
        // Machines that share a store ask it whether the other one lives, and compare no clocks.
        // Two containers of one machine count as two machines.
        let machine = || Away::Machine { host: run.host.clone() };
        return Ok(agent.is_leased_elsewhere(Subject::Run)?.then(machine));
    }
    if now > run.lease_expires_at {
        return Ok(None);
    }
    place_of(agent, &run.host, &run.boot_id, Some(&run.place))
}

/// Returns the place of the agent's current run, if it has one elsewhere.
pub fn away_run(agent: &Agent<'_>, state: &State, now: Time) -> Result<Option<Away>> {
    state.current_run.as_ref().map_or(Ok(None), |run| away(agent, run, now))
}

/// Returns the place of a task's supervisor, if that is another machine, or another state directory
/// and the lease of the task has not ended.
pub fn away_task(agent: &Agent<'_>, task: &Task, now: Time) -> Result<Option<Away>> {
    if task.child().is_some() {
        return Ok(None);
    }
    let away = place_of(agent, &task.host, &task.boot_id, task.place.as_ref())?;
    Ok(away.filter(|away| match away {
        // The supervisor on that machine reads the same records, and settles its task there.
        Away::Machine { .. } => true,
        Away::Directory { .. } => now <= task_lease_ends(task),
    }))
}

fn place_of(agent: &Agent<'_>, host: &str, boot: &str, place: Option<&StatePlace>) -> Result<Option<Away>> {
    let is_same_boot = boot == host::boot_id();
    // Containers of one machine differ in hostname, but share the boot id and the locks.
    let is_here = is_same_boot || host == host::hostname();
    let there = || Some(host.to_owned()).filter(|_| !is_here);
    let here = agent.store().local().state_place()?.id;
    let Some(place) = place.filter(|place| !place.id.is_same(here, is_same_boot)) else {
        return Ok(there().map(|host| Away::Machine { host }));
    };
    let is_known = !is_here || Anchor::is_at(&place.path, place.id);
    let path = Some(place.path.clone()).filter(|_| is_known);
    Ok(Some(Away::Directory { path, host: there() }))
}

/// True if the agent is stepped elsewhere: its run is there, or another clone has taken it.
pub fn is_elsewhere(agent: &Agent<'_>, state: &State, now: Time) -> Result<bool> {
    Ok(given_up_at(agent, state, now)?.is_some())
}

/// Returns the time from which a run elsewhere counts as lost, because its machine may be gone.
pub fn given_up_at(agent: &Agent<'_>, state: &State, now: Time) -> Result<Option<Time>> {
    let mut run = state.current_run.as_ref();
    if let Some(current) = run
        && away(agent, current, now)?.is_none()
    {
        run = None;
    }
    let taken = taken_elsewhere(agent, state, now)?;
    let ends = run.map(|run| run.lease_expires_at).into_iter().chain(taken.map(|by| by.expires_at));
    Ok(ends.max().map(|end| end.after(Span::from_millis(1))))
}

/// Adds the process that has the lease of a run to the report of a decision, if the records name no
/// run or that process is stopped.
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

/// Returns the other clone that has taken the agent, if its time is not over.
pub fn taken_elsewhere<'s>(agent: &Agent<'_>, state: &'s State, now: Time) -> Result<Option<&'s TickedBy>> {
    let Some(by) = state.ticked_by.as_ref().filter(|by| now <= by.expires_at) else { return Ok(None) };
    let is_own = agent.local().has_taken(&by.id)?;
    Ok(Some(by).filter(|_| !is_own))
}

/// Fails if another clone has taken the agent.
pub fn refuse_taken_elsewhere(agent: &Agent<'_>, state: &State, now: Time) -> Result<()> {
    let Some(by) = taken_elsewhere(agent, state, now)? else { return Ok(()) };
    let name = agent.name();
    Err(Error::refused(
        "ticked_elsewhere",
        format!("`{name}` is stepped by a clone on {} until {}", by.host, by.expires_at),
    )
    .with_hint(format!("if that clone is gone for good: `dormouse recover {name} --force`")))
}
