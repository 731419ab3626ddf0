//! Tests `safe-point` with `--wait`, with `--peek`, and with a command that runs until there is
//! something to do.

use serde_json::json;

use crate::setup::{say, wait_for, wait_for_line};

use super::{
    ASK, agent, answers, continues_from, current_run, ended, go, running, take_noted, text_of, turn,
    with_message,
};

#[test]
fn peek_leaves_interjections_queued() {
    let sandbox = with_message();
    let script = r#"outside enqueue ada "mind the gap" --priority interject >/dev/null
        for n in 1 2; do $D safe-point --peek --json > "$HOME/peek"; note "$?"; done
        $D safe-point --json > "$HOME/taken"
        $D safe-point --json > "$HOME/after""#;
    turn(&sandbox, script);
    assert_eq!(take_noted(&sandbox), ["0", "0"]);
    let said = |name: &str| answers(&sandbox, name)[0]["interjections"].as_array().unwrap().clone();
    for (name, status) in [("peek", "queued"), ("taken", "interjected")] {
        let said = said(name);
        assert_eq!((said.len(), &said[0]["status"]), (1, &json!(status)), "{name}");
        assert_eq!(said[0]["body"]["text"], "mind the gap");
    }
    assert_eq!(said("after").len(), 0);
}

/// If no process can have read the output of `safe-point`, the operator's message stays queued.
#[test]
fn interjections_are_not_lost_with_unread_output() {
    let sandbox = with_message();
    let script = r#"outside enqueue ada "mind the gap" --priority interject >/dev/null
        $D safe-point > /dev/null 2> "$HOME/told"; note "null: $?"
        $D safe-point --json > /dev/null 2>/dev/null; note "json: $?"
        $D safe-point >&- 2>/dev/null; note "closed: $?"
        $D safe-point > /dev/full 2>/dev/null; note "full: $?"
        mkfifo "$HOME/pipe"; exec 4<> "$HOME/pipe" 5> "$HOME/pipe" 4<&-
        $D safe-point >&5 2>/dev/null; note "nobody reads: $?"
        $D safe-point > "$HOME/said"; note "read: $?""#;
    turn(&sandbox, script);
    let expected = ["null: 0", "json: 0", "closed: 0", "full: 1", "nobody reads: 0", "read: 0"];
    assert_eq!(take_noted(&sandbox), expected);
    let told = text_of(&sandbox, "told");
    assert!(told.contains("1 of the operator's messages stay"), "{told}");
    let said = answers(&sandbox, "said");
    assert_eq!(said.len(), 1);
    assert_eq!(said[0]["body"]["text"], "mind the gap");
}

