//! Tests the refusals of commands that are probably mistakes, and the warnings about agents that
//! run no turn.

use std::fs;

use serde_json::json;

use crate::harness::Sandbox;
use crate::setup::{
    extend_policy, failure, field, id, names, say, started, started_with, step, step_on, wait, waits,
};

#[track_caller]
fn assert_refused(sandbox: &Sandbox, args: &[&str], status: i32, kind: &str) {
    sandbox.cmd([&["--json"], args].concat()).fails(status, kind);
}

fn inbox(sandbox: &Sandbox) -> Vec<String> {
    names(&sandbox.agent("ada").join("inbox"))
}

/// Makes a wait of the agent itself for the operator, and returns its id.
fn question(sandbox: &Sandbox) -> String {
    wait(sandbox, "operator", &["--whole-agent"])
}

#[test]
fn a_blank_message_is_admitted_only_with_allow_empty() {
    let sandbox = started("true");
    for text in ["", "  ", "\n\t"] {
        assert_refused(&sandbox, &["enqueue", "ada", text], 4, "blank_message");
        assert_refused(&sandbox, &["ask", "ada", text], 4, "blank_message");
    }
    let batch = |line: &str, more: &[&'static str]| {
        sandbox.cmd([&["enqueue", "ada", "--batch"], more].concat()).stdin(line.to_owned()).output()
    };
    assert_eq!(batch("{\"text\": \" \"}", &[]).code(), 4);
    assert_eq!(inbox(&sandbox), Vec::<String>::new());
    assert_eq!(batch("{\"text\": \" \"}", &["--allow-empty"]).code(), 0);
    assert_eq!(batch("{\"text\": \" \", \"allow_empty\": true}", &[]).code(), 0);
    sandbox.run(["enqueue", "ada", "--allow-empty", ""]);
    // Hints and timers need no text.
    sandbox.run(["wake", "ada"]);
    sandbox.run(["timer", "add", "-a", "ada", "--in", "1h"]);
    assert_eq!(inbox(&sandbox).len(), 4);
    sandbox.cmd(["ask", "ada", "--allow-empty", ""]).exits(0);
}

#[test]
fn a_blank_file_is_rejected_without_allow_empty() {
    let sandbox = started("true");
    let inbox = sandbox.agent("ada").join("inbox");
    // The default origin of dropped files is `channel`, for which a blank text runs no turn.
    extend_policy(&sandbox, "ada", "[inbox]\ndrops_as = \"operator\"\n");
    fs::write(inbox.join("a.json"), "{\"text\": \"\"}").unwrap();
    fs::write(inbox.join("b.json"), "{\"text\": \"\", \"allow_empty\": true}").unwrap();
    sandbox.cmd(["tick", "ada", "--until-idle"]).output();
    assert_eq!(names(&inbox.join("rejected")), ["a.json", "a.json.reason"]);
    assert_eq!(field(&sandbox, "last_turn.terminal"), "completed");
}

#[test]
fn a_past_moment_is_accepted_only_with_past_ok() {
    let sandbox = started("true");
    let past = ["--at", "2020-01-01T00:00:00Z"];
    for args in [
        &["enqueue", "ada", "x"][..],
        &["timer", "add", "-a", "ada", "x"],
        &["wait", "-a", "ada", "--on", "timer", "--reason", "r"],
    ] {
        let args = [args, &past].concat();
        assert_refused(&sandbox, &args, 4, "past");
        sandbox.run([args.as_slice(), &["--past-ok"]].concat());
    }
    assert_eq!(sandbox.cmd(["enqueue", "ada", "x", "--past-ok"]).output().code(), 2);
}

#[test]
fn enqueue_warns_that_the_agent_is_not_started() {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "ada", "--", "true"]);
    let warning = |how: &str| format!("dormouse: ada {how}: it takes this up after `dormouse start ada`\n");
    let ran = sandbox.cmd(["enqueue", "ada", "x"]).output();
    assert_eq!((ran.code(), ran.stderr), (0, warning("was never started")));
    sandbox.run(["start", "ada"]);
    assert_eq!(sandbox.cmd(["enqueue", "ada", "x"]).output().stderr, "");
    sandbox.run(["stop", "ada"]);
    let ran =
        sandbox.cmd(["enqueue", "ada", "--batch"]).stdin("{\"text\": \"y\"}\n{\"text\": \"z\"}").output();
    assert_eq!((ran.code(), ran.stderr), (0, warning("is stopped")));
}

