//! Pending work for the open tasks of an agent, as seen from outside the tasks. Changes nothing.

use crate::error::{Error, Result};
use crate::model::agent::Status;
use crate::model::id::{AgentName, MessageId, TaskId};
use crate::model::state::State;
use crate::model::task::{ChildEnd, Task, TaskJob, TaskStatus};
use crate::model::time::Time;
use crate::rules::authority as rights;
use crate::rules::delegation::{self, Child};
use crate::rules::transition::draft::Draft;
use crate::rules::transition::task::{self as rules, TaskEnding};
use crate::store::{Agent, Snapshot, Store, Subject};

use super::load;
use super::lookup::{Whereabouts, whereabouts};
use super::new_agent::SETTINGS;
use super::owner::away_task;

/// Reason for which a task is recorded as interrupted.
pub const SUPERVISOR_GONE: &str = "its supervisor is gone";

/// Action that an open task needs from a step.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskAction {
    /// Start its supervisor, which was never started.
    Begin,
    /// Settle the task, whose supervisor is gone.
    Settle,
    /// Send the message to its child.
    HandOver,
    /// End the task, because its child has come to an end.
    End(ChildEnd),
    /// Stop its child, then end the task.
    StopChild(ChildEnd),
}

/// Returns the actions that the open tasks need. Reads no record if no task is open.
pub fn due(
    store: &Store,
    agent: &Agent<'_>,
    seen: &Snapshot<'_>,
    state: &State,
    now: Time,
) -> Result<Vec<(Task, TaskAction)>> {
    if state.open_tasks == 0 {
        return Ok(Vec::new());
    }
    due_with(store, agent, seen.open()?, state, now)
}

fn due_with(
    store: &Store,
    agent: &Agent<'_>,
    tasks: Vec<Task>,
    state: &State,
    now: Time,
) -> Result<Vec<(Task, TaskAction)>> {
    let mut found = Vec::new();
    for task in tasks {
        let due = match &task.job {
            TaskJob::Command { .. } => due_with_command(agent, state, &task, now)?,
            TaskJob::ChildAgent { .. } => due_with_child(store, &task, now)?,
        };
        // A stopped agent sends nothing new to a child.
        let due = due.filter(|due| *due != TaskAction::HandOver || state.status != Status::Stopped);
        found.extend(due.map(|due| (task, due)));
    }
    Ok(found)
}

fn due_with_command(agent: &Agent<'_>, state: &State, task: &Task, now: Time) -> Result<Option<TaskAction>> {
    if task.status.is_terminal() || !is_ours(agent, task, now)? || agent.is_leased(Subject::Task(task.id))? {
        return Ok(None);
    }
    // A stopped agent starts no task, because `stop` is about to end it.
    let begins = task.status == TaskStatus::Queued && state.status != Status::Stopped;
    Ok(Some(if begins { TaskAction::Begin } else { TaskAction::Settle }))
}

/// True if this machine may look after the task: where machines share a store, its lease says
/// whether its supervisor lives, and a supervisor on another machine sees in the records that its
/// task is to end.
pub fn is_ours(agent: &Agent<'_>, task: &Task, now: Time) -> Result<bool> {
    Ok(agent.store().is_remote() || away_task(agent, task, now)?.is_none())
}

/// Error when an agent is not a child of `parent`, or its `agent.toml` is invalid.
pub fn check(store: &Store, parent: &AgentName, child: &AgentName, policy: &str) -> Result<()> {
    match store.agent(child) {
        Ok(found) if found.identity()?.parent.as_ref() == Some(parent) => {
            // Delegating to a stopped child starts it again, unless its parent may not start it.
            let state = found.peek()?;
            match state.status {
                Status::Stopped => Ok(rights::may_start(&state, &rights::agent(parent))?),
                Status::Booting
                | Status::AwakeIdle
                | Status::AwakeRunning
                | Status::AwaitingTask
                | Status::Asleep => Ok(()),
            }
        }
        Ok(_) => Err(Error::refused("not_a_child", format!("`{child}` is not a child of `{parent}`"))
            .with_hint(format!(
                "send it a message with `dormouse enqueue {child}`, or delegate to a new name"
            ))),
        Err(Error::NoAgent { .. }) => store.local().policy_from(SETTINGS, policy).map(drop),
        Err(error) => Err(error),
    }
}

