//! Tests which failures cost a message an attempt, and how a message ends whose turns fail or are
//! interrupted again and again (contract, execution §7 and §8).

use std::fs::{self, OpenOptions};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Sandbox, write_program};
use crate::setup::{
    Beside, add, assert_includes, decision, extend_policy, field, fifo, hook, objects, say, seconds_between,
    started, started_with, step, step_on,
};

fn shown(sandbox: &Sandbox, id: &str) -> Value {
    sandbox.json(["queue", "show", id])
}

/// Ticks `ada` once, and returns the exit status and the step.
fn tick(sandbox: &Sandbox) -> (i32, Value) {
    let ran = sandbox.cmd(["tick", "ada", "--json"]).output();
    (ran.code(), objects(&ran.stdout).remove(0))
}

/// Lets the pause after a failure of `ada` pass, and runs the step that recovers the agent.
fn recover(sandbox: &Sandbox) {
    sandbox.pass(7200);
    assert_eq!(decision(&step(sandbox)), "start_recovery (retry)");
}

#[test]
fn another_agents_long_turn_in_the_workspace_costs_no_attempt() {
    let sandbox = started("echo done");
    let shared = "\n[workspace]\npath = \".\"\nmode = \"exclusive\"\n\n[turn.env]\n";
    extend_policy(&sandbox, "ada", shared);
    add(&sandbox, "bob", "echo up > \"$HOME/up\"; cat \"$HOME/down\"");
    extend_policy(&sandbox, "bob", shared);
    for pipe in ["up", "down"] {
        fifo(&sandbox.home().join(pipe));
    }
    sandbox.run(["enqueue", "bob", "go"]);
    let tick = Beside::start(sandbox.cmd(["tick", "bob"]));
    fs::read_to_string(sandbox.home().join("up")).unwrap();
    let until = sandbox.run(["get", "bob", "current_run.lease_expires_at"]);
    let id = say(&sandbox, "x");
    for _ in 0..30 {
        sandbox.pass(120);
        let waits = step(&sandbox);
        assert_eq!(decision(&waits), "wait_for_resources (workspace)");
        let evidence = waits["evidence"].to_string();
        assert!(evidence.contains("held by bob") && evidence.contains(until.trim_end()), "{evidence}");
    }
    assert_eq!(shown(&sandbox, &id)["attempt"], 1);
    assert_eq!(field(&sandbox, "held.setbacks"), "", "waiting for a known agent is no setback");
    fs::write(sandbox.home().join("down"), "").unwrap();
    assert_eq!(tick.end().code(), 0);
    assert_eq!(decision(&step(&sandbox)), "start_model_turn (resources_available) completed");
}

#[test]
fn a_broken_hook_and_a_program_that_is_being_written_cost_no_attempt() {
    let sandbox = Sandbox::new();
    let program = sandbox.project().join("turn.sh");
    write_program(&program, "#!/bin/sh\ntrue\n");
    sandbox.run(["init"]);
    sandbox.run(["create", "ada", "--", "./turn.sh"]);
    sandbox.run(["start", "ada"]);
    let broken = hook(&sandbox.agent("ada"), "on-scheduled", "echo no disk >&2; exit 1");
    let id = say(&sandbox, "x");
    for times in 1..=6 {
        let (code, failed) = tick(&sandbox);
        assert_eq!((code, &failed["terminal"], &failed["attempt"]), (7, &json!("failed"), &json!(1)));
        assert_eq!(shown(&sandbox, &id)["setbacks"]["interruptions"], times);
        recover(&sandbox);
    }
    fs::remove_file(broken).unwrap();
    // While a process has the program open for writing, the kernel refuses to start it (ETXTBSY).
    let writer = OpenOptions::new().append(true).open(&program).unwrap();
    let (_, prevented) = tick(&sandbox);
    drop(writer);
    assert_eq!((&prevented["terminal"], &prevented["attempt"]), (&json!("failed"), &json!(1)), "{prevented}");
    recover(&sandbox);
    assert_eq!(decision(&step(&sandbox)), "start_model_turn (operator_prompt) completed");
    assert_eq!(shown(&sandbox, &id)["attempt"], 1);
}

