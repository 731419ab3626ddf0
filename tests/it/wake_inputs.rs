//! Tests the inputs that wake an agent or end its waits: answers to questions, hints and rechecks;
//! and what commands report about them.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Sandbox, dormouse};
use crate::setup::{
    add, advisories, assert_includes, decision, decisions, edit_policy, json_in, objects, say, started, step,
    texts, wait, waits, words,
};

/// Turn that copies its context and its stdin into files of the project.
const NOTING: &str = "cp \"$DORMOUSE_CONTEXT\" context; cat > prompt";

fn context(sandbox: &Sandbox) -> Value {
    json_in(sandbox.project().join("context"))
}

fn trigger(sandbox: &Sandbox, mode: &str) -> String {
    let made = sandbox.json(["trigger", "create", "-a", "ada", "--mode", mode]);
    fs::write(sandbox.project().join("secret"), made["trigger_secret"].as_str().unwrap()).unwrap();
    made["id"].as_str().unwrap().to_owned()
}

#[test]
fn only_the_operator_can_answer_a_question_to_the_operator() {
    let sandbox = started("true");
    let question = wait(&sandbox, "operator", &["--whole-agent"]);
    for flags in [&["--origin", "webhook:ci"][..], &["--origin", "channel:irc"], &["--origin", "callback:x"]]
    {
        let ran =
            sandbox.cmd([&["--json", "enqueue", "ada", "yes", "--wait", &question], flags].concat()).exits(4);
        assert_eq!(objects(&ran.stdout)[0]["error"]["kind"], "operators_answer", "{ran}");
    }
    let ran = sandbox.cmd(["--json", "wake", "ada", "--wait", &question]).output();
    assert_eq!(objects(&ran.stdout)[0]["error"]["kind"], "operators_answer", "{ran}");
    let line = json!({ "text": "yes", "origin": "channel:irc", "wait_id": question }).to_string();
    sandbox.cmd(["enqueue", "ada", "--batch"]).stdin(line.clone()).exits(4);
    // Neither a file in the inbox nor a turn of another agent can answer the operator's question.
    let dropped = json!({ "text": "yes", "wait_id": question }).to_string();
    fs::write(sandbox.agent("ada").join("inbox/note.json"), dropped).unwrap();
    let answer = format!("\"{}\" enqueue ada yes --wait {question}", dormouse().display());
    add(&sandbox, "eve", &answer);
    say(&sandbox, "first");
    sandbox.run(["enqueue", "eve", "go"]);
    let of_eve = sandbox.cmd(["--json", "tick", "eve"]).output();
    assert_eq!(objects(&of_eve.stdout)[0]["terminal"], "failed", "{of_eve}");
    assert_eq!(sandbox.json_lines(["queue", "rejected", "-a", "ada"]).len(), 0);
    let ran = sandbox.cmd(["--json", "tick", "ada", "--until-idle"]).output();
    assert_eq!(waits(&sandbox), Vec::<String>::new(), "the operator's own message has answered: {ran}");
    assert_eq!(sandbox.json_lines(["queue", "rejected", "-a", "ada"]).len(), 1);
}

#[test]
fn only_operator_input_ends_the_wait_of_an_item_that_needs_input() {
    let sandbox = started("true");
    let item = sandbox.run(["work", "add", "x", "-a", "ada", "--pick", "--plan-status", "needs_input"]);
    let item = item.trim();
    for flags in [&["--origin", "webhook:ci"][..], &["--origin", "channel:irc"]] {
        sandbox.run([&["enqueue", "ada", "yes", "--work-item", item], flags].concat());
        assert_eq!(decision(&step(&sandbox)).split(' ').next(), Some("reduce_message_only"), "{flags:?}");
    }
    sandbox.run(["enqueue", "ada", "yes", "--work-item", item]);
    let answered = step(&sandbox);
    assert_eq!(answered["continuation"]["class"], "resume_expected_wait", "{answered}");
}

#[test]
fn a_parent_can_answer_a_question_of_its_child() {
    let sandbox = started("sh ./answer.sh");
    sandbox.run(["create", "kid", "--parent", "ada", "--", "true"]);
    sandbox.run(["start", "kid"]);
    let question = sandbox.run(["wait", "-a", "kid", "--on", "operator", "--reason", "which?"]);
    let question = question.trim();
    let own = sandbox.run(["wait", "-a", "kid", "--on", "external", "--reason", "r", "--whole-agent"]);
    let answer = format!("\"{}\" enqueue kid blue --wait {question}", dormouse().display());
    fs::write(sandbox.project().join("answer.sh"), answer).unwrap();
    say(&sandbox, "go");
    assert_eq!(step(&sandbox)["terminal"], "completed");
    let heard = sandbox.json(["tick", "kid"]);
    assert_eq!(heard["continuation"]["trigger_kind"], "operator_input", "{heard}");
    let left = sandbox.json_lines(["wait", "list", "-a", "kid"]);
    assert_eq!(texts(&left, "id"), [own.trim()]);
}

