//! `get` and `list`: how an agent stands, assembled when it is asked for and never read back (contract, cli §4).

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::model::agent::{Identity, Status};
use crate::model::attention::Mark;
use crate::model::execution::ExecutionState;
use crate::model::id::{AgentName, TaskId};
use crate::model::message::{InboxKey, Priority};
use crate::model::posture::Posture;
use crate::model::records::Records;
use crate::model::state::{Retry, State};
use crate::model::time::Time;
use crate::model::trigger::Trigger;
use crate::model::work::{Readiness, SchedulingState};
use crate::rules::advisory::advisories;
use crate::rules::execution::deadline;
use crate::rules::limits::left;
use crate::rules::posture::posture;
use crate::rules::projection::closure_facts;
use crate::rules::work::{WaitsByItem, readiness, scheduling_state};

use super::output::{Output, Tone};
use super::text::{count, one_line, relative, table};

/// An agent that works on what was delegated to it.
#[derive(Debug, Clone, Serialize)]
pub struct ActiveChild {
    pub task_id: TaskId,
    pub agent: AgentName,
    /// Absent where it can't be read.
    pub status: Option<Status>,
}

/// Everything that a summary is assembled from.
pub struct Facts<'a> {
    pub identity: &'a Identity,
    pub records: &'a Records,
    /// Every queued message, in processing order, without the claimed one.
    pub queued: &'a [InboxKey],
    pub triggers: &'a [Trigger],
    pub children: &'a [ActiveChild],
    pub now: Time,
}

/// `get --json`
pub fn summary(facts: &Facts<'_>) -> Value {
    let records = facts.records;
    let state = &records.state;
    let limit = deadline(state, &records.policy.timeouts).map(|(at, _)| at).or(turn_limit(records));
    let execution = json!({
        "state": state.execution.state,
        "code": state.execution.state.code(),
        "since": state.execution.since,
        "task_id": state.execution.task_id,
        "reason": state.execution.reason,
        "timeout_at": limit,
    });
    let summary = json!({
        "id": state.agent,
        "identity": facts.identity,
        "description": records.policy.description,
        "status": state.status,
        "execution": execution,
        "scheduling_posture": posture(records),
        "lifecycle": lifecycle(state),
        "queue": queue(facts),
        "attention": state.attention,
        "current_run": state.current_run,
        "last_turn": state.last_turn,
        "closure": closure_now(records),
        "continuation": state.last_continuation,
        "work": work(records),
        "active_waits": records.waits.iter().filter(|wait| wait.is_active()).collect::<Vec<_>>(),
        "active_tasks": records.tasks.iter().filter(|task| !task.status.is_terminal()).collect::<Vec<_>>(),
        "active_children": facts.children,
        "active_timers": records.timers,
        "external_triggers": facts.triggers.iter().map(public_trigger).collect::<Vec<_>>(),
        "pending_wake_hint": state.pending_wake_hint,
        "retry": state.retry,
        "held": state.held,
        "limits": limits(records, facts.now),
        "capabilities": capabilities(records),
        "counters": state.counters,
        "revision": state.revision,
        "next_due_at": state.next_due_at,
        "advisories": advisories(records, facts.now),
    });
    summary
}

/// When the turn that runs has had its time.
fn turn_limit(records: &Records) -> Option<Time> {
    let runs = records.state.execution.state == ExecutionState::Running;
    let run = records.state.current_run.as_ref().filter(|_| runs)?;
    Some(run.claimed_at.after(records.policy.turn.timeout.0?))
}

/// How the agent stands between turns: the closure of its records as they are.
fn closure_now(records: &Records) -> Value {
    json!(crate::rules::closure::derive(&closure_facts(records)))
}

/// Leaves out what does not apply now.
pub fn shown(mut summary: Value) -> Value {
    strip_nulls(&mut summary);
    summary
}

fn strip_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, field| !field.is_null());
        map.values_mut().for_each(strip_nulls);
    }
}

fn lifecycle(state: &State) -> Value {
    let status = state.status;
    let hint = match status {
        Status::Booting => "start it with `dormouse start`",
        Status::Stopped => "messages are kept until `dormouse start`",
        Status::AwakeIdle | Status::AwakeRunning | Status::AwaitingTask | Status::Asleep => {
            "the next tick decides"
        }
    };
    json!({
        "runnable": !matches!(status, Status::Booting | Status::Stopped),
        "accepts_messages": true,
        "hint": hint,
        "stopped_by": state.stopped_by,
    })
}

