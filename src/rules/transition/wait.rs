//! Waits: set, resolved, cancelled, expired, repaired (contract, semantics §5).

use serde_json::json;

use crate::model::action::{Requester, WaitRequest};
use crate::model::attention::{AttentionSubject, Subject};
use crate::model::continuation::SchedulerTick;
use crate::model::event::EventKind;
use crate::model::id::{MessageId, TaskId, WaitId, WorkId};
use crate::model::message::{Body, Message, MessageKind, MessageStatus, Settlement};
use crate::model::record::Record;
use crate::model::records::BrokenWait;
use crate::model::refusal::Refusal;
use crate::model::task::Task;
use crate::model::trigger::Trigger;
use crate::model::wait::{Wait, WaitKind, WaitStatus};

use crate::rules::admission::in_chain;
use crate::rules::schedule::{SHORTEST, requested_time};

use super::arrival::{admit, own_message};
use super::draft::Draft;
use super::trigger::{may_have_trigger, wait_ended};
use super::work::{open, revise};

/// Wait that was set, and the waits that it replaced.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    pub wait: Wait,
    /// Active waits of the same owner that the new wait replaced, in their last active state.
    pub replaces: Vec<Wait>,
}

/// Sets a wait, which replaces the active wait on the same work item, or the agent's own active
/// wait for the same resource.
///
/// `trigger` is the present state of the trigger that the request names. `ended_task` is the task
/// that the request names, if that task has ended by now; its `result_id` is set only if no step
/// has taken up the result yet. Without `result_id`, the wait is resolved at once.
pub fn set(
    draft: &mut Draft,
    new: WaitRequest,
    by: Requester,
    trigger: Option<Trigger>,
    ended_task: Option<Task>,
) -> Result<Set, Refusal> {
    let now = draft.now();
    let wake_at = requested_time(new.within, new.at, new.past_ok, by.since, now)?;
    let recheck_at = requested_time(new.recheck_after, new.recheck_at, false, by.since, now)?;
    if new.recheck_after.is_some() && new.recheck_at.is_some() {
        let message = "a wait has one of `recheck_after` and `recheck_at`";
        return Err(Refusal::usage("invalid_wait", message));
    }
    let expires_at = new.expires_after.map(|span| now.after(span));
    let work_item_id = owner(draft, &new, by.in_turn)?;
    let soonest = [wake_at, recheck_at, expires_at].into_iter().flatten().min();
    let hops = in_chain(by.hops, soonest, now, &draft.records.policy.limits)?;
    let id = WaitId(draft.stamp.mint());
    let agent = draft.records.state.agent.clone();
    let wait = Wait {
        options: new.options,
        resource: new.resource,
        work_item_id,
        trigger_id: new.trigger_id,
        wake_at,
        recheck_at,
        recheck_every: new.recheck_after,
        expires_at,
        source: new.source,
        no_fallback: new.no_fallback,
        result_id: ended_task.as_ref().and_then(|task| task.result_id),
        hops,
        ..Wait::new(id, agent, new.kind, new.reason, now)
    };
    check(draft, &wait, ended_task.as_ref())?;
    if let Some(trigger) = &trigger {
        check_trigger(&wait, trigger)?;
    }
    let replaces = replaced(draft, &wait);
    end_all(draft, &replaces, &format!("replaced by {}", wait.id));
    if let Some(item) = work_item_id {
        revise(draft, item, "wait", json!({}), |_| {})?;
    }
    draft.add(&wait);
    let run_id = draft.run_id();
    let data = json!({
        "wait_id": wait.id,
        "kind": wait.kind,
        "to": wait.status,
        "work_item_id": wait.work_item_id,
        "resource": wait.resource,
        "reason": wait.reason,
    });
    draft.event(EventKind::WaitTransition, run_id, data);
    let has_been_told = ended_task.is_some_and(|task| task.result_id.is_none());
    let over = has_been_told
        .then(|| end_wait(draft, wait.id, WaitStatus::Resolved, "its task had ended before"))
        .flatten();
    Ok(Set { wait: over.unwrap_or(wait), replaces })
}

/// Returns the active waits that a new wait replaces. A work item has one active wait; the agent
/// itself has one per resource.
fn replaced(draft: &Draft, new: &Wait) -> Vec<Wait> {
    let has_place = |wait: &&Wait| {
        let is_alike = new.work_item_id.is_some() || new.resource.is_some() && wait.resource == new.resource;
        wait.is_active() && wait.work_item_id == new.work_item_id && is_alike
    };
    draft.records.waits.iter().filter(has_place).cloned().collect()
}

/// Returns the work item of a new wait: the named item; else the item of the turn if it is open,
/// else the current item. `None`: the agent itself waits.
fn owner(draft: &Draft, new: &WaitRequest, in_turn: bool) -> Result<Option<WorkId>, Refusal> {
    let state = &draft.records.state;
    match new.work_item_id {
        Some(id) => open(draft, id).map(|item| Some(item.id)),
        None if new.whole_agent => Ok(None),
        None => {
            let run = state.current_run.as_ref().filter(|_| in_turn);
            let of_turn = run.and_then(|run| run.work_item_id).filter(|id| open(draft, *id).is_ok());
            Ok(of_turn.or(state.focus))
        }
    }
}

