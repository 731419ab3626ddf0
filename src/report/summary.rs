//! Summary of an agent for `get` and `list`, built on request and never read back (contract,
//! semantics §1).

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::model::agent::{Identity, Status};
use crate::model::attention::{Attention, Subject};
use crate::model::execution::ExecutionState;
use crate::model::id::{AgentName, MessageId, TaskId};
use crate::model::message::InboxKey;
use crate::model::records::Records;
use crate::model::settings::IngressSettings;
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::time::Time;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::SchedulingState;
use crate::rules::advisory::advisories;
use crate::rules::execution::deadline;
use crate::rules::limits::{dollars, left};
use crate::rules::posture::{posture, waking_hint};
use crate::rules::projection;
use crate::rules::stall::stall;
use crate::rules::work::{WaitsByItem, scheduling_state};

use super::list::ListRow;
use super::output::{Output, Tone};
use super::text::{self, count, due, one_line, relative, since, table, tally};
use super::trigger::default_ingress;
use super::{trigger, wait};

/// Agent whose parent is the agent of the summary.
#[derive(Debug, Clone, Serialize)]
pub struct ChildAgent {
    /// Delegated task on which the child works; `None` in the list of all children.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    pub agent: AgentName,
    /// Status of the child; `None` if the child can't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// Unclaimed messages in the inbox, and the newest messages that were settled without a turn.
#[derive(Debug, Clone, Default)]
pub struct Arrivals {
    /// Every queued message in processing order, except the claimed one.
    pub queued: Vec<InboxKey>,
    /// Number of quarantined files of the inbox.
    pub rejected: usize,
    /// Newest messages settled without a turn since the last completed turn, oldest first.
    pub reduced: Vec<MessageId>,
}

impl Arrivals {
    /// Number of queued messages and of files in the inbox that are not admitted yet.
    pub fn pending(&self, records: &Records) -> usize {
        self.queued.len() + records.inbox.submissions
    }

    /// Time of the oldest queued message.
    pub fn oldest(&self) -> Option<Time> {
        self.queued.iter().filter_map(|key| key.id.minted_at()).min()
    }
}

/// Facts about an agent for the output of `get`.
pub struct Facts<'a> {
    pub identity: Identity,
    pub records: Records,
    pub arrivals: Arrivals,
    pub triggers: Vec<Trigger>,
    pub ingress: &'a IngressSettings,
    pub at_work: Vec<ChildAgent>,
    /// Children of the agent; `None` if the caller does not need them.
    pub children: Option<Vec<ChildAgent>>,
    /// Directories of the agent's turns, as absolute paths by its current policy.
    pub cwd: PathBuf,
    pub workspace: PathBuf,
    pub now: Time,
}

/// Returns the JSON of `get --json`.
pub fn summary(facts: &Facts<'_>) -> Value {
    let records = &facts.records;
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
    let waits: Vec<&Wait> = records.waits.iter().filter(|wait| wait.is_active()).collect();
    let tasks: Vec<&Task> = records.tasks.iter().filter(|task| !task.status.is_terminal()).collect();
    let left_out = left_out(&state.agent, [waits.len(), tasks.len(), records.timers.len()]);
    let mut summary = json!({
        "agent": state.agent,
        "identity": facts.identity,
        "parent": facts.identity.parent,
        "children": facts.children,
        "description": records.policy.description,
        "status": state.status,
        "execution": execution,
        "lifecycle": lifecycle(state),
        "queue": queue(facts),
        "attention": state.attention_mark(),
        "stalled": stall(records).map(|stall| stall.reason),
        "moved": state.moved,
        "current_run": state.current_run.as_ref().map(|run| placed(run, facts)),
        "last_turn": state.last_turn.as_ref().map(|turn| placed(turn, facts)),
        "closure": projection::closure(records),
        "last_closure": state.last_closure,
        "continuation": state.last_continuation,
        "work": work(records),
        "active_waits": waits.iter().take(LISTED).map(|wait| wait::object(wait)).collect::<Vec<_>>(),
        "active_tasks": &tasks[..tasks.len().min(LISTED)],
        "active_children": facts.at_work,
        "active_timers": &records.timers[..records.timers.len().min(LISTED)],
        "left_out": left_out,
        "external_triggers": facts.triggers.iter().map(|one| trigger::object(one, facts.ingress)).collect::<Vec<_>>(),
        "default_external_ingress": default_ingress(&facts.triggers, facts.ingress),
        "pending_wake_hint": waking_hint(records),
        "reduced": { "count": state.counters.reduced_since_turn, "ids": facts.arrivals.reduced },
        "retry": state.retry,
        "held": held(records),
        "limits": limits(records, facts.now),
        "capabilities": capabilities(records),
        "counters": counters(state),
        "revision": state.revision,
        "next_due_at": state.next_due_at,
        "advisories": advisories(records, facts.now),
    });
    if let (Value::Object(all), Value::Object(posture)) = (&mut summary, json!(posture(records))) {
        all.extend(posture);
    }
    summary
}

