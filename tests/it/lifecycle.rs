//! Tests `init`, `create`, `start`, `stop` and `recover`: which agents exist, and if they may run.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::checker;
use crate::harness::{Sandbox, dormouse, write_program};
use crate::setup::{
    Beside, SLEEP, TURN_COMPLETED, TURN_FAILED, add, assert_includes, commands, decision, decisions,
    edit_file, edit_state, eventually, extend_policy, failure, field, hook, mode, names, objects, record,
    say, started, started_with, step, texts, tick_until_running, tree, words,
};

/// Asserts that only the owner may use the files and directories below `dir`.
#[track_caller]
fn assert_private(dir: &Path) {
    for (path, (found, ..)) in tree(dir) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(found & 0o7777, expected, "{}", path.display());
    }
}

/// Object that `start` and `stop` print about an agent without tasks.
fn control(action: &str, previous_status: &str, status: &str, changed: bool) -> Value {
    json!({
        "agent": "ada", "action": action, "previous_status": previous_status, "status": status,
        "changed": changed, "tasks": [],
    })
}

/// Agent `ada` whose turn runs, with the id of the turn's message and the tick.
#[track_caller]
fn running(turn: &str) -> (Sandbox, String, Beside) {
    let sandbox = started(turn);
    let message = say(&sandbox, "work");
    let tick = tick_until_running(&sandbox);
    (sandbox, message, tick)
}

#[test]
fn init_makes_a_state_directory_for_its_owner_alone() {
    let sandbox = Sandbox::empty();
    sandbox.cmd(["init"]).prints("made [SANDBOX]/project/.dormouse\n");
    assert_eq!(names(&sandbox.store()), [".gitattributes", ".gitignore", "agents", "dormouse.toml", "hooks"]);
    assert_private(&sandbox.store());
    assert_eq!(mode(&sandbox.store()), 0o700);
}

#[test]
fn every_new_file_is_private_to_its_owner() {
    let sandbox = started("umask 077; echo '{}' > \"$DORMOUSE_OUTCOME\"");
    let script = r#"stat -c %a "$DORMOUSE_HOOK_SCRATCH" "$DORMOUSE_HOOK_SCRATCH"/* >> "$HOME/modes""#;
    let hook = hook(&sandbox.agent("ada"), "on-state-change", script);
    sandbox.run(["enqueue", "ada", "one", "--dedupe-key", "k"]);
    // The next command rebuilds the cache from the records.
    fs::remove_dir_all(sandbox.agent("ada").join("cache")).unwrap();
    sandbox.run(["enqueue", "ada", "two", "--dedupe-key", "l"]);
    sandbox.run(["work", "add", "x", "-a", "ada", "--plan", "prose"]);
    sandbox.run(["wait", "-a", "ada", "--on", "operator", "--reason", "why"]);
    sandbox.run(["timer", "add", "-a", "ada", "--in", "1h", "later"]);
    let task =
        sandbox.run(["task", "start", "-a", "ada", "--interactive", "--", "cat"]).trim_end().to_owned();
    sandbox.run(["task", "stop", &task]);
    sandbox.run(["tick", "ada", "--until-idle"]);
    fs::remove_file(hook).unwrap();
    assert_private(&sandbox.agent("ada"));
    let modes = fs::read_to_string(sandbox.home().join("modes")).unwrap();
    assert!(modes.lines().all(|mode| ["700", "600"].contains(&mode)), "{modes}");
}

#[test]
fn init_again_changes_nothing() {
    let sandbox = Sandbox::new();
    let before = tree(&sandbox.store());
    sandbox.cmd(["init"]).prints("[SANDBOX]/project/.dormouse is there already: nothing changed\n");
    sandbox.cmd(["init", "--json"]).prints("{\"dir\":\"[SANDBOX]/project/.dormouse\",\"created\":false}\n");
    assert_eq!(before, tree(&sandbox.store()));
}

#[test]
fn init_completes_an_interrupted_init() {
    let sandbox = Sandbox::new();
    fs::remove_file(sandbox.store().join("dormouse.toml")).unwrap();
    fs::remove_dir(sandbox.store().join("hooks")).unwrap();
    sandbox.cmd(["init", "--json"]).prints("{\"dir\":\"[SANDBOX]/project/.dormouse\",\"created\":true}\n");
    assert!(sandbox.store().join("hooks").is_dir());
}

