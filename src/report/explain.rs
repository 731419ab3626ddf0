//! Text of `explain` and `state`: the reasons of a decision, and the next possible states.

use std::collections::BTreeMap;

use minijinja::value::Serde;
use minijinja::{AutoEscape, UndefinedBehavior};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::model::agent::Status;
use crate::model::continuation::{Runs, TriggerKind};
use crate::model::decision::{DecisionKind, DecisionReport};
use crate::model::execution::ExecutionState;
use crate::model::id::AgentName;
use crate::model::records::Records;
use crate::model::task::Task;
use crate::model::time::Time;
use crate::model::wait::{Wait, WaitKind};
use crate::rules::advisory::advisories;
use crate::rules::execution::{deadline, next};
use crate::rules::forecast::{fires_a_turn, has_runnable_work};
use crate::rules::ladder::LADDER;
use crate::rules::preemption::force_at;
use crate::rules::projection::{Projection, WorkFact, project};
use crate::rules::waits::WakeSource;

use super::output::{Output, Tone};
use super::step::reason_words;
use super::text::{one_line, relative, templates};
use super::wait as shown_wait;

/// Maximum number of listed records of one kind.
const LISTED: usize = 10;

/// Maximum length of a line of evidence in columns, large enough for whole paths.
const EVIDENCE: usize = 1000;

/// Lists the events that would change the decision, most direct first.
pub fn wakes(records: &Records, now: Time) -> Vec<String> {
    let state = &records.state;
    let agent = &state.agent;
    if matches!(state.status, Status::Stopped | Status::Booting) {
        let stop = format!("dormouse stop {agent}, which ends its run, and then ");
        let stop = state.current_run.as_ref().map(|_| stop).unwrap_or_default();
        return vec![format!("{stop}dormouse start {agent}")];
    }
    let mut wakes = Vec::new();
    if let Some(run) = &state.current_run {
        let to_yield = force_at(run).map(|at| format!(", which is to yield until {}", moment(at, now)));
        wakes.push(format!("the end of {}{}", run.run_id, to_yield.unwrap_or_default()));
        if records.away.is_some() {
            let until = moment(run.lease_expires_at, now);
            wakes.push(format!("the end of its lease, {until}, after which it is tried again here"));
            wakes.push(format!("dormouse recover {agent} --force, which tries it again here at once"));
        }
    }
    if let Some(retry) = &state.retry {
        wakes.push(format!("the end of the backoff, {}", moment(retry.not_before, now)));
        wakes.push(format!("dormouse recover {agent}"));
    }
    if let Some(held) = &state.held {
        if state.execution.state == ExecutionState::Suspended {
            wakes.extend(held.not_before.map(|at| format!("the end of its suspension, {}", moment(at, now))));
            wakes.push(format!("dormouse resume {agent}"));
        } else if held.needs_operator {
            wakes.push(format!("dormouse recover {agent} (it is tried again)"));
            wakes.push(format!("dormouse fail {agent} --reason R (this attempt is given up)"));
            wakes.push(format!("dormouse queue drop {} (the message is given up)", held.message_id));
        } else {
            let how = if held.knows_time() { "back" } else { "looked at again" };
            let when = held.not_before.map(|at| format!(", {how} {}", moment(at, now)));
            let when = when.unwrap_or_default();
            wakes.push(format!("a tick that finds the missing resource ({}){when}", held.missing));
            wakes.push(format!("dormouse recover {agent} (it is tried now)"));
        }
        let timeout = deadline(state, &records.policy.timeouts);
        wakes.extend(timeout.map(|(limit, reason)| format!("its {reason}, after {}", moment(limit, now))));
    }
    let mut waits: Vec<&Wait> = records.waits.iter().filter(|wait| wait.is_waiting()).collect();
    // A wait of the agent blocks all work items, and is therefore listed first.
    waits.sort_by_key(|wait| !wait.is_agents_own());
    list(&mut wakes, "waits", waits.iter().map(|wait| end_of_wait(wait, records, now)));
    let awaited: Vec<_> = waits.iter().filter_map(|wait| wait.task_id()).collect();
    let others = records.tasks.iter().filter(|task| task.notify && !awaited.contains(&task.id));
    list(&mut wakes, "tasks", others.map(|task| format!("the result of {}", named(task))));
    let mut timers: Vec<_> = records.timers.iter().collect();
    timers.sort_by_key(|timer| (timer.next_at, timer.id));
    list(
        &mut wakes,
        "timers",
        timers.iter().map(|timer| {
            let said = Some(one_line(&timer.text(), 60)).filter(|said| !said.is_empty());
            let said = said.map(|said| format!(": {said}")).unwrap_or_default();
            format!("{} fires {}{said}", timer.id, moment(timer.next_at, now))
        }),
    );
    let mut rechecks: Vec<_> =
        records.works.iter().filter_map(|item| Some((item.recheck_due()?, item.id))).collect();
    rechecks.sort_unstable();
    let looks = rechecks.iter().map(|(at, id)| format!("a look at {id}, {}", moment(*at, now)));
    list(&mut wakes, "rechecks", looks);
    // A held message blocks all others, so messages and hints are not listed as wake sources.
    if state.held.is_none() {
        // A backoff delays every message except urgent ones.
        let is_urgent = state.retry.is_some() && state.execution.state == ExecutionState::Failed;
        let (what, flag) = if is_urgent { ("an urgent", " --priority interject") } else { ("a", "") };
        wakes.push(format!("{what} message: dormouse enqueue {agent}{flag} TEXT"));
        if has_runnable_work(records) {
            wakes.push(format!("a hint, which gives runnable work another turn: dormouse wake {agent}"));
        }
    }
    wakes
}