/// Returns a turn as JSON, with the paths of its directories.
fn placed(turn: &impl Serialize, facts: &Facts<'_>) -> Value {
    let mut value = json!(turn);
    value["cwd"] = json!(facts.cwd.to_string_lossy());
    value["workspace"] = json!(facts.workspace.to_string_lossy());
    value
}

/// Maximum number of records of one kind that `get` shows.
const LISTED: usize = 50;

/// Counts the waits, tasks and timers that `get` does not show, each with the command that lists
/// them. Returns `None` if all are shown.
fn left_out(agent: &AgentName, counts: [usize; 3]) -> Option<Value> {
    let planes = [("active_waits", "wait"), ("active_tasks", "task"), ("active_timers", "timer")];
    let object: Map<String, Value> = planes
        .iter()
        .zip(counts)
        .filter(|(_, count)| *count > LISTED)
        .map(|((field, plane), count)| {
            let see = format!("dormouse {plane} list -a {agent}");
            ((*field).to_owned(), json!({ "count": count - LISTED, "see": see }))
        })
        .collect();
    (!object.is_empty()).then_some(Value::Object(object))
}

/// Returns the counters with a rounded cost, because a sum of floats has rounding errors.
fn counters(state: &State) -> Value {
    let mut counters = json!(state.counters);
    counters["cost_usd"] = json!(dollars(state.counters.cost_usd));
    counters
}

/// Returns the end of the running turn's timeout; `None` without a running turn or timeout.
fn turn_limit(records: &Records) -> Option<Time> {
    let runs = records.state.execution.state == ExecutionState::Running;
    let run = records.state.current_run.as_ref().filter(|_| runs)?;
    Some(run.claimed_at.after(records.policy.turn.timeout.0?))
}

/// Returns the held run as JSON. `resource` is the missing resource that the claim found or the
/// turn reported.
fn held(records: &Records) -> Value {
    let Some(held) = &records.state.held else { return Value::Null };
    let mut value = json!(held);
    if let Some(resource) = held.deferred.as_ref().and_then(|deferred| deferred.resource.as_ref()) {
        value["resource"] = json!(resource);
    }
    value
}

/// Returns the recommended action for an agent of this status.
pub(super) fn next_act(status: Status) -> &'static str {
    match status {
        Status::Booting => "start it with `dormouse start`",
        Status::Stopped => "messages are kept until `dormouse start`",
        Status::AwakeIdle | Status::AwakeRunning | Status::AwaitingTask | Status::Asleep => {
            "the next tick decides"
        }
    }
}

fn lifecycle(state: &State) -> Value {
    let status = state.status;
    json!({
        "runnable": !matches!(status, Status::Booting | Status::Stopped),
        "accepts_messages": true,
        "hint": next_act(status),
        "stopped_by": state.stopped_by,
    })
}

fn queue(facts: &Facts<'_>) -> Value {
    json!({
        "pending": facts.arrivals.pending(&facts.records),
        "by_priority": tally(facts.arrivals.queued.iter().map(|key| key.priority)),
        "oldest_at": facts.arrivals.oldest(),
        "dead": facts.records.state.counters.dead,
        "dropped_files": facts.records.inbox.submissions,
        "rejected": facts.arrivals.rejected,
    })
}