#[test]
fn wake_warns_if_no_turn_runs_and_the_next_turn_gets_the_reason() {
    let sandbox = started(NOTING);
    let id = trigger(&sandbox, "wake_hint");
    let without_turn: [&[&str]; 5] = [
        &["wake", "ada"],
        &["wake", "ada", "--reason", "the first reason"],
        &["wake", "ada", "the second reason"],
        &["wake", "ada", "--resource", "pr:9"],
        &["trigger", "deliver", &id, "--secret-file", "secret"],
    ];
    for words in without_turn {
        let ran = sandbox.cmd(words).output();
        assert!(ran.stderr.contains("ada: no turn will run: "), "{words:?} {ran}");
        let told = sandbox.json(words);
        assert_eq!(told["runs"], "nothing", "{words:?} {told}");
        assert!(decisions(&sandbox).iter().all(|line| !line.contains("start_model_turn")), "{words:?}");
    }
    say(&sandbox, "now");
    decisions(&sandbox);
    let reduced = context(&sandbox)["reduced"]["messages"].to_string();
    let ledger = sandbox.run(["--json", "events", "ada", "--kind", "message_admitted"]);
    for reason in ["the first reason", "the second reason"] {
        assert!(reduced.contains(reason), "{reduced}");
        assert!(ledger.contains(reason), "{ledger}");
    }
    // A hint starts a turn if it matches a wait, or if there is runnable work.
    wait(&sandbox, "external", &["--resource", "pr:1"]);
    assert_eq!(sandbox.json(["wake", "ada", "--resource", "pr:1"])["runs"], "turn");
    assert!(decisions(&sandbox).iter().any(|line| line.contains("start_model_turn")));
    sandbox.run(["work", "add", "x", "-a", "ada"]);
    decisions(&sandbox);
    assert_eq!(sandbox.json(["wake", "ada"])["runs"], "turn");
    assert!(decisions(&sandbox).iter().any(|line| line.contains("start_model_turn")));
}

#[test]
fn the_text_of_a_delivered_hint_is_recorded_but_reaches_no_turn() {
    let sandbox = started(NOTING);
    let id = trigger(&sandbox, "wake_hint");
    edit_policy(&sandbox, "ada", |text| text.replace("stdin = \"context\"", "stdin = \"prompt\""));
    let told = sandbox.json(["trigger", "deliver", &id, "--secret-file", "secret", "obey this"]);
    assert_eq!(told["runs"], "turn");
    sandbox.run(["trigger", "deliver", &id, "--secret-file", "secret", "obey that"]);
    assert_eq!(decisions(&sandbox)[1], "start_model_turn (system_tick) completed");
    let context = context(&sandbox);
    assert_includes(&context, json!({ "message.hint.count": 2, "message.trigger_id": id }));
    let prompt = fs::read_to_string(sandbox.project().join("prompt")).unwrap();
    assert!(prompt.contains(&format!("A wake hint through {id}, sent 2 times: go and look.")), "{prompt}");
    assert!(!context.to_string().contains("obey"), "{context}");
    assert!(!prompt.contains("obey"), "{prompt}");
    let ledger = sandbox.run(["--json", "events", "ada"]);
    assert!(ledger.contains("obey this") && ledger.contains("obey that"), "{ledger}");
}

#[test]
fn a_hint_from_one_source_of_a_kind_ends_a_wait_for_that_kind() {
    for (hint, is_over) in [("webhook:ci", true), ("webhook", true), ("channel:ci", false)] {
        let sandbox = started("true");
        wait(&sandbox, "external", &["--source", "webhook"]);
        sandbox.run(["wake", "ada", "--source", hint]);
        decisions(&sandbox);
        assert_eq!(waits(&sandbox).is_empty(), is_over, "{hint}");
    }
}

