//! Files that another program renames into an inbox.

use std::fs;

use serde_json::Value;

use crate::harness::Sandbox;

/// An agent `a` that is started and whose turns succeed.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "a", "--", "true"]);
    sandbox.run(["start", "a"]);
    sandbox
}

fn drop(sandbox: &Sandbox, name: &str, text: &str) {
    let aside = sandbox.project().join("aside");
    fs::write(&aside, text).unwrap();
    fs::rename(aside, sandbox.agent("a").join("inbox").join(name)).unwrap();
}

fn settled(sandbox: &Sandbox) -> Vec<Value> {
    let events = sandbox.json_lines(["events", "a", "--kind", "message_settled"]);
    events.into_iter().map(|event| event["data"]["status"].clone()).collect()
}

/// The key of a message that has been processed drops a later file, as it would a later `enqueue`.
#[test]
fn a_dedupe_key_counts_for_dropped_files() {
    let sandbox = sandbox();
    drop(&sandbox, "one.json", r#"{"text": "once", "dedupe_key": "k"}"#);
    sandbox.run(["tick", "a", "--until-idle"]);
    drop(&sandbox, "two.json", r#"{"text": "once", "dedupe_key": "k"}"#);
    sandbox.run(["tick", "a", "--until-idle"]);
    assert_eq!(settled(&sandbox), ["processed", "dropped"]);
    let again = sandbox.json(["enqueue", "a", "once", "--dedupe-key", "k"]);
    assert_eq!((again["duplicate"].as_bool(), again["status"].as_str()), (Some(true), Some("processed")));
}

#[test]
fn two_files_of_one_key_are_one_message() {
    let sandbox = sandbox();
    drop(&sandbox, "one.json", r#"{"text": "once", "dedupe_key": "k"}"#);
    drop(&sandbox, "two.json", r#"{"text": "once", "dedupe_key": "k"}"#);
    sandbox.run(["tick", "a", "--until-idle"]);
    let mut settled: Vec<String> =
        settled(&sandbox).iter().map(|one| one.as_str().unwrap().to_owned()).collect();
    settled.sort();
    assert_eq!(settled, ["dropped", "processed"]);
}

/// A file that is no message is moved aside with the reason; hidden files are let be.
#[test]
fn what_is_no_message_is_moved_aside() {
    let sandbox = sandbox();
    drop(&sandbox, "junk", "junk");
    drop(&sandbox, ".partial", "not yet");
    sandbox
        .cmd(["tick", "a"])
        .stdout("a  sleep (no_pending_scheduler_facts)\n")
        .stderr("dormouse: a: moved inbox/junk to inbox/rejected/: not a message: expected value at line 1 column 1\n")
        .check();
    let inbox = sandbox.agent("a").join("inbox");
    assert_eq!(fs::read_to_string(inbox.join("rejected/junk")).unwrap(), "junk");
    assert!(inbox.join("rejected/junk.reason").exists() && inbox.join(".partial").exists());
}
