//! Posture: one word for people about the present activity of an agent (contract, semantics §3). No
//! decision depends on the posture.

use serde::Serialize;

use crate::model::agent::Status;
use crate::model::execution::ExecutionState;
use crate::model::id::{MessageId, RunId, TaskId, WaitId, WorkId};
use crate::model::message::WakeHint;
use crate::model::posture::Posture;
use crate::model::records::{LeaseState, Records};
use crate::model::state::State;
use crate::model::wait::{Wait, WaitKind};
use crate::model::work::{PlanStatus, WorkItem, WorkState};

use super::work::WaitsByItem;

/// Posture, the reason for it, and the ids of the records that decided it.
#[serde_with::skip_serializing_none]
#[serde_with::apply(Option => #[new(default)], String => #[new(into)])]
#[derive(Debug, Clone, PartialEq, Serialize, derive_new::new)]
pub struct PostureReport {
    pub posture: Posture,
    pub reason: String,
    pub run_id: Option<RunId>,
    pub message_id: Option<MessageId>,
    pub work_item_id: Option<WorkId>,
    pub task_id: Option<TaskId>,
    pub wait_id: Option<WaitId>,
}

impl PostureReport {
    fn about_work(mut self, item: &WorkItem) -> PostureReport {
        self.work_item_id = Some(item.id);
        self
    }

    fn about_wait(mut self, wait: &Wait) -> PostureReport {
        self.wait_id = Some(wait.id);
        self.work_item_id = wait.work_item_id;
        self.task_id = wait.task_id();
        self
    }
}

/// Returns the posture of an agent, by the first row of the contract's table that is true.
pub fn posture(records: &Records) -> PostureReport {
    let state = &records.state;
    if state.status == Status::Stopped {
        return PostureReport::new(Posture::Archived, "the agent is stopped");
    }
    if let Some(run) = &state.current_run {
        let reason = match (&records.away, records.lease) {
            (Some(away), _) => format!("a turn runs {away}, attempt {}", run.attempt),
            (None, LeaseState::Held) => format!("a turn runs, attempt {}", run.attempt),
            (None, LeaseState::Free) => {
                format!("interrupted: its tick is gone; attempt {} is next", run.attempt)
            }
        };
        let report = PostureReport::new(Posture::ActiveTurn, reason);
        return PostureReport { run_id: Some(run.run_id), message_id: Some(run.message_id), ..report };
    }
    let unstarted =
        (state.status == Status::Booting).then(|| format!("not started yet: dormouse start {}", state.agent));
    let queued =
        |next: String| PostureReport::new(Posture::HasQueuedInput, unstarted.clone().unwrap_or(next));
    if let Some(message) = &records.inbox.head {
        let failed = message.failures.last().filter(|_| message.attempt > 1);
        let report = queued(match failed {
            Some(failed) => format!("{}; attempt {} is next", failed.reason, message.attempt),
            None => format!("next is {}", message.described()),
        });
        return PostureReport { message_id: Some(message.id), ..report };
    }
    if let Some(hint) = waking_hint(records) {
        return queued(format!("next is a wake hint from {}", hint.source));
    }
    if records.inbox.submissions > 0 {
        return queued("next is a file that was put into the inbox".to_owned());
    }
    if let Some(item) = runnable_work(records) {
        let reason = format!("can continue with: {}", item.objective);
        return PostureReport::new(Posture::HasRunnableWork, reason).about_work(item);
    }
    let waiting = |posture, kind| {
        let wait = active_wait(records, kind)?;
        Some(PostureReport::new(posture, &wait.reason).about_wait(wait))
    };
    waiting(Posture::WaitingForTask, WaitKind::Task)
        .or_else(|| waiting(Posture::WaitingForExternal, WaitKind::External))
        .or_else(|| waiting(Posture::WaitingForOperator, WaitKind::Operator))
        .or_else(|| open_item(records, needs_input))
        .or_else(|| open_item(records, blocked))
        .or_else(|| waiting(Posture::Blocked, WaitKind::Timer))
        .or_else(|| waiting(Posture::Blocked, WaitKind::System))
        .or_else(|| held(state))
        .unwrap_or_else(|| {
            let reason = if state.status == Status::Booting { "not started yet" } else { "nothing to do" };
            PostureReport::new(Posture::Idle, reason)
        })
}

/// Returns the next hint: the pending hint, else the first hint in the inbox, merged with all other
/// hints about the same wait, trigger and resource.
pub fn waking_hint(records: &Records) -> Option<WakeHint> {
    let hints = &records.inbox.hints;
    let mut next = records.state.pending_wake_hint.as_ref().or(hints.first())?.clone();
    let others = hints.iter().filter(|hint| hint.id != next.id);
    let merged: Vec<&WakeHint> = others.filter(|hint| hint.merges_with(&next)).collect();
    merged.into_iter().for_each(|hint| next.absorb(hint));
    Some(next)
}

/// Returns the current item if it is runnable, else the oldest runnable item.
pub fn runnable_work(records: &Records) -> Option<&WorkItem> {
    let waits = WaitsByItem::of(&records.waits);
    let is_runnable = |item: &&WorkItem| waits.is_runnable(item);
    let focus = records.state.focus;
    let current = records.works.iter().find(|item| Some(item.id) == focus);
    current.filter(is_runnable).or_else(|| records.works.iter().find(is_runnable))
}

/// Returns what `report` gives for the oldest open work item for which it gives a report.
fn open_item(records: &Records, report: fn(&WorkItem) -> Option<PostureReport>) -> Option<PostureReport> {
    let open = records.works.iter().filter(|item| is_open(item));
    open.filter_map(|item| Some(report(item)?.about_work(item))).next()
}

fn needs_input(item: &WorkItem) -> Option<PostureReport> {
    let reason = || format!("needs input: {}", item.objective);
    (item.plan_status == PlanStatus::NeedsInput)
        .then(|| PostureReport::new(Posture::WaitingForOperator, reason()))
}

fn blocked(item: &WorkItem) -> Option<PostureReport> {
    let blocker = item.blocked_by.as_ref()?;
    Some(PostureReport::new(Posture::Blocked, format!("blocked by: {blocker}")))
}

fn held(state: &State) -> Option<PostureReport> {
    let held = state.held.as_ref()?;
    let is_suspended = state.execution.state == ExecutionState::Suspended;
    let prefix = if is_suspended || held.needs_operator { "" } else { "missing: " };
    let report = PostureReport::new(Posture::Blocked, format!("{prefix}{}", held.missing));
    Some(PostureReport { message_id: Some(held.message_id), ..report })
}

/// Returns the oldest wait of a kind that blocks the agent itself or an open work item.
fn active_wait(records: &Records, kind: WaitKind) -> Option<&Wait> {
    let on_open_item = |wait: &Wait| match wait.work_item_id {
        None => true,
        Some(id) => records.works.iter().any(|item| item.id == id && is_open(item)),
    };
    records.waits.iter().find(|wait| wait.is_waiting() && wait.kind == kind && on_open_item(wait))
}

fn is_open(item: &WorkItem) -> bool {
    item.state == WorkState::Open
}
