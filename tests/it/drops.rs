//! Files that another program renames into an inbox.

use std::fs;

use serde_json::{Value, json};

use crate::harness::Sandbox;
#[cfg(target_os = "linux")]
use crate::held::Held;
use crate::setup::{extend_policy, names};
#[cfg(target_os = "linux")]
use crate::strace::{Call, record};

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

/// A file says nothing of who wrote it, and claims nothing.
#[test]
fn a_dropped_file_is_evidence_unless_the_owner_says_otherwise() {
    let sandbox = sandbox().with_real_clock();
    let origin = |name: &str, text: &str| {
        drop(&sandbox, name, text);
        let step = sandbox.json(["tick", "a"]);
        let found = sandbox.json(["queue", "show", step["message_id"].as_str().unwrap()]);
        (found["origin"].clone(), found["authority_class"].clone(), found["kind"].clone())
    };
    assert_eq!(
        origin("plain", r#"{"text": "x"}"#),
        (json!({ "kind": "channel", "id": "file" }), json!("external_evidence"), json!("channel_event"))
    );
    let slack = origin("slack", r#"{"text": "x", "origin": "channel:slack"}"#);
    assert_eq!(slack.0, json!({ "kind": "channel", "id": "slack" }));
    for (claim, policy) in [
        (r#"{"text": "x", "origin": "operator"}"#, "operator"),
        (r#"{"text": "x", "kind": "operator_prompt"}"#, "operator"),
        (r#"{"text": "x", "origin": "webhook:ci"}"#, "webhook:github"),
        (r#"{"text": "x", "kind": "callback_event"}"#, "webhook:github"),
    ] {
        let sandbox = self::sandbox();
        drop(&sandbox, "claim", claim);
        let ran = sandbox.cmd(["tick", "a"]).output();
        assert!(ran.code() == 7 && ran.stderr.contains("a dropped file can't speak as"), "{claim}: {ran}");
        extend_policy(&sandbox, "a", &format!("[inbox]\ndrops_as = \"{policy}\"\n"));
        sandbox.run(["queue", "rejected", "-a", "a", "--accept", "claim"]);
        assert_eq!(sandbox.json(["tick", "a"])["terminal"], "completed", "{claim}");
    }
    extend_policy(&sandbox, "a", "[inbox]\ndrops_as = \"operator\"\n");
    let plain = origin("operator", r#"{"text": "x"}"#);
    assert_eq!((plain.0, plain.1), (json!({ "kind": "operator" }), json!("operator_instruction")));
    for word in ["system:b", "timer", "nobody"] {
        let sandbox = self::sandbox();
        extend_policy(&sandbox, "a", &format!("[inbox]\ndrops_as = \"{word}\"\n"));
        assert_eq!(sandbox.cmd(["explain", "a"]).output().code(), 6, "{word}");
    }
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
        .stdout("a  sleep (nothing to do)\n")
        .stderr("dormouse: a: message rejected junk: not a message: expected value at line 1 column 1 (it is in inbox/rejected/)\n")
        .status(7)
        .check();
    let inbox = sandbox.agent("a").join("inbox");
    assert_eq!(fs::read_to_string(inbox.join("rejected/junk")).unwrap(), "junk");
    assert!(inbox.join("rejected/junk.reason").exists() && inbox.join(".partial").exists());
}

#[test]
fn what_is_moved_aside_replaces_nothing_that_was() {
    let sandbox = sandbox();
    for junk in ["one", "two"] {
        drop(&sandbox, "junk", junk);
        assert_eq!(sandbox.cmd(["tick", "a"]).output().code(), 7);
    }
    let rejected = sandbox.agent("a").join("inbox/rejected");
    let texts = ["junk", "junk.1"].map(|name| fs::read_to_string(rejected.join(name)).unwrap());
    assert_eq!(texts, ["one", "two"]);
    assert!(rejected.join("junk.1.reason").exists());
}

/// What somebody drops while a step takes in another file of that name is a message of its own.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_replaces_one_that_is_being_taken_in_is_not_lost() {
    needs!("strace");
    let first = r#"{"text": "first"}"#;
    let recorded = sandbox();
    drop(&recorded, "status.json", first);
    let calls = record(&recorded, &["tick", "a"], "").calls;
    let is_moment = |call: &&Call| call.act() == "rename" || call.rest.contains("status.json");
    for call in calls.iter().filter(is_moment).take(12) {
        let sandbox = sandbox();
        drop(&sandbox, "status.json", first);
        let tick = Held::at(&sandbox, &["tick", "a"], "", call);
        let was_taken = !sandbox.agent("a").join("inbox/status.json").exists();
        drop(&sandbox, "status.json", r#"{"text": "second"}"#);
        assert_eq!(tick.go_on().code(), 0, "{call}");
        sandbox.run(["tick", "a", "--until-idle"]);
        let settled = settled(&sandbox).len();
        let found = crate::checker::look(&sandbox.agent("a"));
        let texts: Vec<String> =
            found.archived.values().map(|lines| lines[0]["body"]["text"].to_string()).collect();
        assert!(texts.contains(&"\"second\"".to_owned()), "{call}: {texts:?}");
        assert!(!was_taken || settled == 2, "{call}: {texts:?}");
        sandbox.run(["doctor"]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_goes_away_meanwhile_is_no_message() {
    needs!("strace");
    for args in [["tick", "a"], ["explain", "a"]] {
        let recorded = sandbox();
        drop(&recorded, "status.json", r#"{"text": "first"}"#);
        let calls = record(&recorded, &args, "").calls;
        let is_moment = |call: &&Call| {
            call.act() == "open" && ["agent.toml", "status.json"].iter().any(|name| call.rest.contains(name))
        };
        let moments: Vec<&Call> = calls.iter().filter(is_moment).take(4).collect();
        assert!(moments.len() > 1, "{moments:?}");
        for call in moments {
            let sandbox = sandbox();
            drop(&sandbox, "status.json", r#"{"text": "first"}"#);
            let held = Held::at(&sandbox, &args, "", call);
            for name in names(&sandbox.agent("a").join("inbox")) {
                fs::remove_file(sandbox.agent("a").join("inbox").join(name)).unwrap();
            }
            held.go_on().exits(0);
            sandbox.run(["doctor"]);
        }
    }
}
