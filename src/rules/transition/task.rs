//! Background tasks: started, stopped, ended (contract, semantics §12).

use serde_json::json;

use crate::model::agent::Status;
use crate::model::event::EventKind;
use crate::model::id::{MessageId, TaskId, WorkId};
use crate::model::message::{
    AdmissionContext, Body, DeliverySurface, Message, MessageKind, Origin, OriginKind, Priority,
};
use crate::model::record::Extra;
use crate::model::refusal::Refusal;
use crate::model::run::Exit;
use crate::model::task::{Task, TaskEnd, TaskJob, TaskStatus};
use crate::model::time::Span;
use crate::model::transaction::{Archived, Delete, Put};
use crate::model::turn::Claimant;

use crate::rules::admission::{authority, trigger_kind};

use super::draft::Draft;
use super::timer::admit;

/// What a new task is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    pub argv: Vec<String>,
    pub summary: Option<String>,
    /// Absent: that of the turn.
    pub work_item_id: Option<WorkId>,
    pub notify: bool,
    pub interactive: bool,
    pub timeout: Option<Span>,
    /// Whether the turn that runs is the one that starts it.
    pub from_turn: bool,
    /// Where its supervisor will be.
    pub at: Claimant,
}

/// What is known of the end of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    Seen(TaskEnd),
    /// Nobody saw it; says why not.
    Lost(String),
}

/// Whether a task may go from one status to another: only forwards, and never out of a terminal one.
pub fn check(from: TaskStatus, to: TaskStatus) -> Result<(), Refusal> {
    use TaskStatus::{Cancelled, Cancelling, Completed, Failed, Interrupted, Queued, Running};
    let leads = match from {
        Queued => matches!(to, Running | Cancelling | Failed | Interrupted),
        Running => matches!(to, Cancelling | Completed | Failed | Interrupted),
        Cancelling => matches!(to, Cancelled | Interrupted),
        Completed | Failed | Cancelled | Interrupted => false,
    };
    if leads {
        Ok(())
    } else {
        Err(Refusal::new("task_transition", format!("a task that is {from} does not become {to}")))
    }
}

/// Records a task that a supervisor is about to take up.
pub fn start(draft: &mut Draft, new: NewTask) -> Result<Task, Refusal> {
    let state = &draft.records.state;
    if state.status == Status::Stopped {
        return Err(Refusal::new("stopped", format!("`{}` is stopped: it starts no tasks", state.agent))
            .hint("`dormouse start` lets it run"));
    }
    if let Some(item) = new.work_item_id.filter(|id| !draft.records.works.iter().any(|item| item.id == *id)) {
        return Err(Refusal::new("not_open", format!("{item} is not an open work item")));
    }
    let id = TaskId(draft.stamp.mint());
    let state = &draft.records.state;
    let run = state.current_run.as_ref().filter(|_| new.from_turn);
    // A turn that has just completed its own item may well start something all the same.
    let of_turn = run
        .and_then(|run| run.work_item_id)
        .filter(|id| draft.records.works.iter().any(|item| item.id == *id));
    let task = Task {
        run_id: run.map(|run| run.run_id),
        hops: run.map_or(0, |run| run.hops),
        agent: state.agent.clone(),
        id,
        job: TaskJob::Command { argv: new.argv },
        status: TaskStatus::Queued,
        summary: new.summary,
        work_item_id: new.work_item_id.or(of_turn),
        notify: new.notify,
        interactive: new.interactive,
        timeout: new.timeout,
        host: new.at.host,
        boot_id: new.at.boot_id,
        supervisor_pid: None,
        created_at: draft.now(),
        started_at: None,
        ended_at: None,
        exit: None,
        reason: None,
        stdout_bytes: None,
        stderr_bytes: None,
        extra: Extra::new(),
    };
    let data = json!({ "task_id": task.id, "to": task.status, "job": task.job });
    draft.event(EventKind::TaskTransition, task.run_id, data);
    draft.records.tasks.push(task.clone());
    draft.put(Put::Task(Box::new(task.clone())));
    Ok(task)
}

/// The supervisor is about to start the command. `None` if somebody has stopped the task before.
pub fn run(draft: &mut Draft, id: TaskId, supervisor_pid: u32) -> Result<Option<Task>, Refusal> {
    let now = draft.now();
    let task = open(draft, id)?;
    if task.status == TaskStatus::Cancelling {
        return Ok(None);
    }
    task.supervisor_pid = Some(supervisor_pid);
    task.started_at = Some(now);
    go_to(draft, id, TaskStatus::Running).map(Some)
}

/// The task is to end. Asking again changes nothing.
pub fn cancel(draft: &mut Draft, id: TaskId) -> Result<Task, Refusal> {
    let task = open(draft, id)?;
    if task.status == TaskStatus::Cancelling {
        return Ok(task.clone());
    }
    go_to(draft, id, TaskStatus::Cancelling)
}

