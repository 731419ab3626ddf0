//! Tests triggers of agents in a database: each machine accepts deliveries for a trigger.

use std::fs;

use serde_json::Value;

use crate::fleet::Machine;
use crate::ingress::{Answered, Hook, parse};
use crate::server::server;
use crate::setup::edit_file;

/// Creates a trigger of `ada` for signed deliveries, with these flags.
fn signed(machine: &Machine, flags: &[&str]) -> Hook {
    let made = machine.json([&["trigger", "create", "-a", "ada", "--verify", "hmac_sha256"], flags].concat());
    hook_of(&made, made["id"].as_str().unwrap())
}

/// Path and new secret of a trigger, from the answer of `trigger create` or `trigger rotate`.
fn hook_of(answer: &Value, id: &str) -> Hook {
    let secret = answer["trigger_secret"].as_str().unwrap().to_owned();
    Hook { path: format!("/agents/ada/triggers/{id}"), id: id.to_owned(), secret }
}

/// Makes a signed delivery by CGI, as a web server on that machine does.
fn delivered(machine: &Machine, hook: &Hook, body: &str) -> Answered {
    let length = body.len().to_string();
    let said = [
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("REQUEST_METHOD", "POST"),
        ("PATH_INFO", hook.path.as_str()),
        ("CONTENT_TYPE", "text/plain"),
        ("CONTENT_LENGTH", length.as_str()),
        ("HTTP_X_HUB_SIGNATURE_256", &hook.signature(body)),
    ];
    let cmd = machine.cmd(["ingress"]).stdin(body);
    let ran = said.iter().fold(cmd, |cmd, (name, value)| cmd.env(name, value)).exits(0);
    parse(&ran.stdout)
}

/// Returns the number of trigger keys in the database.
fn keys(schema: &str) -> String {
    server().sql(&format!("SELECT count(*) FROM {schema}.trigger_key")).remove(0)
}

#[test]
fn a_signature_is_verified_on_any_machine() {
    needs!("postgresql");
    let [one, other] = Machine::two("signed");
    let hook = signed(&one, &["--source", "webhook:github"]);
    let answer = delivered(&other, &hook, "signed");
    assert_eq!(answer.status, 202, "{answer:?}");
    let message = one.json(["queue", "show", answer.body["message_id"].as_str().unwrap()]);
    let expected = (Some("github"), Some("signed"));
    assert_eq!((message["origin"]["id"].as_str(), message["body"]["text"].as_str()), expected);
    let wrong = Hook { secret: "wrong".to_owned(), path: hook.path.clone(), id: String::new() };
    assert_eq!(delivered(&other, &wrong, "signed").status, 401);
    assert_eq!(other.run(["trigger", "show", &hook.id]).matches("key").count(), 0);
    // After a rotation all machines accept the new key at once, and none accepts the old one.
    let new = hook_of(&other.json(["trigger", "rotate", &hook.id]), &hook.id);
    for machine in [&one, &other] {
        assert_eq!(delivered(machine, &hook, "old").status, 401);
        assert_eq!(delivered(machine, &new, "new").status, 202);
    }
    assert_eq!(keys("signed"), "1");
    // The secret of the trigger must be in no file of either machine, and not in an export.
    one.run(["export", "ada", "--output", "ada.tar", "-q"]);
    for machine in [&one, &other] {
        for entry in walkdir::WalkDir::new(machine.sandbox.root()) {
            let path = entry.unwrap().into_path();
            let bytes = fs::read(&path).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&bytes).contains(&new.secret), "{}", path.display());
        }
    }
    one.run(["trigger", "revoke", &hook.id]);
    assert_eq!(delivered(&other, &new, "late").status, 401);
    assert_eq!(keys("signed"), "0");
}

#[test]
fn a_key_is_deleted_with_its_wait_and_with_its_agent() {
    needs!("postgresql");
    let schema = "key_goes";
    let [one, other] = Machine::two(schema);
    let wait = one.json(["wait", "-a", "ada", "--on", "external", "--reason", "why", "--resource", "r"]);
    let hook = signed(&one, &["--wait", wait["id"].as_str().unwrap()]);
    assert_eq!(delivered(&other, &hook, "it is here").status, 202);
    assert_eq!(keys(schema), "1");
    other.run(["tick", "ada", "--until-idle", "-q"]);
    assert_eq!(other.json(["trigger", "show", &hook.id])["status"], "revoked");
    assert_eq!(keys(schema), "0");
    signed(&one, &[]);
    assert_eq!(keys(schema), "1");
    other.run(["rm", "ada", "--force", "-q"]);
    assert_eq!(keys(schema), "0");
    // The export has no keys, so an imported trigger needs a rotation before it takes deliveries.
    other.run(["import", "ada.tar", "-q"]);
    let kept = other.json_lines(["trigger", "list", "ada"]);
    let id = kept.iter().find(|one| one["verify"] == "hmac_sha256").unwrap()["id"].as_str().unwrap();
    one.cmd(["trigger", "show", id]).exits(0).warns("is not in this store");
    let hook = hook_of(&one.json(["trigger", "rotate", id]), id);
    assert_eq!(delivered(&other, &hook, "again").status, 202);
    // A rename of the agent keeps the trigger and its key.
    one.run(["rename", "ada", "eve", "-q"]);
    let hook = Hook { path: hook.path.replace("ada", "eve"), ..hook };
    assert_eq!(delivered(&other, &hook, "by its name").status, 202);
    assert_eq!(other.cmd(["doctor"]).output().stdout.matches("orphans").count(), 0);
}

#[test]
fn the_rate_limit_of_a_trigger_counts_all_machines_together() {
    needs!("postgresql");
    let [one, other] = Machine::two("used");
    for machine in [&one, &other] {
        edit_file(&machine.anchor().join("dormouse.toml"), |text| {
            format!("{text}\n[ingress]\nper_minute = 3\n")
        });
    }
    let hook = signed(&one, &[]);
    // The bodies differ, because a second delivery of the same signed body would be a duplicate.
    for (machine, body) in [(&one, "x"), (&other, "y"), (&one, "z")] {
        assert_eq!(delivered(machine, &hook, body).status, 202);
    }
    for machine in [&one, &other] {
        let refused = delivered(machine, &hook, "x");
        assert_eq!(refused.status, 429, "{refused:?}");
        let pause = refused.head.lines().find_map(|line| line.strip_prefix("Retry-After: ")).unwrap();
        assert!((1..=60).contains(&pause.parse::<u32>().unwrap()), "{refused:?}");
    }
    let unused = signed(&other, &[]);
    assert_eq!(delivered(&other, &unused, "x").status, 202, "each trigger has its own limit");
    server().sql("UPDATE used.trigger_use SET since = since - 60000");
    assert_eq!(delivered(&other, &hook, "later").status, 202);
    assert_eq!(one.json_lines(["queue", "list", "-a", "ada", "--limit", "0"]).len(), 5);
}
