//! Tests triggers: the callers that may create them, their deliveries, and their revocation.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::{Ran, Sandbox};
use crate::setup::{
    Beside, add, assert_includes, decisions, eventually, extend_policy, failure, git, json_in,
    make_repository, mode, names, own_name, record, started, started_with, texts, waits, words,
};
use crate::sharing;

pub fn sha256(word: &str) -> String {
    Sha256::digest(word.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Creates a trigger of `ada` and returns its id. Saves the secret in a file named after the id.
fn make(sandbox: &Sandbox, flags: &[&str]) -> String {
    let made = sandbox.json([&["trigger", "create", "-a", "ada"], flags].concat());
    let id = made["id"].as_str().unwrap().to_owned();
    fs::write(sandbox.project().join(&id), made["trigger_secret"].as_str().unwrap()).unwrap();
    id
}

/// Delivers a message or hint through a trigger that [`make`] has created.
fn deliver(sandbox: &Sandbox, id: &str, words: &[&str]) -> Ran {
    sandbox.cmd([&["--json", "trigger", "deliver", id, "--secret-file", id], words].concat()).output()
}

#[track_caller]
fn delivered(sandbox: &Sandbox, id: &str, words: &[&str]) -> Value {
    let ran = deliver(sandbox, id, words).exits(0);
    serde_json::from_str(ran.stdout.trim_end()).unwrap()
}

/// Returns the exit status and the kind of error of a command.
fn told(ran: &Ran) -> (i32, String) {
    (ran.code(), failure(ran)["kind"].as_str().unwrap_or_default().to_owned())
}

fn shown(sandbox: &Sandbox, id: &str) -> Value {
    sandbox.json(["trigger", "show", id])
}

/// Checks the recorded number of deliveries through a trigger.
#[track_caller]
fn assert_count(sandbox: &Sandbox, id: &str, count: u64) {
    assert_eq!(shown(sandbox, id)["delivery_count"], count);
}

/// Delivers a message through a trigger and returns its id.
#[track_caller]
fn delivered_message(sandbox: &Sandbox, id: &str, text: &str) -> String {
    delivered(sandbox, id, &[text])["message_id"].as_str().unwrap().to_owned()
}

fn in_inbox(sandbox: &Sandbox) -> usize {
    names(&sandbox.agent("ada").join("inbox")).iter().filter(|name| name.ends_with(".json")).count()
}

#[test]
fn a_delivery_is_an_integration_signal_with_the_id_of_its_trigger() {
    let sandbox = started("true");
    let id = make(&sandbox, &["--source", "webhook:ci", "--resource", "github:org/repo#12"]);
    let answer = delivered(&sandbox, &id, &["--body-json", "{\"state\":\"red\"}"]);
    assert_includes(&answer, json!({ "trigger_id": id, "status": "queued", "duplicate": false }));
    let message = sandbox.json(["queue", "show", answer["message_id"].as_str().unwrap()]);
    for (field, value) in [
        ("kind", json!("webhook_event")),
        ("origin", json!({ "kind": "webhook", "id": "ci" })),
        ("authority_class", json!("integration_signal")),
        ("admission_context", json!("external_trigger_capability")),
        ("delivery_surface", json!("cli")),
        ("trigger_id", json!(id)),
        ("resource", json!("github:org/repo#12")),
        ("priority", json!("normal")),
        ("body", json!({ "type": "json", "value": { "state": "red" } })),
    ] {
        assert_eq!(message[field], value, "{field}");
    }
    let expected = ["start_model_turn (webhook_event) completed", "sleep (no_pending_scheduler_facts)"];
    assert_eq!(decisions(&sandbox), expected);
}

#[test]
fn the_trigger_that_comes_with_an_agent_takes_deliveries_that_end_a_plain_wait() {
    let sandbox = Sandbox::new();
    let made = sandbox.json(["create", "ada", "--", "true"]);
    let id = made["trigger_id"].as_str().unwrap();
    fs::write(sandbox.project().join("secret"), made["trigger_secret"].as_str().unwrap()).unwrap();
    let deliver = ["trigger", "deliver", id, "--secret-file", "secret", "hello"];
    let said = sandbox.run(deliver);
    assert!(said.starts_with("msg_"), "an agent that was never started must accept deliveries: {said}");
    sandbox.run(["start", "ada"]);
    sandbox.run(["tick", "ada", "--until-idle"]);
    let wait = sandbox.run(["wait", "-a", "ada", "--on", "external", "--reason", "any news"]);
    sandbox.run(deliver);
    let step = sandbox.json(["tick", "ada"]);
    assert_eq!(step["continuation"]["class"], "resume_expected_wait", "{step}");
    assert_eq!(step["continuation"]["resolves"], json!([wait.trim_end()]));
    assert_count(&sandbox, id, 2);
}

/// Gives a trigger a blank resource, which readers of the record would refuse: the command fails.
#[test]
fn a_trigger_with_a_blank_resource_is_refused() {
    let sandbox = started("true");
    for resource in ["", " ", "\n"] {
        let ran = sandbox.cmd(["--json", "trigger", "create", "-a", "ada", "--resource", resource]).output();
        assert_eq!(told(&ran), (2, "invalid_trigger".to_owned()), "{resource:?}");
    }
    assert_eq!(sandbox.json_lines(["trigger", "list", "-a", "ada"]).len(), 1);
    sandbox.run(["doctor"]);
}

#[test]
fn a_secret_is_shown_once_and_only_its_hash_is_kept() {
    let sandbox = started("true");
    let made = sandbox.json(["trigger", "create", "-a", "ada"]);
    let (id, secret) = (made["id"].as_str().unwrap(), made["trigger_secret"].as_str().unwrap());
    let stored = record(&sandbox, format!("triggers/{id}.json"));
    assert_eq!(stored["secret_sha256"], sha256(secret).as_str());
    for command in [
        &["trigger", "list", "-a", "ada"][..],
        &["--json", "trigger", "list", "-a", "ada", "--revoked"],
        &["--json", "trigger", "show", id],
        &["--json", "get", "ada"],
        &["--json", "events", "ada", "--limit", "0"],
    ] {
        let said = sandbox.run(command.iter().copied());
        assert!(!said.contains(secret) && !said.contains(&sha256(secret)), "{command:?}: {said}");
    }
    let ran = sandbox.cmd(["trigger", "rotate", id, "--secret-file", "new"]).exits(0);
    assert_eq!(mode(&sandbox.project().join("new")), 0o600);
    assert!(ran.stdout.contains("secret  in new"), "{ran}");
    sandbox.cmd(["trigger", "create", "-a", "ada"]).output().shows("secret  not shown in a pipe");
    let taken = sandbox.cmd(["--json", "trigger", "create", "-a", "ada", "--secret-file", "new"]).output();
    assert_eq!(told(&taken), (4, "secret_file_exists".to_owned()));
    // A file with a secret must not be in the state directory.
    sandbox.cmd(["trigger", "rotate", id, "--secret-file", ".dormouse/x"]).exits(2);
}

#[test]
fn wrong_secrets_and_revoked_or_unknown_triggers_get_the_same_error() {
    let sandbox = started("true");
    let id = make(&sandbox, &[]);
    let revoked = make(&sandbox, &[]);
    sandbox.run(["trigger", "revoke", &revoked]);
    let unknown = "trig_00000000000070008000000000000000";
    fs::write(sandbox.project().join("wrong"), "0".repeat(64)).unwrap();
    fs::write(sandbox.project().join("empty"), "").unwrap();
    let hash = record(&sandbox, format!("triggers/{id}.json"))["secret_sha256"].as_str().unwrap().to_owned();
    fs::write(sandbox.project().join("hash"), hash).unwrap();
    let mut said = Vec::new();
    for (at, file) in [
        (&id, "wrong"),
        (&id, "empty"),
        (&id, "hash"),
        (&id, revoked.as_str()),
        (&revoked, revoked.as_str()),
        (&revoked, "wrong"),
        (&unknown.to_owned(), id.as_str()),
    ] {
        let ran = sandbox.cmd(["--json", "trigger", "deliver", at, "--secret-file", file, "hello"]).output();
        let error = failure(&ran);
        let words = error["message"].as_str().unwrap().replace(at.as_str(), "ID");
        said.push((ran.code(), error["kind"].clone(), words, error["hint"].clone()));
    }
    assert_eq!(said[0].0, 4);
    assert_eq!(said[0].1, "wrong_capability");
    assert!(said.iter().all(|one| *one == said[0]), "{said:#?}");
    assert_eq!(in_inbox(&sandbox), 0);
    assert_eq!(deliver(&sandbox, &id, &["hello"]).code(), 0);
}

#[test]
fn the_secret_comes_from_a_file_or_stdin() {
    let sandbox = started("true");
    let id = make(&sandbox, &[]);
    let secret = fs::read_to_string(sandbox.project().join(&id)).unwrap();
    let from_stdin = ["trigger", "deliver", &id, "--secret-file", "-", "hello"];
    assert_eq!(sandbox.cmd(from_stdin).stdin(format!("{secret}\r\n")).output().code(), 0);
    // Stdin can't provide both the secret and the message.
    for words in [&["-"][..], &["--body-json", "-"], &[]] {
        let line = [&from_stdin[..5], words].concat();
        assert_eq!(sandbox.cmd(line).stdin(secret.clone()).output().code(), 2, "{words:?}");
    }
    sandbox.cmd(["trigger", "deliver", &id, "--secret-file", &id]).stdin("from a pipe").exits(0);
    for (words, status) in [(&["--body-json", "{"][..], 2), (&[""], 4), (&["--dedupe-key", "", "x"], 4)] {
        assert_eq!(deliver(&sandbox, &id, words).code(), status, "{words:?}");
    }
    fs::write(sandbox.project().join("large"), "x".repeat(5000)).unwrap();
    let large = sandbox.cmd(["--json", "trigger", "deliver", &id, "--secret-file", "large", "x"]).output();
    assert_eq!(told(&large), (4, "secret_too_large".to_owned()));
}

#[test]
fn a_delivered_hint_has_the_resource_of_its_trigger_and_runs_a_turn() {
    let sandbox = started("true");
    let id = make(&sandbox, &["--mode", "wake_hint", "--resource", "disk"]);
    sandbox.run(["wait", "-a", "ada", "--on", "external", "--resource", "disk", "--reason", "space"]);
    let first = delivered(&sandbox, &id, &[]);
    assert!(first["hint_id"].as_str().unwrap().starts_with("msg_"), "{first}");
    delivered(&sandbox, &id, &["it is full"]);
    let hint = sandbox.json(["get", "ada"])["pending_wake_hint"].clone();
    assert_eq!((&hint["resource"], &hint["trigger_id"]), (&json!("disk"), &json!(id)), "{hint}");
    let expected = ["emit_system_tick (wake_hint)", "start_model_turn (system_tick) completed"];
    assert_eq!(decisions(&sandbox)[..2], expected);
    assert!(waits(&sandbox).is_empty());
    assert_count(&sandbox, &id, 2);
}

#[test]
fn a_delivery_with_a_key_arrives_once() {
    let sandbox = started("true");
    let (id, other) = (make(&sandbox, &[]), make(&sandbox, &[]));
    let hints = make(&sandbox, &["--mode", "wake_hint"]);
    for (trigger, field) in [(&id, "message_id"), (&hints, "hint_id")] {
        let first = delivered(&sandbox, trigger, &["hello", "--dedupe-key", "one"]);
        for _ in 0..2 {
            let again = delivered(&sandbox, trigger, &["hello", "--dedupe-key", "one"]);
            assert_eq!((&again[field], &again["duplicate"]), (&first[field], &json!(true)));
        }
        sandbox.run(["tick", "ada", "--until-idle"]);
        let again = delivered(&sandbox, trigger, &["hello", "--dedupe-key", "one"]);
        assert_eq!((&again[field], &again["duplicate"]), (&first[field], &json!(true)));
        assert_count(&sandbox, trigger, 1);
        // Dedupe keys of other triggers and of the operator are distinct.
        assert_eq!(delivered(&sandbox, &other, &["hello", "--dedupe-key", field])["duplicate"], false);
        assert_eq!(sandbox.json(["enqueue", "ada", "x", "--dedupe-key", field])["duplicate"], false);
        sandbox.run(["tick", "ada", "--until-idle"]);
        sandbox.pass(25 * 3600);
        assert_eq!(delivered(&sandbox, trigger, &["hello", "--dedupe-key", "one"])["duplicate"], false);
        sandbox.run(["tick", "ada", "--until-idle"]);
    }
}

#[test]
fn the_delivery_count_is_that_of_claimed_messages() {
    let sandbox = started("true");
    let id = make(&sandbox, &[]);
    delivered(&sandbox, &id, &["one"]);
    delivered(&sandbox, &id, &["two"]);
    sandbox.run(["enqueue", "ada", "not through it"]);
    assert_count(&sandbox, &id, 0);
    assert_eq!(shown(&sandbox, &id).get("last_delivered_at"), None);
    for taken in 1..=2 {
        sandbox.run(["tick", "ada"]);
        assert_count(&sandbox, &id, taken);
        assert!(shown(&sandbox, &id)["last_delivered_at"].is_string());
    }
    let list = sandbox.json_lines(["trigger", "list", "-a", "ada"]);
    assert_eq!(list.iter().map(|one| one["delivery_count"].as_u64().unwrap()).sum::<u64>(), 2);
}

#[test]
fn a_failed_and_requeued_message_counts_as_one_delivery() {
    let sandbox = started_with("exit 1", "[recovery]\nmax_attempts = 1\n");
    let id = make(&sandbox, &[]);
    let message = delivered_message(&sandbox, &id, "one");
    for _ in 0..2 {
        sandbox.cmd(["tick", "ada", "--until-idle"]).output();
        assert_count(&sandbox, &id, 1);
        sandbox.run(["queue", "requeue", &message]);
        assert_count(&sandbox, &id, 1);
    }
}

#[test]
fn a_deferred_dropped_and_requeued_message_counts_as_one_delivery() {
    let sandbox = started("exit 75");
    let id = make(&sandbox, &[]);
    let message = delivered_message(&sandbox, &id, "one");
    sandbox.run(["tick", "ada"]);
    for _ in 0..2 {
        sandbox.run(["queue", "drop", &message]);
        sandbox.run(["queue", "requeue", &message]);
        assert_count(&sandbox, &id, 1);
    }
}

#[test]
fn a_stopped_or_dropped_and_requeued_message_is_one_delivery() {
    let sandbox = started("echo up > \"$HOME/up\"; sleep 100");
    let id = make(&sandbox, &[]);
    let up = sandbox.home().join("up");
    let message = delivered_message(&sandbox, &id, "one");
    let tick = Beside::spawn(sandbox.cmd(["tick", "ada"]).into_command());
    eventually("the turn", || up.exists().then_some(()));
    sandbox.run(["stop", "ada", "--grace", "0s"]);
    tick.end();
    sandbox.run(["queue", "requeue", &message]);
    assert_count(&sandbox, &id, 1);
    // `other` was dropped before a step claimed it, so it is not counted.
    sandbox.run(["queue", "drop", &message]);
    let other = delivered_message(&sandbox, &id, "two");
    sandbox.run(["queue", "drop", &other]);
    assert_count(&sandbox, &id, 1);
    sandbox.run(["queue", "requeue", &message]);
    sandbox.run(["queue", "requeue", &other]);
    assert_count(&sandbox, &id, 1);
}

#[test]
fn a_delivery_ends_its_wait_and_the_wait_revokes_its_own_trigger() {
    let sandbox = started("true");
    let by_default =
        sandbox.json_lines(["trigger", "list", "-a", "ada"])[0]["id"].as_str().unwrap().to_owned();
    let other = make(&sandbox, &[]);
    // A wait can name a trigger that has no resource.
    let wait =
        ["wait", "-a", "ada", "--on", "external", "--reason", "the build", "--source", "nobody", "--trigger"];
    let waiting = sandbox.json([&wait[..], &[&other[5..]]].concat());
    assert_eq!(waiting["trigger_id"], other.as_str());
    assert!(waiting["wake_sources"].to_string().contains(&format!("trigger:{other}")), "{waiting}");
    delivered(&sandbox, &other, &["it is green"]);
    sandbox.run(["tick", "ada", "--until-idle"]);
    assert!(waits(&sandbox).is_empty());
    assert_eq!(shown(&sandbox, &other)["status"], "active", "it is older than the wait");
    // The next trigger belongs to a wait, and is revoked when the wait ends.
    let waiting =
        sandbox.json(["wait", "-a", "ada", "--on", "external", "--reason", "the build", "--recheck", "1h"]);
    let wait_id = waiting["id"].as_str().unwrap();
    let own = make(&sandbox, &["--wait", wait_id]);
    assert_eq!(shown(&sandbox, &own)["scope"], format!("wait:{wait_id}"));
    let second = sandbox.cmd(["--json", "trigger", "create", "-a", "ada", "--wait", wait_id]).output();
    assert_eq!(told(&second), (4, "wait_has_trigger".to_owned()));
    let answer = delivered(&sandbox, &own, &["it is red"]);
    let message = sandbox.json(["queue", "show", answer["message_id"].as_str().unwrap()]);
    assert_eq!((&message["wait_id"], &message["kind"]), (&json!(wait_id), &json!("callback_event")));
    let step = sandbox.json(["tick", "ada"]);
    assert_eq!(step["continuation"]["resolves"], json!([wait_id]), "{step}");
    assert_eq!(shown(&sandbox, &own)["status"], "revoked");
    assert_eq!(told(&deliver(&sandbox, &own, &["again"])), (4, "wrong_capability".to_owned()));
    // Invalid owners and flags are refused.
    for (flags, expected) in [
        (&["--wait", &own[5..]][..], 3),
        (&["--wait", wait_id], 3),
        (&["--wait", wait_id, "--resource", "x"], 2),
        (&["--source", "operator"], 2),
        (&["--source", "channel:irc"], 2),
        (&["--signature-header", "X"], 2),
        (&["--verify", "hmac_sha256", "--signature-header", "no header"], 2),
    ] {
        let ran = sandbox.cmd([&["trigger", "create", "-a", "ada"], flags].concat()).output();
        assert_eq!(ran.code(), expected, "{flags:?} {ran}");
    }
    assert_count(&sandbox, &by_default, 0);
}

#[test]
fn every_end_of_a_wait_revokes_the_trigger_of_the_wait() {
    let sandbox = started("true");
    let item = sandbox.run(["work", "add", "objective", "-a", "ada", "--pick"]).trim_end().to_owned();
    let wait = |more: &[&str]| {
        let line = [&["wait", "-a", "ada", "--on", "external", "--reason", "r"], more].concat();
        sandbox.run(line).trim_end().to_owned()
    };
    let on_item = ["--work-item", item.as_str()];
    let one = wait(&on_item);
    let cancelled = make(&sandbox, &["--wait", &one]);
    sandbox.run(["wait", "cancel", &one]);
    let replaced = make(&sandbox, &["--wait", &wait(&on_item)]);
    let completed = make(&sandbox, &["--wait", &wait(&on_item)]);
    let expired = make(&sandbox, &["--wait", &wait(&["--whole-agent", "--expires", "1h"])]);
    let stays = make(&sandbox, &["--wait", &wait(&["--whole-agent", "--recheck", "9h"])]);
    let status = |id: &str| shown(&sandbox, id)["status"].as_str().unwrap().to_owned();
    assert_eq!([&cancelled, &replaced].map(|id| status(id)), ["revoked"; 2]);
    sandbox.run(["work", "complete", &item]);
    assert_eq!(status(&completed), "revoked");
    assert_eq!(status(&expired), "active");
    sandbox.pass(2 * 3600);
    sandbox.run(["tick", "ada", "--until-idle"]);
    assert_eq!([&expired, &stays].map(|id| status(id)), ["revoked", "active"]);
    sandbox.run(["stop", "ada"]);
    assert_eq!(status(&stays), "active", "stop keeps waits");
    let all = sandbox.json_lines(["trigger", "list", "-a", "ada", "--revoked"]);
    assert_eq!(all.len(), 6);
    assert_eq!(sandbox.json_lines(["trigger", "list", "-a", "ada"]).len(), 2);
    assert_eq!(sandbox.cmd(["doctor"]).output().code(), 0);
}

#[test]
fn a_wait_whose_trigger_is_revoked_has_an_advisory() {
    let sandbox = started("true");
    let id = make(&sandbox, &[]);
    sandbox.run(words(&format!("wait -a ada --on external --reason r --recheck 1h --trigger {id}")));
    sandbox.run(["tick", "ada", "--until-idle"]);
    let kinds = || {
        let found = sandbox.json(["get", "ada"])["advisories"].clone();
        texts(found.as_array().unwrap(), "kind")
    };
    assert!(!kinds().contains(&"wait_without_subject".to_owned()), "{:?}", kinds());
    sandbox.run(["trigger", "revoke", &id]);
    assert!(kinds().contains(&"wait_without_subject".to_owned()), "{:?}", kinds());
    assert_eq!(sandbox.json_lines(["wait", "list", "-a", "ada"])[0].get("trigger_id"), None);
    // A second revocation changes nothing.
    sandbox.run(["trigger", "revoke", &id]);
    assert_eq!(sandbox.cmd(["doctor"]).output().code(), 0);
}

#[test]
fn rotate_invalidates_the_old_secret_and_keeps_the_count() {
    let sandbox = started("true");
    let id = make(&sandbox, &[]);
    delivered(&sandbox, &id, &["one"]);
    sandbox.run(["tick", "ada", "--until-idle"]);
    sandbox.run(["trigger", "rotate", &id, "--secret-file", "new"]);
    assert_eq!(told(&deliver(&sandbox, &id, &["two"])), (4, "wrong_capability".to_owned()));
    let with_new = ["trigger", "deliver", &id, "--secret-file", "new", "two"];
    assert_eq!(sandbox.cmd(with_new).output().code(), 0);
    assert_count(&sandbox, &id, 1);
    sandbox.run(["trigger", "revoke", &id]);
    assert_eq!(sandbox.cmd(["trigger", "rotate", &id]).output().code(), 3);
    assert_eq!(shown(&sandbox, &id)["delivery_count"], 1, "messages that were claimed before");
}

#[test]
fn the_signature_key_is_private_and_never_in_git() {
    let sandbox = started("true");
    make_repository(&sandbox);
    // Even if `.gitignore` excludes nothing, the keys for signatures must stay out of git.
    fs::write(sandbox.store().join(".gitignore"), "").unwrap();
    let id = make(&sandbox, &["--verify", "hmac_sha256"]);
    let trigger = shown(&sandbox, &id);
    assert_includes(&trigger, json!({ "verify": "hmac_sha256", "signature_header": "X-Hub-Signature-256" }));
    let keys = sandbox.agent("ada").join("keys");
    let key = |dir: &Path| names(dir).into_iter().find(|name| name.starts_with(&id)).unwrap();
    let secret = fs::read_to_string(sandbox.project().join(&id)).unwrap();
    let first = key(&keys);
    assert_eq!(fs::read_to_string(keys.join(&first)).unwrap(), secret);
    assert_eq!((mode(&keys.join(&first)), mode(&keys)), (0o600, 0o700));
    git(&sandbox, &["add", "-A", ".dormouse"]);
    let tracked = git(&sandbox, &["ls-files"]);
    assert!(!tracked.contains("keys/"), "{tracked}");
    // The trigger's key for signatures also serves as the secret of `trigger deliver`.
    delivered(&sandbox, &id, &["hello"]);
    sandbox.run(["trigger", "rotate", &id, "--secret-file", "new"]);
    assert_ne!(key(&keys), first);
    assert_eq!(names(&keys).iter().filter(|name| name.starts_with(&id)).count(), 1);
    fs::remove_file(keys.join(key(&keys))).unwrap();
    sandbox.cmd(["trigger", "show", &id]).output().warns("is not in this store or clone");
    sandbox.run(["trigger", "rotate", &id]);
    sandbox.run(["trigger", "revoke", &id]);
    assert!(!names(&keys).iter().any(|name| name.starts_with("trig_")));
    assert_eq!(sandbox.cmd(["doctor"]).output().code(), 0);
}

/// Runs commands in a turn of `ada` and returns the exit status and error kind of each. In a
/// command, `$ID` is the wait with which the turn begins, and `$TRIG` the trigger of the previous
/// command.
fn in_turn(sandbox: &Sandbox, commands: &[&str]) -> Vec<String> {
    let own = own_name();
    let mut script = format!(
        "rm -f \"$HOME/said\"\nID=$({own} wait --on external --reason r --whole-agent)\necho $ID > \"$HOME/wait\"\n"
    );
    for command in commands {
        script.push_str(&format!(
            "said=$({own} --json {command} 2>> \"$HOME/talk\"); status=$?\n\
             TRIG=$(echo \"$said\" | tail -n 1 | jq -r '.id // empty')\n\
             echo \"$status $(echo \"$said\" | tail -n 1 | jq -r '.error.kind // \"\"')\" >> \"$HOME/said\"\n"
        ));
    }
    fs::write(sandbox.home().join("script"), script).unwrap();
    let step = sandbox.json(["tick", "ada"]);
    assert_eq!(step["terminal"], "completed", "{step}");
    let said = fs::read_to_string(sandbox.home().join("said")).unwrap();
    said.lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn a_turn_may_create_triggers_only_for_its_own_waits() {
    needs!("jq");
    let sandbox = started(". \"$HOME/script\"");
    let others = make(&sandbox, &[]);
    add(&sandbox, "bob", "true");
    sandbox.run(["enqueue", "ada", "go"]);
    let revoke = format!("trigger revoke {others}");
    let rotate = format!("trigger rotate {others}");
    let (commands, expected): (Vec<&str>, Vec<&str>) = [
        ("trigger create", "4 operators_only"),
        ("trigger create --resource r", "4 operators_only"),
        ("trigger create -a bob", "4 not_own_child"),
        (&revoke, "4 operators_only"),
        (&rotate, "4 operators_only"),
        ("trigger create --wait $ID", "0"),
        ("trigger rotate $TRIG", "4 operators_only"),
        ("trigger list", "0"),
    ]
    .into_iter()
    .unzip();
    assert_eq!(in_turn(&sandbox, &commands), expected);
    let wait = fs::read_to_string(sandbox.home().join("wait")).unwrap();
    let list = sandbox.json_lines(["trigger", "list", "-a", "ada"]);
    assert!(list.iter().any(|one| one["scope"] == format!("wait:{}", wait.trim_end())), "{list:?}");
    // A turn can revoke a trigger that it has created.
    sandbox.run(["enqueue", "ada", "again"]);
    let said = in_turn(&sandbox, &["trigger create --wait $ID", "trigger revoke $TRIG"]);
    assert_eq!(said, ["0"; 2]);
}

#[test]
fn a_delivery_of_a_turn_adds_one_hop() {
    let own = own_name();
    let sandbox = Sandbox::new();
    let made = sandbox.json([
        "create",
        "ada",
        "--shell",
        &format!("{own} trigger deliver \"$(cat id)\" --secret-file secret again"),
    ]);
    sandbox.run(["start", "ada"]);
    fs::write(sandbox.project().join("id"), made["trigger_id"].as_str().unwrap()).unwrap();
    fs::write(sandbox.project().join("secret"), made["trigger_secret"].as_str().unwrap()).unwrap();
    extend_policy(&sandbox, "ada", "[limits]\nmax_hops = 2\n[recovery]\nmax_attempts = 1\n");
    sandbox.run(["enqueue", "ada", "go"]);
    let ran = sandbox.cmd(["tick", "ada", "--until-idle", "--json"]).output();
    let turns = ran.stdout.lines().filter(|line| line.contains("\"terminal\"")).count();
    assert_eq!(turns, 3, "the delivery of the third turn exceeds max_hops: {ran}");
}

#[test]
fn an_outcome_can_wait_for_a_trigger() {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "ada", "--shell", "cat \"$HOME/outcome\" > \"$DORMOUSE_OUTCOME\""]);
    sandbox.run(["start", "ada"]);
    let id = make(&sandbox, &[]);
    let write = |id: &str| {
        let action = json!({ "do": "wait", "kind": "external", "reason": "r", "recheck_after": "1h", "trigger_id": id });
        fs::write(sandbox.home().join("outcome"), json!({ "actions": [action] }).to_string()).unwrap();
    };
    write(&id);
    sandbox.run(["enqueue", "ada", "go"]);
    sandbox.run(["tick", "ada"]);
    assert_eq!(sandbox.json_lines(["wait", "list", "-a", "ada"])[0]["trigger_id"], id.as_str());
    sandbox.run(["trigger", "revoke", &id]);
    write(&id);
    sandbox.run(["enqueue", "ada", "go"]);
    sandbox.cmd(["tick", "ada", "--json"]).exits(7).shows("not an active trigger");
}

#[test]
fn wake_with_trigger_acts_like_a_delivery_to_the_trigger() {
    let sandbox = started("true");
    let id = make(&sandbox, &["--resource", "disk"]);
    sandbox.run(["wait", "-a", "ada", "--on", "external", "--resource", "disk", "--reason", "space"]);
    sandbox.run(["wake", "ada", "--trigger", &id]);
    let hint = sandbox.json(["get", "ada"])["pending_wake_hint"].clone();
    assert_eq!((&hint["resource"], &hint["trigger_id"]), (&json!("disk"), &json!(id)));
    sandbox.run(["tick", "ada", "--until-idle"]);
    assert!(waits(&sandbox).is_empty());
    for words in [&["--trigger", &id[5..20], "--resource", "x"][..], &["--trigger", "trig_ffffffff"]] {
        assert_ne!(sandbox.cmd([&["wake", "ada"], words].concat()).output().code(), 0, "{words:?}");
    }
    sandbox.run(["trigger", "revoke", &id]);
    assert_eq!(sandbox.cmd(["wake", "ada", "--trigger", &id]).output().code(), 3);
}

#[test]
fn a_turn_gets_its_ingress_address_only_if_base_url_is_set() {
    let sandbox = started("cat > \"$HOME/context\"");
    let told = || {
        sandbox.run(["enqueue", "ada", "go"]);
        sandbox.run(["tick", "ada"]);
        let context: Value = json_in(sandbox.home().join("context"));
        assert_eq!(
            context.get("default_external_ingress"),
            sandbox.json(["get", "ada"]).get("default_external_ingress").filter(|told| !told.is_null())
        );
        context.get("default_external_ingress").cloned()
    };
    assert_eq!(told(), None);
    let id = sandbox.json_lines(["trigger", "list", "-a", "ada"])[0]["id"].as_str().unwrap().to_owned();
    make(&sandbox, &["--resource", "r"]);
    let settings = sandbox.store().join("dormouse.toml");
    let before = fs::read_to_string(&settings).unwrap();
    for (base, url) in [
        (
            "https://hooks.example.org/dormouse/",
            format!("https://hooks.example.org/dormouse/agents/ada/triggers/{id}"),
        ),
        ("https://example.org/{trigger}?a={agent}", format!("https://example.org/{id}?a=ada")),
    ] {
        fs::write(&settings, format!("{before}[ingress]\nbase_url = \"{base}\"\n")).unwrap();
        let found = told().unwrap();
        assert_eq!((&found["id"], &found["url"]), (&json!(id), &json!(url)));
    }
    assert!(!fs::read_to_string(sandbox.home().join("context")).unwrap().contains("secret_sha256"));
    sandbox.run(["trigger", "revoke", &id]);
    assert_eq!(told(), None, "the agent's only trigger is revoked");
}

#[test]
fn a_stopped_agent_keeps_messages_and_ignores_hints() {
    let sandbox = started("true");
    let (messages, hints) = (make(&sandbox, &[]), make(&sandbox, &["--mode", "wake_hint"]));
    sandbox.run(["stop", "ada"]);
    delivered(&sandbox, &messages, &["later"]);
    delivered(&sandbox, &hints, &[]);
    sandbox.run(["tick", "ada"]);
    assert_eq!(in_inbox(&sandbox), 1);
    assert_count(&sandbox, &hints, 1);
    sandbox.run(["start", "ada"]);
    assert_eq!(decisions(&sandbox)[0], "start_model_turn (webhook_event) completed");
}

#[test]
fn members_of_the_group_and_strangers_have_no_triggers() {
    let Some(shared) = sharing::shared() else { return };
    let id = shared.sandbox.agent("a").join("triggers");
    let id = names(&id)[0].trim_end_matches(".json").to_owned();
    for user in [sharing::SENDER, sharing::STRANGER] {
        for args in [
            &["trigger", "list", "-a", "a"][..],
            &["trigger", "create", "-a", "a"],
            &["trigger", "revoke", &id],
            &["trigger", "deliver", &id, "--secret-file", "/dev/null", "x"],
            &["wake", "a", "--trigger", &id],
        ] {
            let ran = shared.guest(user, args);
            assert!([1, 4].contains(&ran.code()), "{user} {args:?}: {ran}");
        }
    }
    assert_eq!(names(&shared.sandbox.agent("a").join("triggers")).len(), 1);
}
