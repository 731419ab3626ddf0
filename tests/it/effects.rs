//! Tests that all records of an outcome can be committed and read again, or else the turn fails: no
//! outcome prevents the next step of its agent.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{add, edit_policy, extend_policy, names, words};
use crate::sharing::{OWNER, mode, unshared};

/// Makes agents `a`, whose turns use `home/said` as outcome, and `b`.
fn speaking() -> Sandbox {
    let sandbox = Sandbox::new();
    add(&sandbox, "a", "cat > /dev/null; cp \"$HOME/said\" \"$DORMOUSE_OUTCOME\"");
    extend_policy(&sandbox, "a", "\n[recovery]\nmax_attempts = 1\n");
    add(&sandbox, "b", "true");
    sandbox
}

/// Number of messages in the queue of `b`.
fn waiting(sandbox: &Sandbox) -> usize {
    sandbox.json_lines(["queue", "list", "-a", "b"]).iter().filter(|line| line["id"].is_string()).count()
}

/// Makes an outcome with these actions, and enqueues a message for `a`.
fn says(sandbox: &Sandbox, actions: &Value) {
    fs::write(sandbox.home().join("said"), json!({ "actions": actions }).to_string()).unwrap();
    sandbox.run(["enqueue", "a", "go"]);
}

/// Makes a JSON body of about this many bytes, which takes many times as many if pretty-printed.
fn nested(bytes: usize) -> Value {
    let mut body = json!(vec![0; bytes / 2]);
    for _ in 0..100 {
        body = json!([body]);
    }
    body
}

/// Asserts that every command succeeds, the next turn completes, and no file is larger than 20 MiB.
#[track_caller]
fn assert_works(sandbox: &Sandbox) {
    for args in [&["get", "a"][..], &["explain", "a"], &["doctor"], &["list"]] {
        sandbox.run(args);
    }
    says(sandbox, &json!([]));
    sandbox.pass(24 * 3600);
    sandbox.cmd(["--json", "tick", "a", "--until-idle"]).output().shows("\"terminal\":\"completed\"");
    let largest = walkdir::WalkDir::new(sandbox.agent("a")).into_iter();
    let largest = largest.map(|entry| entry.unwrap().metadata().unwrap().len()).max();
    assert!(largest < Some(20 << 20), "{largest:?}");
}

#[test]
fn messages_that_are_too_large_as_records_fail_their_turn_and_nothing_else() {
    let sandbox = speaking();
    for to in ["a", "b"] {
        says(&sandbox, &json!([{ "do": "enqueue", "agent": to, "body": nested(361 << 10) }]));
        let ran = sandbox.cmd(["tick", "a"]).exits(7);
        let limits = ["more than max_record = 8 MiB", "limits.max_effects"];
        let step = format!("{}{}", ran.stdout, ran.stderr);
        assert!(limits.iter().any(|limit| step.contains(limit)), "{to}: {ran}");
        assert_eq!(waiting(&sandbox), 0, "{to}");
        assert_works(&sandbox);
    }
    // Each message is within `limits.max_effects`, but the four messages together are not.
    let each = json!({ "do": "enqueue", "agent": "b", "body": nested(60 << 10) });
    says(&sandbox, &json!(vec![each.clone(); 4]));
    sandbox.cmd(["tick", "a"]).exits(7).shows("more than limits.max_effects = 8 MiB");
    assert_eq!(waiting(&sandbox), 0);
    assert_works(&sandbox);
    // A policy can raise `limits.max_effects` to the maximum size of a journal.
    extend_policy(&sandbox, "a", "\n[limits]\nmax_effects = \"32 MiB\"\n");
    says(&sandbox, &json!([each]));
    sandbox.run(["tick", "a"]);
    assert_eq!(waiting(&sandbox), 1);
    assert_works(&sandbox);
    edit_policy(&sandbox, "a", |text| text.replace("32 MiB", "33 MiB"));
    sandbox.cmd(["get", "a"]).exits(6).warns("limits.max_effects can't be more than 32 MiB");
}

#[test]
fn max_effects_limits_work_items_timers_waits_and_tasks_of_an_outcome() {
    let sandbox = speaking();
    extend_policy(&sandbox, "a", "\n[limits]\nmax_effects = \"1 MiB\"\n");
    let text = "\u{1}".repeat(50_000);
    for action in [
        json!({ "do": "work.add", "objective": text }),
        json!({ "do": "timer.add", "in": "1h", "text": text }),
        json!({ "do": "wait", "kind": "external", "resource": "r", "reason": text, "whole_agent": true }),
        json!({ "do": "task.start", "command": ["true", text] }),
    ] {
        says(&sandbox, &json!(vec![action.clone(); 4]));
        sandbox.cmd(["tick", "a"]).exits(7).shows("more than limits.max_effects");
        assert_works(&sandbox);
    }
    // A record that an outcome changes many times is written once.
    let item = sandbox.run(["work", "add", "one", "-a", "a"]).trim().to_owned();
    let update = json!({ "do": "work.update", "id": item, "objective": "x".repeat(100_000) });
    says(&sandbox, &json!(vec![update; 30]));
    assert_eq!(sandbox.json(["tick", "a"])["terminal"], "completed");
    assert_works(&sandbox);
}