fn check(draft: &Draft, wait: &Wait, ended_task: Option<&Task>) -> Result<(), Refusal> {
    wait.check().map_err(|reason| Refusal::usage("invalid_wait", reason))?;
    if let Some(id) = wait.task_id() {
        let open = draft.records.tasks.iter().find(|task| task.id == id).map(|task| task.notify);
        let notify = open.or(ended_task.filter(|task| task.id == id).map(|task| task.notify));
        check_task(wait, id, notify)?;
    }
    if let Some(every) = wait.recheck_every.filter(|every| *every < SHORTEST) {
        let message = format!("a recheck every {every} is too often: the shortest is {SHORTEST}");
        return Err(Refusal::usage("schedule_too_short", message));
    }
    if wait.kind == WaitKind::System && wait.recheck_at.is_none() && wait.expires_at.is_none() {
        return Err(Refusal::usage("endless_wait", "a wait for the system needs a recheck or an expiry")
            .hint("say with --recheck when to go and look, or with --expires when to give up"));
    }
    let misplaced = if wait.wake_at.is_some() && wait.kind != WaitKind::Timer {
        "a wake time belongs to a wait of kind `timer`"
    } else if wait.source.is_some() && !matches!(wait.kind, WaitKind::External | WaitKind::System) {
        "a source belongs to a wait of kind `external` or `system`"
    } else if wait.no_fallback.is_some() && wait.kind != WaitKind::External {
        "only an external wait can lack a fallback"
    } else {
        return Ok(());
    };
    Err(Refusal::usage("invalid_wait", misplaced))
}

/// Refuses a trigger that belongs to another wait, or whose deliveries can't end this wait.
fn check_trigger(wait: &Wait, trigger: &Trigger) -> Result<(), Refusal> {
    may_have_trigger(wait)?;
    match trigger.scope.wait_id() {
        None => Ok(()),
        Some(other) => Err(Refusal::new("other_scope", format!("{} belongs to {other} alone", trigger.id))
            .hint("make one for this wait: `dormouse trigger create --wait ID`")),
    }
}

/// Refuses a wait for a task that can't end the wait. `notify` is true if the end of the task is
/// reported to the agent; `None` if the agent has no such task.
fn check_task(wait: &Wait, id: TaskId, notify: Option<bool>) -> Result<(), Refusal> {
    match notify {
        Some(true) => Ok(()),
        Some(false) => {
            let message = format!("{id} was started with --no-notify: its end would not end this wait");
            Err(Refusal::new("unheard_task", message)
                .hint("start it without --no-notify, or wait for something else"))
        }
        None => Err(Refusal::new("unknown_task", format!("`{}` has no task {id}", wait.agent))),
    }
}

/// Cancels an active wait at the operator's request. Refused if the wait is not active.
pub fn cancel(draft: &mut Draft, id: WaitId) -> Result<Wait, Refusal> {
    end_wait(draft, id, WaitStatus::Cancelled, "cancelled by the operator")
        .ok_or_else(|| Refusal::new("not_active", format!("{id} is not an active wait")))
}

/// Stores the id of a task's result message in every unbound wait for that task.
pub fn note_result(draft: &mut Draft, task: TaskId, message: MessageId) {
    let is_meant = |wait: &Wait| wait.is_waiting() && wait.task_id() == Some(task);
    draft.change_each(is_meant, |wait| wait.result_id = Some(message));
}

/// Binds the waits `resolves` to a message that a step takes up. If the message reports that a wait
/// has expired, ends the expired wait. Idempotent.
pub fn take_up(draft: &mut Draft, message: &Message, resolves: &[WaitId]) {
    if message.scheduler_tick() == Some(SchedulerTick::Expiry)
        && let Some(id) = message.wait_id.filter(|id| is_waiting(draft, *id))
    {
        end_wait(draft, id, WaitStatus::Expired, "expires_at");
    }
    bind(draft, message.id, resolves);
}

/// Binds waits to a message. Bound waits block nothing until a turn for the message has completed,
/// or the message has ended without a completed turn.
pub fn bind(draft: &mut Draft, to: MessageId, waits: &[WaitId]) {
    for id in waits.iter().copied().filter(|id| is_waiting(draft, *id)).collect::<Vec<_>>() {
        draft.change::<Wait>(id, |wait| {
            wait.resolved_by = Some(to);
            wait.lost_answer = None;
        });
        let data =
            json!({ "wait_id": id, "from": WaitStatus::Active, "to": WaitStatus::Active, "resolved_by": to });
        draft.event(EventKind::WaitTransition, None, data);
    }
}

fn is_waiting(draft: &Draft, id: WaitId) -> bool {
    draft.records.waits.iter().any(|wait| wait.id == id && wait.is_waiting())
}

