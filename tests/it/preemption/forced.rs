//! Tests that a turn that does not yield in time is ended by force, and the command `fail`.

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{
    Beside, assert_includes, eventually, extend_policy, field, lives, only_object, record, say,
};

use super::{
    agent, continues_from, current_run, ended, events, go, hook, running, signal, step_at, suspended,
    take_noted, text_of, turn, with_message,
};

/// Script of a turn that records its SIGTERM, and exits.
const POLITE: &str = r#"trap 'note asked; exit 0' TERM; up; come never"#;

/// Script of a turn with three processes that ignore SIGTERM: the turn itself, a child, and a
/// process in its own session.
const DEAF: &str = r#"trap '' TERM
(echo "$(exec sh -c 'echo $PPID')" >> "$HOME/pids"; come never) &
setsid sh -c 'echo $$ >> "$HOME/pids"; until test -e "$HOME/never"; do sleep 0.01; done' &
echo $$ >> "$HOME/pids"
until test "$(wc -l < "$HOME/pids")" -eq 3; do sleep 0.01; done
up; come never"#;

/// Asserts that every process of [`DEAF`] has ended.
#[track_caller]
fn no_process_is_left(sandbox: &Sandbox) {
    let pids = text_of(sandbox, "pids");
    assert_eq!(pids.lines().count(), 3);
    assert!(!pids.lines().any(lives), "of {pids} some live");
}

#[test]
fn a_turn_that_does_not_yield_is_ended_with_all_its_processes() {
    let sandbox = agent().with_real_clock();
    let message = say(&sandbox, "hello");
    let tick = running(&sandbox, DEAF);
    let run = current_run(&sandbox);
    let asked = sandbox.json(["preempt", "ada", "--reason", "urgent", "--grace", "200ms"]);
    let stepped = only_object(&tick.end().exits(7).stdout);
    let expected = json!({ "run_id": run, "terminal": "failed", "terminal_reason": "forced_preemption" });
    assert_includes(&stepped, expected);
    no_process_is_left(&sandbox);
    let forced = events(&sandbox, "preemption_forced");
    assert_eq!((forced.len(), &forced[0]["data"]["reason"]), (1, &json!("urgent")));
    // Times of this form are in chronological order if their texts are sorted.
    assert!(forced[0]["at"].as_str() > asked["force_at"].as_str(), "{forced:?} {asked}");
    let shown = sandbox.json(["queue", "show", &message]);
    assert_includes(&shown, json!({ "attempt": 1, "failures": null, "setbacks": { "interruptions": 1 } }));
    assert_eq!(
        ["execution.state", "execution.reason", "retry.attempt"].map(|path| field(&sandbox, path)),
        ["failed", "forced_preemption", "1"].map(str::to_owned)
    );
    // The request to yield ends with the forced run, so the next run must not see one.
    sandbox.run(["recover", "ada"]);
    let stepped = turn(&sandbox, "$D safe-point; note $?");
    assert_includes(&stepped, json!({ "terminal": "completed", "attempt": 1 }));
    assert_eq!(take_noted(&sandbox), ["0"]);
}

/// Neither the exit status 0 of a forced turn nor its late `yield` counts.
#[test]
fn a_turn_that_is_forced_has_failed_and_its_outcome_is_not_taken() {
    let sandbox = agent().with_real_clock();
    say(&sandbox, "hello");
    let script = r#"trap '$D safe-point; note "told: $?"; $D yield 2>/dev/null; note "too late: $?"; exit 0' TERM
        echo '{"actions":[{"do":"work.add","objective":"x"}],"usage":{"input_tokens":5}}' > "$DORMOUSE_OUTCOME"
        up; come never"#;
    let tick = running(&sandbox, script);
    sandbox.run(["preempt", "ada", "--reason", "urgent", "--grace", "0s"]);
    let stepped = ended(tick);
    assert_includes(&stepped, json!({ "terminal": "failed", "terminal_reason": "forced_preemption" }));
    assert_eq!(take_noted(&sandbox), ["told: 10", "too late: 0"]);
    assert_eq!(field(&sandbox, "counters.input_tokens"), "5");
    assert_eq!(sandbox.json_lines(["work", "list", "-a", "ada"]), Vec::<Value>::new());
}

