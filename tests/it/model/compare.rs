//! Compares what the program and the machine say about the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

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

/// What `doctor` says of the server of a database and who ticks it, and not of the agent.
const OF_THE_SERVER: [&str; 3] = ["clock_skew", "nobody_ticks", "asked"];

/// Attentions that the small machine leaves out: they are told by the day, and change nothing.
const OF_PEOPLE: [&str; 2] = ["asked", "stalled"];

fn is_of_people(subject: &Value) -> bool {
    OF_PEOPLE.iter().any(|of_people| subject == of_people)
}

impl World {
    // What both say

    pub fn compare_codes(&self, expected: &[i32]) -> Checked {
        let codes = fs::read_to_string(self.sandbox.home().join("codes")).unwrap_or_default();
        let codes: Vec<i32> = codes.lines().filter_map(|code| code.parse().ok()).collect();
        same("the exit statuses inside the turn", &json!(codes), &json!(expected))
    }

    /// What a safe point has handed over, and what a turn is told of what earlier ones were handed.
    pub fn compare_interjected(&mut self, step: &Value, earlier: Vec<Tag>) -> Checked {
        let handed = fs::read_to_string(self.sandbox.home().join("handed")).unwrap_or_default();
        let handed: Vec<Value> = objects(&handed).iter().map(|said| said["correlation_id"].clone()).collect();
        same("what is handed over", &json!(handed), &json!(std::mem::take(&mut self.model.handed)))?;
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
        same("what a turn is told of what was interjected", &json!(told), &json!(expected))
    }

