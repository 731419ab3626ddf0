//! Waits: set, resolved, cancelled, expired (contract, semantics §5).

use serde_json::json;

use crate::model::event::EventKind;
use crate::model::id::{TaskId, WaitId, WorkId};
use crate::model::message::Message;
use crate::model::record::{Extra, Record};
use crate::model::refusal::Refusal;
use crate::model::task::Task;
use crate::model::time::Time;
use crate::model::transaction::{Archived, Delete, Put};
use crate::model::wait::{Wait, WaitKind, WaitStatus};

use crate::rules::work::waits_on;

use super::draft::Draft;
use super::work::revise;

/// Whose a new wait is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Agent,
    Work(WorkId),
    /// The turn's work item, else the focus, else the agent.
    Nearest(Option<WorkId>),
}

/// What a new wait is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct NewWait {
    pub kind: WaitKind,
    pub reason: String,
    pub owner: Owner,
    pub resource: Option<String>,
    pub wake_at: Option<Time>,
    pub recheck_at: Option<Time>,
    pub expires_at: Option<Time>,
    pub source: Option<String>,
    pub no_fallback: Option<String>,
    /// A task that has ended in this very turn: its result is still to come.
    pub ended_task: Option<TaskId>,
}

/// Records why progress stops. A new wait on a work item takes the place of the one that was active.
pub fn set(draft: &mut Draft, new: NewWait) -> Result<Wait, Refusal> {
    let work_item_id = owner(draft, new.owner)?;
    let wait = Wait {
        id: WaitId(draft.stamp.mint()),
        agent: draft.records.state.agent.clone(),
        kind: new.kind,
        reason: new.reason,
        resource: new.resource,
        work_item_id,
        trigger_id: None,
        wake_at: new.wake_at,
        recheck_at: new.recheck_at,
        expires_at: new.expires_at,
        source: new.source,
        no_fallback: new.no_fallback,
        status: WaitStatus::Active,
        woken_at: None,
        rechecked_at: None,
        created_at: draft.now(),
        ended_at: None,
        extra: Extra::new(),
    };
    check(draft, &wait, new.ended_task)?;
    if let Some(item) = work_item_id {
        let replaced: Vec<_> = waits_on(item, &draft.records.waits).map(|wait| wait.id).collect();
        for old in replaced {
            end_wait(draft, old, WaitStatus::Cancelled, &format!("replaced by {}", wait.id));
        }
        revise(draft, item, "wait", |_| {})?;
    }
    draft.records.waits.push(wait.clone());
    draft.put(Put::Wait(Box::new(wait.clone())));
    let run_id = draft.records.state.current_run.as_ref().map(|run| run.run_id);
    let data = json!({
        "wait_id": wait.id,
        "kind": wait.kind,
        "to": wait.status,
        "work_item_id": wait.work_item_id,
        "resource": wait.resource,
        "reason": wait.reason,
    });
    draft.event(EventKind::WaitTransition, run_id, data);
    Ok(wait)
}

fn owner(draft: &Draft, owner: Owner) -> Result<Option<WorkId>, Refusal> {
    let is_open = |id: &WorkId| draft.records.works.iter().any(|item| item.id == *id);
    match owner {
        Owner::Agent => Ok(None),
        Owner::Work(id) if is_open(&id) => Ok(Some(id)),
        Owner::Work(id) => Err(Refusal::new("not_open", format!("{id} is not an open work item"))),
        Owner::Nearest(turns) => Ok(turns.filter(is_open).or(draft.records.state.focus)),
    }
}

fn check(draft: &Draft, wait: &Wait, ended_task: Option<TaskId>) -> Result<(), Refusal> {
    wait.check().map_err(|reason| Refusal::new("invalid_wait", reason))?;
    if let Some(task) = wait.task_id().filter(|task| !is_known(draft, *task) && ended_task != Some(*task)) {
        return Err(Refusal::new("unknown_task", format!("{task} is not an open task of `{}`", wait.agent)));
    }
    let unheard = |task: &&Task| Some(task.id) == wait.task_id() && !task.notify;
    if let Some(task) = draft.records.tasks.iter().find(unheard) {
        return Err(Refusal::new(
            "unheard_task",
            format!("{} was started with --no-notify: its end would not end this wait", task.id),
        )
        .hint("start it without --no-notify, or wait for something else"));
    }
    let misplaced = [
        (
            wait.wake_at.is_some() && wait.kind != WaitKind::Timer,
            "a wake time belongs to a wait of kind `timer`",
        ),
        (
            wait.source.is_some() && wait.kind != WaitKind::External,
            "a source belongs to a wait of kind `external`",
        ),
        (
            wait.no_fallback.is_some() && wait.kind != WaitKind::External,
            "only an external wait can lack a fallback",
        ),
    ];
    match misplaced.iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, message)) => Err(Refusal::new("invalid_wait", *message)),
        None => Ok(()),
    }
}

fn is_known(draft: &Draft, task: TaskId) -> bool {
    draft.records.tasks.iter().any(|known| known.id == task)
}

/// Cancels an active wait.
pub fn cancel(draft: &mut Draft, id: WaitId) -> Result<Wait, Refusal> {
    end_wait(draft, id, WaitStatus::Cancelled, "cancelled by the operator")
        .ok_or_else(|| Refusal::new("not_active", format!("{id} is not an active wait")))
}

/// A timer wait whose time has come is over, however the message that says so is taken.
pub fn end_if_due(draft: &mut Draft, message: &Message) {
    let is_due = |wait: &&Wait| wait.kind == WaitKind::Timer && wait.woken_at.is_some();
    let named = message.wait_id.and_then(|id| draft.records.waits.iter().find(|wait| wait.id == id));
    if let Some(id) = named.filter(is_due).map(|wait| wait.id) {
        end_wait(draft, id, WaitStatus::Resolved, &message.id.to_string());
    }
}

/// Ends a wait, if it is still active, and returns it. What it was about may go on: its work item counts as changed.
pub fn end_wait(draft: &mut Draft, id: WaitId, status: WaitStatus, cause: &str) -> Option<Wait> {
    let at = draft.records.waits.iter().position(|wait| wait.id == id && wait.is_active())?;
    let mut wait = draft.records.waits.remove(at);
    wait.status = status;
    wait.ended_at = Some(draft.now());
    let data =
        json!({ "wait_id": id, "kind": wait.kind, "from": WaitStatus::Active, "to": status, "cause": cause });
    draft.event(EventKind::WaitTransition, None, data);
    draft.delete(Delete::Wait(id));
    // A wait on an item that is gone has nobody left to tell.
    if let Some(item) = wait.work_item_id
        && draft.records.works.iter().any(|open| open.id == item)
    {
        let _ = revise(draft, item, "wait_ended", |_| {});
    }
    draft.archive(Archived::Wait(Box::new(wait.clone())));
    Some(wait)
}