fn work(records: &Records) -> Value {
    let waits = WaitsByItem::of(&records.waits);
    let states = tally(records.works.iter().map(|item| scheduling_state(item, &waits)));
    let count = |state| states.get(&state).copied().unwrap_or(0);
    let (runnable, blocked) = (count(SchedulingState::Runnable), count(SchedulingState::Blocked));
    let (focus, open) = (records.state.focus, records.works.len() as u64);
    json!({
        "current": focus,
        "open": open,
        "queued": open.saturating_sub(u64::from(focus.is_some())),
        "runnable": runnable,
        "waiting": open - runnable - blocked,
        "waiting_for_operator": count(SchedulingState::WaitingOperator),
        "blocked": blocked,
    })
}

fn limits(records: &Records, now: Time) -> Value {
    let limits = &records.policy.limits;
    json!({
        "max_message_bytes": limits.max_message.0,
        "max_outcome_bytes": limits.max_outcome.0,
        "max_actions": limits.max_actions,
        "max_open_work": limits.max_open_work,
        "max_drops_per_step": limits.max_drops_per_step,
        "max_hops": limits.max_hops,
        "dedupe_window_ms": limits.dedupe_window.as_millis(),
        "turns_per_hour": limits.turns_per_hour,
        "turns_per_day": limits.turns_per_day,
        "cost_per_day": limits.cost_per_day,
        "tokens_per_day": limits.tokens_per_day,
        "left": left(&records.state, limits, now),
        "turn_timeout_ms": records.policy.turn.timeout.0.map(|limit| limit.as_millis()),
        "max_attempts": records.policy.recovery.max_attempts,
    })
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

/// Parts of a summary in which every field exists, even if null.
const COMPLETE: &[&str] = &["execution", "lifecycle", "queue", "work", "limits", "capabilities"];

/// Looks up a field by its dotted path, in which numbers are list indexes. Returns null for a field
/// that is missing at present, and `None` for an unknown field.
pub fn field<'v>(summary: &'v Value, path: &str) -> Option<&'v Value> {
    let mut value = summary;
    let top = path.split('.').next().unwrap_or(path);
    for (depth, step) in path.split('.').enumerate() {
        if value.is_null() {
            return Some(value);
        }
        let next = match value.as_array() {
            Some(items) => step.parse::<usize>().ok().and_then(|at| items.get(at)),
            None => value.get(step),
        };
        let must_be_there = depth == 0 || (depth == 1 && COMPLETE.contains(&top));
        match next {
            Some(next) => value = next,
            None if must_be_there => return None,
            None => return Some(&Value::Null),
        }
    }
    Some(value)
}

/// Formats a value for scripts: a string without quotes, null as an empty line.
pub fn raw(value: &Value) -> String {
    if value.is_null() {
        return String::new();
    }
    value.as_str().map_or_else(|| text::json(value), str::to_owned)
}

/// Formats a field for people: like `raw`, but with moments in local time.
pub fn for_people(name: &str, value: &Value) -> String {
    let written = raw(value);
    if !name.ends_with("_at") {
        return written;
    }
    Time::parse(&written).map_or(written, Time::local)
}

/// Maximum number of reasons for attention that `get` shows to people.
const ATTENTIONS: usize = 3;

/// Maximum length of one shown reason in columns, enough for a question and the answering command.
const ATTENTION: usize = 250;

/// Returns the command that repeats a message that has failed all its attempts.
fn remedy(attention: &Attention) -> Option<String> {
    let id = attention.about.message_id.filter(|_| attention.subject == Subject::DeadLetter);
    id.map(|id| format!("dormouse queue requeue {id}"))
}

