//! `init` and `create`: where a state directory is made, with what an agent starts, and to whom it belongs.

use std::fs;

use predicates::str::contains;
use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{edit_file, field, step_on};

/// More lines for the settings of the state directory.
fn settings(sandbox: &Sandbox, lines: &str) {
    edit_file(&sandbox.store().join("dormouse.toml"), |text| format!("{text}\n{lines}"));
}

#[test]
fn init_makes_it_where_it_is_told_to() {
    let sandbox = Sandbox::empty();
    for (args, env, made) in [
        (&["-C", "one", "init"][..], None, "project/one/.dormouse"),
        (&["init", "two"], None, "project/two/.dormouse"),
        (&["init"], Some("three"), "project/three/.dormouse"),
        (&["-C", "four/.dormouse", "init"], None, "project/four/.dormouse"),
        (&["-C", "five", "init"], Some("three"), "project/five/.dormouse"),
        (&["init", "six"], Some("six/.dormouse"), "project/six/.dormouse"),
        (&["init"], None, "project/.dormouse"),
    ] {
        let mut cmd = sandbox.cmd(args.iter().copied());
        if let Some(dir) = env {
            cmd = cmd.env("DORMOUSE_DIR", dir);
        }
        cmd.prints(&format!("made [SANDBOX]/{made}\n"));
        assert!(sandbox.root().join(made).join("dormouse.toml").is_file());
    }
    sandbox
        .cmd(["-C", "one", "init"])
        .prints("[SANDBOX]/project/one/.dormouse is there already: nothing changed\n");
    assert!(!sandbox.project().join("one/.dormouse/.dormouse").exists());
}

#[test]
fn init_says_which_state_directory_it_hides() {
    let sandbox = Sandbox::new();
    sandbox
        .cmd(["init", "below"])
        .assert()
        .code(0)
        .stderr(contains("commands that are called here no longer find "));
    let again = sandbox.cmd(["init", "below"]).output();
    assert!(again.code() == 0 && again.stderr.is_empty(), "{again}");
}

#[test]
fn init_says_where_two_words_point_to_different_places() {
    let sandbox = Sandbox::empty();
    let said = "dormouse: made in here, which DIR names; --dir or DORMOUSE_DIR points to there\n";
    sandbox
        .cmd(["-C", "there", "init", "here"])
        .stdout("made [SANDBOX]/project/here/.dormouse\n")
        .complains(said);
    assert!(!sandbox.project().join("there").exists());
}

#[test]
fn a_profile_stands_between_the_defaults_and_the_agents_own_policy() {
    let sandbox = Sandbox::new();
    settings(
        &sandbox,
        "[defaults.turn]\ntimeout = \"1m\"\nstdin = \"none\"\n[defaults.limits]\nmax_hops = 3\n\
         [profiles.careful.turn]\nstdin = \"prompt\"\n[profiles.careful.recovery]\nmax_attempts = 2\n[profiles.fast]\n",
    );
    fs::write(sandbox.project().join("own.toml"), "[turn]\ncommand = [\"true\"]\ntimeout = \"5m\"\n")
        .unwrap();
    let made = sandbox.json(["create", "ada", "--from", "own.toml", "--profile", "careful"]);
    assert_eq!(made["agent"], "ada");
    assert_eq!(sandbox.json(["get", "ada"])["identity"]["profile"], "careful");
    assert_eq!(field(&sandbox, "capabilities.stdin"), "prompt");
    assert_eq!(field(&sandbox, "limits.max_attempts"), "2");
    assert_eq!(field(&sandbox, "limits.max_hops"), "3");
    assert_eq!(field(&sandbox, "limits.turn_timeout_ms"), "300000");
    // The file is edited to be of another one.
    edit_file(&sandbox.agent("ada").join("agent.toml"), |text| text.replace("careful", "fast"));
    assert_eq!(field(&sandbox, "capabilities.stdin"), "none");
    sandbox.run(["create", "bob", "--profile", "careful", "--", "true"]);
    assert_eq!(sandbox.json(["get", "bob", "capabilities.stdin"]), "prompt");
    sandbox.run(["doctor"]);
}