#[test]
fn a_state_directory_may_have_a_path_that_is_not_utf_8() {
    let sandbox = Sandbox::empty();
    let place = sandbox.project().join(OsStr::from_bytes(b"od\xffd"));
    let run = |words: &[&str]| {
        let dir = [OsString::from("--dir"), place.clone().into()];
        sandbox.run(dir.into_iter().chain(words.iter().map(OsString::from)))
    };
    sandbox.run([OsStr::new("--json"), "init".as_ref(), place.as_os_str()]);
    let turn = format!("echo half | {} yield --json --checkpoint -", dormouse().display());
    for name in ["ada", "bob"] {
        run(&["create", name, "--shell", &turn]);
        run(&["start", name]);
        run(&["enqueue", name, "x"]);
    }
    let steps = objects(&run(&["tick", "--all", "--jobs", "2", "--json"]));
    let ended: Vec<&Value> = steps.iter().map(|step| &step["terminal"]).collect();
    assert_eq!(ended, ["suspended", "suspended"]);
}

#[test]
fn no_command_changes_a_state_directory_of_a_newer_format() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.store().join("dormouse.toml"), "format = 2\nnovelty = true\n").unwrap();
    let before = tree(&sandbox.store());
    let told = "dormouse: [SANDBOX]/project/.dormouse/dormouse.toml is written in format 2, newer than the \
                format 1 that this dormouse reads\n\
                hint: read it with the newer dormouse that wrote it; nothing was changed\n";
    sandbox.cmd(["init"]).status(6).complains(told);
    sandbox.cmd(["list"]).status(6).complains(told);
    sandbox.cmd(["enqueue", "ada", "hello"]).status(6).complains(told);
    assert_eq!(before, tree(&sandbox.store()));
}