#[test]
fn a_program_that_can_not_start_costs_an_attempt_and_errors_name_the_fix() {
    for (program, file, cure) in [
        ("absent", None, "./absent is not there (looked for in "),
        ("plain", Some(("644", "#!/bin/sh\n")), "`chmod +x ./plain`"),
        ("windows", Some(("755", "#!/bin/sh\r\ntrue\r\n")), "`sed -i 's/\\r$//' "),
        ("odd", Some(("755", "#!/no/such/interpreter\n")), "install it, or change its first line"),
    ] {
        let sandbox = Sandbox::new();
        let path = sandbox.project().join(program);
        if let Some((mode, text)) = file {
            fs::write(&path, text).unwrap();
            assert!(Command::new("chmod").arg(mode).arg(&path).status().unwrap().success());
        }
        sandbox.run(["init"]);
        let program = format!("./{program}");
        let warns = |words: &[&str]| {
            let ran = sandbox.cmd(words).env("EDITOR", "sed -i s/30m/31m/").exits(0);
            let is_warned = ran.stderr.contains("ada: no turn can start yet") && ran.stderr.contains(cure);
            assert!(is_warned, "{ran}");
        };
        warns(&["create", "ada", "--", &program]);
        warns(&["start", "ada"]);
        warns(&["edit", "ada"]);
        sandbox.cmd(["doctor"]).exits(0).shows(cure);
        let id = say(&sandbox, "x");
        let (status, failed) = tick(&sandbox);
        assert_eq!(status, 7);
        assert!(failed["terminal_reason"].as_str().unwrap().contains(cure), "{failed}");
        assert_eq!(shown(&sandbox, &id)["attempt"], 2, "{program}");
    }
}

#[test]
fn a_message_whose_turn_kills_three_ticks_is_held_and_shown_as_held() {
    let sandbox =
        started_with("test -e calm || kill -9 $PPID; test -e calm", "\n[recovery]\nmax_interruptions = 3\n");
    let id = say(&sandbox, "x");
    for _ in 0..3 {
        let killed = sandbox.cmd(["tick", "ada"]).output();
        assert_eq!(killed.status.code(), None, "the turn has killed its tick");
        sandbox.pass(7200);
        // This step finds the run whose tick was killed.
        let found = sandbox.cmd(["tick", "ada", "--json"]).output();
        sandbox.pass(7200);
        if field(&sandbox, "execution.state") == "failed" {
            assert_eq!(decision(&step(&sandbox)), "start_recovery (retry)");
        } else {
            assert_eq!((found.code(), found.stderr.contains("message held")), (7, true), "{found}");
        }
    }
    let why = "held for the operator: interrupted 3 times in a row (recovery.max_interruptions)";
    let waits = step(&sandbox);
    assert!(waits["reason"].as_str().unwrap().starts_with(why), "{waits}");
    assert!(field(&sandbox, "held.missing").starts_with(why));
    let listed = sandbox.json(["queue", "list", "-a", "ada"]);
    assert_includes(&listed, json!({ "status": "dequeued", "needs_operator": true, "attempt": 1 }));
    assert!(sandbox.run(["queue", "list", "-a", "ada"]).contains("held for the operator"));
    assert!(sandbox.run(["list"]).contains("message held"));
    let explained = sandbox.run(["explain", "ada"]);
    assert!(explained.contains("dormouse recover ada") && explained.contains("queue drop"), "{explained}");
    let (since, due) = (field(&sandbox, "execution.since"), field(&sandbox, "next_due_at"));
    let is_days_later = (&due[11..], &due[..7]) == (&since[11..], &since[..7]);
    assert!(is_days_later, "the next reminder is due whole days after {since}: {due}");
    assert_eq!(sandbox.json(["get", "ada"])["attention"]["newest"][0]["subject"], "message_held");
    fs::write(sandbox.project().join("calm"), "").unwrap();
    sandbox.run(["recover", "ada"]);
    assert_eq!(sandbox.json(["get", "ada"])["attention"], Value::Null, "the operator has decided");
    assert_eq!(decision(&step(&sandbox)), "start_model_turn (resources_available) completed");
    assert_eq!(shown(&sandbox, &id)["status"], "processed");
    sandbox.run(["doctor"]);
}

