//! What a turn may do to agents that are not its own, and which agents hear which senders.

use std::fs;

use predicates::str::contains;
use serde_json::{Value, json};

use crate::harness::{Ran, Sandbox};
use crate::setup::{add, assert_includes, edit_file, edit_policy, extend_policy, failure, hook, own_name};

/// `boss` with a child `kid`, and `ada`, who is nobody's child. Each says in `home/turns` what its turns hear.
fn family() -> Sandbox {
    let sandbox = Sandbox::new();
    let note = r#"echo "$DORMOUSE_AGENT $(jq -c '[.message.kind, .message.body.text]' "$DORMOUSE_CONTEXT")" >> "$HOME/turns""#;
    for name in ["boss", "ada"] {
        add(&sandbox, name, note);
    }
    sandbox.run(["create", "kid", "--parent", "boss", "--shell", note]);
    sandbox.run(["start", "kid"]);
    sandbox
}

/// Lets a turn of an agent do something, and returns what it has left in `home/said`, a line for each command:
/// its exit status and the kind of its error.
fn in_turn_of(sandbox: &Sandbox, agent: &str, commands: &[&str]) -> Vec<String> {
    let own = own_name();
    let mut script = String::from("rm -f \"$HOME/said\"\n");
    for command in commands {
        script.push_str(&format!(
            "said=$({own} --json {command} 2>> \"$HOME/talk\"); status=$?\n\
             echo \"$status $(echo \"$said\" | tail -n 1 | jq -r '.error.kind // \"\"')\" >> \"$HOME/said\"\n"
        ));
    }
    fs::write(sandbox.home().join("script"), script).unwrap();
    let text =
        edit_policy(sandbox, agent, |text| text.replace("command = ", "command = '. \"$HOME/script\"' # "));
    sandbox.run(["enqueue", agent, "go"]);
    let step = sandbox.json(["tick", agent]);
    assert_eq!(step["terminal"], "completed", "{step}");
    edit_policy(sandbox, agent, |_| text);
    let said = fs::read_to_string(sandbox.home().join("said")).unwrap();
    said.lines().map(|line| line.trim_end().to_owned()).collect()
}

fn status_of(sandbox: &Sandbox, agent: &str) -> String {
    sandbox.json(["get", agent])["status"].as_str().unwrap().to_owned()
}

