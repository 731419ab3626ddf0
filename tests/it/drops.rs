//! Tests files that other programs put into an inbox.

use std::fs;

use serde_json::{Value, json};

use crate::checker;
use crate::harness::Sandbox;
use crate::paused::Held;
use crate::setup::{add, assert_includes, extend_policy, names, texts};
use crate::strace::{Call, record};

/// Makes an agent `a` that is started and whose turns succeed.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    add(&sandbox, "a", "true");
    sandbox
}

/// Puts a file with this name and text into the inbox of `a` by a rename.
fn drop(sandbox: &Sandbox, name: &str, text: &str) {
    let aside = sandbox.project().join("aside");
    fs::write(&aside, text).unwrap();
    fs::rename(aside, sandbox.agent("a").join("inbox").join(name)).unwrap();
}

/// Returns the final statuses of all messages, in the order of their settlement.
fn settled(sandbox: &Sandbox) -> Vec<String> {
    texts(&sandbox.json_lines(["events", "a", "--kind", "message_settled"]), "data.status")
}

#[test]
fn of_dropped_files_with_one_dedupe_key_one_is_processed() {
    const ONCE: &str = r#"{"text": "once", "dedupe_key": "k"}"#;
    let sandbox = sandbox();
    drop(&sandbox, "one.json", ONCE);
    sandbox.run(["tick", "a", "--until-idle"]);
    drop(&sandbox, "two.json", ONCE);
    let foreseen = sandbox.json(["tick", "a", "--dry-run"]);
    assert_eq!(foreseen["decision"], sandbox.json(["tick", "a"])["decision"]);
    assert_eq!(settled(&sandbox), ["processed", "dropped"]);
    let again = sandbox.json(["enqueue", "a", "once", "--dedupe-key", "k"]);
    assert_includes(&again, json!({ "duplicate": true, "status": "processed" }));

    let at_once = self::sandbox();
    drop(&at_once, "one.json", ONCE);
    drop(&at_once, "two.json", ONCE);
    at_once.run(["tick", "a", "--until-idle"]);
    let mut statuses = settled(&at_once);
    statuses.sort();
    assert_eq!(statuses, ["dropped", "processed"]);
}

/// Nothing proves who wrote a dropped file, so its message counts as evidence from outside.
#[test]
fn a_dropped_file_is_evidence_unless_the_policy_sets_another_origin() {
    let sandbox = sandbox().with_real_clock();
    let message_of = |name: &str, text: &str| -> Value {
        drop(&sandbox, name, text);
        let foreseen = sandbox.json(["tick", "a", "--dry-run"]);
        assert!(sandbox.agent("a").join("inbox").join(name).exists(), "a dry run took the file");
        let step = sandbox.json(["tick", "a"]);
        assert_eq!(names(&sandbox.agent("a").join("inbox")), Vec::<String>::new());
        for field in ["decision", "reason", "message_id"] {
            assert_eq!(step[field], foreseen[field], "{name}: {field}");
        }
        sandbox.json(["queue", "show", step["message_id"].as_str().unwrap()])
    };
    let plain = json!({
        "origin": { "kind": "channel", "id": "file" },
        "authority_class": "external_evidence", "kind": "channel_event",
    });
    assert_includes(&message_of("plain", r#"{"text": "x"}"#), plain);
    let slack = message_of("slack", r#"{"text": "x", "origin": "channel:slack"}"#);
    let expected = json!({ "kind": "channel", "id": "slack" });
    assert_includes(
        &slack,
        json!({ "origin": expected, "delivery_surface": "file_drop", "status": "processed" }),
    );
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
    let operator = json!({ "origin": { "kind": "operator" }, "authority_class": "operator_instruction" });
    assert_includes(&message_of("operator", r#"{"text": "x"}"#), operator);
    for word in ["system:b", "timer", "nobody"] {
        let sandbox = self::sandbox();
        extend_policy(&sandbox, "a", &format!("[inbox]\ndrops_as = \"{word}\"\n"));
        sandbox.cmd(["explain", "a"]).exits(6);
    }
}

#[test]
fn a_rejected_file_replaces_no_earlier_one() {
    let sandbox = sandbox();
    for text in ["junk", "more junk"] {
        drop(&sandbox, "junk", text);
        sandbox.cmd(["tick", "a"]).exits(7);
    }
    let rejected = sandbox.agent("a").join("inbox/rejected");
    let texts = ["junk", "junk.1"].map(|name| fs::read_to_string(rejected.join(name)).unwrap());
    assert_eq!(texts, ["junk", "more junk"]);
    assert!(["junk.reason", "junk.1.reason"].iter().all(|name| rejected.join(name).exists()));
}

#[test]
fn a_file_that_replaces_another_during_a_step_is_not_lost() {
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
        tick.go_on().exits(0);
        sandbox.run(["tick", "a", "--until-idle"]);
        let archived: Vec<_> = checker::look(&sandbox.agent("a")).archived.into_values().collect();
        assert!(archived.iter().any(|lines| lines[0]["body"]["text"] == "second"), "{call}: {archived:?}");
        assert!(!was_taken || settled(&sandbox).len() == 2, "{call}: {archived:?}");
        sandbox.run(["doctor"]);
    }
}

#[test]
fn a_file_that_is_deleted_while_a_command_reads_the_inbox_is_no_message() {
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
