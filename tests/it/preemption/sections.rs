//! Tests critical sections: a turn is not preempted inside of one until its deadline has passed.

use std::fs;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{lives, record, wait_for};

use super::{ASK, answers, ended, go, running, signal, take_noted, text_of, turn, with_message};

/// Returns the open critical sections of the current run.
fn open(sandbox: &Sandbox) -> Vec<Value> {
    record(sandbox, "state.json")["current_run"]["sections"].as_array().cloned().unwrap_or_default()
}

#[test]
fn non_preemptible_exits_with_the_status_of_its_command() {
    let sandbox = with_message();
    fs::write(sandbox.project().join("plain"), "no program").unwrap();
    let script = r#"within() { $D non-preemptible --deadline 5m -- "$@" 2>> "$HOME/said"; note $?; }
        within true
        within sh -c 'exit 3'
        within sh -c 'exit 255'
        within sh -c 'kill -TERM $$; sleep 600'
        within sh -c 'kill -KILL $$; sleep 600'
        within nonesuch-program
        within ./plain
        within ./missing
        grep -c sections "$DORMOUSE_DIR/agents/ada/state.json""#;
    turn(&sandbox, script);
    assert_eq!(take_noted(&sandbox), ["0", "3", "255", "143", "137", "127", "126", "127"]);
    let expected = "dormouse: nonesuch-program: no such file or directory\n\
                    dormouse: ./plain: permission denied\n\
                    dormouse: ./missing: no such file or directory\n";
    assert_eq!(text_of(&sandbox, "said"), expected);
}

#[test]
fn a_command_keeps_its_status_even_if_its_section_can_not_be_closed() {
    let sandbox = with_message();
    let script = r#"state=$DORMOUSE_DIR/agents/ada/state.json
        $D non-preemptible --deadline 5m -- mv "$state" "$HOME/state"; note $?
        mv "$HOME/state" "$state"
        $D non-preemptible end; note $?"#;
    let step = turn(&sandbox, script);
    assert_eq!(step["terminal"], "completed", "{step}");
    assert_eq!(take_noted(&sandbox), ["0", "4"], "the section has ended with its process");
}

#[test]
fn a_command_in_a_section_has_the_streams_of_its_caller() {
    let sandbox = with_message();
    let script = r#"printf 'in\0\377' | $D non-preemptible --deadline 5m -- sh -c 'cat; echo err >&2; echo "$#"' a b 'c d' > "$HOME/out" 2> "$HOME/err"
        # The wrapper does not read ahead: `cat` gets the second line.
        printf 'one\ntwo\n' | { $D non-preemptible --deadline 5m -- head -c 4 >/dev/null; cat > "$HOME/rest"; }
        # The command has the environment of the turn.
        $D non-preemptible --deadline 5m -- sh -c 'echo "$DORMOUSE_RUN"' > "$HOME/run"; note "$DORMOUSE_RUN""#;
    turn(&sandbox, script);
    let file = |name: &str| fs::read(sandbox.home().join(name)).unwrap();
    assert_eq!(
        (file("out"), file("err"), file("rest")),
        (b"in\0\xff2\n".into(), b"err\n".into(), b"two\n".into())
    );
    assert_eq!(String::from_utf8(file("run")).unwrap().trim(), take_noted(&sandbox)[0]);
}

/// Only a `safe-point` after the outermost critical section tells the turn to yield.
#[test]
fn a_request_takes_effect_after_the_outermost_section() {
    let sandbox = with_message();
    let script = format!(
        r#"look() {{ $D safe-point; note "$1: $?"; }}
        $D non-preemptible begin --deadline 10m
        {ASK}
        look outer
        $D non-preemptible --deadline 5m -- sh -c '$0 safe-point; echo "command: $?" >> "$HOME/noted"' $D
        look outer
        $D non-preemptible begin --deadline 1m
        look inner
        $D non-preemptible end
        look outer
        $D safe-point --json > "$HOME/answer"
        $D non-preemptible end
        look outside"#
    );
    let stepped = turn(&sandbox, &script);
    assert_eq!(stepped["terminal"], "completed");
    let expected = ["outer: 0", "command: 0", "outer: 0", "inner: 0", "outer: 0", "outside: 10"];
    assert_eq!(take_noted(&sandbox), expected);
    let answer = answers(&sandbox, "answer").remove(0);
    assert_eq!((&answer["yield"], &answer["reason"]), (&json!(false), &Value::Null));
}

