//! Tests the resources of a turn (workspace, slot, limits), and the order of waiting agents.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::Sandbox;
use crate::missing_tools::leave_out;
use crate::setup::{
    Beside, add, edit_file, eventually, extend_policy, field_of, json_in, kill, lives, names as names_in,
    objects, own_name, started,
};

/// Turn that writes its pid to one pipe, and ends when another pipe is closed.
const HELD: &str = r#"echo $$ > "$HOME/$DORMOUSE_AGENT.up"; cat "$HOME/$DORMOUSE_AGENT.down""#;

/// Creates a started agent whose turns run [`HELD`], with more lines for its policy.
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

/// Sends a message, starts a tick, and returns the tick and the pid of the turn once the turn runs.
#[track_caller]
fn running(sandbox: &Sandbox, name: &str) -> (Beside, i32) {
    sandbox.run(["enqueue", name, "go"]);
    let tick = Beside::start(sandbox.cmd(["tick", name, "--json"]));
    let pid = fs::read_to_string(pipe(sandbox, name, "up")).unwrap().trim().parse().unwrap();
    (tick, pid)
}

/// Ends a turn of [`HELD`] and its tick, and returns the step.
#[track_caller]
fn finish(sandbox: &Sandbox, name: &str, tick: Beside) -> Value {
    fs::write(pipe(sandbox, name, "down"), "").unwrap();
    let ran = tick.end().exits(0);
    objects(&ran.stdout).remove(0)
}

/// Runs a step at the time `now`.
#[track_caller]
fn tick_at(sandbox: &Sandbox, name: &str, now: &str) -> Value {
    let ran = sandbox.cmd(["tick", name, "--json"]).env("DORMOUSE_NOW", now).exits(0);
    objects(&ran.stdout).remove(0)
}

/// Runs a step that must succeed.
#[track_caller]
fn tick(sandbox: &Sandbox, name: &str) -> Value {
    sandbox.json(["tick", name])
}

#[track_caller]
fn word<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_else(|| panic!("no {field}: {value}"))
}

fn decided(step: &Value) -> (&str, &str) {
    (word(step, "decision"), word(step, "reason"))
}

/// Runs a step whose turn must complete.
#[track_caller]
fn completes(sandbox: &Sandbox, name: &str) {
    let step = tick(sandbox, name);
    assert_eq!(step["terminal"], "completed", "{step}");
}

/// Runs a step that must report this resource as the reason to wait.
#[track_caller]
fn waits_for(sandbox: &Sandbox, name: &str, resource: &str) {
    let step = tick(sandbox, name);
    assert_eq!(step["reason"], resource, "{step}");
}

