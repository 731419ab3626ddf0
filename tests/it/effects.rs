//! What an outcome makes can be committed and read again, or the turn has failed: nothing that a turn writes
//! keeps its agent from the next step.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{edit_policy, names};
use crate::sharing::{OWNER, mode, unshared};

/// Agents `a`, whose turns write what lies at home, and `b`.
fn speaking() -> Sandbox {
    let sandbox = Sandbox::new();
    let turn = "cat > /dev/null; cp \"$HOME/said\" \"$DORMOUSE_OUTCOME\"";
    sandbox.run(["create", "a", "--", "sh", "-c", turn]);
    edit_policy(&sandbox, "a", |text| format!("{text}\n[recovery]\nmax_attempts = 1\n"));
    sandbox.run(["create", "b", "--", "true"]);
    sandbox.run(["start", "a"]);
    sandbox.run(["start", "b"]);
    sandbox
}

/// The number of messages that wait for the other agent.
fn waiting(sandbox: &Sandbox) -> usize {
    sandbox.json_lines(["queue", "list", "-a", "b"]).iter().filter(|line| line["id"].is_string()).count()
}

fn says(sandbox: &Sandbox, actions: &Value) {
    fs::write(sandbox.home().join("said"), json!({ "actions": actions }).to_string()).unwrap();
    sandbox.run(["enqueue", "a", "go"]);
}

/// A body of about this many bytes that takes many times as many where each value has a line of its own.
fn nested(bytes: usize) -> Value {
    let mut body = json!(vec![0; bytes / 2]);
    for _ in 0..100 {
        body = json!([body]);
    }
    body
}

/// The agent is as well as before: every command works, and the next turn completes.
#[track_caller]
fn goes_on(sandbox: &Sandbox) {
    for args in [&["get", "a"][..], &["explain", "a"], &["doctor"], &["list"]] {
        sandbox.run(args);
    }
    says(sandbox, &json!([]));
    sandbox.pass(24 * 3600);
    let ran = sandbox.cmd(["--json", "tick", "a", "--until-idle"]).output();
    assert!(ran.stdout.contains("\"terminal\":\"completed\""), "{ran}");
    let largest = walkdir::WalkDir::new(sandbox.agent("a")).into_iter();
    let largest = largest.map(|entry| entry.unwrap().metadata().unwrap().len()).max();
    assert!(largest < Some(20 << 20), "{largest:?}");
}

#[test]
fn messages_that_grow_where_they_are_written_fail_their_turn_and_nothing_else() {
    let sandbox = speaking();
    for to in ["a", "b"] {
        says(&sandbox, &json!([{ "do": "enqueue", "agent": to, "body": nested(361 << 10) }]));
        let ran = sandbox.cmd(["tick", "a"]).exits(7);
        let step = format!("{}{}", ran.stdout, ran.stderr);
        assert!(
            step.contains("more than max_record = 8 MiB") || step.contains("limits.max_effects"),
            "{to}: {ran}"
        );
        // None of it was done.
        assert_eq!(waiting(&sandbox), 0, "{to}");
        goes_on(&sandbox);
    }
    // Each can be read alone, and together they are too many.
    let each = json!({ "do": "enqueue", "agent": "b", "body": nested(60 << 10) });
    says(&sandbox, &json!(vec![each.clone(); 4]));
    let ran = sandbox.cmd(["tick", "a"]).output();
    assert!(ran.code() == 7 && ran.stdout.contains("more than limits.max_effects = 8 MiB"), "{ran}");
    assert_eq!(waiting(&sandbox), 0);
    goes_on(&sandbox);
    // The limit is the agent's to raise, as far as a journal reaches.
    edit_policy(&sandbox, "a", |text| format!("{text}\n[limits]\nmax_effects = \"32 MiB\"\n"));
    says(&sandbox, &json!(vec![each; 1]));
    sandbox.run(["tick", "a"]);
    assert_eq!(waiting(&sandbox), 1);
    goes_on(&sandbox);
    edit_policy(&sandbox, "a", |text| text.replace("32 MiB", "33 MiB"));
    let ran = sandbox.cmd(["get", "a"]).output();
    assert!(ran.code() == 6 && ran.stderr.contains("limits.max_effects can't be more than 32 MiB"), "{ran}");
}

