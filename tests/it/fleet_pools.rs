//! Pools: which machines tick which agents of a store in a database.

use std::fs;

use predicates::str::contains;

use crate::fleet::Machine;
use crate::harness::write_program;
use crate::server::server;
use crate::setup::{Beside, edit_file, eventually, objects, texts};

/// Says of which pools a machine is.
fn serve(machine: &Machine, pools: &str) {
    machine.run(["init"]);
    edit_file(&machine.anchor().join("dormouse.toml"), |text| {
        format!("{text}\n[scheduler]\npool = {pools}\n")
    });
}

/// Says of which pool an agent is.
fn belong(machine: &Machine, name: &str, pool: &str) {
    let editor = machine.sandbox.root().join("set-pool");
    write_program(
        &editor,
        &format!(
            "#!/bin/sh\nsed -i '/^\\[scheduler\\]/,$d' \"$1\"\nprintf '[scheduler]\\npool = \"{pool}\"\\n' >>\"$1\"\n"
        ),
    );
    machine.cmd(["edit", name]).env("EDITOR", &editor).exits(0);
}

fn agent(machine: &Machine, name: &str, pool: &str) {
    machine.run(["create", name, "--shell", "echo done"]);
    if !pool.is_empty() {
        belong(machine, name, pool);
    }
    machine.run(["start", name]);
}

fn ticked(machine: &Machine, args: &[&str]) -> Vec<String> {
    let ran = machine.cmd(["tick", "--json"].iter().chain(args).copied()).output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{ran}");
    let mut names = texts(&objects(&ran.stdout), "agent");
    names.sort();
    names.dedup();
    names
}

#[test]
fn a_machine_ticks_the_agents_of_its_pools() {
    needs!("postgresql");
    let url = server().url("pools");
    let [plain, gpu, both] = std::array::from_fn(|_| Machine::new(&url, None));
    plain.run(["init"]);
    serve(&gpu, "\"gpu\"");
    serve(&both, "[\"\", \"gpu\"]");
    agent(&plain, "ada", "");
    agent(&plain, "bob", "gpu");
    for name in ["ada", "bob"] {
        // Whoever may speak may speak to all of them.
        gpu.run(["enqueue", name, "work"]);
    }
    let refused = plain.cmd(["--json", "tick", "bob"]).output();
    let error = objects(&refused.stdout)[0]["error"].clone();
    assert_eq!((refused.code(), error["kind"].as_str()), (4, Some("other_pool")), "{refused}");
    assert!(refused.stderr.contains("pool `gpu`"), "{refused}");
    gpu.cmd(["tick", "ada", "--dry-run"]).exits(4);
    // The next moment is one of those that a machine looks after.
    assert_eq!(gpu.json(["next-wake", "--all"])["agents"].as_array().unwrap().len(), 2);
    assert_eq!(ticked(&plain, &["--all", "--until-idle"]), ["ada"]);
    assert_eq!(plain.run(["next-wake", "--all"]), "", "nothing is due there");
    assert_ne!(gpu.run(["next-wake", "--all"]), "");
    assert_eq!(ticked(&gpu, &["--all", "--until-idle", "--jobs", "2"]), ["bob"]);
    for name in ["ada", "bob"] {
        assert_eq!(both.json(["get", name])["counters"]["messages_processed"], 1, "{name}");
    }
    for name in ["ada", "bob"] {
        plain.run(["enqueue", name, "more"]);
    }
    assert_eq!(ticked(&both, &["--all"]), ["ada", "bob"]);

    // It moves to another pool with its messages and timers, and travels in it.
    plain.run(["timer", "add", "-a", "ada", "--in", "1h", "later"]);
    belong(&plain, "ada", "gpu");
    assert_eq!(plain.run(["next-wake", "--all"]), "");
    assert_ne!(gpu.run(["next-wake", "--all"]), "");
    gpu.run(["export", "ada", "--output", "ada.tar", "-q"]);
    let stream = fs::read(gpu.sandbox.project().join("ada.tar")).unwrap();
    let other = Machine::new(&server().url("pools_other"), None);
    other.run(["init"]);
    assert_eq!(other.cmd(["import"]).stdin(stream).output().code(), 0);
    assert_eq!(
        server().sql(
            "SELECT a.pool, d.pool FROM pools_other.agent a JOIN pools_other.due d ON d.agent_id = a.id"
        ),
        ["gpu|gpu"]
    );
    assert_eq!(ticked(&other, &["--all"]), Vec::<String>::new());
}

#[test]
fn whoever_follows_follows_its_pools() {
    needs!("postgresql");
    let url = server().url("pools_follow");
    let [plain, gpu] = std::array::from_fn(|_| Machine::new(&url, None));
    plain.run(["init"]);
    serve(&gpu, "\"gpu\"");
    agent(&plain, "ada", "");
    agent(&plain, "bob", "gpu");
    let follower = Beside::start(gpu.cmd(["tick", "--all", "--follow", "--json"]));
    plain.run(["enqueue", "ada", "work"]);
    plain.run(["enqueue", "bob", "work"]);
    eventually("bob has its turn", || {
        (plain.json(["get", "bob"])["counters"]["messages_processed"] == 1).then_some(())
    });
    drop(follower);
    assert_eq!(plain.json(["get", "ada"])["queue"]["pending"], 1);
}

#[test]
fn what_is_no_pool_is_refused_where_it_is_read() {
    needs!("postgresql");
    let machine = Machine::new(&server().url("pools_wrong"), None).with_ada("echo done");
    serve(&machine, "[]");
    machine.cmd(["list"]).assert().code(6).stderr(contains("at least one pool"));
}
