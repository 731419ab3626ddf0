//! Tests that `ask` and `await --message` report by output and exit status how a message ended.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::Sandbox;
use crate::setup::{Beside, add, edit_policy, eventually, objects, own_name, say, started, started_with};

const ONE_ATTEMPT: &str = "[recovery]\nmax_attempts = 1\n";

/// Starts `ask` for a message whose turn exits with status 75. Returns once the turn is deferred.
fn ask_with_a_deferred_turn(sandbox: &Sandbox) -> Beside {
    let ask = Beside::start(sandbox.cmd(["ask", "ada", "x"]));
    eventually("the turn was deferred", || {
        (sandbox.run(["get", "ada", "execution.state"]) == "waiting_resources\n").then_some(())
    });
    ask
}

fn interrupt(ask: &Beside, signal: Signal) {
    kill_process(Pid::from_raw(ask.0.id() as i32).unwrap(), signal).unwrap();
}

#[test]
fn ask_prints_the_brief_on_stdout_and_the_turn_output_on_stderr() {
    let sandbox = started("echo looking; echo hm >&2; echo all is well");
    let ran = sandbox.cmd(["ask", "ada", "how is it?"]).output().printed(0, "all is well\n");
    for said in ["looking\n", "hm\n", "all is well\n"] {
        assert!(ran.stderr.contains(said), "{ran}");
    }
    sandbox.cmd(["ask", "ada", "again", "-q"]).prints("all is well\n");
    let answer = sandbox.json(["ask", "ada", "--body-json", "{\"n\": 1}", "--priority", "next"]);
    assert_eq!((&answer["status"], &answer["brief"]), (&"processed".into(), &"all is well".into()));
    assert!(answer["run_id"].is_string() && answer["message_id"].is_string());
}

#[test]
fn ask_retries_a_failed_turn_until_the_message_has_ended() {
    let shell = "[ $DORMOUSE_ATTEMPT = 3 ] && echo done || exit 3";
    let sandbox = started_with(shell, "[recovery]\nbase = \"10ms\"\n").with_real_clock();
    let ran = sandbox.cmd(["ask", "ada", "try"]).output().printed(0, "done\n");
    assert!(ran.stderr.contains("ada: attempt 2 failed: exit status 3\n"), "{ran}");
}

#[test]
fn ask_reports_a_dead_letter_once_and_exits_with_7() {
    let sandbox = started_with("exit 3", ONE_ATTEMPT);
    let ran = sandbox.cmd(["ask", "ada", "try", "-q"]).output().printed(7, "");
    assert_eq!(ran.stderr.matches("dead letter").count(), 1, "{ran}");
    let ran = sandbox.cmd(["ask", "ada", "try", "--json"]).output();
    let answer = &objects(&ran.stdout)[0];
    assert_eq!((ran.code(), &answer["status"]), (7, &"aborted".into()), "{ran}");
    assert_eq!(answer["reason"], "gave up after 1 attempt: exit status 3");
}

#[test]
fn ask_queues_nothing_for_an_unstarted_or_stopped_agent() {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "ada", "--shell", "true"]);
    sandbox.cmd(["ask", "ada", "x"]).exits(4).warns("hint: start it with `dormouse start ada`");
    sandbox.run(["start", "ada"]);
    sandbox.run(["stop", "ada"]);
    sandbox.cmd(["ask", "ada", "x"]).exits(4);
    assert_eq!(sandbox.run(["queue", "list", "-a", "ada"]), "");
}

#[test]
fn a_timeout_of_ask_leaves_the_message_queued() {
    let sandbox = started("exit 75").with_real_clock();
    let ran = sandbox.cmd(["ask", "ada", "x", "--timeout", "300ms"]).output().printed(8, "");
    assert!(ran.stderr.contains("stays queued; `dormouse await ada --message msg_"), "{ran}");
    assert_eq!(sandbox.json_lines(["queue", "list", "-a", "ada"]).len(), 1);
}

#[test]
fn ask_waits_for_a_turn_that_another_tick_runs_and_prints_its_output() {
    let shell =
        "echo begun; touch \"$HOME/begun\"; while ! [ -e \"$HOME/go\" ]; do sleep 0.05; done; echo done";
    let sandbox = started(shell).with_real_clock();
    say(&sandbox, "first");
    let tick = Beside::start(sandbox.cmd(["tick", "ada", "--until-idle"]))
        .after_it_made(sandbox.home().join("begun"));
    let ask = Beside::start(sandbox.cmd(["ask", "ada", "second"]));
    std::thread::sleep(Duration::from_millis(100));
    fs::write(sandbox.home().join("go"), "").unwrap();
    ask.end().printed(0, "done\n");
    assert_eq!(tick.end().code(), 0);
}

