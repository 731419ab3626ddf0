//! What a command refuses because the user has probably meant something else, and what it says then.

use std::fs;

use serde_json::json;

use crate::harness::Sandbox;
use crate::setup::{extend_policy, failure, field, names, say, started, started_with, step, step_on};

fn refused(sandbox: &Sandbox, args: &[&str]) -> (i32, String) {
    let ran = sandbox.cmd([&["--json"], args].concat()).output();
    (ran.code(), failure(&ran)["kind"].as_str().unwrap().to_owned())
}

fn id(sandbox: &Sandbox, args: &[&str]) -> String {
    sandbox.run(args).trim_end().to_owned()
}

fn inbox(sandbox: &Sandbox) -> Vec<String> {
    names(&sandbox.agent("ada").join("inbox"))
}

#[test]
fn a_blank_message_is_admitted_only_where_that_is_meant() {
    let sandbox = started("true");
    for text in ["", "  ", "\n\t"] {
        assert_eq!(refused(&sandbox, &["enqueue", "ada", text]), (4, "blank_message".to_owned()));
        assert_eq!(refused(&sandbox, &["ask", "ada", text]), (4, "blank_message".to_owned()));
    }
    let batch = |line: &str, more: &[&'static str]| {
        sandbox.cmd([&["enqueue", "ada", "--batch"], more].concat()).stdin(line.to_owned()).output()
    };
    assert_eq!(batch("{\"text\": \" \"}", &[]).code(), 4);
    assert_eq!(inbox(&sandbox), Vec::<String>::new());
    assert_eq!(batch("{\"text\": \" \"}", &["--allow-empty"]).code(), 0);
    assert_eq!(batch("{\"text\": \" \", \"allow_empty\": true}", &[]).code(), 0);
    sandbox.run(["enqueue", "ada", "--allow-empty", ""]);
    // A hint and a timer may say nothing: that they come is what they say.
    sandbox.run(["wake", "ada"]);
    sandbox.run(["timer", "add", "-a", "ada", "--in", "1h"]);
    assert_eq!(inbox(&sandbox).len(), 4);
    sandbox.cmd(["ask", "ada", "--allow-empty", ""]).exits(0);
}

#[test]
fn a_blank_file_is_rejected_unless_it_says_that_it_is_meant() {
    let sandbox = started("true");
    let inbox = sandbox.agent("ada").join("inbox");
    // What is evidence and says nothing is taken note of.
    extend_policy(&sandbox, "ada", "[inbox]\ndrops_as = \"operator\"\n");
    fs::write(inbox.join("a.json"), "{\"text\": \"\"}").unwrap();
    fs::write(inbox.join("b.json"), "{\"text\": \"\", \"allow_empty\": true}").unwrap();
    sandbox.cmd(["tick", "ada", "--until-idle"]).output();
    assert_eq!(names(&inbox.join("rejected")), ["a.json", "a.json.reason"]);
    assert_eq!(field(&sandbox, "last_turn.terminal"), "completed");
}

#[test]
fn a_moment_that_is_past_is_taken_only_where_that_is_meant() {
    let sandbox = started("true");
    let past = ["--at", "2020-01-01T00:00:00Z"];
    for args in [
        &["enqueue", "ada", "x"][..],
        &["timer", "add", "-a", "ada", "x"],
        &["wait", "-a", "ada", "--on", "timer", "--reason", "r"],
    ] {
        let args = [args, &past].concat();
        assert_eq!(refused(&sandbox, &args), (4, "past".to_owned()), "{args:?}");
        sandbox.run([args.as_slice(), &["--past-ok"]].concat());
    }
    assert_eq!(sandbox.cmd(["enqueue", "ada", "x", "--past-ok"]).output().code(), 2);
}

#[test]
fn an_agent_that_runs_nothing_is_named_to_whoever_speaks_to_it() {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "ada", "--", "true"]);
    let told = |how: &str| format!("dormouse: ada {how}: it takes this up after `dormouse start ada`\n");
    let ran = sandbox.cmd(["enqueue", "ada", "x"]).output();
    assert_eq!((ran.code(), ran.stderr), (0, told("was never started")));
    sandbox.run(["start", "ada"]);
    assert_eq!(sandbox.cmd(["enqueue", "ada", "x"]).output().stderr, "");
    sandbox.run(["stop", "ada"]);
    let ran =
        sandbox.cmd(["enqueue", "ada", "--batch"]).stdin("{\"text\": \"y\"}\n{\"text\": \"z\"}").output();
    assert_eq!((ran.code(), ran.stderr), (0, told("is stopped")));
}