#[test]
fn a_run_that_always_yields_ends_as_a_held_message() {
    let sandbox = started_with("dormouse yield --for 1h", "\n[recovery]\nmax_deferrals = 3\n");
    say(&sandbox, "x");
    let mut codes = Vec::new();
    for _ in 0..5 {
        codes.push(tick(&sandbox).0);
        sandbox.pass(3600);
    }
    assert_eq!(codes, [0, 0, 7, 0, 0]);
    let why = "held for the operator: suspended 3 times (recovery.max_deferrals): its turn yielded";
    assert_eq!([field(&sandbox, "held.missing"), field(&sandbox, "counters.turns")], [why, "3"]);
}

#[test]
fn a_deferral_is_cut_to_35_days_and_the_reason_names_the_cut() {
    let sandbox = started(
        r#"echo '{"deferred": {"until": "9999-01-01T00:00:00Z", "reason": "429"}}' > "$DORMOUSE_OUTCOME"; exit 75"#,
    );
    let deferred = step_on(&sandbox, "x");
    assert_eq!(deferred["terminal"], "deferred");
    let until = field(&sandbox, "next_due_at");
    assert!(until.starts_with("2026-02-06T03:04:"), "{until}");
    let why =
        format!("429: cut to {until} (recovery.max_deferral): the turn asked for 9999-01-01T00:00:00.000Z");
    assert_eq!(deferred["terminal_reason"], why);
    assert_eq!(field(&sandbox, "held.missing"), why);
}

#[test]
fn a_turn_with_status_0_and_an_invalid_outcome_is_a_dead_letter() {
    for (outcome, why) in [
        (r#"{"brief": 7}"#, "brief"),
        (r#"{"deferred": {"after": "1h"}}"#, "$.deferred"),
        (r#"{"actions": [{"do": "work.unblock", "id": "work_00000000000000000000000000"}]}"#, "$.actions"),
    ] {
        let sandbox = started(&format!("echo ran >> log; printf '%s' '{outcome}' > \"$DORMOUSE_OUTCOME\""));
        let id = say(&sandbox, "x");
        let ran = sandbox.cmd(["tick", "ada"]).output();
        assert_eq!((ran.code(), ran.stderr.contains("dead letter")), (7, true), "{ran}");
        for _ in 0..3 {
            sandbox.pass(7200);
            sandbox.run(["tick", "ada"]);
        }
        let dead = shown(&sandbox, &id);
        let reason = dead["settlement"]["reason"].as_str().unwrap();
        assert!(reason.contains("exited with status 0") && reason.contains(why), "{reason}");
        assert_eq!((&dead["status"], &dead["attempt"]), (&json!("aborted"), &json!(1)));
        assert_eq!(fs::read_to_string(sandbox.project().join("log")).unwrap(), "ran\n");
    }
}

/// The turn leaves a background process, which sends SIGTERM to the tick when the tick sends it
/// SIGTERM.
#[test]
fn a_tick_that_gets_sigterm_after_its_turn_still_settles_the_turn() {
    let sandbox = started(
        r#"tick=$PPID
        (trap "kill $tick; exit" TERM; touch up; while :; do sleep 0.02; done) &
        until test -e up; do sleep 0.02; done; exit 0"#,
    );
    let id = say(&sandbox, "x");
    let ran = sandbox.cmd(["tick", "ada", "--json"]).output();
    assert_eq!(objects(&ran.stdout)[0]["terminal"], "completed", "{ran}");
    assert_eq!(shown(&sandbox, &id)["status"], "processed");
}

/// A failed agent that was stopped and started again has the pauses of any other recovery.
#[test]
fn a_recovery_that_fails_after_a_start_has_the_same_pauses() {
    let sandbox = started("exit 1");
    hook(&sandbox.agent("ada"), "on-recovery-start", "echo no disk >&2; exit 1");
    say(&sandbox, "x");
    tick(&sandbox);
    sandbox.run(["stop", "ada"]);
    sandbox.run(["start", "ada"]);
    for pause in [1, 2, 4] {
        let due = field(&sandbox, "next_due_at");
        let ran = sandbox.cmd(["tick", "ada", "--json"]).env("DORMOUSE_NOW", &due).output();
        let stepped = objects(&ran.stdout).remove(0);
        assert_eq!((ran.code(), &stepped["failure"]), (7, &json!("no disk")), "{stepped}");
        assert_eq!(seconds_between(&due, stepped["next_due_at"].as_str().unwrap()), pause);
    }
}
