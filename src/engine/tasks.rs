//! Start, cancellation and settlement of background tasks and delegations, by processes other than
//! the task's supervisor (contract, semantics §12).

use std::ffi::OsString;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::local::Subject;
use crate::model::agent::Status;
use crate::model::id::{AgentName, MessageId, TaskId};
use crate::model::place::Away;
use crate::model::policy::EndOrder;
use crate::model::state::State;
use crate::model::task::{ChildEnd, Task, TaskJob, TaskStatus};
use crate::model::time::Time;
use crate::process::leftover::LeftoverProcesses;
use crate::process::{Patience, ProcessMark, supervisor, wait_until};
use crate::rules::authority as rights;
use crate::rules::delegation;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::task::{self as rules, TaskEnding};
use crate::store::{Agent, HeldLease, Store};

use super::context::Context;
use super::load;
use super::lookup::{existing, settled};
use super::monitor::KILL_GRACE;
use super::new_agent::SETTINGS;
use super::owner::{away_task, out_of_reach};

/// Time that a supervisor gets to start its task, in addition to the timeout of the agent's lock.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a supervisor gets to settle a task whose processes have ended. After that, the process
/// that has ended them settles the task.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts the supervisor of a queued task, unless it was started already. If the supervisor fails
/// to start, the task ends and the error has the reason.
pub fn begin(context: Context<'_>, id: TaskId) -> Result<()> {
    let Context { session, agent } = context;
    let store = context.store();
    let Some(held) = agent.lease(Subject::Task(id), session.clock.now())? else { return Ok(()) };
    let task = agent.read(|seen, _| seen.open_one::<Task>(id))?;
    if task.is_none_or(|task| task.status != TaskStatus::Queued) {
        return Ok(());
    }
    let arguments = [
        OsString::from("--dir"),
        store.anchor().path().into(),
        "supervise".into(),
        agent.name().as_str().into(),
        id.to_string().into(),
    ];
    let patience = session.patience().as_std().saturating_add(START_TIMEOUT);
    let dir = store.anchor().path();
    let place = store.local().state_place()?.id;
    let lock = agent.local().task(id).cap.make_dirs().and_then(|()| held.share());
    let begun = lock.and_then(|lock| supervisor::start(id, &arguments, dir, place, lock, patience));
    let error = match begun {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(why)) => Error::failed(format!("{id} has not begun: {why}")),
        Err(error) => error,
    };
    settle(context, id, &held, &format!("it has not begun: {error}"))?;
    Err(error)
}

/// Ends a task whose supervisor is gone: first its leftover processes, then its record, with the
/// end that the supervisor noted, if any.
pub fn settle(context: Context<'_>, id: TaskId, _held: &HeldLease, why: &str) -> Result<Option<Task>> {
    let agent = context.agent;
    leftover(agent, id)?.end(KILL_GRACE)?;
    finish(context, id, recorded_end(agent, id, why)?)
}

fn leftover(agent: &Agent<'_>, id: TaskId) -> Result<LeftoverProcesses> {
    LeftoverProcesses::find(&ProcessMark::task(id), &agent.local().task(id).leader())
}

/// Commits the end of a task. Returns `None` if another process has already ended it.
pub fn finish(context: Context<'_>, id: TaskId, end: TaskEnding) -> Result<Option<Task>> {
    Ok(context.change(|draft| rules::finish(draft, id, end))?.made)
}

/// Commits that a task is lost, and leaves its processes, which may run on another machine, alone.
pub fn give_up(context: Context<'_>, id: TaskId, away: &Away) -> Result<()> {
    context.session.out.note(&format!("{id} runs {away}: its processes are left alone"));
    finish(context, id, TaskEnding::Lost(format!("counted as lost: it ran {away}"))).map(drop)
}

/// Marks the tasks in `ids` that are still open as cancelled, in one transaction.
pub fn cancel(context: Context<'_>, ids: &[TaskId]) -> Result<()> {
    let mark = |draft: &mut Draft| {
        ids.iter().try_for_each(|id| {
            let is_open = draft.records.tasks.iter().any(|task| task.id == *id);
            if is_open { rules::cancel(draft, *id).map(drop) } else { Ok(()) }
        })
    };
    context.change(mark).map(drop)
}

