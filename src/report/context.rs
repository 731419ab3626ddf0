//! What a turn is told: the context document (contract, turns). `prompt` renders the same as text.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use crate::model::continuation::Continuation;
use crate::model::id::WaitId;
use crate::model::message::{AuthorityClass, Message};
use crate::model::records::Records;
use crate::model::run::Brief;
use crate::model::state::CurrentRun;
use crate::model::task::Task;
use crate::model::time::Time;
use crate::model::timer::Timer;
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
    /// The prose plan of the current work item.
    pub plan: Option<String>,
}

/// `context.json`. What may be long in it is not copied to be written.
#[derive(Serialize)]
pub struct Document<'a> {
    schema: &'static str,
    agent: Value,
    run: Value,
    message: Value,
    continuation: &'a Continuation,
    /// The waits that the message ends.
    resolves: Vec<Value>,
    reduced: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interjected: Vec<Value>,
    work: Value,
    waits: Vec<&'a Wait>,
    tasks: &'a [Task],
    timers: &'a [Timer],
    recent_briefs: &'a [Brief],
    capabilities: Value,
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
        resolves: resolves(&run.continuation, records, run.claimed_at),
        reduced: json!({
            "count": past.reduced_count,
            "messages": past.reduced.iter().rev().map(marked).collect::<Vec<_>>(),
        }),
        interjected: past.interjected.iter().rev().map(marked).collect(),
        work: work(records, past),
        waits: records.waits.iter().filter(|wait| !ends(&run.continuation, wait)).collect(),
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
                "max_outcome_bytes": limits.max_outcome.0,
                "max_actions": limits.max_actions,
                "open_work_left": limits.max_open_work.saturating_sub(records.works.len() as u64),
                "hops_left": limits.max_hops.saturating_sub(run.hops),
                "attempts_left": records.policy.recovery.max_attempts.saturating_sub(run.attempt),
                "timeout_ms": records.policy.turn.timeout.0.map(|limit| limit.as_millis()),
                "left": left(&records.state, limits, run.claimed_at),
            },
        }),
    }
}

/// Whether the message that a continuation is about ends this wait.
fn ends(continuation: &Continuation, wait: &Wait) -> bool {
    continuation.resolves.contains(&wait.id)
}

/// The waits that the message ends, whole, with how long each has lasted; of one that is on record no more, its id.
fn resolves(continuation: &Continuation, records: &Records, now: Time) -> Vec<Value> {
    let shown = |id: &WaitId| match records.waits.iter().find(|wait| wait.id == *id) {
        Some(wait) => {
            let mut value = json!(wait);
            value["age_ms"] = json!(now.since(wait.created_at).as_millis());
            value
        }
        None => json!({ "id": id }),
    };
    continuation.resolves.iter().map(shown).collect()
}

/// A message with a plain word on whether its body is an instruction or only evidence.
fn marked(message: &Message) -> Value {
    let mut value = json!(message);
    value["body_is"] = json!(if is_evidence(message) { "evidence" } else { "instruction" });
    value
}

/// Whatever comes from outside is to be weighed, not obeyed; so is what somebody says with a wake hint.
fn is_evidence(message: &Message) -> bool {
    let is_hint = message.idempotency_key.as_deref().is_some_and(|key| key.starts_with("wake_hint:"));
    match message.authority_class {
        AuthorityClass::ExternalEvidence | AuthorityClass::IntegrationSignal => true,
        AuthorityClass::OperatorInstruction | AuthorityClass::RuntimeInstruction => is_hint,
    }
}

fn work(records: &Records, past: &Past) -> Value {
    let focus = records.state.focus;
    let current = records.works.iter().find(|item| Some(item.id) == focus).map(|item| {
        let mut value = json!(item);
        value["plan_path"] = json!(format!("work/{}.plan.md", item.id));
        if let Some(plan) = &past.plan {
            value["plan"] = json!(plan);
        }
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
