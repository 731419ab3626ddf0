//! Tests interjections: messages of the operator that a running turn gets at its safe points.

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{assert_includes, json_in, say, step, wait_for_line};

use super::{agent, answers, current_run, ended, go, running, take_noted, turn, turns};

/// Enqueues a message of priority `interject` for `ada`, and returns its id.
#[track_caller]
fn interject(sandbox: &Sandbox, text: &str) -> String {
    sandbox.run(["enqueue", "ada", text, "--priority", "interject"]).trim_end().to_owned()
}

fn texts(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["body"]["text"].as_str().unwrap()).collect()
}

#[test]
fn interjections_are_handed_over_in_order_and_once() {
    let sandbox = agent();
    let claimed = say(&sandbox, "a long job");
    let script = r#"$D safe-point > "$HOME/first"; note $?
        up; come said
        $D safe-point > "$HOME/second"; note $?
        $D safe-point --json > "$HOME/third"; note $?
        come said-more
        outside preempt ada --reason urgent --grace 1d >/dev/null
        $D safe-point --json > "$HOME/fourth"; note $?"#;
    let tick = running(&sandbox, script);
    let run = current_run(&sandbox);
    let said: Vec<String> = ["one", "two", "three"].iter().map(|text| interject(&sandbox, text)).collect();
    sandbox.run(["enqueue", "ada", "in its turn", "--priority", "next"]);
    sandbox.run(["enqueue", "ada", "{}", "--origin", "webhook:ci"]);
    go(&sandbox, "said");
    wait_for_line(&sandbox.home().join("third"));
    let more = interject(&sandbox, "four");
    go(&sandbox, "said-more");
    assert_eq!(ended(tick)["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["0", "0", "0", "10"]);
    assert_eq!(answers(&sandbox, "first"), Vec::<Value>::new());
    let second = answers(&sandbox, "second");
    assert_eq!(texts(&second), ["one", "two", "three"]);
    for (message, id) in second.iter().zip(&said) {
        assert_includes(
            message,
            json!({ "id": id, "status": "interjected", "origin.kind": "operator", "priority": "interject" }),
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
        assert_includes(&shown, json!({ "status": "interjected", "settlement.run_id": run }));
    }
    assert_eq!(sandbox.json(["queue", "show", &claimed])["status"], "processed");
    // Messages of other priorities stay queued for the next turns.
    let left = sandbox.json_lines(["queue", "list", "-a", "ada"]);
    assert_eq!(texts(&left), ["in its turn", "{}"]);
}

#[test]
fn concurrent_safe_points_hand_over_each_message_once() {
    let sandbox = agent();
    say(&sandbox, "a long job");
    let script = r#"up; come said
        for name in 1 2 3 4; do $D safe-point > "$HOME/$name" & done; wait"#;
    let tick = running(&sandbox, script);
    for number in 0..20 {
        interject(&sandbox, &number.to_string());
    }
    go(&sandbox, "said");
    assert_eq!(ended(tick)["terminal"], "completed");
    let handed_over: Vec<Value> =
        ["1", "2", "3", "4"].iter().flat_map(|name| answers(&sandbox, name)).collect();
    let mut found: Vec<u32> = texts(&handed_over).iter().map(|text| text.parse().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, (0..20).collect::<Vec<u32>>());
}

#[test]
fn any_number_of_interjections_is_handed_over() {
    let sandbox = agent();
    say(&sandbox, "a long job");
    let script = r#"up; come said
        for name in 1 2 3; do $D safe-point --json > "$HOME/$name"; done"#;
    let tick = running(&sandbox, script);
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
fn expired_messages_are_not_handed_over() {
    let sandbox = agent();
    say(&sandbox, "a long job");
    let script = r#"up; come said
        DORMOUSE_NOW=2026-01-02T04:00:01.001Z $D safe-point > "$HOME/answer""#;
    let tick = running(&sandbox, script);
    for (text, ttl) in [("late", "1s"), ("in time", "1m")] {
        let args = ["enqueue", "ada", text, "--priority", "interject", "--ttl", ttl];
        assert_eq!(sandbox.cmd(args).env("DORMOUSE_NOW", "2026-01-02T04:00:00Z").output().code(), 0);
    }
    go(&sandbox, "said");
    assert_eq!(ended(tick)["terminal"], "completed");
    assert_eq!(texts(&answers(&sandbox, "answer")), ["in time"]);
}

/// The context of the next attempt has the interjections of an attempt that failed after it got
/// them.
#[test]
fn the_next_attempt_gets_the_interjections_of_a_failed_one() {
    let sandbox = agent();
    say(&sandbox, "a long job");
    let tick = running(&sandbox, r#"up; come said; $D safe-point > "$HOME/said-to-it"; exit 1"#);
    interject(&sandbox, "mind the gap");
    interject(&sandbox, "and the dog");
    go(&sandbox, "said");
    assert_eq!(ended(tick)["terminal"], "failed");
    sandbox.run(["recover", "ada"]);
    const COPY: &str = r#"cp "$DORMOUSE_CONTEXT" "$HOME/context""#;
    let interjected = || json_in(sandbox.home().join("context"))["interjected"].clone();
    let stepped = turn(&sandbox, &format!("{COPY}; $D safe-point; $D yield >/dev/null"));
    assert_includes(&stepped, json!({ "terminal": "suspended", "attempt": 2 }));
    assert_eq!(texts(interjected().as_array().unwrap()), ["mind the gap", "and the dog"]);
    // The resumed turn gets the interjections again; the turn of another message does not.
    sandbox.run(["resume", "ada"]);
    assert_eq!(turn(&sandbox, COPY)["terminal"], "completed");
    assert_eq!(texts(interjected().as_array().unwrap()), ["mind the gap", "and the dog"]);
    say(&sandbox, "another");
    turn(&sandbox, COPY);
    assert!(interjected().as_array().is_none_or(Vec::is_empty));
}

/// An interjection that no `safe-point` has given to the turn is the message of the next turn.
#[test]
fn an_interjection_that_was_not_handed_over_runs_next() {
    let sandbox = agent();
    say(&sandbox, "a long job");
    say(&sandbox, "later");
    let tick = running(&sandbox, "up; come said");
    let id = interject(&sandbox, "now");
    go(&sandbox, "said");
    assert_eq!(ended(tick)["terminal"], "completed");
    turns(&sandbox, "true");
    assert_eq!(step(&sandbox)["message_id"], json!(id));
}
