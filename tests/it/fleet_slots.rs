//! Tests the limit `max_running` over all machines of a store in a database.

use std::fs;

use crate::fleet::Machine;
use crate::server::server;
use crate::setup::{Beside, edit_file, eventually, objects};

/// Machines of one store that may run `slots` turns at once.
fn machines<const N: usize>(schema: &str, slots: u32) -> [Machine; N] {
    let url = server().url(schema);
    let machines = std::array::from_fn(|_| Machine::new(&url, None));
    for machine in &machines {
        machine.run(["init"]);
        edit_file(&machine.anchor().join("dormouse.toml"), |text| {
            format!("{text}\n[scheduler]\nmax_running = {slots}\npreempt_margin = 5\n")
        });
    }
    machines
}

/// Starts a tick of an agent, and returns once its turn has begun.
fn up(machine: &Machine, name: &str) -> Beside {
    Beside::start(machine.cmd(["tick", name, "--json"])).after_it_made(machine.sandbox.home().join(name))
}

/// Lets the turns of a machine end, and asserts that this tick has completed its turn.
fn complete(machine: &Machine, tick: Beside) {
    fs::write(machine.sandbox.home().join("go"), "").unwrap();
    let ended = tick.end();
    assert_eq!(objects(&ended.stdout)[0]["terminal"], "completed", "{ended}");
}

/// Wakes an agent, and asserts that its next step completes a turn.
fn wake_and_complete(machine: &Machine, name: &str) {
    machine.run(["wake", name]);
    assert_eq!(machine.json(["tick", name])["terminal"], "completed");
}

/// Turn that runs until its machine has the file `go`.
const WAITS: &str =
    ": > \"$HOME/$DORMOUSE_AGENT\"; while [ ! -e \"$HOME/go\" ]; do sleep 0.02; done; echo done";

fn agent(machine: &Machine, name: &str, turn: &str, priority: i32) {
    let lines = format!("printf '\\n[scheduler]\\npriority = {priority}\\n' >>\"$1\"");
    machine.add(name, turn);
    machine.edit_policy(name, &lines);
    machine.run(["enqueue", name, "work"]);
}

#[test]
fn a_turn_waits_for_the_slot_of_another_machine() {
    needs!("postgresql");
    let [here, there] = machines("slots_wait", 1);
    agent(&here, "ada", WAITS, 0);
    agent(&here, "bob", "echo done", 0);
    let ada = up(&here, "ada");
    let lacks = there.json(["tick", "bob"]);
    let expected = (Some("wait_for_resources"), Some("slot"));
    assert_eq!((lacks["decision"].as_str(), lacks["reason"].as_str()), expected);
    let explained = there.run(["explain", "bob"]);
    assert!(explained.contains("all 1 in use") && explained.contains("by ada"), "{explained}");
    assert_eq!(there.json(["get", "bob"])["queue"]["pending"], 1, "the message stays in the queue");
    complete(&here, ada);
    wake_and_complete(&there, "bob");
    assert_eq!(server().sql("SELECT count(*) FROM slots_wait.lease"), ["0"]);
}

#[test]
fn a_slot_of_a_lost_machine_is_free_when_its_lease_has_expired() {
    needs!("postgresql");
    let [here, there] = machines("slots_gone", 1);
    agent(&here, "ada", WAITS, 0);
    agent(&here, "bob", "echo done", 0);
    agent(&here, "eve", "echo done", 0);
    let mut ada = up(&here, "ada");
    ada.kill();
    assert_eq!(there.json(["tick", "bob"])["reason"], "slot", "another machine can't see the kill");
    // On the same machine the killed tick's lock is free, so its turn stops counting at once.
    assert_eq!(here.json(["tick", "eve"])["terminal"], "completed");
    server().sql("UPDATE slots_gone.lease SET expires_at = 0 WHERE has_slot");
    wake_and_complete(&there, "bob");
}

#[test]
fn a_turn_yields_to_a_more_urgent_agent_of_another_machine() {
    needs!("postgresql");
    let [here, there] = machines("slots_way", 1);
    let yields = ": > \"$HOME/$DORMOUSE_AGENT\"; while dormouse safe-point; do sleep 0.02; done; \
                  echo here | dormouse yield --checkpoint - >/dev/null";
    agent(&here, "ada", yields, 10);
    agent(&here, "bob", "echo done", 0);
    let ada = up(&here, "ada");
    assert_eq!(there.json(["tick", "bob"])["reason"], "slot");
    let ended = ada.end();
    assert_eq!(objects(&ended.stdout)[0]["terminal"], "suspended", "{ended}");
    eventually("a turn of bob", || {
        there.run(["wake", "bob"]);
        (there.json(["tick", "bob"])["terminal"] == "completed").then_some(())
    });
}

#[test]
fn as_many_turns_run_at_once_as_there_are_slots() {
    needs!("postgresql");
    let [here, there] = machines("slots_both", 2);
    agent(&here, "ada", WAITS, 0);
    agent(&here, "bob", WAITS, 0);
    agent(&here, "eve", "echo done", 0);
    let (ada, bob) = (up(&here, "ada"), up(&there, "bob"));
    assert_eq!(here.json(["tick", "eve"])["reason"], "slot", "both slots are in use");
    complete(&here, ada);
    complete(&there, bob);
    wake_and_complete(&here, "eve");
}

#[test]
fn machines_that_claim_at_once_never_have_more_turns_than_slots() {
    needs!("postgresql");
    const EACH: usize = 5;
    let machines: [Machine; 3] = machines("slots_race", 2);
    let log = machines[0].sandbox.root().join("log");
    let turn = format!("echo + >>'{0}'; sleep 0.0$((DORMOUSE_FENCE % 5)); echo - >>'{0}'", log.display());
    let names: Vec<String> = (0..6).map(|number| format!("agent{number}")).collect();
    for name in &names {
        agent(&machines[0], name, &turn, 0);
        (1..EACH).for_each(|_| drop(machines[0].run(["enqueue", name, "more"])));
    }
    std::thread::scope(|scope| {
        for machine in &machines {
            for _ in 0..2 {
                scope.spawn(|| {
                    while fs::read_to_string(&log).unwrap_or_default().lines().count()
                        < 2 * EACH * names.len()
                    {
                        for name in &names {
                            machine.cmd(["wake", name]).output();
                            let ran = machine.cmd(["tick", name]).output();
                            // A tick exits with 5 while another machine steps the same agent.
                            assert!(matches!(ran.code(), 0 | 5), "{ran}");
                        }
                    }
                });
            }
        }
    });
    machines[0].cmd(["tick", "--all", "--until-idle"]).output();
    for name in &names {
        assert_eq!(machines[0].json(["get", name])["queue"]["pending"], 0, "{name}");
    }
    let log = fs::read_to_string(&log).unwrap();
    let (mut now, mut most) = (0usize, 0);
    for line in log.lines() {
        now = if line == "+" { now + 1 } else { now - 1 };
        most = most.max(now);
    }
    assert_eq!((log.lines().count(), now), (2 * EACH * names.len(), 0), "{log}");
    assert!(most <= 2, "{most} turns at once: {log}");
}
