//! Compares the agent in the program with the agent in the model.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::reference::advisories::ADVISORIES;
use super::reference::commands::Command;
use super::reference::hooks::HookCall;
use super::reference::resources::HELD;
use super::reference::step::Decision;
use super::reference::triggers::Scope;
use super::reference::{Millis, Model, Tag, resource_name};
use super::script::{Reference, moment};
use super::silence::nothing_is_silent;
use super::world::{Checked, Failure, World};
use crate::setup::{names, objects};

/// Kinds of `doctor`'s findings that the reference model does not have.
const NOT_IN_THE_MODEL: [&str; 3] = ["clock_skew", "nobody_ticks", "asked"];

/// Attentions that the reference model leaves out: questions of a turn, and a stall of a day.
const NOT_MODELLED: [&str; 2] = ["asked", "stalled"];

fn is_not_modelled(subject: &Value) -> bool {
    NOT_MODELLED.iter().any(|left_out| subject == left_out)
}

impl World {
    pub fn compare_codes(&self, expected: &[i32]) -> Checked {
        let codes = fs::read_to_string(self.sandbox.home().join("codes")).unwrap_or_default();
        let codes: Vec<i32> = codes.lines().filter_map(|code| code.parse().ok()).collect();
        same("the exit statuses inside the turn", codes, expected)
    }

    /// Compares the interjections that safe points have printed, and the interjections of earlier
    /// runs in the turn's context.
    pub fn compare_interjected(&mut self, step: &Value, earlier: Vec<Tag>) -> Checked {
        let handed = fs::read_to_string(self.sandbox.home().join("handed")).unwrap_or_default();
        let handed: Vec<Value> = objects(&handed).iter().map(|said| said["correlation_id"].clone()).collect();
        same("the messages from safe points", handed, std::mem::take(&mut self.model.handed))?;
        let run = match step["run_id"].as_str() {
            Some(run) => run.to_owned(),
            None => read_json(&self.dir().join("state.json"))["current_run"]["run_id"]
                .as_str()
                .unwrap_or("")
                .to_owned(),
        };
        let runs = self.sandbox.agent("ada").join("runs");
        let context = read_json(&runs.join(run).join("context.json"));
        let told = context["interjected"].as_array().cloned().unwrap_or_default();
        let mut told: Vec<String> = told.iter().map(known_by).collect();
        let mut expected = earlier;
        told.sort();
        expected.sort();
        same("the interjections in the context of a turn", told, expected)
    }

    /// Compares the calls of hooks since the last comparison, those of `on-state-change` apart from
    /// the others. The order counts if `in_order`: one process has made all calls.
    pub fn compare_hooks(&mut self, in_order: bool) -> Checked {
        let take = |file: &str| {
            let path = self.sandbox.home().join(file);
            let text = fs::read_to_string(&path).unwrap_or_default();
            let _ = fs::remove_file(&path);
            text
        };
        let told = objects(&take("told"));
        // The hooks `on-scheduled` and `on-resume` write the agent's state to the file `stood`.
        for line in take("stood").lines() {
            let state = if line.starts_with("on-resume") { "resumed" } else { "scheduled" };
            same("where a hook runs", line.contains(&format!("{state:?}")), true)?;
        }
        let expected = std::mem::take(&mut self.model.told);
        // The program may merge attentions with the same subject into one call.
        let subjects = |hook: &str, told: Vec<(Value, Value)>| -> BTreeSet<String> {
            let meant = told.into_iter().filter(|(name, _)| name == hook);
            meant.map(|(_, subject)| subject.to_string()).collect()
        };
        let of_attention = |told: &Value| (told["hook"].clone(), told["subject"].clone());
        let modelled = told.iter().map(of_attention).filter(|(_, subject)| !is_not_modelled(subject));
        let found = subjects("on-attention", modelled.collect());
        let foreseen = expected.iter().map(|told| (json!(told.hook), json!(told.subject))).collect();
        same("the subjects of attentions", found, subjects("on-attention", foreseen))?;
        for of_transitions in [true, false] {
            let is_meant =
                |hook: &str| hook != "on-attention" && (hook == "on-state-change") == of_transitions;
            let shown = |told: &Value| json!([told["hook"], told["from"], told["to"], told["success"]]);
            let expected_shown = |told: &&HookCall| json!([told.hook, told.from, told.to, told.success]);
            let mut expected: Vec<&HookCall> = expected.iter().filter(|told| is_meant(told.hook)).collect();
            let mut told: Vec<&Value> =
                told.iter().filter(|told| is_meant(told["hook"].as_str().unwrap_or_default())).collect();
            if !in_order {
                expected.sort_by_key(|told| expected_shown(told).to_string());
                told.sort_by_key(|told| shown(told).to_string());
            }
            let found: Vec<Value> = told.iter().map(|told| shown(told)).collect();
            let foreseen: Vec<Value> = expected.iter().map(expected_shown).collect();
            same("the calls of hooks", found, foreseen)?;
            for (found, expected) in told.iter().zip(expected).filter(|(_, told)| told.reason.is_some()) {
                same(&format!("the reason for {}", expected.hook), &found["reason"], &expected.reason)?;
            }
        }
        Ok(())
    }