#[test]
fn a_message_must_name_an_open_item_and_an_active_wait() {
    let sandbox = started("true");
    let item = id(&sandbox, &["work", "add", "x"]);
    let wait = question(&sandbox);
    let named = sandbox.run(["enqueue", "ada", "x", "--work-item", &item, "--wait", &wait]);
    let record = sandbox.json(["queue", "show", named.trim_end()]);
    assert_eq!((&record["work_item_id"], &record["wait_id"]), (&json!(item), &json!(wait)));
    sandbox.run(["work", "complete", &item]);
    sandbox.run(["wait", "cancel", &wait]);
    for args in [
        ["enqueue", "ada", "x", "--work-item", &item].as_slice(),
        &["enqueue", "ada", "x", "--wait", &wait],
        &["ask", "ada", "x", "--wait", &wait],
        &["wake", "ada", "--wait", &wait],
    ] {
        assert_refused(&sandbox, args, 3, "no_record");
    }
    let bad = format!("{{\"text\": \"1\"}}\n{{\"text\": \"2\", \"wait_id\": \"{wait}\"}}");
    let expected = "dormouse: line 2 of the batch: no active wait `wait_#1`\nhint: nothing was admitted\n";
    sandbox.cmd(["enqueue", "ada", "--batch"]).stdin(bad).status(4).complains(expected);
    let inbox = sandbox.agent("ada").join("inbox");
    fs::write(inbox.join("a.json"), format!("{{\"text\": \"x\", \"work_item_id\": \"{item}\"}}")).unwrap();
    sandbox.cmd(["tick", "ada", "--until-idle"]).output();
    let expected = format!("no open work item `{item}`\n");
    assert_eq!(fs::read_to_string(inbox.join("rejected/a.json.reason")).unwrap(), expected);
}

#[test]
fn an_answer_that_names_its_question_leaves_the_other_open() {
    for way in ["flag", "batch", "file"] {
        let sandbox = started("true");
        let (first, second) = (question(&sandbox), question(&sandbox));
        extend_policy(&sandbox, "ada", "\n[inbox]\ndrops_as = \"operator\"\n");
        let line = json!({ "text": "red", "wait_id": second }).to_string();
        match way {
            "flag" => drop(sandbox.run(["enqueue", "ada", "red", "--wait", &second])),
            "batch" => drop(sandbox.cmd(["enqueue", "ada", "--batch"]).stdin(line).output()),
            _ => fs::write(sandbox.agent("ada").join("inbox/answer.json"), line).unwrap(),
        }
        assert_eq!(step(&sandbox)["continuation"]["resolves"], json!([second]), "{way}");
        assert_eq!(waits(&sandbox), [first], "{way}");
    }
}

#[test]
fn an_error_about_a_limit_has_the_limit_and_the_size() {
    let policy = "\n[limits]\nmax_message = \"1 KiB\"\n";
    let sandbox = started_with("head -c 4194305 /dev/zero > \"$DORMOUSE_OUTCOME\"", policy);
    let file = |name: &str, bytes: usize| fs::write(sandbox.project().join(name), "x".repeat(bytes)).unwrap();
    file("plan", (1 << 20) + 7);
    file("text", 2000);
    let item = id(&sandbox, &["work", "add", "x"]);
    let (plan, text) =
        ("1048583 bytes, more than max_plan = 1 MiB", "2000 bytes, more than limits.max_message = 1 KiB");
    for (args, what, size) in [
        (&["work", "plan", &item, "@plan"][..], "plan", plan),
        (&["work", "update", &item, "--plan", "@plan"], "plan", plan),
        (&["work", "add", "-a", "ada", "y", "--plan", "@plan"], "plan", plan),
        (&["enqueue", "ada", "@text"], "body", text),
        (&["wake", "ada", "@text"], "hint", text),
        (&["timer", "add", "-a", "ada", "--in", "1h", "@text"], "text", text),
    ] {
        let ran = sandbox.cmd([&["--json"], args].concat()).output();
        let expected = json!(format!("the {what} has {size}"));
        assert_eq!((ran.code(), &failure(&ran)["message"]), (4, &expected), "{args:?}");
    }
    let ran = sandbox.cmd(["--json", "enqueue", "ada", "--batch"]).stdin("x".repeat(80_000)).output();
    let expected = "line 1 of the batch: it has at least 67585 bytes, more than limits.max_message = 1 KiB";
    assert_eq!(failure(&ran)["message"], expected);
    say(&sandbox, "go");
    let failed = step(&sandbox)["terminal_reason"].to_string();
    assert!(failed.contains("it has 4194305 bytes, more than limits.max_outcome = 4 MiB"), "{failed}");
}

#[test]
fn an_error_has_the_agent_and_the_states_in_fields() {
    let sandbox = started("true");
    let error = |args: &[&str]| failure(&sandbox.cmd([&["--json"], args].concat()).output());
    step_on(&sandbox, "x");
    let moved = error(&["fail", "ada", "--reason", "r"]);
    let expected = (&json!("invalid_state_transition"), &json!("completed"), &json!("failed"));
    assert_eq!((&moved["kind"], &moved["from"], &moved["to"]), expected);
    assert_eq!(moved["agent"], "ada");
    assert_eq!(error(&["enqueue", "ada", ""])["agent"], "ada");
    assert_eq!(error(&["enqueue", "bob", "x"])["agent"], "bob");
    assert_eq!(error(&["-q", "wait", "-a", "ada", "--on", "timer", "--reason", "r"])["agent"], "ada");
}