/// The outcome names an agent whose records the tick may not read, so its settlement fails.
#[test]
fn a_settlement_that_fails_ends_its_run() {
    let Some(owned) = unshared(OWNER) else { return };
    owned.owner(&["init"]);
    let turn = r#"echo '{"actions": [{"do": "enqueue", "agent": "b", "text": "x"}]}' > $DORMOUSE_OUTCOME"#;
    owned.owner(&["create", "a", "--", "sh", "-c", turn]);
    owned.set("[recovery]\nmax_attempts = 1\n");
    owned.owner(&["create", "b", "--", "true"]);
    owned.owner(&["start", "a"]);
    owned.owner(&["start", "b"]);
    let identity = owned.state().join("agents/b/identity.json");
    for closed in [identity.clone(), owned.state().join("agents/b")] {
        owned.owner(&["enqueue", "a", "go"]);
        let before = fs::metadata(&closed).unwrap().permissions().mode() & 0o7777;
        mode(&closed, 0);
        owned.dormouse(OWNER, &["--json", "tick", "a"]).exits(7).shows("permission denied");
        let found = owned.owner(&["get", "a"]);
        assert_eq!(found.get("current_run"), None, "{found}");
        mode(&closed, before);
        owned.owner(&["recover", "a"]);
    }
    owned.owner(&["enqueue", "a", "go"]);
    owned.owner(&["tick", "a"]);
    assert_eq!(owned.owner(&["list"])["pending"], 1);
    chown(&identity, Some(OWNER), Some(OWNER)).unwrap();
    assert!(Path::new(&identity).exists());
}

/// Each command writes the largest record that its limit allows, and every reader reads all.
#[test]
fn every_record_at_its_limit_can_be_read() {
    let sandbox = speaking();
    let limits = "max_message = \"64 MiB\"\nmax_effects = \"32 MiB\"\nmax_outcome = \"8 MiB\"\n";
    extend_policy(&sandbox, "a", &format!("\n[limits]\n{limits}"));
    let most = (8 << 20) - 4096;
    let said = |args: &[&str], bytes: usize| {
        // The character U+0001 takes one byte, and six in JSON.
        let text = "\u{1}".repeat(bytes / 6);
        sandbox.cmd(args).stdin(text).exits(0).stdout.trim().to_owned()
    };
    let message = said(&["enqueue", "a", "-"], most);
    said(&["timer", "add", "-a", "a", "--in", "1h", "-"], most - 4096);
    let item = sandbox.run(["work", "add", "one", "-a", "a"]).trim().to_owned();
    sandbox.cmd(["work", "update", &item, "--plan", "-"]).stdin(vec![b'x'; 1 << 20]).exits(0);
    // The lock of `b` is taken, so the messages of this outcome stay in the outbox.
    let lock = fs::File::create(sandbox.agent("b").join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let outcome = json!({
        "brief": "x".repeat((1 << 20) - 16),
        "actions": [
            { "do": "work.add", "objective": "x".repeat(1 << 20) },
            { "do": "timer.add", "in": "1h", "text": "x".repeat(1 << 20) },
            { "do": "enqueue", "agent": "b", "body": nested(75 << 10) },
            { "do": "enqueue", "body": nested(75 << 10) },
        ],
    });
    fs::write(sandbox.home().join("said"), outcome.to_string()).unwrap();
    let step = sandbox.cmd(["--json", "tick", "a", "--lock-timeout", "0s"]).output();
    assert!(step.code() == 0 && step.stdout.contains("\"terminal\":\"completed\""), "{}", &step.stderr);
    assert_eq!(names(&sandbox.agent("a").join("outbox")).len(), 1);
    let readers = format!(
        "get a; list; explain a; queue list -a a; queue show {message}; work list -a a; work show {item}; \
         timer list -a a; briefs a; events a; doctor a"
    );
    for line in readers.split("; ") {
        sandbox.cmd(words(line)).exits(0);
    }
    drop(lock);
    says(&sandbox, &json!([]));
    sandbox.cmd(["tick", "a", "--until-idle"]).output();
    assert_eq!(names(&sandbox.agent("a").join("outbox")).len(), 0);
    assert_eq!(waiting(&sandbox), 1);
    let exported = sandbox.home().join("a.tar");
    sandbox.run(["export", "a", "--output", exported.to_str().unwrap()]);
    sandbox.run(["import", exported.to_str().unwrap(), "--as", "c"]);
    sandbox.run(["doctor"]);
}