/// Creates an agent with a queued message and a policy, whose turn succeeds at once.
fn queued(sandbox: &Sandbox, name: &str, policy: &str) {
    add(sandbox, name, "true");
    extend_policy(sandbox, name, policy);
    sandbox.run(["enqueue", name, "go"]);
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
    // The agents name the directory by a symbolic link, by a detour, and by its absolute path.
    let ways = ["link".to_owned(), "./checkout/../checkout/.".to_owned(), checkout.display().to_string()];
    let names = ["bob", "eve", "joe"];
    for (name, way) in names.iter().zip(&ways) {
        queued(&sandbox, name, &workspace(way, "exclusive"));
    }
    let (held, _) = running(&sandbox, "ada");
    let run = field_of(&sandbox, "ada", "current_run.run_id");
    let until = field_of(&sandbox, "ada", "current_run.lease_expires_at");
    let place = checkout.canonicalize().unwrap();
    let why = [format!("{} is held by ada", place.display()), run, format!("until {until} at the latest")];
    for name in names {
        let before = field_of(&sandbox, name, "revision");
        let foreseen = sandbox.json(["tick", name, "--dry-run"]);
        assert_eq!(decided(&foreseen), ("wait_for_resources", "workspace"));
        let explained = sandbox.json(["explain", name]);
        assert_eq!(explained["facts"]["shortage"]["resource"], "workspace");
        let rungs: Vec<&Value> =
            explained["ladder"].as_array().unwrap().iter().filter(|rung| rung["holds"] == true).collect();
        assert_eq!(rungs[0]["number"], 6);
        assert_eq!(field_of(&sandbox, name, "revision"), before, "a read-only command has changed it");

        let step = tick(&sandbox, name);
        assert_eq!(decided(&step), ("wait_for_resources", "workspace"));
        assert_eq!(step["evidence"], serde_json::json!(why));
        assert_eq!((word(&step, "execution_state"), step["terminal"].is_null()), ("waiting_resources", true));
        assert!(step["next_due_at"].is_string());
        assert_eq!(field_of(&sandbox, name, "held.resource"), "workspace");
        assert_eq!(field_of(&sandbox, name, "counters.turns"), "0");
        let message = sandbox.json(["queue", "list", "-a", name]);
        assert_eq!((&message["status"], &message["attempt"]), (&"dequeued".into(), &1.into()));
    }
    let wakes = sandbox.json(["explain", "bob"])["wakes"].to_string();
    assert!(wakes.contains("a tick that finds the missing resource (workspace: "), "{wakes}");
    // The text output names the agent that holds the workspace.
    let line = sandbox.run(["tick", "bob"]);
    assert!(
        line.starts_with("bob  wait_for_resources (workspace): ") && line.contains("held by ada"),
        "{line}"
    );
    assert_eq!(word(&finish(&sandbox, "ada", held), "terminal"), "completed");
    // The first step after the release of the workspace runs the turn, even before `next_due_at`.
    for name in names {
        let step = tick(&sandbox, name);
        assert_eq!((word(&step, "reason"), word(&step, "terminal")), ("resources_available", "completed"));
        assert_eq!(step["attempt"], 1);
    }
    sandbox.run(["doctor"]);
}

/// Mounts a directory at a second path: no link shows that both paths lead to the same directory.
#[test]
fn a_directory_with_two_mount_points_is_one_workspace() {
    let sandbox = Sandbox::new();
    for dir in ["checkout", "mounted"] {
        fs::create_dir(sandbox.project().join(dir)).unwrap();
    }
    let inside = |line: &str| {
        let line = format!("mount --bind checkout mounted && {line}");
        let unshare = "exec unshare --map-root-user --mount sh -c \"$1\"";
        sandbox.program("sh", ["-c", unshare, "sh", &line].map(Into::into).to_vec()).output()
    };
    if inside("true").code() != 0 {
        return leave_out("nothing can be mounted here");
    }
    holder(&sandbox, "ada", &workspace("checkout", "exclusive"));
    queued(&sandbox, "bob", &workspace("mounted", "exclusive"));
    let (ada, _) = running(&sandbox, "ada");
    let ran = inside(&format!("exec {} tick bob --json", own_name())).exits(0);
    let step = objects(&ran.stdout).remove(0);
    assert_eq!(word(&step, "reason"), "workspace");
    let place = sandbox.project().canonicalize().unwrap().join("mounted");
    assert_eq!(step["evidence"][0], format!("{} is held by ada", place.display()));
    finish(&sandbox, "ada", ada);
    let ran = inside(&format!("exec {} tick bob --json", own_name()));
    assert_eq!(word(&objects(&ran.stdout).remove(0), "terminal"), "completed");
}

#[test]
fn agents_that_share_a_workspace_block_only_an_exclusive_agent() {
    let sandbox = Sandbox::new();
    holder(&sandbox, "ada", &workspace(".", "shared"));
    holder(&sandbox, "bob", &workspace(".", "shared"));
    queued(&sandbox, "eve", "\n[workspace]\n");
    let (ada, _) = running(&sandbox, "ada");
    let (bob, _) = running(&sandbox, "bob");
    assert_eq!(word(&tick(&sandbox, "eve"), "reason"), "workspace", "not exclusive by default");
    finish(&sandbox, "ada", ada);
    waits_for(&sandbox, "eve", "workspace");
    finish(&sandbox, "bob", bob);
    completes(&sandbox, "eve");
}

#[test]
fn an_agent_without_a_workspace_blocks_no_other_agent() {
    let sandbox = Sandbox::new();
    holder(&sandbox, "ada", "");
    queued(&sandbox, "bob", &workspace(".", "exclusive"));
    let (ada, _) = running(&sandbox, "ada");
    completes(&sandbox, "bob");
    finish(&sandbox, "ada", ada);
    assert_eq!(fs::read_dir(sandbox.store().join("workspaces")).unwrap().count(), 1);
}