    /// Checks rules about the records that must hold after every act.
    fn compare_invariants(&self) -> Checked {
        let agent = self.dir();
        let state = read_json(&agent.join("state.json"));
        let held = &state["held"]["message_id"];
        let execution = state["execution"]["state"].as_str().unwrap_or_default();
        let holds = matches!(execution, "suspended" | "waiting_resources");
        same("whether a run is held", held.is_string(), holds)?;
        if let Some(held) = held.as_str() {
            same("a current run in addition to a held run", &state["current_run"], Value::Null)?;
            let claimed = names(&agent.join("inbox")).iter().any(|name| name.contains(held));
            same("whether the inbox has the message of a held run", claimed, true)?;
        }
        Ok(())
    }

    /// Compares the output of `tick --dry-run` and `next-wake` with the model right before a step.
    pub fn compare_decision(&mut self, now: Millis) -> Checked {
        let decision = self.model.preview(now);
        let would = self.ask(now, &["tick", "ada", "--dry-run"])?;
        same("the decision of a dry run", decision_of(&would[0]), self.expected_decision(&decision)?)?;
        let next = self.ask(now, &["next-wake", "ada"])?.remove(0);
        let due = if self.model.has_something_to_do(now) {
            Some(now)
        } else {
            self.model.next_due().map(|due| due.max(now))
        };
        let told = next["next_due_at"].as_str().map(|told| told.max(&*moment(now)).to_owned());
        same("the time of the next due step", told, due.map(moment))
    }

    /// Returns a decision of the model in the form of [`decision_of`], with the program's ids.
    pub fn expected_decision(&mut self, decision: &Decision) -> Result<Value, Failure> {
        let mut found = None;
        if let Some(continuation) = &decision.continuation {
            let ids = continuation.resolves.iter().map(|wait| self.id(&Reference::of_wait(wait)));
            let ids: Vec<String> = ids.collect::<Result<_, Failure>>()?;
            found = Some(json!([continuation.class, continuation.reentry, continuation.matched, ids]));
        }
        Ok(json!([decision.decision, decision.reason, found]))
    }

    /// Compares the decision and the advisories of `explain` with those of the model.
    fn compare_explanation(&mut self, now: Millis, summary: &Value) -> Checked {
        let decision = self.model.preview(now);
        let told = self.ask(now, &["explain", "ada"])?.remove(0);
        same("the explained decision", decision_of(&told["decision"]), self.expected_decision(&decision)?)?;
        let ladder = told["ladder"].as_array().cloned().unwrap_or_default();
        let rung = ladder.iter().find(|rung| rung["holds"] == true).cloned().unwrap_or_default();
        // A rung may list several decisions.
        let mut decisions = rung["decision"].as_str().unwrap_or_default().split(", ");
        same("the first rung that holds", decisions.any(|other| other == decision.decision), true)?;
        same("the advisories", advisories_of(&told), self.model.taken_in(now).advisories())?;
        nothing_is_silent(summary, &told["decision"])
    }

