//! Background tasks, seen from processes other than their supervisors: how to start, cancel and
//! settle one (contract, semantics §12).

use std::ffi::OsString;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::model::id::TaskId;
use crate::model::place::Away;
use crate::model::policy::FirstTold;
use crate::model::task::{Task, TaskStatus};
use crate::process::remains::Remains;
use crate::process::supervisor::{self, SupervisorSpec};
use crate::process::{Patience, ProcessMark};
use crate::rules::transition::draft::Draft;
use crate::rules::transition::task::{self as rules, TaskEnding};
use crate::store::{Agent, HeldLease, Store, Subject};

use super::context::Context;
use super::due::{SUPERVISOR_GONE, unseen};
use super::owner::away_task;
use super::patience::wait_until;
use super::session::Session;

/// Default time between SIGTERM and SIGKILL.
pub const KILL_GRACE: Duration = Duration::from_secs(5);
/// Time that a supervisor has to start its task, in addition to its wait for the agent's lock.
const BEGINS_IN: Duration = Duration::from_secs(10);
/// Time that a supervisor has to settle a task whose processes have ended. After that this process
/// settles it.
const SETTLES_IN: Duration = Duration::from_secs(10);

/// Starts the supervisor of a queued task, unless it was started already. If the supervisor fails
/// to start, the task ends and the error has the reason.
pub fn begin(session: &Session, store: &Store, agent: &Agent<'_>, id: TaskId) -> Result<()> {
    let Some(held) = agent.lease(Subject::Task(id), session.clock.now())? else { return Ok(()) };
    let task = agent.look(|seen, _| seen.open_one::<Task>(id))?;
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
    let patience = session.patience().as_std().saturating_add(BEGINS_IN);
    let dir = store.anchor().path();
    let place = store.local().state_place()?.id;
    let spec = SupervisorSpec { arguments: &arguments, dir, task_id: id.to_string(), place };
    let lock = agent.workdir().task(id).make().and_then(|()| held.share());
    let begun = lock.and_then(|lock| supervisor::start(&spec, lock, patience));
    let trouble = match begun {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(why)) => Error::failed(format!("{id} has not begun: {why}")),
        Err(error) => error,
    };
    settle(session, agent, id, &held, &format!("it has not begun: {trouble}"))?;
    Err(trouble)
}

/// Ends a task whose supervisor is gone: first its leftover processes, then the record and its
/// result. The end that the supervisor noted is used, if there is one.
pub fn settle(
    session: &Session,
    agent: &Agent<'_>,
    id: TaskId,
    _held: &HeldLease,
    why: &str,
) -> Result<Option<Task>> {
    remains(agent, id)?.end(KILL_GRACE)?;
    finish(session, agent, id, unseen(agent, id, why)?)
}

fn remains(agent: &Agent<'_>, id: TaskId) -> Result<Remains> {
    Remains::find(&ProcessMark::task(id), &agent.workdir().task(id).leader())
}

/// Commits the end of a task. Returns `None` if another process has done that.
pub fn finish(session: &Session, agent: &Agent<'_>, id: TaskId, end: TaskEnding) -> Result<Option<Task>> {
    Ok(Context::new(session, agent).change(|draft| rules::finish(draft, id, end))?.made)
}

/// Commits that a task which may still run on another machine is lost. Its processes are not
/// touched.
pub fn give_up(session: &Session, agent: &Agent<'_>, id: TaskId, away: &Away) -> Result<()> {
    session.out.note(&format!("{id} runs {away}: its processes are left alone"));
    finish(session, agent, id, TaskEnding::Lost(format!("given up for lost: it ran {away}"))).map(drop)
}

/// Marks those of the tasks that are still open as cancelled, in one transaction.
pub fn cancel(session: &Session, agent: &Agent<'_>, ids: &[TaskId]) -> Result<()> {
    let mark = |draft: &mut Draft| {
        ids.iter().try_for_each(|id| {
            let is_open = draft.records.tasks.iter().any(|task| task.id == *id);
            if is_open { rules::cancel(draft, *id).map(drop) } else { Ok(()) }
        })
    };
    Context::new(session, agent).change(mark).map(drop)
}

/// Ends the processes of cancelled tasks in parallel, and waits until each task is settled. If its
/// supervisor takes too long, this process settles the task.
pub fn end(session: &Session, agent: &Agent<'_>, ids: &[TaskId], grace: Duration) -> Result<()> {
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
    let task = agent.look(|seen, _| seen.open_one::<Task>(id))?;
    let elsewhere = task.map_or(Ok(None), |task| away_task(agent, &task, session.clock.now()))?;
    // A supervisor on another machine notices the cancellation later and then gives its command the
    // usual grace.
    let patience = if elsewhere.is_some() { SETTLES_IN + KILL_GRACE } else { SETTLES_IN };
    let is_settled = wait_until(patience, || {
        if !agent.look(|seen, _| seen.is_open::<Task>(id))? {
            return Ok(true);
        }
        if let Some(held) = agent.lease(Subject::Task(id), session.clock.now())? {
            settle(session, agent, id, &held, SUPERVISOR_GONE)?;
            return Ok(true);
        }
        looks += 1;
        if looks % 20 == 0 {
            // The supervisor may have started the command after the first look for its processes.
            remains(agent, id)?.end(grace)?;
        }
        Ok(false)
    })?;
    if let Some(away) = elsewhere.filter(|_| !is_settled) {
        return Err(Error::failed(format!(
            "{id} has not ended yet: it runs {away}, and its supervisor does not answer"
        ))
        .with_hint(
            "it is marked: it ends when that machine looks, or is interrupted when its lease has run out",
        ));
    }
    if !is_settled {
        let end = unseen(agent, id, "it was stopped, and its supervisor does not answer")?;
        finish(session, agent, id, end)?;
    }
    Ok(())
}
