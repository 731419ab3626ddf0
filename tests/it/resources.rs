//! What a turn needs besides its message: a workspace, a slot, an allowance; and who goes first.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::Sandbox;
use crate::setup::{Beside, add, eventually, extend_policy, objects};

/// A turn that says that it runs, and goes on when it is told to.
const HELD: &str = r#"echo $$ > "$HOME/$DORMOUSE_AGENT.up"; cat "$HOME/$DORMOUSE_AGENT.down""#;

/// A started agent whose turn this test holds, with more lines for its policy.
fn holder(sandbox: &Sandbox, name: &str, policy: &str) {
    add(sandbox, name, HELD);
    extend_policy(sandbox, name, policy);
    for side in ["up", "down"] {
        let path = sandbox.home().join(format!("{name}.{side}"));
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }
}

fn pipe(sandbox: &Sandbox, name: &str, side: &str) -> PathBuf {
    sandbox.home().join(format!("{name}.{side}"))
}

/// Starts a tick and returns it with the process of the turn, once that runs.
#[track_caller]
fn running(sandbox: &Sandbox, name: &str) -> (Beside, i32) {
    sandbox.run(["enqueue", name, "go"]);
    let tick = Beside::start(sandbox.cmd(["tick", name, "--json"]));
    let pid = fs::read_to_string(pipe(sandbox, name, "up")).unwrap().trim().parse().unwrap();
    (tick, pid)
}

/// Lets a held turn go on to its end.
#[track_caller]
fn finish(sandbox: &Sandbox, name: &str, tick: Beside) -> Value {
    fs::write(pipe(sandbox, name, "down"), "").unwrap();
    let ran = tick.end();
    assert_eq!(ran.code(), 0, "{ran}");
    objects(&ran.stdout).remove(0)
}

/// One step of an agent that must not fail.
#[track_caller]
fn tick(sandbox: &Sandbox, name: &str) -> Value {
    sandbox.json(["tick", name])
}

#[track_caller]
fn word<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_else(|| panic!("no {field}: {value}"))
}

#[track_caller]
fn get(sandbox: &Sandbox, name: &str, path: &str) -> String {
    sandbox.run(["get", name, path]).trim_end().to_owned()
}

fn workspace(path: &str, mode: &str) -> String {
    format!("\n[workspace]\npath = \"{path}\"\nmode = \"{mode}\"\n")
}

#[test]
fn of_two_agents_in_one_workspace_one_works_and_the_other_waits() {
    let sandbox = Sandbox::new();
    let checkout = sandbox.project().join("checkout");
    fs::create_dir(&checkout).unwrap();
    symlink("checkout", sandbox.project().join("link")).unwrap();
    holder(&sandbox, "ada", &workspace("checkout", "exclusive"));
    // By a symbolic link, by way of another directory, by its whole path.
    let ways = ["link".to_owned(), "./checkout/../checkout/.".to_owned(), checkout.display().to_string()];
    let names = ["bob", "eve", "joe"];
    for (name, way) in names.iter().zip(&ways) {
        add(&sandbox, name, "true");
        extend_policy(&sandbox, name, &workspace(way, "exclusive"));
        sandbox.run(["enqueue", name, "go"]);
    }
    let (held, _) = running(&sandbox, "ada");
    let run = get(&sandbox, "ada", "current_run.run_id");
    let until = get(&sandbox, "ada", "current_run.lease_expires_at");
    let place = checkout.canonicalize().unwrap();
    let why = [format!("{} is held by ada", place.display()), run, format!("until {until} at the latest")];
    for name in names {
        let before = get(&sandbox, name, "revision");
        let foreseen = sandbox.json(["tick", name, "--dry-run"]);
        assert_eq!(
            (word(&foreseen, "decision"), word(&foreseen, "reason")),
            ("wait_for_resources", "workspace")
        );
        let explained = sandbox.json(["explain", name]);
        assert_eq!(explained["facts"]["shortage"]["resource"], "workspace");
        let rungs: Vec<&Value> =
            explained["ladder"].as_array().unwrap().iter().filter(|rung| rung["holds"] == true).collect();
        assert_eq!(rungs[0]["number"], 6);
        assert_eq!(get(&sandbox, name, "revision"), before, "who looks changes nothing");

        let step = tick(&sandbox, name);
        assert_eq!((word(&step, "decision"), word(&step, "reason")), ("wait_for_resources", "workspace"));
        assert_eq!(step["evidence"], serde_json::json!(why));
        assert_eq!((word(&step, "execution_state"), step["terminal"].is_null()), ("waiting_resources", true));
        assert!(step["next_due_at"].is_string());
        assert_eq!(get(&sandbox, name, "held.resource"), "workspace");
        assert_eq!(get(&sandbox, name, "counters.turns"), "0");
        let message = sandbox.json(["queue", "list", "-a", name]);
        assert_eq!((&message["status"], &message["attempt"]), (&"dequeued".into(), &1.into()));
    }
    // Text names the one that has it.
    let line = sandbox.run(["tick", "bob"]);
    assert!(
        line.starts_with("bob  wait_for_resources (workspace): ") && line.contains("held by ada"),
        "{line}"
    );
    assert_eq!(word(&finish(&sandbox, "ada", held), "terminal"), "completed");
    // The first step that finds it free goes on, whenever that is.
    for name in names {
        let step = tick(&sandbox, name);
        assert_eq!((word(&step, "reason"), word(&step, "terminal")), ("resources_available", "completed"));
        assert_eq!(step["attempt"], 1);
    }
    sandbox.run(["doctor"]);
}

