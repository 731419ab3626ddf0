//! Delegation: a task that is done by a child agent (contract, semantics §12).

use crate::error::{Error, Result};
use crate::local::Subject;
use crate::model::id::{AgentName, MessageId, TaskId};
use crate::model::message::Message;
use crate::model::task::{Assignment, Task, TaskJob, TaskStatus};
use crate::model::trigger::Verify;
use crate::rules::authority as rights;
use crate::rules::transition::lifecycle;
use crate::rules::transition::settlement::drop_message;
use crate::rules::transition::task::{self as rules, TaskEnding};
use crate::store::Agent;

use super::context::Context;
use super::gate::start_agent;
use super::lookup::existing;
use super::new_agent::{AgentRequest, make};
use super::outbox;
use super::secret::Secret;
use super::tasks::{self, check, permanent_end};

/// Reason in the record of a child's message that is dropped because its delegation is cancelled.
const CANCELLED: &str = "delegation_cancelled";

/// Creates and starts the child agent if necessary, and sends it the message of a delegation.
/// Idempotent. Does nothing while another process sends the message.
pub fn hand_over(context: Context<'_>, id: TaskId) -> Result<()> {
    let Context { session, agent: parent } = context;
    let store = context.store();
    let Some(_held) = parent.lease(Subject::Task(id), session.clock.now())? else { return Ok(()) };
    let Some((child, assignment)) = pending_assignment(parent, id)? else { return Ok(()) };
    if let Err(error) = ensure_child(context, &child, &assignment.policy) {
        if let Some(end) = permanent_end(&error) {
            tasks::finish(context, id, TaskEnding::Child(end))?;
        }
        return Err(error);
    }
    // The start of a child can take long, so the task may have been cancelled meanwhile.
    if pending_assignment(parent, id)?.is_none() {
        return Ok(());
    }
    outbox::put(session, store, &child, &[&assignment.message])?;
    context.change(|draft| rules::handed_over(draft, id)).map(drop)
}

/// Returns the child, and the message and settings for it, if the message is not sent yet.
fn pending_assignment(parent: &Agent<'_>, id: TaskId) -> Result<Option<(AgentName, Box<Assignment>)>> {
    let task = parent.read(|seen, _| seen.open_one::<Task>(id))?;
    Ok(task.filter(|task| task.status == TaskStatus::Queued).and_then(|task| match task.job {
        TaskJob::ChildAgent { child, assignment, .. } => Some((child, assignment?)),
        TaskJob::Command { .. } => None,
    }))
}

/// Creates the child agent unless it exists, and starts it unless it is started.
fn ensure_child(context: Context<'_>, name: &AgentName, policy: &str) -> Result<()> {
    let (session, store, parent) = (context.session, context.store(), context.agent.name());
    check(store, parent, name, policy)?;
    if matches!(store.agent(name), Err(Error::NoAgent { .. })) {
        let new = AgentRequest {
            name: name.clone(),
            parent: Some(parent.clone()),
            visibility: None,
            policy: policy.to_owned(),
            hooks: Vec::new(),
            // No command needs the secret of the child's trigger, so the secret is not printed.
            secret_sha256: Secret::draw(session, store, &Verify::Secret, None)?.sha256(),
        };
        match make(session, store, new) {
            // Another process has just created this agent, which must be a child of `parent`.
            Err(Error::Refused { kind: "agent_exists", .. }) => check(store, parent, name, policy)?,
            made => {
                made?;
            }
        }
    }
    let child = store.agent(name)?;
    let is_closed = || child.peek().map(|state| lifecycle::is_closed(&state));
    if !is_closed()? {
        return Ok(());
    }
    match start_agent(Context::new(session, &child), &rights::agent(parent)) {
        // The error does not matter if another process has started the child meanwhile.
        Err(error) if is_closed()? => Err(error),
        _ => Ok(()),
    }
}

/// Cancels a delegation: drops its message, and stops the child by the function `stop`. `None` if
/// the child has not received the message, or does not exist.
///
/// Waits for a process that is sending the message to the child. From then on no process sends the
/// message.
pub fn withdraw_delegation<T>(
    parent: Context<'_>,
    task: &Task,
    stop: impl FnOnce(Context<'_>) -> Result<T>,
) -> Result<Option<T>> {
    let session = parent.session;
    let TaskJob::ChildAgent { child, message_id, .. } = &task.job else { return Ok(None) };
    let _held = parent.agent.lease_in_time(Subject::Task(task.id), session.clock.now())?;
    let Some(child) = existing(parent.store(), child)? else { return Ok(None) };
    let is_unknown = child.read(|seen, _| {
        Ok(seen.waiting(*message_id)?.is_none() && seen.ended_one::<Message>(*message_id)?.is_none())
    })?;
    if is_unknown {
        return Ok(None);
    }
    let child = Context::new(session, &child);
    // Dropping the message before the stop keeps the child from claiming it.
    let is_back = withdraw(child, *message_id)?;
    let stopped = stop(child)?;
    if !is_back {
        // The ended run may have put its message back into the queue; it must not run again.
        withdraw(child, *message_id)?;
    }
    Ok(Some(stopped))
}

/// Drops the message of a cancelled delegation. Returns false if the current run has claimed it.
fn withdraw(context: Context<'_>, id: MessageId) -> Result<bool> {
    let locked = context.agent.change(context.session.clock.now())?;
    let state = locked.state()?;
    if state.current_run.as_ref().is_some_and(|run| run.message_id == id) {
        return Ok(false);
    }
    let seen = locked.snapshot(&state)?;
    let Some(waiting) = seen.waiting(id)? else { return Ok(true) };
    let Some(Ok(message)) = seen.try_read(&waiting)? else { return Ok(true) };
    let mut draft = context.draft_of(&seen, state)?;
    drop_message(&mut draft, message, CANCELLED);
    context.commit(&locked, draft)?;
    Ok(true)
}