/// Line of a summary for people: its name, its text before escaping, and its tone.
pub type SummaryRow = (&'static str, String, Option<Tone>);

/// Returns the lines about the state of an agent that `get` and the detail view of `watch` show.
pub fn rows(line: &ListRow, state: &State, now: Time) -> Vec<SummaryRow> {
    let said =
        |text: Option<&String>| text.map_or(String::new(), |text| format!(": {}", one_line(text, 100)));
    let mut rows: Vec<SummaryRow> = Vec::new();
    if let Some(mark) = &line.attention {
        let text = format!("{} {}", mark.count, since(mark.since, now));
        rows.push(("attention", text, Some(Tone::Bad)));
        for attention in mark.newest.iter().rev().take(ATTENTIONS) {
            let words = one_line(&attention.to_string(), ATTENTION);
            rows.push(("", format!("{}: {words}", relative(attention.at, now)), None));
            rows.extend(remedy(attention).map(|command| ("", format!("try it again: {command}"), None)));
        }
    }
    if let Some(moved) = &line.moved {
        rows.push(("moved", format!("{moved}, {}", relative(moved.at, now)), Some(Tone::Bad)));
    }
    rows.push(("status", line.status.to_string(), None));
    rows.push(("posture", format!("{}: {}", line.posture.words(), one_line(&line.reason, 100)), None));
    let execution = &state.execution;
    let reason = said(execution.reason.as_ref());
    rows.push(("execution", format!("{} {}{reason}", execution.state, since(execution.since, now)), None));
    let wrong = [
        (line.dead, "dead letter", "dead letters"),
        (line.rejected as u64, "rejected file", "rejected files"),
    ];
    let wrong = wrong.into_iter().filter(|(number, ..)| *number > 0);
    let wrong: String = wrong.map(|(number, one, many)| format!(", {}", count(number, one, many))).collect();
    let tone = (!wrong.is_empty()).then_some(Tone::Bad);
    rows.push(("queue", format!("{} pending{wrong}", line.pending), tone));
    if let Some(hint) = &line.pending_wake_hint {
        let why = hint.reason.as_deref().or(hint.resource.as_deref()).unwrap_or_default();
        rows.push(("wake hint", one_line(&format!("from {}: {why}", hint.source), 100), None));
    }
    if let Some(turn) = &state.last_turn {
        let said = said(turn.brief.as_ref().or(turn.reason.as_ref()));
        let tone = turn.terminal.is_failure().then_some(Tone::Bad);
        rows.push(("last turn", format!("{} {}{said}", turn.terminal, relative(turn.ended_at, now)), tone));
    }
    if let Some(retry) = &line.retry {
        let text = format!("{}: {}", due(retry.not_before, now), one_line(&retry.reason, 100));
        rows.push((retry.attempt.map_or("recovery", |_| "retry"), text, None));
    }
    if let Some(held) = &state.held {
        let when = held.not_before.map(|at| format!("{}: ", relative(at, now))).unwrap_or_default();
        rows.push(("held", format!("{when}{}", one_line(&held.missing, 100)), None));
    }
    let shown = |due: Time| format!("{} ({})", due.local(), relative(due, now));
    let next = line.due.map(|due| if due <= now { "now".to_owned() } else { shown(due) });
    rows.extend(next.map(|next| ("next due", next, None)));
    rows
}

/// Returns the text of `get` for people.
pub fn text(facts: &Facts<'_>, out: &Output) -> String {
    let Facts { records, arrivals, now, .. } = facts;
    let line = ListRow::new(records, arrivals, None, *now);
    let mut rows = vec![("agent", line.agent.to_string(), Some(Tone::Strong))];
    let purpose = records.policy.description.as_deref().map(|purpose| one_line(purpose, 100));
    rows.extend(purpose.filter(|purpose| !purpose.is_empty()).map(|purpose| ("for", purpose, None)));
    rows.extend(self::rows(&line, &records.state, *now));
    rows.extend(advisories(records, *now).into_iter().map(|advisory| {
        let text = format!("{}: {}", advisory.kind, advisory.message);
        ("advisory", text, None)
    }));
    let cells = rows.iter().map(|(name, value, tone)| {
        vec![out.paint(Tone::Quiet, &format!("{name:<10}")), out.paint(*tone, &out.safe(value))]
    });
    table(&cells.collect::<Vec<_>>())
}
