//! Tests `task input` from other machines than the one that runs the task.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::fleet::Machine;
use crate::server::server;
use crate::setup::{Beside, eventually, failure};

/// Starts an interactive task on a machine, whose command runs these lines.
fn task(machine: &Machine, lines: &str) -> String {
    machine.id(["task", "start", "-a", "ada", "--interactive", "--", "sh", "-c", lines])
}

/// Returns the number of inputs that no task has read yet.
fn waiting(schema: &str) -> String {
    server().sql(&format!("SELECT count(*) FROM {schema}.task_input")).remove(0)
}

#[test]
fn a_task_reads_input_from_any_machine() {
    needs!("postgresql");
    let schema = "told_task";
    let [one, other] = Machine::two(schema);
    let lines = "read a; echo 1 $a; read b; echo 2 $b; head -c 300000 | cksum; read c; echo 3 $c";
    let id = task(&one, lines);
    let told = other.json(["task", "input", &id, "from there"]);
    assert_eq!((&told["bytes"], &told["task_id"]), (&json!(11), &json!(id)));
    one.run(["task", "input", &id, "from here"]);
    let much = "0123456789".repeat(30_000);
    let ran = other.cmd(["task", "input", &id, "-"]).stdin(much.as_str()).output();
    assert_eq!((ran.code(), ran.stdout.trim_end()), (0, "wrote 300000 bytes"), "{ran}");
    other.run(["task", "input", &id, "the end"]);
    assert_eq!(other.ended_task(&id)["status"], "completed");
    let said = one.run(["task", "output", &id]);
    let file = one.sandbox.root().join("much");
    fs::write(&file, &much).unwrap();
    let sum = Command::new("cksum").stdin(fs::File::open(file).unwrap()).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    assert_eq!(said, format!("1 from there\n2 from here\n{sum}3 the end\n"));
    assert_eq!(waiting(schema), "0");
    // A task that has ended, that is not interactive, or that has closed its stdin takes no input.
    let refused = |id: &str, text: &str, kind: &str| {
        failure(&other.cmd(["--json", "task", "input", id, text]).fails(4, kind))
    };
    refused(&id, "late", "task_ended");
    let silent = one.id(["task", "start", "-a", "ada", "--", "sleep", "1000"]);
    refused(&silent, "x", "not_interactive");
    let closed = task(&one, "exec <&-; echo closed; exec sleep 1000");
    eventually("closed its stdin", || one.run(["task", "output", &closed]).contains("closed").then_some(()));
    let why = refused(&closed, "x", "nobody_listens");
    assert!(why["message"].as_str().unwrap().contains("took 0 of 2 bytes"), "{why}");
    assert_eq!(waiting(schema), "0");
    for id in [&closed, &silent] {
        other.run(["task", "stop", id, "--grace", "0s"]);
    }
}

/// `task input` fails if the task ends before it has read all of the input.
#[test]
fn input_for_a_task_that_ends_meanwhile_fails() {
    needs!("postgresql");
    let schema = "told_ended";
    let [one, other] = Machine::two(schema);
    let id = task(&one, "read a; echo $a; exec sleep 1000");
    let much = other.sandbox.root().join("much");
    fs::write(&much, "x\n".repeat(500_000)).unwrap();
    let much = format!("@{}", much.display());
    let speaker = Beside::start(other.cmd(["--lock-timeout", "100s", "task", "input", &id, &much]));
    eventually("the task has read a line", || (one.run(["task", "output", &id]) == "x\n").then_some(()));
    one.run(["task", "stop", &id, "--grace", "0s"]);
    speaker.end().exits(4).warns("it ended, or its supervisor, when it had taken");
    assert_eq!(waiting(schema), "0");
    assert_eq!(other.ended_task(&id)["status"], "cancelled");
}
