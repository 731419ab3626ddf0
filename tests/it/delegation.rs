//! Delegation between a parent and its child: what the parent hands over, what comes back, and what a stop of
//! either means.

#[cfg(target_os = "linux")]
use std::ffi::OsString;

use predicates::str::contains;
use serde_json::{Value, json};

use crate::harness::each_in_parallel;
use crate::harness::{Sandbox, dormouse};
#[cfg(target_os = "linux")]
use crate::setup::{assert_includes, edit_policy, extend_policy};

/// A started parent whose turns append what they were told to `home/turns`; its children do the same.
fn boss() -> Sandbox {
    boss_that("true")
}

fn boss_that(turn: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    let turn = turn.replace("dormouse", &dormouse().to_string_lossy());
    let script = format!(
        r#"echo "$DORMOUSE_AGENT $(jq -c '[.message.kind, .message.body.text]' "$DORMOUSE_CONTEXT")" >> "$HOME/turns"
        {turn}
        echo "$DORMOUSE_AGENT is done""#
    );
    sandbox.run(["create", "boss", "--shell", &script]);
    sandbox.run(["start", "boss"]);
    sandbox
}

fn delegate(sandbox: &Sandbox, text: &str) -> String {
    sandbox.run(["task", "start", "-a", "boss", "--delegate", "kid", text]).trim().to_owned()
}

fn task(sandbox: &Sandbox, id: &str) -> Value {
    sandbox.json(["task", "status", id])
}

fn queue(sandbox: &Sandbox, agent: &str) -> Vec<Value> {
    sandbox.json_lines(["queue", "list", "-a", agent])
}

#[test]
fn a_child_is_made_does_its_work_and_its_last_brief_is_the_result() {
    needs!("jq");
    let sandbox = boss();
    let id = delegate(&sandbox, "write the chapter");
    let kid = sandbox.json(["get", "kid"]);
    let identity = &kid["identity"];
    assert_eq!(
        (identity["kind"].as_str(), identity["visibility"].as_str(), identity["parent"].as_str()),
        (Some("child"), Some("private"), Some("boss"))
    );
    assert_eq!((kid["status"].as_str(), identity["owner"].as_str()), (Some("awake_idle"), Some("boss")));
    let message = &queue(&sandbox, "kid")[0];
    assert_eq!(message["kind"], "operator_prompt");
    assert_eq!(message["origin"], json!({ "kind": "operator", "id": "boss" }));
    assert_eq!(
        (message["body"]["text"].as_str(), message["causation_id"].as_str()),
        (Some("write the chapter"), Some(&*id))
    );
    let boss = sandbox.json(["get", "boss"]);
    assert_eq!(boss["active_children"], json!([{ "task_id": id, "agent": "kid", "status": "awake_idle" }]));
    assert_eq!(task(&sandbox, &id)["status"], "running");
    // The parent has nothing to do until the child has done its work, and then it is told at once.
    assert_eq!(sandbox.json(["tick", "boss"])["decision"], "sleep");
    sandbox.run(["tick", "kid"]);
    let ended = task(&sandbox, &id);
    assert_eq!(ended["status"], "completed", "{ended}");
    let result = &queue(&sandbox, "boss")[0];
    assert_includes(result, json!({ "kind": "task_result", "body.text": "kid: completed\nkid is done" }));
    assert_eq!(sandbox.json(["tick", "boss"])["reason"], "task_result");
    assert!(sandbox.json(["get", "boss"])["active_children"].as_array().is_some_and(Vec::is_empty));
    // The same child again.
    let again = delegate(&sandbox, "and the next");
    sandbox.run(["tick", "kid"]);
    assert_eq!(task(&sandbox, &again)["status"], "completed");
    sandbox.run(["doctor"]);
}

