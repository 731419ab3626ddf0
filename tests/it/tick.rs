//! Tests `tick`: one step, many steps, several agents, and turns that fail.

use std::fs;

use serde_json::json;

use crate::harness::Sandbox;
use crate::setup::{
    SLEEP, TURN_COMPLETED, TURN_FAILED, add, assert_includes, changes, commit_all, decision, decisions,
    field, git, make_repository, names, objects, say, started, started_in_git, started_with, step, step_on,
    tick_until_running, tree, words,
};

#[test]
fn a_step_is_an_object_of_the_contracts_fields() {
    let sandbox = started("echo done");
    let message = say(&sandbox, "hello");
    let mut stepped = step(&sandbox);
    let run = stepped["run_id"].as_str().unwrap().to_owned();
    assert!(stepped["duration_ms"].is_u64());
    stepped["duration_ms"] = json!(0);
    let evidence =
        |first: &str| json!([first, "waiting_reason=none", "trigger=operator_input", "contentful=true"]);
    assert_eq!(
        stepped,
        json!({
            "agent": "ada", "decision": "start_model_turn", "reason": "operator_prompt",
            "message_id": message, "run_id": run,
            "continuation": {
                "trigger_kind": "operator_input", "class": "local_continuation", "model_reentry": true,
                "prior_closure_outcome": "completed", "matched_waiting_reason": false,
                "evidence": evidence("prior=completed"),
            },
            "model_reentry": true, "liveness_only": false,
            "closure": {
                "outcome": "completed", "runtime_posture": "awake",
                "evidence": [
                    "runtime_error=false", "turn_in_progress=false", "terminal=completed",
                    "turn_unaccounted=false", "current_work=none", "queued_work_runnable=false",
                    "waiting_work=none", "operator_wait=false", "external_wait=false", "timer_wait=false",
                    "task_wait=false", "system_wait=false", "active_tasks=0", "active_timers=0",
                ],
            },
            "terminal": "completed", "brief": "done", "attempt": 1, "status": "awake_idle",
            "execution_state": "completed", "posture": "idle", "duration_ms": 0,
        })
    );
    let rested = step(&sandbox);
    assert_eq!(
        rested.as_object().unwrap().keys().collect::<Vec<_>>(),
        words("agent decision reason model_reentry liveness_only status execution_state posture duration_ms"),
        "fields without a value must be absent"
    );
}

#[test]
fn an_idle_tick_exits_with_0_or_under_exit_code_with_10() {
    let sandbox = started("true");
    sandbox.cmd(["tick", "ada"]).prints("ada  sleep (nothing to do)\n");
    sandbox.cmd(["tick", "ada", "--exit-code"]).status(10).prints("ada  stay_idle (already asleep)\n");
    add(&sandbox, "bob", "true");
    sandbox.run(["enqueue", "bob", "x"]);
    let expected =
        "ada  stay_idle (already asleep)\nbob  start_model_turn (a message from you) → completed\n";
    sandbox.cmd(["tick", "ada", "bob", "--exit-code"]).prints(expected);
    let expected = "ada  stay_idle (already asleep)\nbob  sleep (nothing to do)\n";
    sandbox.cmd(["tick", "--all", "--exit-code", "--jobs", "2"]).status(10).prints(expected);
}

#[test]
fn an_idle_step_writes_nothing() {
    let sandbox = started("true");
    decisions(&sandbox);
    let before = tree(&sandbox.store());
    for _ in 0..3 {
        sandbox.cmd(["tick", "ada"]).prints("ada  stay_idle (already asleep)\n");
        sandbox.run(["tick", "--all", "--jobs", "2", "--until-idle"]);
    }
    assert_eq!(changes(&before, &tree(&sandbox.store())), Vec::<std::path::PathBuf>::new());
}

