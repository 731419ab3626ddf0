//! Safe points that wait, that only look, and that run a command meanwhile.

use std::fs;

use serde_json::json;

use crate::setup::{objects, say, wait_for, wait_for_line};

use super::{agent, current_run, ended, running, take_noted, turn, with_message};

const ASK: &str = "outside preempt ada --reason urgent --grace 1d >/dev/null";

#[test]
fn what_is_only_looked_at_stays() {
    let sandbox = with_message();
    turn(
        &sandbox,
        r#"outside enqueue ada "mind the gap" --priority interject >/dev/null
        for n in 1 2; do $D safe-point --peek --json > "$HOME/peek"; note "$?"; done
        $D safe-point --json > "$HOME/taken"
        $D safe-point --json > "$HOME/after""#,
    );
    assert_eq!(take_noted(&sandbox), ["0", "0"]);
    let said = |name: &str| {
        let answer = objects(&fs::read_to_string(sandbox.home().join(name)).unwrap()).remove(0);
        answer["interjections"].as_array().unwrap().clone()
    };
    for (name, status) in [("peek", "queued"), ("taken", "interjected")] {
        let said = said(name);
        assert_eq!((said.len(), &said[0]["status"]), (1, &json!(status)), "{name}");
        assert_eq!(said[0]["body"]["text"], "mind the gap");
    }
    assert_eq!(said("after").len(), 0);
}

/// Words that nobody can have read are not handed over.
#[test]
fn nobody_swallows_what_the_operator_says() {
    let sandbox = with_message();
    turn(
        &sandbox,
        r#"outside enqueue ada "mind the gap" --priority interject >/dev/null
        $D safe-point > /dev/null 2> "$HOME/told"; note "null: $?"
        $D safe-point --json > /dev/null 2>/dev/null; note "json: $?"
        $D safe-point >&- 2>/dev/null; note "closed: $?"
        $D safe-point > /dev/full 2>/dev/null; note "full: $?"
        mkfifo "$HOME/pipe"; exec 4<> "$HOME/pipe" 5> "$HOME/pipe" 4<&-
        $D safe-point >&5 2>/dev/null; note "nobody reads: $?"
        $D safe-point > "$HOME/said"; note "read: $?""#,
    );
    assert_eq!(
        take_noted(&sandbox),
        ["null: 0", "json: 0", "closed: 0", "full: 1", "nobody reads: 0", "read: 0"]
    );
    let told = fs::read_to_string(sandbox.home().join("told")).unwrap();
    assert!(told.contains("1 of the operator's messages stay"), "{told}");
    let said = objects(&fs::read_to_string(sandbox.home().join("said")).unwrap());
    assert_eq!(said.len(), 1);
    assert_eq!(said[0]["body"]["text"], "mind the gap");
}

