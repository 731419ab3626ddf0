//! Tests hooks: which program runs, when, with which input, and the consequences of its failure.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{
    Beside, assert_includes, decision, extend_policy, failure, field, hook, id, noted, noted_objects,
    objects, say, step, step_on, wait_for_line,
};

fn created(shell: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "ada", "--shell", shell]);
    sandbox
}

/// Started agent `ada` with this turn and a hook of its own, which runs from the first start on.
fn hooked(shell: &str, name: &str, script: &str) -> Sandbox {
    let sandbox = created(shell);
    hook(&sandbox.agent("ada"), name, script);
    sandbox.run(["start", "ada"]);
    sandbox
}

/// Returns the events about hooks.
fn recorded(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.json_lines(["events", "ada", "--kind", "hook_ended"])
}

/// Starts a command, and waits until a hook has written a line to `$HOME/noted`.
fn until_noted(sandbox: &Sandbox, args: &[&str]) -> Beside {
    let running = Beside::start(sandbox.cmd(args.iter().copied()));
    wait_for_line(&sandbox.home().join("noted"));
    running
}

/// Hook that writes its name and the agent's execution state to `$HOME/noted`.
const NOTE_STATE: &str = r#"echo "$DORMOUSE_HOOK $($D get ada execution.state)" >> "$HOME/noted""#;

/// Hook that writes its input to `$HOME/noted`.
const NOTE_INPUT: &str = r#"read -r d; echo "$d" >> "$HOME/noted""#;

#[test]
fn on_startup_runs_after_the_begin_is_recorded_and_before_the_agent_is_runnable() {
    let sandbox = created("true");
    let created_at = field(&sandbox, "execution.since");
    let note = r#"echo "$($D get ada execution.state) $($D get ada execution.since)" >> "$HOME/noted""#;
    hook(&sandbox.agent("ada"), "on-startup", note);
    sandbox.run(["start", "ada"]);
    let began_at = noted(&sandbox)[0].strip_prefix("initializing ").unwrap().to_owned();
    assert!(began_at > created_at, "{began_at} {created_at}");
    assert_eq!(field(&sandbox, "execution.state"), "runnable");
    sandbox.run(["stop", "ada"]);
    sandbox.run(["start", "ada"]);
    assert_eq!(noted(&sandbox).len(), 1, "a second start has run the hook again");
}

#[test]
fn a_startup_that_fails_starts_nothing() {
    let sandbox = created("true");
    let path = hook(&sandbox.agent("ada"), "on-startup", "echo looking >&2; echo no disk >&2; exit 3");
    let ran = sandbox.cmd(["start", "ada", "--json"]).exits(1);
    assert_eq!(failure(&ran)["message"], "on-startup failed: exit status 3: no disk");
    assert_eq!(
        (field(&sandbox, "execution.state"), field(&sandbox, "status")),
        ("initializing".into(), "booting".into())
    );
    let events = recorded(&sandbox);
    assert_eq!(events.len(), 1);
    let output = json!({ "data.last_line": "no disk", "data.output": "looking\nno disk\n" });
    assert_includes(&events[0], output);
    assert_includes(&events[0], json!({ "data.hook": "on-startup", "data.success": false }));
    fs::remove_file(path).unwrap();
    sandbox.run(["start", "ada"]);
}

#[test]
fn a_hook_has_the_environment_and_the_workspace_of_a_turn() {
    let sandbox = created("true");
    fs::create_dir(sandbox.project().join("place")).unwrap();
    extend_policy(&sandbox, "ada", "[turn.env]\nCOLOUR = \"blue\"\n\n[workspace]\npath = \"place\"\n");
    let script = r#"echo "$(basename "$PWD") $COLOUR $DORMOUSE_AGENT $DORMOUSE_DIR ${DORMOUSE_RUN-none} ${DORMOUSE_MESSAGE-none} ${DORMOUSE_WORK_ITEM-none}" >> "$HOME/noted""#;
    hook(&sandbox.agent("ada"), "on-state-change", script);
    sandbox.run(["start", "ada"]);
    let item = id(&sandbox, &["work", "add", "paint"]);
    let message = sandbox.run(["enqueue", "ada", "--work-item", &item, "go on"]).trim_end().to_owned();
    let run = step(&sandbox)["run_id"].as_str().unwrap().to_owned();
    let base = format!("place blue ada {}", sandbox.store().display());
    // Hooks before the claim and after the settlement have no run in their environment.
    let outside = format!("{base} none none none");
    let inside = format!("{base} {run} {message} {item}");
    assert_eq!(noted(&sandbox), [&outside, &inside, &inside, &outside].map(String::as_str));
    assert_eq!(recorded(&sandbox), Vec::<Value>::new(), "an event about a hook that succeeds");
}