#[test]
fn repeated_steps_during_a_backoff_write_nothing() {
    let sandbox = started_with("exit 1", "\n[recovery]\nbase = \"1h\"\n");
    step_on(&sandbox, "x");
    step(&sandbox);
    let before = tree(&sandbox.store());
    assert_eq!(decision(&step(&sandbox)), "wait_for_timer (recovery_backoff)");
    let locks = ["lock", "run.lock"].map(|name| sandbox.agent("ada").join(name));
    let mut changed = changes(&before, &tree(&sandbox.store()));
    // A step may update its cache of ended messages, which holds no state of the agent.
    let cache = sandbox.agent("ada").join("cache");
    changed.retain(|path| !locks.contains(path) && !path.starts_with(&cache));
    assert_eq!(changed, Vec::<std::path::PathBuf>::new());
    let before = tree(&sandbox.store());
    step(&sandbox);
    let mut changed = changes(&before, &tree(&sandbox.store()));
    changed.retain(|path| !locks.contains(path));
    assert_eq!(changed, Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_dry_run_changes_no_byte_and_predicts_the_step_of_tick() {
    let policy = "\n[recovery]\nbase = \"20s\"\n";
    let sandbox = started_with("test ! -e broken || exit 3; test ! -e busy || exit 75", policy);
    let same = |what: &str| {
        let before = tree(&sandbox.project());
        let said = sandbox.cmd(["tick", "ada", "--dry-run", "--json"]).output();
        let mut changed = changes(&before, &tree(&sandbox.project()));
        // With a database, the first query of a lease saves this machine's id in `owner-…`.
        changed.retain(|path| !path.file_name().unwrap().to_string_lossy().starts_with("owner-"));
        assert_eq!(changed, Vec::<std::path::PathBuf>::new(), "{what}");
        assert_eq!((said.code(), said.stderr.as_str()), (0, ""), "{what}");
        let foreseen = objects(&said.stdout).remove(0);
        let done = step(&sandbox);
        for field in ["decision", "reason", "message_id", "continuation", "model_reentry", "liveness_only"] {
            assert_eq!(foreseen[field], done[field], "{what}: {field}");
        }
        decision(&done)
    };
    assert_eq!(same("nothing"), SLEEP);
    assert_eq!(same("asleep"), "stay_idle (already_asleep)");
    sandbox.run(["enqueue", "ada", "old", "--ttl", "1s"]);
    sandbox.pass(10);
    say(&sandbox, "fresh");
    assert_eq!(same("behind a stale one"), TURN_COMPLETED);
    sandbox.run(["wake", "ada"]);
    assert_eq!(same("a hint"), "emit_system_tick (wake_hint)");
    assert_eq!(same("its tick"), "reduce_message_only (system_tick)");
    sandbox.run(["enqueue", "ada", "x", "--kind", "control"]);
    assert_eq!(same("control"), "reduce_message_only (control)");
    fs::write(sandbox.project().join("broken"), "").unwrap();
    say(&sandbox, "x");
    assert_eq!(same("a turn that will fail"), TURN_FAILED);
    assert_eq!(same("the first backoff"), "wait_for_timer (recovery_backoff)");
    sandbox.pass(20);
    assert_eq!(same("the backoff is over"), "start_recovery (retry)");
    assert_eq!(same("the second attempt"), TURN_FAILED);
    assert_eq!(same("the backoff"), "wait_for_timer (recovery_backoff)");
    fs::remove_file(sandbox.project().join("broken")).unwrap();
    fs::write(sandbox.project().join("busy"), "").unwrap();
    sandbox.run(["recover", "ada"]);
    assert_eq!(same("not now"), "start_model_turn (operator_prompt) deferred");
    sandbox.pass(100);
    assert_eq!(same("now"), "start_model_turn (resources_available) deferred");
    sandbox.run(["stop", "ada"]);
    assert_eq!(same("stopped"), "stop (stopped)");
}

#[test]
fn until_idle_takes_twenty_messages_and_ends() {
    let sandbox = started("true");
    let lines: String = (0..20).map(|n| format!("{{\"text\":\"{n}\"}}\n")).collect();
    sandbox.cmd(["enqueue", "ada", "--batch"]).stdin(lines).output();
    let all = decisions(&sandbox);
    assert_eq!(all.len(), 21);
    assert!(all[..20].iter().all(|line| line == TURN_COMPLETED));
    assert_eq!(all[20], SLEEP);
    assert_eq!(field(&sandbox, "counters.messages_processed"), "20");
}

#[test]
fn until_idle_ends_after_max_steps() {
    let sandbox = started("true");
    for _ in 0..5 {
        say(&sandbox, "x");
    }
    let line = "ada  start_model_turn (a message from you) → completed\n";
    sandbox.cmd(["tick", "ada", "--until-idle", "--max-steps", "3"]).prints(&line.repeat(3));
    assert_eq!(field(&sandbox, "queue.pending"), "2");
    assert_eq!(sandbox.cmd(["tick", "ada", "--max-steps", "3"]).output().code(), 2);
    assert_eq!(sandbox.cmd(["tick", "ada", "--until-idle", "--dry-run"]).output().code(), 2);
}

#[test]
fn tick_with_several_jobs_makes_the_expected_steps_of_each_agent() {
    let sandbox = Sandbox::new();
    let agents: Vec<String> = (0..8).map(|n| format!("agent{n}")).collect();
    for name in &agents {
        add(&sandbox, name, "echo $DORMOUSE_AGENT; test $DORMOUSE_AGENT != agent3");
        sandbox.run(["enqueue", name, "x"]);
    }
    sandbox.run(["stop", "agent7"]);
    let ran = sandbox.cmd(["tick", "--all", "--jobs", "4", "--until-idle", "--json"]).output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (7, ""));
    let lines = objects(&ran.stdout);
    for name in &agents[..7] {
        let of: Vec<String> =
            lines.iter().filter(|line| line["agent"] == name.as_str()).map(decision).collect();
        let expected = if name == "agent3" {
            vec![TURN_FAILED, "wait_for_timer (recovery_backoff)"]
        } else {
            vec![TURN_COMPLETED, SLEEP]
        };
        assert_eq!(of, expected, "{name}");
    }
    let stopped: Vec<String> = lines.iter().filter(|line| line["agent"] == "agent7").map(decision).collect();
    assert_eq!(stopped, ["stop (stopped)"]);
    sandbox.run(["doctor"]);
}

#[test]
fn jobs_run_at_the_same_time() {
    let sandbox = Sandbox::new();
    // Each turn waits for the file of the other turn, so both must run at the same time.
    add(&sandbox, "ada", "touch ada; while [ ! -e bob ]; do sleep 0.02; done");
    add(&sandbox, "bob", "touch bob; while [ ! -e ada ]; do sleep 0.02; done");
    for name in ["ada", "bob"] {
        sandbox.run(["enqueue", name, "x"]);
    }
    let ran = sandbox.cmd(["tick", "--all", "--jobs", "2"]).output();
    assert_eq!((ran.code(), ran.stdout.lines().count()), (0, 2), "{ran}");
}

#[test]
fn one_damaged_agent_does_not_keep_the_others_from_their_step() {
    for jobs in ["1", "4"] {
        let sandbox = Sandbox::new();
        for name in ["ada", "bob", "eve"] {
            add(&sandbox, name, "true");
            sandbox.run(["enqueue", name, "x"]);
        }
        fs::write(sandbox.agent("bob").join("state.json"), "{\n  \"schema\": oops\n}\n").unwrap();
        let ran = sandbox.cmd(["tick", "--all", "--json", "--jobs", jobs]).exits(6);
        let mut lines = objects(&ran.stdout);
        lines.sort_by_key(|line| line["error"].is_object());
        assert_eq!(lines.len(), 3);
        assert!(lines[..2].iter().all(|line| line["terminal"] == "completed"));
        let path = sandbox.agent("bob").join("state.json");
        assert_eq!(
            lines[2]["error"],
            json!({
                "kind": "damaged",
                "message": format!("{}:2:13: expected value", path.display()),
                "hint": "restore it from git, a backup or an export: without it there is no agent, \
                    so `dormouse doctor --repair` leaves it where it is",
                "path": path,
                "line": 2,
                "column": 13,
                "agent": "bob",
                "exit_status": 6,
            })
        );
    }
}

#[test]
fn tick_exits_with_the_most_severe_status_of_its_agents() {
    let sandbox = started("exit 1");
    add(&sandbox, "bob", "true");
    sandbox.run(["enqueue", "ada", "x"]);
    let ran = sandbox.cmd(["tick", "ada", "nobody", "bob"]).output();
    assert_eq!(ran.code(), 7, "a failed turn is more severe than an unknown agent: {ran}");
    assert_eq!(ran.stdout.lines().count(), 2);
    sandbox.cmd(["tick", "nobody", "bob"]).exits(3);
}

/// Returns the decision that a step would make at the time `now`.
fn forecast_at(sandbox: &Sandbox, now: &str) -> String {
    let ran = sandbox.cmd(["tick", "ada", "--dry-run", "--json"]).env("DORMOUSE_NOW", now).output();
    decision(&objects(&ran.stdout)[0])
}

/// Returns the seconds between the end of the last turn and the time of its retry.
fn backoff(sandbox: &Sandbox) -> i64 {
    let at = |path: &str| {
        let text = field(sandbox, path);
        chrono::DateTime::parse_from_rfc3339(&text).unwrap().timestamp_millis()
    };
    (at("retry.not_before") - at("last_turn.ended_at")) / 1000
}

#[test]
fn a_failed_turn_is_retried_with_a_doubling_backoff_up_to_5_attempts() {
    let sandbox = started("echo \"try $DORMOUSE_ATTEMPT\" >&2; exit 3");
    let id = say(&sandbox, "poison");
    let mut pauses = Vec::new();
    for attempt in 1..=5 {
        let ran = sandbox.cmd(["tick", "ada", "--json"]).exits(7);
        let stepped = &objects(&ran.stdout)[0];
        assert_eq!(stepped["attempt"], attempt);
        assert_eq!(stepped["terminal"], "failed");
        assert_eq!(stepped["terminal_reason"], format!("exit status 3: try {attempt}"));
        assert_eq!(stepped["closure"]["outcome"], "failed");
        assert_eq!(field(&sandbox, "execution.state"), "failed");
        pauses.push(backoff(&sandbox));
        if attempt < 5 {
            assert_eq!(field(&sandbox, "retry.attempt"), (attempt + 1).to_string());
            sandbox.pass(20);
            assert_eq!(decision(&step(&sandbox)), "start_recovery (retry)");
        }
    }
    assert_eq!(pauses, [1, 2, 4, 8, 0], "a dead letter must not delay other messages");
    let dead = sandbox.json(["queue", "dead", "-a", "ada"]);
    assert_eq!(dead["id"], id.as_str());
    assert_eq!(dead["settlement"]["dead_letter"], true);
    assert_eq!(dead["settlement"]["reason"], "gave up after 5 attempts: exit status 3: try 5");
    let reasons: Vec<&str> =
        dead["failures"].as_array().unwrap().iter().map(|one| one["reason"].as_str().unwrap()).collect();
    let expected: Vec<String> = (1..=5).map(|attempt| format!("exit status 3: try {attempt}")).collect();
    assert_eq!(reasons, expected);
    assert_eq!(decisions(&sandbox), ["start_recovery (retry)", SLEEP]);
}

#[test]
fn a_backoff_ends_exactly_at_its_due_time() {
    let sandbox = started_with("exit 1", "\n[recovery]\nbase = \"10s\"\n");
    step_on(&sandbox, "x");
    let due = field(&sandbox, "retry.not_before");
    assert_eq!(due, "2026-01-02T03:04:19.000Z");
    assert_eq!(field(&sandbox, "next_due_at"), due);
    assert_eq!(forecast_at(&sandbox, "2026-01-02T03:04:18.999Z"), "wait_for_timer (recovery_backoff)");
    assert_eq!(forecast_at(&sandbox, "2026-01-02T03:04:19Z"), "start_recovery (retry)");
}

#[test]
fn a_backoff_can_be_fixed_bounded_or_jittered() {
    for (policy, least, most) in [
        ("strategy = \"fixed\"\nbase = \"7s\"", [7, 7, 7], [7, 7, 7]),
        ("base = \"10s\"\nmax_delay = \"15s\"", [10, 15, 15], [10, 15, 15]),
        ("strategy = \"jittered\"\nbase = \"100s\"\njitter = 0.5", [100, 200, 400], [150, 300, 600]),
    ] {
        let sandbox = started_with("exit 1", &format!("\n[recovery]\n{policy}\n"));
        say(&sandbox, "x");
        for attempt in 0..3 {
            step(&sandbox);
            let pause = backoff(&sandbox);
            assert!((least[attempt]..=most[attempt]).contains(&pause), "{policy}: {pause}");
            sandbox.run(["recover", "ada"]);
        }
    }
}

#[test]
fn a_dead_letter_does_not_block_the_next_message() {
    let policy = "\n[recovery]\nbase = \"0\"\nmax_attempts = 2\n";
    let sandbox = started_with("! grep -q poison \"$DORMOUSE_CONTEXT\"", policy);
    say(&sandbox, "poison");
    let next = say(&sandbox, "food");
    let all = decisions(&sandbox);
    assert_eq!(
        all,
        [TURN_FAILED, "start_recovery (retry)", TURN_FAILED, "start_recovery (retry)", TURN_COMPLETED, SLEEP]
    );
    assert_eq!(sandbox.json(["queue", "show", &next])["status"], "processed");
    assert_eq!(field(&sandbox, "queue.dead"), "1");
}

#[test]
fn a_dead_letter_stops_the_agent_if_on_exhausted_is_stop() {
    let sandbox = started_with("exit 1", "\n[recovery]\nmax_attempts = 1\non_exhausted = \"stop\"\n");
    let stepped = step_on(&sandbox, "x");
    assert_eq!((&stepped["terminal"], &stepped["status"]), (&json!("failed"), &json!("stopped")));
    assert_eq!(decision(&step(&sandbox)), "stop (stopped)");
    assert_eq!(field(&sandbox, "queue.dead"), "1");
    let controls = sandbox.json_lines(["events", "ada", "--kind", "control_request_admitted"]);
    let expected = json!({ "action": "stop", "by": "system:ada", "reason": "recovery.on_exhausted" });
    assert_eq!(controls.last().unwrap()["data"], expected);
    sandbox.run(["start", "ada"]);
    let all = decisions(&sandbox);
    assert_eq!(all.len(), 2);
    assert!(all[0].starts_with("start_recovery"), "{all:?}");
    sandbox.run(["doctor"]);
}

#[test]
fn an_interjection_of_the_operator_ends_a_backoff() {
    let sandbox = started_with("! grep -q poison \"$DORMOUSE_CONTEXT\"", "\n[recovery]\nbase = \"1h\"\n");
    step_on(&sandbox, "poison");
    sandbox.run(["enqueue", "ada", "patience", "--priority", "next"]);
    sandbox.run(["enqueue", "ada", "too late", "--priority", "interject", "--ttl", "1s"]);
    sandbox.pass(5);
    assert_eq!(decision(&step(&sandbox)), "wait_for_timer (recovery_backoff)");
    let urgent = sandbox.run(["enqueue", "ada", "now", "--priority", "interject"]);
    assert_eq!(decision(&step(&sandbox)), "start_recovery (retry)");
    let stepped = step(&sandbox);
    assert_includes(&stepped, json!({ "message_id": urgent.trim_end(), "terminal": "completed" }));
}

#[test]
fn an_interjection_ends_the_backoff_of_an_earlier_one_only_once() {
    let sandbox = started_with("! grep -q poison \"$DORMOUSE_CONTEXT\"", "\n[recovery]\nbase = \"1h\"\n");
    sandbox.run(["enqueue", "ada", "poison", "--priority", "interject"]);
    step(&sandbox);
    assert_eq!(decision(&step(&sandbox)), "wait_for_timer (recovery_backoff)");
    sandbox.run(["enqueue", "ada", "hurry", "--priority", "interject"]);
    assert_eq!(decision(&step(&sandbox)), "start_recovery (retry)");
    assert_eq!(decision(&step(&sandbox)), TURN_FAILED);
    // The same interjection ends no second backoff, so it can't use up all attempts at once.
    assert_eq!(decision(&step(&sandbox)), "wait_for_timer (recovery_backoff)");
    // A delayed interjection ends the backoff in the step in which it becomes due.
    sandbox.run(["enqueue", "ada", "now", "--priority", "interject", "--in", "0s"]);
    assert_eq!(decision(&step(&sandbox)), "start_recovery (retry)");
}

#[test]
fn a_step_prints_the_posture_after_the_step() {
    let sandbox = started(
        "test \"$(cat said 2>/dev/null)\" || { echo '{\"actions\": [{\"do\": \"enqueue\", \"text\": \"more\"}]}' > \"$DORMOUSE_OUTCOME\"; echo x > said; }",
    );
    say(&sandbox, "first");
    assert_eq!(step(&sandbox)["posture"], "has_queued_input", "the outcome has added a message");
    assert_eq!(step(&sandbox)["posture"], "idle");
    for _ in 0..2 {
        sandbox.run(["enqueue", "ada", "", "--allow-empty", "--origin", "channel:x"]);
    }
    let reduced = step(&sandbox);
    assert_includes(&reduced, json!({ "decision": "reduce_message_only", "posture": "has_queued_input" }));
    assert_eq!(step(&sandbox)["posture"], "idle");
    sandbox.run(["wake", "ada"]);
    let emitted = step(&sandbox);
    assert_includes(&emitted, json!({ "decision": "emit_system_tick", "posture": "has_queued_input" }));
}

#[test]
fn a_failed_agent_that_was_stopped_recovers_after_its_start() {
    let sandbox = started("exit 1");
    step_on(&sandbox, "x");
    sandbox.run(["stop", "ada"]);
    assert_eq!(field(&sandbox, "execution.state"), "failed");
    sandbox.run(["start", "ada"]);
    let first = decision(&step(&sandbox));
    assert!(first.starts_with("start_recovery"), "{first}");
    assert_eq!(decision(&step(&sandbox)), TURN_FAILED);
}

#[test]
fn exit_75_defers_the_message_without_counting_an_attempt() {
    let sandbox = started("echo $DORMOUSE_ATTEMPT >> attempts; test -e resource || exit 75");
    let id = say(&sandbox, "x");
    let expected =
        "ada  start_model_turn (a message from you) → deferred: the turn asks to come back later\n";
    sandbox.cmd(["tick", "ada"]).prints(expected);
    assert_eq!(field(&sandbox, "execution.state"), "waiting_resources");
    assert_eq!(field(&sandbox, "posture"), "blocked");
    let shown = sandbox.json(["queue", "show", &id]);
    assert_eq!((&shown["status"], &shown["attempt"]), (&json!("dequeued"), &json!(1)));
    let due = field(&sandbox, "held.not_before");
    let missing = "the turn asked to come back later (exit status 75)";
    let ran = sandbox.cmd(["tick", "ada", "--json"]).env("DORMOUSE_NOW", "2026-01-02T03:04:09.500Z").output();
    let waiting = &objects(&ran.stdout)[0];
    assert_eq!(decision(waiting), format!("wait_for_resources ({missing})"));
    assert_eq!(waiting["next_due_at"], due.as_str());
    say(&sandbox, "waits behind it");
    fs::write(sandbox.project().join("resource"), "").unwrap();
    sandbox.pass(10);
    let stepped = step(&sandbox);
    assert_eq!(decision(&stepped), "start_model_turn (resources_available) completed");
    assert_eq!((&stepped["message_id"], &stepped["attempt"]), (&json!(id), &json!(1)));
    assert_eq!(fs::read_to_string(sandbox.project().join("attempts")).unwrap(), "1\n1\n");
}

#[test]
fn a_step_during_a_running_turn_is_a_noop() {
    let sandbox = started("touch running; while [ ! -e go ]; do sleep 0.02; done");
    say(&sandbox, "x");
    let tick = tick_until_running(&sandbox);
    let before = fs::read(sandbox.agent("ada").join("state.json")).unwrap();
    let beside = step(&sandbox);
    assert_eq!(decision(&beside), "noop (turn_in_progress)");
    assert_eq!(
        (&beside["run_id"], &beside["status"]),
        (&json!(field(&sandbox, "current_run.run_id")), &json!("awake_running"))
    );
    sandbox.cmd(["tick", "ada", "--exit-code"]).status(10).prints("ada  noop (turn in progress)\n");
    assert_eq!(fs::read(sandbox.agent("ada").join("state.json")).unwrap(), before);
    fs::write(sandbox.project().join("go"), "").unwrap();
    assert_eq!(tick.end().code(), 0);
}

#[test]
fn a_run_whose_tick_was_killed_is_interrupted_and_its_message_replays() {
    let sandbox = started("test -e running || { touch running; sleep 1000; }");
    let id = say(&sandbox, "x");
    let mut tick = tick_until_running(&sandbox);
    let run = field(&sandbox, "current_run.run_id");
    tick.kill();
    let recovered = step(&sandbox);
    assert_eq!(recovered["recovered_run_id"], run.as_str());
    assert_eq!(decision(&recovered), "wait_for_timer (recovery_backoff)");
    let interrupted = sandbox.json_lines(["events", "ada", "--kind", "run_interrupted"]);
    assert_eq!(interrupted[0]["data"]["reason"], "its tick is gone");
    assert_eq!(sandbox.json(["run", "show", &run])["terminal"], "interrupted");
    sandbox.pass(5);
    assert_eq!(decisions(&sandbox), ["start_recovery (retry)", TURN_COMPLETED, SLEEP]);
    assert_eq!(sandbox.json(["queue", "show", &id])["status"], "processed");
}

#[test]
fn a_step_with_commit_makes_one_git_commit_and_leaves_a_clean_tree() {
    let sandbox = started_in_git();
    fs::write(sandbox.project().join("mine"), "staged by somebody else").unwrap();
    git(&sandbox, &["add", "mine"]);
    say(&sandbox, "one");
    say(&sandbox, "two");
    // The status has a line for the file that the operator has staged, and for no other.
    let is_clean = |when: &str| assert_eq!(git(&sandbox, &["status", "--porcelain"]), "A  mine\n", "{when}");
    sandbox.run(["tick", "ada", "--commit"]);
    is_clean("after one step");
    let ran = sandbox.cmd(["tick", "ada", "--until-idle", "--commit", "--json"]).output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""));
    let expected = "ada: sleep (no_pending_scheduler_facts)\nada: start_model_turn (operator_prompt)\n\
                    ada: start_model_turn (operator_prompt)\nstart\n";
    assert_eq!(git(&sandbox, &["log", "--format=%s"]), expected);
    let stepped = objects(&ran.stdout);
    let (run, message) = (stepped[0]["run_id"].as_str().unwrap(), stepped[0]["message_id"].as_str().unwrap());
    let expected = format!("Run: {run}\nMessage: {message}\nTerminal: completed");
    assert_eq!(git(&sandbox, &["log", "-1", "--skip=1", "--format=%b"]).trim_end(), expected);
    is_clean("after the last step, `sleep`");
}

