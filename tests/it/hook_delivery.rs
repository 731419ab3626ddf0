//! Tests that `on-scheduled` and `on-resume` run in the states of their names, and that
//! `on-state-change` is called for every transition at least once, in order, after any kill.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{
    Beside, assert_includes, decision, extend_policy, failure, field, hook, json_in, kill, objects, record,
    say, started, step, take_noted, wait_for,
};

/// Hook that records its name, and the execution state and status of the agent.
const NOTE: &str =
    r#"echo "$DORMOUSE_HOOK $($D get ada execution.state) $($D get ada status)" >> "$HOME/noted""#;
/// Hook that records both states of its transition.
const EDGE: &str = r#"sed 's/.*"from":"\([^"]*\)","to":"\([^"]*\)".*/\1 \2/' >> "$HOME/noted""#;

/// Returns the recorded state transitions of `ada`, without the first `from` ones.
fn edges(sandbox: &Sandbox, from: usize) -> Vec<String> {
    let events = sandbox.json_lines(["events", "ada", "--kind", "state_transition"]);
    let word = |event: &Value, field: &str| event["data"][field].as_str().unwrap().to_owned();
    events[from..].iter().map(|event| format!("{} {}", word(event, "from"), word(event, "to"))).collect()
}

fn pending(sandbox: &Sandbox) -> usize {
    record(sandbox, "state.json")["notifications"].as_array().map_or(0, Vec::len)
}

fn is_sound(sandbox: &Sandbox) {
    sandbox.cmd(["doctor"]).exits(0);
}

