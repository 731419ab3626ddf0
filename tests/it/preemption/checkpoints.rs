//! Tests that a checkpoint belongs to the message: whatever ends a run, the next run gets the
//! checkpoint.

use std::fs;

use serde_json::json;

use crate::setup::{edit_state, eventually, extend_policy, field, json_in, record, say, step};

use super::{
    agent, all_checkpoints, answers, checkpoints_of, continues_from, ended, events, running, set_timeout,
    signal, step_at, take_noted, text_of, turn, turns, with_message,
};

const SAVES: &str = "printf half | $D checkpoint -";

#[test]
fn the_latest_checkpoint_replaces_the_others_and_the_turn_continues() {
    let sandbox = with_message();
    let script = r#"printf one | $D checkpoint - ; printf two > "$HOME/two"; $D checkpoint "$HOME/two"
        $D safe-point; note $?
        printf half | $D --json checkpoint - > "$HOME/answer"; exit 3"#;
    let stepped = turn(&sandbox, script);
    assert_eq!((&stepped["terminal"], take_noted(&sandbox)), (&json!("failed"), vec!["0".to_owned()]));
    let answer = answers(&sandbox, "answer").remove(0);
    assert_eq!((&answer["agent"], &answer["bytes"]), (&json!("ada"), &json!(4)));
    assert_eq!(fs::read_to_string(answer["checkpoint"].as_str().unwrap()).unwrap(), "half");
    assert_eq!(all_checkpoints(&sandbox), ["half"], "the older checkpoints are deleted");
    assert_eq!(events(&sandbox, "checkpoint_saved").len(), 3);
    sandbox.run(["recover", "ada"]);
    continues_from(&sandbox, "half", 2);
}

/// A turn can read the checkpoint that it was given as long as it runs, even if it saves another.
#[test]
fn a_given_checkpoint_is_kept_until_its_turn_ends() {
    let sandbox = with_message();
    turn(&sandbox, "printf first | $D checkpoint -; exit 1");
    sandbox.run(["recover", "ada"]);
    turn(&sandbox, &format!("{SAVES}; told; exit 1"));
    assert_eq!(take_noted(&sandbox), ["from first"]);
    assert_eq!(all_checkpoints(&sandbox), ["half"]);
    sandbox.run(["recover", "ada"]);
    continues_from(&sandbox, "half", 3);
}

#[test]
fn a_turn_whose_timeout_is_over_can_save_a_checkpoint() {
    let sandbox = agent();
    set_timeout(&sandbox, "1s");
    say(&sandbox, "hello");
    let stepped = turn(&sandbox, &format!("trap '{SAVES}; exit 0' TERM; while :; do sleep 0.01; done"));
    assert_eq!(stepped["terminal"], "timed_out");
    sandbox.run(["recover", "ada"]);
    continues_from(&sandbox, "half", 2);
}

#[test]
fn a_turn_that_is_forced_or_failed_can_save_a_checkpoint() {
    let forced = ["preempt", "ada", "--reason", "r", "--grace", "0s"];
    for (args, attempt) in [(&forced[..], 1), (&["fail", "ada", "--reason", "r"], 2)] {
        let sandbox = agent().with_real_clock();
        say(&sandbox, "hello");
        let tick = running(&sandbox, &format!("trap '{SAVES}; exit 0' TERM; up; come never"));
        sandbox.run(args.iter().copied());
        assert_eq!(ended(tick)["terminal"], "failed");
        sandbox.run(["recover", "ada"]);
        continues_from(&sandbox, "half", attempt);
    }
}

#[test]
fn a_checkpoint_survives_a_killed_tick() {
    let sandbox = with_message();
    let mut tick = running(&sandbox, &format!("{SAVES}; up; come never"));
    signal("KILL", tick.0.id());
    tick.0.wait().unwrap();
    eventually("the end of the turn", || step(&sandbox)["recovered_run_id"].is_string().then_some(()));
    sandbox.run(["recover", "ada"]);
    continues_from(&sandbox, "half", 1);
}

#[test]
fn a_checkpoint_survives_the_suspend_timeout() {
    let sandbox = with_message();
    turn(&sandbox, &format!("{SAVES}; $D yield >/dev/null"));
    assert_eq!(step_at(&sandbox, "2026-01-02T09:00:00Z")["reason"], "recovery_backoff");
    assert_eq!(field(&sandbox, "execution.reason"), "suspend_timeout");
    sandbox.run(["recover", "ada"]);
    continues_from(&sandbox, "half", 1);
}

#[test]
fn a_checkpoint_survives_a_deferral() {
    let sandbox = with_message();
    turn(&sandbox, &format!("{SAVES}; exit 75"));
    sandbox.pass(60);
    continues_from(&sandbox, "half", 1);
}