#[test]
fn commands_find_the_state_directory_upwards_by_variable_or_by_flag() {
    let sandbox = started("true");
    let deep = sandbox.project().join("a/b");
    fs::create_dir_all(&deep).unwrap();
    let get = |args: &[&str], dir: &Path, named: &str| {
        let mut command = sandbox.cmd(args.iter().copied()).env("DORMOUSE_DIR", named).into_command();
        let output = command.current_dir(dir).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let found = (Some(0), "ada\n".to_owned());
    let project = sandbox.project().display().to_string();
    let store = sandbox.store().display().to_string();
    assert_eq!(get(&["get", "ada", "agent"], &deep, ""), found, "upwards");
    assert_eq!(get(&["get", "ada", "agent"], &sandbox.home(), &project), found, "DORMOUSE_DIR");
    assert_eq!(get(&["get", "ada", "agent"], &sandbox.home(), &store), found, "DORMOUSE_DIR itself");
    assert_eq!(get(&["-C", &project, "get", "ada", "agent"], &sandbox.home(), "/nowhere"), found, "-C wins");
    assert_eq!(get(&["get", "ada", "agent", "--dir", &store], &sandbox.home(), ""), found, "--dir");
    assert_eq!(get(&["get", "ada", "agent", "-C", "../project"], &sandbox.home(), ""), found, "relative");
}

#[test]
fn without_a_state_directory_commands_fail_with_a_hint_to_init() {
    let sandbox = Sandbox::empty();
    let hint = "make one with `dormouse init`, or name one with --dir or DORMOUSE_DIR";
    let message = |project: &str| {
        format!("no state directory here: looked for .dormouse in {project} and every directory above it")
    };
    let expected = format!("dormouse: {}\nhint: {hint}\n", message("[SANDBOX]/project"));
    for args in commands("list, get ada, tick --all, enqueue ada x, doctor") {
        sandbox.cmd(args).status(3).complains(&expected);
    }
    let failed = failure(&sandbox.cmd(["list", "--json"]).exits(3));
    let message = message(sandbox.project().to_str().unwrap());
    let expected = json!({
        "kind": "no_state_directory", "message": message, "hint": hint, "path": sandbox.project(),
        "exit_status": 3,
    });
    assert_eq!(failed, expected);
    let expected = "dormouse: / is not a state directory: it has no dormouse.toml\nhint: make it one with `dormouse init /`\n";
    sandbox.cmd(["-C", "/", "list"]).status(3).complains(expected);
}

#[test]
fn create_makes_a_booting_agent_and_shows_its_secret_once() {
    let sandbox = Sandbox::new();
    write_program(&sandbox.project().join("turn.sh"), "#!/bin/sh\n");
    let made = sandbox.json(["create", "ada", "--description", "Says \"hi\"", "--", "./turn.sh", "a b", "'"]);
    let secret = made["trigger_secret"].as_str().unwrap();
    let trigger = made["trigger_id"].as_str().unwrap();
    let expected =
        json!({ "agent": "ada", "status": "booting", "trigger_id": trigger, "trigger_secret": secret });
    assert_eq!(made, expected);
    assert_eq!(secret.len(), 64);
    let expected = "description = 'Says \"hi\"'\n\n\
                    # What a turn runs, and for how long. `dormouse man` lists every key.\n\
                    [turn]\n\
                    command = [\"./turn.sh\", \"a b\", \"'\"]\n\
                    timeout = \"30m\"\n\
                    stdin = \"context\"\n";
    assert_eq!(fs::read_to_string(sandbox.agent("ada").join("agent.toml")).unwrap(), expected);
    assert_eq!(field(&sandbox, "status"), "booting");
    assert_eq!(field(&sandbox, "execution.state"), "initializing");
    assert_eq!(field(&sandbox, "description"), "Says \"hi\"");
    assert_eq!(field(&sandbox, "identity.kind"), "named");
}

#[test]
fn create_prints_a_line_for_the_agent_the_trigger_and_the_secret() {
    let sandbox = Sandbox::new();
    let ran = sandbox.cmd(["create", "ada", "--shell", "true"]).output();
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!((ran.code(), ran.stderr.as_str(), lines.len()), (0, "", 3));
    assert_eq!(lines[0], "created ada");
    assert!(lines[1].starts_with("trigger trig_"), "{}", lines[1]);
    assert!(lines[2].starts_with("secret  "), "{}", lines[2]);
}

#[test]
fn create_warns_that_the_agent_has_no_turn_command() {
    let sandbox = Sandbox::new();
    let ran = sandbox.cmd(["create", "ada"]).exits(0);
    let policy = sandbox.agent("ada").join("agent.toml").display().to_string();
    let expected = format!(
        "dormouse: ada has no turn command yet: say what it runs in {policy}, below [turn]: command = [\"./turn.sh\"]\n"
    );
    assert_eq!(ran.stderr, expected);
    assert_eq!(sandbox.cmd(["-q", "create", "bob"]).exits(0).stderr, "");
}

#[test]
fn create_from_a_file_copies_the_file_unchanged() {
    let sandbox = Sandbox::new();
    let text = "# mine\ndescription = \"d\"\n[turn]\nshell = true\ncommand = \"true\"\n";
    fs::write(sandbox.project().join("mine.toml"), text).unwrap();
    sandbox.run(["create", "ada", "--from", "mine.toml"]);
    assert_eq!(fs::read_to_string(sandbox.agent("ada").join("agent.toml")).unwrap(), text);

    fs::write(sandbox.project().join("bad.toml"), "[turn]\ncommand = [\"x\"]\ntimeouts = 3\n").unwrap();
    let ran = sandbox.cmd(["create", "bob", "--from", "bad.toml"]).exits(6);
    assert!(ran.stderr.starts_with("dormouse: bad.toml:3:1: unknown field `timeouts`"), "{ran}");
    sandbox.cmd(["create", "bob", "--from", "/dev/zero"]).exits(6).warns("--from: more than 1048576 bytes");
    let expected = "dormouse: can't read missing.toml: no such file or directory\n";
    sandbox.cmd(["create", "bob", "--from", "missing.toml"]).status(1).complains(expected);
    assert_eq!(names(&sandbox.store().join("agents")), ["ada"]);
}

#[test]
fn create_refuses_a_name_that_is_taken() {
    let sandbox = started("true");
    let before = tree(&sandbox.store());
    let expected = "dormouse: there is an agent `ada` already\nhint: see it with `dormouse get ada`, or change it with `dormouse edit ada`\n";
    sandbox.cmd(["create", "ada", "--", "x"]).status(4).complains(expected);
    assert_eq!(before, tree(&sandbox.store()));
}

#[test]
fn only_names_that_are_safe_in_a_path_are_accepted() {
    let sandbox = Sandbox::new();
    let long = "a".repeat(64);
    for good in ["a", "0", "a.b-c_d", "9lives", &long] {
        sandbox.run(["create", good, "--", "true"]);
    }
    let longer = "a".repeat(65);
    for bad in ["", ".", "..", "a..b", "Ada", "a/b", "-a", "_a", ".a", "a b", "ä", "a\n", &longer] {
        sandbox.cmd(["create", "--shell", "true", "--", bad]).exits(2);
        sandbox.cmd(["get", "--", bad]).exits(2);
    }
    assert_eq!(names(&sandbox.store().join("agents")).len(), 5);
}

#[test]
fn a_child_needs_an_existing_parent() {
    let sandbox = started("true");
    sandbox.run(["create", "kid", "--parent", "ada", "--", "true"]);
    let identity = json!({ "kind": "child", "visibility": "private", "parent": "ada", "owner": "ada" });
    assert_includes(&sandbox.json(["get", "kid"])["identity"], identity);
    // A child is active for its parent only while it has a delegated task.
    assert_eq!(sandbox.json(["get", "ada"])["active_children"], json!([]));
    let expected = "dormouse: no agent `nobody`\nhint: there is ada, kid\n";
    sandbox.cmd(["create", "orphan", "--parent", "nobody", "--", "true"]).status(3).complains(expected);
    let expected = "AGENT  POSTURE\nkid    idle\n";
    sandbox.cmd(["list", "--kind", "child", "--columns", "agent,posture"]).prints(expected);
}

#[test]
fn the_ways_to_name_a_turn_command_exclude_each_other() {
    let sandbox = Sandbox::new();
    let list = "create a --shell x -- y, create a --shell x --from f, create a --from f -- y, \
                create a --from f --description d";
    for args in commands(list) {
        sandbox.cmd(args).exits(2);
    }
    sandbox.cmd(["create", "a", "--", ""]).exits(2);
    assert_eq!(names(&sandbox.store().join("agents")), Vec::<String>::new());
}

#[test]
fn start_makes_the_agent_runnable_and_runs_no_turn() {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "ada", "--", "true"]);
    sandbox.cmd(["tick", "ada"]).prints("ada  noop (not started): start it with `dormouse start ada`\n");
    let before = names(&sandbox.agent("ada").join("inbox"));
    assert_eq!(sandbox.json(["start", "ada"]), control("start", "booting", "awake_idle", true));
    assert_eq!(sandbox.json(["start", "ada"]), control("start", "awake_idle", "awake_idle", false));
    assert_eq!(names(&sandbox.agent("ada").join("inbox")), before);
    assert_eq!(names(&sandbox.agent("ada").join("runs")), Vec::<String>::new());
    assert_eq!(field(&sandbox, "execution.state"), "runnable");
    let kinds = texts(&sandbox.json_lines(["events", "ada"]), "kind");
    let expected =
        words("agent_created scheduler_decision control_request_admitted control_applied state_transition");
    assert_eq!(kinds, expected);
}

