//! Background tasks: their start, cancellation and end (contract, semantics §12).

use serde_json::{Value, json};

use crate::model::action::{Requester, TaskRequest};
use crate::model::agent::Status;
use crate::model::event::EventKind;
use crate::model::id::{AgentName, TaskId};
use crate::model::message::{
    AdmissionContext, Body, DeliverySurface, Message, MessageKind, Origin, OriginKind,
};
use crate::model::refusal::Refusal;
use crate::model::run::Exit;
use crate::model::task::{Assignment, ChildEnd, Task, TaskEnd, TaskJob, TaskStatus};
use crate::model::time::Span;
use crate::model::transaction::Put;
use crate::model::turn::RunClaimant;

use crate::rules::admission::{Provenance, check_size, message, one_further};

use super::arrival::{admit, own_message};
use super::draft::{Draft, without_nulls};
use super::{wait, work};

/// End of a task: observed by its supervisor, reported by a child agent, or not observed.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskEnding {
    Seen(TaskEnd),
    Child(ChildEnd),
    /// End that no process observed, with the reason why the task counts as ended.
    Lost(String),
}

/// Refuses a change of a task's status that the contract's table of statuses does not list.
pub fn check(from: TaskStatus, to: TaskStatus) -> Result<(), Refusal> {
    use TaskStatus::{Cancelled, Cancelling, Completed, Failed, Interrupted, Queued, Running};
    let leads = match from {
        Queued => matches!(to, Running | Cancelling | Failed | Interrupted),
        // A stop of the child agent ends its task even if the parent has not cancelled the task.
        Running => matches!(to, Cancelling | Completed | Failed | Cancelled | Interrupted),
        Cancelling => matches!(to, Cancelled | Interrupted),
        Completed | Failed | Cancelled | Interrupted => false,
    };
    if leads {
        Ok(())
    } else {
        let message = format!("a task that is {from} does not become {to}");
        Err(Refusal::between(from.name(), to.name(), message))
    }
}

/// Records a new task, whose supervisor is then started. Refused if the agent is stopped.
pub fn start(
    draft: &mut Draft,
    new: TaskRequest,
    by: Requester,
    policy: String,
    at: RunClaimant,
) -> Result<Task, Refusal> {
    let state = &draft.records.state;
    if state.status == Status::Stopped {
        return Err(Refusal::new("stopped", format!("`{}` is stopped: it starts no tasks", state.agent))
            .hint("`dormouse start` lets it run"));
    }
    record(draft, new, by, policy, at)
}

/// Records a task, also one in the outcome of a turn whose agent was stopped meanwhile. That stop
/// then ends the task, and the agent is notified after its next start. `policy` is the `agent.toml`
/// for a child that does not exist yet. `at` is the machine of the task's supervisor.
pub fn record(
    draft: &mut Draft,
    new: TaskRequest,
    by: Requester,
    policy: String,
    at: RunClaimant,
) -> Result<Task, Refusal> {
    let delegated = match (new.command.first(), new.delegate, new.text) {
        (Some(program), None, None) if !program.is_empty() => None,
        (None, Some(child), Some(text)) => Some((child, Body::Text { text })),
        _ => return Err(Refusal::new("invalid_task", "a task has a `command`, or `delegate` and `text`")),
    };
    if new.interactive && delegated.is_some() {
        return Err(Refusal::new("invalid_task", "only a command takes input"));
    }
    new.work_item_id.map_or(Ok(()), |id| work::open(draft, id).map(drop))?;
    if let Some((child, body)) = &delegated {
        if !body.is_contentful() {
            return Err(Refusal::new("blank_message", "a delegation needs a text that says what to do"));
        }
        check_child(draft, child)?;
    }
    let id = TaskId(draft.stamp.mint());
    let state = &draft.records.state;
    let run = state.current_run.as_ref().filter(|_| by.in_turn);
    // A turn that has completed its own work item may still start a task, which then has no item.
    let of_turn = run.and_then(|run| run.work_item_id).filter(|id| work::open(draft, *id).is_ok());
    let run_id = run.map(|run| run.run_id);
    let agent = state.agent.clone();
    let hops = one_further(by.hops, &draft.records.policy.limits)?;
    let job = match delegated {
        None => TaskJob::Command { argv: new.command },
        Some((child, body)) => {
            let mut message = assigned(draft, &child, body)?;
            message.hops = hops;
            message.causation_id = Some(id.to_string());
            message.source_refs = run_id.map(|run| format!("{agent}/{run}")).into_iter().collect();
            let message_id = message.id;
            let assignment = Some(Box::new(Assignment { policy, message }));
            TaskJob::ChildAgent { child, message_id, assignment }
        }
    };
    let task = Task {
        run_id,
        hops,
        summary: new.summary,
        work_item_id: new.work_item_id.or(of_turn),
        notify: new.notify,
        interactive: new.interactive,
        timeout: new.timeout,
        host: at.host,
        boot_id: at.boot_id,
        place: Some(at.place),
        ..Task::new(id, agent, job, draft.now())
    };
    let data = json!({ "task_id": task.id, "to": task.status, "job": named_job(&task.job) });
    draft.event(EventKind::TaskTransition, task.run_id, data);
    draft.add(&task);
    Ok(task)
}

