//! Open tasks and who looks after them: begun, ended where nobody does, stopped (contract, semantics §12).

use std::ffi::OsString;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::model::agent::Status;
use crate::model::id::TaskId;
use crate::model::policy::FirstTold;
use crate::model::run::Terminal;
use crate::model::state::State;
use crate::model::task::{ChildEnd, Task, TaskJob, TaskStatus};
use crate::model::time::{Span, Time};
use crate::process::remains::Remains;
use crate::process::{Mark, Patience, host, supervisor};
use crate::rules::transition::draft::Draft;
use crate::rules::transition::task::{self as rules, End};
use crate::store::view::View;
use crate::store::{Agent, Store, layout, lock};

use super::delegate;
use super::desk::Desk;
use super::patience::wait_until;
use super::session::Session;

/// Why a task counts as interrupted.
const SUPERVISOR_GONE: &str = "its supervisor is gone";
/// Between SIGTERM and SIGKILL, where nobody says otherwise.
pub const KILL_GRACE: Duration = Duration::from_secs(5);
/// How long a supervisor has to begin, beyond its wait for the agent's lock.
const BEGINS_IN: Duration = Duration::from_secs(10);
/// How long a supervisor may take to settle a task whose processes are gone, before we do.
const SETTLES_IN: Duration = Duration::from_secs(10);

/// What has to be done about an open task, from outside it.
#[derive(Debug, Clone, PartialEq)]
pub enum Due {
    /// Its supervisor was never started.
    Begin,
    /// Its supervisor is gone.
    Settle,
    /// Its child has not been given the message.
    HandOver,
    /// Its child has come to an end.
    End(ChildEnd),
    /// Its child has to be stopped first.
    StopChild(ChildEnd),
}

/// What is due with the open tasks. Costs nothing where no task is open.
pub fn due(
    store: &Store,
    agent: &Agent<'_>,
    view: &View<'_>,
    state: &State,
    now: Time,
) -> Result<Vec<(Task, Due)>> {
    if state.open_tasks == 0 {
        return Ok(Vec::new());
    }
    due_with(store, agent, view.records(layout::TASKS)?, state, now)
}

fn due_with(
    store: &Store,
    agent: &Agent<'_>,
    tasks: Vec<Task>,
    state: &State,
    now: Time,
) -> Result<Vec<(Task, Due)>> {
    let mut found = Vec::new();
    for task in tasks {
        let due = match &task.job {
            TaskJob::Command { .. } => due_with_command(agent, state, &task)?,
            TaskJob::ChildAgent { .. } => delegate::due(store, &task, now)?,
        };
        // Behind a closed gate nobody is told anything new either.
        let due = due.filter(|due| *due != Due::HandOver || state.status != Status::Stopped);
        found.extend(due.map(|due| (task, due)));
    }
    Ok(found)
}

fn due_with_command(agent: &Agent<'_>, state: &State, task: &Task) -> Result<Option<Due>> {
    if task.status.is_terminal() || !is_here(task) || agent.is_supervised(task.id)? {
        return Ok(None);
    }
    // Behind a closed gate nothing begins: `stop` is about to end it.
    let begins = task.status == TaskStatus::Queued && state.status != Status::Stopped;
    Ok(Some(if begins { Due::Begin } else { Due::Settle }))
}

/// Whether its supervisor is, or was, on this machine.
pub fn is_here(task: &Task) -> bool {
    task.host == host::hostname() || task.boot_id == host::boot_id()
}

/// Does what is due. What fails is left for the next step: it must not keep the agent from its
/// other work.
pub fn look_after(session: &Session, store: &Store, agent: &Agent<'_>, due: &[(Task, Due)]) {
    for (task, due) in due {
        if let Err(error) = see_to(session, store, agent, task, due) {
            session.out.note(&format!("{}: {}: {error}", agent.name(), task.id));
        }
    }
}

fn see_to(session: &Session, store: &Store, agent: &Agent<'_>, task: &Task, due: &Due) -> Result<()> {
    match due {
        Due::Begin => begin(session, store, agent, task.id),
        Due::Settle => match agent.task_lock(task.id, session.clock.now())? {
            Some(held) => settle(session, agent, task.id, &held, SUPERVISOR_GONE).map(drop),
            None => Ok(()),
        },
        Due::HandOver => delegate::hand_over(session, store, agent, task.id),
        Due::End(end) => finish(session, agent, task.id, End::Child(end.clone())).map(drop),
        Due::StopChild(end) => {
            let grace = Span::from_secs(KILL_GRACE.as_secs());
            let released = delegate::stop_child(session, store, agent, task, grace)?;
            finish(session, agent, task.id, End::Child(end.clone()))?;
            released
        }
    }
}

