//! The context document: what a turn is told (contract, turns). `prompt` renders it as text.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use crate::model::continuation::Continuation;
use crate::model::id::{WaitId, WorkId};
use crate::model::message::{AuthorityClass, Message};
use crate::model::records::Records;
use crate::model::run::Brief;
use crate::model::state::CurrentRun;
use crate::model::task::Task;
use crate::model::time::Time;
use crate::model::timer::Timer;
use crate::model::wait::Wait;
use crate::model::work::{Readiness, SchedulingState};
use crate::rules::limits::left;
use crate::rules::transition::turn::Claimed;
use crate::rules::work::{WaitsByItem, readiness, scheduling_state};

/// How many of the last briefs, reduced messages and interjections a turn is told.
pub const BRIEFS: usize = 5;
pub const REDUCED: usize = 50;
pub const INTERJECTED: usize = 50;

/// The directories that a turn uses.
pub struct Places<'a> {
    pub state_dir: &'a Path,
    pub run_dir: &'a Path,
    /// The directory that the turn works on.
    pub workspace: &'a Path,
    /// Where outside systems reach the agent, if something serves that.
    pub ingress: Option<Value>,
}

/// What happened before this turn. All lists are newest first.
pub struct Past {
    pub briefs: Vec<Brief>,
    pub reduced: Vec<Message>,
    /// How many messages were reduced. `reduced` has the newest of them.
    pub reduced_count: u64,
    /// What the operator said to earlier runs of the message, newest first.
    pub interjected: Vec<Message>,
    /// The prose plan of the current work item.
    pub plan: Option<String>,
}

/// `context.json`. Long parts are borrowed, not copied.
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
    work: Work<'a>,
    waits: Vec<&'a Wait>,
    tasks: &'a [Task],
    timers: &'a [Timer],
    recent_briefs: &'a [Brief],
    capabilities: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_external_ingress: Option<&'a Value>,
}

/// The item in focus, and what is open.
#[derive(Serialize)]
struct Work<'a> {
    current: Option<Value>,
    open: Vec<OpenItem<'a>>,
}

#[derive(Serialize)]
struct OpenItem<'a> {
    id: WorkId,
    objective: &'a str,
    scheduling_state: SchedulingState,
    readiness: Readiness,
}

/// The run and, if its message was put off before, why.
fn this_run(run: &CurrentRun) -> Value {
    let mut value = json!({ "id": run.run_id, "attempt": run.attempt, "claimed_at": run.claimed_at });
    if let Some(deferred) = &run.deferred {
        value["deferrals"] = json!(run.deferrals);
        value["deferred"] = json!(deferred);
    }
    value
}

pub fn document<'a>(
    places: &'a Places<'_>,
    claimed: &'a Claimed,
    records: &'a Records,
    past: &'a Past,
) -> Document<'a> {
    let run = &claimed.run;
    let limits = &records.policy.limits;
    let mut about_run = this_run(run);
    if claimed.lost.is_some() {
        // Otherwise the turn would take this for a first attempt.
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
            // JSON is text, and a path need not be. The environment has the exact paths.
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
        default_external_ingress: places.ingress.as_ref(),
    }
}

/// Whether the message that a continuation is about ends this wait.
fn ends(continuation: &Continuation, wait: &Wait) -> bool {
    continuation.resolves.contains(&wait.id)
}

/// The waits that the message ends, each with its age. Of a wait that is no longer on record there is only
/// the id.
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

/// A message, with a word that says whether its body is an instruction or only evidence.
fn marked(message: &Message) -> Value {
    let mut value = json!(message);
    value["body_is"] = json!(if is_evidence(message) { "evidence" } else { "instruction" });
    value
}

/// Whether a turn should weigh the message and not obey it: it comes from outside, or with a wake hint.
fn is_evidence(message: &Message) -> bool {
    match message.authority_class {
        AuthorityClass::ExternalEvidence | AuthorityClass::IntegrationSignal => true,
        AuthorityClass::OperatorInstruction | AuthorityClass::RuntimeInstruction => message.is_wake_hint(),
    }
}

fn work<'a>(records: &'a Records, past: &Past) -> Work<'a> {
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
    let open = records.works.iter().map(|item| {
        let scheduling_state = scheduling_state(item, &waits);
        let readiness = readiness(scheduling_state);
        OpenItem { id: item.id, objective: &item.objective, scheduling_state, readiness }
    });
    Work { current, open: open.collect() }
}
