//! Tests the output of `get` and `list`: documented fields, and inbox files before any step.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{
    add, assert_includes, edit_file, edit_state, extend_policy, field, json_in, only_file, own_name, started,
    step, step_on, words,
};

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap_or_else(|| panic!("{value}")).keys().cloned().collect()
}

fn set(words: &str) -> BTreeSet<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

/// Documented fields of the output. [`PARTS`] has the fields of the objects in it.
const SUMMARY: &str = "agent identity description status execution posture reason run_id message_id work_item_id \
    task_id wait_id lifecycle queue attention current_run \
    last_turn closure last_closure continuation work active_waits active_tasks active_children active_timers \
    external_triggers pending_wake_hint reduced retry held limits capabilities counters revision next_due_at \
    advisories children parent";

const PARTS: &[(&str, &str)] = &[
    ("identity", "name kind visibility owner parent profile created_at"),
    ("execution", "state code since task_id reason timeout_at"),
    ("lifecycle", "runnable accepts_messages hint stopped_by"),
    ("queue", "pending by_priority oldest_at dead dropped_files rejected"),
    ("work", "current open queued runnable waiting waiting_for_operator blocked"),
    ("reduced", "count ids"),
];

#[test]
fn get_prints_exactly_the_documented_fields() {
    let sandbox = Sandbox::new();
    edit_file(&sandbox.store().join("dormouse.toml"), |text| format!("{text}\n[profiles.p]\n"));
    add(&sandbox, "boss", "true");
    // The following agents together have a value for every documented field.
    let turn =
        r#"echo '{"usage":{"model":"m","cost_usd":0.1}}' > "$DORMOUSE_OUTCOME"; test -e good || exit 1"#;
    let flags = ["--parent", "boss", "--profile", "p", "--description", "tests", "--shell", turn];
    sandbox.run([&["create", "ada"], &flags[..]].concat());
    sandbox.run(["start", "ada"]);
    extend_policy(&sandbox, "ada", "\n[recovery]\nbase = \"1h\"\nmax_attempts = 9\n");
    let item =
        sandbox.json(["work", "add", "-a", "ada", "objective", "--pick"])["id"].as_str().unwrap().to_owned();
    sandbox.run(words(&format!("wait -a ada --on external --reason why --work-item {item} --resource r")));
    sandbox.run(["enqueue", "ada", "x", "--origin", "webhook", "--resource", "other"]);
    sandbox.run(["tick", "ada"]);
    sandbox.run(["enqueue", "ada", "x"]);
    sandbox.cmd(["tick", "ada"]).status(7).output();
    sandbox.run(["timer", "add", "-a", "ada", "--in", "1h"]);
    sandbox.run(["wake", "ada"]);
    let failed = sandbox.json(["get", "ada"]);
    let mut seen = keys(&failed);
    let mut parts: Vec<BTreeSet<String>> = PARTS.iter().map(|(part, _)| keys(&failed[*part])).collect();
    let mut look = |summary: &Value| {
        seen.extend(keys(summary));
        for (found, (part, _)) in parts.iter_mut().zip(PARTS) {
            found.extend(keys(&summary[*part]));
        }
    };
    // `bob` prints the fields of a running turn, then defers the run; `cyd` gets a dead letter.
    let own = own_name();
    for (name, script) in [
        ("bob", format!("{own} --json get bob > \"$HOME/inside\"; exit 75")),
        ("cyd", "exit 1".to_owned()),
        ("dan", "true".to_owned()),
    ] {
        add(&sandbox, name, &script);
        sandbox.run(["enqueue", name, "x"]);
    }
    sandbox.cmd(["tick", "bob"]).output();
    look(&sandbox.json(["get", "bob"]));
    let inside: Value = json_in(sandbox.home().join("inside"));
    look(&inside);
    extend_policy(&sandbox, "cyd", "\n[recovery]\nmax_attempts = 1\n");
    sandbox.cmd(["tick", "cyd"]).output();
    look(&sandbox.json(["get", "cyd"]));
    add(&sandbox, "eve", "true");
    sandbox.run(["work", "add", "-a", "eve", "objective"]);
    look(&sandbox.json(["get", "eve"]));
    sandbox.run(["stop", "dan"]);
    look(&sandbox.json(["get", "dan"]));
    let waiting = sandbox.json(["wait", "-a", "dan", "--on", "operator", "--reason", "why"]);
    sandbox.run(["start", "dan"]);
    sandbox.cmd(["tick", "dan"]).output();
    sandbox.run(["wait", "-a", "dan", "--on", "operator", "--reason", "again"]);
    sandbox.cmd(["tick", "dan"]).output();
    look(&sandbox.json(["get", "dan"]));
    assert!(waiting["wake_sources"].is_array());
    let task = sandbox.json(["task", "start", "-a", "dan", "--", "sleep", "60"]);
    let task = task["id"].as_str().unwrap();
    sandbox.run(["wait", "-a", "dan", "--on", "task", "--reason", "why", "--resource", task]);
    look(&sandbox.json(["get", "dan"]));
    sandbox.run(["stop", "dan", "--grace", "0s"]);
    assert_eq!(seen, set(SUMMARY));
    for (found, (part, documented)) in parts.iter().zip(PARTS) {
        assert_eq!(*found, set(documented), "{part}");
    }
    // The lists above lack the fields of runs and of list entries, so these are checked here.
    assert!(
        keys(&inside["current_run"]).is_superset(&set("run_id message_id attempt claimed_at cwd workspace"))
    );
    assert_eq!(inside["current_run"]["cwd"], json!(sandbox.project().join(".").to_string_lossy()));
    assert!(keys(&failed["last_turn"]).is_superset(&set("run_id terminal ended_at model cwd workspace")));
    assert_eq!(failed["last_turn"]["model"], "m");
    assert_eq!(failed["active_waits"][0]["wake_sources"][0], "resource:r");
    assert_eq!(failed["active_waits"][0]["recoverability"], "weak");
    assert_eq!(failed["reduced"]["count"], 1);
    assert_eq!(failed["reduced"]["ids"].as_array().unwrap().len(), 1);
    assert_eq!(failed["parent"], "boss");
    let list = sandbox.json_lines(["list"]);
    let ada = list.iter().find(|line| line["agent"] == "ada").unwrap();
    assert!(
        keys(ada).is_superset(&set(
            "agent status execution_state posture reason pending last_turn_at next_due_at kind visibility owner parent hint"
        )),
        "{ada}"
    );
    let expected = (Some(1), Some("operator"));
    assert_eq!((ada["reduced"].as_u64(), ada["pending_wake_hint"]["source"].as_str()), expected);
}