#[test]
fn a_turn_reaches_its_own_children_alone() {
    needs!("jq");
    let sandbox = family();
    sandbox.run(["enqueue", "ada", "hello"]);
    let said = in_turn_of(
        &sandbox,
        "boss",
        &[
            "stop ada",
            "start ada",
            "tick ada",
            "recover ada",
            "resume ada",
            "preempt ada --reason why",
            "fail ada --reason why",
            "create cleo --parent ada -- true",
            "work add -a ada objective",
            "wait -a ada --on external --reason why",
            "timer add -a ada --in 1h",
            "task start -a ada -- true",
            "stop boss",
            "tick boss",
        ],
    );
    let refused = vec!["4 not_own_child".to_owned(); 12];
    assert_eq!(said[..12], refused, "{said:?}");
    assert_eq!(said[12..], ["4 own_turn", "4 not_own_child"]);
    assert_eq!(status_of(&sandbox, "ada"), "awake_idle");
    assert_eq!(sandbox.json(["get", "ada", "queue.pending"]), 1, "nothing was ticked");
    let said = in_turn_of(
        &sandbox,
        "boss",
        &[
            "stop kid",
            "start kid",
            "enqueue kid hello",
            "tick kid",
            "work add -a kid objective",
            "get ada",
            "tick ada --dry-run",
        ],
    );
    assert_eq!(said, ["0"; 7]);
    let heard = fs::read_to_string(sandbox.home().join("turns")).unwrap();
    assert!(heard.contains(r#"kid ["internal_followup","hello"]"#), "{heard}");
}

#[test]
fn all_agents_inside_a_turn_are_its_children() {
    needs!("jq");
    let sandbox = family();
    sandbox.run(["enqueue", "ada", "hello"]);
    assert_eq!(in_turn_of(&sandbox, "boss", &["stop --all", "start --all", "tick --all"]), ["0"; 3]);
    assert_eq!(sandbox.json(["get", "ada", "queue.pending"]), 1);
    let events = sandbox.json_lines(["events", "kid", "--kind", "control_request_admitted"]);
    let by: Vec<&Value> = events.iter().map(|event| &event["data"]["by"]).collect();
    assert_eq!(by, ["operator", "system:boss", "system:boss"]);
    assert_eq!(sandbox.json_lines(["events", "ada", "--kind", "control_request_admitted"]).len(), 1);
}

#[test]
fn an_agent_that_a_turn_makes_is_its_child() {
    needs!("jq");
    let sandbox = family();
    assert_eq!(in_turn_of(&sandbox, "boss", &["create cleo -- true", "start cleo"]), ["0"; 2]);
    let identity = &sandbox.json(["get", "cleo"])["identity"];
    assert_includes(identity, json!({ "parent": "boss", "kind": "child" }));
}

#[test]
fn a_policy_lets_a_turn_reach_everybody_but_not_undo_what_the_operator_stopped() {
    needs!("jq");
    let sandbox = family();
    extend_policy(&sandbox, "boss", "[authority]\nlifecycle = \"all\"");
    let said = in_turn_of(
        &sandbox,
        "boss",
        &["stop ada", "start ada", "tick ada", "create cleo -- true", "work add -a ada objective"],
    );
    assert_eq!(said, ["0"; 5]);
    assert_eq!(sandbox.json(["get", "cleo"])["identity"]["kind"], "named");
    sandbox.run(["stop", "ada"]);
    assert_eq!(in_turn_of(&sandbox, "boss", &["start ada", "resume ada"]), ["4 stopped_by_other"; 2]);
    sandbox.run(["start", "ada"]);
    assert_eq!(in_turn_of(&sandbox, "boss", &["start ada"]), ["0"]);
}

#[test]
fn a_child_that_the_operator_stopped_stays_stopped() {
    needs!("jq");
    let sandbox = family();
    sandbox.run(["stop", "kid"]);
    assert_eq!(sandbox.json(["get", "kid"])["lifecycle"]["stopped_by"], json!({ "kind": "operator" }));
    let said = in_turn_of(&sandbox, "boss", &["start kid", "task start --delegate kid work"]);
    assert_eq!(said, ["4 stopped_by_other"; 2]);
    assert_eq!(status_of(&sandbox, "kid"), "stopped");
    // An outcome is held to the same.
    let outcome = r#"{"actions":[{"do":"task.start","delegate":"kid","text":"work"}]}"#;
    fs::write(sandbox.home().join("outcome"), outcome).unwrap();
    add(&sandbox, "boss2", "true");
    edit_policy(&sandbox, "boss", |text| {
        text.replace("command = ", "command = 'cp \"$HOME/outcome\" \"$DORMOUSE_OUTCOME\"' # ")
    });
    sandbox.run(["enqueue", "boss", "go"]);
    let step: Value =
        serde_json::from_str(&sandbox.cmd(["--json", "tick", "boss"]).status(7).output().stdout).unwrap();
    assert_eq!(step["terminal"], "failed");
    assert!(step["terminal_reason"].as_str().unwrap().contains("was stopped by the operator"), "{step}");
    assert_eq!(status_of(&sandbox, "kid"), "stopped");
    sandbox.run(["start", "kid"]);
    assert!(sandbox.json(["get", "kid"])["lifecycle"].get("stopped_by").is_none());
}

#[test]
fn a_stop_of_the_operator_outlasts_the_parents_own() {
    needs!("jq");
    let sandbox = family();
    assert_eq!(in_turn_of(&sandbox, "boss", &["stop kid"]), ["0"]);
    assert_eq!(
        sandbox.json(["get", "kid"])["lifecycle"]["stopped_by"],
        json!({ "kind": "system", "id": "boss" })
    );
    let again = sandbox.json(["stop", "kid"]);
    assert_eq!(again["changed"], false);
    assert_eq!(in_turn_of(&sandbox, "boss", &["start kid"]), ["4 stopped_by_other"]);
    sandbox.run(["start", "kid"]);
    assert_eq!(in_turn_of(&sandbox, "boss", &["stop kid", "start kid"]), ["0"; 2]);
}

/// The operator stops a child between the moment at which a delegation is asked for and the one at which the child
/// would get it.
#[test]
fn a_delegation_that_comes_too_late_fails_instead_of_starting_the_child() {
    needs!("jq");
    let sandbox = family();
    let lock = sandbox.agent("kid").join("lock");
    let away = sandbox.agent("kid").join("lock.away");
    fs::rename(&lock, &away).unwrap();
    fs::create_dir(&lock).unwrap();
    sandbox
        .cmd(["task", "start", "-a", "boss", "--delegate", "kid", "work"])
        .assert()
        .stderr(contains("a directory: expected a plain file"));
    fs::remove_dir(&lock).unwrap();
    fs::rename(&away, &lock).unwrap();
    assert_eq!(sandbox.json(["task", "list", "-a", "boss"])["status"], "queued");
    sandbox.run(["stop", "kid"]);
    sandbox.cmd(["tick", "boss"]).assert().stderr(contains("was stopped by the operator"));
    assert_eq!(status_of(&sandbox, "kid"), "stopped");
    let heard = fs::read_to_string(sandbox.home().join("turns")).unwrap();
    assert!(
        heard.contains("boss [\"task_result\",\"kid: failed (`kid` was stopped by the operator"),
        "{heard}"
    );
}

#[test]
fn a_turn_can_claim_no_other_origin_than_its_own() {
    needs!("jq");
    let sandbox = family();
    let said = in_turn_of(
        &sandbox,
        "boss",
        &[
            "enqueue ada x --origin webhook:ci",
            "enqueue ada x --origin channel",
            "enqueue ada x --origin operator",
            "enqueue ada x --origin system:ada",
            "enqueue ada x --kind webhook_event",
            "wake ada --source webhook:ci",
            "enqueue ada x --origin system:boss",
            "wake ada --source boss",
            "wake ada",
        ],
    );
    assert_eq!(said[..6], ["4 origin_not_allowed"; 6]);
    assert_eq!(said[6..], ["0"; 3]);
    sandbox.run(["tick", "ada", "--until-idle"]);
}

#[test]
fn a_private_agent_hears_its_parent_and_no_other_agent() {
    needs!("jq");
    let sandbox = family();
    assert_eq!(in_turn_of(&sandbox, "ada", &["enqueue kid x", "wake kid"]), ["4 private"; 2]);
    assert_eq!(in_turn_of(&sandbox, "boss", &["enqueue kid x", "wake kid"]), ["0"; 2]);
    assert_eq!(in_turn_of(&sandbox, "kid", &["enqueue kid x", "enqueue boss x"]), ["0"; 2]);
    sandbox.run(["enqueue", "kid", "the operator is heard"]);
    sandbox.run(["enqueue", "kid", "and so is whom the operator relays", "--origin", "webhook:ci"]);
    // An outcome is held to the same.
    let outcome = r#"{"actions":[{"do":"enqueue","agent":"kid","text":"psst"}]}"#;
    fs::write(sandbox.home().join("outcome"), outcome).unwrap();
    add(&sandbox, "eve", "cp \"$HOME/outcome\" \"$DORMOUSE_OUTCOME\"");
    sandbox.run(["enqueue", "eve", "go"]);
    let ran: Ran = sandbox.cmd(["--json", "tick", "eve"]).status(7).output();
    let step: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        step["terminal_reason"],
        "outcome file: $.actions[0]: `kid` is private: it takes no messages from `eve`, only from the operator, its parent `boss` and its triggers"
    );
}

/// A message that was committed while the other agent was open meets one that is private.
#[test]
fn what_is_not_heard_is_told_at_delivery() {
    needs!("jq");
    let sandbox = family();
    let outcome = r#"{"actions":[{"do":"enqueue","agent":"zoe","text":"psst"}]}"#;
    fs::write(sandbox.home().join("outcome"), outcome).unwrap();
    add(&sandbox, "zoe", "true");
    // The settlement is committed while the other inbox can't be reached; then that agent is another one.
    add(&sandbox, "eve", "cp \"$HOME/outcome\" \"$DORMOUSE_OUTCOME\"");
    let zoe = sandbox.agent("zoe");
    fs::rename(zoe.join("lock"), zoe.join("lock.away")).ok();
    fs::create_dir(zoe.join("lock")).unwrap();
    sandbox.run(["enqueue", "eve", "go"]);
    sandbox.cmd(["tick", "eve"]).assert().stderr(contains("is not delivered yet"));
    fs::remove_dir(zoe.join("lock")).unwrap();
    edit_file(&zoe.join("identity.json"), |text| text.replace("\"public\"", "\"private\""));
    sandbox.cmd(["tick", "eve"]).assert().stderr(contains("`zoe` is private"));
    assert_eq!(sandbox.json(["get", "zoe", "queue.pending"]), 0);
    let events = sandbox.json_lines(["events", "eve", "--kind", "message_rejected"]);
    assert_eq!(events[0]["data"]["to"], "zoe", "{events:?}");
    // It is not tried again.
    sandbox.run(["tick", "eve"]);
}

#[test]
fn a_hook_is_not_held_to_what_a_turn_may() {
    needs!("jq");
    let sandbox = family();
    let own = own_name();
    hook(&sandbox.agent("boss"), "on-scheduled", &format!("{own} stop ada > /dev/null"));
    sandbox.run(["enqueue", "boss", "go"]);
    sandbox.run(["tick", "boss"]);
    assert_eq!(status_of(&sandbox, "ada"), "stopped");
    assert_eq!(sandbox.json(["get", "ada"])["lifecycle"]["stopped_by"]["kind"], "operator");
}

#[test]
fn another_state_directory_knows_nothing_of_a_turn() {
    needs!("jq");
    let sandbox = family();
    let own = own_name();
    let script = format!(
        "{own} init other > /dev/null && {own} -C other create x -- true > /dev/null && {own} -C other start x > /dev/null"
    );
    add(&sandbox, "eve", &script);
    sandbox.run(["enqueue", "eve", "go"]);
    let step = sandbox.json(["tick", "eve"]);
    assert_eq!(step["terminal"], "completed", "{step}");
    let found = sandbox.json(["-C", "other", "get", "x"]);
    assert_eq!(
        (found["status"].as_str(), found["identity"]["kind"].as_str()),
        (Some("awake_idle"), Some("named"))
    );
}

#[test]
fn a_refusal_inside_a_turn_names_what_would_let_it() {
    needs!("jq");
    let sandbox = family();
    let _ = in_turn_of(&sandbox, "boss", &["stop ada"]);
    let talk = fs::read_to_string(sandbox.home().join("talk")).unwrap();
    assert_eq!(
        talk,
        "dormouse: ada: this is a turn or task of `boss`: it can't stop `ada`, which is not its child\n\
         hint: `lifecycle = \"all\"` below [authority] in the agent.toml of `boss` lets it\n"
    );
    let ran = sandbox.cmd(["--json", "get", "nobody"]).status(3).output();
    assert_eq!(failure(&ran)["kind"], "no_agent");
}
