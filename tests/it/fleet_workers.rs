//! Tests the persistent workers of `tick --follow`, which keep their database connection and step
//! one agent after the other.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::fleet::Machine;
use crate::server::server;
use crate::setup::{Beside, eventually};

/// Machine with these agents. Each turn writes the process id of its step and `$MARK` to the file
/// `steps`.
fn machine(schema: &str, agents: &[&str]) -> Machine {
    let machine = Machine::new(&server().url(schema), None);
    machine.run(["init"]);
    let turn = "echo $PPID ${MARK-unmarked} >> \"$HOME/steps\"; case \"$(cat)\" in *hold*) while ! test -e \"$HOME/go\"; do sleep 0.02; done;; \
                *fail*) exit 3;; esac";
    agents.iter().for_each(|agent| machine.add(agent, turn));
    machine
}

/// Returns the ids of the processes that have made steps, in order.
fn steps(machine: &Machine) -> Vec<i32> {
    let noted = fs::read_to_string(machine.sandbox.home().join("steps")).unwrap_or_default();
    noted.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
}

/// Waits for this number of steps, and returns the ids of their processes.
fn stepped(machine: &Machine, count: usize) -> Vec<i32> {
    eventually("the steps", || Some(steps(machine)).filter(|steps| steps.len() >= count))
}

/// Adds lines to the settings, atomically, because a step may be reading the file.
fn add_settings(machine: &Machine, more: &str) {
    let path = machine.anchor().join("dormouse.toml");
    let before = fs::read_to_string(&path).unwrap();
    let new = machine.sandbox.home().join("new.toml");
    fs::write(&new, format!("{before}\n{more}\n")).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn one_worker_makes_many_steps_and_ends_with_its_follower() {
    needs!("postgresql");
    let machine = machine("workers_many", &["ada", "bob"]);
    let follower = Beside::start(machine.cmd(["tick", "--all", "--follow"]));
    for round in 1..=3 {
        machine.run(["enqueue", "ada", "work"]);
        machine.run(["enqueue", "bob", if round == 2 { "fail" } else { "work" }]);
        stepped(&machine, round * 2);
    }
    let by: BTreeSet<i32> = steps(&machine).into_iter().collect();
    assert_eq!(by.len(), 1, "the worker was replaced after a failed turn: {by:?}");
    let worker = Pid::from_raw(*by.first().unwrap()).unwrap();
    kill_process(Pid::from_raw(follower.0.id() as i32).unwrap(), Signal::TERM).unwrap();
    let ended = follower.end();
    assert_eq!(ended.status.code(), Some(0), "{ended}");
    let is_of_a_step = |line: &str| line.starts_with("ada  start_") || line.starts_with("bob  start_");
    assert!(ended.stdout.lines().count() >= 6 && ended.stdout.lines().all(is_of_a_step), "{ended}");
    eventually("the end of the worker", || kill_process(worker, Signal::CONT).is_err().then_some(()));
}

#[test]
fn a_tick_has_no_more_workers_than_jobs() {
    needs!("postgresql");
    let names = ["a", "b", "c", "d", "e", "f"];
    let machine = machine("workers_few", &names);
    for name in names {
        machine.run(["enqueue", name, "one"]);
    }
    let told = machine.json_lines(["tick", "--all", "--jobs", "2"]);
    assert_eq!(told.len(), 6);
    let by: BTreeSet<i32> = steps(&machine).into_iter().collect();
    assert!(by.len() <= 2, "{by:?}");
}

/// After the loss of a worker or its connection, another process or another connection makes the
/// next steps.
#[test]
fn a_worker_may_be_killed_and_its_connection_cut_at_any_time() {
    needs!("postgresql");
    let machine = machine("workers_killed", &["ada", "bob"]);
    let _follower = Beside::start(machine.cmd(["tick", "--all", "--follow"]));
    machine.run(["enqueue", "ada", "one"]);
    let first = stepped(&machine, 1)[0];
    machine.until_processed("ada", 1);
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    machine.run(["enqueue", "bob", "two"]);
    let second = stepped(&machine, 2)[1];
    assert_ne!(first, second);
    machine.until_processed("bob", 1);
    // The server closes all connections to the store, including that of the follower.
    server().sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%workers_killed%' AND pid <> pg_backend_pid()",
    );
    machine.run(["enqueue", "ada", "three"]);
    assert_eq!(stepped(&machine, 3)[2], second, "the same process has connected again");
    // A worker is killed during a turn, so another worker runs the turn again.
    machine.run(["enqueue", "bob", "hold"]);
    let holder = stepped(&machine, 4)[3];
    kill_process(Pid::from_raw(holder).unwrap(), Signal::KILL).unwrap();
    fs::write(machine.sandbox.home().join("go"), "").unwrap();
    machine.until_processed("bob", 2);
    assert_eq!(steps(&machine).len(), 5);
}

/// Each step of a worker reads the settings again, and a lost lease affects only its own step.
#[test]
fn a_worker_keeps_no_state_between_steps() {
    needs!("postgresql");
    let machine = machine("workers_fresh", &["ada", "bob"]);
    let _follower = Beside::start(machine.cmd(["tick", "--all", "--follow"]).env("MARK", "marked"));
    machine.run(["enqueue", "ada", "one"]);
    let first = stepped(&machine, 1)[0];
    machine.until_processed("ada", 1);
    add_settings(&machine, "[defaults.turn]\ninherit_env = [\"PATH\", \"HOME\"]");
    machine.run(["enqueue", "ada", "two"]);
    stepped(&machine, 2);
    let noted = fs::read_to_string(machine.sandbox.home().join("steps")).unwrap();
    assert_eq!(noted, format!("{first} marked\n{first} unmarked\n"), "one process makes both steps");
    // The worker loses the lease of a step; it can still make the next steps.
    machine.run(["enqueue", "bob", "hold"]);
    stepped(&machine, 3);
    server().sql("UPDATE workers_fresh.lease SET fence = fence + 1, anchor = 'other', expires_at = 0");
    fs::write(machine.sandbox.home().join("go"), "").unwrap();
    // No other machine has started the turn again, so the next step settles its result.
    machine.until_processed("bob", 1);
    machine.run(["enqueue", "bob", "last"]);
    machine.until_processed("bob", 2);
    assert_ne!(steps(&machine)[3], first, "another process makes the step");
}