#[test]
fn get_shows_the_current_and_the_recorded_closure_separately() {
    let sandbox = started("true");
    step_on(&sandbox, "x");
    sandbox.run(["wait", "-a", "ada", "--on", "operator", "--reason", "why"]);
    let found = sandbox.json(["get", "ada"]);
    assert_includes(&found, json!({ "closure.outcome": "waiting", "last_closure.outcome": "completed" }));
}

#[test]
fn get_counts_work_items_by_state() {
    let sandbox = started("true");
    for objective in ["runs", "waits for the operator", "waits outside", "blocked"] {
        sandbox.run(["work", "add", "-a", "ada", objective]);
    }
    let items = sandbox.json_lines(["work", "list", "-a", "ada"]);
    let id = |at: usize| items[at]["id"].as_str().unwrap();
    sandbox.run(["work", "pick", id(0)]);
    sandbox.run(["work", "update", id(1), "--plan-status", "needs_input"]);
    sandbox.run(["wait", "-a", "ada", "--on", "external", "--reason", "why", "--work-item", id(2)]);
    sandbox.run(["work", "block", id(3), "--reason", "why"]);
    let mut work = sandbox.json(["get", "ada"])["work"].clone();
    work.as_object_mut().unwrap().remove("current");
    assert_eq!(
        work,
        json!({ "open": 4, "queued": 3, "runnable": 1, "waiting": 2, "waiting_for_operator": 1, "blocked": 1 })
    );
}