#[test]
fn a_section_with_time_left_is_not_cut_and_the_turn_is_ended_after_it() {
    let sandbox = agent().with_real_clock();
    say(&sandbox, "hello");
    let script = r#"trap 'note "asked to end"; exit 0' TERM
        $D non-preemptible --deadline 1h -- sh -c ': > "$HOME/up"; until test -e "$HOME/go"; do sleep 0.01; done; sleep 0.3; echo whole >> "$HOME/noted"'
        come never"#;
    let tick = running(&sandbox, script);
    sandbox.run(["preempt", "ada", "--reason", "urgent", "--grace", "0s"]);
    go(&sandbox, "go");
    assert_eq!(ended(tick)["terminal_reason"], "forced_preemption");
    assert_eq!(take_noted(&sandbox), ["whole", "asked to end"]);
}

#[test]
fn a_section_past_its_deadline_does_not_delay_the_end() {
    let sandbox = agent().with_real_clock();
    say(&sandbox, "hello");
    let tick = running(&sandbox, &format!("$D non-preemptible begin --deadline 500ms; {POLITE}"));
    let asked = sandbox.json(["preempt", "ada", "--reason", "urgent", "--grace", "0s"]);
    let until = record(&sandbox, "state.json")["current_run"]["sections"][0]["until"].clone();
    assert_eq!(ended(tick)["terminal_reason"], "forced_preemption");
    let forced = events(&sandbox, "preemption_forced").remove(0);
    // On a slow machine the deadline may have passed before the test reads `state.json`.
    let expected = if until.is_string() { &until } else { &asked["force_at"] };
    assert!(forced["at"].as_str() > expected.as_str(), "{forced} {expected}");
    assert_eq!(take_noted(&sandbox), ["asked"]);
}

#[test]
fn a_turn_that_has_yielded_and_does_not_exit_is_ended_and_suspended() {
    let sandbox = agent().with_real_clock();
    say(&sandbox, "hello");
    let tick = running(&sandbox, &format!("printf here | $D yield --checkpoint - >/dev/null; {POLITE}"));
    sandbox.run(["preempt", "ada", "--reason", "urgent", "--grace", "0s"]);
    let stepped = ended(tick);
    assert_eq!((&stepped["terminal"], &stepped["terminal_reason"]), (&json!("suspended"), &json!("urgent")));
    assert_eq!(events(&sandbox, "preemption_forced"), Vec::<Value>::new());
    sandbox.run(["resume", "ada"]);
    assert_eq!(turn(&sandbox, "told")["attempt"], 1);
    assert_eq!(take_noted(&sandbox), ["asked", "from here"]);
}

/// The next tick settles the run of a killed tick as interrupted until `force_at`, as forced later.
#[test]
fn a_request_whose_tick_was_killed_is_enforced_by_the_next_one() {
    for (next, terminal, reason) in [
        ("2026-01-02T04:10:00Z", "interrupted", "its tick is gone"),
        ("2026-01-02T04:10:00.001Z", "failed", "forced_preemption"),
    ] {
        let sandbox = agent();
        let message = say(&sandbox, "hello");
        let tick = running(&sandbox, "up; come never");
        let args = ["preempt", "ada", "--reason", "urgent", "--grace", "10m"];
        assert_eq!(sandbox.cmd(args).env("DORMOUSE_NOW", "2026-01-02T04:00:00Z").output().code(), 0);
        signal("KILL", tick.0.id());
        tick.end();
        step_at(&sandbox, next);
        let run = sandbox.json(["run", "list", "-a", "ada"]);
        assert_eq!((&run["terminal"], &run["reason"]), (&json!(terminal), &json!(reason)));
        assert_eq!(sandbox.json(["queue", "show", &message])["attempt"], 1);
    }
}