#[test]
fn a_killed_tick_keeps_its_workspace_until_its_processes_have_ended() {
    let sandbox = Sandbox::new();
    holder(&sandbox, "ada", &workspace(".", "exclusive"));
    // The turn leaves a process that the kernel does not kill together with the tick.
    edit_file(&sandbox.agent("ada").join("agent.toml"), |text| {
        text.replace("echo $$", "sleep 100000 & echo $$")
    });
    queued(&sandbox, "bob", &workspace(".", "exclusive"));
    let (mut ada, pid) = running(&sandbox, "ada");
    waits_for(&sandbox, "bob", "workspace");
    ada.kill();
    eventually("the turn goes with its tick", || (!lives(pid)).then_some(()));
    // Steps that only wait for the workspace must not replace the turn of `ada` in the reason.
    let steps = [sandbox.json(["tick", "bob", "--dry-run"]), tick(&sandbox, "bob"), tick(&sandbox, "bob")];
    for step in steps {
        assert_eq!(word(&step, "reason"), "workspace");
        let why = step["evidence"][0].as_str().unwrap();
        assert!(why.ends_with("is held by processes of an interrupted turn of ada"), "{why}");
    }
    sandbox.run(["recover", "ada"]);
    completes(&sandbox, "bob");
}

/// Leaves a task running after a turn: the task must not inherit the workspace lock of the turn.
#[test]
fn a_task_does_not_occupy_the_workspace_of_its_agent() {
    let sandbox = Sandbox::new();
    holder(&sandbox, "ada", &workspace(".", "exclusive"));
    let start = format!("{} task start -- cat '{}'", own_name(), pipe(&sandbox, "ada", "down").display());
    add(&sandbox, "eve", &start);
    extend_policy(&sandbox, "eve", &workspace(".", "exclusive"));
    add(&sandbox, "bob", "true");
    extend_policy(&sandbox, "bob", &workspace(".", "exclusive"));
    for name in ["eve", "bob"] {
        sandbox.run(["enqueue", name, "go"]);
    }
    completes(&sandbox, "eve");
    assert_eq!(sandbox.json(["get", "eve"])["active_tasks"].as_array().unwrap().len(), 1);
    completes(&sandbox, "bob");
    sandbox.run(["stop", "eve"]);
}

#[test]
fn an_agent_waits_for_a_missing_workspace() {
    let sandbox = started("true");
    extend_policy(&sandbox, "ada", &workspace("disk", "exclusive"));
    sandbox.run(["enqueue", "ada", "go"]);
    let step = tick(&sandbox, "ada");
    assert_eq!((word(&step, "reason"), field_of(&sandbox, "ada", "retry")), ("workspace", String::new()));
    let why = format!("{}: no such file or directory", sandbox.project().join("disk").display());
    assert_eq!(step["evidence"], serde_json::json!([why]));
    fs::create_dir(sandbox.project().join("disk")).unwrap();
    completes(&sandbox, "ada");
}

#[test]
fn a_missing_workspace_costs_no_attempt_and_finally_holds_the_message() {
    let sandbox = Sandbox::new();
    add(&sandbox, "bob", "true");
    extend_policy(&sandbox, "bob", &workspace("disk", "exclusive"));
    extend_policy(&sandbox, "bob", "\n[recovery]\nmax_deferrals = 4\n");
    sandbox.run(["enqueue", "bob", "go"]);
    for cycle in 1..=3 {
        assert_eq!(word(&tick(&sandbox, "bob"), "reason"), "workspace", "{cycle}");
        sandbox.pass(400);
        let ran = sandbox.cmd(["tick", "bob", "--json"]).exits(7);
        let step = &objects(&ran.stdout)[0];
        let expected = ("recovery_backoff", "resource_timeout");
        assert_eq!((word(step, "reason"), word(step, "failure")), expected, "{cycle}");
        sandbox.pass(20);
        assert_eq!(word(&tick(&sandbox, "bob"), "decision"), "start_recovery");
    }
    let ran = sandbox.cmd(["tick", "bob", "--json"]).output();
    assert_eq!(ran.code(), 7, "no attention is needed: {ran}");
    assert!(field_of(&sandbox, "bob", "held.missing").starts_with("held for the operator: put off 4 times"));
    let message = sandbox.json(["queue", "list", "-a", "bob"]);
    assert_eq!((&message["attempt"], &message["needs_operator"]), (&1.into(), &true.into()));
    fs::create_dir(sandbox.project().join("disk")).unwrap();
    sandbox.run(["recover", "bob"]);
    completes(&sandbox, "bob");
}