#[test]
fn costs_are_shown_without_rounding_errors() {
    let sandbox = started(r#"echo '{"usage":{"cost_usd":0.0189}}' > "$DORMOUSE_OUTCOME""#);
    for _ in 0..3 {
        step_on(&sandbox, "x");
    }
    assert_eq!(field(&sandbox, "counters.cost_usd"), "0.0567");
    // A record of an older version has accumulated rounding errors, which `get` must not show.
    edit_state(&sandbox, |state| state["counters"]["cost_usd"] = json!(0.056699999999999987));
    assert_eq!(field(&sandbox, "counters.cost_usd"), "0.0567");
}

#[test]
fn a_dropped_file_is_counted_before_a_step_and_after_its_rejection() {
    let sandbox = started("true");
    step(&sandbox);
    let inbox = sandbox.agent("ada").join("inbox");
    fs::write(inbox.join("one.json"), r#"{"text":"by hand"}"#).unwrap();
    fs::write(inbox.join("bad.json"), "nonsense").unwrap();
    let found = sandbox.json(["get", "ada"]);
    let expected = json!({ "pending": 2, "by_priority": {}, "dead": 0, "dropped_files": 2, "rejected": 0 });
    assert_eq!(found["queue"], expected);
    assert_eq!(found["posture"], "has_queued_input");
    let line = sandbox.json(["list"]);
    assert_eq!((line["pending"].as_u64(), line["posture"].as_str()), (Some(2), Some("has_queued_input")));
    sandbox.cmd(["tick", "ada"]).output();
    let queue = &sandbox.json(["get", "ada"])["queue"];
    assert_eq!((queue["pending"].as_u64(), queue["rejected"].as_u64()), (Some(0), Some(1)));
    assert_eq!(sandbox.json(["list"])["rejected"], 1);
    let text = sandbox.run(["get", "ada"]);
    assert!(text.contains("1 rejected file"), "{text}");
    let findings = sandbox.cmd(["--json", "doctor"]).output().stdout;
    assert!(
        findings.contains("\"rejected_files\"") && findings.contains("1 file could not be admitted"),
        "{findings}"
    );
    // A person deletes the rejected files, so the count of rejected files returns to 0.
    fs::remove_dir_all(inbox.join("rejected")).unwrap();
    assert_eq!(sandbox.json(["get", "ada"])["queue"]["rejected"], 0);
}

#[test]
fn a_dropped_file_keeps_a_delegation_open() {
    let sandbox = started("true");
    let task = sandbox.run(["task", "start", "-a", "ada", "--delegate", "kid", "work"]);
    let inbox = sandbox.agent("kid").join("inbox");
    fs::write(inbox.join("more.json"), r#"{"text":"and this"}"#).unwrap();
    // The child's turn drops a file into its own inbox, so a message remains after the first turn.
    let policy = sandbox.agent("kid").join("agent.toml");
    let text = fs::read_to_string(&policy).unwrap();
    let again = format!(
        "command = 'test -e \"$HOME/twice\" || echo {{\\\"text\\\":\\\"x\\\"}} > {}/late.json; touch \"$HOME/twice\"' # ",
        inbox.display()
    );
    fs::write(&policy, text.replace("command = ", &again)).unwrap();
    sandbox.run(["tick", "kid"]);
    sandbox.run(["tick", "kid"]);
    assert_eq!(sandbox.json(["task", "status", task.trim()])["status"], "running");
    sandbox.run(["tick", "kid", "--until-idle"]);
    assert_eq!(sandbox.json(["task", "status", task.trim()])["status"], "completed");
}

#[test]
fn get_and_list_show_a_hint_before_any_step() {
    let sandbox = started("true");
    step(&sandbox);
    sandbox.run(["wake", "ada", "--source", "webhook:ci", "--reason", "look", "--resource", "r"]);
    sandbox.run(["wake", "ada", "--source", "second"]);
    sandbox.run(["wake", "ada", "--source", "webhook:gh", "--reason", "again", "--resource", "r"]);
    let found = sandbox.json(["get", "ada"]);
    assert_eq!(found["pending_wake_hint"]["reason"], "look; again");
    assert_eq!(found["pending_wake_hint"]["count"], 2, "the step merges two hints");
    assert_eq!(found["posture"], "has_queued_input");
    assert_eq!(sandbox.json(["list"])["pending_wake_hint"]["resource"], "r");
    assert!(sandbox.run(["get", "ada"]).contains("from webhook:ci: look; again"));
    let file = only_file(&sandbox, "triggers");
    assert!(file.is_file());
}
