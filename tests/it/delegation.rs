//! Tests delegation between a parent and its child: the handover, the result, and a stop of either.

use std::ffi::OsString;
use std::fs;

use serde_json::{Value, json};

use crate::harness::{Sandbox, dormouse, each_in_parallel};
use crate::setup::{assert_includes, edit_file, edit_policy, extend_policy, json_in, names};

/// Makes a started parent. Its turns, and those of its children, append their agent and the kind
/// and text of their message to `home/turns`.
fn boss() -> Sandbox {
    boss_that("true")
}

/// Makes a started parent whose turns, and those of its children, also run a line of shell.
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

#[track_caller]
fn assert_ended(sandbox: &Sandbox, id: &str, status: &str, reason: &str) {
    assert_includes(&task(sandbox, id), json!({ "status": status, "reason": reason }));
}

fn status_of(sandbox: &Sandbox, agent: &str) -> String {
    sandbox.run(["get", agent, "status"]).trim().to_owned()
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
    assert_eq!(kid["status"], "awake_idle");
    let identity = json!({ "kind": "child", "visibility": "private", "parent": "boss", "owner": "boss" });
    assert_includes(&kid["identity"], identity);
    let message = json!({
        "kind": "operator_prompt", "origin": { "kind": "operator", "id": "boss" },
        "body.text": "write the chapter", "causation_id": id,
    });
    assert_includes(&queue(&sandbox, "kid")[0], message);
    let boss = sandbox.json(["get", "boss"]);
    assert_eq!(boss["active_children"], json!([{ "task_id": id, "agent": "kid", "status": "awake_idle" }]));
    assert_eq!(task(&sandbox, &id)["status"], "running");
    // The parent rests until the child has completed its work; then the parent gets a message.
    assert_eq!(sandbox.json(["tick", "boss"])["decision"], "sleep");
    sandbox.run(["tick", "kid"]);
    let ended = task(&sandbox, &id);
    assert_eq!(ended["status"], "completed", "{ended}");
    let result = &queue(&sandbox, "boss")[0];
    assert_includes(result, json!({ "kind": "task_result", "body.text": "kid: completed\nkid is done" }));
    assert_eq!(sandbox.json(["tick", "boss"])["reason"], "task_result");
    assert!(sandbox.json(["get", "boss"])["active_children"].as_array().is_some_and(Vec::is_empty));
    // A second delegation goes to the existing child.
    let again = delegate(&sandbox, "and the next");
    sandbox.run(["tick", "kid"]);
    assert_eq!(task(&sandbox, &again)["status"], "completed");
    sandbox.run(["doctor"]);
}

#[test]
fn a_delegation_lasts_until_the_child_has_no_message_and_no_open_work() {
    needs!("jq");
    let sandbox = boss();
    let id = delegate(&sandbox, "first");
    sandbox.run(["enqueue", "kid", "second"]);
    sandbox.run(["work", "add", "-a", "kid", "a thing of its own"]);
    sandbox.run(["tick", "kid"]);
    assert_eq!(task(&sandbox, &id)["status"], "running", "the child has a second message");
    sandbox.run(["tick", "kid"]);
    assert_eq!(task(&sandbox, &id)["status"], "running", "the child has an open work item");
    let item = sandbox.json(["work", "list", "-a", "kid"])["id"].as_str().unwrap().to_owned();
    sandbox.run(["work", "complete", &item]);
    // The child has run no step since the item was completed: a step of the parent ends the task.
    assert_eq!(sandbox.json(["tick", "boss"])["reason"], "task_result");
    assert_eq!(task(&sandbox, &id)["status"], "completed");
}

#[test]
fn a_turn_delegates_and_waits_and_max_hops_limits_the_chain() {
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
    assert_includes(&step, json!({ "status": "awaiting_task", "terminal": "completed" }));
    assert_eq!(queue(&sandbox, "kid")[0]["hops"], 1);
    sandbox.run(["tick", "kid"]);
    let step = sandbox.json(["tick", "boss"]);
    let resumed = json!({ "continuation.class": "resume_expected_wait", "closure.outcome": "completed" });
    assert_includes(&step, resumed);
    extend_policy(&sandbox, "boss", "\n[limits]\nmax_hops = 0\n");
    sandbox.run(["enqueue", "boss", "go"]);
    let ran = sandbox.cmd(["tick", "boss", "--json"]).exits(7);
    assert!(ran.stdout.contains("$.actions[0]: this would be hop 1"), "{}", ran.stdout);
    assert!(sandbox.json_lines(["task", "list", "-a", "boss"]).is_empty());
}

