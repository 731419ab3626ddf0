//! Checks of a state directory, which change nothing. `doctor` reports the findings, and repairs
//! those with only one correct repair; an import refuses an agent with a finding (FORMAT §6). The
//! store checks single files; this module checks that their records agree.

use std::convert::Infallible;

use super::environment;
use super::owner::{away, away_task};
use crate::error::Result;
use crate::model::agent::Status;
use crate::model::execution::ExecutionState;
use crate::model::place::Away;
use crate::model::records::BrokenWait;
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::time::Time;
use crate::model::wait::Wait;
use crate::rules::clock::task_lease_ends;
use crate::rules::execution::agrees;
use crate::rules::waits::broken;
use crate::store::{
    Agent, AsFiles, Checkup, DirStore, Finding, FindingSubject, ReadableRecords, Remedy, Store,
};

/// Checks settings, policies, states and journals, without a lock.
///
/// If the records are in a database, checks only the store, not the agents.
pub fn quick(store: &Store, now: Time) -> Result<Vec<Finding>> {
    let mut findings = store.findings(now, true)?;
    for files in store.files().map_or(Ok(Vec::new()), DirStore::all)? {
        let mut checkup = Checkup::new(&files);
        essentials(&mut checkup);
        findings.append(&mut checkup.findings);
    }
    Ok(findings)
}

/// Checks every record of one agent. Without its lock, findings may be about an unfinished commit.
pub fn agent<'a>(of: &'a AsFiles<'_>) -> Checkup<'a> {
    let (agent, mut checkup) = (of.agent(), Checkup::new(of.files()));
    if let Some(state) = essentials(&mut checkup) {
        let open = checkup.open();
        references(&mut checkup, &state, &open);
        waits(&mut checkup, &open);
        triggers(&mut checkup, &open);
        turn_command(agent, &mut checkup, &state);
        let (dead, counted) = (checkup.history(&state), state.counters.dead);
        if dead != counted {
            let message = format!("{counted} dead letters are counted, {dead} are in the archive");
            checkup.find(FindingSubject::State, "dead_count", message, Remedy::Recount(dead, open.outbox));
        }
        let (found, counted) = (open.outbox.messages, state.outbox.messages);
        if found != counted {
            let message =
                format!("{counted} messages to other agents are counted, {found} are in the outbox");
            checkup.find(FindingSubject::State, "outbox_count", message, Remedy::Recount(dead, open.outbox));
        }
    }
    checkup.rights();
    checkup
}

/// Checks the files that every step reads, and that the fields of `state.json` agree.
fn essentials(checkup: &mut Checkup<'_>) -> Option<State> {
    let state = checkup.essentials()?;
    let mut find = |kind, message, remedy| checkup.find(FindingSubject::State, kind, message, remedy);
    if let Some(mark) = &state.attention {
        let newest = mark.newest.last().map(|newest| format!(": {newest}")).unwrap_or_default();
        let message = format!("{} since {}{newest}", mark.count, mark.since);
        find("needs_attention", message, Remedy::ACKNOWLEDGE);
    }
    for question in state.asked.iter().filter(|_| state.status != Status::Stopped) {
        find("asked", question.clone().shown(&state.agent).to_string(), Remedy::CONSIDER);
    }
    let execution = state.execution.state;
    if !agrees(execution, state.status) {
        let message = format!("status `{}` does not go with execution state `{execution}`", state.status);
        find("status_table", message, Remedy::NONE);
    }
    let goes = |is: bool| if is { "without" } else { "with" };
    let in_a_run = matches!(
        execution,
        ExecutionState::Scheduled
            | ExecutionState::Running
            | ExecutionState::Resumed
            | ExecutionState::ShuttingDown
    );
    if in_a_run != state.current_run.is_some() {
        let message = format!("execution state `{execution}` {} a current run", goes(in_a_run));
        find("current_run", message, Remedy::NONE);
    }
    let is_held = matches!(execution, ExecutionState::Suspended | ExecutionState::WaitingResources);
    if is_held != state.held.is_some() && state.status != Status::Stopped {
        find("held_run", format!("execution state `{execution}` {} a held run", goes(is_held)), Remedy::NONE);
    }
    Some(state)
}

/// Warns of a run or task in another state directory, if this one is a copy of that directory.
pub fn elsewhere(checkup: &mut Checkup<'_>, agent: &Agent<'_>, now: Time) -> Result<()> {
    let (state, tasks) = agent.read(|seen, state| Ok((state, seen.open::<Task>()?)))?;
    let name = agent.name();
    if let Some(run) = &state.current_run
        && let Some(away @ Away::Directory { .. }) = away(agent, run, now)?
    {
        let (id, until) = (run.run_id, run.lease_expires_at);
        let message = format!(
            "{id} runs {away}: until {until} it is left alone here; `dormouse recover {name} --force` tries it again"
        );
        checkup.find(FindingSubject::State, "turn_elsewhere", message, Remedy::CONSIDER);
    }
    for task in tasks {
        if let Some(away @ Away::Directory { .. }) = away_task(agent, &task, now)? {
            let (id, until) = (task.id, task_lease_ends(&task));
            let message = format!(
                "it runs {away}: until {until} it is left alone here; `dormouse task stop {id} --force` gives it up"
            );
            checkup.find(FindingSubject::Task(id), "task_elsewhere", message, Remedy::CONSIDER);
        }
    }
    Ok(())
}

