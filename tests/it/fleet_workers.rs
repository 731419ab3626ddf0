//! Who follows the agents of a database steps them by processes that keep their connection: one step after the other, each as
//! if a process had just begun.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::fleet::Machine;
use crate::server::server;
use crate::setup::{Beside, eventually};

/// A machine with these agents, whose turns note their message and the process that has made the step.
fn machine(schema: &str, agents: &[&str]) -> Machine {
    let machine = Machine::new(&server().url(schema), None);
    machine.run(["init"]);
    let turn = "echo $PPID ${MARK-unmarked} >> \"$HOME/steps\"; case \"$(cat)\" in *hold*) while ! test -e \"$HOME/go\"; do sleep 0.02; done;; \
                *fail*) exit 3;; esac";
    for agent in agents {
        machine.run(["create", agent, "--shell", turn]);
        machine.run(["start", agent]);
    }
    machine
}

/// The processes that have made steps, in order.
fn steps(machine: &Machine) -> Vec<i32> {
    let noted = fs::read_to_string(machine.sandbox.home().join("steps")).unwrap_or_default();
    noted.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
}

fn stepped(machine: &Machine, count: usize) -> Vec<i32> {
    eventually("the steps", || Some(steps(machine)).filter(|steps| steps.len() >= count))
}

/// At once: a step that finds nothing more to do may be reading them.
fn add_settings(machine: &Machine, more: &str) {
    let path = machine.anchor().join("dormouse.toml");
    let before = fs::read_to_string(&path).unwrap();
    let new = machine.sandbox.home().join("new.toml");
    fs::write(&new, format!("{before}\n{more}\n")).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn one_process_makes_many_steps_and_lives_no_longer_than_its_follower() {
    needs!("postgresql");
    let machine = machine("workers_many", &["ada", "bob"]);
    let follower = Beside::start(machine.cmd(["tick", "--all", "--follow"]));
    for round in 1..=3 {
        machine.run(["enqueue", "ada", "work"]);
        machine.run(["enqueue", "bob", if round == 2 { "fail" } else { "work" }]);
        stepped(&machine, round * 2);
    }
    let by: BTreeSet<i32> = steps(&machine).into_iter().collect();
    assert_eq!(by.len(), 1, "a turn that fails is no reason to begin anew: {by:?}");
    let worker = Pid::from_raw(*by.first().unwrap()).unwrap();
    kill_process(Pid::from_raw(follower.0.id() as i32).unwrap(), Signal::TERM).unwrap();
    let ended = follower.end();
    assert_eq!(ended.status.code(), Some(0), "{ended}");
    let is_of_a_step = |line: &str| line.starts_with("ada  start_") || line.starts_with("bob  start_");
    assert!(ended.stdout.lines().count() >= 6 && ended.stdout.lines().all(is_of_a_step), "{ended}");
    eventually("the end of the worker", || kill_process(worker, Signal::CONT).is_err().then_some(()));
}

#[test]
fn several_at_once_are_no_more_processes_than_jobs() {
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

/// Whatever ends a worker or its connection: the steps after that are made by another process or over another connection.
#[test]
fn a_worker_may_be_killed_and_its_connection_cut_at_any_time() {
    needs!("postgresql");
    let machine = machine("workers_killed", &["ada", "bob"]);
    let _follower = Beside::start(machine.cmd(["tick", "--all", "--follow"]));
    machine.run(["enqueue", "ada", "one"]);
    let first = stepped(&machine, 1)[0];
    eventually("the end of the step", || {
        (machine.json(["get", "ada"])["counters"]["messages_processed"] == 1).then_some(())
    });
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    machine.run(["enqueue", "bob", "two"]);
    let second = stepped(&machine, 2)[1];
    assert_ne!(first, second);
    eventually("the end of the step", || {
        (machine.json(["get", "bob"])["counters"]["messages_processed"] == 1).then_some(())
    });
    // The server ends every connection of the store, that of the follower, too.
    server().sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%workers_killed%' AND pid <> pg_backend_pid()",
    );
    machine.run(["enqueue", "ada", "three"]);
    assert_eq!(stepped(&machine, 3)[2], second, "the same process has connected again");
    // In the middle of a turn: the turn is taken for lost, and made once more.
    machine.run(["enqueue", "bob", "hold"]);
    let holder = stepped(&machine, 4)[3];
    kill_process(Pid::from_raw(holder).unwrap(), Signal::KILL).unwrap();
    fs::write(machine.sandbox.home().join("go"), "").unwrap();
    eventually("the message has been dealt with", || {
        (machine.json(["get", "bob"])["counters"]["messages_processed"] == 2).then_some(())
    });
    assert_eq!(steps(&machine).len(), 5);
}

/// A step is made by the settings as they are when it begins, and what was wrong with one is not kept for the next.
#[test]
fn a_step_knows_nothing_of_the_one_before() {
    needs!("postgresql");
    let machine = machine("workers_fresh", &["ada", "bob"]);
    let _follower = Beside::start(machine.cmd(["tick", "--all", "--follow"]).env("MARK", "marked"));
    machine.run(["enqueue", "ada", "one"]);
    let first = stepped(&machine, 1)[0];
    eventually("the end of the step", || {
        (machine.json(["get", "ada"])["counters"]["messages_processed"] == 1).then_some(())
    });
    add_settings(&machine, "[defaults.turn]\ninherit_env = [\"PATH\", \"HOME\"]");
    machine.run(["enqueue", "ada", "two"]);
    stepped(&machine, 2);
    let noted = fs::read_to_string(machine.sandbox.home().join("steps")).unwrap();
    assert_eq!(noted, format!("{first} marked\n{first} unmarked\n"), "by the same process");
    // A machine that has lost a lease has lost it for that step alone.
    machine.run(["enqueue", "bob", "hold"]);
    stepped(&machine, 3);
    server().sql("UPDATE workers_fresh.lease SET fence = fence + 1, anchor = 'other', expires_at = 0");
    fs::write(machine.sandbox.home().join("go"), "").unwrap();
    let processed = |count| {
        eventually("bob's messages", || {
            (machine.json(["get", "bob"])["counters"]["messages_processed"] == count).then_some(())
        });
    };
    // Nobody has begun it anew, so the step after that takes what came of it.
    processed(1);
    machine.run(["enqueue", "bob", "last"]);
    processed(2);
    assert_ne!(steps(&machine)[3], first, "by another process");
}
