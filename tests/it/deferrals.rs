//! Tests deferrals: what commands print about a deferred message, how long a deferral may last, and
//! every command that ends one (contract, execution §8).

use std::fs;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{
    assert_includes, decision, field, hook, json_in, objects, say, seconds_between, started, started_with,
    step, step_on,
};

const UNTIL: &str = "2026-01-02T05:00:00.000Z";

/// Turn that defers its message until 05:00 because of a rate limit, unless the file `open` exists.
const LIMITED: &str = r#"test -e open && exit 0
    echo '{"deferred": {"resource": "api:x", "until": "2026-01-02T05:00:00Z", "reason": "429"}}' > "$DORMOUSE_OUTCOME"
    exit 75"#;

/// Makes `ada`, whose turn has deferred a message until 05:00. Returns the id of the message.
fn deferred() -> (Sandbox, String) {
    let sandbox = started(LIMITED);
    let id = say(&sandbox, "x");
    assert_includes(&step(&sandbox), json!({ "terminal": "deferred", "terminal_reason": "api:x: 429" }));
    (sandbox, id)
}

fn tick_at(sandbox: &Sandbox, now: &str) -> Value {
    let ran = sandbox.cmd(["tick", "ada", "--json"]).env("DORMOUSE_NOW", now).output();
    objects(&ran.stdout).remove(0)
}

#[test]
fn every_command_prints_the_missing_resource_the_reason_and_the_end_of_a_deferral() {
    let (sandbox, _) = deferred();
    let deferral = json!({ "resource": "api:x", "reason": "429", "until": UNTIL });
    let waiting = step(&sandbox);
    assert_eq!(decision(&waiting), "wait_for_resources (api:x: 429)");
    let evidence = [format!("back at {UNTIL}")];
    assert_includes(&waiting, json!({ "deferred": deferral, "evidence": evidence, "next_due_at": UNTIL }));
    let held = json!({ "resource": "api:x", "missing": "api:x: 429", "deferred": deferral });
    assert_includes(&sandbox.json(["get", "ada"])["held"], held);
    assert_eq!(sandbox.run(["next-wake", "ada"]).trim_end(), UNTIL);
    let explained = sandbox.run(["explain", "ada"]);
    assert!(explained.contains("api:x: 429") && explained.contains(&format!("back {UNTIL}")), "{explained}");
    assert_eq!(field(&sandbox, "execution.reason"), "api:x: 429");
    assert_eq!(field(&sandbox, "execution.timeout_at"), "", "a deferral with an end has no other timeout");
    // The first step that runs the turn is at `UNTIL`, hours after `timeouts.resources`.
    assert_eq!(decision(&tick_at(&sandbox, "2026-01-02T04:59:59.999Z")), "wait_for_resources (api:x: 429)");
    fs::write(sandbox.project().join("open"), "").unwrap();
    let done = tick_at(&sandbox, UNTIL);
    assert_eq!(decision(&done), "start_model_turn (resources_available) completed");
    let run = done["run_id"].as_str().unwrap();
    let context = json_in(sandbox.agent("ada").join("runs").join(run).join("context.json"));
    assert_includes(&context["run"], json!({ "deferred": deferral, "deferrals": 1 }));
}

#[test]
fn without_an_outcome_the_last_line_of_stderr_is_the_reason() {
    let sandbox = started("echo slow down >&2; exit 75");
    say(&sandbox, "x");
    assert_eq!(step(&sandbox)["terminal_reason"], "slow down");
    assert_eq!(field(&sandbox, "held.missing"), "slow down");
}

#[test]
fn a_message_that_every_turn_defers_keeps_its_attempt_and_is_held_for_the_operator() {
    for (limit, timeouts) in [("10s", true), ("never", false)] {
        let policy = format!("[timeouts]\nresources = \"{limit}\"\n\n[recovery]\nmax_deferrals = 6\n");
        let sandbox = started_with("exit 75", &policy);
        let id = say(&sandbox, "x");
        let (mut failures, mut alarms) = (Vec::new(), 0);
        for _ in 0..60 {
            sandbox.pass(3);
            let ran = sandbox.cmd(["tick", "ada", "--json"]).output();
            let stepped = objects(&ran.stdout).remove(0);
            failures.extend(stepped["failure"].as_str().map(str::to_owned));
            alarms += u32::from(stepped["attention"].is_array());
        }
        assert_eq!((!failures.is_empty(), alarms), (timeouts, 1), "{failures:?}");
        assert!(failures.iter().all(|failure| failure == "resource_timeout"), "{failures:?}");
        let why = "held for the operator: put off 6 times in a row (recovery.max_deferrals): \
                   the turn asked to come back later (exit status 75)";
        assert_eq!(field(&sandbox, "held.missing"), why);
        let message = sandbox.json(["queue", "show", &id]);
        assert_includes(&message, json!({ "status": "dequeued", "attempt": 1 }));
        sandbox.run(["doctor"]);
    }
}

#[test]
fn commands_of_the_operator_end_or_keep_a_deferral() {
    let (retries, waits) =
        ("start_model_turn (resources_available) deferred", "wait_for_resources (api:x: 429)");
    for (commands, message, then) in [
        ("recover ada", "dequeued", retries),
        ("fail ada --reason enough", "queued", "start_recovery (retry)"),
        ("queue drop ID", "dropped", "start_recovery (after_stop)"),
        ("stop ada; start ada", "dequeued", retries),
        ("stop ada --requeue; start ada", "queued", "start_recovery (after_stop)"),
        ("stop ada; stop ada --requeue; start ada", "queued", "start_recovery (after_stop)"),
        ("wake ada", "dequeued", waits),
        ("enqueue ada look --priority interject", "dequeued", retries),
        ("enqueue ada look", "dequeued", waits),
    ] {
        let (sandbox, id) = deferred();
        for command in commands.split("; ") {
            sandbox.run(command.replace("ID", &id).split(' '));
        }
        assert_eq!(sandbox.json(["queue", "show", &id])["status"], message, "{commands}");
        assert_eq!(decision(&step(&sandbox)), then, "{commands}");
        sandbox.run(["doctor"]);
    }
}

#[test]
fn a_refused_resume_names_recover() {
    let (sandbox, _) = deferred();
    sandbox.cmd(["resume", "ada"]).status(4).complains(
        "dormouse: ada: invalid state transition: waiting_resources -> resumed\n\
         hint: `dormouse recover ada` tries again now\n",
    );
}

#[test]
fn a_recovery_that_fails_is_retried_after_longer_pauses_and_needs_attention() {
    let sandbox = started_with("exit 1", "[recovery]\nmax_attempts = 3\nmax_delay = \"1h\"\n");
    hook(&sandbox.agent("ada"), "on-recovery-start", "echo no disk >&2; exit 1");
    step_on(&sandbox, "x");
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let due = field(&sandbox, "next_due_at");
        let ran = sandbox.cmd(["tick", "ada", "--json"]).env("DORMOUSE_NOW", &due).exits(7);
        let stepped = &objects(&ran.stdout)[0];
        assert_includes(stepped, json!({ "decision": "start_recovery", "failure": "no disk" }));
        let pause = seconds_between(&due, stepped["next_due_at"].as_str().unwrap());
        pauses.push((pause, stepped["attention"].is_array()));
    }
    assert_eq!(pauses, [(1, false), (2, false), (3600, true), (3600, false)]);
}