#[test]
fn what_a_message_names_has_to_be_there() {
    let sandbox = started("true");
    let item = id(&sandbox, &["work", "add", "-a", "ada", "x"]);
    let wait = id(&sandbox, &["wait", "-a", "ada", "--whole-agent", "--on", "operator", "--reason", "r"]);
    let named = id(&sandbox, &["enqueue", "ada", "x", "--work-item", &item, "--wait", &wait]);
    let record = sandbox.json(["queue", "show", &named]);
    assert_eq!((&record["work_item_id"], &record["wait_id"]), (&json!(item), &json!(wait)));
    sandbox.run(["work", "complete", &item]);
    sandbox.run(["wait", "cancel", &wait]);
    for args in [
        ["enqueue", "ada", "x", "--work-item", &item].as_slice(),
        &["enqueue", "ada", "x", "--wait", &wait],
        &["ask", "ada", "x", "--wait", &wait],
        &["wake", "ada", "--wait", &wait],
    ] {
        assert_eq!(refused(&sandbox, args), (3, "no_record".to_owned()), "{args:?}");
    }
    let bad = format!("{{\"text\": \"1\"}}\n{{\"text\": \"2\", \"wait_id\": \"{wait}\"}}");
    sandbox
        .cmd(["enqueue", "ada", "--batch"])
        .stdin(bad)
        .status(4)
        .complains("dormouse: line 2 of the batch: no active wait `wait_#1`\nhint: nothing was admitted\n");
    let inbox = sandbox.agent("ada").join("inbox");
    fs::write(inbox.join("a.json"), format!("{{\"text\": \"x\", \"work_item_id\": \"{item}\"}}")).unwrap();
    sandbox.cmd(["tick", "ada", "--until-idle"]).output();
    assert_eq!(
        fs::read_to_string(inbox.join("rejected/a.json.reason")).unwrap(),
        format!("no open work item `{item}`\n")
    );
}

/// One of two questions is answered, by each way to name it; the other stays open.
#[test]
fn an_answer_that_names_its_question_leaves_the_other_open() {
    for way in ["flag", "batch", "file"] {
        let sandbox = started("true");
        let ask = |why: &str| {
            id(&sandbox, &["wait", "-a", "ada", "--whole-agent", "--on", "operator", "--reason", why])
        };
        let (first, second) = (ask("which colour?"), ask("how large?"));
        extend_policy(&sandbox, "ada", "\n[inbox]\ndrops_as = \"operator\"\n");
        let line = json!({ "text": "red", "wait_id": second }).to_string();
        match way {
            "flag" => drop(sandbox.run(["enqueue", "ada", "red", "--wait", &second])),
            "batch" => drop(sandbox.cmd(["enqueue", "ada", "--batch"]).stdin(line).output()),
            _ => fs::write(sandbox.agent("ada").join("inbox/answer.json"), line).unwrap(),
        }
        assert_eq!(step(&sandbox)["continuation"]["resolves"], json!([second]), "{way}");
        let left = sandbox.json_lines(["wait", "list", "-a", "ada"]);
        assert_eq!(left.iter().map(|wait| wait["id"].clone()).collect::<Vec<_>>(), [json!(first)], "{way}");
    }
}

#[test]
fn an_error_of_a_limit_names_it_its_value_and_what_came() {
    let sandbox = started_with(
        "head -c 4194305 /dev/zero > \"$DORMOUSE_OUTCOME\"",
        "\n[limits]\nmax_message = \"1 KiB\"\n",
    );
    let file = |name: &str, bytes: usize| fs::write(sandbox.project().join(name), "x".repeat(bytes)).unwrap();
    file("plan", (1 << 20) + 7);
    file("text", 2000);
    let item = id(&sandbox, &["work", "add", "-a", "ada", "x"]);
    for (args, said) in [
        (&["work", "plan", &item, "@plan"][..], "the plan has 1048583 bytes, more than max_plan = 1 MiB"),
        (
            &["work", "update", &item, "--plan", "@plan"],
            "the plan has 1048583 bytes, more than max_plan = 1 MiB",
        ),
        (
            &["work", "add", "-a", "ada", "y", "--plan", "@plan"],
            "the plan has 1048583 bytes, more than max_plan = 1 MiB",
        ),
        (&["enqueue", "ada", "@text"], "the body has 2000 bytes, more than limits.max_message = 1 KiB"),
        (&["wake", "ada", "@text"], "the hint has 2000 bytes, more than limits.max_message = 1 KiB"),
        (
            &["timer", "add", "-a", "ada", "--in", "1h", "@text"],
            "the text has 2000 bytes, more than limits.max_message = 1 KiB",
        ),
    ] {
        let ran = sandbox.cmd([&["--json"], args].concat()).output();
        assert_eq!((ran.code(), failure(&ran)["message"].as_str()), (4, Some(said)), "{args:?}");
    }
    let ran = sandbox.cmd(["--json", "enqueue", "ada", "--batch"]).stdin("x".repeat(80_000)).output();
    assert_eq!(
        failure(&ran)["message"],
        "line 1 of the batch: it has at least 67585 bytes, more than limits.max_message = 1 KiB"
    );
    say(&sandbox, "go");
    let failed = step(&sandbox)["terminal_reason"].to_string();
    assert!(failed.contains("it has 4194305 bytes, more than limits.max_outcome = 4 MiB"), "{failed}");
}

#[test]
fn an_error_says_which_agent_and_which_states_as_fields() {
    let sandbox = started("true");
    let error = |args: &[&str]| failure(&sandbox.cmd([&["--json"], args].concat()).output());
    step_on(&sandbox, "x");
    let moved = error(&["fail", "ada", "--reason", "r"]);
    assert_eq!(
        (&moved["kind"], &moved["from"], &moved["to"]),
        (&json!("invalid_state_transition"), &json!("completed"), &json!("failed"))
    );
    assert_eq!(moved["agent"], "ada");
    assert_eq!(error(&["enqueue", "ada", ""])["agent"], "ada");
    assert_eq!(error(&["enqueue", "bob", "x"])["agent"], "bob");
    assert_eq!(error(&["-q", "wait", "-a", "ada", "--on", "timer", "--reason", "r"])["agent"], "ada");
}
