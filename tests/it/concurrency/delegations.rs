//! Tests that a message to another agent arrives once if several processes deliver it at once.

use std::fs;
use std::process::Child;

use serde_json::json;

use super::{AGENT, is_sound, run, spawn};
use crate::checker;
use crate::harness::Sandbox;
use crate::setup::{eventually, hook, started, wait_for};

/// Parent whose delegation is being handed over: the startup hook of the child waits for `home/go`.
struct Starting {
    sandbox: Sandbox,
    /// `task start`, and commands that run at the same time.
    commands: Vec<Child>,
    task: String,
}

impl Starting {
    fn new() -> Starting {
        let sandbox = started("true").with_real_clock();
        sandbox.run(["tick", AGENT, "--until-idle"]);
        let script = r#"echo >> "$HOME/starts"; until test -e "$HOME/go"; do sleep 0.02; done"#;
        hook(&sandbox.store(), "on-startup", script);
        let command = spawn(&sandbox, "task start -a ada --delegate kid hello");
        wait_for(&sandbox.home().join("starts"));
        let task = sandbox.json(["task", "list", "-a", AGENT])["id"].as_str().unwrap().to_owned();
        Starting { sandbox, commands: vec![command], task }
    }

    /// Lets the startup hook and all commands end. Checks the task and the child's queue.
    fn ends_with(self, status: &str, messages: usize) -> Sandbox {
        fs::write(self.sandbox.home().join("go"), "").unwrap();
        for command in self.commands {
            let output = command.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        }
        assert_eq!(self.sandbox.json(["task", "status", &self.task])["status"], status);
        assert_eq!(checker::look(&self.sandbox.agent("kid")).queued.len(), messages);
        is_sound(&self.sandbox);
        self.sandbox
    }
}

#[test]
fn a_tick_during_a_handover_does_not_hand_the_delegation_over_again() {
    needs!("strace");
    let starting = Starting::new();
    run(&starting.sandbox, "tick ada", &[0]);
    let sandbox = starting.ends_with("running", 1);
    assert_eq!(fs::read_to_string(sandbox.home().join("starts")).unwrap(), "\n");
}

#[test]
fn a_child_that_another_command_starts_during_the_handover_gets_its_message() {
    needs!("strace");
    let starting = Starting::new();
    fs::remove_file(starting.sandbox.store().join("hooks/on-startup")).unwrap();
    run(&starting.sandbox, "start kid", &[0]);
    starting.ends_with("running", 1);
}

#[test]
fn a_delegation_that_is_stopped_during_the_handover_leaves_its_child_no_message() {
    let mut starting = Starting::new();
    starting.commands.push(spawn(&starting.sandbox, &format!("task stop {}", starting.task)));
    eventually("the task is marked as cancelled", || {
        let task = starting.sandbox.json(["task", "status", &starting.task]);
        (task["status"] != "queued").then_some(())
    });
    starting.ends_with("cancelled", 0);
}

/// Several ticks of the sender may deliver one message while the receiver already processes it.
#[test]
fn a_message_that_many_ticks_deliver_at_once_arrives_once() {
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
