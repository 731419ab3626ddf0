//! A turn that does not yield in time is ended; and `fail`, which does not wait for the turn.

use std::fs;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{
    Beside, assert_includes, decision, edit_policy, eventually, extend_policy, failure, field, json_in,
    lives, record, say, step,
};

use super::{
    agent, current_run, ended, events, go, hook, refused, running, signal, step_at, suspended, take_noted,
    turn, turns, with_message,
};

/// A turn that notes that it was asked to end, and does.
const POLITE: &str = r#"trap 'note asked; exit 0' TERM; up; come never"#;

/// Processes of a turn that hear nothing of SIGTERM: itself, a child, and one in a session of its own.
const DEAF: &str = r#"trap '' TERM
(echo "$(exec sh -c 'echo $PPID')" >> "$HOME/pids"; come never) &
setsid sh -c 'echo $$ >> "$HOME/pids"; until test -e "$HOME/never"; do sleep 0.01; done' &
echo $$ >> "$HOME/pids"
until test "$(wc -l < "$HOME/pids")" -eq 3; do sleep 0.01; done
up; come never"#;

/// That every process which `DEAF` has named is gone.
#[track_caller]
fn nothing_is_left(sandbox: &Sandbox) {
    let pids = fs::read_to_string(sandbox.home().join("pids")).unwrap();
    assert_eq!(pids.lines().count(), 3);
    for pid in pids.lines() {
        assert!(!lives(pid), "{pid} is still there");
    }
}

#[test]
fn a_turn_that_does_not_yield_is_ended_with_all_its_processes() {
    let sandbox = agent().with_real_clock();
    let message = say(&sandbox, "hello");
    let tick = running(&sandbox, DEAF);
    let run = current_run(&sandbox);
    let asked = sandbox.json(["preempt", "ada", "--reason", "urgent", "--grace", "200ms"]);
    let ran = tick.end().exits(7);
    let stepped = crate::setup::objects(&ran.stdout).remove(0);
    assert_eq!(
        (&stepped["run_id"], &stepped["terminal"], &stepped["terminal_reason"]),
        (&json!(run), &json!("failed"), &json!("forced_preemption"))
    );
    nothing_is_left(&sandbox);
    let forced = events(&sandbox, "preemption_forced");
    assert_eq!((forced.len(), &forced[0]["data"]["reason"]), (1, &json!("urgent")));
    // Not before its time. Times of one form compare as text.
    assert!(forced[0]["at"].as_str() > asked["force_at"].as_str(), "{forced:?} {asked}");
    let shown = sandbox.json(["queue", "show", &message]);
    assert_includes(&shown, json!({ "attempt": 1, "failures": null, "setbacks": { "interruptions": 1 } }));
    assert_eq!(
        ["execution.state", "execution.reason", "retry.attempt"].map(|path| field(&sandbox, path)),
        ["failed", "forced_preemption", "1"].map(str::to_owned)
    );
    // The next run starts with no request.
    sandbox.run(["recover", "ada"]);
    let stepped = turn(&sandbox, "$D safe-point; note $?");
    assert_eq!((&stepped["terminal"], &stepped["attempt"]), (&json!("completed"), &json!(1)));
    assert_eq!(take_noted(&sandbox), ["0"]);
}

/// However it then exits: it was too late.
#[test]
fn a_turn_that_is_forced_has_failed_and_its_outcome_is_not_taken() {
    let sandbox = agent().with_real_clock();
    say(&sandbox, "hello");
    let tick = running(
        &sandbox,
        r#"trap '$D safe-point; note "told: $?"; $D yield 2>/dev/null; note "too late: $?"; exit 0' TERM
        echo '{"actions":[{"do":"work.add","objective":"x"}],"usage":{"input_tokens":5}}' > "$DORMOUSE_OUTCOME"
        up; come never"#,
    );
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
    let tick = running(
        &sandbox,
        r#"trap 'note "asked to end"; exit 0' TERM
        $D non-preemptible --deadline 1h -- sh -c ': > "$HOME/up"; until test -e "$HOME/go"; do sleep 0.01; done; sleep 0.3; echo whole >> "$HOME/noted"'
        come never"#,
    );
    sandbox.run(["preempt", "ada", "--reason", "urgent", "--grace", "0s"]);
    go(&sandbox, "go");
    assert_eq!(ended(tick)["terminal_reason"], "forced_preemption");
    assert_eq!(take_noted(&sandbox), ["whole", "asked to end"]);
}