#[test]
fn a_command_for_several_agents_continues_after_an_unknown_agent() {
    let sandbox = started("true");
    sandbox.run(["create", "bob", "--", "true"]);
    sandbox
        .cmd(["start", "ada", "nobody", "bob"])
        .status(3)
        .stdout("ada  already started (awake_idle)\nbob  booting → awake_idle\n")
        .complains("dormouse: no agent `nobody`\nhint: there is ada, bob\n");
    let ran = sandbox.cmd(["stop", "ada", "nobody", "bob", "--json"]).exits(3);
    let lines = objects(&ran.stdout);
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["status"], "stopped");
    assert_eq!(lines[1]["status"], "stopped");
    assert_includes(&lines[2], json!({ "error.kind": "no_agent", "error.agent": "nobody" }));
}

#[test]
fn all_is_every_agent_and_excludes_names() {
    let sandbox = started("true");
    sandbox.run(["create", "bob", "--", "true"]);
    sandbox.cmd(["stop", "--all"]).prints("ada  awake_idle → stopped\nbob  booting → stopped\n");
    sandbox.cmd(["start", "--all"]).prints("ada  stopped → awake_idle\nbob  stopped → awake_idle\n");
    // `bob` was stopped before its first start.
    assert_eq!(sandbox.json(["get", "bob"])["execution"]["state"], "runnable");
    for verb in ["start", "stop", "tick"] {
        sandbox.cmd([verb, "--all", "ada"]).exits(2);
        sandbox.cmd([verb]).exits(2);
    }
}