#[test]
fn those_who_share_a_workspace_keep_out_only_who_wants_it_alone() {
    let sandbox = Sandbox::new();
    holder(&sandbox, "ada", &workspace(".", "shared"));
    holder(&sandbox, "bob", &workspace(".", "shared"));
    add(&sandbox, "eve", "true");
    extend_policy(&sandbox, "eve", "\n[workspace]\n");
    sandbox.run(["enqueue", "eve", "go"]);
    let (ada, _) = running(&sandbox, "ada");
    let (bob, _) = running(&sandbox, "bob");
    assert_eq!(word(&tick(&sandbox, "eve"), "reason"), "workspace", "alone, unless it says otherwise");
    finish(&sandbox, "ada", ada);
    assert_eq!(word(&tick(&sandbox, "eve"), "reason"), "workspace");
    finish(&sandbox, "bob", bob);
    assert_eq!(word(&tick(&sandbox, "eve"), "terminal"), "completed");
}

#[test]
fn an_agent_that_names_no_workspace_keeps_nobody_out() {
    let sandbox = Sandbox::new();
    holder(&sandbox, "ada", "");
    add(&sandbox, "bob", "true");
    extend_policy(&sandbox, "bob", &workspace(".", "exclusive"));
    sandbox.run(["enqueue", "bob", "go"]);
    let (ada, _) = running(&sandbox, "ada");
    assert_eq!(word(&tick(&sandbox, "bob"), "terminal"), "completed");
    finish(&sandbox, "ada", ada);
    assert_eq!(fs::read_dir(sandbox.store().join("workspaces")).unwrap().count(), 1);
}

#[test]
fn a_tick_that_is_killed_frees_its_workspace_once_nothing_of_its_turn_is_left() {
    let sandbox = Sandbox::new();
    holder(&sandbox, "ada", &workspace(".", "exclusive"));
    // It leaves a process that the kernel does not take along.
    let policy = sandbox.agent("ada").join("agent.toml");
    let text = fs::read_to_string(&policy).unwrap();
    fs::write(&policy, text.replace("echo $$", "sleep 100000 & echo $$")).unwrap();
    add(&sandbox, "bob", "true");
    extend_policy(&sandbox, "bob", &workspace(".", "exclusive"));
    sandbox.run(["enqueue", "bob", "go"]);
    let (mut ada, pid) = running(&sandbox, "ada");
    assert_eq!(word(&tick(&sandbox, "bob"), "reason"), "workspace");
    ada.0.kill().unwrap();
    ada.0.wait().unwrap();
    eventually("the turn goes with its tick", || {
        fs::read_to_string(format!("/proc/{pid}/stat"))
            .map_or(Some(()), |stat| stat.contains(") Z").then_some(()))
    });
    let step = tick(&sandbox, "bob");
    assert_eq!(word(&step, "reason"), "workspace");
    let why = step["evidence"][0].as_str().unwrap();
    assert!(why.ends_with("is held by what is left of an interrupted turn of ada"), "{why}");
    sandbox.run(["recover", "ada"]);
    assert_eq!(word(&tick(&sandbox, "bob"), "terminal"), "completed");
}

