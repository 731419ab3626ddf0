//! Wake sources: the messages and hints that end a wait or wake its owner (contract, semantics §5).
//!
//! One table serves both purposes: `WakeSource::of` lists the sources of a wait for people and
//! scripts, and `satisfied` checks the same sources for a message.

use std::fmt;

use crate::model::continuation::TriggerKind;
use crate::model::id::{MessageId, TaskId, TriggerId, WaitId};
use crate::model::message::Message;
use crate::model::records::BrokenWait;
use crate::model::task::Task;
use crate::model::wait::{Wait, WaitKind};

/// Event that ends a wait, or that makes the owner of the wait check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeSource<'a> {
    /// Input of the operator.
    Operator,
    /// Result of the task with this id.
    Task(TaskId),
    /// Event or hint about this resource.
    Resource(&'a str),
    /// Delivery through this trigger.
    Trigger(TriggerId),
    /// Event or hint from this source that names no resource.
    From(&'a str),
    /// Any event or hint from this source, because the wait names no resource.
    FromAbout(&'a str),
    /// Event with content that names no wait, resource or trigger of a wait, or other work item.
    ExternalEvent,
    /// Message that reports the end of a timer wait.
    Timer,
    /// Any message or hint that names the wait.
    Wait(WaitId),
    /// Message that asks the agent to check the wait. Such a message does not end the wait.
    Recheck,
    /// Message that reports that the wait has expired.
    Expiry,
}

impl fmt::Display for WakeSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WakeSource::Operator => f.write_str("operator"),
            WakeSource::Task(id) => write!(f, "task:{id}"),
            WakeSource::Resource(resource) => write!(f, "resource:{resource}"),
            WakeSource::Trigger(id) => write!(f, "trigger:{id}"),
            WakeSource::From(source) | WakeSource::FromAbout(source) => write!(f, "source:{source}"),
            WakeSource::ExternalEvent => f.write_str("external_event"),
            WakeSource::Timer => f.write_str("timer"),
            WakeSource::Wait(id) => write!(f, "wait:{id}"),
            WakeSource::Recheck => f.write_str("recheck"),
            WakeSource::Expiry => f.write_str("expiry"),
        }
    }
}