/// Starts what looks after each task that is still to begin, or hands it over.
pub fn begin_queued(session: &Session, store: &Store, agent: &Agent<'_>, tasks: &[Task]) {
    let queued = tasks.iter().filter(|task| task.status == TaskStatus::Queued);
    let due: Vec<(Task, Due)> = queued
        .map(|task| {
            let due = match task.job {
                TaskJob::Command { .. } => Due::Begin,
                TaskJob::ChildAgent { .. } => Due::HandOver,
            };
            (task.clone(), due)
        })
        .collect();
    look_after(session, store, agent, &due);
}

/// Starts the supervisor of a queued task, unless somebody else has. One that doesn't begin ends
/// the task, and is the error.
pub fn begin(session: &Session, store: &Store, agent: &Agent<'_>, id: TaskId) -> Result<()> {
    let path = agent.dir().join(layout::task_lock(id));
    let Some(held) = agent.task_lock(id, session.clock.now())? else { return Ok(()) };
    let task = agent.consistently(|view, _| view.record::<Task>(&layout::task(id)))?;
    if task.is_none_or(|task| task.status != TaskStatus::Queued) {
        return Ok(());
    }
    let arguments = [
        OsString::from("--dir"),
        store.root().as_os_str().to_owned(),
        "supervise".into(),
        agent.name().as_str().into(),
        id.to_string().into(),
    ];
    let patience = session.patience().as_std().saturating_add(BEGINS_IN);
    let begun = agent
        .make_task_dir(id)
        .and_then(|()| held.share(&path))
        .and_then(|lock| supervisor::start(&arguments, store.root(), &id.to_string(), lock, patience));
    let trouble = match begun {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(why)) => Error::Failed { message: format!("{id} has not begun: {why}"), hint: None },
        Err(error) => error,
    };
    settle(session, agent, id, &held, &format!("it has not begun: {trouble}"))?;
    Err(trouble)
}

/// Ends a task that nobody looks after but us: first what is left of its processes, then the
/// record, with its result. One whose end was noted ends as it was seen to.
fn settle(
    session: &Session,
    agent: &Agent<'_>,
    id: TaskId,
    _held: &lock::Held,
    why: &str,
) -> Result<Option<Task>> {
    remains(agent, id)?.end(KILL_GRACE)?;
    finish(session, agent, id, unseen(agent, id, why)?)
}

fn unseen(agent: &Agent<'_>, id: TaskId, why: &str) -> Result<End> {
    Ok(match agent.noted_task_end(id)? {
        Some(seen) => End::Seen(seen),
        None => End::Lost(why.to_owned()),
    })
}

fn remains(agent: &Agent<'_>, id: TaskId) -> Result<Remains> {
    Remains::find(&Mark::task(id), &agent.dir().task_dir(id).join(layout::LEADER))
}

/// Commits the end of a task, unless somebody else has.
pub fn finish(session: &Session, agent: &Agent<'_>, id: TaskId, end: End) -> Result<Option<Task>> {
    Ok(Desk::new(session, agent).change(|draft| rules::finish(draft, id, end))?.made)
}

/// What the next step will make of the open tasks. `false`: nothing is due with them.
pub fn foresee(store: &Store, agent: &Agent<'_>, draft: &mut Draft) -> Result<bool> {
    let due = due_with(store, agent, draft.records.tasks.clone(), &draft.records.state, draft.now())?;
    let is_any = !due.is_empty();
    for (task, due) in due {
        let end = match due {
            Due::Begin => continue,
            Due::HandOver => match delegate::hindrance(store, agent.name(), &task)? {
                None => continue,
                Some(error) => End::Child(delegate::never_begun(&error)),
            },
            Due::Settle => unseen(agent, task.id, SUPERVISOR_GONE)?,
            Due::End(end) | Due::StopChild(end) => End::Child(end),
        };
        rules::finish(draft, task.id, end)?;
    }
    Ok(is_any)
}

/// Marks those of the tasks that are still open, in one transaction.
fn cancel(session: &Session, agent: &Agent<'_>, ids: &[TaskId]) -> Result<()> {
    let mark = |draft: &mut Draft| {
        ids.iter().try_for_each(|id| {
            let is_open = draft.records.tasks.iter().any(|task| task.id == *id);
            if is_open { rules::cancel(draft, *id).map(drop) } else { Ok(()) }
        })
    };
    Desk::new(session, agent).change(mark).map(drop)
}