#[test]
fn stop_keeps_queued_messages_and_the_agent_starts_no_turn() {
    let sandbox = started("echo done");
    say(&sandbox, "later");
    let stopped = sandbox.json(["stop", "ada", "--reason", "holidays"]);
    assert_eq!(stopped, control("stop", "awake_idle", "stopped", true));
    assert_eq!(field(&sandbox, "posture"), "archived");
    assert_eq!(field(&sandbox, "queue.pending"), "1");
    assert_eq!(field(&sandbox, "lifecycle.runnable"), "false");
    sandbox.cmd(["tick", "ada"]).prints("ada  stop (stopped)\n");
    sandbox.run(["-q", "enqueue", "ada", "even later"]);
    let events = sandbox.json_lines(["events", "ada", "--kind", "control_request_admitted"]);
    let expected = json!({ "action": "stop", "by": "operator", "reason": "holidays" });
    assert_eq!(events.last().unwrap()["data"], expected);
    let events = sandbox.json_lines(["events", "ada", "--kind", "control_applied"]);
    let applied = &events.last().unwrap()["data"];
    assert_includes(applied, json!({ "previous_status": "awake_idle", "next_status": "stopped" }));
    sandbox.run(["start", "ada"]);
    assert_eq!(decisions(&sandbox), [TURN_COMPLETED, TURN_COMPLETED, SLEEP]);
}

#[test]
fn pause_and_resume_warn_that_they_are_deprecated() {
    let sandbox = started("true");
    let expected = "dormouse: `pause` is deprecated: it does the same as `stop`\n";
    sandbox.cmd(["pause", "ada", "--reason", "x"]).stdout("ada  awake_idle → stopped\n").complains(expected);
    let expected = "dormouse: `resume` of a stopped agent is deprecated: it does the same as `start`\n";
    sandbox.cmd(["resume", "ada"]).stdout("ada  stopped → awake_idle\n").complains(expected);
}

#[test]
fn a_stored_paused_is_read_as_stopped() {
    let sandbox = started("true");
    sandbox.run(["stop", "ada"]);
    edit_state(&sandbox, |state| state["status"] = json!("paused"));
    assert_eq!(field(&sandbox, "status"), "stopped");
    sandbox.run(["start", "ada"]);
    sandbox.run(["stop", "ada"]);
    assert_eq!(record(&sandbox, "state.json")["status"], "stopped");
}

/// Turn that runs until SIGTERM, and then succeeds.
const POLITE: &str = "trap 'echo bye; exit 0' TERM; touch running; while :; do sleep 0.02; done";
/// Turn that runs until it is killed.
const STUBBORN: &str = "trap '' TERM; touch running; while :; do sleep 0.02; done";

#[test]
fn stop_asks_a_running_turn_to_end() {
    let (sandbox, message, tick) = running(POLITE);
    assert_eq!(field(&sandbox, "status"), "awake_running");
    assert_eq!(field(&sandbox, "posture"), "active_turn");
    let run = field(&sandbox, "current_run.run_id");
    sandbox.cmd(["start", "ada"]).prints("ada  already started (awake_running)\n");
    let stopped = sandbox.json(["stop", "ada", "--reason", "enough"]);
    let expected = json!({
        "completed_run_id": run, "aborted_run_id": null, "status": "stopped", "previous_status": "awake_running",
    });
    assert_includes(&stopped, expected);
    let ticked = tick.end();
    let expected = (0, "ada  start_model_turn (a message from you) → completed: bye\n", "");
    assert_eq!((ticked.code(), ticked.stdout.as_str(), ticked.stderr.as_str()), expected);
    assert_eq!(field(&sandbox, "execution.state"), "completed");
    assert_eq!(field(&sandbox, "current_run"), "");
    assert_eq!(sandbox.json(["queue", "show", &message])["status"], "processed");
    let run = sandbox.json(["run", "show", &run]);
    let exit = json!({ "how": "code", "code": 0 });
    assert_includes(&run, json!({ "terminal": "completed", "brief": "bye", "exit": exit }));
    assert!(sandbox.json_lines(["events", "ada", "--kind", "current_run_aborted"]).is_empty());
    assert_eq!(checker::look(&sandbox.agent("ada")).complaints, Vec::<String>::new());
}