#[test]
fn a_delegation_lasts_as_long_as_the_child_has_something_to_do() {
    needs!("jq");
    let sandbox = boss();
    let id = delegate(&sandbox, "first");
    sandbox.run(["enqueue", "kid", "second"]);
    sandbox.run(["work", "add", "-a", "kid", "a thing of its own"]);
    sandbox.run(["tick", "kid"]);
    assert_eq!(task(&sandbox, &id)["status"], "running", "there is a second message");
    sandbox.run(["tick", "kid"]);
    assert_eq!(task(&sandbox, &id)["status"], "running", "there is work");
    let item = sandbox.json(["work", "list", "-a", "kid"])["id"].as_str().unwrap().to_owned();
    sandbox.run(["work", "complete", &item]);
    // Nobody but the operator has touched it: the parent's own step sees it.
    assert_eq!(sandbox.json(["tick", "boss"])["reason"], "task_result");
    assert_eq!(task(&sandbox, &id)["status"], "completed");
}

#[test]
fn a_turn_delegates_and_waits_and_the_chain_has_an_end() {
    needs!("jq");
    let sandbox = boss_that(
        r#"case "$DORMOUSE_AGENT $(jq -r .message.kind "$DORMOUSE_CONTEXT")" in
           "boss operator_prompt") echo '{"actions": [
             {"do": "task.start", "delegate": "kid", "text": "help"},
             {"do": "wait", "kind": "task", "reason": "the help of the kid"}]}' > "$DORMOUSE_OUTCOME" ;;
           esac"#,
    );
    sandbox.run(["enqueue", "boss", "go"]);
    let step = sandbox.json(["tick", "boss"]);
    assert_eq!(
        (step["status"].as_str(), step["terminal"].as_str()),
        (Some("awaiting_task"), Some("completed")),
        "{step}"
    );
    assert_eq!(queue(&sandbox, "kid")[0]["hops"], 1);
    sandbox.run(["tick", "kid"]);
    let step = sandbox.json(["tick", "boss"]);
    assert_eq!(step["continuation"]["class"], "resume_expected_wait", "{step}");
    assert_eq!(step["closure"]["outcome"], "completed");
    extend_policy(&sandbox, "boss", "\n[limits]\nmax_hops = 0\n");
    sandbox.run(["enqueue", "boss", "go"]);
    let ran = sandbox.cmd(["tick", "boss", "--json"]).exits(7);
    assert!(ran.stdout.contains("$.actions[0]: this would be hop 1"), "{}", ran.stdout);
    assert!(sandbox.json_lines(["task", "list", "-a", "boss"]).is_empty());
}

