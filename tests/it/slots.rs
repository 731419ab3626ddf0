//! Tests preemption: if no slot is free, the least urgent turn yields to a more urgent agent.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Sandbox, dormouse};
use crate::setup::{Beside, add, edit_file, extend_policy, field_of, hook, objects, texts};

/// Event between two ticks.
type Happens = fn(&Sandbox);

/// Creates an agent with a queued message. Its turn creates a file, and yields on request.
fn agent(sandbox: &Sandbox, name: &str, priority: i32) {
    let script = format!(
        r#"D='{}'; test -e "$HOME/{name}" && exit
        : > "$HOME/{name}"
        while "$D" safe-point; do sleep 0.02; test ! -e "$HOME/go" || exit 0; done
        echo here | "$D" yield --checkpoint - >/dev/null"#,
        dormouse().display()
    );
    add(sandbox, name, &script);
    extend_policy(sandbox, name, &format!("\n[scheduler]\npriority = {priority}\n"));
    sandbox.run(["enqueue", name, "work"]);
}

fn settings(slots: u32, margin: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    edit_file(&sandbox.store().join("dormouse.toml"), |text| {
        format!("{text}\n[scheduler]\nmax_running = {slots}\n{margin}\n")
    });
    sandbox
}

/// Starts a tick and returns it once the turn has begun.
fn up(sandbox: &Sandbox, name: &str) -> Beside {
    Beside::start(sandbox.cmd(["tick", name, "--json"])).after_it_made(sandbox.home().join(name))
}

fn tick(sandbox: &Sandbox, name: &str) -> Value {
    let ran = sandbox.cmd(["tick", name, "--json"]).output();
    objects(&ran.stdout).pop().unwrap_or_else(|| panic!("{ran}"))
}

fn asked(sandbox: &Sandbox, name: &str) -> Vec<String> {
    let events = sandbox.json_lines(["events", name, "--kind", "preemption_requested"]);
    texts(&events, "data.reason")
}

fn terminal(tick: Beside) -> Value {
    let ran = tick.end();
    objects(&ran.stdout).pop().unwrap_or_else(|| panic!("{ran}"))["terminal"].clone()
}

/// Creates an agent `eve` of priority -2 with a queued message.
fn urgent_eve(sandbox: &Sandbox) {
    add(sandbox, "eve", "true");
    extend_policy(sandbox, "eve", "\n[scheduler]\npriority = -2\n");
    sandbox.run(["enqueue", "eve", "hurry"]);
}

/// Returns a sandbox in which `bob` has yielded its slot, and `eve` has not taken it yet.
fn made_way() -> Sandbox {
    let sandbox = settings(1, "preempt_margin = 5");
    agent(&sandbox, "bob", 3);
    urgent_eve(&sandbox);
    let bob = up(&sandbox, "bob");
    assert_eq!(tick(&sandbox, "eve")["reason"], "slot");
    assert_eq!(terminal(bob), "suspended");
    assert_eq!(asked(&sandbox, "bob"), ["eve is more urgent and needs its slot"]);
    sandbox
}

