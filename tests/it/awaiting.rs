//! `await`: it blocks until agents have the posture or status that was asked for, misses no change, and ends
//! in time.

use std::process::Stdio;

use crate::harness::Sandbox;

fn agents() -> Sandbox {
    let sandbox = Sandbox::new();
    for name in ["ada", "bob"] {
        sandbox.run(["create", name, "--", "true"]);
        sandbox.run(["start", name]);
    }
    sandbox
}

#[test]
fn what_holds_already_is_said_at_once() {
    let sandbox = agents();
    assert_eq!(
        sandbox.run(["await", "ada", "bob", "--status", "awake_idle"]),
        "ada  awake_idle\nbob  awake_idle\n"
    );
    let found = sandbox.json(["await", "ada", "--posture", "idle", "--posture", "blocked"]);
    assert_eq!((found["agent"].as_str(), found["posture"].as_str()), (Some("ada"), Some("idle")));
    let id = sandbox.run(["enqueue", "ada", "x"]);
    sandbox.run(["tick", "ada"]);
    let found = sandbox.json(["await", "ada", "--message", id.trim()]);
    assert_eq!(
        (found["message_id"].as_str(), found["status"].as_str()),
        (Some(id.trim()), Some("processed"))
    );
    assert_eq!(
        sandbox.run(["await", "ada", "--message", id.trim(), "--posture", "idle"]),
        "ada  processed  idle\n"
    );
}

#[test]
fn each_is_said_as_it_gets_there() {
    let sandbox = agents();
    let id = sandbox.run(["enqueue", "ada", "x"]);
    for (flag, value) in [("--message", id.trim()), ("--status", "asleep"), ("--posture", "has_queued_input")]
    {
        let mut waiting = sandbox.cmd(["await", "ada", flag, value]).into_command();
        let child = waiting.stdout(Stdio::piped()).spawn().unwrap();
        // Whether it has begun to watch yet or not: the change is seen.
        sandbox.run(["tick", "ada", "--until-idle"]);
        if value == "has_queued_input" {
            sandbox.run(["enqueue", "ada", "y"]);
        }
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success());
        let said = String::from_utf8(ended.stdout).unwrap();
        assert!(said.starts_with("ada  "), "{said}");
    }
}

#[test]
fn the_time_ends() {
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
fn what_can_not_be_waited_for_is_refused() {
    let sandbox = agents();
    for (args, status) in [
        (vec!["await", "ada"], 2),
        (vec!["await", "--status", "asleep"], 2),
        (vec!["await", "ada", "--posture", "nonsense"], 2),
        (vec!["await", "ada", "bob", "--message", "abcd"], 2),
        (vec!["await", "ada", "--message", "abcd"], 3),
        (vec!["await", "nobody", "--status", "asleep"], 3),
    ] {
        assert_eq!(sandbox.cmd(args.clone()).output().code(), status, "{args:?}");
    }
}
