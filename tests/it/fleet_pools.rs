//! Tests pools, which decide which machines tick which agents of a store in a database.

use std::fs;

use crate::fleet::Machine;
use crate::server::server;
use crate::setup::{Beside, edit_file, texts};

/// Sets the pools whose agents a machine ticks.
fn serve(machine: &Machine, pools: &str) {
    machine.run(["init"]);
    edit_file(&machine.anchor().join("dormouse.toml"), |text| {
        format!("{text}\n[scheduler]\npool = {pools}\n")
    });
}

/// Sets the pool of an agent.
fn belong(machine: &Machine, name: &str, pool: &str) {
    let add = format!("printf '[scheduler]\\npool = \"{pool}\"\\n' >>\"$1\"");
    machine.edit_policy(name, &format!("sed -i '/^\\[scheduler\\]/,$d' \"$1\"\n{add}"));
}

fn agent(machine: &Machine, name: &str, pool: &str) {
    machine.run(["create", name, "--shell", "echo done"]);
    if !pool.is_empty() {
        belong(machine, name, pool);
    }
    machine.run(["start", name]);
}

/// Runs `tick` with these arguments, and returns the names of the agents that have made a step.
fn ticked(machine: &Machine, args: &[&str]) -> Vec<String> {
    let mut names = texts(&machine.json_lines(["tick"].iter().chain(args).copied()), "agent");
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
        // A machine may enqueue messages for agents of every pool.
        gpu.run(["enqueue", name, "work"]);
    }
    plain.cmd(["--json", "tick", "bob"]).fails(4, "other_pool").warns("pool `gpu`");
    gpu.cmd(["tick", "ada", "--dry-run"]).exits(4);
    // `next-wake --json` lists agents of all pools, but the due time is that of this machine's
    // pools.
    assert_eq!(gpu.json(["next-wake", "--all"])["agents"].as_array().unwrap().len(), 2);
    assert_eq!(ticked(&plain, &["--all", "--until-idle"]), ["ada"]);
    assert_eq!(plain.run(["next-wake", "--all"]), "", "no agent of the common pool is due");
    assert_ne!(gpu.run(["next-wake", "--all"]), "");
    assert_eq!(ticked(&gpu, &["--all", "--until-idle", "--jobs", "2"]), ["bob"]);
    for name in ["ada", "bob"] {
        assert_eq!(both.json(["get", name])["counters"]["messages_processed"], 1, "{name}");
    }
    for name in ["ada", "bob"] {
        plain.run(["enqueue", name, "more"]);
    }
    assert_eq!(ticked(&both, &["--all"]), ["ada", "bob"]);

    // The timer must follow the agent into its new pool, and an export must contain the pool.
    plain.run(["timer", "add", "-a", "ada", "--in", "1h", "later"]);
    belong(&plain, "ada", "gpu");
    assert_eq!(plain.run(["next-wake", "--all"]), "");
    assert_ne!(gpu.run(["next-wake", "--all"]), "");
    gpu.run(["export", "ada", "--output", "ada.tar", "-q"]);
    let stream = fs::read(gpu.sandbox.project().join("ada.tar")).unwrap();
    let other = Machine::new(&server().url("pools_other"), None);
    other.run(["init"]);
    other.cmd(["import"]).stdin(stream).exits(0);
    let pools = "SELECT a.pool, d.pool FROM pools_other.agent a JOIN pools_other.due d ON d.agent_id = a.id";
    assert_eq!(server().sql(pools), ["gpu|gpu"]);
    assert_eq!(ticked(&other, &["--all"]), Vec::<String>::new());
}

#[test]
fn a_follower_ticks_the_agents_of_its_pools() {
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
    plain.until_processed("bob", 1);
    drop(follower);
    assert_eq!(plain.json(["get", "ada"])["queue"]["pending"], 1);
}

#[test]
fn an_empty_list_of_pools_is_refused() {
    needs!("postgresql");
    let machine = Machine::new(&server().url("pools_wrong"), None).with_ada("echo done");
    serve(&machine, "[]");
    machine.cmd(["list"]).exits(6).warns("at least one pool");
}
