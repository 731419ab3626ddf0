//! Tasks that are told something from other machines than their own.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::fleet::Machine;
use crate::server::server;
use crate::setup::{Beside, eventually, objects};

/// Two machines of one store with the agent `ada`.
fn two(schema: &str) -> [Machine; 2] {
    let url = server().url(schema);
    [Machine::new(&url, None).with_ada("echo done"), Machine::new(&url, None)]
}

/// An interactive task on a machine, whose command runs these lines.
fn task(machine: &Machine, lines: &str) -> String {
    let id = machine.run(["task", "start", "-a", "ada", "--interactive", "--", "sh", "-c", lines]);
    id.trim_end().to_owned()
}

fn ends(machine: &Machine, task: &str) -> String {
    eventually("the end of the task", || {
        let shown = machine.json(["task", "status", task]);
        shown["ended_at"].is_string().then(|| shown["status"].as_str().unwrap().to_owned())
    })
}

fn waiting(schema: &str) -> String {
    server().sql(&format!("SELECT count(*) FROM {schema}.task_input")).remove(0)
}

#[test]
fn a_task_is_told_something_from_any_machine() {
    needs!("postgresql");
    let schema = "told_task";
    let [one, other] = two(schema);
    // It asks, and goes on when it is answered.
    let lines = "read a; echo 1 $a; read b; echo 2 $b; head -c 300000 | cksum; read c; echo 3 $c";
    let id = task(&one, lines);
    let told = other.json(["task", "input", &id, "from there"]);
    assert_eq!((&told["bytes"], &told["task_id"]), (&json!(11), &json!(id)));
    one.run(["task", "input", &id, "from here"]);
    let much = "0123456789".repeat(30_000);
    let ran = other.cmd(["task", "input", &id, "-"]).stdin(much.as_str()).output();
    assert_eq!((ran.code(), ran.stdout.trim_end()), (0, "wrote 300000 bytes"), "{ran}");
    other.run(["task", "input", &id, "the end"]);
    assert_eq!(ends(&other, &id), "completed");
    let said = one.run(["task", "output", &id]);
    let file = one.sandbox.root().join("much");
    fs::write(&file, &much).unwrap();
    let sum = Command::new("cksum").stdin(fs::File::open(file).unwrap()).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    assert_eq!(said, format!("1 from there\n2 from here\n{sum}3 the end\n"));
    assert_eq!(waiting(schema), "0");
    // It has ended, it takes none, it does not listen.
    let refused = |args: &[&str], kind: &str| {
        let ran = other.cmd(["--json", "task", "input"].iter().chain(args).copied()).output();
        let error = &objects(&ran.stdout)[0]["error"];
        assert_eq!((ran.code(), error["kind"].as_str()), (4, Some(kind)), "{args:?}: {ran}");
        error["message"].as_str().unwrap().to_owned()
    };
    refused(&[&id, "late"], "task_ended");
    let deaf = one.run(["task", "start", "-a", "ada", "--", "sleep", "1000"]);
    refused(&[deaf.trim_end(), "x"], "not_interactive");
    let closed = task(&one, "exec <&-; echo closed; exec sleep 1000");
    eventually("closed its stdin", || one.run(["task", "output", &closed]).contains("closed").then_some(()));
    let why = refused(&[&closed, "x"], "nobody_listens");
    assert!(why.contains("took 0 of 2 bytes"), "{why}");
    assert_eq!(waiting(schema), "0");
    other.run(["task", "stop", &closed, "--grace", "0s"]);
    other.run(["task", "stop", deaf.trim_end(), "--grace", "0s"]);
}

/// What a task has not read when it ends was not said, and whoever said it is told.
#[test]
fn whoever_speaks_to_a_task_that_ends_is_told() {
    needs!("postgresql");
    let schema = "told_ended";
    let [one, other] = two(schema);
    let id = task(&one, "read a; echo $a; exec sleep 1000");
    let much = other.sandbox.root().join("much");
    fs::write(&much, "x\n".repeat(500_000)).unwrap();
    let much = format!("@{}", much.display());
    let speaker = Beside::start(other.cmd(["--lock-timeout", "100s", "task", "input", &id, &much]));
    eventually("some of it is read", || (one.run(["task", "output", &id]) == "x\n").then_some(()));
    one.run(["task", "stop", &id, "--grace", "0s"]);
    let ran = speaker.end();
    assert!(
        ran.code() == 4 && ran.stderr.contains("it ended, or its supervisor, when it had taken"),
        "{ran}"
    );
    assert_eq!(waiting(schema), "0");
    assert_eq!(ends(&other, &id), "cancelled");
}
