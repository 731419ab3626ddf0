//! Which waits a message ends, wherever the agent's attention is (contract, semantics §5).

use crate::model::closure::{Closure, WaitingReason};
use crate::model::continuation::TriggerKind;
use crate::model::id::{MessageId, TaskId, WaitId};
use crate::model::task::Task;
use crate::model::wait::{Wait, WaitKind};

use super::continuation::{Source, Trigger};

/// The waits that a trigger satisfies, of the agent and of all its items, in the order of the records.
/// `prior` is the closure before the trigger is applied.
pub fn satisfied(trigger: &Trigger<'_>, waits: &[Wait], prior: &Closure) -> Vec<WaitId> {
    match trigger.source {
        Source::Scheduler(_) => Vec::new(),
        Source::Said | Source::WakeHint => {
            let trigger = &trigger.among(waits);
            let ended = waits.iter().filter(|wait| wait.is_waiting() && satisfies(trigger, wait, prior));
            ended.map(|wait| wait.id).collect()
        }
    }
}

fn satisfies(trigger: &Trigger<'_>, wait: &Wait, prior: &Closure) -> bool {
    if trigger.kind == TriggerKind::TaskResult && !trigger.is_terminal_result() {
        return false;
    }
    if trigger.wait_id == Some(wait.id) {
        return true;
    }
    match wait.kind {
        WaitKind::Task => trigger.is_terminal_result() && trigger.task_id == wait.task_id(),
        WaitKind::External => {
            is_about(trigger, wait)
                || trigger.is_bare_event() && is_of_its_item(trigger, wait) && is_met_by_anything(wait, prior)
        }
        WaitKind::System => is_about(trigger, wait),
        WaitKind::Operator => is_answer(trigger, wait),
        // The message of its own fire names the wait.
        WaitKind::Timer => false,
    }
}

/// Whether an event from outside names the wait's resource or its trigger, or names no resource and comes
/// from the wait's source.
fn is_about(trigger: &Trigger<'_>, wait: &Wait) -> bool {
    if !trigger.is_from_outside() {
        return false;
    }
    let by_trigger = trigger.trigger_id.is_some() && trigger.trigger_id == wait.trigger_id;
    by_trigger
        || match trigger.resource {
            Some(resource) => wait.resource.as_deref() == Some(resource),
            None => wait.source.as_deref().is_some_and(|source| trigger.comes_from(source)),
        }
}

/// Whether an event names no item, or the item of the wait: an event about one item is not about another.
fn is_of_its_item(trigger: &Trigger<'_>, wait: &Wait) -> bool {
    trigger.work_item_id.is_none() || trigger.work_item_id == wait.work_item_id
}

/// Whether any event with content ends this external wait: the wait does not say what ends it, or it is the
/// one that the prior closure is about.
fn is_met_by_anything(wait: &Wait, prior: &Closure) -> bool {
    let is_foremost =
        prior.waiting_reason == Some(WaitingReason::AwaitingExternalChange) && prior.wait_id == Some(wait.id);
    is_foremost || wait.resource.is_none() && wait.source.is_none()
}

/// Operator input that names an item, or another wait, answers nothing else.
fn is_answer(trigger: &Trigger<'_>, wait: &Wait) -> bool {
    trigger.kind == TriggerKind::OperatorInput && trigger.wait_id.is_none() && is_of_its_item(trigger, wait)
}

/// What has to be in the inbox for an active wait to end. Without it, nothing ends the wait any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needed {
    /// The message that the wait is bound to.
    Answer(MessageId),
    /// The result of a task that has ended, and the id of that message if a record has it.
    Result(TaskId, Option<MessageId>),
}

/// What an active wait needs; `None` if something else can still end it. `tasks` are the open ones.
pub fn needed(wait: &Wait, tasks: &[Task]) -> Option<Needed> {
    if let Some(message) = wait.resolved_by {
        return Some(Needed::Answer(message));
    }
    let ended = wait.task_id().filter(|id| !tasks.iter().any(|task| task.id == *id))?;
    Some(Needed::Result(ended, wait.result_id))
}