    /// Compares what commands show of the agent with the model. `in_order`: see `compare_hooks`.
    pub fn compare(&mut self, in_order: bool) -> Checked {
        self.compare_hooks(in_order)?;
        self.compare_invariants()?;
        // The commands below run a millisecond later, so that no record has the same time.
        self.moments += 1;
        let now = self.now();
        let summary = self.ask(now, &["get", "ada"])?.remove(0);
        let works = self.ask(now, &["work", "list", "-a", "ada"])?;
        let queue = self.ask(now, &["queue", "list", "-a", "ada", "--limit", "0"])?;
        let list = |name: &str| summary[name].as_array().cloned().unwrap_or_default();
        let each = |records: &[Value], fields: &[&str]| -> Value {
            let shown =
                |record: &Value| -> Value { fields.iter().map(|field| record[*field].clone()).collect() };
            records.iter().map(shown).collect()
        };
        let found = json!({
            "status": summary["status"],
            "execution": summary["execution"]["state"],
            "posture": summary["posture"],
            "outcome": summary["closure"]["outcome"],
            "waiting_reason": summary["closure"]["waiting_reason"],
            // A due time that has passed counts as now.
            "next_due_at": summary["next_due_at"]
                .as_str()
                .filter(|_| summary["stalled"].is_null())
                .map(|due| due.max(&*moment(now)).to_owned()),
            "last_turn": summary["last_turn"]["terminal"],
            "dead": summary["queue"]["dead"],
            "attention": attentions_of(&summary),
            "reduced": summary["reduced"]["count"].as_u64().unwrap_or(0),
            "advisories": advisories_of(&summary),
            "work": each(&works, &["objective", "scheduling_state", "revision", "current"]),
            "waits": each(&list("active_waits"), &["reason", "kind"]),
            "tasks": each(&list("active_tasks"), &["summary", "status"]),
            "timers": list("active_timers").iter().map(|timer| {
                let said = [&timer["body"]["text"], &timer["message"]["correlation_id"]];
                let said = said.into_iter().find_map(Value::as_str).unwrap_or_default();
                json!([said, timer["next_at"], timer["fired"], timer["missed"]])
            }).collect::<Value>(),
            "queue": queue.iter().map(|message| {
                json!([message["kind"], message["priority"], known_by(message), message["status"], message["attempt"]])
            }).collect::<Value>(),
        });
        same("the agent", found, shown(&self.model, now))?;
        self.compare_triggers(now)?;
        self.compare_explanation(now, &summary)
    }

    /// Compares the triggers, unless none was used or changed.
    fn compare_triggers(&mut self, now: Millis) -> Checked {
        let triggers = self.model.triggers.clone();
        let mut expected = BTreeMap::new();
        for trigger in &triggers {
            let id = self.id(&Reference { prefix: "trig", said: trigger.tag.clone() })?;
            let scope = match &trigger.scope {
                Scope::Agent => "agent".to_owned(),
                Scope::Resource(resource) => format!("resource:{}", resource_name(*resource)),
                Scope::Wait(wait) => format!("wait:{}", self.id(&Reference::of_wait(wait))?),
            };
            let last = trigger.last.map(moment);
            let shown = json!([trigger.mode, scope, trigger.source, trigger.status, trigger.count, last]);
            expected.insert(id, shown);
        }
        let is_untouched = triggers.len() == 1 && expected.values().all(|shown| shown[4] == 0);
        if is_untouched && triggers[0].is_active() {
            return Ok(());
        }
        let listed = self.ask(now, &["trigger", "list", "-a", "ada", "--revoked"])?;
        let fields = ["delivery_mode", "scope", "source", "status", "delivery_count", "last_delivered_at"];
        let shown = listed.iter().map(|trigger| {
            let shown: Value = fields.iter().map(|field| trigger[*field].clone()).collect();
            (trigger["id"].as_str().unwrap_or_default().to_owned(), shown)
        });
        let found: BTreeMap<String, Value> = shown.collect();
        same("the triggers", found, expected)
    }

