//! Interjections: what the operator says to a turn while it runs.

use std::fs;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{json_in, objects, say};

use super::{agent, current_run, ended, go, running, take_noted, turn, turns};

/// Says something to `ada` that is handed over to a turn that runs.
#[track_caller]
fn interject(sandbox: &Sandbox, text: &str) -> String {
    sandbox.run(["enqueue", "ada", text, "--priority", "interject"]).trim_end().to_owned()
}

/// What a file at home holds: an object a line.
#[track_caller]
fn answers(sandbox: &Sandbox, name: &str) -> Vec<Value> {
    objects(&fs::read_to_string(sandbox.home().join(name)).unwrap())
}

fn texts(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["body"]["text"].as_str().unwrap()).collect()
}

#[test]
fn what_the_operator_interjects_is_handed_over_in_order_and_once() {
    let sandbox = agent();
    let claimed = say(&sandbox, "a long job");
    let tick = running(
        &sandbox,
        r#"$D safe-point > "$HOME/first"; note $?
        up; come said
        $D safe-point > "$HOME/second"; note $?
        $D safe-point --json > "$HOME/third"; note $?
        come said-more
        outside preempt ada --reason urgent --grace 1d >/dev/null
        $D safe-point --json > "$HOME/fourth"; note $?"#,
    );
    let run = current_run(&sandbox);
    let said: Vec<String> = ["one", "two", "three"].iter().map(|text| interject(&sandbox, text)).collect();
    sandbox.run(["enqueue", "ada", "in its turn", "--priority", "next"]);
    sandbox.run(["enqueue", "ada", "{}", "--origin", "webhook:ci"]);
    go(&sandbox, "said");
    crate::setup::wait_for_line(&sandbox.home().join("third"));
    let more = interject(&sandbox, "four");
    go(&sandbox, "said-more");
    assert_eq!(ended(tick)["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["0", "0", "0", "10"]);
    assert_eq!(answers(&sandbox, "first"), Vec::<Value>::new());
    let second = answers(&sandbox, "second");
    assert_eq!(texts(&second), ["one", "two", "three"]);
    for (message, id) in second.iter().zip(&said) {
        assert_eq!(
            (&message["id"], &message["status"], &message["origin"]["kind"], &message["priority"]),
            (&json!(id), &json!("interjected"), &json!("operator"), &json!("interject"))
        );
    }
    assert_eq!(
        answers(&sandbox, "third"),
        [json!({ "agent": "ada", "run_id": run, "yield": false, "reason": null, "interjections": [] })]
    );
    let [fourth] = &answers(&sandbox, "fourth")[..] else { panic!("one object") };
    assert_eq!((&fourth["yield"], &fourth["reason"]), (&json!(true), &json!("urgent")));
    assert_eq!(texts(fourth["interjections"].as_array().unwrap()), ["four"]);
    for id in said.iter().chain([&more]) {
        let shown = sandbox.json(["queue", "show", id]);
        assert_eq!(
            (&shown["status"], &shown["settlement"]["run_id"]),
            (&json!("interjected"), &json!(run)),
            "{shown}"
        );
    }
    assert_eq!(sandbox.json(["queue", "show", &claimed])["status"], "processed");
    // The others were for nobody but the next turns.
    let left = sandbox.json_lines(["queue", "list", "-a", "ada"]);
    assert_eq!(texts(&left), ["in its turn", "{}"]);
}

#[test]
fn of_two_safe_points_at_once_one_hands_it_over() {
    let sandbox = agent();
    say(&sandbox, "a long job");
    let tick = running(
        &sandbox,
        r#"up; come said
        for name in 1 2 3 4; do $D safe-point > "$HOME/$name" & done; wait"#,
    );
    let texts_said: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    texts_said.iter().for_each(|text| drop(interject(&sandbox, text)));
    go(&sandbox, "said");
    assert_eq!(ended(tick)["terminal"], "completed");
    let mut found: Vec<u32> = ["1", "2", "3", "4"]
        .iter()
        .flat_map(|name| {
            let found = answers(&sandbox, name);
            texts(&found).iter().map(|text| text.parse().unwrap()).collect::<Vec<u32>>()
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, (0..20).collect::<Vec<u32>>());
}

#[test]
fn however_much_is_said_all_of_it_is_handed_over() {
    let sandbox = agent();
    say(&sandbox, "a long job");
    let tick = running(
        &sandbox,
        r#"up; come said
        for name in 1 2 3; do $D safe-point --json > "$HOME/$name"; done"#,
    );
    let lines: String = (0..70)
        .map(|number| format!("{}\n", json!({ "text": number.to_string(), "priority": "interject" })))
        .collect();
    sandbox.cmd(["enqueue", "ada", "--batch"]).stdin(lines).exits(0);
    go(&sandbox, "said");
    assert_eq!(ended(tick)["terminal"], "completed");
    let mut found = Vec::new();
    for (name, count) in [("1", 64), ("2", 6), ("3", 0)] {
        let answer = answers(&sandbox, name).remove(0);
        let messages = answer["interjections"].as_array().unwrap().clone();
        assert_eq!(messages.len(), count);
        found.extend(messages);
    }
    let expected: Vec<String> = (0..70).map(|number| number.to_string()).collect();
    assert_eq!(texts(&found), expected);
}

#[test]
fn what_has_expired_is_not_handed_over() {
    let sandbox = agent();
    say(&sandbox, "a long job");
    let tick = running(
        &sandbox,
        r#"up; come said
        DORMOUSE_NOW=2026-01-02T04:00:01.001Z $D safe-point > "$HOME/answer""#,
    );
    for (text, ttl) in [("late", "1s"), ("in time", "1m")] {
        let args = ["enqueue", "ada", text, "--priority", "interject", "--ttl", ttl];
        assert_eq!(sandbox.cmd(args).env("DORMOUSE_NOW", "2026-01-02T04:00:00Z").output().code(), 0);
    }
    go(&sandbox, "said");
    assert_eq!(ended(tick)["terminal"], "completed");
    assert_eq!(texts(&answers(&sandbox, "answer")), ["in time"]);
}

/// A turn is nobody's operator, its own least of all.
#[test]
fn only_the_operator_interjects() {
    let sandbox = agent();
    say(&sandbox, "a long job");
    turn(
        &sandbox,
        r#"$D --json enqueue ada "to myself" --priority interject > "$HOME/answer"; note $?
        outside enqueue ada x --origin webhook:ci --priority interject 2>/dev/null; note $?
        $D safe-point; note $?"#,
    );
    assert_eq!(take_noted(&sandbox), ["4", "4", "0"]);
    assert_eq!(answers(&sandbox, "answer")[0]["error"]["kind"], "priority_not_allowed");
}

/// What was handed over to a turn that then failed has not been in vain: the next attempt is told.
#[test]
fn the_next_attempt_is_told_what_was_said_to_the_one_that_failed() {
    let sandbox = agent();
    say(&sandbox, "a long job");
    let tick = running(&sandbox, r#"up; come said; $D safe-point > "$HOME/said-to-it"; exit 1"#);
    interject(&sandbox, "mind the gap");
    interject(&sandbox, "and the dog");
    go(&sandbox, "said");
    assert_eq!(ended(tick)["terminal"], "failed");
    sandbox.run(["recover", "ada"]);
    let stepped =
        turn(&sandbox, r#"cp "$DORMOUSE_CONTEXT" "$HOME/context"; $D safe-point; $D yield >/dev/null"#);
    assert_eq!((&stepped["terminal"], &stepped["attempt"]), (&json!("suspended"), &json!(2)));
    let context = |sandbox: &Sandbox| -> Value { json_in(sandbox.home().join("context")) };
    assert_eq!(texts(context(&sandbox)["interjected"].as_array().unwrap()), ["mind the gap", "and the dog"]);
    // So is the one that goes on, and no other message is.
    sandbox.run(["resume", "ada"]);
    assert_eq!(turn(&sandbox, r#"cp "$DORMOUSE_CONTEXT" "$HOME/context""#)["terminal"], "completed");
    assert_eq!(texts(context(&sandbox)["interjected"].as_array().unwrap()), ["mind the gap", "and the dog"]);
    say(&sandbox, "another");
    turn(&sandbox, r#"cp "$DORMOUSE_CONTEXT" "$HOME/context""#);
    assert!(context(&sandbox)["interjected"].as_array().is_none_or(Vec::is_empty));
}

/// What nobody took at a safe point has a turn of its own.
#[test]
fn what_was_not_handed_over_runs_next() {
    let sandbox = agent();
    say(&sandbox, "a long job");
    say(&sandbox, "later");
    let tick = running(&sandbox, "up; come said");
    let id = interject(&sandbox, "now");
    go(&sandbox, "said");
    assert_eq!(ended(tick)["terminal"], "completed");
    turns(&sandbox, "true");
    assert_eq!(crate::setup::step(&sandbox)["message_id"], json!(id));
}