#[test]
fn stop_releases_the_workspace_and_records_the_release() {
    let sandbox = Sandbox::new();
    holder(&sandbox, "ada", &workspace(".", "exclusive"));
    let (ada, _) = running(&sandbox, "ada");
    sandbox.run(["stop", "ada"]);
    ada.end();
    let events = sandbox.json_lines(["events", "ada", "--kind", "workspace_released"]);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["data"]["path"], serde_json::json!(sandbox.project().canonicalize().unwrap()));
    assert!(events[0]["run_id"].is_string());
    // A second `stop` finds no workspace to release, so it adds no event.
    sandbox.run(["stop", "ada"]);
    assert_eq!(sandbox.json_lines(["events", "ada", "--kind", "workspace_released"]).len(), 1);
}

/// Suspends the tick process, which then can't release its workspace: `stop` reports an error.
#[test]
fn a_release_that_fails_is_an_error_of_the_stop() {
    let sandbox = Sandbox::new();
    holder(&sandbox, "ada", &workspace(".", "exclusive"));
    let (ada, _) = running(&sandbox, "ada");
    let pid = ada.0.id().to_string();
    kill("STOP", &pid);
    let ran = sandbox.cmd(["stop", "ada"]).exits(1);
    assert!(ran.stdout.contains("awake_running → stopped"), "{ran}");
    assert!(ran.stderr.contains("is not released") && ran.stderr.contains(&format!("pid {pid}")), "{ran}");
    assert_eq!(sandbox.json_lines(["events", "ada", "--kind", "workspace_released"]).len(), 0);
    kill("CONT", &pid);
    ada.end();
}

/// Turn that reports its tokens and cost.
const SPENDS: &str = r#"echo '{"usage": {"input_tokens": 200, "output_tokens": 100, "cost_usd": 0.25}}' > "$DORMOUSE_OUTCOME""#;

/// Limits: name, policy line that allows two turns, time of the reset, and remainder after a turn.
const LIMITS: [(&str, &str, &str, &str); 4] = [
    ("turns_per_hour", "turns_per_hour = 2", "2026-01-02T04:00:00.000Z", "1"),
    ("turns_per_day", "turns_per_day = 2", "2026-01-03T00:00:00.000Z", "1"),
    ("cost_per_day", "cost_per_day = 0.5", "2026-01-03T00:00:00.000Z", "0.25"),
    ("tokens_per_day", "tokens_per_day = 600", "2026-01-03T00:00:00.000Z", "300"),
];