#[test]
fn what_a_child_can_not_do_its_parent_hears_of() {
    needs!("jq");
    let sandbox = boss_that(r#"test "$DORMOUSE_AGENT" = boss || exit 1"#);
    extend_policy(&sandbox, "boss", "\n[recovery]\nmax_attempts = 1\n");
    let id = delegate(&sandbox, "impossible");
    sandbox.cmd(["tick", "kid"]).output();
    let ended = task(&sandbox, &id);
    assert_eq!(ended["status"], "failed", "{ended}");
    assert!(ended["reason"].as_str().is_some_and(|why| why.starts_with("`kid` gave it up: ")), "{ended}");
    assert_eq!(queue(&sandbox, "boss")[0]["task_status"], "failed");
}

#[test]
fn a_stop_of_the_parent_stops_the_child_and_a_stop_of_the_child_ends_the_task() {
    needs!("jq");
    let sandbox = boss();
    let id = delegate(&sandbox, "long");
    let stopped = sandbox.json(["stop", "boss"]);
    assert_eq!(stopped["tasks"], json!([id]));
    assert_eq!(task(&sandbox, &id)["status"], "cancelled");
    assert_eq!(sandbox.run(["get", "kid", "status"]).trim(), "stopped");
    assert!(sandbox.run(["events", "kid"]).contains(&id), "it says who stopped it");
    // The parent has stopped it: a new delegation starts it again.
    sandbox.run(["start", "boss"]);
    let again = delegate(&sandbox, "again");
    assert_eq!(sandbox.run(["get", "kid", "status"]).trim(), "awake_idle");
    sandbox.run(["stop", "kid"]);
    let ended = task(&sandbox, &again);
    assert_eq!(
        (ended["status"].as_str(), ended["reason"].as_str()),
        (Some("cancelled"), Some("`kid` was stopped"))
    );
    // The operator has stopped it: only the operator starts it again.
    sandbox.cmd(["task", "start", "-a", "boss", "--delegate", "kid", "third"]).exits(4);
    sandbox.run(["start", "kid"]);
    // By name.
    let third = delegate(&sandbox, "third");
    assert_eq!(sandbox.json(["task", "stop", &third])["status"], "cancelled");
    assert_eq!(sandbox.run(["get", "kid", "status"]).trim(), "stopped");
    let results = queue(&sandbox, "boss");
    assert_eq!(results.len(), 3, "each end is one message: {results:?}");
    sandbox.run(["doctor"]);
}

#[test]
fn nobody_stops_the_parent_from_inside_the_child() {
    needs!("jq");
    let sandbox = boss_that(r#"test "$DORMOUSE_AGENT" = boss || dormouse stop boss 2> "$HOME/said""#);
    delegate(&sandbox, "mutiny");
    sandbox.cmd(["tick", "kid"]).output();
    let said = std::fs::read_to_string(sandbox.home().join("said")).unwrap();
    assert!(said.contains("this is a turn of a child of `boss` itself"), "{said}");
    assert_eq!(sandbox.run(["get", "boss", "status"]).trim(), "awake_idle");
}

#[test]
fn time_limits_and_children_that_are_gone() {
    needs!("jq");
    let sandbox = boss();
    let id = sandbox.run(["task", "start", "-a", "boss", "--delegate", "kid", "--timeout", "1h", "slow"]);
    let id = id.trim();
    sandbox.run(["tick", "boss"]);
    let due = sandbox.run(["next-wake", "boss"]);
    assert!(due.starts_with("2026-01-02T04:04"), "{due}");
    sandbox.pass(3600);
    assert_eq!(sandbox.json(["tick", "boss"])["reason"], "task_result");
    let ended = task(&sandbox, id);
    assert_eq!(
        (ended["status"].as_str(), ended["reason"].as_str()),
        (Some("failed"), Some("timed out after 1h"))
    );
    assert_eq!(sandbox.run(["get", "kid", "status"]).trim(), "stopped");
    let id = delegate(&sandbox, "gone soon");
    std::fs::remove_dir_all(sandbox.agent("kid")).unwrap();
    sandbox.run(["tick", "boss"]);
    let ended = task(&sandbox, &id);
    assert_eq!(
        (ended["status"].as_str(), ended["reason"].as_str()),
        (Some("interrupted"), Some("`kid` is gone"))
    );
}

#[test]
fn a_delegation_that_can_not_be_is_refused_and_changes_nothing() {
    needs!("jq");
    let sandbox = boss();
    sandbox.run(["create", "other", "--", "true"]);
    let refused = |args: &[&str], kind: &str, status: i32| {
        let before = sandbox.run(["get", "boss", "revision"]);
        let mut line = vec!["--json", "task", "start", "-a", "boss"];
        line.extend_from_slice(args);
        let ran = sandbox.cmd(line).exits(status);
        assert!(ran.stdout.contains(&format!("\"kind\":\"{kind}\"")), "{ran}");
        assert_eq!(sandbox.run(["get", "boss", "revision"]), before);
    };
    refused(&["--delegate", "other", "x"], "not_a_child", 4);
    refused(&["--delegate", "boss", "x"], "not_a_child", 4);
    refused(&["--delegate", "No Name", "x"], "usage", 2);
    refused(&["--delegate", "kid", "--interactive", "x"], "usage", 2);
    refused(&["--delegate", "kid", "--", "x"], "usage", 2);
    refused(&["some text"], "usage", 2);
    std::fs::write(sandbox.project().join("bad.toml"), "[turn]\ncommand = 3\n").unwrap();
    refused(&["--delegate", "kid", "--from", "bad.toml", "x"], "damaged", 6);
    refused(&["--delegate", "kid", "--from", "/dev/zero", "x"], "damaged", 6);
    assert!(!sandbox.agent("kid").exists());
    let id = delegate(&sandbox, "one");
    refused(&["--delegate", "kid", "two"], "child_busy", 4);
    assert_eq!(task(&sandbox, &id)["status"], "running");
}

#[test]
fn a_child_goes_on_beside_a_parent_that_can_not_be_read() {
    needs!("jq");
    let sandbox = boss();
    let id = delegate(&sandbox, "work");
    let path = sandbox.agent("boss").join("state.json");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, "{").unwrap();
    sandbox.cmd(["tick", "kid"]).assert().code(0).stderr(contains("its parent does not know it yet"));
    std::fs::write(&path, whole).unwrap();
    sandbox.run(["tick", "boss"]);
    assert_eq!(task(&sandbox, &id)["status"], "completed");
}

/// A kill between the commit of the parent and the child's message: the next step goes on from there.
#[test]
fn what_was_not_handed_over_is_by_the_next_step_and_once() {
    needs!("jq");
    let sandbox = boss();
    let id = delegate(&sandbox, "once");
    let path = sandbox.agent("boss").join(format!("tasks/{id}.json"));
    // As it was before: the child has its message, the parent does not know.
    let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let key = queue(&sandbox, "kid")[0].clone();
    let inbox = sandbox.agent("kid").join("inbox");
    let file = inbox.join(crate::setup::names(&inbox).remove(0));
    let message: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    record["status"] = json!("queued");
    record["job"]["assignment"] = json!({ "policy": "[turn]\ncommand = [\"true\"]\n", "message": message });
    std::fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
    sandbox.run(["tick", "boss"]);
    assert_eq!(task(&sandbox, &id)["status"], "running");
    assert_eq!(queue(&sandbox, "kid"), [key], "once");
    // As it was before that: there is no child yet.
    std::fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
    std::fs::remove_dir_all(sandbox.agent("kid")).unwrap();
    sandbox.run(["tick", "boss"]);
    assert_eq!(task(&sandbox, &id)["status"], "running");
    assert_eq!(queue(&sandbox, "kid").len(), 1);
    sandbox.run(["tick", "kid"]);
    assert_eq!(task(&sandbox, &id)["status"], "completed");
}

/// Whoever is killed, and wherever: the child is told once, and its end is told once.
#[cfg(target_os = "linux")]
#[test]
fn cut_anywhere_a_delegation_is_done_once_or_was_never_there() {
    needs!("strace", "jq");
    let calls = ["renameat", "unlinkat", "fsync", "fdatasync", "pwrite64", "mkdirat"];
    let commands = ["task start -a boss --delegate kid dig", "tick kid"];
    let mut cuts = Vec::new();
    for command in commands {
        cuts.extend(calls.iter().flat_map(|call| (1..=10).map(move |at| (command, *call, at))));
    }
    each_in_parallel(&cuts, |(command, call, at)| {
        let sandbox = boss();
        if command.starts_with("tick") {
            delegate(&sandbox, "dig");
        }
        let inject = format!("inject={call}:signal=SIGKILL:when={at}");
        let trace = format!("trace={call}");
        // Without -f: the turn itself goes on, or ends with its tick, but is not cut.
        let mut words: Vec<OsString> =
            ["-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject].map(OsString::from).to_vec();
        words.push(dormouse().into());
        words.extend(command.split(' ').map(OsString::from));
        sandbox.program("strace", words).output();
        for _ in 0..3 {
            sandbox.cmd(["tick", "boss", "--until-idle"]).output();
            if sandbox.agent("kid").exists() {
                // A turn that was cut is tried again after its backoff.
                sandbox.pass(3600);
                sandbox.cmd(["tick", "kid", "--until-idle"]).output();
            }
        }
        let ended = sandbox.json_lines(["task", "list", "-a", "boss", "--ended"]);
        let results = sandbox.json_lines(["run", "list", "-a", "boss"]).len();
        assert_eq!(sandbox.run(["task", "list", "-a", "boss"]), "", "{command}, {call} {at}: still open");
        assert!(
            ended.len() <= 1 && results == ended.len(),
            "{command}, {call} {at}: {ended:?}, {results} results"
        );
        assert!(ended.iter().all(|task| task["status"] == "completed"), "{command}, {call} {at}: {ended:?}");
        assert!(ended.len() == 1 || command.starts_with("task"), "{command}, {call} {at}: nothing ended");
        if !ended.is_empty() {
            let told = sandbox.json_lines(["events", "kid", "--kind", "message_settled"]);
            assert_eq!(told.len(), 1, "{command}, {call} {at}: {told:?}");
        }
        sandbox.run(["doctor"]);
    });
}

/// The archived end of the one message of the child.
fn end_of_the_childs_message(sandbox: &Sandbox, id: &str) -> Value {
    let message = sandbox.json(["task", "status", id])["job"]["message_id"].as_str().unwrap().to_owned();
    let shown = sandbox.json(["queue", "show", &message]);
    json!([shown["status"], shown["settlement"]["reason"]])
}

#[test]
fn a_cancelled_delegation_is_not_done_later() {
    needs!("jq");
    for how in ["task stop", "stop boss", "timeout", "child stopped before"] {
        let sandbox = boss();
        let args: &[&str] = if how == "timeout" { &["--timeout", "1m"] } else { &[] };
        let line =
            ["task", "start", "-a", "boss"].iter().chain(args).chain(&["--delegate", "kid", "work"]).copied();
        let id = sandbox.run(line.collect::<Vec<_>>()).trim().to_owned();
        match how {
            "task stop" => drop(sandbox.run(["task", "stop", &id])),
            "stop boss" => drop(sandbox.run(["stop", "boss"])),
            "timeout" => {
                sandbox.pass(120);
                sandbox.run(["tick", "boss"]);
            }
            _ => {
                // The child's stop ends the task; what it was given stays in its queue then, and is not to be done either.
                sandbox.run(["tick", "kid", "--dry-run"]);
                sandbox.run(["task", "stop", &id]);
            }
        }
        assert_eq!(
            end_of_the_childs_message(&sandbox, &id),
            json!(["dropped", "delegation_cancelled"]),
            "{how}"
        );
        sandbox.cmd(["start", "--all"]).output();
        for _ in 0..3 {
            sandbox.run(["tick", "--all"]);
        }
        let turns = std::fs::read_to_string(sandbox.home().join("turns")).unwrap_or_default();
        assert!(!turns.lines().any(|line| line.starts_with("kid ")), "{how}: {turns}");
        let kid = sandbox.json(["get", "kid"]);
        assert!(kid.get("attention").is_none(), "it is the parent's own doing: {kid}");
        sandbox.run(["doctor"]);
    }
}

/// What was begun and failed waits for its next attempt: that does not come either.
#[test]
fn a_cancelled_delegation_is_not_tried_again() {
    needs!("jq");
    let sandbox = boss_that(r#"test "$DORMOUSE_AGENT" = boss"#);
    let id = delegate(&sandbox, "work");
    edit_policy(&sandbox, "kid", |text| text.replace("is done\"", "is done\"; exit 1"));
    sandbox.cmd(["tick", "kid"]).output();
    assert_eq!(queue(&sandbox, "kid")[0]["attempt"], 2);
    sandbox.run(["task", "stop", &id]);
    assert_eq!(end_of_the_childs_message(&sandbox, &id), json!(["dropped", "delegation_cancelled"]));
    sandbox.run(["start", "kid"]);
    sandbox.pass(3600);
    assert_eq!(queue(&sandbox, "kid"), Vec::<Value>::new());
}

/// Killed when the task was marked, before the child was told: the next step of the parent does it.
#[test]
fn a_cancellation_that_was_cut_off_is_finished_by_the_next_step() {
    needs!("jq");
    let sandbox = boss();
    let id = delegate(&sandbox, "work");
    let path = sandbox.agent("boss").join("tasks").join(format!("{id}.json"));
    let record = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, record.replace("\"running\"", "\"cancelling\"")).unwrap();
    sandbox.run(["tick", "boss"]);
    assert_eq!(task(&sandbox, &id)["status"], "cancelled");
    assert_eq!(end_of_the_childs_message(&sandbox, &id), json!(["dropped", "delegation_cancelled"]));
}