/// Resolves the waits that are bound to a message for which a turn has completed. If the message
/// ended without a completed turn, the answer is lost, and the waits block the agent again.
pub fn settle_bound(draft: &mut Draft, message: MessageId, settlement: &Settlement) {
    let why = settlement.reason.as_deref().unwrap_or(settlement.status.name());
    let bound = draft.records.waits.iter().filter(|wait| wait.resolved_by == Some(message));
    for id in bound.map(|wait| wait.id).collect::<Vec<_>>() {
        if settlement.status == MessageStatus::Processed {
            end_wait(draft, id, WaitStatus::Resolved, &message.to_string());
        } else {
            lose_answer(draft, id, message, why);
        }
    }
}

/// Makes a wait active again, and records that its answer was lost. If the wait has expired
/// meanwhile, the expiry is reported again.
pub fn lose_answer(draft: &mut Draft, id: WaitId, message: MessageId, why: &str) {
    draft.change::<Wait>(id, |wait| {
        wait.resolved_by = None;
        wait.lost_answer = Some(message);
        wait.expiry_told_at = None;
    });
    let active = WaitStatus::Active;
    let data = json!({ "wait_id": id, "from": active, "to": active, "lost_answer": message, "cause": why });
    draft.event(EventKind::WaitTransition, None, data);
    let about = AttentionSubject { wait_id: Some(id), ..AttentionSubject::message(message) };
    draft.raise(Subject::AnswerLost, about, why);
}

/// Ends every active wait on a work item: as resolved if bound to a message, else as cancelled.
pub fn end_on_item(draft: &mut Draft, item: WorkId, cause: &str) {
    let on_item = draft.records.waits.iter().filter(|wait| wait.work_item_id == Some(item));
    let ended: Vec<Wait> = on_item.cloned().collect();
    end_all(draft, &ended, cause);
}

/// Ends waits: as resolved if bound to a message, else as cancelled.
fn end_all(draft: &mut Draft, waits: &[Wait], cause: &str) {
    for wait in waits {
        let is_bound = wait.resolved_by.is_some();
        let status = if is_bound { WaitStatus::Resolved } else { WaitStatus::Cancelled };
        end_wait(draft, wait.id, status, cause);
    }
}

/// Records that the message that asked the agent to check its wait has been settled, and computes
/// the time of the next such message.
pub fn recheck_over(draft: &mut Draft, message: MessageId) {
    let now = draft.now();
    let is_meant = |wait: &Wait| wait.recheck_id == Some(message);
    draft.change_each(is_meant, |wait| {
        wait.recheck_id = None;
        wait.advance_recheck(now);
    });
}

/// Repairs waits that nothing can end any more, because other records contradict them.
pub fn heal(draft: &mut Draft) {
    for broken in std::mem::take(&mut draft.records.broken_waits) {
        match broken {
            BrokenWait::AnswerGone(id, message) => {
                lose_answer(draft, id, message, "the message that it was bound to is gone");
            }
            BrokenWait::RecheckGone(message) => recheck_over(draft, message),
            BrokenWait::TaskGone(id) => {
                let cause = "its task has ended, and no result of it is under way";
                if let Some(wait) = end_wait(draft, id, WaitStatus::Resolved, cause) {
                    let message = healed(draft, &wait);
                    admit(draft, message);
                }
            }
        }
    }
}

/// Returns the message that the wait's task has ended, because no result of it is pending.
fn healed(draft: &mut Draft, wait: &Wait) -> Message {
    let task = wait.resource.as_deref().unwrap_or_default();
    let text = format!("{task} has ended, and its result was taken up before: {}", wait.reason);
    let mut message = own_message(draft, MessageKind::SystemTick, Body::Text { text });
    message.work_item_id = wait.work_item_id;
    message.task_id = wait.task_id();
    message.resource = wait.resource.clone();
    message.idempotency_key = Some(format!("wait:healed:{}", wait.id));
    message
}

/// Ends a wait and returns it; `None` if it is not active. Its work item counts as changed, because
/// the item may now be runnable.
pub fn end_wait(draft: &mut Draft, id: WaitId, status: WaitStatus, cause: &str) -> Option<Wait> {
    draft.records.waits.iter().find(|wait| wait.id == id && wait.is_active())?;
    let mut wait = draft.take::<Wait>(id)?;
    wait.status = status;
    wait.ended_at = Some(draft.now());
    wait.cause = Some(cause.to_owned());
    let data =
        json!({ "wait_id": id, "kind": wait.kind, "from": WaitStatus::Active, "to": status, "cause": cause });
    draft.event(EventKind::WaitTransition, None, data);
    wait_ended(draft, &wait);
    if let Some(item) = wait.work_item_id {
        // The work item may have ended already; then there is nothing to revise.
        let _ = revise(draft, item, "wait_ended", json!({}), |_| {});
    }
    draft.end(&wait);
    Some(wait)
}