#[test]
fn each_limit_allows_two_turns_and_resets_to_the_millisecond() {
    for (limit, line, back_at, left) in LIMITS {
        let sandbox = started(SPENDS);
        extend_policy(&sandbox, "ada", &format!("\n[limits]\n{line}\n"));
        for _ in 0..4 {
            sandbox.run(["enqueue", "ada", "go"]);
        }
        completes(&sandbox, "ada");
        let shown = field_of(&sandbox, "ada", &format!("limits.left.{limit}"));
        assert_eq!(shown, left, "{limit}");
        // The second turn's context counts that turn, but not its cost, which is not known yet.
        completes(&sandbox, "ada");
        let runs = sandbox.agent("ada").join("runs");
        let last = fs::read_dir(&runs).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
        let context = json_in(last.join("context.json"));
        let told = &context["capabilities"]["limits"]["left"][limit];
        assert_eq!(told.to_string(), if limit.starts_with("turns") { "0" } else { left }, "{limit}");

        assert_eq!(
            sandbox.run(["next-wake", "ada"]).len(),
            back_at.len() + 1,
            "the next step is not due at a time"
        );
        let foreseen = sandbox.json(["tick", "ada", "--dry-run"]);
        let step = tick(&sandbox, "ada");
        for step in [&foreseen, &step] {
            assert_eq!(decided(step), ("wait_for_resources", limit));
            assert_eq!(step["evidence"][1], format!("back at {back_at}"));
        }
        let expected = (back_at, "waiting_resources");
        assert_eq!((word(&step, "next_due_at"), word(&step, "execution_state")), expected);
        assert_eq!(sandbox.run(["next-wake", "ada"]).trim(), back_at);
        assert_eq!(
            field_of(&sandbox, "ada", "execution.timeout_at"),
            "",
            "a timeout although the reset is known"
        );
        let explained = sandbox.run(["explain", "ada"]);
        assert!(explained.contains(limit) && explained.contains(back_at), "{explained}");

        let early =
            back_at.replace("04:00:00.000", "03:59:59.999").replace("-03T00:00:00.000", "-02T23:59:59.999");
        let revision = field_of(&sandbox, "ada", "revision");
        assert_eq!(word(&tick_at(&sandbox, "ada", &early), "reason"), limit);
        assert_eq!(field_of(&sandbox, "ada", "revision"), revision, "an early step has changed records");
        let step = tick_at(&sandbox, "ada", back_at);
        assert_eq!((word(&step, "reason"), word(&step, "terminal")), ("resources_available", "completed"));
        assert_eq!(step["attempt"], 1);
    }
}

#[test]
fn a_limit_that_is_raised_counts_with_the_next_step() {
    let sandbox = started("true");
    extend_policy(&sandbox, "ada", "\n[limits]\nturns_per_day = 0\n");
    sandbox.run(["enqueue", "ada", "go"]);
    let step = tick(&sandbox, "ada");
    let expected = ("turns_per_day", false);
    assert_eq!((word(&step, "reason"), step["next_due_at"].is_null()), expected, "no next step is due");
    edit_file(&sandbox.agent("ada").join("agent.toml"), |text| {
        text.replace("turns_per_day = 0", "turns_per_day = 1")
    });
    completes(&sandbox, "ada");
    sandbox.run(["enqueue", "ada", "go"]);
    assert_eq!(word(&tick(&sandbox, "ada"), "next_due_at"), "2026-01-03T00:00:00.000Z");
}