#[test]
fn the_parent_gets_a_message_when_the_work_of_its_child_has_failed() {
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
    assert_eq!(sandbox.json(["stop", "boss"])["tasks"], json!([id]));
    assert_eq!(task(&sandbox, &id)["status"], "cancelled");
    assert_eq!(status_of(&sandbox, "kid"), "stopped");
    assert!(sandbox.run(["events", "kid"]).contains(&id), "no event of the child names the task");
    // `boss` must run to delegate. It stopped the child itself, so it may start the child again.
    sandbox.run(["start", "boss"]);
    let again = delegate(&sandbox, "again");
    assert_eq!(status_of(&sandbox, "kid"), "awake_idle");
    sandbox.run(["stop", "kid"]);
    assert_ended(&sandbox, &again, "cancelled", "`kid` was stopped");
    // The operator has stopped the child, so a delegation does not start it again.
    sandbox.cmd(["task", "start", "-a", "boss", "--delegate", "kid", "third"]).exits(4);
    sandbox.run(["start", "kid"]);
    let third = delegate(&sandbox, "third");
    assert_eq!(sandbox.json(["task", "stop", &third])["status"], "cancelled");
    assert_eq!(status_of(&sandbox, "kid"), "stopped");
    let results = queue(&sandbox, "boss");
    assert_eq!(results.len(), 3, "each ended task is one message: {results:?}");
    sandbox.run(["doctor"]);
}

#[test]
fn a_stop_ends_fifty_generations_and_a_step_of_the_last_one_the_others() {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "kid-0", "--shell", "true"]);
    sandbox.run(["start", "kid-0"]);
    let kids: Vec<String> = (0..=51).map(|number| format!("kid-{number}")).collect();
    for pair in kids.windows(2) {
        sandbox.run(["task", "start", "-a", &pair[0], "--delegate", &pair[1], "work"]);
    }
    sandbox.cmd(["stop", "kid-0"]).exits(1).warns("of `kid-50` goes on");
    assert!(kids[..=50].iter().all(|kid| status_of(&sandbox, kid) == "stopped"));
    assert_eq!(status_of(&sandbox, "kid-51"), "awake_idle");
    sandbox.run(["tick", "kid-50"]);
    assert_eq!(status_of(&sandbox, "kid-51"), "stopped");
    for kid in &kids[..=50] {
        assert!(sandbox.json_lines(["task", "list", "-a", kid]).is_empty(), "{kid}");
    }
    sandbox.run(["doctor"]);
}