/// Ends the processes of cancelled tasks in parallel, and waits until each task is settled. If a
/// supervisor takes too long, this process settles its task.
pub fn end(context: Context<'_>, ids: &[TaskId], grace: Duration) -> Result<()> {
    let mut patience = Patience::of(grace);
    let mut found = ids.iter().map(|id| leftover(context.agent, *id)).collect::<Result<Vec<_>>>()?;
    found.iter_mut().try_for_each(|leftover| leftover.ask(EndOrder::Group))?;
    for leftover in found {
        leftover.end_by(&mut patience)?;
    }
    ids.iter().try_for_each(|id| await_settled(context, *id, grace))
}

fn await_settled(context: Context<'_>, id: TaskId, grace: Duration) -> Result<()> {
    let Context { session, agent } = context;
    let mut looks = 0;
    let task = agent.read(|seen, _| seen.open_one::<Task>(id))?;
    let elsewhere = task.map_or(Ok(None), |task| away_task(agent, &task, session.clock.now()))?;
    // A supervisor on another machine notices the cancellation later, and gives its command
    // `KILL_GRACE`.
    let patience = if elsewhere.is_some() { SETTLE_TIMEOUT + KILL_GRACE } else { SETTLE_TIMEOUT };
    let is_settled = wait_until(patience, || {
        if !agent.read(|seen, _| seen.is_open::<Task>(id))? {
            return Ok(true);
        }
        if let Some(held) = agent.lease(Subject::Task(id), session.clock.now())? {
            settle(context, id, &held, SUPERVISOR_GONE)?;
            return Ok(true);
        }
        looks += 1;
        if looks % 20 == 0 {
            // The supervisor may have started the command after the previous search.
            leftover(agent, id)?.end(grace)?;
        }
        Ok(false)
    })?;
    if let Some(away) = elsewhere.filter(|_| !is_settled) {
        let message = format!("{id} has not ended yet: it runs {away}, and its supervisor does not answer");
        return Err(Error::failed(message)
            .with_hint("it is marked: it ends when that machine reads the mark, or when its lease expires"));
    }
    if !is_settled {
        let end = recorded_end(agent, id, "it was stopped, and its supervisor does not answer")?;
        finish(context, id, end)?;
    }
    Ok(())
}

/// Reason with which a task is recorded as interrupted.
pub const SUPERVISOR_GONE: &str = "its supervisor is gone";

/// Action of a step on a task that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskAction {
    /// Start the supervisor, which was never started.
    Begin,
    /// Settle the task, because its supervisor is gone.
    Settle,
    /// Hand the message of a delegation over to the child.
    HandOver,
    /// End the task, because the child has completed, failed, stopped or disappeared.
    End(ChildEnd),
    /// Stop the child, then end the task.
    StopChild(ChildEnd),
}

/// Returns those of `tasks` that need an action of this machine, each with the action.
pub fn due(agent: &Agent<'_>, tasks: Vec<Task>, state: &State, now: Time) -> Result<Vec<(Task, TaskAction)>> {
    let mut found = Vec::new();
    for task in tasks {
        let due = match &task.job {
            TaskJob::Command { .. } => due_with_command(agent, state, &task, now)?,
            TaskJob::ChildAgent { .. } => due_with_child(agent.store(), &task, now)?,
        };
        // A stopped agent does not send the messages of its delegations to children.
        let due = due.filter(|due| *due != TaskAction::HandOver || state.status != Status::Stopped);
        found.extend(due.map(|due| (task, due)));
    }
    Ok(found)
}

fn due_with_command(agent: &Agent<'_>, state: &State, task: &Task, now: Time) -> Result<Option<TaskAction>> {
    let is_over = task.status.is_terminal() || out_of_reach(agent, task, now)?.is_some();
    if is_over || agent.is_leased(Subject::Task(task.id))? {
        return Ok(None);
    }
    // A stopped agent starts no task, because `stop` is about to end its tasks.
    let begins = task.status == TaskStatus::Queued && state.status != Status::Stopped;
    Ok(Some(if begins { TaskAction::Begin } else { TaskAction::Settle }))
}