/// Exceeds a limit during a turn: the turn ends normally, and the next one waits. A deferred turn
/// does not count as a turn.
#[test]
fn the_usage_of_a_deferred_turn_counts_but_the_turn_does_not() {
    let sandbox = Sandbox::new();
    let deferred_first = format!(r#"{SPENDS}; [ -e "$HOME/again" ] || {{ touch "$HOME/again"; exit 75; }}"#);
    add(&sandbox, "ada", &deferred_first);
    extend_policy(&sandbox, "ada", "\n[limits]\nturns_per_day = 2\ntokens_per_day = 700\n");
    for _ in 0..3 {
        sandbox.run(["enqueue", "ada", "go"]);
    }
    assert_eq!(word(&tick(&sandbox, "ada"), "terminal"), "deferred");
    let left = |what: &str| field_of(&sandbox, "ada", &format!("limits.left.{what}"));
    assert_eq!((left("turns_per_day"), left("tokens_per_day")), ("2".to_owned(), "400".to_owned()));
    sandbox.pass(5);
    completes(&sandbox, "ada");
    assert_eq!(word(&tick(&sandbox, "ada"), "terminal"), "completed", "100 tokens were left");
    assert_eq!((left("turns_per_day"), left("tokens_per_day")), ("0".to_owned(), "0".to_owned()));
    waits_for(&sandbox, "ada", "turns_per_day");
}

fn max_running(sandbox: &Sandbox, slots: u32) {
    edit_file(&sandbox.store().join("dormouse.toml"), |text| {
        format!("{text}\n[scheduler]\nmax_running = {slots}\n")
    });
}

#[test]
fn a_message_waits_for_a_slot_and_a_killed_tick_frees_its_slot() {
    let sandbox = Sandbox::new();
    max_running(&sandbox, 2);
    for name in ["ada", "bob"] {
        holder(&sandbox, name, "");
    }
    add(&sandbox, "eve", "true");
    sandbox.run(["enqueue", "eve", "go"]);
    let (mut ada, _) = running(&sandbox, "ada");
    let (bob, _) = running(&sandbox, "bob");
    let before = field_of(&sandbox, "eve", "revision");
    let foreseen = sandbox.json(["tick", "eve", "--dry-run"]);
    assert_eq!(field_of(&sandbox, "eve", "revision"), before);
    let step = tick(&sandbox, "eve");
    let ends = ["ada", "bob"].map(|name| field_of(&sandbox, name, "current_run.lease_expires_at"));
    let until = format!("until {} at the latest", ends.iter().min().unwrap());
    for step in [&foreseen, &step] {
        assert_eq!(decided(step), ("wait_for_resources", "slot"));
        let why = serde_json::json!(["all 2 in use (scheduler.max_running)", "by ada, bob", until]);
        assert_eq!(step["evidence"], why);
    }
    assert!(step["next_due_at"].is_string());
    ada.kill();
    completes(&sandbox, "eve");
    finish(&sandbox, "bob", bob);
    sandbox.run(["doctor"]);
    // Recovery ends the processes of the killed turn, so that none survives the test.
    sandbox.run(["recover", "ada"]);
}

#[test]
fn an_agent_that_waits_for_a_workspace_takes_no_slot() {
    let sandbox = Sandbox::new();
    max_running(&sandbox, 2);
    holder(&sandbox, "ada", &workspace(".", "exclusive"));
    add(&sandbox, "bob", "true");
    extend_policy(&sandbox, "bob", &workspace(".", "exclusive"));
    // The turn of `joe` ticks `bob`, which waits for the workspace without a slot, and `eve`.
    let inner = format!("{} tick bob; {} tick eve", own_name(), own_name());
    add(&sandbox, "joe", &inner);
    extend_policy(&sandbox, "joe", "[authority]\nlifecycle = \"all\"\n");
    add(&sandbox, "eve", "true");
    for name in ["bob", "joe", "eve"] {
        sandbox.run(["enqueue", name, "go"]);
    }
    let (ada, _) = running(&sandbox, "ada");
    completes(&sandbox, "joe");
    assert_eq!(field_of(&sandbox, "bob", "held.resource"), "workspace");
    assert_eq!(field_of(&sandbox, "eve", "held.resource"), "slot", "the turn of `joe` has the second slot");
    finish(&sandbox, "ada", ada);
    completes(&sandbox, "eve");
}

#[test]
fn never_do_more_turns_run_at_once_than_there_are_slots() {
    const AGENTS: usize = 6;
    const EACH: usize = 4;
    const SLOTS: usize = 2;
    let sandbox = Sandbox::new().with_real_clock();
    max_running(&sandbox, SLOTS as u32);
    let names: Vec<String> = (0..AGENTS).map(|number| format!("agent{number}")).collect();
    for name in &names {
        // The test counts simultaneous turns by the lines at start and end of each turn.
        add(
            &sandbox,
            name,
            r#"echo + >> "$HOME/log"; ls -R / 2>/dev/null | head -n 2000 > /dev/null; echo - >> "$HOME/log""#,
        );
        for at in 0..EACH {
            sandbox.run(["enqueue", name, &at.to_string()]);
        }
    }
    std::thread::scope(|scope| {
        for name in &names {
            let sandbox = &sandbox;
            scope.spawn(move || {
                while field_of(sandbox, name, "counters.messages_processed") != EACH.to_string() {
                    sandbox.cmd(["tick", name, "--until-idle"]).exits(0);
                }
            });
        }
    });
    let log = fs::read_to_string(sandbox.home().join("log")).unwrap();
    let (mut now, mut most) = (0usize, 0);
    for line in log.lines() {
        now = if line == "+" { now + 1 } else { now - 1 };
        most = most.max(now);
    }
    assert_eq!((log.lines().count(), now), (2 * AGENTS * EACH, 0));
    assert!(most <= SLOTS, "{most} at once:\n{log}");
    // The limit was tested only if all slots were used. With a database there are no slot files.
    if sandbox.schema().is_none() {
        assert_eq!(names_in(&sandbox.store().join("slots")).len(), SLOTS);
    }
    sandbox.run(["doctor"]);
}

#[test]
fn a_number_of_slots_that_makes_no_sense_is_refused() {
    let sandbox = Sandbox::new();
    max_running(&sandbox, 0);
    sandbox.cmd(["list"]).exits(6).warns("nonzero");
}

fn priority(sandbox: &Sandbox, name: &str, priority: i32) {
    extend_policy(sandbox, name, &format!("\n[scheduler]\npriority = {priority}\n"));
}

/// Ticks all agents and returns their names in the order of their steps.
#[track_caller]
fn order(sandbox: &Sandbox) -> Vec<String> {
    let steps = sandbox.json_lines(["tick", "--all"]);
    steps.iter().map(|step| word(step, "agent").to_owned()).collect()
}

#[test]
fn tick_all_orders_agents_by_priority_and_waiting_time() {
    let sandbox = Sandbox::new();
    for (name, urgency) in [("ada", 20), ("bob", 0), ("eve", -5), ("joe", -5)] {
        add(&sandbox, name, "true");
        priority(&sandbox, name, urgency);
    }
    add(&sandbox, "abe", "true");
    sandbox.run(["tick", "--all"]);
    // `joe` has waited longer than `eve`, `abe` has nothing to do, and `ada` is the least urgent.
    for name in ["ada", "bob", "joe", "eve"] {
        sandbox.run(["enqueue", name, "go"]);
    }
    assert_eq!(order(&sandbox), ["joe", "eve", "bob", "ada", "abe"]);
    assert_eq!(field_of(&sandbox, "ada", "capabilities.priority"), "20");
    // The first tick leaves all agents at rest, so the second one orders them by name.
    order(&sandbox);
    assert_eq!(order(&sandbox), ["abe", "ada", "bob", "eve", "joe"]);
    // `ada` is the least urgent, but is ticked first after it has waited for 26 minutes.
    sandbox.run(["enqueue", "ada", "go"]);
    sandbox.pass(26 * 60);
    for name in ["bob", "eve", "joe"] {
        sandbox.run(["enqueue", name, "go"]);
    }
    assert_eq!(order(&sandbox), ["ada", "eve", "joe", "bob", "abe"]);
    // Named agents are ticked in the order of the arguments, not by urgency.
    let steps = sandbox.json_lines(["tick", "ada", "eve", "bob"]);
    assert_eq!(steps.iter().map(|step| word(step, "agent")).collect::<Vec<_>>(), ["ada", "eve", "bob"]);
}

/// Sends a message from a busy agent to one at rest: the same tick processes the message.
#[test]
fn tick_all_delivers_messages_of_busy_agents_to_idle_agents() {
    let sandbox = Sandbox::new();
    add(&sandbox, "abe", "true");
    add(&sandbox, "zoe", &format!("{} enqueue abe hello", own_name()));
    sandbox.run(["tick", "--all"]);
    sandbox.run(["enqueue", "zoe", "go"]);
    let steps = sandbox.json_lines(["tick", "--all"]);
    let told: Vec<_> = steps.iter().map(|step| (word(step, "agent"), word(step, "terminal"))).collect();
    assert_eq!(told, [("zoe", "completed"), ("abe", "completed")]);
}

#[test]
fn jobs_start_with_the_most_urgent() {
    let sandbox = Sandbox::new();
    for (name, urgency) in [("ada", 5), ("bob", -1), ("eve", -2)] {
        holder(&sandbox, name, "");
        priority(&sandbox, name, urgency);
        sandbox.run(["enqueue", name, "go"]);
    }
    let all = Beside::start(sandbox.cmd(["tick", "--all", "--jobs", "2"]));
    for name in ["bob", "eve"] {
        fs::read_to_string(pipe(&sandbox, name, "up")).unwrap();
    }
    assert_eq!(field_of(&sandbox, "ada", "current_run"), "", "`ada` is the least urgent, and two jobs run");
    fs::write(pipe(&sandbox, "eve", "down"), "").unwrap();
    fs::read_to_string(pipe(&sandbox, "ada", "up")).unwrap();
    for name in ["ada", "bob"] {
        fs::write(pipe(&sandbox, name, "down"), "").unwrap();
    }
    assert_eq!(all.end().code(), 0);
}
