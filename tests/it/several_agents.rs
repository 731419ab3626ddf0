//! Tests commands for several agents: an agent that fails stops no other, and the last line of JSON
//! is the most severe error (contract, cli §1).

use std::fs;

use crate::harness::Sandbox;
use crate::setup::{add, objects, started};

/// Returns agents `ada` and `eve`, and `bob`, whose state can't be read. No agent is called `nope`.
fn three() -> Sandbox {
    let sandbox = started("true");
    for name in ["bob", "eve"] {
        add(&sandbox, name, "true");
    }
    fs::write(sandbox.agent("bob").join("state.json"), "{").unwrap();
    sandbox
}

#[test]
fn the_last_line_is_the_most_severe_error() {
    for command in [
        &["stop"][..],
        &["next-wake"],
        &["tick"],
        &["tick", "--jobs", "2"],
        &["tick", "--until-idle"],
        &["events"],
        &["briefs"],
        &["usage"],
        &["gc"],
        &["queue", "list"],
        &["queue", "dead"],
        &["run", "list"],
        &["task", "list"],
    ] {
        let sandbox = three();
        for agents in
            [&["nope", "bob", "ada"][..], &["ada", "bob", "nope"], &["bob", "nope", "eve"], &["nope", "ada"]]
        {
            let ran = sandbox.cmd([&["--json"], command, agents].concat()).output();
            let lines = objects(&ran.stdout);
            let errors = lines.iter().filter(|line| line["error"].is_object()).count();
            let failing = agents.iter().filter(|name| ["nope", "bob"].contains(name)).count();
            let about = format!("{command:?} {agents:?}: {ran}");
            assert_eq!(errors, failing, "{about}");
            let (most_severe, status) = if failing > 1 { ("bob", 6) } else { ("nope", 3) };
            let last = &lines[lines.len() - 1]["error"];
            assert_eq!((&last["agent"], ran.code()), (&most_severe.into(), status), "{about}");
        }
    }
}

#[test]
fn the_supervisor_of_a_task_answers_in_json_too() {
    let sandbox = started("true");
    let ran = sandbox.cmd(["--json", "supervise", "ada", "x"]).output();
    let error = &objects(&ran.stdout)[0]["error"];
    assert_eq!((ran.code(), &error["kind"], &error["exit_status"]), (2, &"usage".into(), &2.into()), "{ran}");
}