#[test]
fn a_section_whose_time_is_over_protects_nobody() {
    let sandbox = agent().with_real_clock();
    say(&sandbox, "hello");
    let tick = running(&sandbox, &format!("$D non-preemptible begin --deadline 500ms; {POLITE}"));
    let asked = sandbox.json(["preempt", "ada", "--reason", "urgent", "--grace", "0s"]);
    let until = record(&sandbox, "state.json")["current_run"]["sections"][0]["until"].clone();
    assert_eq!(ended(tick)["terminal_reason"], "forced_preemption");
    let forced = events(&sandbox, "preemption_forced").remove(0);
    // On a slow machine the section was over before it was seen.
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

/// The tick that ran it is gone: whoever comes next says what it failed for.
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
    // Its section has time left, and is not waited for.
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

/// Whoever fails it settles the run then; the tick records its output, nothing else.
#[test]
fn fail_does_not_wait_for_a_tick_that_does_not_move() {
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

/// What has yielded is given up as well, and what it has saved is there for the next attempt.
#[test]
fn fail_comes_before_a_yield() {
    let sandbox = with_message();
    let tick = running(&sandbox, &format!("printf here | $D yield --checkpoint - >/dev/null; {POLITE}"));
    sandbox.run(["fail", "ada", "--reason", "wrong branch"]);
    assert_eq!(ended(tick)["terminal"], "failed");
    take_noted(&sandbox);
    sandbox.run(["recover", "ada"]);
    assert_eq!(turn(&sandbox, "told")["attempt"], 2);
    assert_eq!(take_noted(&sandbox), ["from here"]);
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
    nothing_is_left(&sandbox);
    assert_eq!(
        ["status", "execution.state", "execution.reason"].map(|path| field(&sandbox, path)),
        ["stopped", "failed", "no time"].map(str::to_owned)
    );
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
fn fail_is_refused_where_nothing_runs() {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "ada", "--shell", r#". "$HOME/turn""#]);
    let fails = |sandbox: &Sandbox, kind: &str| {
        let before = field(sandbox, "revision");
        let ran = sandbox.cmd(["fail", "ada", "--reason", "why", "--json"]).output();
        refused(&ran, kind);
        assert_eq!(field(sandbox, "revision"), before);
        failure(&ran)["message"].as_str().unwrap().to_owned()
    };
    // An edge that only a timeout takes.
    fails(&sandbox, "invalid_state_transition");
    sandbox.run(["start", "ada"]);
    assert_eq!(fails(&sandbox, "invalid_state_transition"), "invalid state transition: runnable -> failed");
    say(&sandbox, "hello");
    turn(&sandbox, "exit 1");
    assert_eq!(fails(&sandbox, "invalid_state_transition"), "invalid state transition: failed -> failed");
    sandbox.run(["recover", "ada"]);
    turn(&sandbox, "true");
    assert_eq!(fails(&sandbox, "invalid_state_transition"), "invalid state transition: completed -> failed");
    say(&sandbox, "hello");
    turn(&sandbox, r#"$D wait --on operator --reason "a word" --whole-agent >/dev/null"#);
    assert_eq!(fails(&sandbox, "invalid_state_transition"), "invalid state transition: waiting -> failed");
}

#[test]
fn a_turn_does_not_fail_itself_but_may_ask_itself_to_yield() {
    let sandbox = with_message();
    let stepped = turn(
        &sandbox,
        r#"$D --json fail ada --reason "no idea" > "$HOME/answer"; note $?
        $D preempt ada --reason "later" --grace 1d >/dev/null; note $?
        $D safe-point; note $?"#,
    );
    assert_eq!(stepped["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["4", "0", "10"]);
    let answer = json_in(sandbox.home().join("answer"));
    assert_eq!(answer["error"]["kind"], "own_turn");
}

#[test]
fn the_last_attempt_that_is_forced_or_failed_is_a_dead_letter() {
    let sandbox = agent();
    extend_policy(&sandbox, "ada", "\n[recovery]\nmax_attempts = 1\n");
    let message = say(&sandbox, "hello");
    let tick = running(&sandbox, POLITE);
    sandbox.run(["fail", "ada", "--reason", "enough"]);
    tick.end();
    let shown = sandbox.json(["queue", "show", &message]);
    assert_eq!((&shown["status"], &shown["settlement"]["dead_letter"]), (&json!("aborted"), &json!(true)));
    assert_eq!(field(&sandbox, "queue.dead"), "1");
}

#[test]
fn a_stop_of_a_suspended_agent_ends_no_run() {
    let sandbox = suspended("here");
    turns(&sandbox, "told");
    let stopped = sandbox.json(["stop", "ada"]);
    assert_eq!(stopped["aborted_run_id"], Value::Null);
    assert_eq!(decision(&step(&sandbox)), "stop (stopped)");
}

/// The turn has not started: its hook is ended, and however that takes it, the turn does not start.
#[test]
fn a_run_that_is_given_up_in_its_hook_starts_no_turn() {
    let (fail, stop) = (&["fail", "ada", "--reason", "enough"][..], &["stop", "ada"][..]);
    let preempt = &["preempt", "ada", "--reason", "urgent", "--grace", "0s"][..];
    for (name, ends, terminal) in [
        ("on-scheduled", fail, "failed"),
        ("on-resume", fail, "failed"),
        ("on-scheduled", preempt, "failed"),
        ("on-resume", preempt, "failed"),
        ("on-scheduled", stop, "aborted"),
        ("on-resume", stop, "aborted"),
    ] {
        for takes_it in ["", "trap 'exit 0' TERM; "] {
            let sandbox = if name == "on-resume" { suspended("here") } else { agent() }.with_real_clock();
            extend_policy(&sandbox, "ada", "\n[timeouts]\nhook = \"never\"\n");
            hook(&sandbox, name, &format!("{takes_it}up; come never"));
            if name == "on-resume" {
                sandbox.run(["resume", "ada"]);
            } else {
                say(&sandbox, "hello");
            }
            let tick = running(&sandbox, "note turn");
            sandbox.run(ends.to_vec());
            tick.end();
            let case = format!("{name} {ends:?} {takes_it}");
            assert_eq!(take_noted(&sandbox), Vec::<String>::new(), "{case}");
            let runs = sandbox.json_lines(["run", "list", "-a", "ada"]);
            assert_eq!(runs[0]["terminal"], terminal, "{case}");
        }
    }
}

/// The thresholds are so high that every machine is low.
#[test]
fn on_a_machine_that_is_low_a_turn_is_asked_to_yield_and_then_forced() {
    for (what, script, terminal) in [
        ("memory", "while $D safe-point; do sleep 0.01; done; $D yield >/dev/null", "suspended"),
        ("disk", "come never", "failed"),
    ] {
        let sandbox = agent();
        extend_policy(
            &sandbox,
            "ada",
            &format!("\n[preemption]\ngrace = \"100ms\"\ncritical = {{ {what} = \"100%\" }}\n"),
        );
        if terminal == "suspended" {
            edit_policy(&sandbox, "ada", |text| text.replace("100ms", "1h"));
        }
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
            assert_eq!(turn(&sandbox, "exit 0")["terminal"], "completed", "it goes on by itself");
        }
    }
}

#[test]
fn a_threshold_is_a_percentage() {
    let sandbox = agent();
    for wrong in ["\"5\"", "5", "\"101%\"", "\"-1%\"", "\"much\""] {
        extend_policy(&sandbox, "ada", &format!("\n[preemption]\ncritical = {{ memory = {wrong} }}\n"));
        let ran = sandbox.cmd(["get", "ada"]).output();
        assert!(ran.code() == 6 && ran.stderr.contains("agent.toml"), "{wrong}: {ran}");
        edit_policy(&sandbox, "ada", |text| text.split("\n[preemption]").next().unwrap().to_owned());
    }
}