#[test]
fn the_hook_of_an_agent_replaces_the_shared_hook() {
    let sandbox = created("true");
    let note = |word: &str| format!(r#"echo {word} >> "$HOME/noted""#);
    hook(&sandbox.store(), "on-startup", &note("shared"));
    let own = hook(&sandbox.agent("ada"), "on-startup", &note("own"));
    sandbox.run(["create", "bob", "--shell", "true"]);
    sandbox.run(["create", "eve", "--shell", "true"]);
    let not_executable = hook(&sandbox.agent("eve"), "on-startup", &note("never"));
    fs::set_permissions(not_executable, fs::Permissions::from_mode(0o644)).unwrap();
    for name in ["ada", "bob", "eve"] {
        sandbox.run(["start", name]);
    }
    assert_eq!(noted(&sandbox), ["own", "shared", "shared"]);
    assert!(own.exists());
}

#[test]
fn a_change_whose_hook_fails_is_kept_and_the_failure_is_recorded() {
    let sandbox = created("echo done");
    hook(&sandbox.agent("ada"), "on-state-change", "echo out; echo why >&2; exit 9");
    let ran = sandbox.cmd(["start", "ada"]).exits(0);
    assert_eq!(ran.stderr, "dormouse: ada: on-state-change failed: exit status 9: why\n");
    assert_eq!(field(&sandbox, "execution.state"), "runnable");
    let data = &recorded(&sandbox)[0]["data"];
    assert_includes(data, json!({ "reason": "exit status 9", "last_line": "why", "output": "out\nwhy\n" }));
    let step = step_on(&sandbox, "hello");
    assert_eq!(step["terminal"], "completed");
    // The output of hooks of a run is not in the events, but in a log in the run directory.
    let run = step["run_id"].as_str().unwrap();
    assert_eq!(recorded(&sandbox).len(), 4);
    assert!(
        recorded(&sandbox)[1..]
            .iter()
            .all(|event| event["run_id"] == run && event["data"]["output"].is_null())
    );
    let log = fs::read_to_string(sandbox.agent("ada").join("runs").join(run).join("hooks.log")).unwrap();
    assert_eq!(log, "out\nwhy\n".repeat(3));
}

#[test]
fn a_hook_calls_dormouse_while_no_lock_is_held() {
    let script =
        r#"$D --lock-timeout 0 work add "after $DORMOUSE_HOOK" -a ada && $D enqueue ada "from the hook""#;
    let sandbox = hooked("true", "on-startup", script);
    assert_eq!(sandbox.json_lines(["work", "list", "-a", "ada"])[0]["objective"], "after on-startup");
    let message = sandbox.json(["queue", "list", "-a", "ada"]);
    assert_eq!(
        (&message["kind"], &message["origin"]["kind"]),
        (&"operator_prompt".into(), &"operator".into())
    );
}

#[test]
fn changes_by_a_hook_run_no_hook() {
    let script = r#"echo change >> "$HOME/noted"; $D stop ada; $D start ada; $D enqueue ada x; $D tick ada"#;
    let sandbox = created("true");
    hook(&sandbox.store(), "on-state-change", script);
    sandbox.run(["start", "ada"]);
    assert_eq!(noted(&sandbox), ["change"]);
    assert_eq!(field(&sandbox, "execution.state"), "completed");
}

/// Agent with this `on-recovery-start` hook, whose first turn has failed, and whose backoff is
/// over.
fn failed(script: &str) -> Sandbox {
    let sandbox = created(r#"test "$DORMOUSE_ATTEMPT" -gt 1"#);
    extend_policy(&sandbox, "ada", "[recovery]\nbase = \"30s\"\n");
    sandbox.run(["start", "ada"]);
    say(&sandbox, "hello");
    assert_eq!(step(&sandbox)["terminal"], "failed");
    hook(&sandbox.agent("ada"), "on-recovery-start", script);
    sandbox.pass(60);
    sandbox
}

#[test]
fn an_interjection_asks_for_a_recovery_once() {
    let sandbox = failed("false");
    sandbox.run(["enqueue", "ada", "now", "--priority", "interject"]);
    assert_eq!(decision(&step(&sandbox)), "start_recovery (retry)");
    assert_eq!(decision(&step(&sandbox)), "wait_for_timer (recovery_backoff)");
    sandbox.run(["enqueue", "ada", "and now?", "--priority", "interject"]);
    assert_eq!(decision(&step(&sandbox)), "start_recovery (retry)");
}

#[test]
fn a_recovery_hook_that_fails_fails_the_recovery_and_pauses_it() {
    let sandbox = failed("echo looking; echo still broken >&2; false");
    hook(&sandbox.agent("ada"), "on-recovery-complete", NOTE_INPUT);
    assert_eq!(decision(&step(&sandbox)), "start_recovery (retry)");
    assert_eq!(field(&sandbox, "execution.state"), "failed");
    assert_eq!(field(&sandbox, "execution.reason"), "still broken");
    let told = &noted_objects(&sandbox)[0];
    assert_includes(told, json!({ "from": "recovering", "to": "failed", "success": false }));
    // Until the backoff ends, no step tries the recovery again; the message keeps its attempts.
    sandbox.run(["tick", "ada", "--until-idle", "-q"]);
    assert_eq!(noted(&sandbox).len(), 1);
    assert_eq!(decision(&step(&sandbox)), "wait_for_timer (recovery_backoff)");
    fs::remove_file(sandbox.agent("ada").join("hooks/on-recovery-start")).unwrap();
    sandbox.pass(60);
    assert_eq!(decision(&step(&sandbox)), "start_recovery (retry)");
    let turn = step(&sandbox);
    assert_eq!((&turn["terminal"], &turn["attempt"]), (&"completed".into(), &2.into()));
}

#[test]
fn without_a_start_hook_a_recovery_succeeds_at_once() {
    let sandbox = failed("true");
    fs::remove_file(sandbox.agent("ada").join("hooks/on-recovery-start")).unwrap();
    hook(&sandbox.agent("ada"), "on-recovery-complete", NOTE_INPUT);
    sandbox.run(["recover", "ada"]);
    assert_includes(&noted_objects(&sandbox)[0], json!({ "success": true, "to": "runnable" }));
}

#[test]
fn a_recovery_that_was_killed_continues_with_the_next_step() {
    let sandbox = failed(r#"echo up >> "$HOME/noted"; test -e "$HOME/go" || sleep 600"#);
    let tick = until_noted(&sandbox, &["tick", "ada"]);
    // While the recovery runs, no other command begins a second one.
    assert_eq!(decision(&step(&sandbox)), "noop (turn_in_progress)");
    sandbox.cmd(["recover", "ada"]).exits(4);
    drop(tick);
    assert_eq!(field(&sandbox, "execution.state"), "recovering");
    fs::write(sandbox.home().join("go"), "").unwrap();
    assert_eq!(decision(&step(&sandbox)), "start_recovery (retry)");
    assert_eq!(field(&sandbox, "execution.state"), "runnable");
    assert_eq!(noted(&sandbox), ["up", "up"]);
}

#[test]
fn a_stop_ends_a_recovery_which_begins_again_after_the_next_start() {
    let sandbox = failed(r#"echo up >> "$HOME/noted"; sleep 600"#);
    let tick = until_noted(&sandbox, &["tick", "ada"]);
    hook(&sandbox.agent("ada"), "on-shutdown", r#"echo down >> "$HOME/noted""#);
    sandbox.run(["stop", "ada"]);
    tick.end().exits(0);
    let states = || (field(&sandbox, "status"), field(&sandbox, "execution.state"));
    assert_eq!(states(), ("stopped".into(), "failed".into()));
    assert_eq!(noted(&sandbox), ["up", "down"]);
    sandbox.run(["start", "ada"]);
    hook(&sandbox.agent("ada"), "on-recovery-start", "true");
    assert_eq!(decision(&step(&sandbox)), "start_recovery (retry)");
    assert_eq!(states(), ("awake_idle".into(), "runnable".into()));
}

#[test]
fn on_scheduled_acts_for_the_turn() {
    let sandbox = hooked("true", "on-scheduled", "$D enqueue ada more >/dev/null");
    step_on(&sandbox, "hello");
    assert_eq!(sandbox.json(["queue", "list", "-a", "ada"])["kind"], "internal_followup");
}

#[test]
fn a_signal_to_the_tick_ends_its_hook_and_starts_no_turn() {
    let sandbox = created(r#"echo turn >> "$HOME/noted""#);
    sandbox.run(["start", "ada"]);
    hook(&sandbox.agent("ada"), "on-state-change", r#"echo up >> "$HOME/noted"; exec sleep 600"#);
    let message = say(&sandbox, "hello");
    let tick = until_noted(&sandbox, &["tick", "ada", "--json"]);
    crate::setup::kill("TERM", tick.0.id());
    let step = objects(&tick.end().stdout).remove(0);
    assert_eq!(step["terminal"], "interrupted");
    assert_eq!(noted(&sandbox), ["up"], "the turn or another hook has run");
    assert_eq!(sandbox.json(["queue", "show", &message])["attempt"], 1);
}

/// A turn that delegates starts a child agent. The hooks of the parent must still run for each
/// transition.
#[test]
fn a_turn_that_delegates_runs_all_hooks() {
    let action = r#"{"do":"task.start","delegate":"eve","text":"dig"}"#;
    let turn = format!(r#"echo '{{"actions":[{action}]}}' > "$DORMOUSE_OUTCOME""#);
    let note = r#"sed 's/.*"to":"\([a-z]*\)".*/\1/' >> "$HOME/noted""#;
    let sandbox = hooked(&turn, "on-state-change", note);
    say(&sandbox, "hello");
    assert_eq!(step(&sandbox)["terminal"], "completed");
    assert_eq!(sandbox.json(["get", "eve"])["status"], "awake_idle");
    assert_eq!(noted(&sandbox), ["runnable", "scheduled", "running", "completed"]);
}

#[test]
fn a_stop_during_the_startup_hook_cancels_the_start() {
    let sandbox = created("true");
    let script = r#"echo up >> "$HOME/noted"; until test -e "$HOME/go"; do sleep 0.02; done"#;
    hook(&sandbox.agent("ada"), "on-startup", script);
    let start = until_noted(&sandbox, &["start", "ada", "--json"]);
    sandbox.run(["stop", "ada"]);
    fs::write(sandbox.home().join("go"), "").unwrap();
    start.end().fails(4, "stopped_meanwhile");
    assert_eq!(field(&sandbox, "status"), "stopped");
    sandbox.run(["start", "ada"]);
    assert_eq!(noted(&sandbox), ["up", "up"], "the next start has not run the hook again");
    assert_eq!(field(&sandbox, "status"), "awake_idle");
}

#[test]
fn on_shutdown_runs_while_the_turn_still_runs_and_its_failure_stops_nothing() {
    let sandbox = created(r#"echo up > "$HOME/up"; exec sleep 600"#);
    hook(&sandbox.store(), "on-shutdown", &format!("{NOTE_STATE}; echo no net >&2; false"));
    sandbox.run(["start", "ada"]);
    // Without a running turn, `stop` runs no on-shutdown hook.
    sandbox.run(["stop", "ada"]);
    sandbox.run(["start", "ada"]);
    assert_eq!(noted(&sandbox), Vec::<String>::new());
    say(&sandbox, "hello");
    let tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("up"));
    sandbox.cmd(["stop", "ada"]).exits(0);
    tick.end();
    assert_eq!(noted(&sandbox), ["on-shutdown running"]);
    assert_eq!(field(&sandbox, "status"), "stopped");
    assert_eq!(recorded(&sandbox)[0]["data"]["last_line"], "no net");
    sandbox.run(["stop", "ada"]);
    assert_eq!(noted(&sandbox).len(), 1, "a second stop has run the hook again");
}

#[test]
fn a_step_that_finds_nothing_to_do_looks_for_no_hook() {
    needs!("strace");
    let sandbox = created("true");
    hook(&sandbox.store(), "on-state-change", NOTE_STATE);
    sandbox.run(["start", "ada"]);
    sandbox.run(["tick", "ada", "--until-idle"]);
    let before = noted(&sandbox).len();
    let looked_for = |line: &&str| line.contains("on-state-change");
    let idle = crate::strace::named(&sandbox, &["tick", "ada"]);
    assert_eq!(idle.lines().find(looked_for), None);
    assert_eq!(noted(&sandbox).len(), before);
    sandbox.run(["enqueue", "ada", "x"]);
    assert!(crate::strace::named(&sandbox, &["tick", "ada"]).lines().any(|line| looked_for(&line)));
}
