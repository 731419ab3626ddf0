//! Delegation: a task whose work is that of a child agent (contract, turns).

use crate::error::{Error, Result};
use crate::model::agent::Status;
use crate::model::id::{AgentName, MessageId, TaskId};
use crate::model::task::{Assignment, ChildEnd, Task, TaskJob, TaskStatus};
use crate::model::time::{Span, Time};
use crate::rules::authority as rights;
use crate::rules::delegation::{self, Child};
use crate::rules::transition::inbox as arrivals;
use crate::rules::transition::task::{self as rules, End};
use crate::store::view::View;
use crate::store::{Agent, Store, inbox, layout};

use super::background::{self, Due};
use super::create::{New, make};
use super::desk::Desk;
use super::lifecycle::{Stop, open_gate, stop_agent};
use super::load::{self};
use super::lookup::{Whereabouts, whereabouts};
use super::outbox;
use super::secret::Secret;
use super::session::Session;

/// Why a child's message is dropped whose delegation was cancelled.
const CANCELLED: &str = "delegation_cancelled";

/// Refuses a child that isn't one, and an `agent.toml` that would not do.
pub fn check(store: &Store, parent: &AgentName, child: &AgentName, policy: &str) -> Result<()> {
    match store.agent(child) {
        Ok(found) if found.identity()?.parent.as_ref() == Some(parent) => {
            // One that was stopped is started again for this, unless that is not for its parent to do.
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
        Ok(_) => Err(Error::Refused {
            kind: "not_a_child",
            message: format!("`{child}` is not a child of `{parent}`"),
            hint: Some(format!(
                "send it a message with `dormouse enqueue {child}`, or delegate to a new name"
            )),
        }),
        Err(Error::NoAgent { .. }) => {
            store.policy_from(std::path::Path::new(layout::POLICY), policy).map(drop)
        }
        Err(error) => Err(error),
    }
}

/// What is due with a delegation.
pub fn due(store: &Store, task: &Task, now: Time) -> Result<Option<Due>> {
    let TaskJob::ChildAgent { child, message_id, assignment } = &task.job else { return Ok(None) };
    match task.status {
        TaskStatus::Cancelling => {
            return Ok(Some(Due::StopChild(ChildEnd::without_brief(TaskStatus::Cancelled, None))));
        }
        TaskStatus::Queued if assignment.is_some() => return Ok(Some(Due::HandOver)),
        TaskStatus::Queued | TaskStatus::Running => {}
        TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled | TaskStatus::Interrupted => {
            return Ok(None);
        }
    }
    if let Some(end) = how_it_ended(store, child, *message_id, now)? {
        return Ok(Some(Due::End(end)));
    }
    let limit = task.timeout.filter(|limit| task.created_at.after(*limit) <= now);
    Ok(limit.map(|limit| {
        let reason = Some(format!("timed out after {limit}"));
        Due::StopChild(ChildEnd::without_brief(TaskStatus::Failed, reason))
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
    // Mostly it is still at work: then one small read tells.
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

/// Makes and starts the child where that is to be done, and gives it the message: once, however
/// often this is tried, and by one at a time. Whoever finds somebody at it leaves it to them.
pub fn hand_over(session: &Session, store: &Store, parent: &Agent<'_>, id: TaskId) -> Result<()> {
    let Some(_held) = parent.task_lock(id, session.clock.now())? else { return Ok(()) };
    let Some((child, assignment)) = still_to_give(parent, id)? else { return Ok(()) };
    match make_ready(session, store, parent.name(), &child, &assignment.policy) {
        Ok(()) => {}
        Err(error) if is_lasting(&error) => {
            background::finish(session, parent, id, End::Child(never_begun(&error)))?;
            return Err(error);
        }
        Err(error) => return Err(error),
    }
    // It may have been stopped meanwhile: the start of a child can take long.
    if still_to_give(parent, id)?.is_none() {
        return Ok(());
    }
    outbox::put(session, store, &child, &[&assignment.message])?;
    Desk::new(session, parent).change(|draft| rules::handed_over(draft, id)).map(drop)
}

/// Why a delegation that is to be handed over will never be, as far as that shows before anybody tries.
pub fn hindrance(store: &Store, parent: &AgentName, task: &Task) -> Result<Option<Error>> {
    let TaskJob::ChildAgent { child, assignment: Some(assignment), .. } = &task.job else { return Ok(None) };
    match check(store, parent, child, &assignment.policy) {
        Ok(()) => Ok(None),
        Err(error) if is_lasting(&error) => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// Whether another try would go no better.
fn is_lasting(error: &Error) -> bool {
    matches!(error, Error::Refused { .. } | Error::NoEdge { .. } | Error::Damaged { .. })
}

/// The end of a delegation that could not be handed over.
pub fn never_begun(error: &Error) -> ChildEnd {
    ChildEnd::without_brief(TaskStatus::Failed, Some(error.to_string()))
}

/// What a delegation has to give to its child, and to which.
fn still_to_give(parent: &Agent<'_>, id: TaskId) -> Result<Option<(AgentName, Box<Assignment>)>> {
    let task = parent.consistently(|view, _| view.record::<Task>(&layout::task(id)))?;
    Ok(task.filter(|task| task.status == TaskStatus::Queued).and_then(|task| match task.job {
        TaskJob::ChildAgent { child, assignment, .. } => Some((child, assignment?)),
        TaskJob::Command { .. } => None,
    }))
}

fn make_ready(
    session: &Session,
    store: &Store,
    parent: &AgentName,
    name: &AgentName,
    policy: &str,
) -> Result<()> {
    check(store, parent, name, policy)?;
    if matches!(store.agent(name), Err(Error::NoAgent { .. })) {
        let new = New {
            name: name.clone(),
            parent: Some(parent.clone()),
            visibility: None,
            policy: policy.to_owned(),
            // Nobody has asked for it: it is shown to nobody.
            secret_sha256: Secret::draw(session, store, None)?.sha256(),
        };
        match make(session, store, new) {
            // Somebody else has just made it.
            Err(Error::Refused { kind: "agent_exists", .. }) => check(store, parent, name, policy)?,
            made => {
                made?;
            }
        }
    }
    let child = store.agent(name)?;
    let is_closed = || child.peek().map(|state| matches!(state.status, Status::Booting | Status::Stopped));
    if !is_closed()? {
        return Ok(());
    }
    match open_gate(session, store, &child, &rights::agent(parent)) {
        // Somebody else has opened it meanwhile.
        Err(error) if is_closed()? => Err(error),
        _ => Ok(()),
    }
}

fn has_got(agent: &Agent<'_>, id: MessageId) -> Result<bool> {
    Ok(!matches!(whereabouts(agent, id)?, Whereabouts::Unknown))
}

/// Stops the child of a delegation. One that was never given anything, or is gone, is left alone. The
/// inner error is what went wrong though the child is stopped.
///
/// Whoever is about to give it the message is waited for: afterwards nobody does any more.
pub fn stop_child(
    session: &Session,
    store: &Store,
    parent: &Agent<'_>,
    task: &Task,
    grace: Span,
) -> Result<Result<()>> {
    let TaskJob::ChildAgent { child, message_id, .. } = &task.job else { return Ok(Ok(())) };
    let _held = parent.task_lock_in_time(task.id, session.clock.now())?;
    let agent = match store.agent(child) {
        Ok(agent) => agent,
        Err(Error::NoAgent { .. }) => return Ok(Ok(())),
        Err(error) => return Err(error),
    };
    if !has_got(&agent, *message_id)? {
        return Ok(Ok(()));
    }
    let reason = Some(format!("its parent has stopped {}", task.id));
    // Before the stop, so that it does not begin; and after it, so that what was begun is not begun again.
    let withdrawn = withdraw(session, &agent, *message_id)?;
    let by = rights::agent(parent.name());
    let stop = Stop { grace: Some(grace), now: false, requeue: false, reason, by };
    let stopped = stop_agent(session, store, &agent, &stop)?;
    if !withdrawn {
        withdraw(session, &agent, *message_id)?;
    }
    Ok(stopped.cleared)
}

/// Takes the message of a cancelled delegation back, unless a run has it. `false`: one has.
fn withdraw(session: &Session, child: &Agent<'_>, id: MessageId) -> Result<bool> {
    let locked = child.lock(session.clock.now())?;
    let state = locked.state()?;
    if state.current_run.as_ref().is_some_and(|run| run.message_id == id) {
        return Ok(false);
    }
    let scan = locked.scan()?;
    let Some((key, path)) = inbox::find_id(&locked.view(), &scan, id)? else { return Ok(true) };
    let Some(Ok(message)) = inbox::try_read(&locked.view(), key, &path)? else { return Ok(true) };
    let desk = Desk::new(session, child);
    let mut draft = desk.draft(&locked, &scan, state)?;
    arrivals::drop_message(&mut draft, message, CANCELLED);
    desk.commit(&locked, draft)?;
    Ok(true)
}

/// Settles the parent's task if this child has come to an end, so that the parent hears of it at
/// once. What keeps it from that is no failure of the child's: the parent's next step sees it.
impl Desk<'_> {
    pub fn tell_parent(self) {
        let Desk { session, agent: child } = self;
        if let Err(error) = try_to_tell(session, self.store(), child) {
            session.out.note(&format!("{}: its parent has not heard of it yet: {error}", child.name()));
        }
    }
}

fn try_to_tell(session: &Session, store: &Store, child: &Agent<'_>) -> Result<()> {
    let Some(name) = child.identity()?.parent else { return Ok(()) };
    let parent = match store.agent(&name) {
        Ok(parent) => parent,
        Err(Error::NoAgent { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    if parent.peek()?.open_tasks == 0 {
        return Ok(());
    }
    // Its siblings are looked at by their own steps.
    let tasks = View::settled(parent.dir()).records::<Task>(layout::TASKS)?;
    for task in tasks.into_iter().filter(|task| task.child() == Some(child.name())) {
        if let Some(end @ Due::End(_)) = due(store, &task, session.clock.now())? {
            background::look_after(session, store, &parent, &[(task, end)]);
        }
    }
    Ok(())
}
