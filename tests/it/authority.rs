//! Tests which agents a turn may control, and from which senders an agent takes messages.

use std::fs;

use predicates::str::contains;
use serde_json::json;

use crate::harness::Sandbox;
use crate::setup::{
    add, assert_includes, edit_file, edit_policy, extend_policy, hook, only_object, own_name, texts,
};

/// Makes `boss`, its child `kid`, and `ada`, which has no parent. Each turn appends its agent, and
/// the kind and text of its message, to `home/turns`.
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

/// Runs commands, separated by `; `, in one turn of `agent`. Returns a line for each command: its
/// exit status and the kind of its error. The commands append their stderr to `home/talk`.
fn in_turn_of(sandbox: &Sandbox, agent: &str, commands: &str) -> Vec<String> {
    let own = own_name();
    let mut script = String::from("rm -f \"$HOME/said\"\n");
    for command in commands.split("; ") {
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

/// Shell line of a turn whose outcome is the file `home/outcome`.
const COPY_OUTCOME: &str = "cp \"$HOME/outcome\" \"$DORMOUSE_OUTCOME\"";

/// Runs an action while no command can open `agent`: a directory is in the place of its lock file.
fn while_unreachable(sandbox: &Sandbox, agent: &str, act: impl FnOnce()) {
    let (lock, away) = (sandbox.agent(agent).join("lock"), sandbox.agent(agent).join("lock.away"));
    fs::rename(&lock, &away).unwrap();
    fs::create_dir(&lock).unwrap();
    act();
    fs::remove_dir(&lock).unwrap();
    fs::rename(&away, &lock).unwrap();
}

#[test]
fn a_turn_controls_no_agents_but_its_children() {
    needs!("jq");
    let sandbox = family();
    sandbox.run(["enqueue", "ada", "hello"]);
    let commands = "stop ada; start ada; tick ada; recover ada; resume ada; preempt ada --reason why; \
             fail ada --reason why; create cleo --parent ada -- true; work add -a ada objective; \
             wait -a ada --on external --reason why; timer add -a ada --in 1h; task start -a ada -- true; \
             stop boss; tick boss";
    let said = in_turn_of(&sandbox, "boss", commands);
    let refused = vec!["4 not_own_child".to_owned(); 12];
    assert_eq!(said[..12], refused, "{said:?}");
    assert_eq!(said[12..], ["4 own_turn", "4 not_own_child"]);
    assert_eq!(status_of(&sandbox, "ada"), "awake_idle");
    assert_eq!(sandbox.json(["get", "ada", "queue.pending"]), 1, "a turn has ticked `ada`");
    let commands = "stop kid; start kid; enqueue kid hello; tick kid; work add -a kid objective; get ada; \
             tick ada --dry-run";
    let said = in_turn_of(&sandbox, "boss", commands);
    assert_eq!(said, ["0"; 7]);
    let heard = fs::read_to_string(sandbox.home().join("turns")).unwrap();
    assert!(heard.contains(r#"kid ["internal_followup","hello"]"#), "{heard}");
}

#[test]
fn inside_a_turn_all_means_its_children() {
    needs!("jq");
    let sandbox = family();
    sandbox.run(["enqueue", "ada", "hello"]);
    assert_eq!(in_turn_of(&sandbox, "boss", "stop --all; start --all; tick --all"), ["0"; 3]);
    assert_eq!(sandbox.json(["get", "ada", "queue.pending"]), 1);
    let events = sandbox.json_lines(["events", "kid", "--kind", "control_request_admitted"]);
    assert_eq!(texts(&events, "data.by"), ["operator", "system:boss", "system:boss"]);
    assert_eq!(sandbox.json_lines(["events", "ada", "--kind", "control_request_admitted"]).len(), 1);
}

#[test]
fn an_agent_that_a_turn_makes_is_its_child() {
    needs!("jq");
    let sandbox = family();
    assert_eq!(in_turn_of(&sandbox, "boss", "create cleo -- true; start cleo"), ["0"; 2]);
    let identity = &sandbox.json(["get", "cleo"])["identity"];
    assert_includes(identity, json!({ "parent": "boss", "kind": "child" }));
}

#[test]
fn lifecycle_all_lets_a_turn_control_every_agent_but_start_none_that_the_operator_stopped() {
    needs!("jq");
    let sandbox = family();
    extend_policy(&sandbox, "boss", "[authority]\nlifecycle = \"all\"");
    let commands = "stop ada; start ada; tick ada; create cleo -- true; work add -a ada objective";
    let said = in_turn_of(&sandbox, "boss", commands);
    assert_eq!(said, ["0"; 5]);
    assert_eq!(sandbox.json(["get", "cleo"])["identity"]["kind"], "named");
    sandbox.run(["stop", "ada"]);
    assert_eq!(in_turn_of(&sandbox, "boss", "start ada; resume ada"), ["4 stopped_by_other"; 2]);
    sandbox.run(["start", "ada"]);
    assert_eq!(in_turn_of(&sandbox, "boss", "start ada"), ["0"]);
}

#[test]
fn a_child_that_the_operator_stopped_stays_stopped() {
    needs!("jq");
    let sandbox = family();
    sandbox.run(["stop", "kid"]);
    assert_eq!(sandbox.json(["get", "kid"])["lifecycle"]["stopped_by"], json!({ "kind": "operator" }));
    let said = in_turn_of(&sandbox, "boss", "start kid; task start --delegate kid work");
    assert_eq!(said, ["4 stopped_by_other"; 2]);
    assert_eq!(status_of(&sandbox, "kid"), "stopped");
    // An action in an outcome file has the same limits as a command.
    let outcome = r#"{"actions":[{"do":"task.start","delegate":"kid","text":"work"}]}"#;
    fs::write(sandbox.home().join("outcome"), outcome).unwrap();
    edit_policy(&sandbox, "boss", |text| {
        text.replace("command = ", &format!("command = '{COPY_OUTCOME}' # "))
    });
    sandbox.run(["enqueue", "boss", "go"]);
    let step = only_object(&sandbox.cmd(["--json", "tick", "boss"]).exits(7).stdout);
    assert_eq!(step["terminal"], "failed");
    assert!(step["terminal_reason"].as_str().unwrap().contains("was stopped by the operator"), "{step}");
    assert_eq!(status_of(&sandbox, "kid"), "stopped");
    sandbox.run(["start", "kid"]);
    assert!(sandbox.json(["get", "kid"])["lifecycle"].get("stopped_by").is_none());
}

#[test]
fn the_parent_can_not_start_a_child_that_the_operator_stopped_after_the_parent() {
    needs!("jq");
    let sandbox = family();
    assert_eq!(in_turn_of(&sandbox, "boss", "stop kid"), ["0"]);
    let stopped_by = &sandbox.json(["get", "kid"])["lifecycle"]["stopped_by"];
    assert_eq!(*stopped_by, json!({ "kind": "system", "id": "boss" }));
    assert_eq!(sandbox.json(["stop", "kid"])["changed"], false);
    assert_eq!(in_turn_of(&sandbox, "boss", "start kid"), ["4 stopped_by_other"]);
    sandbox.run(["start", "kid"]);
    assert_eq!(in_turn_of(&sandbox, "boss", "stop kid; start kid"), ["0"; 2]);
}

/// The operator stops a child after a delegation was recorded and before the child has its message.
#[test]
fn a_delegation_to_a_child_that_was_stopped_meanwhile_fails() {
    needs!("jq");
    let sandbox = family();
    while_unreachable(&sandbox, "kid", || {
        let ran = sandbox.cmd(["task", "start", "-a", "boss", "--delegate", "kid", "work"]).assert();
        ran.stderr(contains("a directory: expected a plain file"));
    });
    assert_eq!(sandbox.json(["task", "list", "-a", "boss"])["status"], "queued");
    sandbox.run(["stop", "kid"]);
    sandbox.cmd(["tick", "boss"]).output().warns("was stopped by the operator");
    assert_eq!(status_of(&sandbox, "kid"), "stopped");
    let heard = fs::read_to_string(sandbox.home().join("turns")).unwrap();
    let result = "boss [\"task_result\",\"kid: failed (`kid` was stopped by the operator";
    assert!(heard.contains(result), "{heard}");
}

#[test]
fn a_turn_can_claim_no_other_origin_than_its_own() {
    needs!("jq");
    let sandbox = family();
    let commands = "enqueue ada x --origin webhook:ci; enqueue ada x --origin channel; \
             enqueue ada x --origin operator; enqueue ada x --origin system:ada; \
             enqueue ada x --kind webhook_event; wake ada --source webhook:ci; \
             enqueue ada x --origin system:boss; wake ada --source boss; wake ada";
    let said = in_turn_of(&sandbox, "boss", commands);
    assert_eq!(said[..6], ["4 origin_not_allowed"; 6]);
    assert_eq!(said[6..], ["0"; 3]);
    sandbox.run(["tick", "ada", "--until-idle"]);
}

#[test]
fn a_private_agent_takes_messages_from_its_parent_and_no_other_agent() {
    needs!("jq");
    let sandbox = family();
    assert_eq!(in_turn_of(&sandbox, "ada", "enqueue kid x; wake kid"), ["4 private"; 2]);
    assert_eq!(in_turn_of(&sandbox, "boss", "enqueue kid x; wake kid"), ["0"; 2]);
    assert_eq!(in_turn_of(&sandbox, "kid", "enqueue kid x; enqueue boss x"), ["0"; 2]);
    sandbox.run(["enqueue", "kid", "from the operator"]);
    sandbox.run(["enqueue", "kid", "from a webhook, through the operator", "--origin", "webhook:ci"]);
    // An action in an outcome file has the same limits as a command.
    let outcome = r#"{"actions":[{"do":"enqueue","agent":"kid","text":"psst"}]}"#;
    fs::write(sandbox.home().join("outcome"), outcome).unwrap();
    add(&sandbox, "eve", COPY_OUTCOME);
    sandbox.run(["enqueue", "eve", "go"]);
    let step = only_object(&sandbox.cmd(["--json", "tick", "eve"]).exits(7).stdout);
    assert_eq!(
        step["terminal_reason"],
        "outcome file: $.actions[0]: `kid` is private: it takes no messages from `eve`, only from the operator, its parent `boss` and its triggers"
    );
}

/// The receiver of a committed message becomes private before a step can deliver the message.
#[test]
fn a_message_that_a_private_agent_refuses_at_delivery_is_reported_and_dropped() {
    needs!("jq");
    let sandbox = family();
    let outcome = r#"{"actions":[{"do":"enqueue","agent":"zoe","text":"psst"}]}"#;
    fs::write(sandbox.home().join("outcome"), outcome).unwrap();
    add(&sandbox, "zoe", "true");
    add(&sandbox, "eve", COPY_OUTCOME);
    while_unreachable(&sandbox, "zoe", || {
        sandbox.run(["enqueue", "eve", "go"]);
        sandbox.cmd(["tick", "eve"]).output().warns("is not delivered yet");
    });
    edit_file(&sandbox.agent("zoe").join("identity.json"), |text| text.replace("\"public\"", "\"private\""));
    sandbox.cmd(["tick", "eve"]).output().warns("`zoe` is private");
    assert_eq!(sandbox.json(["get", "zoe", "queue.pending"]), 0);
    let events = sandbox.json_lines(["events", "eve", "--kind", "message_rejected"]);
    assert_eq!(events[0]["data"]["to"], "zoe", "{events:?}");
    // No later step tries to deliver the refused message.
    sandbox.run(["tick", "eve"]);
}

#[test]
fn a_hook_may_control_every_agent() {
    needs!("jq");
    let sandbox = family();
    hook(&sandbox.agent("boss"), "on-scheduled", "\"$D\" stop ada > /dev/null");
    sandbox.run(["enqueue", "boss", "go"]);
    sandbox.run(["tick", "boss"]);
    assert_eq!(status_of(&sandbox, "ada"), "stopped");
    assert_eq!(sandbox.json(["get", "ada"])["lifecycle"]["stopped_by"]["kind"], "operator");
}

#[test]
fn a_turn_may_control_every_agent_of_another_state_directory() {
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
    assert_includes(&found, json!({ "status": "awake_idle", "identity.kind": "named" }));
}

#[test]
fn a_refusal_inside_a_turn_names_what_would_allow_the_command() {
    needs!("jq");
    let sandbox = family();
    let _ = in_turn_of(&sandbox, "boss", "stop ada; stop boss");
    let talk = fs::read_to_string(sandbox.home().join("talk")).unwrap();
    let expected = "dormouse: ada: this is a turn or task of `boss`: it can't stop `ada`, which is not its child\n\
                    hint: `lifecycle = \"all\"` below [authority] in the agent.toml of `boss` lets it\n\
                    dormouse: boss: this is a turn of `boss` itself: it can't stop its own agent\n\
                    hint: end the turn; then stop the agent from outside\n";
    assert_eq!(talk, expected);
    sandbox.cmd(["--json", "get", "nobody"]).fails(3, "no_agent");
}