#[test]
fn fail_ends_a_turn_and_counts_as_a_failed_attempt() {
    let sandbox = agent();
    let message = say(&sandbox, "hello");
    // `fail --now` does not wait for the critical section, whose deadline is far away.
    let tick = running(&sandbox, &format!("$D non-preemptible begin --deadline 1d; {POLITE}"));
    let run = current_run(&sandbox);
    let answer = sandbox.json(["fail", "ada", "--reason", "wrong branch", "--now"]);
    assert_eq!(
        answer,
        json!({ "agent": "ada", "action": "fail", "status": "awake_idle", "execution_state": "failed", "reason": "wrong branch", "run_id": run })
    );
    tick.end().exits(7);
    assert_eq!(take_noted(&sandbox), ["asked"]);
    let shown = sandbox.json(["queue", "show", &message]);
    assert_eq!((&shown["attempt"], &shown["failures"][0]["reason"]), (&json!(2), &json!("wrong branch")));
    assert_eq!(field(&sandbox, "retry.reason"), "wrong branch");
}

/// `fail` settles the run itself; the resumed tick process only records the turn's output.
#[test]
fn fail_does_not_wait_for_a_stopped_tick_process() {
    let sandbox = agent();
    let message = say(&sandbox, "hello");
    let tick = running(&sandbox, POLITE);
    signal("STOP", tick.0.id());
    let answer = sandbox.json(["fail", "ada", "--reason", "stuck"]);
    assert_eq!(answer["execution_state"], "failed");
    signal("CONT", tick.0.id());
    tick.end();
    assert_eq!(sandbox.json(["queue", "show", &message])["attempt"], 2);
    assert_eq!(sandbox.json_lines(["run", "list", "-a", "ada"]).len(), 1);
    assert_eq!(
        (field(&sandbox, "execution.state"), field(&sandbox, "execution.reason")),
        ("failed".into(), "stuck".into())
    );
    assert_eq!(take_noted(&sandbox), ["asked"]);
}

#[test]
fn fail_settles_a_run_whose_tick_is_gone() {
    let sandbox = agent();
    let message = say(&sandbox, "hello");
    drop(running(&sandbox, "up; come never"));
    let answer = sandbox.json(["fail", "ada", "--reason", "gone"]);
    assert_eq!((&answer["execution_state"], &answer["status"]), (&json!("failed"), &json!("awake_idle")));
    let shown = sandbox.json(["queue", "show", &message]);
    assert_eq!((&shown["attempt"], &shown["failures"][0]["reason"]), (&json!(2), &json!("gone")));
}

/// A run that has yielded fails too, and its checkpoint is kept for the next attempt.
#[test]
fn fail_takes_precedence_over_a_yield() {
    let sandbox = with_message();
    let tick = running(&sandbox, &format!("printf here | $D yield --checkpoint - >/dev/null; {POLITE}"));
    sandbox.run(["fail", "ada", "--reason", "wrong branch"]);
    assert_eq!(ended(tick)["terminal"], "failed");
    sandbox.run(["recover", "ada"]);
    continues_from(&sandbox, "here", 2);
}

#[test]
fn fail_ends_a_stop_in_progress() {
    let sandbox = agent();
    let message = say(&sandbox, "hello");
    let tick = running(&sandbox, DEAF);
    let stop = Beside::start(sandbox.cmd(["stop", "ada", "--grace", "1d"]));
    eventually("a stop in progress", || {
        (record(&sandbox, "state.json")["execution"]["state"] == "shutting_down").then_some(())
    });
    sandbox.run(["fail", "ada", "--reason", "no time"]);
    assert_eq!(stop.end().code(), 0);
    tick.end();
    no_process_is_left(&sandbox);
    let expected = ["stopped", "failed", "no time"].map(str::to_owned);
    assert_eq!(["status", "execution.state", "execution.reason"].map(|path| field(&sandbox, path)), expected);
    assert_eq!(sandbox.json(["queue", "show", &message])["status"], "aborted");
}