    /// What hooks were told since the last look: of transitions, and of everything else, each in order.
    /// `in_order`: by one process.
    pub fn compare_hooks(&mut self, in_order: bool) -> Checked {
        let path = self.sandbox.home().join("told");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(&path);
        let told = objects(&text);
        // They run in the states that they are named after.
        let path = self.sandbox.home().join("stood");
        let stood = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(&path);
        for line in stood.lines() {
            let state = if line.starts_with("on-resume") { "resumed" } else { "scheduled" };
            same("where a hook runs", &json!(line.contains(&format!("{state:?}"))), &json!(true))?;
        }
        let expected = std::mem::take(&mut self.model.told);
        // What is alike is told once.
        let subjects = |hook: &str, told: Vec<(Value, Value)>| -> BTreeSet<String> {
            let meant = told.into_iter().filter(|(name, _)| name == hook);
            meant.map(|(_, subject)| subject.to_string()).collect()
        };
        let of_attention = |told: &Value| (told["hook"].clone(), told["subject"].clone());
        let of_machine = told.iter().map(of_attention).filter(|(_, subject)| !is_of_people(subject));
        let found = subjects("on-attention", of_machine.collect());
        let foreseen = expected.iter().map(|told| (json!(told.hook), json!(told.subject))).collect();
        let foreseen = subjects("on-attention", foreseen);
        same("what somebody's attention is called to", &json!(found), &json!(foreseen))?;
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
            same("what hooks are told", &json!(found), &json!(foreseen))?;
            for (found, expected) in told.iter().zip(expected) {
                if expected.reason.is_some() {
                    let what = format!("the reason that {} is told", expected.hook);
                    same(&what, &found["reason"], &json!(expected.reason))?;
                }
            }
        }
        Ok(())
    }

    /// What holds at any time, whatever has been done.
    fn compare_invariants(&self) -> Checked {
        let agent = self.dir();
        let state = read_json(&agent.join("state.json"));
        let held = &state["held"]["message_id"];
        let execution = state["execution"]["state"].as_str().unwrap_or_default();
        let holds = matches!(execution, "suspended" | "waiting_resources");
        same("whether a run is held", &json!(held.is_string()), &json!(holds))?;
        if let Some(held) = held.as_str() {
            same("a run beside a held one", &state["current_run"], &Value::Null)?;
            let claimed = names(&agent.join("inbox")).iter().any(|name| name.contains(held));
            same("whether the message of a held run is there", &json!(claimed), &json!(true))?;
        }
        Ok(())
    }

    /// Right before a step: what it says that it would do, and when whoever sleeps is told to look.
    pub fn compare_decision(&mut self, now: Millis) -> Checked {
        let decision = self.model.preview(now);
        let would = self.ask(now, &["tick", "ada", "--dry-run"])?;
        let foretold = self.expected_decision(&decision)?;
        same("what a step would do", &decision_of(&would[0]), &foretold)?;
        let next = self.ask(now, &["next-wake", "ada"])?.remove(0);
        let due = if self.model.has_something_to_do(now) {
            Some(now)
        } else {
            self.model.next_due().map(|due| due.max(now))
        };
        let told = next["next_due_at"].as_str().map(|told| told.max(&*moment(now)).to_owned());
        same("when to look next", &json!(told), &json!(due.map(moment)))
    }

    /// A decision as the model tells it, with the program's ids.
    pub fn expected_decision(&mut self, decision: &Decision) -> Result<Value, Failure> {
        let mut found = None;
        if let Some(continuation) = &decision.continuation {
            let ids: Result<Vec<String>, Failure> = continuation
                .resolves
                .iter()
                .map(|said| self.id(&Reference { prefix: "wait", said: said.clone() }))
                .collect();
            found = Some(json!([continuation.class, continuation.reentry, continuation.matched, ids?]));
        }
        Ok(json!([decision.decision, decision.reason, found]))
    }

    /// Why the next step would do what it would do: the same, and by a rung that holds.
    fn compare_explanation(&mut self, now: Millis, summary: &Value) -> Checked {
        let decision = self.model.preview(now);
        let told = self.ask(now, &["explain", "ada"])?.remove(0);
        let foretold = self.expected_decision(&decision)?;
        same("what would be done", &decision_of(&told["decision"]), &foretold)?;
        let ladder = told["ladder"].as_array().cloned().unwrap_or_default();
        let rung = ladder.iter().find(|rung| rung["holds"] == true).cloned().unwrap_or_default();
        // A rung may know several, of which one is for now.
        let decisions = rung["decision"].as_str().unwrap_or_default().split(", ").collect::<Vec<_>>();
        same("the first rung that holds", &json!(decisions.contains(&decision.decision)), &json!(true))?;
        let expected = self.model.taken_in(now).advisories();
        same("the advisories", &advisories_of(&told), &json!(expected))?;
        nothing_is_silent(summary, &told["decision"])
    }

    /// Everything that can be seen of the agent, and what a step would do.
    pub fn compare(&mut self, in_order: bool) -> Checked {
        self.compare_hooks(in_order)?;
        self.compare_invariants()?;
        // A moment of its own: what comes due now has no fellows in any other.
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
            // What is past is due now, however long it has been.
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
        same("the agent", &found, &shown(&self.model, now))?;
        self.compare_triggers(now)?;
        self.compare_explanation(now, &summary)
    }

    /// What can be seen of triggers, if anything has been done to them.
    fn compare_triggers(&mut self, now: Millis) -> Checked {
        let triggers = self.model.triggers.clone();
        let mut expected = BTreeMap::new();
        for trigger in &triggers {
            let id = self.id(&Reference { prefix: "trig", said: trigger.tag.clone() })?;
            let scope = match &trigger.scope {
                Scope::Agent => "agent".to_owned(),
                Scope::Resource(resource) => format!("resource:{}", resource_name(*resource)),
                Scope::Wait(wait) => {
                    format!("wait:{}", self.id(&Reference { prefix: "wait", said: wait.clone() })?)
                }
            };
            let (count, last) = self.model.deliveries(trigger);
            let shown = json!([trigger.mode, scope, trigger.source, trigger.status, count, last.map(moment)]);
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
        same("the triggers", &json!(found), &json!(expected))
    }

    /// What must hold at the end of every case, and that both agree on what is over.
    pub fn finish(&mut self) -> Checked {
        let now = self.next_moment();
        // Something that needs the lock: then what the supervisor of a task has committed last is on disk.
        self.run(now, &["start", "ada"].map(str::to_owned))?;
        let _ = self.model.command(now, &Command::Start, false);
        let findings = self.ask(now, &["doctor"])?;
        let (sum, findings) = findings.split_last().unwrap();
        // The server of a database has a clock of its own, which is not the case's.
        let is_stall = |finding: &Value| {
            let says = finding["message"].as_str().is_some_and(|message| message.contains(": stalled "));
            finding["kind"] == "needs_attention" && says && self.model.marks.is_empty()
        };
        let of_the_server =
            |finding: &&Value| OF_THE_SERVER.iter().any(|kind| finding["kind"] == *kind) || is_stall(finding);
        let warned =
            findings.iter().filter(of_the_server).count() + usize::from(!self.model.marks.is_empty());
        same("what doctor finds", &json!([sum["findings"], sum["warnings"]]), &json!([0, warned]))?;
        let events = self.ask(now, &["events", "ada"])?;
        let numbers: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
        same(
            "the numbers of events",
            &json!(numbers),
            &json!((1..=numbers.len() as u64).collect::<Vec<_>>()),
        )?;
        self.compare_messages()?;
        compare_interjections(&events)?;
        let mut waits = self.model.waits.clone();
        waits.retain(|wait| wait.status != "active");
        let waits: BTreeMap<_, _> = waits.iter().map(|wait| (wait.tag.clone(), wait.status)).collect();
        let tasks = self.model.tasks.iter().filter(|task| !task.is_open());
        let tasks: BTreeMap<_, _> = tasks.map(|task| (task.tag.clone(), task.status)).collect();
        let works = self.model.works.iter().filter(|item| item.done);
        let works: BTreeMap<_, _> = works.map(|item| (item.tag.clone(), "completed")).collect();
        for (kind, name, status, expected) in [
            ("wait", "reason", "status", waits),
            ("task", "summary", "status", tasks),
            ("work", "objective", "state", works),
        ] {
            // A terminal record is written once and never again: no name comes twice.
            let mut ended: Vec<[Value; 2]> = self
                .archived(kind)
                .iter()
                .map(|record| [record[name].clone(), record[status].clone()])
                .collect();
            ended.sort_by_key(|[name, _]| name.to_string());
            let mut expected: Vec<[Value; 2]> =
                expected.into_iter().map(|(name, status)| [json!(name), json!(status)]).collect();
            expected.sort_by_key(|[name, _]| name.to_string());
            same(&format!("what has ended: {kind}"), &json!(ended), &json!(expected))?;
        }
        Ok(())
    }

    /// Each message has ended in the way that the model says, and none is lost.
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
        same("what became of messages", &json!(found), &json!(expected))
    }
}