fn queue(facts: &Facts<'_>) -> Value {
    let mut by_priority: BTreeMap<Priority, u64> = BTreeMap::new();
    for key in facts.queued {
        *by_priority.entry(key.priority).or_default() += 1;
    }
    let by_priority: serde_json::Map<String, Value> =
        by_priority.into_iter().map(|(priority, count)| (priority.name().to_owned(), json!(count))).collect();
    let oldest_at = facts.queued.iter().filter_map(|key| key.id.minted_at()).min();
    let queue = json!({
        "pending": facts.queued.len(),
        "by_priority": by_priority,
        "oldest_at": oldest_at,
        "dead": facts.records.state.counters.dead,
    });
    queue
}

fn work(records: &Records) -> Value {
    let waits = WaitsByItem::of(&records.waits);
    let mut by_readiness = BTreeMap::new();
    for item in &records.works {
        *by_readiness.entry(readiness(scheduling_state(item, &waits))).or_insert(0u64) += 1;
    }
    let of = |readiness: Readiness| by_readiness.get(&readiness).copied().unwrap_or(0);
    let open =
        records.works.iter().filter(|item| scheduling_state(item, &waits) != SchedulingState::Completed);
    let work = json!({
        "current": records.state.focus,
        "open": open.count(),
        "runnable": of(Readiness::Runnable),
        "waiting": of(Readiness::WaitingForOperator),
        "blocked": of(Readiness::Blocked),
    });
    work
}

/// A trigger without its hash: what is stored of a secret is shown to nobody.
fn public_trigger(trigger: &Trigger) -> Value {
    json!({
        "id": trigger.id,
        "delivery_mode": trigger.delivery_mode,
        "scope": trigger.scope,
        "status": trigger.status,
        "created_at": trigger.created_at,
    })
}

fn limits(records: &Records, now: Time) -> Value {
    let limits = &records.policy.limits;
    let value = json!({
        "max_message_bytes": limits.max_message.0,
        "max_hops": limits.max_hops,
        "dedupe_window_ms": limits.dedupe_window.as_millis(),
        "turns_per_hour": limits.turns_per_hour,
        "turns_per_day": limits.turns_per_day,
        "cost_per_day": limits.cost_per_day,
        "tokens_per_day": limits.tokens_per_day,
        "left": left(&records.state, limits, now),
        "turn_timeout_ms": records.policy.turn.timeout.0.map(|limit| limit.as_millis()),
        "max_attempts": records.policy.recovery.max_attempts,
    });
    value
}

fn capabilities(records: &Records) -> Value {
    json!({
        "has_command": records.policy.turn.command.is_some(),
        "workdir": records.policy.turn.workdir,
        "workspace": { "path": records.policy.workspace.path, "mode": records.policy.workspace.mode },
        "stdin": records.policy.turn.stdin,
        "priority": records.policy.scheduler.priority,
    })
}

/// What a dotted path leads to.
#[derive(Debug, PartialEq)]
pub enum Field<'v> {
    Value(&'v Value),
    /// A field that does not apply now.
    Absent,
    Unknown,
}

/// The parts of a summary whose fields are all there, with nothing in those that don't apply.
const COMPLETE: &[&str] = &["execution", "lifecycle", "queue", "work", "limits", "capabilities"];

/// A field of a summary by its dotted path; numbers count into lists.
pub fn field<'v>(summary: &'v Value, path: &str) -> Field<'v> {
    let mut value = summary;
    let top = path.split('.').next().unwrap_or(path);
    for (depth, step) in path.split('.').enumerate() {
        let next = match value {
            Value::Null => return Field::Absent,
            Value::Array(items) => step.parse::<usize>().ok().and_then(|at| items.get(at)),
            other => other.get(step),
        };
        let must_be_there = depth == 0 || (depth == 1 && COMPLETE.contains(&top));
        match next {
            Some(next) => value = next,
            None if must_be_there => return Field::Unknown,
            None => return Field::Absent,
        }
    }
    if value.is_null() { Field::Absent } else { Field::Value(value) }
}