#[test]
fn fail_ends_a_recovery_and_its_hook() {
    let sandbox = with_message();
    assert_eq!(turn(&sandbox, "exit 1")["terminal"], "failed");
    hook(&sandbox, "on-recovery-start", "up; come never");
    hook(&sandbox, "on-recovery-complete", "note complete");
    sandbox.pass(60);
    let tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("up"));
    assert_eq!(field(&sandbox, "execution.state"), "recovering");
    let answer = sandbox.json(["fail", "ada", "--reason", "no disk"]);
    assert_eq!((&answer["execution_state"], &answer["run_id"]), (&json!("failed"), &Value::Null));
    assert_eq!(tick.end().code(), 0);
    assert_eq!(field(&sandbox, "execution.reason"), "no disk");
    assert_eq!(take_noted(&sandbox), ["complete"]);
}

#[test]
fn a_turn_does_not_fail_itself_but_may_ask_itself_to_yield() {
    let sandbox = with_message();
    let script = r#"$D --json fail ada --reason "no idea" > "$HOME/answer"; note $?
        $D preempt ada --reason "later" --grace 1d >/dev/null; note $?
        $D safe-point; note $?"#;
    let stepped = turn(&sandbox, script);
    assert_eq!(stepped["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["4", "0", "10"]);
    assert_eq!(only_object(&text_of(&sandbox, "answer"))["error"]["kind"], "own_turn");
}

/// A run that is ended during its hook starts no turn, even if the hook exits with 0 on SIGTERM.
#[test]
fn a_run_that_ends_in_its_hook_starts_no_turn() {
    for (ends, terminal) in [
        (&["fail", "ada", "--reason", "enough"][..], "failed"),
        (&["preempt", "ada", "--reason", "urgent", "--grace", "0s"], "failed"),
        (&["stop", "ada"], "aborted"),
    ] {
        for (name, trap) in ["on-scheduled", "on-resume"]
            .into_iter()
            .flat_map(|name| ["", "trap 'exit 0' TERM; "].map(|trap| (name, trap)))
        {
            let sandbox = if name == "on-resume" { suspended("here") } else { agent() }.with_real_clock();
            extend_policy(&sandbox, "ada", "\n[timeouts]\nhook = \"never\"\n");
            hook(&sandbox, name, &format!("{trap}up; come never"));
            if name == "on-resume" {
                sandbox.run(["resume", "ada"]);
            } else {
                say(&sandbox, "hello");
            }
            let tick = running(&sandbox, "note turn");
            sandbox.run(ends.to_vec());
            tick.end();
            let case = format!("{name} {ends:?} {trap}");
            assert_eq!(take_noted(&sandbox), Vec::<String>::new(), "{case}");
            let runs = sandbox.json_lines(["run", "list", "-a", "ada"]);
            assert_eq!(runs[0]["terminal"], terminal, "{case}");
        }
    }
}

/// Requires that 100 % of memory or disk be free, so every machine counts as low on them.
#[test]
fn low_memory_or_disk_asks_a_turn_to_yield_and_then_forces_the_turn() {
    for (what, grace, script, terminal) in [
        ("memory", "1h", "while $D safe-point; do sleep 0.01; done; $D yield >/dev/null", "suspended"),
        ("disk", "100ms", "come never", "failed"),
    ] {
        let sandbox = agent();
        let policy = format!("\n[preemption]\ngrace = \"{grace}\"\ncritical = {{ {what} = \"100%\" }}\n");
        extend_policy(&sandbox, "ada", &policy);
        say(&sandbox, "hello");
        let step = turn(&sandbox, script);
        assert_eq!(step["terminal"], terminal, "{step}");
        let asked = events(&sandbox, "preemption_requested");
        let reason = asked[0]["data"]["reason"].as_str().unwrap();
        assert!(reason.starts_with(&format!("the machine is low on {what}: ")), "{reason}");
        assert_eq!(asked.len(), 1);
        if terminal == "failed" {
            assert_eq!(step["terminal_reason"], "forced_preemption");
        } else {
            assert_eq!(sandbox.json(["tick", "ada"])["decision"], "wait_for_resources");
            sandbox.pass(120);
            assert_eq!(turn(&sandbox, "exit 0")["terminal"], "completed", "the run resumes by itself");
        }
    }
}