#[test]
fn an_interrupt_of_ask_reports_that_the_message_stays_queued() {
    let sandbox = started_with("exit 75", "[recovery]\nbase = \"10m\"\n").with_real_clock();
    let ask = ask_with_a_deferred_turn(&sandbox);
    std::thread::sleep(Duration::from_millis(200));
    interrupt(&ask, Signal::INT);
    ask.end().exits(1).warns("stays queued").warns("ended by signal 2");
    assert_eq!(sandbox.json_lines(["queue", "list", "-a", "ada"]).len(), 1);
}

#[test]
fn an_interrupt_of_ask_ends_the_turn_and_keeps_the_message_queued() {
    let sandbox = started("touch \"$HOME/begun\"; exec sleep 600").with_real_clock();
    let ask = Beside::start(sandbox.cmd(["ask", "ada", "x"])).after_it_made(sandbox.home().join("begun"));
    interrupt(&ask, Signal::TERM);
    ask.end().exits(1).warns("stays queued");
    assert_eq!(sandbox.json_lines(["queue", "list", "-a", "ada"])[0]["attempt"], 1);
}

#[test]
fn a_stop_ends_the_wait() {
    let sandbox = started_with("exit 75", "[recovery]\nbase = \"10m\"\n").with_real_clock();
    let ask = ask_with_a_deferred_turn(&sandbox);
    sandbox.run(["stop", "ada"]);
    ask.end().exits(4).warns("`ada` is stopped: it can't answer");
}

#[test]
fn a_turn_can_not_ask_its_own_agent_and_ask_steps_no_other_agent() {
    let sandbox = started("true");
    add(&sandbox, "bob", "echo bob");
    let own = format!("{} ask ada hello 2>\"$HOME/said\"; true", own_name());
    edit_policy(&sandbox, "ada", |text| {
        text.replace("command = \"true\"", &format!("command = {}", serde_json::json!(own)))
    });
    sandbox.run(["enqueue", "bob", "x"]);
    sandbox.cmd(["ask", "ada", "go", "-q"]).output();
    let said = fs::read_to_string(sandbox.home().join("said")).unwrap();
    assert!(said.contains("can't ask its own agent"), "{said}");
    assert_eq!(sandbox.run(["get", "bob", "queue.pending"]), "1\n");
}

#[test]
fn ask_reports_a_message_that_ends_without_a_turn() {
    let sandbox = started("true");
    let ran = sandbox.cmd(["ask", "ada", "note this", "--kind", "control"]).output().printed(0, "");
    assert!(ran.stderr.ends_with("processed: reduced\n"), "{ran}");
}

#[test]
fn the_exit_status_of_await_shows_how_the_message_ended() {
    let sandbox = started_with("[ \"$(cat)\" ] && exit 3", ONE_ATTEMPT);
    let dead = say(&sandbox, "dies");
    sandbox.cmd(["tick", "ada", "--until-idle"]).output();
    sandbox.cmd(["await", "ada", "--message", &dead]).exits(7).warns("aborted: gave up after 1 attempt");
    let dropped = say(&sandbox, "never mind");
    sandbox.run(["queue", "drop", &dropped]);
    sandbox.cmd(["await", "ada", "--message", &dropped]).exits(7);
    sandbox.run(["queue", "requeue", &dead]);
    sandbox.cmd(["await", "ada", "--message", &dead, "--timeout", "10ms"]).exits(8);
}

#[test]
fn await_refuses_the_message_of_a_stopped_agent() {
    let sandbox = started("true");
    let id = say(&sandbox, "x");
    sandbox.run(["stop", "ada"]);
    sandbox.cmd(["await", "ada", "--message", &id]).exits(4).warns("`ada` is stopped: it can't answer");
}

#[test]
fn await_accepts_a_message_that_a_timer_will_deliver() {
    let sandbox = started("true");
    let id = sandbox.run(["enqueue", "ada", "later", "--in", "1h"]);
    sandbox.cmd(["await", "ada", "--message", id.trim(), "--timeout", "10ms"]).exits(8);
    sandbox.pass(7200);
    sandbox.run(["tick", "ada", "--until-idle"]);
    sandbox.cmd(["await", "ada", "--message", id.trim()]).exits(0);
}