/// A value raw for scripts: strings without quotes, nothing as an empty line.
pub fn raw(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// How many of the newest attentions `get` shows to people.
const ATTENTIONS: usize = 3;

/// `get` for people.
pub fn text(facts: &Facts<'_>, out: &Output) -> String {
    let records = facts.records;
    let state = &records.state;
    let posture = posture(records);
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            rows.push(vec![out.paint(Tone::Quiet, &format!("{name:<10}")), value]);
        }
    };
    row("agent", out.paint(Tone::Strong, state.agent.as_str()));
    row("for", out.safe(&one_line(records.policy.description.as_deref().unwrap_or_default(), 100)));
    if let Some(mark) = &state.attention {
        let since = relative(mark.since, facts.now);
        row("attention", out.paint(Tone::Bad, &format!("{} since {since}", mark.count)));
        for attention in mark.newest.iter().rev().take(ATTENTIONS) {
            let said =
                format!("{}: {}", relative(attention.at, facts.now), one_line(&attention.to_string(), 150));
            row("", out.safe(&said));
        }
    }
    row("status", state.status.to_string());
    row("posture", format!("{}: {}", posture.posture, out.safe(&one_line(&posture.reason, 100))));
    let since = relative(state.execution.since, facts.now);
    let reason = state
        .execution
        .reason
        .as_deref()
        .map(|reason| format!(": {}", one_line(reason, 100)))
        .unwrap_or_default();
    row("execution", format!("{} since {since}{}", state.execution.state, out.safe(&reason)));
    let dead = match state.counters.dead {
        0 => String::new(),
        dead => format!(", {}", out.paint(Tone::Bad, &count(dead, "dead letter", "dead letters"))),
    };
    row("queue", format!("{} pending{dead}", facts.queued.len()));
    if let Some(turn) = &state.last_turn {
        let said =
            turn.brief.as_ref().or(turn.reason.as_ref()).map(|said| format!(": {}", one_line(said, 100)));
        let said = out.safe(&said.unwrap_or_default());
        row("last turn", format!("{} {}{said}", turn.terminal, relative(turn.ended_at, facts.now)));
    }
    if let Some(retry) = &state.retry {
        row(
            "retry",
            format!("{}: {}", relative(retry.not_before, facts.now), out.safe(&one_line(&retry.reason, 100))),
        );
    }
    if let Some(due) = state.next_due_at {
        row("next due", format!("{due} ({})", relative(due, facts.now)));
    }
    for advisory in advisories(records, facts.now) {
        row("advisory", out.safe(&format!("{}: {}", advisory.kind, advisory.message)));
    }
    table(&rows)
}

/// A line of `list`.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    pub id: AgentName,
    pub status: Status,
    pub execution_state: ExecutionState,
    pub posture: Posture,
    pub reason: String,
    pub pending: usize,
    /// What a person should look at and has not acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<Mark>,
    pub dead: u64,
    /// What is tried again, and when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_turn_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_due_at: Option<Time>,
}

impl Line {
    pub fn new(records: &Records, pending: usize) -> Line {
        let state = &records.state;
        let posture = posture(records);
        Line {
            id: state.agent.clone(),
            status: state.status,
            execution_state: state.execution.state,
            posture: posture.posture,
            reason: posture.reason,
            pending,
            attention: state.attention.clone(),
            dead: state.counters.dead,
            retry: state.retry.clone(),
            last_turn_at: state.last_turn.as_ref().map(|turn| turn.ended_at),
            next_due_at: state.next_due_at,
        }
    }

    pub fn cells(&self, out: &Output, now: Time) -> Vec<String> {
        let mark = if self.attention.is_some() { " !" } else { "" };
        vec![
            out.paint(Tone::Strong, &format!("{}{mark}", self.id)),
            self.status.to_string(),
            self.posture.to_string(),
            format!("{} pending", self.pending),
            self.last_turn_at
                .map_or_else(|| "no turn yet".to_owned(), |at| format!("turn {}", relative(at, now))),
            out.safe(&self.words(now)),
        ]
    }

    /// Why it stands as it does: what is wrong first.
    fn words(&self, now: Time) -> String {
        let attention = self.attention.as_ref().map(|mark| {
            let newest = mark.newest.last().map(|newest| format!(" ({})", newest.subject.words()));
            format!("{} to look at{}", mark.count, newest.unwrap_or_default())
        });
        let dead = (self.dead > 0).then(|| count(self.dead, "dead letter", "dead letters"));
        let retry =
            self.retry.as_ref().filter(|_| self.execution_state == ExecutionState::Failed).map(|retry| {
                let what = match retry.attempt {
                    Some(attempt) => format!("attempt {attempt}"),
                    None => "goes on".to_owned(),
                };
                format!("failed, {what} {}: {}", relative(retry.not_before, now), one_line(&retry.reason, 60))
            });
        let why = one_line(&self.reason, 60);
        let wrong: Vec<String> = attention.into_iter().chain(dead).chain(retry).collect();
        if wrong.is_empty() { why } else { format!("{}; {why}", wrong.join(", ")) }
    }
}
