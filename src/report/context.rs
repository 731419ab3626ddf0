//! What a turn is told: the context document, and the same as a prompt of text (contract, turns).

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use crate::model::continuation::Continuation;
use crate::model::message::{AuthorityClass, Message};
use crate::model::records::Records;
use crate::model::run::Brief;
use crate::model::state::CurrentRun;
use crate::model::task::Task;
use crate::model::timer::Timer;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::rules::limits::left;
use crate::rules::transition::turn::Claimed;
use crate::rules::work::{WaitsByItem, readiness, scheduling_state};

/// How many of the last briefs and of the reduced messages a turn is told.
pub const BRIEFS: usize = 5;
pub const REDUCED: usize = 50;
pub const INTERJECTED: usize = 50;

/// Where the turn finds things.
pub struct Places<'a> {
    pub state_dir: &'a Path,
    pub run_dir: &'a Path,
    /// What the turn works on.
    pub workspace: &'a Path,
}

/// What was before this turn; both lists newest first.
pub struct Past {
    pub briefs: Vec<Brief>,
    pub reduced: Vec<Message>,
    /// How many were reduced, of which `reduced` are the newest.
    pub reduced_count: u64,
    /// What the operator said to earlier runs of the message, newest first.
    pub interjected: Vec<Message>,
}

/// `context.json`. What may be long in it is not copied to be written.
#[derive(Serialize)]
pub struct Document<'a> {
    schema: &'static str,
    agent: Value,
    run: Value,
    message: Value,
    continuation: &'a Continuation,
    reduced: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interjected: Vec<Value>,
    work: Value,
    waits: &'a [Wait],
    tasks: &'a [Task],
    timers: &'a [Timer],
    recent_briefs: &'a [Brief],
    capabilities: Value,
    default_external_ingress: Option<Value>,
}

/// The run, and for what its message was put off before, if it was.
fn this_run(run: &CurrentRun) -> Value {
    let mut value = json!({ "id": run.run_id, "attempt": run.attempt, "claimed_at": run.claimed_at });
    if let Some(deferred) = &run.deferred {
        value["deferrals"] = json!(run.deferrals);
        value["deferred"] = json!(deferred);
    }
    value
}

pub fn document<'a>(
    places: &Places<'_>,
    claimed: &'a Claimed,
    records: &'a Records,
    past: &'a Past,
    trigger: Option<&Trigger>,
) -> Document<'a> {
    let run = &claimed.run;
    let limits = &records.policy.limits;
    let mut about_run = this_run(run);
    if claimed.lost.is_some() {
        // It is no first try, whatever it looks like.
        about_run["checkpoint_lost"] = json!(true);
    }
    Document {
        schema: "dormouse/context/1",
        agent: json!({ "id": records.state.agent, "description": records.policy.description }),
        run: about_run,
        message: marked(&claimed.message),
        continuation: &run.continuation,
        reduced: json!({
            "count": past.reduced_count,
            "messages": past.reduced.iter().rev().map(marked).collect::<Vec<_>>(),
        }),
        interjected: past.interjected.iter().rev().map(marked).collect(),
        work: work(records),
        waits: &records.waits,
        tasks: &records.tasks,
        timers: &records.timers,
        recent_briefs: &past.briefs,
        capabilities: json!({
            // JSON is text, and a path need not be: the environment has them as they are.
            "paths": {
                "state_dir": places.state_dir.to_string_lossy(),
                "run_dir": places.run_dir.to_string_lossy(),
                "workspace": places.workspace.to_string_lossy(),
            },
            "limits": {
                "max_message_bytes": limits.max_message.0,
                "hops_left": limits.max_hops.saturating_sub(run.hops),
                "attempts_left": records.policy.recovery.max_attempts.saturating_sub(run.attempt),
                "timeout_ms": records.policy.turn.timeout.0.map(|limit| limit.as_millis()),
                "left": left(&records.state, limits, run.claimed_at),
            },
        }),
        default_external_ingress: trigger.map(|trigger| {
            json!({
                "trigger_id": trigger.id,
                "delivery_mode": trigger.delivery_mode,
                "url_template": format!("{{base_url}}/agents/{}/triggers/{}?secret={{secret}}", records.state.agent, trigger.id),
            })
        }),
    }
}