/// Refuses a delegation to the agent itself, or to a child that works on another delegation.
fn check_child(draft: &Draft, child: &AgentName) -> Result<(), Refusal> {
    let state = &draft.records.state;
    if *child == state.agent {
        return Err(Refusal::new("not_a_child", format!("`{child}` can't delegate to itself"))
            .hint("send the agent a message with `dormouse enqueue`"));
    }
    let busy = draft.records.tasks.iter().find(|task| task.child() == Some(child));
    match busy {
        None => Ok(()),
        Some(task) => Err(Refusal::new("child_busy", format!("`{child}` is still working on {}", task.id))
            .hint(format!("wait for its result, or add to it with `dormouse enqueue {child}`"))),
    }
}

/// Returns the message of a delegation to a child, with the parent in the role of the operator.
fn assigned(draft: &mut Draft, child: &AgentName, body: Body) -> Result<Message, Refusal> {
    check_size(&body, &draft.records.policy.limits)?;
    let from = Provenance {
        origin: Origin { kind: OriginKind::Operator, id: Some(draft.records.state.agent.to_string()) },
        delivery_surface: DeliverySurface::RuntimeSystem,
        admission_context: AdmissionContext::RuntimeOwned,
    };
    Ok(message(child.clone(), MessageKind::OperatorPrompt, from, body, &mut draft.stamp))
}

/// Returns the job for the event log, without the text of a delegation, which the child gets.
fn named_job(job: &TaskJob) -> Value {
    match job {
        TaskJob::Command { .. } => json!(job),
        TaskJob::ChildAgent { child, message_id, .. } => {
            json!({ "kind": "child_agent", "child": child, "message_id": message_id })
        }
    }
}

/// Records that the supervisor is about to start the command. `None` if the task was cancelled
/// before.
pub fn run(draft: &mut Draft, id: TaskId, supervisor: RunClaimant) -> Result<Option<Task>, Refusal> {
    let now = draft.now();
    let task = open(draft, id)?;
    if task.status == TaskStatus::Cancelling {
        return Ok(None);
    }
    task.host = supervisor.host;
    task.boot_id = supervisor.boot_id;
    task.place = Some(supervisor.place);
    task.supervisor_pid = Some(supervisor.pid);
    task.started_at = Some(now);
    go_to(draft, id, TaskStatus::Running).map(Some)
}

/// Assigns all open tasks to this machine. None of them had been started when their agent was moved
/// here from another machine.
pub fn adopt(draft: &mut Draft, claimant: &RunClaimant) {
    let adopt = |task: &mut Task| {
        (task.host, task.boot_id) = (claimant.host.clone(), claimant.boot_id.clone());
        task.place = Some(claimant.place.clone());
    };
    draft.change_each(|_| true, adopt);
}

/// Records that the child has received the message of a delegation.
pub fn handed_over(draft: &mut Draft, id: TaskId) -> Result<(), Refusal> {
    let now = draft.now();
    let Some(task) = draft.records.tasks.iter_mut().find(|task| task.id == id) else { return Ok(()) };
    let TaskJob::ChildAgent { assignment, .. } = &mut task.job else { return Ok(()) };
    *assignment = None;
    if task.status != TaskStatus::Queued {
        return Ok(());
    }
    task.started_at = Some(now);
    go_to(draft, id, TaskStatus::Running).map(drop)
}

/// Records that a task is to be cancelled. Idempotent.
pub fn cancel(draft: &mut Draft, id: TaskId) -> Result<Task, Refusal> {
    let task = open(draft, id)?;
    if task.status == TaskStatus::Cancelling {
        return Ok(task.clone());
    }
    go_to(draft, id, TaskStatus::Cancelling)
}