fn list(wakes: &mut Vec<String>, what: &str, all: impl Iterator<Item = String>) {
    let all: Vec<String> = all.collect();
    let more = all.len().saturating_sub(LISTED);
    wakes.extend(all.into_iter().take(LISTED));
    if more > 0 {
        wakes.push(format!("and {more} more {what}"));
    }
}

fn moment(at: Time, now: Time) -> String {
    format!("{} ({})", at.local(), relative(at, now))
}

/// Describes the event that ends a wait, and the times of its recheck and expiry.
fn end_of_wait(wait: &Wait, records: &Records, now: Time) -> String {
    let agent = &records.state.agent;
    let said = |source: WakeSource<'_>| match source {
        WakeSource::Operator => Some(format!("an answer (dormouse enqueue {agent} TEXT)")),
        WakeSource::Task(id) => {
            let task = records.tasks.iter().find(|task| task.id == id).map(named);
            Some(format!("the result of {}", task.unwrap_or_else(|| id.to_string())))
        }
        WakeSource::Resource(resource) => {
            Some(format!("word about {resource} (dormouse wake {agent} --resource {resource})"))
        }
        WakeSource::Trigger(id) => Some(format!("a delivery through {id}")),
        WakeSource::From(source) => Some(format!("word from {source} that names no resource")),
        WakeSource::FromAbout(source) => Some(format!("word from {source}")),
        WakeSource::ExternalEvent => Some("an event with content that names nothing".to_owned()),
        WakeSource::Timer => wait.wake_at.map(|at| moment(at, now)),
        WakeSource::Wait(id) => matches!(wait.kind, WaitKind::External | WaitKind::System)
            .then(|| format!("dormouse wake {agent} --wait {id}")),
        // The caller appends the times of recheck and expiry.
        WakeSource::Recheck | WakeSource::Expiry => None,
    };
    let ends: Vec<String> = WakeSource::of(wait).into_iter().filter_map(said).collect();
    let mut text = format!("{}: {}", ends.join(", or "), wait.reason);
    if let Some(item) = wait.work_item_id {
        text.push_str(&format!(", for {item}"));
    }
    if let Some(at) = wait.recheck_at {
        let every = wait.recheck_every.map(|every| format!(", and every {every}"));
        text.push_str(&format!(", looked at {}{}", moment(at, now), every.unwrap_or_default()));
    }
    if let Some(at) = wait.expires_at {
        text.push_str(&format!(", given up {}", moment(at, now)));
    }
    text
}

/// Lists the effect of each wake source of a started agent: its waits, tasks, timers and rechecks,
/// an operator message, and a hint without a reference.
pub fn on_wake(records: &Records) -> Vec<Value> {
    if matches!(records.state.status, Status::Stopped | Status::Booting) {
        return Vec::new();
    }
    let waiting = || records.waits.iter().filter(|wait| wait.is_waiting());
    let mut wakes: Vec<Value> = waiting().flat_map(shown_wait::on_wake).collect();
    let awaited: Vec<_> = waiting().filter_map(|wait| wait.task_id()).collect();
    let tasks = records.tasks.iter().filter(|task| !awaited.contains(&task.id));
    wakes.extend(tasks.map(|task| {
        let source = format!("task:{}", task.id);
        wake(&source, task.notify, Some(("task_id", json!(task.id))), TriggerKind::TaskResult)
    }));
    wakes.extend(records.timers.iter().map(|timer| {
        let (source, runs) = (format!("timer:{}", timer.id), fires_a_turn(records, timer));
        wake(&source, runs, Some(("timer_id", json!(timer.id))), TriggerKind::TimerFire)
    }));
    let blocked = records.works.iter().filter(|item| item.recheck_due().is_some());
    wakes.extend(
        blocked.map(|item| {
            wake("recheck", true, Some(("work_item_id", json!(item.id))), TriggerKind::SystemTick)
        }),
    );
    wakes.push(wake("message", true, None, TriggerKind::OperatorInput));
    wakes.push(wake("hint", has_runnable_work(records), None, TriggerKind::SystemTick));
    wakes
}

/// Returns a wake source, its effect, and the field with the id of its record.
fn wake(source: &str, runs_turn: bool, record: Option<(&str, Value)>, trigger_kind: TriggerKind) -> Value {
    let runs = if runs_turn { Runs::Turn } else { Runs::Nothing };
    let mut wake = json!({ "source": source, "runs": runs });
    if let Some((field, id)) = record {
        wake[field] = id;
    }
    wake["trigger_kind"] = json!(trigger_kind);
    wake
}