impl<'a> WakeSource<'a> {
    /// Returns the sources of a wait, the most important first; none for a wait that has ended or
    /// is bound to a message.
    pub fn of(wait: &'a Wait) -> Vec<WakeSource<'a>> {
        if !wait.is_waiting() {
            return Vec::new();
        }
        let resource = wait.resource.as_deref();
        let source = wait.source.as_deref();
        let source = source.map(if resource.is_some() { WakeSource::From } else { WakeSource::FromAbout });
        let trigger = wait.trigger_id.map(WakeSource::Trigger);
        let [first, second, third] = match wait.kind {
            WaitKind::Operator => [Some(WakeSource::Operator), None, None],
            WaitKind::Task => [wait.task_id().map(WakeSource::Task), None, None],
            WaitKind::Timer => [Some(WakeSource::Timer), None, None],
            WaitKind::External if resource.is_none() && source.is_none() && trigger.is_none() => {
                [Some(WakeSource::ExternalEvent), None, None]
            }
            WaitKind::External | WaitKind::System => [resource.map(WakeSource::Resource), trigger, source],
        };
        let named = (wait.kind != WaitKind::Operator).then_some(WakeSource::Wait(wait.id));
        let recheck = wait.recheck_at.map(|_| WakeSource::Recheck);
        let expiry = wait.expires_at.map(|_| WakeSource::Expiry);
        [first, second, third, named, recheck, expiry].into_iter().flatten().collect()
    }

    /// Returns the trigger kind of messages from this source; `None` if messages of any kind match.
    pub fn trigger_kind(self) -> Option<TriggerKind> {
        match self {
            WakeSource::Operator => Some(TriggerKind::OperatorInput),
            WakeSource::Task(_) => Some(TriggerKind::TaskResult),
            WakeSource::Resource(_)
            | WakeSource::Trigger(_)
            | WakeSource::From(_)
            | WakeSource::FromAbout(_)
            | WakeSource::ExternalEvent => Some(TriggerKind::ExternalEvent),
            WakeSource::Timer => Some(TriggerKind::TimerFire),
            WakeSource::Wait(_) => None,
            WakeSource::Recheck | WakeSource::Expiry => Some(TriggerKind::SystemTick),
        }
    }

    /// True if a message from this source ends the wait, at the latest after the turn that it runs.
    pub fn ends_wait(self) -> bool {
        self != WakeSource::Recheck
    }

    /// True if the message is from this source and ends the wait when a step takes the message up.
    ///
    /// An expiry also ends its wait, but by the kind of the message: see
    /// `transition::wait::take_up`.
    fn is_met(self, wait: &Wait, message: &Message, waits: &[Wait]) -> bool {
        let from_outside = message.is_from_outside();
        let is_of = |kind| message.trigger_kind == Some(kind);
        match self {
            WakeSource::Operator => is_of(TriggerKind::OperatorInput) && is_answer(message, wait),
            WakeSource::Task(id) => message.is_terminal_result() && message.task_id == Some(id),
            WakeSource::Resource(resource) => from_outside && message.resource.as_deref() == Some(resource),
            WakeSource::Trigger(id) => from_outside && message.trigger_id == Some(id),
            WakeSource::From(source) => {
                from_outside && message.resource.is_none() && message.comes_from(source)
            }
            WakeSource::FromAbout(source) => from_outside && message.comes_from(source),
            WakeSource::ExternalEvent => {
                // An event about another item does not end the wait.
                let about = message.work_item_id;
                let is_content = is_of(TriggerKind::ExternalEvent) && message.is_contentful();
                is_content && (about.is_none() || about == wait.work_item_id) && message.names_nothing(waits)
            }
            WakeSource::Timer => is_of(TriggerKind::TimerFire) && message.wait_id == Some(wait.id),
            WakeSource::Wait(id) => message.wait_id == Some(id),
            WakeSource::Recheck | WakeSource::Expiry => false,
        }
    }
}

/// Returns the waits of the agent and of all its items that a message satisfies, in the order of
/// the records; none for a message that triggers nothing, and for one of the scheduler.
pub fn satisfied(message: &Message, waits: &[Wait]) -> Vec<WaitId> {
    if message.trigger_kind.is_none() || message.is_progress() || message.scheduler_tick().is_some() {
        return Vec::new();
    }
    let is_met =
        |wait: &&Wait| WakeSource::of(wait).into_iter().any(|source| source.is_met(wait, message, waits));
    waits.iter().filter(is_met).map(|wait| wait.id).collect()
}

/// True if operator input answers an operator wait: it names the wait or its item, or names neither
/// a wait nor an item.
fn is_answer(message: &Message, wait: &Wait) -> bool {
    let names_item = message.work_item_id.is_some() && message.work_item_id == wait.work_item_id;
    let names_none = message.wait_id.is_none() && message.work_item_id.is_none();
    message.wait_id == Some(wait.id) || names_item || names_none
}

/// Returns the ways in which other records contradict an active wait, so that nothing can end it.
/// `tasks` are the open tasks. `is_queued`: true if a message is in the inbox; called for the bound
/// message and a queued recheck. `has_result`: true if the inbox has the result of an ended task;
/// called with the id of the result message, if the wait has recorded it.
pub fn broken<E>(
    wait: &Wait,
    tasks: &[Task],
    is_queued: impl Fn(MessageId) -> Result<bool, E>,
    has_result: impl Fn(TaskId, Option<MessageId>) -> Result<bool, E>,
) -> Result<Vec<BrokenWait>, E> {
    let mut broken = Vec::new();
    if !wait.is_active() {
        return Ok(broken);
    }
    if let Some(message) = wait.recheck_id
        && !is_queued(message)?
    {
        broken.push(BrokenWait::RecheckGone(message));
    }
    if let Some(message) = wait.resolved_by {
        if !is_queued(message)? {
            broken.push(BrokenWait::AnswerGone(wait.id, message));
        }
    } else if let Some(task) = wait.task_id().filter(|id| !tasks.iter().any(|task| task.id == *id))
        && !has_result(task, wait.result_id)?
    {
        broken.push(BrokenWait::TaskGone(wait.id));
    }
    Ok(broken)
}