/// Ends every task of a stopped agent. Returns which, and what went wrong on the way. Their results
/// are kept. A child that is at work for it is stopped.
pub fn stop_all(
    session: &Session,
    store: &Store,
    agent: &Agent<'_>,
    grace: Span,
) -> Result<(Vec<TaskId>, Result<()>)> {
    let open = agent.consistently(|view, _| view.records::<Task>(layout::TASKS))?;
    let (ours, elsewhere): (Vec<Task>, Vec<Task>) =
        open.into_iter().partition(|task| task.child().is_some() || is_here(task));
    for task in &elsewhere {
        session.out.note(&format!("{}: {} goes on: it runs on {}", agent.name(), task.id, task.host));
    }
    let ended = stop(session, store, agent, &ours, grace);
    Ok((ours.iter().map(|task| task.id).collect(), ended))
}

/// Ends what goes on in the background of an agent that its own failure has stopped. Where `stop` has
/// ended the run, it ends the tasks as well.
pub fn end_if_stopped(session: &Session, store: &Store, agent: &Agent<'_>, state: &State) {
    let by_stop = |terminal| matches!(terminal, Terminal::Aborted | Terminal::Completed);
    let was_stopped = state.last_turn.as_ref().is_some_and(|turn| by_stop(turn.terminal));
    if state.status != Status::Stopped || state.open_tasks == 0 || was_stopped {
        return;
    }
    let ended = agent
        .policy()
        .and_then(|policy| stop_all(session, store, agent, policy.timeouts.shutdown))
        .and_then(|(_, ended)| ended);
    if let Err(error) = ended {
        session.out.note(&format!("{}: its tasks have not all ended: {error}", agent.name()));
    }
}

/// Ends open tasks. Commands are ended all at once, and then child by child. Fails after all were
/// tried.
pub fn stop(session: &Session, store: &Store, agent: &Agent<'_>, tasks: &[Task], grace: Span) -> Result<()> {
    if tasks.is_empty() {
        return Ok(());
    }
    let all: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    cancel(session, agent, &all)?;
    let (children, commands): (Vec<&Task>, Vec<&Task>) =
        tasks.iter().partition(|task| task.child().is_some());
    let commands: Vec<TaskId> = commands.iter().map(|task| task.id).collect();
    let ended = end(session, agent, &commands, grace.as_std());
    children.into_iter().fold(ended, |before, task| {
        let stopped = delegate::stop_child(session, store, agent, task, grace).and_then(|released| {
            let end = ChildEnd::without_brief(TaskStatus::Cancelled, None);
            finish(session, agent, task.id, End::Child(end))?;
            released
        });
        before.and(stopped)
    })
}

/// Ends the processes of tasks that are marked, all at once, and sees to it that each is settled:
/// by its supervisor, or where that takes too long by us.
fn end(session: &Session, agent: &Agent<'_>, ids: &[TaskId], grace: Duration) -> Result<()> {
    let mut patience = Patience::of(grace);
    let mut found = ids.iter().map(|id| remains(agent, *id)).collect::<Result<Vec<_>>>()?;
    found.iter_mut().try_for_each(|remains| remains.ask(FirstTold::Group))?;
    for remains in found {
        remains.end_by(&mut patience)?;
    }
    ids.iter().try_for_each(|id| see_settled(session, agent, *id, grace))
}

fn see_settled(session: &Session, agent: &Agent<'_>, id: TaskId, grace: Duration) -> Result<()> {
    let mut looks = 0;
    let is_settled = wait_until(SETTLES_IN, || {
        if !agent.consistently(|view, _| view.exists(&layout::task(id)))? {
            return Ok(true);
        }
        if let Some(held) = agent.task_lock(id, session.clock.now())? {
            settle(session, agent, id, &held, SUPERVISOR_GONE)?;
            return Ok(true);
        }
        looks += 1;
        if looks % 20 == 0 {
            // The supervisor was about to start the command when its processes were looked for.
            remains(agent, id)?.end(grace)?;
        }
        Ok(false)
    })?;
    if !is_settled {
        let end = unseen(agent, id, "it was stopped, and its supervisor does not answer")?;
        finish(session, agent, id, end)?;
    }
    Ok(())
}