#[test]
fn git_tracks_the_records_and_no_locks_caches_or_journals() {
    let sandbox = started("echo out; echo err >&2");
    make_repository(&sandbox);
    step_on(&sandbox, "one");
    say(&sandbox, "queued");
    sandbox.run(["enqueue", "ada", "x", "--dedupe-key", "k"]);
    git(&sandbox, &["add", ".dormouse"]);
    let run = names(&sandbox.agent("ada").join("runs")).remove(0);
    let trigger = names(&sandbox.agent("ada").join("triggers")).remove(0);
    let inbox: Vec<String> = names(&sandbox.agent("ada").join("inbox"));
    let mut expected: Vec<String> = words(
        "agent.toml archive/2026-01/brief.jsonl archive/2026-01/message.jsonl archive/2026-01/run.jsonl \
         identity.json inbox/.gitkeep ledger/2026-01.jsonl state.json",
    )
    .iter()
    .map(|path| format!(".dormouse/agents/ada/{path}"))
    .collect();
    expected.extend(
        [".gitattributes", ".gitignore", "dormouse.toml"].iter().map(|path| format!(".dormouse/{path}")),
    );
    expected.extend(inbox.iter().map(|name| format!(".dormouse/agents/ada/inbox/{name}")));
    expected.push(format!(".dormouse/agents/ada/runs/{run}/context.json"));
    expected.push(format!(".dormouse/agents/ada/triggers/{trigger}"));
    expected.sort();
    let kept = git(&sandbox, &["ls-files"]);
    assert_eq!(kept.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_clone_works_on_another_path_without_its_empty_directories() {
    let sandbox = started("true");
    make_repository(&sandbox);
    step_on(&sandbox, "one");
    say(&sandbox, "two");
    commit_all(&sandbox, "all");
    let clone = sandbox.root().join("clone");
    let there = clone.to_str().unwrap();
    git(&sandbox, &["clone", "--quiet", ".", there]);
    assert!(!clone.join(".dormouse/agents/ada/tmp").exists());
    for args in [
        &["list"][..],
        &["get", "ada"],
        &["explain", "ada"],
        &["queue", "list", "-a", "ada"],
        &["run", "list", "-a", "ada"],
        &["events", "ada"],
        &["doctor"],
    ] {
        sandbox.run(["-C", there].iter().chain(args).copied());
    }
    let ran = sandbox.cmd(["-C", there, "tick", "ada", "--until-idle", "--json"]).output();
    let all: Vec<String> = objects(&ran.stdout).iter().map(decision).collect();
    assert_eq!(all, [TURN_COMPLETED, SLEEP]);
}