    /// Checks `doctor` and the events at the end of a case, and compares all ended records with the
    /// model.
    pub fn finish(&mut self) -> Checked {
        let now = self.next_moment();
        // `start` takes the agent's lock, so it applies the commit of a task's supervisor.
        self.run(now, &["start", "ada"].map(str::to_owned))?;
        let _ = self.model.command(now, &Command::Start, false);
        let findings = self.ask(now, &["doctor"])?;
        let (sum, findings) = findings.split_last().unwrap();
        // The reference model has no stalled agents, so a finding about one is left out.
        let is_stall = |finding: &Value| {
            let says = finding["message"].as_str().is_some_and(|message| message.contains(": stalled "));
            finding["kind"] == "needs_attention" && says && self.model.marks.is_empty()
        };
        let is_left_out = |finding: &&Value| {
            NOT_IN_THE_MODEL.iter().any(|kind| finding["kind"] == *kind) || is_stall(finding)
        };
        let warned = findings.iter().filter(is_left_out).count() + usize::from(!self.model.marks.is_empty());
        same("the findings of doctor", [&sum["findings"], &sum["warnings"]], [0, warned])?;
        let events = self.ask(now, &["events", "ada"])?;
        let numbers: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
        same("the numbers of events", &numbers, (1..=numbers.len()).collect::<Vec<_>>())?;
        self.compare_messages()?;
        compare_interjections(&events)?;
        let Model { waits, tasks, works, .. } = &self.model;
        let waits = waits.iter().filter(|wait| !wait.is_active()).map(|wait| (&wait.tag, wait.status));
        let tasks = tasks.iter().filter(|task| !task.is_open()).map(|task| (&task.tag, task.status));
        let works = works.iter().filter(|item| item.done).map(|item| (&item.tag, "completed"));
        for (kind, name, status, mut expected) in [
            ("wait", "reason", "status", waits.collect::<Vec<_>>()),
            ("task", "summary", "status", tasks.collect()),
            ("work", "objective", "state", works.collect()),
        ] {
            // The archive has each ended record once.
            let archived = self.archived(kind);
            let mut ended: Vec<_> = archived.iter().map(|record| (&record[name], &record[status])).collect();
            ended.sort_by_key(|(name, _)| name.to_string());
            expected.sort();
            same(&format!("the ended records: {kind}"), ended, expected)?;
        }
        Ok(())
    }

    /// Compares the last status of all messages that have ended with their status in the model.
    fn compare_messages(&self) -> Checked {
        let pending: BTreeSet<String> = names(&self.dir().join("inbox")).into_iter().collect();
        let mut newest = BTreeMap::new();
        for message in self.archived("message") {
            let id = message["id"].as_str().unwrap_or_default().to_owned();
            let settlement = &message["settlement"];
            let status =
                if settlement["dead_letter"] == true { &json!("dead") } else { &settlement["status"] };
            if status == "queued" || pending.iter().any(|name| name.contains(&id)) {
                newest.remove(&id);
            } else {
                newest.insert(id, json!([message["kind"], known_by(&message), status]).to_string());
            }
        }
        let mut found: Vec<String> = newest.into_values().collect();
        let of_model = self.model.ended.iter();
        let mut expected: Vec<String> = of_model
            .map(|(message, status)| json!([message.kind, message.said, status]).to_string())
            .collect();
        found.sort();
        expected.sort();
        same("the ended messages", found, expected)
    }
}

/// Checks that each message is interjected once, and is not the message of a later run.
fn compare_interjections(events: &[Value]) -> Checked {
    let mut interjected = BTreeSet::new();
    for event in events {
        let message = event["data"]["message_id"].as_str().unwrap_or_default();
        match event["kind"].as_str() {
            Some("message_settled") if event["data"]["status"] == "interjected" => {
                same("whether an interjection is new", interjected.insert(message.to_owned()), true)?;
            }
            Some("run_settled" | "run_interrupted") => {
                same("whether an interjection has run", interjected.contains(message), false)?;
            }
            _ => {}
        }
    }
    Ok(())
}