#[test]
fn interjections_are_handed_over_inside_a_section() {
    let sandbox = with_message();
    let script = r#"$D non-preemptible begin --deadline 10m
        outside enqueue ada "look" --priority interject >/dev/null
        $D safe-point | grep -c look >> "$HOME/noted""#;
    turn(&sandbox, script);
    assert_eq!(take_noted(&sandbox), ["1"]);
}

#[test]
fn a_section_protects_until_its_deadline_and_not_beyond() {
    let sandbox = with_message();
    let script = format!(
        r#"at() {{ DORMOUSE_NOW=2026-01-02T04:00:$1Z; export DORMOUSE_NOW; }}
        at 00; {ASK}
        $D non-preemptible begin --deadline 5s
        at 05; $D safe-point; note $?
        at 05.001; $D safe-point; note $?
        # A later section does not extend the protection.
        $D non-preemptible begin --deadline 1s
        $D safe-point; note $?
        at 10; $D safe-point; note $?
        $D non-preemptible end; note $?
        $D non-preemptible end; note $?"#
    );
    let stepped = turn(&sandbox, &script);
    assert_eq!(stepped["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["0", "10", "10", "10", "0", "0"]);
}

#[test]
fn ending_a_section_without_an_open_one_is_refused() {
    let sandbox = with_message();
    let script = r#"$D --json non-preemptible end > "$HOME/answer"; note $?
        $D non-preemptible begin --deadline 5m; $D non-preemptible end; note $?
        $D -q non-preemptible end 2>/dev/null; note $?"#;
    turn(&sandbox, script);
    assert_eq!(take_noted(&sandbox), ["4", "0", "4"]);
    let answer = answers(&sandbox, "answer").remove(0);
    assert_eq!(answer["error"]["kind"], "no_section");
    assert!(answer["error"]["hint"].as_str().unwrap().contains("begin"));
}

/// Each command closes its own critical section, in whatever order the commands end.
#[test]
fn two_concurrent_commands_have_a_section_each() {
    let sandbox = with_message();
    let script = format!(
        r#"for name in one two; do
            $D non-preemptible --deadline 1h -- sh -c ': > "$HOME/$0 begun"; until test -e "$HOME/$0"; do sleep 0.01; done' $name &
            eval "$name=$!"; come "$name begun"
        done
        {ASK}; up
        wait $one; $D safe-point; note "one left: $?"; : > "$HOME/looked"
        wait $two; $D safe-point; note "none left: $?""#
    );
    let tick = running(&sandbox, &script);
    let numbers =
        || -> Vec<Value> { open(&sandbox).iter().map(|section| section["number"].clone()).collect() };
    assert_eq!(numbers(), [1, 2]);
    go(&sandbox, "one");
    wait_for(&sandbox.home().join("looked"));
    assert_eq!(numbers(), [2], "the outer section has ended first");
    go(&sandbox, "two");
    assert_eq!(ended(tick)["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["one left: 0", "none left: 10"]);
}

/// `non-preemptible` passes SIGTERM to its command, and then closes the critical section.
#[test]
fn a_signal_is_passed_on_to_the_command() {
    let sandbox = with_message();
    let script = format!(
        r#"{ASK}
        $D non-preemptible --deadline 1h -- sh -c 'trap "exit 9" TERM; : > "$HOME/begun"; while :; do sleep 0.01; done' & come begun
        $D safe-point; note "inside: $?"
        kill -TERM $!; wait $!; note "ended: $?"
        $D safe-point; note "after: $?""#
    );
    turn(&sandbox, &script);
    assert_eq!(take_noted(&sandbox), ["inside: 0", "ended: 9", "after: 10"]);
}

#[test]
fn a_turn_past_its_grace_can_begin_no_section() {
    let sandbox = with_message();
    let script = r#"at() { DORMOUSE_NOW=2026-01-02T04:00:$1Z; export DORMOUSE_NOW; }
        # The clock of the tick shows an earlier time, so the tick does not end this turn by force.
        at 00; outside preempt ada --reason urgent --grace 2s >/dev/null
        at 02; $D non-preemptible --deadline 5s -- sh -c 'exit 3'; note $?
        at 02.001
        $D --json non-preemptible --deadline 5s -- touch "$HOME/ran" >> "$HOME/answers"; note $?
        $D --json non-preemptible begin --deadline 5s >> "$HOME/answers"; note $?
        $D yield >/dev/null; note $?"#;
    let stepped = turn(&sandbox, script);
    assert_eq!(stepped["terminal"], "suspended");
    assert_eq!(take_noted(&sandbox), ["3", "4", "4", "0"]);
    for answer in answers(&sandbox, "answers") {
        assert_eq!(answer["error"]["kind"], "preemption_overdue");
        assert!(answer["error"]["hint"].as_str().unwrap().contains("dormouse yield"));
    }
    assert!(!sandbox.home().join("ran").exists());
}

#[test]
fn sections_end_with_their_run() {
    let sandbox = with_message();
    turn(&sandbox, "$D non-preemptible begin --deadline 1d; $D yield >/dev/null");
    sandbox.run(["resume", "ada"]);
    turn(&sandbox, &format!("$D -q non-preemptible end 2>/dev/null; note $?; {ASK}; $D safe-point; note $?"));
    assert_eq!(take_noted(&sandbox), ["4", "10"]);
}

/// A command that still runs in a critical section when its turn exits is killed with the turn.
#[test]
fn a_section_does_not_outlive_its_turn() {
    let sandbox = with_message();
    let script = r#"$D non-preemptible --deadline 1d -- sh -c 'echo $$ > "$HOME/pid.new"; mv "$HOME/pid.new" "$HOME/pid"; exec sleep 600' & come pid"#;
    let stepped = turn(&sandbox, script);
    assert_eq!(stepped["terminal"], "completed");
    assert!(!lives(text_of(&sandbox, "pid").trim()));
}

/// Shell function that waits for the end of the process whose pid is in a file, and notes the
/// result.
const GONE: &str = r#"gone() {
    for i in $(seq 1 1000); do
        state=$(sed -n 's/^State:.\(.\).*/\1/p' "/proc/$(cat "$HOME/$1")/status" 2>/dev/null)
        case $state in ""|Z|X) note "$1 is gone"; return;; esac
        sleep 0.01
    done
    note "$1 lives"
}
"#;

#[test]
fn a_section_of_a_command_ends_with_its_wrapper_and_the_command_with_it() {
    let sandbox = with_message();
    let script = format!(
        r#"{GONE}
        $D non-preemptible begin --deadline 10m
        $D non-preemptible --deadline 10m -- sh -c 'echo $$ > "$HOME/new"; mv "$HOME/new" "$HOME/cmd"; exec sleep 600' &
        wrapper=$!
        come cmd
        {ASK}
        kill -KILL $wrapper
        gone cmd
        $D non-preemptible end
        $D safe-point; note $?
        $D non-preemptible end 2> "$HOME/err"; note $?"#
    );
    turn(&sandbox, &script);
    assert_eq!(take_noted(&sandbox), ["cmd is gone", "10", "4"]);
    let said = text_of(&sandbox, "err");
    assert!(said.contains("has no such section open"), "{said}");
}

#[test]
fn a_run_is_forced_though_a_killed_wrapper_left_a_section() {
    let sandbox = with_message();
    let script = r#"$D non-preemptible --deadline 10m -- sh -c ': > "$HOME/in"; exec sleep 600' & echo $! > "$HOME/wrapper"
        come in; up; come never"#;
    let tick = running(&sandbox, script);
    sandbox.run(["preempt", "ada", "--reason", "urgent", "--grace", "100ms"]);
    assert_eq!(open(&sandbox).len(), 1);
    signal("KILL", text_of(&sandbox, "wrapper").trim());
    assert_eq!(ended(tick)["terminal_reason"], "forced_preemption");
}

#[test]
fn a_stop_does_not_wait_for_a_section_whose_wrapper_is_gone() {
    let sandbox = with_message();
    let script = r#"$D non-preemptible --deadline 10m -- sh -c ': > "$HOME/in"; exec sleep 600' & wrapper=$!
        come in; kill -KILL $wrapper; up; come never"#;
    let tick = running(&sandbox, script);
    sandbox.run(["stop", "ada", "--grace", "1s"]);
    assert_eq!(ended(tick)["terminal"], "aborted");
}

#[test]
fn a_command_at_a_safe_point_ends_with_its_wrapper() {
    let sandbox = with_message();
    let script = format!(
        r#"{GONE}
        $D safe-point --signal USR1 -- sh -c 'trap "exit 3" USR1; echo $$ > "$HOME/new"; mv "$HOME/new" "$HOME/cmd"; while :; do sleep 0.01; done' &
        wrapper=$!
        come cmd
        kill -KILL $wrapper
        gone cmd"#
    );
    turn(&sandbox, &script);
    assert_eq!(take_noted(&sandbox), ["cmd is gone"]);
}