#[test]
fn the_least_urgent_turn_yields_its_slot_and_continues_afterwards() {
    let sandbox = made_way();
    hook(&sandbox.agent("bob"), "on-resume", r#"$D get bob execution.state >> "$HOME/resumed""#);
    // The slot is reserved for `eve`, so `bob` does not continue yet.
    for _ in 0..3 {
        sandbox.pass(5);
        let step = tick(&sandbox, "bob");
        let expected = (&json!("slot"), &json!(["kept for eve, for which this run made way"]));
        assert_eq!((&step["reason"], &step["evidence"]), expected);
        assert_eq!(field_of(&sandbox, "bob", "execution.state"), "suspended");
    }
    assert_eq!(tick(&sandbox, "eve")["terminal"], "completed");
    assert_eq!(tick(&sandbox, "bob")["terminal"], "completed");
    assert_eq!(fs::read_to_string(sandbox.home().join("resumed")).unwrap(), "resumed\n");
    assert_eq!(sandbox.cmd(["doctor"]).output().code(), 0);
}

#[test]
fn a_turn_that_yielded_continues_if_the_other_agent_does_not_run() {
    let events: [(&str, Happens); 3] = [
        ("stopped", |sandbox| drop(sandbox.run(["stop", "eve"]))),
        ("gone", |sandbox| sandbox.pass(120)),
        ("resume", |sandbox| drop(sandbox.run(["resume", "bob"]))),
    ];
    for (name, happens) in events {
        let sandbox = made_way();
        assert_eq!(tick(&sandbox, "bob")["reason"], "slot", "{name}");
        happens(&sandbox);
        assert_eq!(tick(&sandbox, "bob")["terminal"], "completed", "{name}");
    }
}

#[test]
fn only_one_turn_is_asked_to_yield_and_only_once() {
    let sandbox = settings(2, "preempt_margin = 5");
    agent(&sandbox, "ada", 4);
    agent(&sandbox, "bob", 3);
    agent(&sandbox, "eve", -2);
    let ada = up(&sandbox, "ada");
    // In a non-preemptible section the request to yield stays pending.
    let run = sandbox.json(["get", "ada"])["current_run"]["run_id"].as_str().unwrap().to_owned();
    let begin = ["non-preemptible", "begin", "--deadline", "1h"];
    sandbox.cmd(begin).env("DORMOUSE_AGENT", "ada").env("DORMOUSE_RUN", &run).check();
    let bob = up(&sandbox, "bob");
    for _ in 0..3 {
        sandbox.pass(5);
        assert_eq!(tick(&sandbox, "eve")["reason"], "slot");
    }
    assert_eq!((asked(&sandbox, "ada").len(), asked(&sandbox, "bob").len()), (1, 0));
    let end = ["non-preemptible", "end"];
    sandbox.cmd(end).env("DORMOUSE_AGENT", "ada").env("DORMOUSE_RUN", &run).check();
    assert_eq!(terminal(ada), "suspended");
    fs::write(sandbox.home().join("go"), "").unwrap();
    assert_eq!(terminal(bob), "completed");
    assert_eq!(tick(&sandbox, "eve")["terminal"], "completed");
}

#[test]
fn only_a_turn_less_urgent_by_the_margin_is_asked_to_yield() {
    let nothing: Happens = |_| {};
    let cases: [(&str, &str, i32, Happens); 5] = [
        ("off", "", 20, nothing),
        ("equal", "preempt_margin = 1", -2, nothing),
        ("too little", "preempt_margin = 5", 2, nothing),
        // Aging makes an agent precede others, but takes no slot from a turn.
        ("aging", "preempt_margin = 5", 2, |sandbox| sandbox.pass(7200)),
        ("asked by the operator", "preempt_margin = 5", 20, |sandbox| {
            sandbox.run(["preempt", "bob", "--reason", "mine", "--grace", "1d"]);
        }),
    ];
    for (name, margin, priority, happens) in cases {
        let sandbox = settings(1, margin);
        add(&sandbox, "bob", r#": > "$HOME/bob"; until test -e "$HOME/go"; do sleep 0.02; done"#);
        extend_policy(&sandbox, "bob", &format!("\n[scheduler]\npriority = {priority}\n"));
        sandbox.run(["enqueue", "bob", "work"]);
        agent(&sandbox, "eve", -2);
        let bob = up(&sandbox, "bob");
        happens(&sandbox);
        assert_eq!(tick(&sandbox, "eve")["reason"], "slot", "{name}");
        assert!(!asked(&sandbox, "bob").iter().any(|reason| reason.contains("eve")), "{name}");
        fs::write(sandbox.home().join("go"), "").unwrap();
        assert_eq!(terminal(bob), "completed", "{name}");
    }
}

/// Returns a sandbox in which `bob` and `eve` need the same exclusive workspace.
fn in_one_workspace() -> Sandbox {
    let sandbox = settings(9, "preempt_margin = 5");
    agent(&sandbox, "bob", 3);
    urgent_eve(&sandbox);
    for name in ["bob", "eve"] {
        extend_policy(&sandbox, name, "\n[workspace]\npath = \".\"\nmode = \"exclusive\"\n");
    }
    sandbox
}

#[test]
fn a_less_urgent_turn_yields_an_exclusive_workspace() {
    let sandbox = in_one_workspace();
    let bob = up(&sandbox, "bob");
    assert_eq!(tick(&sandbox, "eve")["reason"], "workspace");
    assert_eq!(terminal(bob), "suspended");
    assert_eq!(asked(&sandbox, "bob"), ["eve is more urgent and needs its workspace"]);
    let kept = tick(&sandbox, "bob");
    let expected = (&json!("workspace"), &json!(["kept for eve, for which this run made way"]));
    assert_eq!((&kept["reason"], &kept["evidence"]), expected);
    assert_eq!(tick(&sandbox, "eve")["terminal"], "completed");
    assert_eq!(tick(&sandbox, "bob")["terminal"], "completed");
    assert_eq!(sandbox.cmd(["doctor"]).output().code(), 0);
}

#[test]
fn preempt_margin_decides_if_a_turn_must_yield_its_workspace() {
    let sandbox = in_one_workspace();
    let path = sandbox.store().join("dormouse.toml");
    let on = fs::read_to_string(&path).unwrap();
    // The turn can read the settings at any time, so a rename replaces them.
    let set = |text: String| {
        fs::write(sandbox.home().join("settings"), text).unwrap();
        fs::rename(sandbox.home().join("settings"), &path).unwrap();
    };
    set(on.replace("preempt_margin = 5\n", ""));
    let bob = up(&sandbox, "bob");
    assert_eq!(tick(&sandbox, "eve")["reason"], "workspace");
    assert_eq!(asked(&sandbox, "bob"), <[&str; 0]>::default());
    set(on.replace("preempt_margin = 5\n", "preempt_margin = 6\n"));
    sandbox.pass(60);
    assert_eq!(tick(&sandbox, "eve")["reason"], "workspace");
    assert_eq!(asked(&sandbox, "bob"), <[&str; 0]>::default());
    fs::write(sandbox.home().join("go"), "").unwrap();
    assert_eq!(terminal(bob), "completed");
}