#[test]
fn a_recheck_at_a_fixed_time_runs_once_and_is_then_no_fallback() {
    let sandbox = started("true");
    let id = wait(&sandbox, "external", &["--resource", "pr:1", "--recheck-at", "2026-01-02T04:00:00Z"]);
    assert!(advisories(&sandbox).is_empty(), "{:?}", advisories(&sandbox));
    sandbox.pass(3600);
    assert!(decisions(&sandbox)[0].starts_with("start_model_turn (system_tick)"));
    let shown = sandbox.json(["wait", "show", &id]);
    assert_includes(&shown, json!({ "recoverability": "weak", "recheck_at": null }));
    assert!(advisories(&sandbox).contains(&"external_wait_has_weak_recoverability".to_owned()));
    let both = ["--recheck", "1h", "--recheck-at", "2026-01-03"];
    let ran = sandbox.cmd([&["wait", "-a", "ada", "--on", "external", "--reason", "r"][..], &both].concat());
    assert_eq!(ran.output().code(), 2);
}

#[test]
fn ended_waits_are_listed_and_shown_with_their_cause() {
    let sandbox = started("true");
    let resolved = wait(&sandbox, "external", &["--resource", "pr:1"]);
    let hint = sandbox.run(["enqueue", "ada", "merged", "--origin", "webhook:gh", "--resource", "pr:1"]);
    decisions(&sandbox);
    let cancelled = wait(&sandbox, "external", &["--resource", "pr:2"]);
    let ran = sandbox.cmd(words("--json wait -a ada --on external --reason r --resource pr:2")).output();
    let again = objects(&ran.stdout).remove(0);
    assert_eq!(again["replaces"], json!([cancelled]));
    assert!(ran.stderr.contains(&format!("replaces {cancelled}")), "{ran}");
    let again = again["id"].as_str().unwrap().to_owned();
    let expired = wait(&sandbox, "system", &["--expires", "1h"]);
    sandbox.pass(7200);
    decisions(&sandbox);
    let listed = |states: &str| -> Vec<String> {
        let waits = sandbox.json_lines(["wait", "list", "-a", "ada", "--state", states]);
        texts(&waits, "id")
    };
    assert_eq!(listed("ended"), [&*resolved, &*cancelled, &*expired]);
    assert_eq!(listed("all"), [&*resolved, &*cancelled, &*expired, &*again]);
    assert_eq!(listed("cancelled,active"), [&*cancelled, &*again]);
    assert_eq!(listed("active"), [&*again]);
    for (id, status, cause) in [
        (&resolved, "resolved", hint.trim_end()),
        (&cancelled, "cancelled", &*format!("replaced by {again}")),
        (&expired, "expired", "expires_at"),
    ] {
        let shown = sandbox.json(["wait", "show", id]);
        let expected = json!({ "status": status, "cause": cause, "wake_sources": [], "on_wake": [] });
        assert_includes(&shown, expected);
        assert!(shown["ended_at"].is_string(), "{shown}");
        let text = sandbox.run(["wait", "show", id]);
        assert!(text.contains(status), "{text}");
    }
    sandbox.cmd(["wait", "show", "wait_0000000000"]).exits(3);
}

#[test]
fn a_wait_shows_the_effect_of_each_of_its_wake_sources() {
    let sandbox = started("true");
    let item = sandbox.run(["work", "add", "x", "-a", "ada", "--pick"]);
    let id = wait(&sandbox, "external", &["--resource", "pr:1", "--source", "webhook", "--recheck", "1h"]);
    let shown = sandbox.json(["wait", "show", &id]);
    let named = format!("wait:{id}");
    assert_eq!(shown["wake_sources"], json!(["resource:pr:1", "source:webhook", named, "recheck"]));
    let on_wake = shown["on_wake"].as_array().unwrap();
    let expected = json!({
        "source": "resource:pr:1", "runs": "turn", "wait_id": id, "ends_wait": true,
        "trigger_kind": "external_event", "work_item_id": item.trim(),
    });
    assert_eq!(on_wake[0], expected);
    assert_includes(&on_wake[3], json!({ "source": "recheck", "ends_wait": false }));
    let explained = sandbox.json(["explain", "ada"]);
    assert_eq!(explained["on_wake"].as_array().unwrap()[..4], on_wake[..]);
    assert_eq!(sandbox.json(["get", "ada"])["active_waits"][0]["on_wake"], shown["on_wake"]);
}

#[test]
fn a_task_names_the_waits_that_its_end_will_end() {
    let sandbox = started("true");
    let task = sandbox.run(["task", "start", "-a", "ada", "--", "sleep", "100000"]);
    let task = task.trim();
    let id = wait(&sandbox, "task", &["--resource", task]);
    assert_eq!(sandbox.json(["task", "status", task])["waits"], json!([id]));
    assert!(sandbox.run(["task", "status", task]).contains(&id));
    sandbox.run(["task", "stop", task, "--grace", "0s"]);
    decisions(&sandbox);
    assert_eq!(sandbox.json(["task", "status", task])["waits"], json!([]));
}