#[test]
fn a_safe_point_that_waits_ends_with_what_there_is_to_say() {
    let sandbox = with_message();
    let tick = running(
        &sandbox,
        r#"up; $D safe-point --wait 10m > "$HOME/words"; note "words: $?"
        $D safe-point --wait 20ms; note "nothing: $?"
        : > "$HOME/again"; $D safe-point --wait 10m; note "asked: $?""#,
    );
    sandbox.run(["enqueue", "ada", "mind the gap", "--priority", "interject"]);
    wait_for_line(&sandbox.home().join("words"));
    wait_for(&sandbox.home().join("again"));
    sandbox.run(["preempt", "ada", "--reason", "urgent", "--grace", "1d"]);
    assert_eq!(ended(tick)["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["words: 0", "nothing: 0", "asked: 10"]);
}

/// What does not end a turn by itself is not waited for: a message that has expired, or one of another
/// priority. What is pending in a section is told when that has had its time.
#[test]
fn a_safe_point_waits_for_the_end_of_a_section() {
    let sandbox = agent().with_real_clock();
    say(&sandbox, "hello");
    turn(
        &sandbox,
        &format!(
            r#"outside enqueue ada "in its turn" >/dev/null
        {ASK}
        $D non-preemptible begin --deadline 300ms
        $D safe-point --wait 10m; note $?"#
        ),
    );
    assert_eq!(take_noted(&sandbox), ["10"]);
}

#[test]
fn a_command_beside_has_its_own_streams_and_status() {
    let sandbox = with_message();
    turn(
        &sandbox,
        r#"beside() { $D safe-point -- "$@" 2>> "$HOME/said"; note $?; }
        beside true
        beside sh -c 'exit 3'
        beside sh -c 'kill -KILL $$; sleep 600'
        beside nonesuch-program
        printf 'in' | $D safe-point -- sh -c 'cat; echo err >&2' > "$HOME/out" 2> "$HOME/err"
        $D safe-point --signal WINCH -- touch "$HOME/ran" 2>/dev/null; note "wrong: $?""#,
    );
    assert_eq!(take_noted(&sandbox), ["0", "3", "137", "127", "wrong: 2"]);
    let file = |name: &str| fs::read_to_string(sandbox.home().join(name)).unwrap();
    assert_eq!(file("said"), "dormouse: nonesuch-program: no such file or directory\n");
    assert_eq!((file("out"), file("err")), ("in".into(), "err\n".into()));
    assert!(!sandbox.home().join("ran").exists());
}

#[test]
fn a_command_beside_is_ended_when_the_turn_is_to_yield() {
    let sandbox = with_message();
    let tick = running(
        &sandbox,
        r#"$D safe-point -- sh -c 'trap "echo asked >> $HOME/noted; exit 0" TERM; : > "$HOME/up"; while :; do sleep 0.01; done'; note "polite: $?"
        $D safe-point -- touch "$HOME/ran"; note "not begun: $?""#,
    );
    sandbox.run(["preempt", "ada", "--reason", "urgent", "--grace", "1d"]);
    assert_eq!(ended(tick)["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["asked", "polite: 10", "not begun: 10"]);
    assert!(!sandbox.home().join("ran").exists());
}

#[test]
fn a_command_that_hears_nothing_is_killed_after_its_grace() {
    let sandbox = with_message();
    let tick = running(
        &sandbox,
        r#"$D safe-point --signal INT --grace 100ms -- sh -c 'trap "echo heard >> $HOME/noted" INT; trap "" TERM; : > "$HOME/up"; while :; do sleep 0.01; done'; note "deaf: $?""#,
    );
    sandbox.run(["preempt", "ada", "--reason", "urgent", "--grace", "1d"]);
    assert_eq!(ended(tick)["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["heard", "deaf: 10"]);
}

/// The records say that the run is stopped, so a command in the foreground of a shell is ended though
/// that shell, which waits for it, hears its own signal only then.
#[test]
fn a_stop_ends_the_command_and_the_turn_can_save() {
    let sandbox = with_message();
    let tick = running(
        &sandbox,
        r#"trap : TERM
        $D safe-point -- sh -c ': > "$HOME/up"; exec sleep 600'; note "stopped: $?"
        printf half | $D yield --checkpoint - > "$HOME/said"; note "saved: $?"; exit 0"#,
    );
    let run = current_run(&sandbox);
    let stopped = sandbox.json(["stop", "ada", "--requeue"]);
    // It has given way: its work is not done, whatever its exit status.
    assert_eq!(stopped["aborted_run_id"], json!(run));
    assert_eq!(ended(tick)["terminal"], "aborted");
    assert_eq!(take_noted(&sandbox), ["stopped: 10", "saved: 0"]);
    let said = fs::read_to_string(sandbox.home().join("said")).unwrap();
    assert!(said.contains("is aborted when this turn exits"), "{said}");
    sandbox.run(["start", "ada"]);
    turn(&sandbox, "told");
    assert_eq!(take_noted(&sandbox), ["from half"]);
}

/// A command that knows nothing of the operator is ended for what the operator says; the words stay for the
/// safe point that hands them over, and it is that one which says whether to yield as well.
#[test]
fn what_the_operator_says_ends_a_command_beside_and_stays_to_be_heard() {
    let sandbox = with_message();
    let tick = running(
        &sandbox,
        r#"up; $D safe-point -v -- sleep 1000 2> "$HOME/why"; note "ended: $?"
        $D safe-point -- touch "$HOME/begun"; note "not begun: $?"
        $D safe-point > "$HOME/said"; note "heard: $?"
        $D safe-point -- true; note "goes on: $?"
        $D non-preemptible --deadline 10m -- sh -c 'echo > "$HOME/in"; until test -e "$HOME/out"; do sleep 0.01; done
            "$1" safe-point -- true; echo "$?" > "$HOME/section"' sh "$D""#,
    );
    sandbox.run(["enqueue", "ada", "mind the gap", "--priority", "interject"]);
    wait_for(&sandbox.home().join("in"));
    sandbox.run(["enqueue", "ada", "and the step", "--priority", "interject"]);
    fs::write(sandbox.home().join("out"), "").unwrap();
    assert_eq!(ended(tick)["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["ended: 10", "not begun: 10", "heard: 0", "goes on: 0"]);
    assert_eq!(fs::read_to_string(sandbox.home().join("section")).unwrap(), "0\n");
    assert!(!sandbox.home().join("begun").exists());
    let why = fs::read_to_string(sandbox.home().join("why")).unwrap();
    assert!(why.contains("the operator has something to say"), "{why}");
    let said = objects(&fs::read_to_string(sandbox.home().join("said")).unwrap());
    assert_eq!(said[0]["body"]["text"], "mind the gap");
}
