//! Tests `enqueue --await`: a command that waits for an agent that another process ticks, as in a
//! CI job.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Cmd, Sandbox};
use crate::setup::{
    Beside, add, assert_includes, eventually, field, names, objects, own_name, say, started, started_with,
    wait_for,
};

/// Policy lines that allow only one attempt.
const LAST: &str = "[recovery]\nmax_attempts = 1\n";

fn pending(sandbox: &Sandbox) -> usize {
    sandbox.json_lines(["queue", "list", "-a", "ada"]).len()
}

/// Starts a command that waits for its message, and returns when the message is in the inbox.
fn waiting(sandbox: &Sandbox, cmd: Cmd<'_>) -> Beside {
    let inbox = || names(&sandbox.agent("ada").join("inbox")).len();
    let before = inbox();
    let child = Beside::start(cmd);
    eventually("the message has arrived", || (inbox() > before).then_some(()));
    child
}

#[test]
fn the_brief_is_the_answer_of_a_turn_that_another_tick_runs() {
    let sandbox = started("echo looking; echo all is well").with_real_clock();
    let cmd = waiting(&sandbox, sandbox.cmd(["enqueue", "ada", "how is it?", "--await", "--timeout", "5m"]));
    sandbox.run(["tick", "ada"]);
    assert_eq!(cmd.end().printed(0, "all is well\n").stderr, "");
    let cmd = waiting(&sandbox, sandbox.cmd(["enqueue", "ada", "again", "--await", "--json"]));
    sandbox.run(["tick", "ada"]);
    let ran = cmd.end();
    let answer = &objects(&ran.stdout)[0];
    let expected = json!({ "status": "processed", "brief": "all is well", "duplicate": false });
    assert_includes(answer, expected);
    assert!(answer["run_id"].is_string() && answer["message_id"].is_string(), "{ran}");
}

#[test]
fn enqueue_await_exits_with_7_and_the_reason_of_a_dead_letter() {
    let sandbox = started_with("exit 3", LAST).with_real_clock();
    let cmd = waiting(&sandbox, sandbox.cmd(["enqueue", "ada", "x", "--await"]));
    sandbox.cmd(["tick", "ada"]).output();
    let ran = cmd.end().printed(7, "");
    assert!(ran.stderr.contains("aborted: gave up after 1 attempt: exit status 3\n"), "{ran}");
}

#[test]
fn a_failure_shows_the_end_of_the_output() {
    let turn = "seq 1 100; echo reading; echo no such branch >&2; exit 3";
    let sandbox = started_with(turn, LAST).with_real_clock();
    let failed = |flags: &[&str]| {
        let words = [&["enqueue", "ada", "x", "--await"], flags].concat();
        let cmd = waiting(&sandbox, sandbox.cmd(words));
        sandbox.cmd(["tick", "ada", "--until-idle"]).output();
        cmd.end().exits(7)
    };
    let told = failed(&[]).stderr;
    assert!(told.starts_with("| 82\n"), "{told}");
    assert!(told.contains("\n| reading\n| no such branch\ndormouse: "), "{told}");
    assert!(told.ends_with("gave up after 1 attempt: exit status 3: no such branch\n"), "{told}");
    let answer = &objects(&failed(&["--json"]).stdout)[0];
    let output = answer["output"].as_str().unwrap();
    assert!(output.starts_with("82\n") && output.ends_with("\n100\nreading\nno such branch"), "{output}");
    // `ask` shows the output of its turn only once, although the turn fails.
    let ran = sandbox.cmd(["ask", "ada", "y"]).exits(7);
    let is_output = |line: &&str| line.ends_with("| no such branch") || *line == "no such branch";
    assert_eq!(ran.stderr.lines().filter(is_output).count(), 1, "{ran}");
}

