//! Tests that the files of killed commands are removed, and the files of running commands are not.

use std::fs;
use std::path::Path;

use crate::checker;
use crate::harness::{Sandbox, each_in_parallel};
use crate::paused::{Held, call};
use crate::setup::{add, names, objects, say, started};
use crate::strace::{self, Harm};

/// Returns the names in the agent's `tmp/`, without lock files.
fn left(agent: &Path) -> Vec<String> {
    let mut left = names(&agent.join("tmp"));
    left.retain(|name| !name.ends_with(".lock"));
    left
}

/// Wakes `ada` and runs steps until it has nothing to do.
fn rest(sandbox: &Sandbox) {
    sandbox.cmd(["wake", "ada", "--reason", "look"]).output();
    let ran = sandbox.cmd(["tick", "ada", "--until-idle", "-q"]).output();
    assert!([0, 7].contains(&ran.code()), "{ran}");
}

#[test]
fn an_idle_step_removes_stale_files_of_a_command_killed_at_any_call() {
    needs!("strace");
    let idle = started("true");
    rest(&idle);
    let queued = idle.copy();
    say(&queued, "hello");
    let cases: &[(&Sandbox, &[&str], &str)] = &[
        (&idle, &["enqueue", "ada", "hello"], ""),
        (&idle, &["enqueue", "ada", "--batch"], "{\"text\":\"a\"}\n{\"text\":\"b\"}\n"),
        (&idle, &["wake", "ada"], ""),
        (&idle, &["create", "bob", "--shell", "true"], ""),
        (&queued, &["tick", "ada"], ""),
    ];
    let mut cuts = Vec::new();
    for (template, words, stdin) in cases {
        for point in strace::record(&template.copy(), words, stdin).points() {
            cuts.push((*template, *words, *stdin, point));
        }
    }
    assert!(cuts.len() > 50, "{}", cuts.len());
    each_in_parallel(&cuts, |(template, words, stdin, point)| {
        let sandbox = template.copy();
        strace::harm(&sandbox, words, stdin, point, Harm::Kill);
        rest(&sandbox);
        let agent = sandbox.agent("ada");
        assert_eq!(left(&agent), Vec::<String>::new(), "{words:?} killed at {point}");
        // `create` removes the temporary directories that a killed `create` left.
        sandbox.run(["create", "cyd", "--shell", "true"]);
        let agents = names(&sandbox.store().join("agents"));
        assert!(agents.iter().all(|name| !name.starts_with('.')), "{words:?} killed at {point}: {agents:?}");
        let ran = sandbox.cmd(["doctor"]).output();
        assert_eq!(ran.stdout.lines().count(), 1, "{words:?} killed at {point}: {ran}");
    });
}

#[test]
fn temporary_files_of_a_running_command_are_not_removed() {
    needs!("strace");
    let template = started("true");
    let words = ["enqueue", "ada", "hello"];
    let calls = strace::record(&template.copy(), &words, "").calls;
    let is_of_message = |call: &&strace::Call| call.rest.contains("msg_") && !call.name.starts_with("exit");
    for point in calls.iter().filter(is_of_message) {
        let sandbox = template.copy();
        let first = Held::at(&sandbox, &words, "", point);
        rest(&sandbox);
        sandbox.cmd(["doctor", "--repair", "-q"]).output();
        let first = first.go_on();
        assert_eq!(first.code(), 0, "held at {point}: {first}");
        rest(&sandbox);
        let found = checker::look(&sandbox.agent("ada"));
        assert_eq!(found.ended_as(first.stdout.trim()), Some("processed"), "held at {point}");
        assert_eq!(left(&sandbox.agent("ada")), Vec::<String>::new());
    }
}

#[test]
fn an_agent_that_create_is_making_is_not_removed() {
    needs!("strace");
    let template = started("true");
    let words = ["create", "bob", "--shell", "true"];
    let calls = strace::record(&template.copy(), &words, "").calls;
    for name in ["identity.json", "state.json"] {
        let sandbox = template.copy();
        let first = Held::at(&sandbox, &words, "", call(&calls, "open", name));
        add(&sandbox, "cyd", "true");
        sandbox.cmd(["doctor", "--repair", "-q"]).output();
        assert_eq!(first.go_on().code(), 0);
        sandbox.run(["get", "bob"]);
    }
}

#[test]
fn doctor_reports_stale_files_and_repair_removes_them() {
    let sandbox = started("true");
    let tmp = sandbox.agent("ada").join("tmp");
    fs::write(tmp.join("2-msg_0.json"), "{").unwrap();
    fs::create_dir(tmp.join("batch-0")).unwrap();
    fs::write(tmp.join("batch-0/x"), "").unwrap();
    fs::create_dir(tmp.join("hook-0")).unwrap();
    fs::create_dir_all(sandbox.store().join("agents/.new-eve-1/inbox")).unwrap();
    fs::write(sandbox.store().join(".gitignore.new-1"), "").unwrap();
    let kinds = |words: &[&str]| {
        let ran = sandbox.cmd(words.iter().copied()).exits(0);
        let mut lines = objects(&ran.stdout);
        lines.pop();
        lines.iter().filter(|line| line["kind"] == "stale_files").count()
    };
    assert_eq!(kinds(&["doctor", "--json"]), 3);
    assert_eq!(kinds(&["doctor", "--json", "--repair"]), 3);
    assert_eq!(kinds(&["doctor", "--json"]), 0);
    assert_eq!(left(&sandbox.agent("ada")), Vec::<String>::new());
    assert!(!sandbox.store().join("agents/.new-eve-1").exists());
}
