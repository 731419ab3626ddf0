//! Tests how a turn is ended: the order in which its processes get the signal, and which of its
//! last actions take effect.

use serde_json::{Value, json};

use crate::setup::{Beside, eventually, extend_policy, field, record, say};

use super::{agent, current_run, ended, go, running, set_timeout, signal, take_noted, turn, with_message};

/// Script of a turn with a critical section until the file `go` exists. The turn exits on SIGTERM.
const IN_A_SECTION: &str = r#"trap 'note asked; exit 1' TERM
$D non-preemptible --deadline 1h -- sh -c '$0 safe-point; echo "inside: $?" >> "$HOME/noted"; : > "$HOME/up"; until test -e "$HOME/go"; do sleep 0.01; done; $0 safe-point; echo "still: $?" >> "$HOME/noted"' $D
come never"#;

#[test]
fn a_stop_and_a_failure_wait_for_a_section() {
    for (args, terminal) in
        [(&["stop", "ada"][..], "aborted"), (&["fail", "ada", "--reason", "enough"][..], "failed")]
    {
        let sandbox = with_message();
        let tick = running(&sandbox, IN_A_SECTION);
        let ending = Beside::start(sandbox.cmd(args.iter().copied()));
        eventually("the recorded stop or failure", || {
            let run = record(&sandbox, "state.json")["current_run"].clone();
            (run["stopping"].is_object() || run["condemned"].is_string()).then_some(())
        });
        go(&sandbox, "go");
        assert_eq!(ending.end().code(), 0);
        assert_eq!(ended(tick)["terminal"], terminal);
        assert_eq!(take_noted(&sandbox), ["inside: 0", "still: 0", "asked"]);
    }
}

#[test]
fn stop_and_fail_with_now_do_not_wait_for_a_section() {
    for args in [&["stop", "ada", "--now"][..], &["fail", "ada", "--reason", "enough", "--now"]] {
        let sandbox = with_message();
        let tick = running(&sandbox, IN_A_SECTION);
        sandbox.run(args.iter().copied().chain((args[0] == "stop").then_some("--grace=100ms")));
        ended(tick);
        assert_eq!(take_noted(&sandbox)[0], "inside: 0");
        assert!(!sandbox.home().join("go").exists());
    }
}

/// A `stop` that waits for a critical section notices that another `stop` has ended the run.
#[test]
fn a_waiting_stop_ends_when_a_second_stop_has_ended_the_run() {
    let sandbox = with_message();
    let tick = running(&sandbox, IN_A_SECTION);
    let run = current_run(&sandbox);
    let patient = Beside::start(sandbox.cmd(["stop", "ada", "--json", "--grace", "100ms"]));
    eventually("the status `stopped`", || (field(&sandbox, "status") == "stopped").then_some(()));
    let hasty = sandbox.json(["stop", "ada", "--now", "--grace", "100ms"]);
    assert_eq!(hasty["aborted_run_id"], json!(run));
    patient.end().exits(0).shows(&run);
    assert_eq!(ended(tick)["terminal"], "aborted");
}

#[test]
fn the_timeout_of_a_turn_waits_for_a_section() {
    let sandbox = agent();
    set_timeout(&sandbox, "1s");
    say(&sandbox, "hello");
    let tick = running(&sandbox, IN_A_SECTION);
    eventually("the recorded timeout", || {
        record(&sandbox, "state.json")["current_run"]["told"].is_string().then_some(())
    });
    go(&sandbox, "go");
    assert_eq!(ended(tick)["terminal"], "timed_out");
    assert_eq!(take_noted(&sandbox), ["inside: 0", "still: 0", "asked"]);
}

/// A turn that begins one critical section after the other is ended after `max_section`.
#[test]
fn renewed_sections_end_after_max_section() {
    let sandbox = agent();
    set_timeout(&sandbox, "500ms");
    extend_policy(&sandbox, "ada", "\n[preemption]\nmax_section = \"700ms\"\n");
    say(&sandbox, "hello");
    let script =
        "trap 'note asked; exit 0' TERM; while :; do $D non-preemptible begin --deadline 1h; sleep 0.1; done";
    let stepped = turn(&sandbox, script);
    assert_eq!(stepped["terminal"], "timed_out");
    assert_eq!(take_noted(&sandbox), ["asked"]);
}

