//! Tests `init` and `create`: the place of a state directory, and an agent's profile, parent and
//! visibility.

use std::fs;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{edit_file, field, step_on, words};

/// Adds lines to `dormouse.toml`.
fn settings(sandbox: &Sandbox, lines: &str) {
    edit_file(&sandbox.store().join("dormouse.toml"), |text| format!("{text}\n{lines}"));
}

#[test]
fn init_makes_the_state_directory_in_the_named_place() {
    let sandbox = Sandbox::empty();
    for (args, env, made) in [
        (&["-C", "one", "init"][..], "", "project/one/.dormouse"),
        (&["init", "two/below"], "", "project/two/below/.dormouse"),
        (&["init"], "three", "project/three/.dormouse"),
        (&["-C", "four/.dormouse", "init"], "", "project/four/.dormouse"),
        (&["-C", "five", "init"], "three", "project/five/.dormouse"),
        (&["init", "six"], "six/.dormouse", "project/six/.dormouse"),
        (&["init"], "", "project/.dormouse"),
    ] {
        let cmd = sandbox.cmd(args.iter().copied());
        let cmd = if env.is_empty() { cmd } else { cmd.env("DORMOUSE_DIR", env) };
        cmd.prints(&format!("made [SANDBOX]/{made}\n"));
        assert!(sandbox.root().join(made).join("dormouse.toml").is_file());
    }
    let expected = "[SANDBOX]/project/one/.dormouse is there already: nothing changed\n";
    sandbox.cmd(["-C", "one", "init"]).prints(expected);
    assert!(!sandbox.project().join("one/.dormouse/.dormouse").exists());
}

#[test]
fn init_warns_if_the_new_directory_hides_an_outer_one() {
    let sandbox = Sandbox::new();
    sandbox.cmd(["init", "below"]).exits(0).warns("commands that are called here no longer find ");
    let again = sandbox.cmd(["init", "below"]).output();
    assert!(again.code() == 0 && again.stderr.is_empty(), "{again}");
}

#[test]
fn init_warns_if_its_argument_and_dir_name_different_places() {
    let sandbox = Sandbox::empty();
    sandbox
        .cmd(["-C", "there", "init", "here"])
        .stdout("made [SANDBOX]/project/here/.dormouse\n")
        .complains("dormouse: made in here, which DIR names; --dir or DORMOUSE_DIR points to there\n");
    assert!(!sandbox.project().join("there").exists());
}

#[test]
fn a_profile_precedes_the_defaults_and_follows_the_agents_own_policy() {
    let sandbox = Sandbox::new();
    settings(
        &sandbox,
        "[defaults.turn]\ntimeout = \"1m\"\nstdin = \"none\"\n[defaults.limits]\nmax_hops = 3\n\
         [profiles.careful.turn]\nstdin = \"prompt\"\n[profiles.careful.recovery]\nmax_attempts = 2\n[profiles.fast]\n",
    );
    let own = "profile = \"careful\"\n[turn]\ncommand = [\"true\"]\ntimeout = \"5m\"\n";
    fs::write(sandbox.project().join("own.toml"), own).unwrap();
    let made = sandbox.json(["create", "ada", "--from", "own.toml"]);
    assert_eq!(made["agent"], "ada");
    assert_eq!(sandbox.json(["get", "ada"])["identity"]["profile"], "careful");
    assert_eq!(field(&sandbox, "capabilities.stdin"), "prompt");
    assert_eq!(field(&sandbox, "limits.max_attempts"), "2");
    assert_eq!(field(&sandbox, "limits.max_hops"), "3");
    assert_eq!(field(&sandbox, "limits.turn_timeout_ms"), "300000");
    // The user changes the profile in agent.toml.
    edit_file(&sandbox.agent("ada").join("agent.toml"), |text| text.replace("careful", "fast"));
    assert_eq!(field(&sandbox, "capabilities.stdin"), "none");
    sandbox.run(["create", "bob", "--profile", "careful", "--", "true"]);
    assert_eq!(sandbox.json(["get", "bob", "capabilities.stdin"]), "prompt");
    sandbox.run(["doctor"]);
}

#[test]
fn a_profile_that_does_not_exist_is_an_error() {
    let sandbox = Sandbox::new();
    let create = ["create", "ada", "--profile", "careful", "--", "true"];
    sandbox.cmd(create).status(2).complains(
        "dormouse: --profile: no profile `careful`\n\
         hint: there is none yet: write a table [profiles.careful] into dormouse.toml\n",
    );
    settings(&sandbox, "[profiles.fast]\n[profiles.slow]\n");
    let expected = "dormouse: --profile: no profile `careful`\nhint: there is fast, slow\n";
    sandbox.cmd(create).status(2).complains(expected);
    sandbox.run(["create", "ada", "--profile", "fast", "--", "true"]);
    sandbox.run(["start", "ada"]);
    // The agent's policy uses the profile `fast`, which the user now removes from dormouse.toml.
    let path = sandbox.store().join("dormouse.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("[profiles.fast]\n", "")).unwrap();
    for line in ["tick ada", "get ada", "enqueue ada x"] {
        sandbox.cmd(words(line)).exits(6).warns("no profile `fast` in dormouse.toml\nhint: there is slow\n");
    }
    // An error in the table of a profile names that table.
    fs::write(&path, text.replace("[profiles.fast]\n", "[profiles.fast.turn]\ntimeout = 5\n")).unwrap();
    sandbox.cmd(["get", "ada"]).output().warns("dormouse.toml: [profiles.fast]: ");
}

#[test]
fn create_takes_a_profile_from_its_policy_file_alone() {
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
    let expected = json!([
        ["boss", "named", "public", null, null, true],
        ["kid", "child", "private", "boss", "boss", true],
        ["open", "child", "public", "boss", "boss", true],
        ["shy", "named", "private", null, null, true],
    ]);
    assert_eq!(json!(rows), expected);
    let boss = sandbox.json(["get", "boss"]);
    let expected = json!([{ "agent": "kid", "status": "booting" }, { "agent": "open", "status": "booting" }]);
    assert_eq!(boss["children"], expected);
    assert_eq!(sandbox.json(["get", "kid"])["parent"], "boss");
    assert_eq!(sandbox.json(["get", "kid", "children"]), json!([]));
    sandbox.cmd(["create", "x", "--visibility", "secret", "--", "true"]).status(2).output();
}

#[test]
fn a_delegated_child_gets_its_parents_profile() {
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