#[test]
fn retry_runs_a_failed_message_again_under_its_dedupe_key() {
    let sandbox = started_with("test -e \"$HOME/ok\" && echo fine", LAST).with_real_clock();
    let once = ["enqueue", "ada", "build", "--dedupe-key", "k", "--await"];
    let retry = [&once[..], &["--retry"]].concat();
    let cmd = waiting(&sandbox, sandbox.cmd(once));
    sandbox.cmd(["tick", "ada"]).output();
    assert_eq!(cmd.end().code(), 7);
    sandbox.cmd(once).exits(7).warns("has this key and failed before: `--retry` tries it again");
    let cmd = waiting(&sandbox, sandbox.cmd(&retry));
    fs::write(sandbox.home().join("ok"), "").unwrap();
    // A second command with `--retry` waits for the same attempt.
    let second = Beside::start(sandbox.cmd(&retry));
    sandbox.run(["tick", "ada", "--until-idle"]);
    for waiting in [cmd, second] {
        assert_eq!(waiting.end().printed(0, "fine\n").stderr, "");
    }
    assert_eq!(sandbox.run(&retry), "fine\n", "a message that was completed does not run again");
    let runs = sandbox.json_lines(["run", "list", "-a", "ada"]);
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0]["message_id"], runs[1]["message_id"]);
    sandbox.cmd(["enqueue", "ada", "x", "--retry"]).exits(2);
    sandbox.cmd(["enqueue", "ada", "x", "--dedupe-key", "k", "--in", "1h", "--retry"]).exits(2);
}

#[test]
fn ask_with_retry_runs_a_failed_message_again() {
    let sandbox = started_with("test -e \"$HOME/ok\" && echo fine", LAST);
    let ask = ["ask", "ada", "build", "--dedupe-key", "k"];
    sandbox.cmd(ask).exits(7);
    fs::write(sandbox.home().join("ok"), "").unwrap();
    sandbox.cmd(ask).exits(7);
    sandbox.cmd([&ask[..], &["--retry"]].concat()).output().printed(0, "fine\n");
}

#[test]
fn enqueue_warns_of_another_text_under_the_same_dedupe_key() {
    let sandbox = started("echo done");
    let with = |text| ["enqueue", "ada", text, "--dedupe-key", "k"];
    let id = sandbox.run(with("one"));
    let ran = sandbox.cmd(with("one")).output();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), (id.as_str(), ""), "{ran}");
    for ended in [false, true] {
        let ran = sandbox.cmd(with("two")).output().printed(0, &id);
        assert!(ran.stderr.contains("another text: your text was not sent"), "{ended}: {ran}");
        let ran = sandbox.cmd(["--json"].iter().chain(&with("two")).copied()).output();
        assert_eq!(objects(&ran.stdout)[0]["differs"], true, "{ran}");
        assert!(sandbox.json(with("one"))["differs"].is_null());
        sandbox.run(["tick", "ada"]);
    }
}

#[test]
fn a_timeout_of_enqueue_await_leaves_the_message_queued() {
    let sandbox = started("true").with_real_clock();
    let ran = sandbox.cmd(["enqueue", "ada", "x", "--await", "--timeout", "30ms"]).output().printed(8, "");
    assert!(ran.stderr.contains("stays queued; `dormouse await ada --message msg_"), "{ran}");
    sandbox.cmd(["enqueue", "ada", "x", "--await", "--timeout", "0", "--json"]).fails(8, "timed_out");
    assert_eq!(pending(&sandbox), 2);
    sandbox.cmd(["enqueue", "ada", "x", "--timeout", "1s"]).exits(2);
    assert_eq!(pending(&sandbox), 2);
}

#[test]
fn a_duplicate_of_an_ended_message_prints_its_result_at_once() {
    let sandbox = started("echo done once").with_real_clock();
    let line = ["enqueue", "ada", "build 7", "--dedupe-key", "build-7", "--await", "--timeout", "5m"];
    let cmd = waiting(&sandbox, sandbox.cmd(line));
    // A second command with the same dedupe key waits for the message of the first.
    let second = Beside::start(sandbox.cmd(line));
    sandbox.run(["tick", "ada", "--until-idle"]);
    for waiting in [cmd, second] {
        waiting.end().printed(0, "done once\n");
    }
    assert_eq!(sandbox.run(line), "done once\n");
    sandbox.run(["stop", "ada"]);
    assert_includes(&sandbox.json(line), json!({ "duplicate": true, "brief": "done once" }));
    assert_eq!(sandbox.json_lines(["run", "list", "-a", "ada"]).len(), 1);
}