/// Script of a turn with a child process. Each of both records its SIGTERM in the file `noted`.
const WITH_CLIENT: &str = r#"sh -c 'trap "echo client >> $HOME/noted; exit" TERM; : > "$HOME/client"; while :; do sleep 0.01; done' & come client
trap 'note leader; sleep 0.3; note saved; exit 1' TERM
up; while :; do sleep 0.01; done"#;

#[test]
fn the_leader_gets_the_signal_first_unless_the_policy_is_group() {
    for (policy, first) in [("", ["leader", "saved", "client"]), ("signal = \"group\"", ["", "", "saved"])] {
        for end in ["stop", "fail", "timeout", "forced", "signal"] {
            let sandbox = agent().with_real_clock();
            extend_policy(&sandbox, "ada", &format!("\n[preemption]\n{policy}\n"));
            if end == "timeout" {
                set_timeout(&sandbox, "1s");
            }
            say(&sandbox, "hello");
            let tick = running(&sandbox, WITH_CLIENT);
            match end {
                "stop" => drop(sandbox.run(["stop", "ada"])),
                "fail" => drop(sandbox.run(["fail", "ada", "--reason", "enough"])),
                "forced" => drop(sandbox.run(["preempt", "ada", "--reason", "r", "--grace", "0s"])),
                "signal" => signal("TERM", tick.0.id()),
                _ => {}
            }
            tick.end();
            let noted = take_noted(&sandbox);
            assert_eq!((noted.len(), noted[2].as_str()), (3, first[2]), "{end} {policy}: {noted:?}");
            assert!(first[0].is_empty() || noted == first, "{end} {policy}: {noted:?}");
        }
    }
}

/// A shell handles its signal only when its foreground command has ended. After half of the grace
/// period the other processes of the group get the signal, so that the shell has time left.
#[test]
fn a_leader_that_waits_for_its_child_can_handle_the_signal_in_time() {
    let sandbox = with_message();
    let script = r#"trap 'printf half | $D checkpoint -; note saved; exit 1' TERM
        sh -c ': > "$HOME/up"; exec sleep 600'; come never"#;
    let tick = running(&sandbox, script);
    sandbox.run(["stop", "ada", "--requeue", "--grace", "3s"]);
    assert_eq!(ended(tick)["terminal"], "aborted");
    assert_eq!(take_noted(&sandbox), ["saved"]);
}

/// An outcome file that a stopped turn writes in time takes effect, but no task starts in a stopped
/// agent.
#[test]
fn a_turn_that_ends_in_time_is_completed_with_its_outcome() {
    for requeue in [None, Some("--requeue")] {
        let sandbox = agent();
        let message = say(&sandbox, "hello");
        let script = r#"trap 'cp "$HOME/outcome" "$DORMOUSE_OUTCOME"; exit 0' TERM
            echo '{"brief": "done in time", "usage": {"input_tokens": 5}, "actions": [
                {"do": "work.add", "objective": "later"},
                {"do": "enqueue", "text": "to myself"},
                {"do": "task.start", "command": ["touch", "ran"], "summary": "a task"},
                {"do": "wait", "kind": "external", "resource": "x", "reason": "an answer", "recheck_after": "1h"}
            ]}' > "$HOME/outcome"; up; while :; do sleep 0.01; done"#;
        let tick = running(&sandbox, script);
        let run = current_run(&sandbox);
        let stopped = sandbox.json(["stop", "ada"].into_iter().chain(requeue));
        assert_eq!((&stopped["completed_run_id"], &stopped["aborted_run_id"]), (&json!(run), &Value::Null));
        let ticked = ended(tick);
        assert_eq!((&ticked["terminal"], &ticked["brief"]), (&json!("completed"), &json!("done in time")));
        assert_eq!(field(&sandbox, "execution.state"), "completed");
        assert_eq!(field(&sandbox, "counters.input_tokens"), "5");
        assert_eq!(sandbox.json(["queue", "show", &message])["status"], "processed");
        assert_eq!(sandbox.json_lines(["work", "list", "-a", "ada"]).len(), 1);
        assert_eq!(sandbox.json_lines(["wait", "list", "-a", "ada"]).len(), 1);
        assert!(!sandbox.project().join("ran").exists(), "a task started in a stopped agent");
        // The actions of the outcome queue a message to the agent itself, and the failure of the
        // task to start.
        let queued = sandbox.json_lines(["queue", "list", "-a", "ada"]);
        let kinds: Vec<&str> = queued.iter().map(|message| message["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["internal_followup", "task_result"], "{queued:?}");
        sandbox.run(["doctor"]);
        sandbox.run(["start", "ada"]);
    }
}