#[test]
fn a_turn_of_the_child_can_not_stop_the_parent() {
    needs!("jq");
    let sandbox = boss_that(r#"test "$DORMOUSE_AGENT" = boss || dormouse stop boss 2> "$HOME/said""#);
    delegate(&sandbox, "mutiny");
    sandbox.cmd(["tick", "kid"]).output();
    let said = fs::read_to_string(sandbox.home().join("said")).unwrap();
    assert!(said.contains("this is a turn of a child of `boss` itself"), "{said}");
    assert_eq!(status_of(&sandbox, "boss"), "awake_idle");
}

#[test]
fn a_delegation_ends_with_its_timeout_or_when_its_child_is_deleted() {
    needs!("jq");
    let sandbox = boss();
    let id = sandbox.run(["task", "start", "-a", "boss", "--delegate", "kid", "--timeout", "1h", "slow"]);
    let id = id.trim();
    sandbox.run(["tick", "boss"]);
    let due = sandbox.run(["next-wake", "boss"]);
    assert!(due.starts_with("2026-01-02T04:04"), "{due}");
    sandbox.pass(3600);
    assert_eq!(sandbox.json(["tick", "boss"])["reason"], "task_result");
    assert_ended(&sandbox, id, "failed", "timed out after 1h");
    assert_eq!(status_of(&sandbox, "kid"), "stopped");
    let id = delegate(&sandbox, "gone soon");
    fs::remove_dir_all(sandbox.agent("kid")).unwrap();
    sandbox.run(["tick", "boss"]);
    assert_ended(&sandbox, &id, "interrupted", "`kid` is gone");
}

#[test]
fn a_refused_delegation_changes_nothing() {
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
    fs::write(sandbox.project().join("bad.toml"), "[turn]\ncommand = 3\n").unwrap();
    refused(&["--delegate", "kid", "--from", "bad.toml", "x"], "damaged", 6);
    refused(&["--delegate", "kid", "--from", "/dev/zero", "x"], "damaged", 6);
    assert!(!sandbox.agent("kid").exists());
    let id = delegate(&sandbox, "one");
    refused(&["--delegate", "kid", "two"], "child_busy", 4);
    assert_eq!(task(&sandbox, &id)["status"], "running");
}

#[test]
fn a_child_completes_its_work_although_the_records_of_its_parent_are_damaged() {
    needs!("jq");
    let sandbox = boss();
    let id = delegate(&sandbox, "work");
    let path = sandbox.agent("boss").join("state.json");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, "{").unwrap();
    sandbox.cmd(["tick", "kid"]).exits(0).warns("its parent does not know it yet");
    fs::write(&path, whole).unwrap();
    sandbox.run(["tick", "boss"]);
    assert_eq!(task(&sandbox, &id)["status"], "completed");
}

/// A command was killed after it had committed the parent's records: either before these recorded
/// that the child has its message, or before the child was created.
#[test]
fn the_next_step_finishes_an_interrupted_handover_once() {
    needs!("jq");
    let sandbox = boss();
    let id = delegate(&sandbox, "once");
    let path = sandbox.agent("boss").join(format!("tasks/{id}.json"));
    // First case: the child has its message, and the parent has not recorded the handover.
    let mut record = json_in(&path);
    let listed = queue(&sandbox, "kid");
    let inbox = sandbox.agent("kid").join("inbox");
    let message = json_in(inbox.join(&names(&inbox)[0]));
    record["status"] = json!("queued");
    record["job"]["assignment"] = json!({ "policy": "[turn]\ncommand = [\"true\"]\n", "message": message });
    fs::write(&path, record.to_string()).unwrap();
    sandbox.run(["tick", "boss"]);
    assert_eq!(task(&sandbox, &id)["status"], "running");
    assert_eq!(listed.len(), 1);
    assert_eq!(queue(&sandbox, "kid"), listed);
    // Second case: the parent has committed the task, and the child was never created.
    fs::write(&path, record.to_string()).unwrap();
    fs::remove_dir_all(sandbox.agent("kid")).unwrap();
    sandbox.run(["tick", "boss"]);
    assert_eq!(task(&sandbox, &id)["status"], "running");
    assert_eq!(queue(&sandbox, "kid").len(), 1);
    sandbox.run(["tick", "kid"]);
    assert_eq!(task(&sandbox, &id)["status"], "completed");
}

/// `task start` or the child's tick is killed. The child gets one message, the parent one result.
#[test]
fn a_delegation_that_is_killed_anywhere_is_done_once_or_was_never_begun() {
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
        // Without `-f` strace kills only the command itself, and not its turn.
        let mut words: Vec<OsString> =
            ["-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject].map(OsString::from).to_vec();
        words.push(dormouse().into());
        words.extend(command.split(' ').map(OsString::from));
        sandbox.program("strace", words).output();
        for _ in 0..3 {
            sandbox.cmd(["tick", "boss", "--until-idle"]).output();
            if sandbox.agent("kid").exists() {
                // An interrupted turn is retried after its backoff.
                sandbox.pass(3600);
                sandbox.cmd(["tick", "kid", "--until-idle"]).output();
            }
        }
        let place = format!("{command}, {call} {at}");
        let ended = sandbox.json_lines(["task", "list", "-a", "boss", "--ended"]);
        let results = sandbox.json_lines(["run", "list", "-a", "boss"]).len();
        assert_eq!(sandbox.run(["task", "list", "-a", "boss"]), "", "{place}: still open");
        assert!(ended.len() <= 1 && results == ended.len(), "{place}: {ended:?}, {results} results");
        assert!(ended.iter().all(|task| task["status"] == "completed"), "{place}: {ended:?}");
        assert!(ended.len() == 1 || command.starts_with("task"), "{place}: nothing ended");
        if !ended.is_empty() {
            let settled = sandbox.json_lines(["events", "kid", "--kind", "message_settled"]);
            assert_eq!(settled.len(), 1, "{place}: {settled:?}");
        }
        sandbox.run(["doctor"]);
    });
}