/// Checks that the records that `state.json` names exist, and that no ended record is left open.
fn references(checkup: &mut Checkup<'_>, state: &State, open: &ReadableRecords) {
    let mut find = |kind, message| checkup.find(FindingSubject::State, kind, message, Remedy::NONE);
    if state.open_tasks == 0 && !open.tasks.is_empty() {
        find("task_count", format!("it says that no task is open, but there are {}", open.tasks.len()));
    }
    if let Some(focus) = state.focus.filter(|id| !open.works.iter().any(|item| item.id == *id)) {
        find("dangling_focus", format!("{focus} is not an open work item"));
    }
    let claimed = state.current_run.as_ref().map(|run| run.message_id);
    if let Some(id) = claimed.filter(|id| !open.queued.contains(id)) {
        find("dangling_message", format!("{id} is claimed and not in the inbox"));
    }
    for task in open.tasks.iter().filter(|task| task.status.is_terminal()) {
        let message = format!("a {} task belongs into the archive", task.status);
        checkup.find(FindingSubject::Task(task.id), "not_open", message, Remedy::Quarantine);
    }
}

/// Reports a turn command that can't be started, because every turn of the agent would fail.
fn turn_command(agent: &Agent<'_>, checkup: &mut Checkup<'_>, state: &State) {
    // An unreadable policy is reported by another check.
    let Ok(policy) = agent.policy() else { return };
    let is_unused = matches!(state.status, Status::Booting | Status::Stopped);
    let fault = match &policy.turn.command {
        None if is_unused => None,
        None => Some(
            "it names no turn.command, so that messages wait: set it to the program that the agent runs"
                .to_owned(),
        ),
        Some(_) => environment::fault(agent, &policy),
    };
    if let Some(message) = fault {
        checkup.find(FindingSubject::Policy, "turn_command", message, Remedy::CONSIDER);
    }
}

/// Checks that the records to which waits refer exist.
fn waits(checkup: &mut Checkup<'_>, open: &ReadableRecords) {
    for wait in &open.waits {
        let mut find =
            |kind, message, remedy| checkup.find(FindingSubject::Wait(wait.id), kind, message, remedy);
        if let Some(item) = wait.work_item_id.filter(|id| !open.works.iter().any(|item| item.id == *id)) {
            find("dangling_wait", format!("{item} is not an open work item"), Remedy::NONE);
        }
        if let Some(id) = wait.trigger_id.filter(|id| !open.triggers.iter().any(|trigger| trigger.id == *id))
        {
            let message = format!("{id} is not an active trigger: none of its deliveries ends this wait");
            find("dangling_wait", message, Remedy::NONE);
        }
        if let Some(why) = lacks(wait, open) {
            find("broken_wait", format!("{why}; the next step repairs the wait"), Remedy::NONE);
        }
        if !wait.is_active() {
            let message = format!("a {} wait belongs into the archive", wait.status);
            find("not_open", message, Remedy::Quarantine);
        }
    }
}

/// Returns text about the message that would end a wait and that is missing in the inbox.
fn lacks(wait: &Wait, open: &ReadableRecords) -> Option<&'static str> {
    let is_queued = |message| Ok::<_, Infallible>(open.queued.contains(&message));
    let has_result = |task, known| match known {
        Some(message) => is_queued(message),
        None => Ok(open.results.contains(&task)),
    };
    let Ok(broken) = broken(wait, &open.tasks, is_queued, has_result);
    broken.first().map(|broken| match broken {
        BrokenWait::RecheckGone(_) => "the message that tells the agent to look is gone",
        BrokenWait::AnswerGone(..) => "the message that it is bound to is gone",
        BrokenWait::TaskGone(_) => "its task has ended, and no result of it is under way",
    })
}

/// Checks that the waits to which triggers refer are active.
fn triggers(checkup: &mut Checkup<'_>, open: &ReadableRecords) {
    for trigger in &open.triggers {
        let ended = trigger.scope.wait_id().filter(|id| !open.waits.iter().any(|wait| wait.id == *id));
        if let Some(id) = ended {
            let message = format!("{id}, which it is scoped to, is not an active wait: revoke it");
            checkup.find(FindingSubject::Trigger(trigger.id), "dangling_trigger", message, Remedy::NONE);
        }
    }
}