#[test]
fn a_profile_that_is_not_there_is_said() {
    let sandbox = Sandbox::new();
    let create = ["create", "ada", "--profile", "careful", "--", "true"];
    sandbox.cmd(create).status(2).complains(
        "dormouse: --profile: no profile `careful`\n\
         hint: there is none yet: write a table [profiles.careful] into dormouse.toml\n",
    );
    settings(&sandbox, "[profiles.fast]\n[profiles.slow]\n");
    sandbox
        .cmd(create)
        .status(2)
        .complains("dormouse: --profile: no profile `careful`\nhint: there is fast, slow\n");
    sandbox.run(["create", "ada", "--profile", "fast", "--", "true"]);
    sandbox.run(["start", "ada"]);
    // It is removed later.
    let path = sandbox.store().join("dormouse.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("[profiles.fast]\n", "")).unwrap();
    for verb in ["tick", "get", "enqueue"] {
        let args: &[&str] = if verb == "enqueue" { &["enqueue", "ada", "x"] } else { &[verb, "ada"] };
        sandbox
            .cmd(args.iter().copied())
            .assert()
            .code(6)
            .stderr(contains("no profile `fast` in dormouse.toml\nhint: there is slow\n"));
    }
    // What is wrong in one is said to be in it.
    fs::write(&path, text.replace("[profiles.fast]\n", "[profiles.fast.turn]\ntimeout = 5\n")).unwrap();
    sandbox.cmd(["get", "ada"]).assert().stderr(contains("dormouse.toml: [profiles.fast]: "));
}

#[test]
fn a_file_of_another_profile_is_not_taken_for_one_of_this() {
    let sandbox = Sandbox::new();
    settings(&sandbox, "[profiles.fast]\n[profiles.slow]\n");
    fs::write(sandbox.project().join("own.toml"), "profile = \"slow\"\n[turn]\ncommand = [\"true\"]\n")
        .unwrap();
    sandbox.cmd(["create", "ada", "--from", "own.toml", "--profile", "fast"]).exits(2);
    sandbox.run(["create", "ada", "--from", "own.toml"]);
    assert_eq!(sandbox.json(["get", "ada", "identity.profile"]), "slow");
}

#[test]
fn lineage_is_in_the_identity_and_in_the_list() {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "boss", "--", "true"]);
    sandbox.run(["create", "kid", "--parent", "boss", "--", "true"]);
    sandbox.run(["create", "open", "--parent", "boss", "--visibility", "public", "--", "true"]);
    sandbox.run(["create", "shy", "--visibility", "private", "--", "true"]);
    let lines = sandbox.json_lines(["list"]);
    let row = |line: &Value| {
        json!([
            line["agent"],
            line["kind"],
            line["visibility"],
            line.get("owner"),
            line.get("parent"),
            line["hint"].is_string()
        ])
    };
    let rows: Vec<Value> = lines.iter().map(row).collect();
    assert_eq!(
        json!(rows),
        json!([
            ["boss", "named", "public", null, null, true],
            ["kid", "child", "private", "boss", "boss", true],
            ["open", "child", "public", "boss", "boss", true],
            ["shy", "named", "private", null, null, true],
        ])
    );
    let boss = sandbox.json(["get", "boss"]);
    assert_eq!(
        boss["children"],
        json!([{ "agent": "kid", "status": "booting" }, { "agent": "open", "status": "booting" }])
    );
    assert_eq!(sandbox.json(["get", "kid"])["parent"], "boss");
    assert_eq!(sandbox.json(["get", "kid", "children"]), json!([]));
    sandbox.cmd(["create", "x", "--visibility", "secret", "--", "true"]).status(2).output();
}

#[test]
fn a_delegation_hands_its_profile_on() {
    let sandbox = Sandbox::new();
    settings(&sandbox, "[profiles.careful.recovery]\nmax_attempts = 2\n");
    sandbox.run(["create", "ada", "--profile", "careful", "--", "true"]);
    sandbox.run(["start", "ada"]);
    sandbox.run(["task", "start", "-a", "ada", "--delegate", "kid", "work"]);
    assert_eq!(sandbox.json(["get", "kid", "identity.profile"]), "careful");
    step_on(&sandbox, "x");
}

#[test]
fn an_agent_without_a_command_is_not_started() {
    let sandbox = Sandbox::new();
    sandbox.cmd(["create", "ada"]).output();
    sandbox.cmd(["start", "ada"]).status(4).complains(
        "dormouse: ada: `ada` has no turn command\n\
         hint: say in its agent.toml what it runs, below [turn]: command = [\"./turn.sh\"]\n",
    );
    assert_eq!(field(&sandbox, "status"), "booting");
}