#[test]
fn a_waiting_safe_point_ends_with_an_interjection_a_request_or_its_timeout() {
    let sandbox = with_message();
    let script = r#"up; $D safe-point --wait 10m > "$HOME/words"; note "words: $?"
        $D safe-point --wait 20ms; note "nothing: $?"
        : > "$HOME/again"; $D safe-point --wait 10m; note "asked: $?""#;
    let tick = running(&sandbox, script);
    sandbox.run(["enqueue", "ada", "mind the gap", "--priority", "interject"]);
    wait_for_line(&sandbox.home().join("words"));
    wait_for(&sandbox.home().join("again"));
    sandbox.run(["preempt", "ada", "--reason", "urgent", "--grace", "1d"]);
    assert_eq!(ended(tick)["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["words: 0", "nothing: 0", "asked: 10"]);
}

/// A message of another priority does not end `safe-point --wait`. A request to yield during a
/// critical section ends the wait when the deadline of the section has passed.
#[test]
fn a_safe_point_waits_for_the_end_of_a_section() {
    let sandbox = agent().with_real_clock();
    say(&sandbox, "hello");
    let script = format!(
        r#"outside enqueue ada "in its turn" >/dev/null
        {ASK}
        $D non-preemptible begin --deadline 300ms
        $D safe-point --wait 10m; note $?"#
    );
    turn(&sandbox, &script);
    assert_eq!(take_noted(&sandbox), ["10"]);
}

#[test]
fn a_command_of_a_safe_point_has_its_own_streams_and_status() {
    let sandbox = with_message();
    let script = r#"beside() { $D safe-point -- "$@" 2>> "$HOME/said"; note $?; }
        beside true
        beside sh -c 'exit 3'
        beside sh -c 'kill -KILL $$; sleep 600'
        beside nonesuch-program
        printf 'in' | $D safe-point -- sh -c 'cat; echo err >&2' > "$HOME/out" 2> "$HOME/err"
        $D safe-point --signal WINCH -- touch "$HOME/ran" 2>/dev/null; note "wrong: $?""#;
    turn(&sandbox, script);
    assert_eq!(take_noted(&sandbox), ["0", "3", "137", "127", "wrong: 2"]);
    assert_eq!(text_of(&sandbox, "said"), "dormouse: nonesuch-program: no such file or directory\n");
    assert_eq!((text_of(&sandbox, "out"), text_of(&sandbox, "err")), ("in".into(), "err\n".into()));
    assert!(!sandbox.home().join("ran").exists());
}

#[test]
fn a_command_of_a_safe_point_is_ended_when_the_turn_is_to_yield() {
    let sandbox = with_message();
    let script = r#"$D safe-point -- sh -c 'trap "echo asked >> $HOME/noted; exit 0" TERM; : > "$HOME/up"; while :; do sleep 0.01; done'; note "polite: $?"
        $D safe-point -- touch "$HOME/ran"; note "not begun: $?""#;
    let tick = running(&sandbox, script);
    sandbox.run(["preempt", "ada", "--reason", "urgent", "--grace", "1d"]);
    assert_eq!(ended(tick)["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["asked", "polite: 10", "not begun: 10"]);
    assert!(!sandbox.home().join("ran").exists());
}

#[test]
fn a_command_that_ignores_its_signal_is_killed_after_its_grace() {
    let sandbox = with_message();
    let script = r#"$D safe-point --signal INT --grace 100ms -- sh -c 'trap "echo heard >> $HOME/noted" INT; trap "" TERM; : > "$HOME/up"; while :; do sleep 0.01; done'; note "deaf: $?""#;
    let tick = running(&sandbox, script);
    sandbox.run(["preempt", "ada", "--reason", "urgent", "--grace", "1d"]);
    assert_eq!(ended(tick)["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["heard", "deaf: 10"]);
}

/// `safe-point` reads from the records that the run is being stopped, and ends its command. The
/// shell of the turn waits for `safe-point`, and handles its own signal only after that.
#[test]
fn a_stop_ends_the_command_and_the_turn_can_save() {
    let sandbox = with_message();
    let script = r#"trap : TERM
        $D safe-point -- sh -c ': > "$HOME/up"; exec sleep 600'; note "stopped: $?"
        printf half | $D yield --checkpoint - > "$HOME/said"; note "saved: $?"; exit 0"#;
    let tick = running(&sandbox, script);
    let run = current_run(&sandbox);
    let stopped = sandbox.json(["stop", "ada", "--requeue"]);
    // The turn has yielded, so the stop aborts the run although the turn exits with 0.
    assert_eq!(stopped["aborted_run_id"], json!(run));
    assert_eq!(ended(tick)["terminal"], "aborted");
    assert_eq!(take_noted(&sandbox), ["stopped: 10", "saved: 0"]);
    let said = text_of(&sandbox, "said");
    assert!(said.contains("is aborted when this turn exits"), "{said}");
    sandbox.run(["start", "ada"]);
    continues_from(&sandbox, "half", 1);
}

/// An interjection ends the command that `safe-point` runs, and stays queued. The next `safe-point`
/// without a command prints the interjection, and also tells if the turn must yield.
#[test]
fn an_interjection_ends_the_command_of_a_safe_point_and_stays_queued() {
    let sandbox = with_message();
    let script = r#"up; $D safe-point -v -- sleep 1000 2> "$HOME/why"; note "ended: $?"
        $D safe-point -- touch "$HOME/begun"; note "not begun: $?"
        $D safe-point > "$HOME/said"; note "heard: $?"
        $D safe-point -- true; note "goes on: $?"
        $D non-preemptible --deadline 10m -- sh -c 'echo > "$HOME/in"; until test -e "$HOME/out"; do sleep 0.01; done
            "$1" safe-point -- true; echo "$?" > "$HOME/section"' sh "$D""#;
    let tick = running(&sandbox, script);
    sandbox.run(["enqueue", "ada", "mind the gap", "--priority", "interject"]);
    wait_for(&sandbox.home().join("in"));
    sandbox.run(["enqueue", "ada", "and the step", "--priority", "interject"]);
    go(&sandbox, "out");
    assert_eq!(ended(tick)["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["ended: 10", "not begun: 10", "heard: 0", "goes on: 0"]);
    assert_eq!(text_of(&sandbox, "section"), "0\n");
    assert!(!sandbox.home().join("begun").exists());
    let why = text_of(&sandbox, "why");
    assert!(why.contains("the operator has something to say"), "{why}");
    assert_eq!(answers(&sandbox, "said")[0]["body"]["text"], "mind the gap");
}
