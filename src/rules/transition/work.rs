//! Work items: added, changed, picked, blocked, completed (contract, semantics §4).

use serde_json::{Value, json};

use crate::model::action::WorkRequest;
use crate::model::bound::PLAN;
use crate::model::event::EventKind;
use crate::model::id::WorkId;
use crate::model::refusal::Refusal;
use crate::model::time::Span;
use crate::model::transaction::Put;
use crate::model::work::{PlanStatus, Todo, WorkItem, WorkState};

use super::draft::Draft;
use super::wait::end_on_item;

/// Changes to an item; fields that are `None` stay unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkChange {
    pub objective: Option<String>,
    pub plan_status: Option<PlanStatus>,
    pub todo: Option<Vec<Todo>>,
    pub plan: Option<String>,
}

/// Adds a work item. `recheck_after` counts from the time of the draft (transaction).
pub fn add(draft: &mut Draft, new: WorkRequest) -> Result<WorkItem, Refusal> {
    check_objective(&new.objective)?;
    check_limit(draft)?;
    let id = WorkId(draft.stamp.mint());
    let agent = draft.records.state.agent.clone();
    let item = WorkItem {
        plan_status: new.plan_status.unwrap_or(PlanStatus::Ready),
        todo: new.todo,
        blocked_by: new.blocked_by,
        recheck_at: new.recheck_after.map(|span| draft.now().after(span)),
        ..WorkItem::new(id, agent, new.objective, draft.now())
    };
    if let Some(plan) = new.plan {
        PLAN.check(plan.len() as u64)?;
        draft.put(Put::Plan(item.id, plan));
    }
    if new.pick {
        draft.records.state.focus = Some(item.id);
    }
    draft.add(&item);
    note(draft, &item, "add", json!({ "picked": new.pick }));
    Ok(item)
}

/// Refuses a further work item above the maximum number, because each step reads all open items.
fn check_limit(draft: &Draft) -> Result<(), Refusal> {
    let (open, most) = (draft.records.works.len(), draft.records.policy.limits.max_open_work);
    if (open as u64) < most {
        return Ok(());
    }
    let message = format!("{open} work items are open: one more would pass limits.max_open_work = {most}");
    Err(Refusal::new("too_much_open_work", message)
        .hint("complete some, or raise limits.max_open_work in agent.toml"))
}

fn check_objective(objective: &str) -> Result<(), Refusal> {
    if objective.trim().is_empty() {
        return Err(Refusal::usage("empty_objective", "a work item needs an objective")
            .hint("say what is to be done"));
    }
    Ok(())
}

pub fn update(draft: &mut Draft, id: WorkId, change: WorkChange) -> Result<WorkItem, Refusal> {
    if let Some(objective) = &change.objective {
        check_objective(objective)?;
    }
    if let Some(plan) = change.plan {
        PLAN.check(plan.len() as u64)?;
        draft.put(Put::Plan(id, plan));
    }
    revise(draft, id, "update", json!({}), |item| {
        item.objective = change.objective.unwrap_or_else(|| item.objective.clone());
        item.plan_status = change.plan_status.unwrap_or(item.plan_status);
        item.todo = change.todo.unwrap_or_else(|| std::mem::take(&mut item.todo));
    })
}

/// Makes an item the current item. With `clear_blocker`, a reason, also clears its blocker, its
/// recheck and its waits.
pub fn pick(draft: &mut Draft, id: WorkId, clear_blocker: Option<String>) -> Result<WorkItem, Refusal> {
    if let Some(reason) = &clear_blocker {
        end_on_item(draft, id, reason);
    }
    draft.records.state.focus = Some(id);
    revise(draft, id, "pick", json!({}), |item| {
        if clear_blocker.is_some() {
            clear(item);
        }
    })
}

pub fn block(
    draft: &mut Draft,
    id: WorkId,
    reason: String,
    recheck_after: Option<Span>,
) -> Result<WorkItem, Refusal> {
    if reason.trim().is_empty() {
        return Err(Refusal::usage("empty_reason", "a blocker needs a reason"));
    }
    let recheck_at = recheck_after.map(|span| draft.now().after(span));
    revise(draft, id, "block", json!({}), |item| {
        item.blocked_by = Some(reason);
        item.recheck_at = recheck_at;
        item.recheck_consumed_at = None;
    })
}

pub fn unblock(draft: &mut Draft, id: WorkId, reason: &str) -> Result<WorkItem, Refusal> {
    if open(draft, id)?.blocked_by.is_none() {
        return Err(Refusal::new("not_blocked", format!("{id} is not blocked")));
    }
    revise(draft, id, "unblock", json!({ "reason": reason }), clear)
}

fn clear(item: &mut WorkItem) {
    item.blocked_by = None;
    item.recheck_at = None;
    item.recheck_consumed_at = None;
}

/// Completes an item in one transaction: stores its result, ends its waits, clears its blocker, and
/// clears the current item if it is this item. `plan` is the prose plan, archived with the item.
pub fn complete(
    draft: &mut Draft,
    id: WorkId,
    result: Option<String>,
    plan: Option<String>,
) -> Result<WorkItem, Refusal> {
    end_on_item(draft, id, "the work item is completed");
    draft.records.state.focus.take_if(|focus| *focus == id);
    let mut item = draft.take::<WorkItem>(id).ok_or_else(|| not_open(id))?;
    item.state = WorkState::Completed;
    item.result = result;
    item.blocked_by = None;
    item.recheck_at = None;
    item.revision += 1;
    item.updated_at = draft.now();
    item.plan = plan;
    draft.end(&item);
    note(draft, &item, "complete", json!({}));
    Ok(item)
}

/// Changes an item, or counts it as changed because a related record has changed. The new revision
/// allows another message that continues the item. `more` is added to the data of the event.
pub(super) fn revise(
    draft: &mut Draft,
    id: WorkId,
    action: &str,
    more: Value,
    change: impl FnOnce(&mut WorkItem),
) -> Result<WorkItem, Refusal> {
    let now = draft.now();
    let changed = draft.change::<WorkItem>(id, |item| {
        change(item);
        item.revision += 1;
        item.updated_at = now;
    });
    let item = changed.ok_or_else(|| not_open(id))?;
    note(draft, &item, action, more);
    Ok(item)
}

/// Returns the open work item with this id. Refused if no open item has the id.
pub(super) fn open(draft: &Draft, id: WorkId) -> Result<&WorkItem, Refusal> {
    draft.records.works.iter().find(|item| item.id == id).ok_or_else(|| not_open(id))
}

fn not_open(id: WorkId) -> Refusal {
    Refusal::new("not_open", format!("{id} is not an open work item"))
}

fn note(draft: &mut Draft, item: &WorkItem, action: &str, more: Value) {
    let mut data = json!({ "work_item_id": item.id, "action": action, "revision": item.revision });
    if let (Value::Object(data), Value::Object(more)) = (&mut data, more) {
        data.extend(more);
    }
    let run_id = draft.run_id();
    draft.event(EventKind::WorkTransition, run_id, data);
}
