//! Triggers of agents in a database: whichever machine made one, deliveries come through any.

use std::fs;

use predicates::str::contains;

use crate::fleet::Machine;
use crate::ingress::{Answered, Hook, parse};
use crate::server::{Server, server};
use crate::setup::edit_file;

/// A trigger of `ada` that was made with these flags. It takes signatures.
fn signed(machine: &Machine, flags: &[&str]) -> Hook {
    let made = machine.json([&["trigger", "create", "-a", "ada", "--verify", "hmac_sha256"], flags].concat());
    let (id, secret) = (made["id"].as_str().unwrap(), made["trigger_secret"].as_str().unwrap());
    Hook { path: format!("/agents/ada/triggers/{id}"), id: id.to_owned(), secret: secret.to_owned() }
}

/// A signed delivery, as a web server hands it to a machine.
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

/// Two machines of one store with the agent `ada`.
fn two(server: &Server, schema: &str) -> [Machine; 2] {
    let url = server.url(schema);
    let one = Machine::new(&url, None).with_ada("echo done");
    let other = Machine::new(&url, None);
    assert_eq!(other.json_lines(["list"]).len(), 1);
    [one, other]
}

fn keys(server: &Server, schema: &str) -> String {
    server.sql(&format!("SELECT count(*) FROM {schema}.trigger_key")).remove(0)
}

#[test]
fn a_signature_is_verified_on_any_machine() {
    needs!("postgresql");
    let (server, schema) = (server(), "signed");
    let [one, other] = two(server, schema);
    let hook = signed(&one, &["--source", "webhook:github"]);
    let answer = delivered(&other, &hook, "signed");
    assert_eq!(answer.status, 202, "{answer:?}");
    let message = one.json(["queue", "show", answer.body["message_id"].as_str().unwrap()]);
    assert_eq!(
        (message["origin"]["id"].as_str(), message["body"]["text"].as_str()),
        (Some("github"), Some("signed"))
    );
    let wrong = Hook { secret: "wrong".to_owned(), path: hook.path.clone(), id: String::new() };
    assert_eq!(delivered(&other, &wrong, "signed").status, 401);
    assert_eq!(other.run(["trigger", "show", &hook.id]).matches("key").count(), 0);
    // The new key counts on all machines at once, and the old one on none.
    let rotated = other.json(["trigger", "rotate", &hook.id]);
    let new = Hook {
        secret: rotated["trigger_secret"].as_str().unwrap().to_owned(),
        path: hook.path.clone(),
        id: hook.id.clone(),
    };
    for machine in [&one, &other] {
        assert_eq!(delivered(machine, &hook, "old").status, 401);
        assert_eq!(delivered(machine, &new, "new").status, 202);
    }
    assert_eq!(keys(server, schema), "1");
    // Neither machine has it in a file, and no stream has it.
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
    assert_eq!(keys(server, schema), "0");
}

#[test]
fn a_key_goes_with_its_wait_and_with_its_agent() {
    needs!("postgresql");
    let (server, schema) = (server(), "key_goes");
    let [one, other] = two(server, schema);
    let wait = one.json(["wait", "-a", "ada", "--on", "external", "--reason", "why", "--resource", "r"]);
    let hook = signed(&one, &["--wait", wait["id"].as_str().unwrap()]);
    assert_eq!(delivered(&other, &hook, "it is here").status, 202);
    assert_eq!(keys(server, schema), "1");
    other.run(["tick", "ada", "--until-idle", "-q"]);
    assert_eq!(other.json(["trigger", "show", &hook.id])["status"], "revoked");
    assert_eq!(keys(server, schema), "0");
    signed(&one, &[]);
    assert_eq!(keys(server, schema), "1");
    other.run(["rm", "ada", "--force", "-q"]);
    assert_eq!(keys(server, schema), "0");
    // Its stream had none. What is signed is refused until there is a new one.
    other.run(["import", "ada.tar", "-q"]);
    let kept = other.json_lines(["trigger", "list", "ada"]);
    let id = kept.iter().find(|one| one["verify"] == "hmac_sha256").unwrap()["id"].as_str().unwrap();
    one.cmd(["trigger", "show", id]).assert().code(0).stderr(contains("is not in this store"));
    let rotated = one.json(["trigger", "rotate", id]);
    let secret = rotated["trigger_secret"].as_str().unwrap().to_owned();
    let hook = Hook { path: format!("/agents/ada/triggers/{id}"), id: id.to_owned(), secret };
    assert_eq!(delivered(&other, &hook, "again").status, 202);
    // Under another name it is the same trigger.
    one.run(["rename", "ada", "eve", "-q"]);
    let hook = Hook { path: hook.path.replace("ada", "eve"), ..hook };
    assert_eq!(delivered(&other, &hook, "by its name").status, 202);
    assert_eq!(other.cmd(["doctor"]).output().stdout.matches("orphans").count(), 0);
}

#[test]
fn a_trigger_is_used_so_often_in_a_minute_by_all_machines_together() {
    needs!("postgresql");
    let (server, schema) = (server(), "used");
    let [one, other] = two(server, schema);
    for machine in [&one, &other] {
        edit_file(&machine.anchor().join("dormouse.toml"), |text| {
            format!("{text}\n[ingress]\nper_minute = 3\n")
        });
    }
    let hook = signed(&one, &[]);
    // The same signed body again would be the same delivery.
    for (machine, body) in [(&one, "x"), (&other, "y"), (&one, "z")] {
        assert_eq!(delivered(machine, &hook, body).status, 202);
    }
    for machine in [&one, &other] {
        let refused = delivered(machine, &hook, "x");
        assert_eq!(refused.status, 429, "{refused:?}");
        let pause = refused.head.lines().find_map(|line| line.strip_prefix("Retry-After: ")).unwrap();
        assert!((1..=60).contains(&pause.parse::<u32>().unwrap()), "{refused:?}");
    }
    assert_eq!(
        delivered(&other, &signed(&other, &[]), "x").status,
        202,
        "another trigger has no part in that"
    );
    server.sql(&format!("UPDATE {schema}.trigger_use SET since = since - 60000"));
    assert_eq!(delivered(&other, &hook, "later").status, 202);
    assert_eq!(one.json_lines(["queue", "list", "-a", "ada", "--limit", "0"]).len(), 5);
}
