//! A checkpoint belongs to the message: whatever ends its run, the next one has it.

use std::fs;

use predicates::str::contains;
use serde_json::json;

use crate::harness::Sandbox;
use crate::setup::{
    Beside, edit_state, eventually, extend_policy, field, json_in, objects, record, say, step,
};

use super::{
    agent, checkpoints_of, current_run, ended, events, go, refused, running, signal, step_at, take_noted,
    turn, turns, with_message,
};

const SAVES: &str = "printf half | $D checkpoint -";

/// All checkpoints that lie about, of whatever run.
fn all_saved(sandbox: &Sandbox) -> Vec<String> {
    let runs = crate::setup::names(&sandbox.agent("ada").join("runs"));
    let of_run = |run: &String| checkpoints_of(sandbox, run).into_iter();
    runs.iter().flat_map(of_run).map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// That the next turn of `ada` goes on from `half`, and that nothing is left when it is done.
#[track_caller]
fn goes_on(sandbox: &Sandbox, attempt: u32) {
    take_noted(sandbox);
    let stepped = turn(sandbox, "told");
    assert_eq!((&stepped["terminal"], &stepped["attempt"]), (&json!("completed"), &json!(attempt)));
    assert_eq!(take_noted(sandbox), ["from half"]);
    assert_eq!(all_saved(sandbox), Vec::<String>::new(), "it goes with its message");
    say(sandbox, "another");
    turn(sandbox, "told");
    assert_eq!(take_noted(sandbox), ["from nothing"], "it is none of another message");
}

#[test]
fn the_latest_stands_and_the_turn_goes_on() {
    let sandbox = with_message();
    let stepped = turn(
        &sandbox,
        r#"printf one | $D checkpoint - ; printf two > "$HOME/two"; $D checkpoint "$HOME/two"
        $D safe-point; note $?
        printf half | $D --json checkpoint - > "$HOME/answer"; exit 3"#,
    );
    assert_eq!((&stepped["terminal"], take_noted(&sandbox)), (&json!("failed"), vec!["0".to_owned()]));
    let answer = objects(&fs::read_to_string(sandbox.home().join("answer")).unwrap()).remove(0);
    assert_eq!((&answer["agent"], &answer["bytes"]), (&json!("ada"), &json!(4)));
    assert_eq!(fs::read_to_string(answer["checkpoint"].as_str().unwrap()).unwrap(), "half");
    assert_eq!(all_saved(&sandbox), ["half"], "the older ones are gone");
    assert_eq!(events(&sandbox, "checkpoint_saved").len(), 3);
    sandbox.run(["recover", "ada"]);
    goes_on(&sandbox, 2);
}

/// What it was given can be read as long as its turn runs, though it saves more.
#[test]
fn what_a_run_goes_on_from_is_there_until_it_ends() {
    let sandbox = with_message();
    turn(&sandbox, "printf first | $D checkpoint -; exit 1");
    sandbox.run(["recover", "ada"]);
    turn(&sandbox, &format!("{SAVES}; told; exit 1"));
    assert_eq!(take_noted(&sandbox), ["from first"]);
    assert_eq!(all_saved(&sandbox), ["half"]);
    sandbox.run(["recover", "ada"]);
    goes_on(&sandbox, 3);
}

#[test]
fn a_turn_that_runs_too_long_has_saved_it() {
    let sandbox = agent();
    let policy = sandbox.agent("ada").join("agent.toml");
    let text = fs::read_to_string(&policy).unwrap().replace("\"30m\"", "\"1s\"");
    fs::write(&policy, text).unwrap();
    say(&sandbox, "hello");
    let stepped = turn(&sandbox, &format!("trap '{SAVES}; exit 0' TERM; while :; do sleep 0.01; done"));
    assert_eq!(stepped["terminal"], "timed_out");
    sandbox.run(["recover", "ada"]);
    goes_on(&sandbox, 2);
}

#[test]
fn a_turn_that_is_forced_or_failed_has_saved_it() {
    let forced = ["preempt", "ada", "--reason", "r", "--grace", "0s"];
    for (args, attempt) in [(&forced[..], 1), (&["fail", "ada", "--reason", "r"], 2)] {
        let sandbox = agent().with_real_clock();
        say(&sandbox, "hello");
        let tick = running(&sandbox, &format!("trap '{SAVES}; exit 0' TERM; up; come never"));
        sandbox.run(args.iter().copied());
        assert_eq!(ended(tick)["terminal"], "failed");
        sandbox.run(["recover", "ada"]);
        goes_on(&sandbox, attempt);
    }
}

#[test]
fn a_tick_that_is_killed_leaves_it_to_the_next_run() {
    let sandbox = with_message();
    let mut tick = running(&sandbox, &format!("{SAVES}; up; come never"));
    signal("KILL", tick.0.id());
    tick.0.wait().unwrap();
    eventually("the end of the turn", || {
        let stepped = step(&sandbox);
        stepped["recovered_run_id"].is_string().then_some(())
    });
    sandbox.run(["recover", "ada"]);
    goes_on(&sandbox, 1);
}

#[test]
fn a_run_that_stays_suspended_for_too_long_keeps_it() {
    let sandbox = with_message();
    turn(&sandbox, &format!("{SAVES}; $D yield >/dev/null"));
    assert_eq!(step_at(&sandbox, "2026-01-02T09:00:00Z")["reason"], "recovery_backoff");
    assert_eq!(field(&sandbox, "execution.reason"), "suspend_timeout");
    sandbox.run(["recover", "ada"]);
    goes_on(&sandbox, 1);
}

#[test]
fn a_run_that_is_put_off_keeps_it() {
    let sandbox = with_message();
    turn(&sandbox, &format!("{SAVES}; exit 75"));
    sandbox.pass(60);
    goes_on(&sandbox, 1);
}

#[test]
fn a_turn_that_is_stopped_can_still_save_it_and_its_message_keeps_it() {
    for requeue in [true, false] {
        let sandbox = agent();
        let message = say(&sandbox, "hello");
        let tick = running(&sandbox, &format!("trap '{SAVES}; note $?; exit 1' TERM; up; come never"));
        sandbox.run(["stop", "ada"].into_iter().chain(requeue.then_some("--requeue")));
        assert_eq!(ended(tick)["terminal"], "aborted");
        assert_eq!(take_noted(&sandbox), ["0"]);
        if !requeue {
            sandbox.run(["queue", "requeue", &message]);
        }
        sandbox.run(["start", "ada"]);
        // A turn that ended by itself has shut down in order.
        assert_eq!(field(&sandbox, "execution.state"), "completed");
        goes_on(&sandbox, 1);
    }
}

/// A dead letter that somebody brings back goes on where it was; one that is dropped leaves nothing.
#[test]
fn a_dead_letter_keeps_it_until_it_is_dropped() {
    let sandbox = agent();
    extend_policy(&sandbox, "ada", "[recovery]\nmax_attempts = 1");
    for drop in [false, true] {
        let message = say(&sandbox, "hello");
        turn(&sandbox, &format!("{SAVES}; exit 1"));
        sandbox.run(["recover", "ada"]);
        assert_eq!(all_saved(&sandbox), ["half"]);
        if drop {
            sandbox.run(["queue", "drop", &message]);
            assert_eq!(all_saved(&sandbox), Vec::<String>::new());
        } else {
            sandbox.run(["queue", "requeue", &message]);
            goes_on(&sandbox, 1);
        }
    }
}

/// A clone may lack it. The turn begins anew then, and knows.
#[test]
fn a_checkpoint_that_is_not_there_holds_nobody_up() {
    let sandbox = with_message();
    turn(&sandbox, &format!("{SAVES}; $D yield >/dev/null"));
    let run = record(&sandbox, "state.json")["held"]["checkpoint"]["run_id"].as_str().unwrap().to_owned();
    fs::remove_file(checkpoints_of(&sandbox, &run).remove(0)).unwrap();
    sandbox.run(["resume", "ada"]);
    turns(&sandbox, r#"told; cp "$DORMOUSE_CONTEXT" "$HOME/context"; exit 1"#);
    sandbox
        .cmd(["tick", "ada", "--json"])
        .assert()
        .stderr(contains("is missing: the turn starts from the beginning"));
    assert_eq!(take_noted(&sandbox), ["from nothing"]);
    let context = json_in(sandbox.home().join("context"));
    assert_eq!(context["run"]["checkpoint_lost"], json!(true));
    assert_eq!(events(&sandbox, "checkpoint_lost").len(), 1);
    // It is said once, not with every attempt.
    sandbox.run(["recover", "ada"]);
    assert_eq!(turn(&sandbox, "told")["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["from nothing"]);
}

#[test]
fn only_a_turn_that_is_current_saves_one() {
    let sandbox = with_message();
    refused(&sandbox.cmd(["--json", "checkpoint", "-"]).stdin("x").output(), "not_in_turn");
    let tick = running(&sandbox, "up; come go");
    let run = current_run(&sandbox);
    go(&sandbox, "go");
    ended(tick);
    let inside = |cmd: crate::harness::Cmd<'_>| {
        cmd.env("DORMOUSE_AGENT", "ada").env("DORMOUSE_RUN", &run).stdin("x").output()
    };
    refused(&inside(sandbox.cmd(["--json", "checkpoint", "-"])), "run_not_current");
    assert_eq!(all_saved(&sandbox), Vec::<String>::new());
}

/// Each is whole, and the last one that was committed stands.
#[test]
fn of_many_at_once_one_stands() {
    let sandbox = with_message();
    turn(
        &sandbox,
        r#"for n in 1 2 3 4 5 6; do { seq 1 5000; echo "end $n"; } | $D checkpoint - & done; wait; exit 1"#,
    );
    let saved = all_saved(&sandbox);
    assert_eq!(saved.len(), 1);
    assert!(saved[0].lines().count() == 5001 && saved[0].contains("end "), "{}", saved[0].len());
}

/// What an earlier version has recorded of a run that is held.
#[test]
fn a_run_that_is_held_from_before_goes_on() {
    let sandbox = super::suspended("half");
    edit_state(&sandbox, |state| {
        assert!(state["held"]["checkpoint"]["run_id"].is_string());
        state["held"].as_object_mut().unwrap().remove("given");
    });
    sandbox.run(["resume", "ada"]);
    let tick = Beside::start({
        turns(&sandbox, "told; exit 1");
        sandbox.cmd(["tick", "ada", "--json"])
    });
    assert_eq!(ended(tick)["terminal"], "failed");
    assert_eq!(take_noted(&sandbox), ["from half"]);
    sandbox.run(["recover", "ada"]);
    goes_on(&sandbox, 2);
}

#[test]
fn an_empty_checkpoint_replaces_none_unless_that_is_meant() {
    let sandbox = with_message();
    let step = turn(
        &sandbox,
        r#"saved() { note "$? $(cat "$DORMOUSE_DIR/agents/ada/runs/$DORMOUSE_RUN"/checkpoint-*)"; }
        echo good | $D checkpoint -; saved
        false | $D checkpoint - 2> "$HOME/said"; saved
        : > "$HOME/nothing"; $D checkpoint "$HOME/nothing" 2>/dev/null; saved
        false | $D yield --checkpoint - 2>/dev/null; saved
        $D checkpoint "$HOME/nothing" --allow-empty; saved"#,
    );
    assert_eq!(take_noted(&sandbox), ["0 good", "4 good", "4 good", "4 good", "0 "]);
    assert_eq!(step["terminal"], "completed", "the run has not yielded");
    let said = fs::read_to_string(sandbox.home().join("said")).unwrap();
    assert!(said.contains("stdin is empty: no checkpoint was saved"), "{said}");
    assert!(said.contains("--allow-empty"), "{said}");
}