#[test]
fn enqueue_await_waits_for_a_delayed_message() {
    let sandbox = started("echo later").with_real_clock();
    let cmd = Beside::start(sandbox.cmd(["enqueue", "ada", "x", "--in", "1ms", "--await"]));
    let has_timer = || (!sandbox.run(["timer", "list", "-a", "ada"]).is_empty()).then_some(());
    eventually("the timer of the message", has_timer);
    sandbox.run(["tick", "ada", "--until-idle"]);
    cmd.end().printed(0, "later\n");
    let cmd = Beside::start(sandbox.cmd(["enqueue", "ada", "x", "--in", "30d", "--await"]));
    let timer = eventually("the timer", || {
        let timers = sandbox.json_lines(["timer", "list", "-a", "ada"]);
        timers.first().map(|timer| timer["id"].as_str().unwrap().to_owned())
    });
    sandbox.run(["timer", "cancel", &timer]);
    let ran = cmd.end().printed(7, "");
    assert!(ran.stderr.contains("dropped: its timer was cancelled\n"), "{ran}");
}

#[test]
fn a_batch_waits_for_all_messages_and_exits_with_the_worst_result() {
    let turn = r#"case "$(cat)" in *'"text": "bad"'*) exit 3 ;; *'"text": "one"'*) echo first ;; *) echo last ;; esac"#;
    let sandbox = started_with(turn, LAST).with_real_clock();
    let lines = "{\"text\":\"one\"}\n{\"text\":\"bad\"}\n{\"text\":\"two\"}\n";
    fs::write(sandbox.home().join("lines"), lines).unwrap();
    let script = format!("{} enqueue ada --batch --await --json < \"$HOME/lines\"", own_name());
    let cmd = waiting(&sandbox, sandbox.program("sh", vec!["-c".into(), script.into()]));
    sandbox.cmd(["tick", "ada", "--until-idle"]).output();
    // After the failed message the agent pauses (backoff), then processes the last message.
    eventually("an empty queue", || {
        sandbox.cmd(["tick", "ada", "--until-idle"]).output();
        (pending(&sandbox) == 0).then_some(())
    });
    let ran = cmd.end().exits(7);
    let briefs: Vec<Value> = objects(&ran.stdout).iter().map(|answer| answer["brief"].clone()).collect();
    assert_eq!(briefs, [json!("first"), Value::Null, json!("last")]);
}

#[test]
fn a_stop_ends_enqueue_await_and_a_stopped_agent_is_refused() {
    let sandbox = started("true").with_real_clock();
    let cmd = waiting(&sandbox, sandbox.cmd(["enqueue", "ada", "x", "--await"]));
    sandbox.run(["stop", "ada"]);
    let ran = cmd.end().printed(4, "");
    assert!(ran.stderr.contains("stays queued") && ran.stderr.contains("`ada` is stopped"), "{ran}");
    sandbox.cmd(["enqueue", "ada", "x", "--await"]).exits(4).warns("nothing was said to it");
    assert_eq!(pending(&sandbox), 1);
}

#[test]
fn a_turn_can_not_await_a_message_to_its_own_agent() {
    let sandbox = started("true");
    let own = format!("{} enqueue ada hello --await 2>\"$HOME/said\"; echo $? >> \"$HOME/said\"", own_name());
    add(&sandbox, "bob", &own.replace("ada", "bob"));
    sandbox.run(["enqueue", "bob", "go"]);
    sandbox.run(["tick", "bob", "--until-idle"]);
    let said = fs::read_to_string(sandbox.home().join("said")).unwrap();
    assert!(said.contains("it can't wait for its own agent") && said.ends_with("\n4\n"), "{said}");
    assert_eq!(field(&sandbox, "queue.pending"), "0");
}

#[test]
fn a_signal_ends_enqueue_await_and_reports_that_the_message_stays() {
    let sandbox = started("touch \"$HOME/begun\"; echo done").with_real_clock();
    let cmd = waiting(&sandbox, sandbox.cmd(["enqueue", "ada", "x", "--await"]));
    // The command checks the message once more before it waits, so the signal must come after that
    // check.
    let pid = Pid::from_raw(cmd.0.id() as i32).unwrap();
    eventually("the command waits", || {
        let call = fs::read_to_string(format!("/proc/{}/wchan", cmd.0.id())).unwrap_or_default();
        (call.contains("poll") || call == "0").then_some(())
    });
    kill_process(pid, Signal::INT).unwrap();
    let ran = cmd.end();
    // If the command has not begun to wait, the signal itself ends the process.
    if ran.status.code().is_some() {
        assert_eq!(ran.code(), 1, "{ran}");
        assert!(ran.stderr.contains("stays queued") && ran.stderr.contains("ended by signal 2"), "{ran}");
    }
    sandbox.run(["tick", "ada"]);
    wait_for(&sandbox.home().join("begun"));
    say(&sandbox, "more");
}