/// A message with a plain word on whether its body is an instruction or only evidence.
fn marked(message: &Message) -> Value {
    let mut value = json!(message);
    value["body_is"] = json!(if is_evidence(message) { "evidence" } else { "instruction" });
    value
}

/// Whatever comes from outside is to be weighed, not obeyed.
fn is_evidence(message: &Message) -> bool {
    match message.authority_class {
        AuthorityClass::ExternalEvidence | AuthorityClass::IntegrationSignal => true,
        AuthorityClass::OperatorInstruction | AuthorityClass::RuntimeInstruction => false,
    }
}

fn work(records: &Records) -> Value {
    let focus = records.state.focus;
    let current = records.works.iter().find(|item| Some(item.id) == focus).map(|item| {
        let mut value = json!(item);
        value["plan_path"] = json!(format!("work/{}.plan.md", item.id));
        value
    });
    let waits = WaitsByItem::of(&records.waits);
    let open: Vec<Value> = records
        .works
        .iter()
        .map(|item| {
            let state = scheduling_state(item, &waits);
            json!({ "id": item.id, "objective": item.objective, "scheduling_state": state, "readiness": readiness(state) })
        })
        .collect();
    json!({ "current": current, "open": open })
}

/// The same as text. Outside content stands in a fenced block that names its origin and that
/// nothing inside can close.
pub fn prompt(claimed: &Claimed, records: &Records, past: &Past) -> String {
    let mut text = format!("You are the agent `{}`.", records.state.agent);
    if let Some(description) = &records.policy.description {
        text.push_str(&format!(" {description}"));
    }
    text.push_str("\n\n## Message\n\n");
    text.push_str(&quoted(&claimed.message));
    if claimed.run.attempt > 1 {
        text.push_str(&format!("\nThis is attempt {}. What went wrong before:\n", claimed.run.attempt));
        for failure in &claimed.message.failures {
            text.push_str(&format!("- attempt {}: {}\n", failure.attempt, failure.reason));
        }
    }
    if !past.reduced.is_empty() {
        text.push_str(&format!("\n## Taken note of since the last turn ({})\n\n", past.reduced_count));
        for message in past.reduced.iter().rev() {
            text.push_str(&quoted(message));
        }
    }
    if !past.interjected.is_empty() {
        text.push_str("\n## Said while you were at it before\n\n");
        for message in past.interjected.iter().rev() {
            text.push_str(&quoted(message));
        }
    }
    if !records.works.is_empty() {
        text.push_str("\n## Work\n\n");
        let waits = WaitsByItem::of(&records.waits);
        for item in &records.works {
            let current = if Some(item.id) == records.state.focus { ", current" } else { "" };
            let state = scheduling_state(item, &waits);
            text.push_str(&format!("- {} ({state}{current}): {}\n", item.id, item.objective));
        }
    }
    if !past.briefs.is_empty() {
        text.push_str("\n## What you said last\n\n");
        for brief in past.briefs.iter().rev() {
            text.push_str(&format!("- {}: {}\n", brief.at, brief.text.replace('\n', " ")));
        }
    }
    text
}

fn quoted(message: &Message) -> String {
    let body = message.body.to_text();
    let origin = one_word(&message.origin.to_string());
    let head = format!("From {origin} ({}), {}:\n\n", message.authority_class, message.created_at);
    if !is_evidence(message) {
        return format!("{head}{body}\n");
    }
    let fence = "`".repeat(longest_run_of_backticks(&body).max(2) + 1);
    format!("{head}{fence} evidence from {origin}\n{body}\n{fence}\n")
}

fn longest_run_of_backticks(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// An origin's name comes from outside, too: it must not end its line, or open or close a fence.
fn one_word(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || c.is_whitespace() || c == '`' { '_' } else { c }).collect()
}