/// Ends a task: its terminal record and its message are one transaction. `None` if it is not open
/// any more: somebody else has ended it, with a message of its own.
pub fn finish(draft: &mut Draft, id: TaskId, end: End) -> Result<Option<Task>, Refusal> {
    let Some(place) = draft.records.tasks.iter().position(|task| task.id == id) else { return Ok(None) };
    let from = draft.records.tasks[place].status;
    let (to, reason) = verdict(from, draft.records.tasks[place].timeout, &end);
    check(from, to)?;
    let mut task = draft.records.tasks.remove(place);
    task.status = to;
    task.reason = reason;
    let mut last_line = None;
    match end {
        End::Seen(seen) => {
            task.ended_at = Some(seen.ended_at);
            task.exit = Some(seen.exit);
            task.stdout_bytes = Some(seen.stdout_bytes);
            task.stderr_bytes = Some(seen.stderr_bytes);
            last_line = seen.last_line;
        }
        End::Lost(_) => {
            task.ended_at = Some(draft.now());
            task.exit = task.started_at.map(|_| Exit::Unknown);
        }
    }
    transition(draft, &task, from);
    draft.delete(Delete::Task(id));
    draft.archive(Archived::Task(Box::new(task.clone())));
    let message = result(draft, &task, last_line.as_deref());
    admit(draft, message);
    Ok(Some(task))
}

/// The terminal status that an end amounts to, and why.
fn verdict(from: TaskStatus, timeout: Option<Span>, end: &End) -> (TaskStatus, Option<String>) {
    let seen = match end {
        End::Lost(why) => return (TaskStatus::Interrupted, Some(why.clone())),
        End::Seen(seen) => seen,
    };
    if from == TaskStatus::Cancelling {
        return (TaskStatus::Cancelled, None);
    }
    if let Some(signal) = seen.cancelled_by {
        return (TaskStatus::Interrupted, Some(format!("its supervisor was ended by signal {signal}")));
    }
    if seen.timed_out {
        let limit = timeout.map(|limit| format!(" after {limit}")).unwrap_or_default();
        return (TaskStatus::Failed, Some(format!("timed out{limit}")));
    }
    match seen.exit {
        Exit::Code { code: 0 } => (TaskStatus::Completed, None),
        Exit::Code { .. } | Exit::Signal { .. } | Exit::NotStarted { .. } | Exit::Unknown => {
            (TaskStatus::Failed, None)
        }
    }
}

fn open(draft: &mut Draft, id: TaskId) -> Result<&mut Task, Refusal> {
    let found = draft.records.tasks.iter_mut().find(|task| task.id == id);
    found.ok_or_else(|| Refusal::new("not_open", format!("{id} is not an open task")))
}

fn go_to(draft: &mut Draft, id: TaskId, to: TaskStatus) -> Result<Task, Refusal> {
    let task = open(draft, id)?;
    let from = task.status;
    check(from, to)?;
    task.status = to;
    let task = task.clone();
    transition(draft, &task, from);
    draft.put(Put::Task(Box::new(task.clone())));
    Ok(task)
}

fn transition(draft: &mut Draft, task: &Task, from: TaskStatus) {
    let mut data = json!({ "task_id": task.id, "from": from, "to": task.status });
    if let Some(exit) = &task.exit {
        data["exit"] = json!(exit);
    }
    if let Some(reason) = &task.reason {
        data["reason"] = json!(reason);
        data["host"] = json!(task.host);
        data["supervisor_pid"] = json!(task.supervisor_pid);
    }
    draft.event(EventKind::TaskTransition, task.run_id, data);
}

/// What the agent is told of the end. One that is not to be notified of is only taken note of.
fn result(draft: &mut Draft, task: &Task, last_line: Option<&str>) -> Message {
    let kind = if task.notify { MessageKind::TaskResult } else { MessageKind::TaskStatus };
    Message {
        id: MessageId(draft.stamp.mint()),
        agent: task.agent.clone(),
        kind,
        priority: Priority::Normal,
        origin: Origin { kind: OriginKind::Task, id: Some(task.id.to_string()) },
        authority_class: authority(OriginKind::Task),
        delivery_surface: DeliverySurface::TaskRejoin,
        admission_context: AdmissionContext::RuntimeOwned,
        trigger_kind: trigger_kind(kind),
        body: Body::Text { text: told(task, last_line) },
        work_item_id: task.work_item_id,
        task_id: Some(task.id),
        task_status: Some(task.status),
        wait_id: None,
        trigger_id: None,
        resource: None,
        correlation_id: None,
        causation_id: Some(task.id.to_string()),
        source_refs: task.run_id.map(|run| format!("{}/{run}", task.agent)).into_iter().collect(),
        dedupe_key: None,
        idempotency_key: None,
        expires_at: None,
        hops: task.hops,
        attempt: 1,
        created_at: draft.now(),
        continuation: None,
        failures: Vec::new(),
        settlement: None,
        extra: Extra::new(),
    }
}

fn told(task: &Task, last_line: Option<&str>) -> String {
    let what = match (&task.summary, &task.job) {
        (Some(summary), _) => summary.clone(),
        (None, TaskJob::Command { argv }) => argv.join(" "),
        (None, TaskJob::ChildAgent { child }) => child.to_string(),
    };
    let exit = task.exit.as_ref().map(Exit::to_string);
    let why: Vec<String> = task.reason.iter().cloned().chain(exit).collect();
    let mut text = format!("{what}: {}", task.status);
    if !why.is_empty() {
        text.push_str(&format!(" ({})", why.join(", ")));
    }
    if let Some(line) = last_line {
        text.push_str(&format!("\n{line}"));
    }
    text
}