/// Returns the action that a delegation needs.
pub fn due_with_child(store: &Store, task: &Task, now: Time) -> Result<Option<TaskAction>> {
    let TaskJob::ChildAgent { child, message_id, assignment } = &task.job else { return Ok(None) };
    match task.status {
        TaskStatus::Cancelling => {
            return Ok(Some(TaskAction::StopChild(ChildEnd::without_brief(TaskStatus::Cancelled, None))));
        }
        TaskStatus::Queued if assignment.is_some() => return Ok(Some(TaskAction::HandOver)),
        TaskStatus::Queued | TaskStatus::Running => {}
        TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled | TaskStatus::Interrupted => {
            return Ok(None);
        }
    }
    if let Some(end) = how_it_ended(store, child, *message_id, now)? {
        return Ok(Some(TaskAction::End(end)));
    }
    let limit = task.timeout.filter(|limit| task.created_at.after(*limit) <= now);
    Ok(limit.map(|limit| {
        let reason = Some(format!("timed out after {limit}"));
        TaskAction::StopChild(ChildEnd::without_brief(TaskStatus::Failed, reason))
    }))
}

fn how_it_ended(
    store: &Store,
    child: &AgentName,
    message_id: MessageId,
    now: Time,
) -> Result<Option<ChildEnd>> {
    let agent = match store.agent(child) {
        Ok(agent) => agent,
        Err(Error::NoAgent { .. }) => {
            let reason = Some(format!("`{child}` is gone"));
            return Ok(Some(ChildEnd::without_brief(TaskStatus::Interrupted, reason)));
        }
        Err(error) => return Err(error),
    };
    // Most children are still at work, which one small read shows.
    let state = agent.peek()?;
    if state.current_run.is_some() || (state.status != Status::Stopped && state.held.is_some()) {
        return Ok(None);
    }
    let records = load::look(&agent, now)?;
    let settlement = match whereabouts(&agent, message_id)? {
        Whereabouts::Archived(message) => message.settlement,
        Whereabouts::Unknown | Whereabouts::InInbox => None,
    };
    Ok(delegation::end(&Child::new(&records, settlement)))
}

/// Returns the error for which a delegation can never be handed over, as far as a look without a
/// try can tell.
pub fn hindrance(store: &Store, parent: &AgentName, task: &Task) -> Result<Option<Error>> {
    let TaskJob::ChildAgent { child, assignment: Some(assignment), .. } = &task.job else { return Ok(None) };
    match check(store, parent, child, &assignment.policy) {
        Ok(()) => Ok(None),
        Err(error) if is_lasting(&error) => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// True if another try would fail in the same way.
pub fn is_lasting(error: &Error) -> bool {
    matches!(error, Error::Refused { .. } | Error::NoEdge { .. } | Error::Damaged { .. })
}

/// Returns the end of a delegation that could not be handed over.
pub fn never_begun(error: &Error) -> ChildEnd {
    ChildEnd::without_brief(TaskStatus::Failed, Some(error.to_string()))
}

/// Returns the end of a task whose supervisor is gone: the one that the supervisor has noted, else
/// an unknown end with the reason `why`.
pub fn unseen(agent: &Agent<'_>, id: TaskId, why: &str) -> Result<TaskEnding> {
    Ok(match agent.workdir().task(id).noted_end()? {
        Some(seen) => TaskEnding::Seen(seen),
        None => TaskEnding::Lost(why.to_owned()),
    })
}

/// Applies the changes that the next step would make to open tasks to a draft. Returns false if
/// there are none.
pub fn preview(store: &Store, agent: &Agent<'_>, draft: &mut Draft) -> Result<bool> {
    let due = due_with(store, agent, draft.records.tasks.clone(), &draft.records.state, draft.now())?;
    let is_any = !due.is_empty();
    for (task, due) in due {
        let end = match due {
            TaskAction::Begin => continue,
            TaskAction::HandOver => match hindrance(store, agent.name(), &task)? {
                None => continue,
                Some(error) => TaskEnding::Child(never_begun(&error)),
            },
            TaskAction::Settle => unseen(agent, task.id, SUPERVISOR_GONE)?,
            TaskAction::End(end) | TaskAction::StopChild(end) => TaskEnding::Child(end),
        };
        rules::finish(draft, task.id, end)?;
    }
    Ok(is_any)
}