fn named(task: &Task) -> String {
    match task.summary.as_deref().or(task.child().map(AgentName::as_str)) {
        Some(name) => format!("{} ({})", task.id, one_line(name, 60)),
        None => task.id.to_string(),
    }
}

/// Returns the JSON of `explain --json`.
pub fn document(records: &Records, report: &DecisionReport, now: Time) -> Value {
    let facts = project(records, now);
    let rungs = LADDER.iter().map(|rung| {
        json!({
            "number": rung.number,
            "decision": rung.decision(),
            "reason": rung.reason,
            "holds": (rung.holds)(&facts).is_some(),
        })
    });
    json!({
        "agent": records.state.agent,
        "decision": report,
        "ladder": rungs.collect::<Vec<_>>(),
        "facts": facts_document(&facts),
        "wakes": wakes(records, now),
        "on_wake": on_wake(records),
        "advisories": advisories(records, now),
    })
}

fn facts_document(facts: &Projection) -> Value {
    let work = |work: &WorkFact| json!({ "id": work.id, "state": work.state, "ticked": work.ticked });
    json!({
        "gate": format!("{:?}", facts.gate).to_lowercase(),
        "live_run": facts.live_run,
        "away": facts.away.as_ref().map(ToString::to_string),
        "backoff_until": facts.backoff.map(|backoff| backoff.until),
        "shortage": facts.shortage.as_ref().map(|shortage| json!({
            "resource": shortage.resource,
            "evidence": shortage.evidence,
            "back_at": shortage.back_at,
        })),
        "held": facts.held.as_ref().map(|held| json!({
            "missing": held.run.missing,
            "until": held.run.not_before,
            "back_at": held.back_at(),
            "may_go_on": held.may_go_on,
        })),
        "message": facts.message.as_ref().map(|message| json!({
            "id": message.id,
            "kind": message.kind,
            "continuation": message.continuation,
        })),
        "pending_wake_hint": facts.hint.as_ref().map(|hint| json!({ "key": hint.key, "seen": hint.seen })),
        "current_work": facts.current.as_ref().map(work),
        "queued_work": facts.queued.iter().map(work).collect::<Vec<_>>(),
        "agent_waits": facts.agent_waits,
        "first_timer": facts.timer,
        "asleep": facts.asleep,
        "prior_closure": facts.prior_closure,
    })
}

/// Returns the text of `explain`: the decision, the rung that applies (with `--verbose` the rungs
/// before it, too), and the events that would wake the agent.
pub fn text(records: &Records, report: &DecisionReport, now: Time, out: &Output) -> String {
    let facts = project(records, now);
    let does_nothing = matches!(report.decision, DecisionKind::Stop | DecisionKind::Noop);
    let would = if does_nothing { "do nothing" } else { report.decision.name() };
    let (agent, would) = (records.state.agent.as_str(), out.paint(Tone::Good, would));
    let reason = out.safe(&one_line(&reason_words(&report.reason), 200));
    let mut text = format!("{} would {would}: {reason}\n", out.paint(Tone::Strong, agent));
    for line in &report.evidence {
        text.push_str(&format!("  {}\n", out.safe(&one_line(line, EVIDENCE))));
    }
    text.push('\n');
    for rung in LADDER {
        let holds = (rung.holds)(&facts).is_some();
        let (mark, tone) = if holds { ("→", Tone::Strong) } else { (" ", Tone::Quiet) };
        if holds || out.is_verbose() {
            let line = format!("{mark} {:>2}  {} ({})", rung.number, rung.decision(), rung.reason);
            text.push_str(&format!("{}\n", out.paint(tone, &line)));
        }
        if holds {
            break;
        }
    }
    text.push_str("\nwhat would change that:\n");
    for wake in wakes(records, now) {
        text.push_str(&format!("  {}\n", out.safe(&one_line(&wake, EVIDENCE))));
    }
    for advisory in advisories(records, now) {
        let kind = out.paint(Tone::Bad, advisory.kind.name());
        text.push_str(&format!("\n{kind}: {}\n", out.safe(&advisory.message)));
    }
    text
}

/// Number of transitions between each pair of states.
pub type EdgeCounts = BTreeMap<(ExecutionState, ExecutionState), u64>;

/// Templates of the state machine as a diagram.
pub const MERMAID: &str = include_str!("state.mermaid");
pub const DOT: &str = include_str!("state.dot");

/// Renders a diagram that marks the current state, and the transitions in `taken`.
pub fn diagram(template: &str, current: ExecutionState, taken: &EdgeCounts) -> Result<String> {
    let edges = ExecutionState::ALL.iter().flat_map(|from| next(*from).iter().map(move |to| (*from, *to)));
    let edges = edges.map(|(from, to)| json!({ "from": from, "to": to, "count": taken.get(&(from, to)) }));
    let values = Serde(json!({ "current": current, "edges": edges.collect::<Vec<_>>() }));
    templates(AutoEscape::None, UndefinedBehavior::SemiStrict)
        .and_then(|templates| templates.render_str(template, minijinja::Value::from(values)))
        .map_err(|error| Error::failed(format!("the diagram: {error}")))
}