#[test]
fn a_turn_that_is_stopped_can_save_a_checkpoint_for_its_message() {
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
        // The turn has exited in time after its signal, so its end is a shutdown and no failure.
        assert_eq!(field(&sandbox, "execution.state"), "completed");
        continues_from(&sandbox, "half", 1);
    }
}

#[test]
fn a_dead_letter_keeps_its_checkpoint_until_it_is_dropped() {
    let sandbox = agent();
    extend_policy(&sandbox, "ada", "[recovery]\nmax_attempts = 1");
    for drop in [false, true] {
        let message = say(&sandbox, "hello");
        turn(&sandbox, &format!("{SAVES}; exit 1"));
        sandbox.run(["recover", "ada"]);
        assert_eq!(all_checkpoints(&sandbox), ["half"]);
        if drop {
            sandbox.run(["queue", "drop", &message]);
            assert_eq!(all_checkpoints(&sandbox), Vec::<String>::new());
        } else {
            sandbox.run(["queue", "requeue", &message]);
            continues_from(&sandbox, "half", 1);
        }
    }
}

/// A clone of the state directory may lack the file of a checkpoint. The next turn then starts from
/// the beginning, and its context says so.
#[test]
fn a_turn_runs_even_if_its_checkpoint_is_missing() {
    let sandbox = with_message();
    turn(&sandbox, &format!("{SAVES}; $D yield >/dev/null"));
    let run = record(&sandbox, "state.json")["held"]["checkpoint"]["run_id"].as_str().unwrap().to_owned();
    fs::remove_file(checkpoints_of(&sandbox, &run).remove(0)).unwrap();
    sandbox.run(["resume", "ada"]);
    turns(&sandbox, r#"told; cp "$DORMOUSE_CONTEXT" "$HOME/context"; exit 1"#);
    sandbox.cmd(["tick", "ada", "--json"]).output().warns("is missing: the turn starts from the beginning");
    assert_eq!(take_noted(&sandbox), ["from nothing"]);
    let context = json_in(sandbox.home().join("context"));
    assert_eq!(context["run"]["checkpoint_lost"], json!(true));
    assert_eq!(events(&sandbox, "checkpoint_lost").len(), 1);
    // Only the first attempt after the loss of the checkpoint file warns.
    sandbox.run(["recover", "ada"]);
    assert_eq!(turn(&sandbox, "told")["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["from nothing"]);
}

#[test]
fn of_concurrent_checkpoints_the_last_committed_is_kept_whole() {
    let sandbox = with_message();
    let script =
        r#"for n in 1 2 3 4 5 6; do { seq 1 5000; echo "end $n"; } | $D checkpoint - & done; wait; exit 1"#;
    turn(&sandbox, script);
    let saved = all_checkpoints(&sandbox);
    assert_eq!(saved.len(), 1);
    assert!(saved[0].lines().count() == 5001 && saved[0].contains("end "), "{}", saved[0].len());
}

/// Earlier versions recorded a held run without the field `given`.
#[test]
fn the_attempt_after_a_failed_one_gets_its_checkpoint_also_that_of_an_earlier_version() {
    for is_of_earlier_version in [false, true] {
        let sandbox = super::suspended("half");
        edit_state(&sandbox, |state| {
            assert!(state["held"]["checkpoint"]["run_id"].is_string());
            if is_of_earlier_version {
                state["held"].as_object_mut().unwrap().remove("given");
            }
        });
        sandbox.run(["resume", "ada"]);
        assert_eq!(turn(&sandbox, "told; exit 1")["terminal"], "failed");
        assert_eq!(take_noted(&sandbox), ["from half"], "of an earlier version: {is_of_earlier_version}");
        sandbox.run(["recover", "ada"]);
        continues_from(&sandbox, "half", 2);
    }
}

#[test]
fn an_empty_checkpoint_is_refused_and_replaces_no_other() {
    let sandbox = with_message();
    let script = r#"saved() { note "$? $(cat "$DORMOUSE_DIR/agents/ada/runs/$DORMOUSE_RUN"/checkpoint-*)"; }
        echo good | $D checkpoint -; saved
        false | $D checkpoint - 2> "$HOME/said"; saved
        : > "$HOME/nothing"; $D checkpoint "$HOME/nothing" 2>/dev/null; saved
        false | $D yield --checkpoint - 2>/dev/null; saved"#;
    let step = turn(&sandbox, script);
    assert_eq!(take_noted(&sandbox), ["0 good", "4 good", "4 good", "4 good"]);
    assert_eq!(step["terminal"], "completed", "the run has not yielded");
    let said = text_of(&sandbox, "said");
    assert!(said.contains("stdin is empty: no checkpoint was saved"), "{said}");
    assert!(said.contains("hint: a checkpoint has at least one byte"), "{said}");
}