/// What was interjected is never the message of a run after that.
fn compare_interjections(events: &[Value]) -> Checked {
    let mut interjected = BTreeSet::new();
    for event in events {
        let message = event["data"]["message_id"].as_str().unwrap_or_default();
        match event["kind"].as_str() {
            Some("message_settled") if event["data"]["status"] == "interjected" => {
                same(
                    "an interjection once more",
                    &json!(interjected.insert(message.to_owned())),
                    &json!(true),
                )?;
            }
            Some("run_settled" | "run_interrupted") => {
                same("an interjection that has run", &json!(interjected.contains(message)), &json!(false))?;
            }
            _ => {}
        }
    }
    Ok(())
}

pub fn read_json(path: &Path) -> Value {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// A message by what it is known by: a task's result up to how it stood, a reminder by its first line.
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

/// The model as a summary shows it.
fn shown(model: &Model, now: Millis) -> Value {
    let mut waits: Vec<_> = model.waits.iter().filter(|wait| wait.status == "active").collect();
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

/// The kinds of those advisories that follow from the records alone.
/// How many attentions there are that the small machine raises, too.
fn attentions_of(summary: &Value) -> u64 {
    let newest = summary["attention"]["newest"].as_array().cloned().unwrap_or_default();
    let of_people = newest.iter().filter(|one| is_of_people(&one["subject"])).count() as u64;
    summary["attention"]["count"].as_u64().unwrap_or(0).saturating_sub(of_people)
}

fn advisories_of(object: &Value) -> Value {
    let advisories = object["advisories"].as_array().cloned().unwrap_or_default();
    let kinds = advisories.iter().filter_map(|advisory| advisory["kind"].as_str());
    json!(kinds.filter(|kind| ADVISORIES.contains(kind)).collect::<BTreeSet<_>>())
}

/// A decision as the program tells it.
pub fn decision_of(step: &Value) -> Value {
    let found = step.get("continuation");
    let found = found.map(|found| {
        let resolves = if found["resolves"].is_null() { json!([]) } else { found["resolves"].clone() };
        json!([found["class"], found["model_reentry"], found["matched_waiting_reason"], resolves])
    });
    // The rest says how often and why, in the words of whatever happened.
    let held = step["reason"].as_str().is_some_and(|reason| reason.starts_with(HELD));
    let reason = if held { json!(HELD) } else { step["reason"].clone() };
    json!([step["decision"], reason, found])
}

pub fn after_turn(model: &Model) -> (&'static str, Option<&'static str>) {
    let closure = model.closure();
    (closure.outcome, closure.reason)
}

pub fn same(what: &str, found: &Value, expected: &Value) -> Checked {
    if found == expected {
        return Ok(());
    }
    let lines = |value: &Value| match value {
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