/// Ends a task: its terminal record and the message about it are one transaction. `None` if another
/// process has already ended the task, with its own message.
pub fn finish(draft: &mut Draft, id: TaskId, end: TaskEnding) -> Result<Option<Task>, Refusal> {
    let Some(mut task) = draft.take::<Task>(id) else { return Ok(None) };
    let from = task.status;
    (task.status, task.reason) = verdict(&task, &end);
    check(from, task.status)?;
    task.ended_at = Some(draft.now());
    let last_line = match end {
        TaskEnding::Seen(seen) => {
            task.ended_at = Some(seen.ended_at);
            task.exit = Some(seen.exit);
            task.stdout_bytes = Some(seen.stdout_bytes);
            task.stderr_bytes = Some(seen.stderr_bytes);
            seen.last_line
        }
        TaskEnding::Child(child) => child.brief,
        TaskEnding::Lost(_) => {
            task.exit = task.started_at.filter(|_| task.child().is_none()).map(|_| Exit::Unknown {});
            None
        }
    };
    let message = result(draft, &task, last_line.as_deref());
    task.result_id = Some(message.id);
    transition(draft, &task, from);
    draft.end(&task);
    wait::note_result(draft, id, message.id);
    admit(draft, message);
    Ok(Some(task))
}

/// Returns the terminal status and the reason that follow from the end of a task.
fn verdict(task: &Task, end: &TaskEnding) -> (TaskStatus, Option<String>) {
    let is_cancelled = task.status == TaskStatus::Cancelling;
    let seen = match end {
        TaskEnding::Lost(_) if is_cancelled && task.started_at.is_none() => {
            return (TaskStatus::Cancelled, None);
        }
        TaskEnding::Lost(why) => return (TaskStatus::Interrupted, Some(why.clone())),
        TaskEnding::Seen(_) | TaskEnding::Child(_) if is_cancelled => return (TaskStatus::Cancelled, None),
        TaskEnding::Child(child) => return (child.status, child.reason.clone()),
        TaskEnding::Seen(seen) => seen,
    };
    if let Some(signal) = seen.cancelled_by {
        return (TaskStatus::Interrupted, Some(format!("its supervisor was ended by signal {signal}")));
    }
    if seen.timed_out {
        let limit = task.timeout.map(|limit| format!(" after {limit}")).unwrap_or_default();
        return (TaskStatus::Failed, Some(format!("timed out{limit}")));
    }
    let is_done = seen.exit == Exit::Code { code: 0 };
    (if is_done { TaskStatus::Completed } else { TaskStatus::Failed }, None)
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
    let supervisor_pid = task.supervisor_pid.filter(|_| task.reason.is_some());
    let data = json!({
        "task_id": task.id,
        "from": from,
        "to": task.status,
        "exit": task.exit,
        "reason": task.reason,
        "host": supervisor_pid.map(|_| &task.host),
        "supervisor_pid": supervisor_pid,
    });
    draft.event(EventKind::TaskTransition, task.run_id, without_nulls(data));
}

/// Returns the message that reports the end of a task. Without `notify` the message starts no turn.
fn result(draft: &mut Draft, task: &Task, last_line: Option<&str>) -> Message {
    let kind = if task.notify { MessageKind::TaskResult } else { MessageKind::TaskStatus };
    let mut message = own_message(draft, kind, Body::Text { text: told(task, last_line) });
    message.origin.id = Some(task.id.to_string());
    message.work_item_id = task.work_item_id;
    message.task_id = Some(task.id);
    message.task_status = Some(task.status);
    message.causation_id = Some(task.id.to_string());
    message.source_refs = task.run_id.map(|run| format!("{}/{run}", task.agent)).into_iter().collect();
    // After `limits.chain_pause` the result no longer belongs to the chain of turns of the task.
    let lasted = task.ended_at.map_or(Span::ZERO, |ended| ended.since(task.created_at));
    message.hops = if lasted > draft.records.policy.limits.chain_pause { 0 } else { task.hops };
    message
}

fn told(task: &Task, last_line: Option<&str>) -> String {
    let exit = task.exit.as_ref().filter(|exit| **exit != Exit::Unknown {}).map(Exit::to_string);
    let why: Vec<String> = task.reason.iter().cloned().chain(exit).collect();
    let mut text = format!("{}: {}", task.purpose(), task.status);
    if !why.is_empty() {
        text.push_str(&format!(" ({})", why.join(", ")));
    }
    if let Some(line) = last_line {
        text.push_str(&format!("\n{line}"));
    }
    text
}