/// Error when `parent` can't delegate to `child`: not its child, not startable, invalid settings.
pub fn check(store: &Store, parent: &AgentName, child: &AgentName, policy: &str) -> Result<()> {
    let Some(found) = existing(store, child)? else {
        return store.local().policy_from(SETTINGS, policy).map(drop);
    };
    if found.identity()?.parent.as_ref() != Some(parent) {
        return Err(Error::refused("not_a_child", format!("`{child}` is not a child of `{parent}`"))
            .with_hint(format!(
                "send it a message with `dormouse enqueue {child}`, or delegate to a new name"
            )));
    }
    // A stopped child is started for a delegation, if the parent may start it.
    let state = found.peek()?;
    if state.status == Status::Stopped {
        rights::may_start(&state, &rights::agent(parent))?;
    }
    Ok(())
}

/// Returns the action that a delegation needs; `None` while the child works.
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
    if let Some(end) = child_end(store, child, *message_id, now)? {
        return Ok(Some(TaskAction::End(end)));
    }
    let limit = task.timeout.filter(|limit| task.created_at.after(*limit) <= now);
    Ok(limit.map(|limit| {
        let reason = Some(format!("timed out after {limit}"));
        TaskAction::StopChild(ChildEnd::without_brief(TaskStatus::Failed, reason))
    }))
}

fn child_end(store: &Store, child: &AgentName, message_id: MessageId, now: Time) -> Result<Option<ChildEnd>> {
    let Some(agent) = existing(store, child)? else {
        let reason = Some(format!("`{child}` is gone"));
        return Ok(Some(ChildEnd::without_brief(TaskStatus::Interrupted, reason)));
    };
    // Most children are still at work, which this small read shows without loading all records.
    let state = agent.peek()?;
    if state.current_run.is_some() || (state.status != Status::Stopped && state.held.is_some()) {
        return Ok(None);
    }
    let records = load::load_unlocked(&agent, now)?;
    Ok(delegation::end(&records, settled(&agent, message_id)?.as_ref()))
}

/// Returns the end of a delegation whose message can never be sent because of this error; `None` if
/// a retry may succeed.
pub fn permanent_end(error: &Error) -> Option<ChildEnd> {
    let is_lasting = matches!(error, Error::Refused { .. } | Error::Damaged { .. });
    is_lasting.then(|| ChildEnd::without_brief(TaskStatus::Failed, Some(error.to_string())))
}

/// Returns the end of a task whose supervisor is gone: the noted end, else an unknown end with the
/// reason `why`.
pub fn recorded_end(agent: &Agent<'_>, id: TaskId, why: &str) -> Result<TaskEnding> {
    Ok(match agent.local().task(id).read_end()? {
        Some(seen) => TaskEnding::Seen(seen),
        None => TaskEnding::Lost(why.to_owned()),
    })
}

/// Applies the ends of tasks that the next step would record to a dry run. False if none is due.
pub fn preview(agent: &Agent<'_>, draft: &mut Draft) -> Result<bool> {
    let due = due(agent, draft.records.tasks.clone(), &draft.records.state, draft.now())?;
    let has_due = !due.is_empty();
    for (task, due) in due {
        let end = match due {
            TaskAction::Begin => continue,
            TaskAction::HandOver => {
                let TaskJob::ChildAgent { child, assignment: Some(assignment), .. } = &task.job else {
                    continue;
                };
                match check(agent.store(), agent.name(), child, &assignment.policy) {
                    Ok(()) => continue,
                    Err(error) => TaskEnding::Child(permanent_end(&error).ok_or(error)?),
                }
            }
            TaskAction::Settle => recorded_end(agent, task.id, SUPERVISOR_GONE)?,
            TaskAction::End(end) | TaskAction::StopChild(end) => TaskEnding::Child(end),
        };
        rules::finish(draft, task.id, end)?;
    }
    Ok(has_due)
}