/// Claims a message without its workspace: `on-scheduled` runs only once the workspace exists.
#[test]
fn on_scheduled_runs_only_when_the_missing_workspace_exists() {
    let sandbox = started("true");
    extend_policy(&sandbox, "ada", "[workspace]\npath = \"disk\"\nmode = \"exclusive\"\n");
    for name in ["on-scheduled", "on-state-change"] {
        hook(&sandbox.agent("ada"), name, "exit 0");
    }
    say(&sandbox, "hello");
    assert_eq!(decision(&step(&sandbox)), "wait_for_resources (workspace)");
    hook(&sandbox.agent("ada"), "on-scheduled", NOTE);
    fs::create_dir(sandbox.project().join("disk")).unwrap();
    assert_eq!(step(&sandbox)["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["on-scheduled scheduled awake_running"]);
}

#[test]
fn without_hooks_a_claim_is_one_commit() {
    let sandbox = started("true");
    say(&sandbox, "hello");
    let before = record(&sandbox, "state.json")["revision"].as_u64().unwrap();
    step(&sandbox);
    assert_eq!(
        record(&sandbox, "state.json")["revision"].as_u64().unwrap(),
        before + 2,
        "one claim and one settlement"
    );
    assert_eq!(record(&sandbox, "state.json")["notifications"], Value::Null);
}

#[test]
fn a_run_can_not_yield_before_its_turn_starts() {
    let sandbox = started("true");
    let script = r#"$D yield --json > "$HOME/answer"; echo $? >> "$HOME/noted""#;
    hook(&sandbox.agent("ada"), "on-scheduled", script);
    say(&sandbox, "hello");
    assert_eq!(step(&sandbox)["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["4"]);
    let answer: Value = json_in(sandbox.home().join("answer"));
    assert_eq!(answer["error"]["kind"], "invalid_state_transition");
}

/// Action on a run during its hook `on-scheduled`.
type Act = fn(&Sandbox, Beside);

/// Interrupts a run during its hook: its message is processed later, and the records are sound.
#[test]
fn a_run_that_has_not_begun_can_be_stopped_failed_asked_to_yield_and_killed() {
    let cases: [(&str, &str, Act); 5] = [
        ("stop", "running shutting_down", |sandbox, tick| {
            sandbox.run(["stop", "ada", "--grace", "0s", "--requeue"]);
            tick.end();
            sandbox.run(["start", "ada"]);
        }),
        ("fail", "running failed", |sandbox, tick| {
            sandbox.run(["fail", "ada", "--reason", "enough"]);
            tick.end();
        }),
        ("kill", "running failed", |_, tick| drop(tick)),
        ("forced", "running failed", |sandbox, tick| {
            sandbox.run(["preempt", "ada", "--reason", "now", "--grace", "0s"]);
            tick.end();
        }),
        ("signal", "running failed", |_, tick| {
            kill("TERM", tick.0.id());
            tick.end();
        }),
    ];
    for (name, ended, act) in cases {
        let sandbox = started(r#"echo turn >> "$HOME/noted""#);
        let script = r#": > "$HOME/up"; until test -e "$HOME/go"; do sleep 0.01; done"#;
        hook(&sandbox.agent("ada"), "on-scheduled", script);
        let message = say(&sandbox, "hello");
        let before = edges(&sandbox, 0).len();
        let tick =
            Beside::start(sandbox.cmd(["tick", "ada", "--json"])).after_it_made(sandbox.home().join("up"));
        assert_eq!(
            (field(&sandbox, "execution.state"), field(&sandbox, "status")),
            ("scheduled".into(), "awake_running".into())
        );
        assert_eq!(sandbox.cmd(["resume", "ada"]).output().code(), 4, "{name}");
        assert_eq!(sandbox.cmd(["recover", "ada"]).output().code(), 4, "{name}");
        assert_eq!(decision(&step(&sandbox)), "noop (turn_in_progress)");
        is_sound(&sandbox);
        act(&sandbox, tick);
        // Later steps process the message, whichever process has ended the run.
        fs::write(sandbox.home().join("go"), "").unwrap();
        for _ in 0..4 {
            sandbox.pass(3600);
            sandbox.cmd(["tick", "ada", "--until-idle"]).output();
        }
        let taken = edges(&sandbox, before);
        let began = taken.iter().position(|edge| edge == "scheduled running");
        assert_eq!(began.map(|at| taken[at + 1].as_str()), Some(ended), "{name}: {taken:?}");
        assert_eq!(sandbox.json(["queue", "show", &message])["status"], "processed", "{name}");
        assert_eq!(take_noted(&sandbox), ["turn"], "{name}");
        is_sound(&sandbox);
    }
}

#[test]
fn a_hook_that_fails_or_takes_too_long_fails_the_turn_from_running() {
    for (script, why, last_line) in
        [("echo no >&2; exit 3", "exit status 3: no", "no"), ("exec sleep 600", "timed out after 100ms", "")]
    {
        let sandbox = started(r#"echo turn >> "$HOME/noted""#);
        hook(&sandbox.agent("ada"), "on-scheduled", script);
        extend_policy(&sandbox, "ada", "[timeouts]\nhook = \"100ms\"\n");
        say(&sandbox, "hello");
        let before = edges(&sandbox, 0).len();
        let reason = format!("not started: on-scheduled failed: {why}");
        assert_includes(&step(&sandbox), json!({ "terminal": "failed", "terminal_reason": reason }));
        assert_eq!(edges(&sandbox, before), ["runnable scheduled", "scheduled running", "running failed"]);
        assert_eq!(take_noted(&sandbox), Vec::<String>::new(), "the turn has begun");
        let ended = sandbox.json(["events", "ada", "--kind", "hook_ended"]);
        assert_eq!(ended["data"]["last_line"].as_str().unwrap_or_default(), last_line);
        is_sound(&sandbox);
    }
}

#[test]
fn the_next_step_reports_pending_transitions_of_a_killed_tick_in_order() {
    let sandbox = started("true");
    let stays = format!(
        r#"cat > "$HOME/told"; : > "$HOME/up"; test -e "$HOME/go" || sleep 600; {EDGE} < "$HOME/told""#
    );
    hook(&sandbox.agent("ada"), "on-state-change", &stays);
    say(&sandbox, "hello");
    let before = edges(&sandbox, 0).len();
    let tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("up"));
    assert_eq!(field(&sandbox, "execution.state"), "scheduled", "the claim is not committed before the hook");
    drop(tick);
    fs::write(sandbox.home().join("go"), "").unwrap();
    assert!(sandbox.json(["next-wake", "ada"])["next_due_at"].is_string());
    sandbox.run(["tick", "ada"]);
    assert_eq!(take_noted(&sandbox), edges(&sandbox, before));
    assert_eq!(pending(&sandbox), 0);
    // A transition whose hook has ended is not reported again by the next tick.
    sandbox.pass(60);
    let before = edges(&sandbox, 0).len();
    sandbox.run(["tick", "ada", "--until-idle"]);
    assert_eq!(take_noted(&sandbox), edges(&sandbox, before));
}

#[test]
fn the_next_step_reports_the_pending_transition_of_a_killed_start() {
    let sandbox = started("true");
    sandbox.run(["create", "bob", "--shell", "true"]);
    hook(&sandbox.store(), "on-state-change", r#": > "$HOME/up"; exec sleep 600"#);
    let start = Beside::start(sandbox.cmd(["start", "bob"])).after_it_made(sandbox.home().join("up"));
    drop(start);
    hook(&sandbox.store(), "on-state-change", EDGE);
    for told in [vec!["initializing runnable".to_owned()], Vec::new()] {
        sandbox.run(["tick", "bob"]);
        assert_eq!(take_noted(&sandbox), told);
    }
}

#[test]
fn a_killed_hook_gets_its_transition_exactly_once_more() {
    let sandbox = started("true");
    hook(&sandbox.agent("ada"), "on-state-change", &format!("{EDGE}; kill -9 $$"));
    say(&sandbox, "hello");
    let before = edges(&sandbox, 0).len();
    step(&sandbox);
    let first = edges(&sandbox, before)[0].clone();
    for _ in 0..6 {
        sandbox.pass(1);
        sandbox.cmd(["tick", "ada"]).output();
    }
    let told = take_noted(&sandbox);
    let all = edges(&sandbox, before);
    assert_eq!(told[..2], [first.clone(), first]);
    for edge in &all {
        assert_eq!(told.iter().filter(|line| *line == edge).count(), 2, "{told:?}");
    }
    assert_eq!(pending(&sandbox), 0);
}

#[test]
fn a_hook_that_is_installed_later_gets_no_earlier_transitions() {
    let sandbox = started("true");
    say(&sandbox, "hello");
    sandbox.run(["tick", "ada", "--until-idle"]);
    let path = hook(&sandbox.agent("ada"), "on-state-change", EDGE);
    sandbox.run(["tick", "ada"]);
    assert_eq!(take_noted(&sandbox), Vec::<String>::new());
    say(&sandbox, "hello");
    let before = edges(&sandbox, 0).len();
    sandbox.run(["tick", "ada", "--until-idle"]);
    assert_eq!(take_noted(&sandbox), edges(&sandbox, before));
    // A hook that was removed and installed again gets no transitions from the time between.
    fs::remove_file(path).unwrap();
    say(&sandbox, "hello");
    sandbox.run(["tick", "ada", "--until-idle"]);
    hook(&sandbox.agent("ada"), "on-state-change", EDGE);
    sandbox.run(["tick", "ada", "--until-idle"]);
    assert_eq!(take_noted(&sandbox), Vec::<String>::new());
}

#[test]
fn two_processes_at_once_report_each_transition_once() {
    let sandbox = started(r#": > "$HOME/up"; exec sleep 600"#);
    hook(&sandbox.agent("ada"), "on-state-change", &format!("sleep 0.1; {EDGE}"));
    say(&sandbox, "hello");
    let before = edges(&sandbox, 0).len();
    let tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("up"));
    let stop = Beside::start(sandbox.cmd(["stop", "ada"]));
    // Further ticks must not call the hook again for transitions of the `tick` or `stop` above.
    for _ in 0..10 {
        sandbox.cmd(["tick", "ada"]).output();
    }
    tick.end();
    assert_eq!(stop.end().code(), 0);
    sandbox.run(["tick", "ada"]);
    let (mut told, mut all) = (take_noted(&sandbox), edges(&sandbox, before));
    told.sort();
    all.sort();
    assert_eq!(told, all);
}

#[test]
fn the_hooks_of_a_recovery_get_the_failure_of_the_run() {
    let sandbox = started("echo no luck >&2; exit 1");
    let message = say(&sandbox, "hello");
    let run = step(&sandbox)["run_id"].clone();
    for name in ["on-recovery-start", "on-recovery-complete", "on-state-change"] {
        hook(&sandbox.agent("ada"), name, r#"cat >> "$HOME/noted""#);
    }
    sandbox.pass(60);
    step(&sandbox);
    let told: Vec<Value> =
        take_noted(&sandbox).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let hooks: Vec<&str> = told.iter().map(|told| told["hook"].as_str().unwrap()).collect();
    assert_eq!(hooks, ["on-state-change", "on-recovery-start", "on-state-change", "on-recovery-complete"]);
    for told in told {
        let failure =
            json!({ "reason": "exit status 1: no luck", "message_id": message, "attempt": 1, "run_id": run });
        assert_eq!((&told["failure"], &told["run_id"], &told["task_id"]), (&failure, &run, &json!(message)));
    }
}

#[test]
fn state_lists_the_hooks_with_their_paths() {
    let sandbox = started("true");
    assert_eq!(sandbox.run(["state", "ada", "--hooks"]), "ada has no hooks\n");
    let own = hook(&sandbox.agent("ada"), "on-startup", "true");
    let shared = hook(&sandbox.store(), "on-startup", "true");
    let broken = hook(&sandbox.agent("ada"), "on-resume", "true");
    fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    hook(&sandbox.agent("ada"), "on-nothing", "true");
    let listed = sandbox.json(["state", "ada", "--hooks"]);
    let entry = |hook: &str, place: &str, path: &Path, why_not: Option<&str>| {
        let mut entry = json!({ "hook": hook, "place": place, "path": path, "in_effect": why_not.is_none() });
        if let Some(why) = why_not {
            entry["why_not"] = json!(why);
        }
        entry
    };
    let expected = json!({ "agent": "ada", "hooks": [
        entry("on-startup", "agent", &own, None),
        entry("on-startup", "shared", &shared, Some("the agent's own runs instead")),
        entry("on-resume", "agent", &broken, Some("not an executable file")),
    ] });
    assert_eq!(listed, expected);
    let text = sandbox.run(["state", "ada", "--hooks"]);
    assert!(text.contains("does not run: not an executable file"), "{text}");
    let ran = sandbox.cmd(["state", "nobody", "--hooks", "--json"]).output();
    assert_eq!((ran.code(), &failure(&ran)["agent"]), (3, &json!("nobody")));
}

/// Kills a tick at every third call that changes files: later steps report every transition, in
/// order, and process the message.
#[test]
fn a_tick_can_be_killed_at_every_call_between_its_commits() {
    needs!("strace");
    use crate::strace::{self, Harm};
    let template = started("true");
    hook(&template.agent("ada"), "on-state-change", EDGE);
    hook(&template.agent("ada"), "on-scheduled", "true");
    let message = say(&template, "hello");
    let before = edges(&template, 0).len();
    let points = strace::record(&template.copy(), &["tick", "ada"], "").points();
    let points: Vec<_> = points.into_iter().step_by(3).collect();
    crate::harness::each_in_parallel(&points, |call| {
        let sandbox = template.copy();
        strace::harm(&sandbox, &["tick", "ada"], "", call, Harm::Kill);
        for _ in 0..4 {
            sandbox.pass(3600);
            sandbox.cmd(["tick", "ada", "--until-idle"]).output();
        }
        let mut told = take_noted(&sandbox);
        let all = edges(&sandbox, before);
        // A kill can repeat the last call of a hook, so duplicates in a row are removed.
        told.dedup();
        let mut at = 0;
        for edge in &all {
            let found = told[at..].iter().position(|line| line == edge);
            at += found.unwrap_or_else(|| panic!("{call}: {edge} was not reported: {told:?} {all:?}")) + 1;
        }
        assert_eq!(pending(&sandbox), 0, "{call}");
        assert_eq!(sandbox.json(["queue", "show", &message])["status"], "processed", "{call}");
        is_sound(&sandbox);
    });
}

#[test]
fn the_next_step_reports_the_end_of_a_turn_interrupted_by_a_signal() {
    let sandbox = started(r#": > "$HOME/up"; exec sleep 600"#);
    say(&sandbox, "hello");
    let tick = Beside::start(sandbox.cmd(["tick", "ada", "--json"])).after_it_made(sandbox.home().join("up"));
    hook(
        &sandbox.agent("ada"),
        "on-state-change",
        &format!(r#": > "$HOME/hook"; test -e "$HOME/go" || exec sleep 600; {EDGE}"#),
    );
    let pid = tick.0.id();
    let end = || kill("TERM", pid);
    end();
    wait_for(&sandbox.home().join("hook"));
    end();
    assert_eq!(objects(&tick.end().stdout)[0]["terminal"], "interrupted");
    fs::write(sandbox.home().join("go"), "").unwrap();
    step(&sandbox);
    assert_eq!(take_noted(&sandbox)[0], "running failed");
}
