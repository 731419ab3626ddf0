//! A message to another agent that several processes deliver at once arrives once.

use std::fs;

use serde_json::json;

use super::{AGENT, is_sound, run, spawn};
use crate::checker;
use crate::harness::Sandbox;
use crate::setup::{eventually, hook, wait_for};

/// A parent whose child is being started: the hook waits for `home/go`.
struct Starting {
    sandbox: Sandbox,
    command: std::process::Child,
    task: String,
}

impl Starting {
    fn new() -> Starting {
        let sandbox = Sandbox::new().with_real_clock();
        sandbox.run(["create", AGENT, "--shell", "true"]);
        sandbox.run(["start", AGENT]);
        sandbox.run(["tick", AGENT, "--until-idle"]);
        let script = r#"echo >> "$HOME/starts"; until test -e "$HOME/go"; do sleep 0.02; done"#;
        hook(&sandbox.store(), "on-startup", script);
        let command = spawn(&sandbox, "task start -a ada --delegate kid hello");
        wait_for(&sandbox.home().join("starts"));
        let task = sandbox.json(["task", "list", "-a", AGENT])["id"].as_str().unwrap().to_owned();
        Starting { sandbox, command, task }
    }

    /// Lets the hook come to its end, and with it the command.
    fn go_on(self) -> Sandbox {
        fs::write(self.sandbox.home().join("go"), "").unwrap();
        let output = self.command.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        self.sandbox
    }
}

fn queued(sandbox: &Sandbox) -> usize {
    checker::look(&sandbox.agent("kid")).queued.len()
}

#[test]
fn of_two_who_hand_a_delegation_over_one_does() {
    needs!("strace");
    let starting = Starting::new();
    // It finds the task still to be handed over, and somebody at it.
    run(&starting.sandbox, "tick ada", &[0]);
    let task = starting.task.clone();
    let sandbox = starting.go_on();
    assert_eq!(sandbox.json(["task", "status", &task])["status"], "running");
    assert_eq!(fs::read_to_string(sandbox.home().join("starts")).unwrap(), "\n");
    assert_eq!(queued(&sandbox), 1);
    is_sound(&sandbox);
}

#[test]
fn a_child_that_somebody_else_starts_meanwhile_is_given_its_message() {
    needs!("strace");
    let starting = Starting::new();
    fs::remove_file(starting.sandbox.store().join("hooks/on-startup")).unwrap();
    run(&starting.sandbox, "start kid", &[0]);
    let task = starting.task.clone();
    let sandbox = starting.go_on();
    assert_eq!(sandbox.json(["task", "status", &task])["status"], "running");
    assert_eq!(queued(&sandbox), 1);
    is_sound(&sandbox);
}

#[test]
fn a_delegation_that_is_stopped_while_it_is_handed_over_leaves_its_child_nothing_to_do() {
    let starting = Starting::new();
    let task = starting.task.clone();
    let stop = spawn(&starting.sandbox, &format!("task stop {task}"));
    eventually("the task is to end", || {
        let task = starting.sandbox.json(["task", "status", &task]);
        (task["status"] != "queued").then_some(())
    });
    let sandbox = starting.go_on();
    assert_eq!(stop.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(sandbox.json(["task", "status", &task])["status"], "cancelled");
    assert_eq!(queued(&sandbox), 0);
    is_sound(&sandbox);
}

/// Whoever delivers again what was delivered already comes too late, also while it is taken up.
#[test]
fn of_many_who_deliver_a_message_one_does() {
    needs!("strace");
    const ROUNDS: usize = 10;
    let sandbox = Sandbox::in_memory().with_real_clock();
    sandbox.run(["init"]);
    let turn =
        r#"echo '{"actions": [{"do": "enqueue", "agent": "bob", "text": "hello"}]}' > "$DORMOUSE_OUTCOME""#;
    sandbox.run(["create", AGENT, "--shell", turn]);
    sandbox.run(["create", "bob", "--shell", "true"]);
    sandbox.run(["start", AGENT, "bob"]);
    for _ in 0..ROUNDS {
        sandbox.run(["enqueue", AGENT, "hello"]);
        std::thread::scope(|scope| {
            for line in ["tick ada", "tick ada", "tick ada", "tick bob --until-idle", "tick bob --until-idle"]
            {
                scope.spawn(|| run(&sandbox, line, &[0]));
            }
        });
    }
    run(&sandbox, "tick --all --until-idle", &[0]);
    is_sound(&sandbox);
    let found = checker::look(&sandbox.agent("bob"));
    assert!(found.complaints.is_empty(), "{:#?}", found.complaints);
    assert_eq!((found.queued.len(), found.archived.len()), (0, ROUNDS));
    assert_eq!(found.state["counters"]["turns"], json!(ROUNDS));
}