#[test]
fn a_workspace_that_is_not_there_is_waited_for() {
    let sandbox = Sandbox::new();
    add(&sandbox, "ada", "true");
    extend_policy(&sandbox, "ada", &workspace("disk", "exclusive"));
    sandbox.run(["enqueue", "ada", "go"]);
    let step = tick(&sandbox, "ada");
    assert_eq!((word(&step, "reason"), get(&sandbox, "ada", "retry")), ("workspace", String::new()));
    let why = format!("{}: No such file or directory (os error 2)", sandbox.project().join("disk").display());
    assert_eq!(step["evidence"], serde_json::json!([why]));
    fs::create_dir(sandbox.project().join("disk")).unwrap();
    assert_eq!(word(&tick(&sandbox, "ada"), "terminal"), "completed");
}

/// The contract's 300 seconds are of the agent, not of the message: nothing is lost by them.
#[test]
fn a_workspace_that_stays_occupied_fails_the_wait_and_keeps_the_message() {
    let sandbox = Sandbox::new();
    holder(&sandbox, "ada", &workspace(".", "exclusive"));
    add(&sandbox, "bob", "true");
    extend_policy(&sandbox, "bob", &workspace(".", "exclusive"));
    sandbox.run(["enqueue", "bob", "go"]);
    let (ada, _) = running(&sandbox, "ada");
    for _ in 0..6 {
        tick(&sandbox, "bob");
        sandbox.pass(400);
        let step = tick(&sandbox, "bob");
        assert_eq!(word(&step, "reason"), "recovery_backoff");
        assert_eq!(get(&sandbox, "bob", "execution.reason"), "resource_timeout");
        sandbox.pass(1);
        assert_eq!(word(&tick(&sandbox, "bob"), "decision"), "start_recovery");
    }
    finish(&sandbox, "ada", ada);
    assert_eq!(
        (word(&tick(&sandbox, "bob"), "terminal"), get(&sandbox, "bob", "queue.dead").as_str()),
        ("completed", "0")
    );
}

#[test]
fn stop_releases_the_workspace_and_says_so() {
    let sandbox = Sandbox::new();
    holder(&sandbox, "ada", &workspace(".", "exclusive"));
    let (ada, _) = running(&sandbox, "ada");
    sandbox.run(["stop", "ada"]);
    ada.end();
    let events = sandbox.json_lines(["events", "ada", "--kind", "workspace_released"]);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["data"]["path"], serde_json::json!(sandbox.project().canonicalize().unwrap()));
    assert!(events[0]["run_id"].is_string());
    // Another stop has nothing to release.
    sandbox.run(["stop", "ada"]);
    assert_eq!(sandbox.json_lines(["events", "ada", "--kind", "workspace_released"]).len(), 1);
}

/// A tick that was itself stopped keeps what it holds: then the stop says that it could not release it.
#[test]
fn a_release_that_fails_is_an_error_of_the_stop() {
    let sandbox = Sandbox::new();
    holder(&sandbox, "ada", &workspace(".", "exclusive"));
    let (ada, _) = running(&sandbox, "ada");
    let pid = ada.0.id().to_string();
    assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
    let ran = sandbox.cmd(["stop", "ada"]).output();
    assert_eq!(ran.code(), 1, "{ran}");
    assert!(ran.stdout.contains("awake_running → stopped"), "{ran}");
    assert!(ran.stderr.contains("is not released") && ran.stderr.contains(&format!("pid {pid}")), "{ran}");
    assert_eq!(sandbox.json_lines(["events", "ada", "--kind", "workspace_released"]).len(), 0);
    assert!(Command::new("kill").args(["-CONT", &pid]).status().unwrap().success());
    ada.end();
}
