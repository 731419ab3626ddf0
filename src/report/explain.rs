//! `explain` and `state`: why the agent does what it does, and where its machine can go.

use serde_json::{Value, json};

use crate::model::decision::Decision;
use crate::model::execution::ExecutionState;
use crate::model::records::Records;
use crate::model::time::Time;
use crate::rules::advisory::advisories;
use crate::rules::decide::LADDER;
use crate::rules::execution::next;
use crate::rules::projection::{Projection, project};

use super::output::{Output, Tone};
use super::text::relative;

/// What would bring the agent to another decision, most direct first.
pub fn wakes(records: &Records, now: Time) -> Vec<String> {
    let state = &records.state;
    let mut wakes = Vec::new();
    match state.status {
        crate::model::agent::Status::Stopped | crate::model::agent::Status::Booting => {
            return vec![format!("dormouse start {}", state.agent)];
        }
        crate::model::agent::Status::AwakeIdle
        | crate::model::agent::Status::AwakeRunning
        | crate::model::agent::Status::AwaitingTask
        | crate::model::agent::Status::Asleep => {}
    }
    if let Some(run) = &state.current_run {
        wakes.push(format!("the end of {}", run.run_id));
    }
    if let Some(retry) = &state.retry {
        wakes.push(format!(
            "the end of the backoff, {} ({})",
            retry.not_before,
            relative(retry.not_before, now)
        ));
        wakes.push(format!("dormouse recover {}", state.agent));
    }
    if let Some(due) =
        state.next_due_at.filter(|due| state.retry.as_ref().is_none_or(|retry| retry.not_before != *due))
    {
        wakes.push(format!("a tick at {due} ({})", relative(due, now)));
    }
    // A limit comes back at a moment, which is when the next step is due.
    let held = state.held.as_ref();
    if let Some(held) = held.filter(|held| held.resource.is_some_and(|resource| !resource.is_limit())) {
        wakes.push(format!("a tick that finds what is missing ({})", held.missing));
    }
    for wait in records.waits.iter().filter(|wait| wait.is_active()) {
        let what = wait.resource.as_deref().unwrap_or(wait.reason.as_str());
        wakes.push(format!("the end of {} ({}): {what}", wait.id, wait.kind));
    }
    wakes.push(format!("a message: dormouse enqueue {} TEXT", state.agent));
    wakes.push(format!("a hint: dormouse wake {}", state.agent));
    wakes
}

/// `explain --json`
pub fn document(records: &Records, decision: &Decision, now: Time) -> Value {
    let facts = project(records, now);
    let rungs: Vec<Value> = LADDER
        .iter()
        .map(|rung| {
            json!({
                "number": rung.number,
                "decision": rung.decision,
                "reason": rung.reason,
                "holds": (rung.holds)(&facts).is_some(),
            })
        })
        .collect();
    json!({
        "agent": records.state.agent,
        "decision": decision.report(),
        "ladder": rungs,
        "facts": facts_document(&facts),
        "wakes": wakes(records, now),
        "advisories": advisories(records, now),
    })
}

fn facts_document(facts: &Projection) -> Value {
    json!({
        "gate": format!("{:?}", facts.gate).to_lowercase(),
        "live_run": facts.live_run,
        "backoff_until": facts.backoff.map(|backoff| backoff.until),
        "shortage": facts.shortage.as_ref().map(|shortage| json!({ "resource": shortage.resource, "evidence": shortage.evidence, "back_at": shortage.back_at })),
        "held": facts.held.as_ref().map(|held| json!({ "missing": held.missing, "until": held.until, "may_go_on": held.may_go_on })),
        "message": facts.message.as_ref().map(|message| json!({
            "id": message.id,
            "kind": message.kind,
            "continuation": message.continuation,
        })),
        "pending_wake_hint": facts.hint.as_ref().map(|hint| json!({ "key": hint.key, "seen": hint.seen })),
        "current_work": facts.current.map(|work| json!({ "id": work.id, "state": work.state, "ticked": work.ticked })),
        "queued_work": facts.queued.iter().map(|work| json!({ "id": work.id, "state": work.state, "ticked": work.ticked })).collect::<Vec<_>>(),
        "agent_waits": json!({
            "operator": facts.agent_waits.operator,
            "external": facts.agent_waits.external,
            "timer": facts.agent_waits.timer,
            "task": facts.agent_waits.task,
            "system": facts.agent_waits.system,
        }),
        "first_timer": facts.timer,
        "asleep": facts.asleep,
        "prior_closure": facts.prior_closure,
    })
}

/// `explain` for people: the decision, the ladder down to the rung that holds, and what would wake the agent.
pub fn text(records: &Records, decision: &Decision, now: Time, out: &Output) -> String {
    let facts = project(records, now);
    let report = decision.report();
    let mut text = format!(
        "{} would {}: {}\n",
        out.paint(Tone::Strong, records.state.agent.as_str()),
        out.paint(Tone::Good, report.decision.name()),
        out.safe(&report.reason),
    );
    for line in &report.evidence {
        text.push_str(&format!("  {}\n", out.safe(line)));
    }
    text.push('\n');
    for rung in LADDER {
        let holds = (rung.holds)(&facts).is_some();
        let line = format!(
            "{} {:>2}  {} ({})",
            if holds { "→" } else { " " },
            rung.number,
            rung.decision,
            rung.reason
        );
        text.push_str(&if holds { out.paint(Tone::Strong, &line) } else { out.paint(Tone::Quiet, &line) });
        text.push('\n');
        if holds {
            break;
        }
    }
    text.push_str("\nwhat would change that:\n");
    for wake in wakes(records, now) {
        text.push_str(&format!("  {}\n", out.safe(&wake)));
    }
    for advisory in advisories(records, now) {
        text.push_str(&format!(
            "\n{}: {}\n",
            out.paint(Tone::Bad, advisory.kind),
            out.safe(&advisory.message)
        ));
    }
    text
}

/// The machine as Mermaid, with the current state marked.
pub fn mermaid(current: ExecutionState) -> String {
    let mut text = "stateDiagram-v2\n    [*] --> initializing\n".to_owned();
    for from in ExecutionState::ALL {
        for to in next(*from) {
            text.push_str(&format!("    {from} --> {to}\n"));
        }
    }
    text.push_str("    classDef current font-weight:bold,stroke-width:3px\n");
    text.push_str(&format!("    class {current} current\n"));
    text
}

/// The same as DOT.
pub fn dot(current: ExecutionState) -> String {
    let mut text = "digraph execution {\n    rankdir=LR;\n    node [shape=box, style=rounded];\n".to_owned();
    text.push_str(&format!("    {current} [style=\"rounded,bold\", penwidth=3];\n"));
    for from in ExecutionState::ALL {
        for to in next(*from) {
            text.push_str(&format!("    {from} -> {to};\n"));
        }
    }
    text.push_str("}\n");
    text
}