pub fn read_json(path: &Path) -> Value {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Returns the name of a message: its correlation id, else the first line of its text. The
/// result of a task ends before the ` (` of its details.
fn known_by(message: &Value) -> String {
    if let Some(name) = message["correlation_id"].as_str() {
        return name.to_owned();
    }
    let hint = &message["hint"];
    let texts = [&hint["reason"], &hint["payload"]["text"], &message["body"]["text"]];
    let text = texts.iter().find_map(|text| text.as_str()).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let key = message["idempotency_key"].as_str().unwrap_or_default();
    if key.starts_with("reduced_input:") {
        return "reduced_input".to_owned();
    }
    if key.starts_with("wait:healed:") {
        return format!("healed: {}", line.rsplit(": ").next().unwrap_or_default());
    }
    if message["task_id"].is_null() { line } else { line.split(" (").next().unwrap_or_default() }.to_owned()
}

/// Returns the agent of the model in the form in which `compare` shows the program's.
fn shown(model: &Model, now: Millis) -> Value {
    let mut waits: Vec<_> = model.waits.iter().filter(|wait| wait.is_active()).collect();
    waits.sort_by_key(|wait| wait.born);
    let mut tasks: Vec<_> = model.tasks.iter().filter(|task| task.is_open()).collect();
    tasks.sort_by_key(|task| task.born);
    let mut timers: Vec<_> = model.timers.iter().filter(|timer| timer.status == "active").collect();
    timers.sort_by_key(|timer| timer.born);
    let closure = model.closure();
    let priorities = ["interject", "next", "normal", "background"];
    json!({
        "status": model.status,
        "execution": model.execution,
        "posture": model.posture(now),
        "outcome": closure.outcome,
        "waiting_reason": closure.reason,
        "next_due_at": model.next_due().map(|due| moment(due.max(now))),
        "last_turn": model.last_terminal,
        "dead": model.dead(),
        "attention": model.marks.len(),
        "reduced": model.reduced.len(),
        "advisories": model.advisories(),
        "work": model.open().iter().map(|item| {
            json!([item.tag, model.scheduling(item), item.revision, model.focus.as_ref() == Some(&item.tag)])
        }).collect::<Value>(),
        "waits": waits.iter().map(|wait| json!([wait.tag, wait.kind])).collect::<Value>(),
        "tasks": tasks.iter().map(|task| json!([task.tag, task.status])).collect::<Value>(),
        "timers": timers.iter().map(|timer| {
            json!([timer.said(), moment(timer.next), timer.fired, timer.missed])
        }).collect::<Value>(),
        "queue": model.in_order().iter().map(|message| {
            let status = if model.is_claimed(message) { "dequeued" } else { "queued" };
            json!([message.kind, priorities[usize::from(message.priority)], message.said, status, message.attempt])
        }).collect::<Value>(),
    })
}

/// Returns the number of attentions without those that the model leaves out.
fn attentions_of(summary: &Value) -> u64 {
    let newest = summary["attention"]["newest"].as_array().cloned().unwrap_or_default();
    let left_out = newest.iter().filter(|mark| is_not_modelled(&mark["subject"])).count() as u64;
    summary["attention"]["count"].as_u64().unwrap_or(0).saturating_sub(left_out)
}

/// Returns the kinds of the advisories that the model has, too.
fn advisories_of(object: &Value) -> Value {
    let advisories = object["advisories"].as_array().cloned().unwrap_or_default();
    let kinds = advisories.iter().filter_map(|advisory| advisory["kind"].as_str());
    json!(kinds.filter(|kind| ADVISORIES.contains(kind)).collect::<BTreeSet<_>>())
}

/// Returns decision, reason and continuation of a step of the program.
pub fn decision_of(step: &Value) -> Value {
    let found = step.get("continuation");
    let found = found.map(|found| {
        let resolves = if found["resolves"].is_null() { json!([]) } else { found["resolves"].clone() };
        json!([found["class"], found["model_reentry"], found["matched_waiting_reason"], resolves])
    });
    // The reference model has only the first words of this reason.
    let held = step["reason"].as_str().is_some_and(|reason| reason.starts_with(HELD));
    let reason = if held { json!(HELD) } else { step["reason"].clone() };
    json!([step["decision"], reason, found])
}

/// Compares two values as JSON. The error shows the fields that differ.
pub fn same(what: &str, found: impl Serialize, expected: impl Serialize) -> Checked {
    let (found, expected) = (json!(found), json!(expected));
    if found == expected {
        return Ok(());
    }
    let lines = |value: Value| match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| format!("  {name}: {field}\n")).collect::<Vec<_>>()
        }
        other => vec![format!("  {other}\n")],
    };
    let (found, expected) = (lines(found), lines(expected));
    let mut text = format!("{what}\n");
    for (found, expected) in found.iter().zip(&expected).filter(|(found, expected)| found != expected) {
        text.push_str(&format!("  the program says{found}  the model says  {expected}"));
    }
    Err(text)
}