/// Work, timers and briefs grow in the same way, and so do events and lines of the archive.
#[test]
fn whatever_an_outcome_makes_is_measured() {
    let sandbox = speaking();
    edit_policy(&sandbox, "a", |text| format!("{text}\n[limits]\nmax_effects = \"1 MiB\"\n"));
    let text = "\u{1}".repeat(50_000);
    for action in [
        json!({ "do": "work.add", "objective": text }),
        json!({ "do": "timer.add", "in": "1h", "text": text }),
        json!({ "do": "wait", "kind": "external", "resource": "r", "reason": text, "whole_agent": true }),
        json!({ "do": "task.start", "command": ["true", text] }),
    ] {
        says(&sandbox, &json!(vec![action.clone(); 4]));
        let ran = sandbox.cmd(["tick", "a"]).output();
        assert!(ran.code() == 7 && ran.stdout.contains("more than limits.max_effects"), "{ran}");
        goes_on(&sandbox);
    }
    // What changes many times is written once.
    let item = sandbox.run(["work", "add", "one", "-a", "a"]).trim().to_owned();
    let update = json!({ "do": "work.update", "id": item, "objective": "x".repeat(100_000) });
    says(&sandbox, &json!(vec![update; 30]));
    assert_eq!(sandbox.json(["tick", "a"])["terminal"], "completed");
    goes_on(&sandbox);
}

/// The outcome names an agent whose records its settlement may not read: an error each time that it is tried.
#[test]
fn a_settlement_that_can_not_be_made_ends_its_run_all_the_same() {
    let Some(owned) = unshared(OWNER) else { return };
    owned.owner(&["init"]);
    let turn = "echo '{\"actions\": [{\"do\": \"enqueue\", \"agent\": \"b\", \"text\": \"x\"}]}' > $DORMOUSE_OUTCOME";
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
        let ran = owned.dormouse(OWNER, &["--json", "tick", "a"]).exits(7);
        assert!(ran.stdout.contains("permission denied"), "{ran}");
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

/// Each command writes the largest record that it may. Every reader reads all of them.
#[test]
fn every_record_at_its_limit_can_be_read() {
    let sandbox = speaking();
    edit_policy(&sandbox, "a", |text| {
        format!(
            "{text}\n[limits]\nmax_message = \"64 MiB\"\nmax_effects = \"32 MiB\"\nmax_outcome = \"8 MiB\"\n"
        )
    });
    // One byte that takes six where it is written.
    let text = |bytes: usize| "\u{1}".repeat(bytes / 6).into_bytes();
    let most = (8 << 20) - 4096;
    let said = |args: &[&str], bytes: usize| {
        let ran = sandbox.cmd(args).stdin(text(bytes)).exits(0);
        ran.stdout.trim().to_owned()
    };
    let message = said(&["enqueue", "a", "-"], most);
    said(&["timer", "add", "-a", "a", "--in", "1h", "-"], most - 4096);
    let item = sandbox.run(["work", "add", "one", "-a", "a"]).trim().to_owned();
    sandbox.cmd(["work", "update", &item, "--plan", "-"]).stdin(vec![b'x'; 1 << 20]).exits(0);
    // A turn at its limits: a brief, records, and messages that wait in the outbox.
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
    for args in [
        &["get", "a"][..],
        &["list"],
        &["explain", "a"],
        &["queue", "list", "-a", "a"],
        &["queue", "show", &message],
        &["work", "list", "-a", "a"],
        &["work", "show", &item],
        &["timer", "list", "-a", "a"],
        &["briefs", "a"],
        &["events", "a"],
        &["doctor", "a"],
    ] {
        let ran = sandbox.cmd(args).output();
        assert_eq!(ran.code(), 0, "{args:?}: {}", ran.stderr);
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
