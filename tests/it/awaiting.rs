//! Tests that `await` blocks until agents have a status or posture, or until its timeout ends.

use serde_json::json;

use crate::harness::Sandbox;
use crate::setup::{Beside, add, assert_includes, say, started};

fn agents() -> Sandbox {
    let sandbox = started("true");
    add(&sandbox, "bob", "true");
    sandbox
}

#[test]
fn await_returns_at_once_if_the_condition_is_true_already() {
    let sandbox = agents();
    let both = sandbox.run(["await", "ada", "bob", "--status", "awake_idle"]);
    assert_eq!(both, "ada  awake_idle\nbob  awake_idle\n");
    let found = sandbox.json(["await", "ada", "--posture", "idle", "--posture", "blocked"]);
    assert_includes(&found, json!({ "agent": "ada", "posture": "idle" }));
    let id = say(&sandbox, "x");
    sandbox.run(["tick", "ada"]);
    let found = sandbox.json(["await", "ada", "--message", &id]);
    assert_includes(&found, json!({ "message_id": id, "status": "processed" }));
    let text =
        sandbox.run(["await", "ada", "--status", "asleep", "--status", "awake_idle", "--posture", "idle"]);
    assert_eq!(text, "ada  awake_idle  idle\n");
}

#[test]
fn await_returns_when_a_tick_makes_the_condition_true() {
    let sandbox = agents();
    let id = say(&sandbox, "x");
    for (flag, value) in [("--message", &*id), ("--status", "asleep"), ("--posture", "has_queued_input")] {
        let waiting = Beside::start(sandbox.cmd(["await", "ada", flag, value]));
        // `await` must return whether the tick runs before or after its first read.
        sandbox.run(["tick", "ada", "--until-idle"]);
        if value == "has_queued_input" {
            sandbox.run(["enqueue", "ada", "y"]);
        }
        let ran = waiting.end().exits(0);
        if flag == "--message" {
            assert_eq!(ran.stdout, "", "it prints the brief, which this turn does not have");
        } else {
            assert!(ran.stdout.starts_with("ada  "), "{ran}");
        }
    }
}

#[test]
fn await_exits_with_8_when_the_timeout_ends() {
    let sandbox = agents();
    sandbox
        .cmd(["await", "ada", "bob", "--status", "stopped", "--timeout", "50ms"])
        .status(8)
        .complains(
            "dormouse: timed out after 50ms, waiting for ada, bob\nhint: `dormouse explain ada` shows what would wake it, `dormouse tick ada` runs its next step\n",
        );
    let ran = sandbox.cmd(["--json", "await", "ada", "--status", "stopped", "--timeout", "0"]).exits(8);
    assert!(ran.stdout.contains(r#""kind":"timed_out""#), "{}", ran.stdout);
}

#[test]
fn await_refuses_incomplete_lines_and_unknown_agents_and_messages() {
    let sandbox = agents();
    for (args, status) in [
        (vec!["await", "ada"], 2),
        (vec!["await", "--status", "asleep"], 2),
        (vec!["await", "ada", "--posture", "nonsense"], 2),
        (vec!["await", "ada", "bob", "--message", "abcd"], 2),
        (vec!["await", "ada", "--message", "abcd", "--posture", "idle"], 2),
        (vec!["await", "ada", "--message", "abcd"], 3),
        (vec!["await", "nobody", "--status", "asleep"], 3),
    ] {
        assert_eq!(sandbox.cmd(args.clone()).output().code(), status, "{args:?}");
    }
}