/// Asserts that the child's message was dropped because its task was cancelled.
#[track_caller]
fn assert_cancelled(sandbox: &Sandbox, id: &str) {
    let message = task(sandbox, id)["job"]["message_id"].as_str().unwrap().to_owned();
    let expected = json!({ "status": "dropped", "settlement.reason": "delegation_cancelled" });
    assert_includes(&sandbox.json(["queue", "show", &message]), expected);
}

#[test]
fn a_cancelled_delegation_is_not_done_later() {
    needs!("jq");
    for how in ["task stop", "stop boss", "timeout", "task stop after a dry run of the child"] {
        let sandbox = boss();
        let args: &[&str] = if how == "timeout" { &["--timeout", "1m"] } else { &[] };
        let line = [&["task", "start", "-a", "boss"], args, &["--delegate", "kid", "work"]].concat();
        let id = sandbox.run(line).trim().to_owned();
        match how {
            "task stop" => drop(sandbox.run(["task", "stop", &id])),
            "stop boss" => drop(sandbox.run(["stop", "boss"])),
            "timeout" => {
                sandbox.pass(120);
                sandbox.run(["tick", "boss"]);
            }
            _ => {
                sandbox.run(["tick", "kid", "--dry-run"]);
                sandbox.run(["task", "stop", &id]);
            }
        }
        assert_cancelled(&sandbox, &id);
        sandbox.cmd(["start", "--all"]).output();
        for _ in 0..3 {
            sandbox.run(["tick", "--all"]);
        }
        let turns = fs::read_to_string(sandbox.home().join("turns")).unwrap_or_default();
        assert!(!turns.lines().any(|line| line.starts_with("kid ")), "{how}: {turns}");
        let kid = sandbox.json(["get", "kid"]);
        assert!(kid.get("attention").is_none(), "a cancelled delegation needs no attention: {kid}");
        sandbox.run(["doctor"]);
    }
}

#[test]
fn a_cancelled_delegation_whose_first_attempt_has_failed_is_not_retried() {
    needs!("jq");
    let sandbox = boss_that(r#"test "$DORMOUSE_AGENT" = boss"#);
    let id = delegate(&sandbox, "work");
    edit_policy(&sandbox, "kid", |text| text.replace("is done\"", "is done\"; exit 1"));
    sandbox.cmd(["tick", "kid"]).output();
    assert_eq!(queue(&sandbox, "kid")[0]["attempt"], 2);
    sandbox.run(["task", "stop", &id]);
    assert_cancelled(&sandbox, &id);
    sandbox.run(["start", "kid"]);
    sandbox.pass(3600);
    assert_eq!(queue(&sandbox, "kid"), Vec::<Value>::new());
}

/// A command was killed after it had marked the task as cancelling and before it stopped the child.
#[test]
fn the_next_step_of_the_parent_finishes_an_interrupted_cancellation() {
    needs!("jq");
    let sandbox = boss();
    let id = delegate(&sandbox, "work");
    let path = sandbox.agent("boss").join(format!("tasks/{id}.json"));
    edit_file(&path, |record| record.replace("\"running\"", "\"cancelling\""));
    sandbox.run(["tick", "boss"]);
    assert_eq!(task(&sandbox, &id)["status"], "cancelled");
    assert_cancelled(&sandbox, &id);
}