#[test]
fn stop_kills_a_turn_that_will_not_end_within_the_grace() {
    let (sandbox, _, tick) = running(STUBBORN);
    sandbox.run(["stop", "ada", "--grace", "100ms"]);
    tick.end();
    let expected = json!({
        "execution.state": "failed", "execution.reason": "shutdown_timeout", "last_turn.terminal": "aborted",
    });
    assert_includes(&sandbox.json(["get", "ada"]), expected);
    sandbox.run(["start", "ada"]);
    assert_eq!(decisions(&sandbox), ["start_recovery (after_stop)", SLEEP]);
}

#[test]
fn an_agent_that_is_deleted_during_its_turn_is_not_created_again() {
    let sandbox = started(r#"rm -r "$DORMOUSE_DIR/agents/$DORMOUSE_AGENT""#);
    say(&sandbox, "work");
    sandbox.cmd(["tick", "ada"]).exits(3).warns("no agent `ada`");
    assert!(!sandbox.agent("ada").exists());
    assert_eq!(sandbox.run(["doctor"]), "0 records in 0 agents: nothing wrong\n");
}

#[test]
fn only_a_failed_agent_recovers() {
    let sandbox = started("true");
    let before = fs::read(sandbox.agent("ada").join("state.json")).unwrap();
    sandbox.cmd(["recover", "ada"]).status(4).complains(
        "dormouse: `ada` has nothing to recover\n\
         hint: `dormouse tick ada` runs its next step\n",
    );
    let failed = failure(&sandbox.cmd(["recover", "ada", "--json"]).output());
    let message = "`ada` has nothing to recover";
    assert_includes(&failed, json!({ "message": message, "from": "runnable", "to": "recovering" }));
    assert_eq!(fs::read(sandbox.agent("ada").join("state.json")).unwrap(), before);
}

#[test]
fn recover_ends_a_backoff_at_once() {
    let sandbox = started_with("exit 1", "\n[recovery]\nbase = \"1h\"\n");
    say(&sandbox, "work");
    let expected = "ada  start_model_turn (a message from you) → failed: exit status 1\n";
    sandbox.cmd(["tick", "ada"]).status(7).prints(expected);
    let expected = "ada  wait_for_timer (recovery backoff)  next due 2026-01-02T04:04:09.000Z\n";
    sandbox.cmd(["tick", "ada"]).prints(expected);
    sandbox.cmd(["recover", "ada"]).prints("ada  runnable (awake_idle)\n");
    assert_eq!(decision(&step(&sandbox)), TURN_FAILED);
    assert_eq!(field(&sandbox, "last_turn.attempt"), "2");
    let recovered = sandbox.json(["recover", "ada"]);
    assert_includes(&recovered, json!({ "execution_state": "runnable", "status": "awake_idle" }));
}

#[test]
fn recover_settles_a_run_whose_tick_is_gone() {
    let (sandbox, message, mut tick) = running(STUBBORN);
    let run = field(&sandbox, "current_run.run_id");
    sandbox.cmd(["recover", "ada"]).status(4).complains(
        "dormouse: run_#1 is running: there is nothing to recover\nhint: `dormouse stop` ends it\n",
    );
    tick.kill();
    eventually("the lease is free", || {
        let ran = sandbox.cmd(["recover", "ada", "--json"]).output();
        (ran.code() == 0).then(|| assert_eq!(objects(&ran.stdout)[0]["interrupted_run_id"], run.as_str()))
    });
    assert_eq!(field(&sandbox, "last_turn.terminal"), "interrupted");
    assert_includes(&sandbox.json(["queue", "show", &message]), json!({ "status": "queued", "attempt": 1 }));
}

/// Agent whose turn runs on another host, as after a copy of its state directory.
fn run_elsewhere() -> Sandbox {
    let (sandbox, _, mut tick) = running(STUBBORN);
    tick.kill();
    edit_state(&sandbox, |state| {
        state["current_run"]["host"] = json!("elsewhere");
        state["current_run"]["boot_id"] = json!("another boot");
    });
    sandbox
}

#[test]
fn a_run_of_another_host_counts_as_live_until_its_lease_ends() {
    let sandbox = run_elsewhere();
    let lease = field(&sandbox, "current_run.lease_expires_at");
    assert_eq!(decision(&step(&sandbox)), "noop (turn_in_progress)");
    let after = lease.replace(".000Z", ".001Z");
    let noop = format!("ada  noop (turn in progress)  next due {after}\n");
    sandbox.cmd(["tick", "ada", "--dry-run"]).prints(&noop);
    assert_eq!(sandbox.run(["next-wake", "ada"]).trim(), after);
    sandbox
        .cmd(["recover", "ada"])
        .status(4)
        .complains(&format!(
            "dormouse: run_#1 runs on elsewhere until {lease}\nhint: if that host does not come back, use --force\n"
        ));
    sandbox.cmd(["tick", "ada"]).env("DORMOUSE_NOW", &lease).prints(&noop);
    let ran = sandbox.cmd(["tick", "ada", "--json"]).env("DORMOUSE_NOW", after).output();
    assert!(objects(&ran.stdout)[0]["recovered_run_id"].is_string(), "{ran}");
    assert_eq!(field(&sandbox, "last_turn.terminal"), "interrupted");
}

#[test]
fn recover_by_force_takes_a_run_from_another_host() {
    let sandbox = run_elsewhere();
    let expected = "dormouse: run_#1 runs on elsewhere: its processes are left alone\n";
    sandbox.cmd(["recover", "ada", "--force"]).stdout("ada  runnable (awake_idle)\n").complains(expected);
    assert_eq!(field(&sandbox, "last_turn.terminal"), "interrupted");
    assert_eq!(field(&sandbox, "queue.pending"), "1");
}

#[test]
fn stop_warns_that_a_turn_continues_on_another_machine() {
    let sandbox = run_elsewhere();
    sandbox.cmd(["stop", "ada"]).stdout("ada  awake_running → stopped\n").complains(
        "dormouse: ada: run_#1 runs on elsewhere; the agent is stopped, but its turn continues there\n",
    );
}

/// Compares all that a person at a terminal sees during the whole life of an agent.
#[test]
fn commands_print_the_expected_text_during_the_life_of_an_agent() {
    let sandbox = Sandbox::empty();
    let turn = "cat >/dev/null; case $(grep -c fragile \"$DORMOUSE_CONTEXT\") in 0) echo \"done with $DORMOUSE_ATTEMPT\";; \
                *) test \"$DORMOUSE_ATTEMPT\" = 2 || { echo 'it broke' >&2; exit 9; }; echo mended;; esac";
    sandbox.cmd(["init"]).prints("made [SANDBOX]/project/.dormouse\n");
    sandbox.cmd(["list"]).complains("dormouse: no agents yet: make one with `dormouse create`\n");
    sandbox.run(["create", "ada", "--description", "Looks after things", "--shell", turn]);
    sandbox.cmd(["tick", "ada"]).prints("ada  noop (not started): start it with `dormouse start ada`\n");
    sandbox.cmd(["start", "ada"]).prints("ada  booting → awake_idle\n");
    sandbox.cmd(["tick", "ada"]).prints("ada  sleep (nothing to do)\n");
    sandbox.cmd(["tick", "ada", "--exit-code"]).status(10).prints("ada  stay_idle (already asleep)\n");
    sandbox.cmd(["enqueue", "ada", "look at the door"]).prints("msg_#1\n");
    sandbox.cmd(["enqueue", "ada", "fragile", "--priority", "next"]).prints("msg_#2\n");
    sandbox.cmd(["queue", "list", "-a", "ada"]).prints(
        "msg_#2  next  queued  a message from you  fragile\n\
         msg_#1  normal  queued  a message from you  look at the door\n",
    );
    let expected = "ada  start_model_turn (a message from you) → failed: exit status 9: it broke\n";
    sandbox.cmd(["tick", "ada"]).status(7).prints(expected);
    sandbox.cmd(["get", "ada"]).prints(
        "agent       ada\n\
         for         Looks after things\n\
         status      awake_idle\n\
         posture     has_queued_input: exit status 9: it broke; attempt 2 is next\n\
         execution   failed since 1s ago: exit status 9: it broke\n\
         queue       2 pending\n\
         last turn   failed 1s ago: exit status 9: it broke\n\
         retry       is due: exit status 9: it broke\n\
         next due    now\n",
    );
    sandbox.cmd(["tick", "ada", "--until-idle"]).prints(
        "ada  start_recovery (after a failure)\n\
         ada  start_model_turn (a message from you) → completed, attempt 2: mended\n\
         ada  start_model_turn (a message from you) → completed: done with 1\n\
         ada  sleep (nothing to do)\n",
    );
    let expected = "2026-01-02T03:04:17.000Z  done with 1\n2026-01-02T03:04:17.000Z  mended\n";
    sandbox.cmd(["briefs", "ada"]).prints(expected);
    let no_turn = "dormouse: ada: no turn will run: the hint ends no wait, and no work is runnable; the next \
                   turn is told of it\n";
    sandbox.cmd(["wake", "ada", "--reason", "a noise"]).stdout("msg_#3\n").complains(no_turn);
    sandbox.cmd(["tick", "ada", "--until-idle"]).prints(
        "ada  emit_system_tick (wake hint)\n\
         ada  reduce_message_only (a scheduler tick)\n\
         ada  sleep (nothing to do)\n",
    );
    sandbox.cmd(["enqueue", "ada", "the door is open"]).prints("msg_#4\n");
    sandbox.cmd(["tick", "ada", "--until-idle"]).prints(
        "ada  start_model_turn (a message from you) → completed: done with 1\n\
         ada  sleep (nothing to do)\n",
    );
    sandbox.cmd(["stop", "ada", "--reason", "night"]).prints("ada  asleep → stopped\n");
    let expected = "dormouse: ada is stopped: it takes this up after `dormouse start ada`\n";
    sandbox.cmd(["enqueue", "ada", "in the morning"]).stdout("msg_#5\n").complains(expected);
    sandbox.cmd(["tick", "--all"]).prints("ada  stop (stopped)\n");
    let expected = "AGENT  POSTURE  QUEUE  LAST TURN\nada    stopped  1      4s ago\n";
    sandbox.cmd(["list", "--columns", "agent,posture,queue,last"]).prints(expected);
    sandbox.cmd(["start", "ada"]).prints("ada  stopped → awake_idle\n");
    let expected = "ada  start_model_turn (a message from you) → completed: done with 1\n";
    sandbox.cmd(["tick", "ada"]).prints(expected);
    sandbox.cmd(["state", "ada"]).prints(
        "ada is completed (8) since 2026-01-02T03:04:28.000Z (1s ago)\n\
         next: runnable\n\
         2026-01-02T03:04:28.000Z  running → completed   completed\n\
         2026-01-02T03:04:28.000Z  scheduled → running   turn command starts\n\
         2026-01-02T03:04:28.000Z  runnable → scheduled  claimed\n\
         2026-01-02T03:04:28.000Z  completed → runnable  ready for the next message\n\
         2026-01-02T03:04:22.000Z  running → completed   completed\n\
         2026-01-02T03:04:22.000Z  scheduled → running   turn command starts\n\
         2026-01-02T03:04:22.000Z  runnable → scheduled  claimed\n\
         2026-01-02T03:04:22.000Z  completed → runnable  ready for the next message\n\
         2026-01-02T03:04:17.000Z  running → completed   completed\n\
         2026-01-02T03:04:17.000Z  scheduled → running   turn command starts\n",
    );
    sandbox.cmd(["doctor"]).prints("76 records in 1 agent: nothing wrong\n");

    let found = checker::look(&sandbox.agent("ada"));
    assert_eq!(found.complaints, Vec::<String>::new());
    assert_eq!((found.queued.len(), found.hints.len(), found.has_journal), (0, 0, false));
    assert_eq!(found.leftovers, Vec::<String>::new());
    assert_eq!(found.messages().len(), found.archived.len());
    assert_eq!(found.ended_as(&sandbox.id("msg_#2")), Some("processed"));
    assert_eq!(found.runs.len(), 5);
    assert_eq!(found.revision(), found.state["revision"].as_u64().unwrap());
}

#[test]
fn defaults_of_the_state_directory_apply_to_every_agent() {
    let sandbox = Sandbox::new();
    let config = sandbox.store().join("dormouse.toml");
    edit_file(&config, |text| {
        format!("{text}\n[defaults]\ndescription = \"one of many\"\n[defaults.limits]\nmax_hops = 3\n")
    });
    add(&sandbox, "ada", "true");
    assert_eq!(field(&sandbox, "description"), "one of many");
    assert_eq!(field(&sandbox, "limits.max_hops"), "3");
    extend_policy(&sandbox, "ada", "\n[limits]\nmax_hops = 5\n");
    assert_eq!(field(&sandbox, "limits.max_hops"), "5");
}
