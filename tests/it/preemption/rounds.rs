//! Tests whole rounds: a request to yield, the yield, and the resumption of the run.

use std::fs;

use serde_json::{Value, json};

use crate::setup::{
    assert_includes, decision, extend_policy, field, json_in, objects, only_object, say, step,
};

use super::{
    ASK, agent, all_checkpoints, continues_from, current_run, ended, events, go, occupied, running, signal,
    step_at, suspended, take_noted, text_of, turn, turns, with_message,
};

/// Checks the answers and records of each command from the request to the completion.
#[test]
fn a_turn_is_asked_saves_a_checkpoint_and_is_resumed() {
    let sandbox = agent();
    let message = say(&sandbox, "a long job");
    let script = r#"note "$DORMOUSE_RUN $DORMOUSE_ATTEMPT ${DORMOUSE_CHECKPOINT-none}"
        $D safe-point; note "before: $?"
        up; come asked
        $D safe-point; note "after: $?"
        printf 'page 3\0\377\n\n' > "$HOME/saved"
        $D yield --checkpoint "$HOME/saved"; note "yield: $?"
        rm "$HOME/saved""#;
    let tick = running(&sandbox, script);
    let first = current_run(&sandbox);
    let asked = sandbox.json(["preempt", "ada", "--reason", "urgent", "--grace", "10m"]);
    let expected = json!({ "agent": "ada", "run_id": first, "reason": "urgent", "resume_after": null });
    assert_includes(&asked, expected);
    go(&sandbox, "asked");
    let stepped = ended(tick);
    assert_eq!(decision(&stepped), "start_model_turn (operator_prompt) suspended");
    assert_eq!((&stepped["terminal_reason"], &stepped["attempt"]), (&json!("urgent"), &json!(1)));
    let expected = [&format!("{first} 1 none"), "before: 0", "after: 10", "yield: 0"].map(String::from);
    assert_eq!(take_noted(&sandbox), expected);
    assert_eq!(
        ["execution.state", "execution.reason", "execution.task_id", "status", "queue.pending"]
            .map(|path| field(&sandbox, path)),
        ["suspended", "urgent", &message, "awake_idle", "1"].map(str::to_owned)
    );
    assert_eq!(sandbox.json(["run", "show", &first])["terminal"], "suspended");
    assert_eq!(field(&sandbox, "counters.turns_failed"), "0");

    // Other messages wait for the suspended run.
    let other = sandbox.run(["enqueue", "ada", "more", "--priority", "next"]).trim_end().to_owned();
    turns(&sandbox, r#"note "another ran""#);
    let waits = step(&sandbox);
    assert_eq!(decision(&waits), "wait_for_resources (suspended: urgent)");
    assert_eq!(sandbox.json(["explain", "ada"])["decision"]["decision"], "wait_for_resources");
    assert_eq!(take_noted(&sandbox), Vec::<String>::new());

    let resumed = sandbox.json(["resume", "ada"]);
    assert_eq!(
        resumed,
        json!({ "agent": "ada", "action": "resume", "status": "awake_idle", "execution_state": "suspended", "message_id": message })
    );
    let script = r#"note "$DORMOUSE_RUN $DORMOUSE_ATTEMPT $DORMOUSE_MESSAGE"
        cp "$DORMOUSE_CHECKPOINT" "$HOME/given"
        cp "$DORMOUSE_DIR/agents/ada/state.json" "$HOME/state"
        $D safe-point; note "again: $?""#;
    let stepped = turn(&sandbox, script);
    assert_eq!(decision(&stepped), "start_model_turn (resume_suspended) completed");
    let second = stepped["run_id"].as_str().unwrap();
    assert_ne!(second, first);
    assert_eq!(take_noted(&sandbox), [format!("{second} 1 {message}"), "again: 0".to_owned()]);
    assert_eq!(fs::read(sandbox.home().join("given")).unwrap(), b"page 3\0\xff\n\n");
    // The resumed run starts without a request to yield.
    let state = json_in(sandbox.home().join("state"));
    assert_eq!(state["current_run"]["preemption"], Value::Null);
    assert_eq!(
        (field(&sandbox, "execution.state"), field(&sandbox, "queue.pending")),
        ("completed".into(), "1".into())
    );
    assert_eq!(step(&sandbox)["message_id"], other);
}

#[test]
fn a_turn_may_yield_without_a_checkpoint_and_unasked() {
    let sandbox = with_message();
    let stepped = turn(&sandbox, "$D yield --json");
    assert_eq!(decision(&stepped), "start_model_turn (operator_prompt) suspended");
    assert_eq!(stepped["terminal_reason"], "its turn yielded");
    let run = stepped["run_id"].as_str().unwrap();
    let answer = fs::read(sandbox.agent("ada").join("runs").join(run).join("stdout.log")).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let expected =
        json!({ "agent": "ada", "run_id": run, "checkpoint": null, "bytes": null, "becomes": "suspended" });
    assert_eq!(answer, expected);
    assert_eq!(field(&sandbox, "execution.reason"), "its turn yielded");
    assert_eq!(events(&sandbox, "run_yielded").len(), 1);
    sandbox.run(["resume", "ada"]);
    assert_eq!(turn(&sandbox, "told")["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["from nothing"]);
}

#[test]
fn of_several_yields_of_an_attempt_the_last_checkpoint_counts() {
    let sandbox = suspended("one");
    sandbox.run(["resume", "ada"]);
    // A yield without a checkpoint keeps the last one.
    turn(&sandbox, "told; $D yield >/dev/null");
    sandbox.run(["resume", "ada"]);
    turn(&sandbox, "told; $D yield >/dev/null");
    sandbox.run(["resume", "ada"]);
    let both = "told; printf two | $D yield --checkpoint - >/dev/null; printf three | $D yield --checkpoint - >/dev/null";
    turn(&sandbox, &format!("{both}; $D yield >/dev/null"));
    assert_eq!(all_checkpoints(&sandbox), ["three"], "the older checkpoints are deleted");
    sandbox.run(["resume", "ada"]);
    assert_eq!(take_noted(&sandbox), ["from one", "from one", "from one"]);
    continues_from(&sandbox, "three", 1);
}

#[test]
fn a_checkpoint_survives_a_deferral_after_the_yield() {
    let sandbox = suspended("here");
    sandbox.run(["resume", "ada"]);
    assert_eq!(turn(&sandbox, "told; exit 75")["terminal"], "deferred");
    sandbox.pass(60);
    let stepped = turn(&sandbox, "told");
    assert_eq!(decision(&stepped), "start_model_turn (resources_available) completed");
    assert_eq!(stepped["attempt"], 1);
    assert_eq!(take_noted(&sandbox), ["from here", "from here"]);
}

#[test]
fn a_checkpoint_survives_the_wait_for_a_resource() {
    let sandbox = suspended("here");
    let bob = occupied(&sandbox);
    sandbox.run(["resume", "ada"]);
    turns(&sandbox, "told");
    assert_eq!(decision(&step(&sandbox)), "wait_for_resources (workspace)");
    assert_eq!(field(&sandbox, "execution.state"), "waiting_resources");
    go(&sandbox, "bob may go");
    assert_eq!(bob.end().code(), 0);
    let stepped = step(&sandbox);
    assert_eq!(decision(&stepped), "start_model_turn (resources_available) completed");
    assert_eq!(stepped["attempt"], 1);
    assert_eq!(take_noted(&sandbox), ["from here"]);
}

/// The outcome of a turn that has yielded is ignored, valid or not, except for the reported usage.
#[test]
fn a_turn_that_has_yielded_is_suspended_after_any_exit() {
    let outcome =
        r#"{"brief":"all done","actions":[{"do":"enqueue","text":"x"}],"usage":{"input_tokens":5}}"#;
    let ends =
        [("exit 0", "code"), ("exit 1", "code"), ("exit 75", "code"), ("kill -KILL $$; sleep 600", "signal")];
    for (end, how) in ends {
        let sandbox = agent();
        let message = say(&sandbox, "hello");
        turns(
            &sandbox,
            &format!("$D yield >/dev/null; printf '%s' '{outcome}' > \"$DORMOUSE_OUTCOME\"; {end}"),
        );
        sandbox.cmd(["tick", "ada", "--json"]).exits(0);
        let run = sandbox.json(["run", "list", "-a", "ada"]);
        assert_eq!((&run["terminal"], &run["exit"]["how"]), (&json!("suspended"), &json!(how)), "{end}");
        assert_eq!(
            ["execution.state", "queue.pending", "counters.input_tokens"].map(|path| field(&sandbox, path)),
            ["suspended", "1", "5"].map(str::to_owned),
            "{end}"
        );
        assert_eq!(sandbox.json(["queue", "show", &message])["attempt"], 1, "{end}");
    }
    let sandbox = with_message();
    let stepped = turn(&sandbox, r#"$D yield >/dev/null; echo '{' > "$DORMOUSE_OUTCOME""#);
    assert_eq!(stepped["terminal"], "suspended");
}

#[test]
fn a_run_suspended_for_a_time_resumes_by_itself_exactly_then() {
    let sandbox = agent();
    // The suspend timeout does not apply to a run that has a time of resumption.
    extend_policy(&sandbox, "ada", "\n[timeouts]\nsuspend = \"1m\"\n");
    say(&sandbox, "hello");
    let script = "outside preempt ada --reason lunch --grace 1d --for 10m >/dev/null; $D safe-point || $D yield >/dev/null";
    turns(&sandbox, script);
    assert_eq!(step_at(&sandbox, "2026-01-02T04:00:00.250Z")["terminal"], "suspended");
    let next_wake =
        |moment: &str| sandbox.cmd(["next-wake", "ada"]).env("DORMOUSE_NOW", moment).output().stdout;
    assert_eq!(next_wake("2026-01-02T04:00:00.250Z"), "2026-01-02T04:10:00.250Z\n");
    turns(&sandbox, "told");
    for before in ["2026-01-02T04:05:00Z", "2026-01-02T04:10:00.249Z"] {
        assert_eq!(decision(&step_at(&sandbox, before)), "wait_for_resources (suspended: lunch)");
        assert_eq!(next_wake(before), "2026-01-02T04:10:00.250Z\n");
    }
    let stepped = step_at(&sandbox, "2026-01-02T04:10:00.250Z");
    assert_eq!(decision(&stepped), "start_model_turn (resume_suspended) completed");
    assert_eq!(stepped["attempt"], 1);
}

#[test]
fn a_turn_can_set_the_time_of_its_resumption() {
    let sandbox = with_message();
    turns(&sandbox, "$D yield --for never; $D yield --for 10m >/dev/null");
    let step = step_at(&sandbox, "2026-01-02T04:00:00.250Z");
    assert_includes(&step, json!({ "terminal": "suspended", "next_due_at": "2026-01-02T04:10:00.250Z" }));
    turns(&sandbox, "told");
    let before = step_at(&sandbox, "2026-01-02T04:10:00.249Z");
    assert_eq!(decision(&before), "wait_for_resources (suspended: its turn yielded)");
    let after = step_at(&sandbox, "2026-01-02T04:10:00.250Z");
    assert_eq!(decision(&after), "start_model_turn (resume_suspended) completed");
}

#[test]
fn a_run_suspended_for_a_time_can_be_resumed_before() {
    let sandbox = with_message();
    turn(&sandbox, "outside preempt ada --reason lunch --grace 1d --for 10d >/dev/null; $D yield >/dev/null");
    sandbox.run(["resume", "ada"]);
    assert_eq!(decision(&turn(&sandbox, "told")), "start_model_turn (resume_suspended) completed");
}

/// The latest request sets the reason, the earliest `force_at` counts.
#[test]
fn requests_for_one_run_are_merged() {
    let sandbox = with_message();
    let cases = [
        ("--reason one --grace 10m --for 1h", "one", "2026-01-02T04:10:00.000Z", json!("1h")),
        ("--reason two --grace 1h", "two", "2026-01-02T04:10:00.000Z", Value::Null),
        ("--reason three --grace 5m --for 2h", "three", "2026-01-02T04:05:00.000Z", json!("2h")),
    ];
    let mut script = String::new();
    for (flags, reason, force_at, resume_after) in cases {
        script.push_str(&format!("outside preempt ada {flags} >/dev/null\n"));
        let script = format!(
            r#"{script}cp "$DORMOUSE_DIR/agents/ada/state.json" "$HOME/state"
                $D safe-point --json > "$HOME/answer"; $D yield >/dev/null"#
        );
        turns(&sandbox, &script);
        assert_eq!(step_at(&sandbox, "2026-01-02T04:00:00Z")["terminal"], "suspended");
        let expected = json!({ "reason": reason, "force_at": force_at, "resume_after": resume_after });
        assert_includes(&json_in(sandbox.home().join("state"))["current_run"]["preemption"], expected);
        let expected = json!({ "yield": true, "reason": reason });
        assert_includes(&only_object(&text_of(&sandbox, "answer")), expected);
        assert_eq!(field(&sandbox, "execution.reason"), reason);
        sandbox.cmd(["resume", "ada"]).env("DORMOUSE_NOW", "2026-01-02T04:00:00Z").exits(0);
    }
    assert_eq!(events(&sandbox, "preemption_requested").len(), 1 + 2 + 3);
}

#[test]
fn a_request_ends_with_its_run() {
    let sandbox = agent();
    say(&sandbox, "one");
    assert_eq!(turn(&sandbox, ASK)["terminal"], "completed");
    say(&sandbox, "two");
    assert_eq!(turn(&sandbox, &format!("$D safe-point; note $?; {ASK}; exit 3"))["terminal"], "failed");
    sandbox.run(["recover", "ada"]);
    turn(&sandbox, "$D safe-point; note $?");
    assert_eq!(take_noted(&sandbox), ["0", "0"]);
}

#[test]
fn a_suspended_agent_can_be_stopped_and_resumed_after_its_start() {
    let sandbox = suspended("here");
    assert_eq!(sandbox.json(["stop", "ada"])["aborted_run_id"], Value::Null);
    turns(&sandbox, "told");
    assert_eq!(decision(&step(&sandbox)), "stop (stopped)");
    assert_eq!(field(&sandbox, "execution.state"), "suspended");
    // `resume` of a stopped agent is the deprecated form of `start`.
    let ran = sandbox.cmd(["resume", "ada"]).output();
    assert_eq!((ran.code(), field(&sandbox, "status")), (0, "awake_idle".into()), "{ran}");
    assert!(ran.stderr.contains("deprecated"), "{ran}");
    sandbox.run(["resume", "ada"]);
    continues_from(&sandbox, "here", 1);
}

/// If a turn has yielded before its tick gets a signal, the tick suspends the run; if the tick is
/// killed, the next tick does.
#[test]
fn a_run_that_has_yielded_is_suspended_when_its_tick_ends() {
    for name in ["TERM", "KILL"] {
        let sandbox = with_message();
        let tick = running(&sandbox, "printf here | $D yield --checkpoint - >/dev/null; up; come never");
        signal(name, tick.0.id());
        let answer = objects(&tick.end().stdout);
        assert!(name == "KILL" || answer[0]["terminal"] == "suspended", "{answer:?}");
        let state = if name == "TERM" { "suspended" } else { "running" };
        assert_eq!(field(&sandbox, "execution.state"), state);
        turns(&sandbox, "told");
        assert_eq!(decision(&step(&sandbox)), "wait_for_resources (suspended: its turn yielded)", "{name}");
        sandbox.run(["resume", "ada"]);
        continues_from(&sandbox, "here", 1);
    }
}

/// A signal to the tick interrupts a turn that was asked to yield but has not yielded.
#[test]
fn a_signal_to_the_tick_of_a_turn_that_was_asked_interrupts_it() {
    let sandbox = with_message();
    let tick = running(&sandbox, "up; come never");
    sandbox.run(["preempt", "ada", "--reason", "urgent", "--grace", "1d"]);
    signal("TERM", tick.0.id());
    let stepped = ended(tick);
    assert_eq!(stepped["terminal"], "interrupted");
    sandbox.run(["recover", "ada"]);
    let stepped = turn(&sandbox, "$D safe-point; note $?");
    assert_includes(&stepped, json!({ "terminal": "completed", "attempt": 1 }));
    assert_eq!(take_noted(&sandbox), ["0"]);
}

/// Neither a message nor a hint resumes a suspended run, so `explain` names neither.
#[test]
fn explain_names_the_ways_to_resume_a_suspended_run() {
    let wakes = |pause: &str| {
        let sandbox = with_message();
        turns(&sandbox, &format!("{ASK} {pause}; $D yield >/dev/null"));
        step_at(&sandbox, "2026-01-02T04:00:00Z");
        let explained =
            sandbox.cmd(["--json", "explain", "ada"]).env("DORMOUSE_NOW", "2026-01-02T04:00:00Z").output();
        objects(&explained.stdout)[0]["wakes"].clone()
    };
    assert_eq!(
        wakes(""),
        json!(["dormouse resume ada", "its suspend_timeout, after 2026-01-02T05:00:00.000Z (in 1h00m)"])
    );
    assert_eq!(
        wakes("--for 2h"),
        json!(["the end of its suspension, 2026-01-02T06:00:00.000Z (in 2h00m)", "dormouse resume ada"])
    );
}

#[test]
fn explain_shows_that_a_turn_was_asked_to_yield() {
    let sandbox = with_message();
    let tick = running(&sandbox, "up; come go");
    let end = format!("the end of {}", current_run(&sandbox));
    assert_eq!(sandbox.json(["explain", "ada"])["wakes"][0], end);
    sandbox.run(["preempt", "ada", "--reason", "urgent", "--grace", "1h"]);
    let said = sandbox.json(["explain", "ada"])["wakes"][0].as_str().unwrap().to_owned();
    assert!(said.starts_with(&format!("{end}, which is to yield until 2")), "{said}");
    go(&sandbox, "go");
    assert_eq!(ended(tick)["terminal"], "completed");
}
