//! `enqueue --await`: how a CI job waits for an agent that another process ticks.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Cmd, Sandbox};
use crate::setup::{
    Beside, add, eventually, field, names, objects, own_name, say, started, started_with, wait_for,
};

const LAST: &str = "[recovery]\nmax_attempts = 1\n";

fn pending(sandbox: &Sandbox) -> usize {
    sandbox.json_lines(["queue", "list", "-a", "ada"]).len()
}

/// A command that waits, once its message has arrived.
fn waiting(sandbox: &Sandbox, cmd: Cmd<'_>) -> Beside {
    let before = names(&sandbox.agent("ada").join("inbox")).len();
    let child = Beside::start(cmd);
    let has_arrived = || (names(&sandbox.agent("ada").join("inbox")).len() > before).then_some(());
    eventually("the message has arrived", has_arrived);
    child
}

#[test]
fn the_brief_is_the_answer_of_a_turn_that_another_tick_runs() {
    let sandbox = started("echo looking; echo all is well").with_real_clock();
    let cmd = waiting(&sandbox, sandbox.cmd(["enqueue", "ada", "how is it?", "--await", "--timeout", "5m"]));
    sandbox.run(["tick", "ada"]);
    let ran = cmd.end();
    assert_eq!((ran.code(), ran.stdout.as_str(), ran.stderr.as_str()), (0, "all is well\n", ""), "{ran}");
    let cmd = waiting(&sandbox, sandbox.cmd(["enqueue", "ada", "again", "--await", "--json"]));
    sandbox.run(["tick", "ada"]);
    let ran = cmd.end();
    let answer = &objects(&ran.stdout)[0];
    assert_eq!((&answer["status"], &answer["brief"]), (&"processed".into(), &"all is well".into()));
    assert_eq!(answer["duplicate"], false, "{ran}");
    assert!(answer["run_id"].is_string() && answer["message_id"].is_string(), "{ran}");
}

#[test]
fn what_failed_for_good_ends_with_7_and_says_why() {
    let sandbox = started_with("exit 3", LAST).with_real_clock();
    let cmd = waiting(&sandbox, sandbox.cmd(["enqueue", "ada", "x", "--await"]));
    sandbox.cmd(["tick", "ada"]).output();
    let ran = cmd.end();
    assert_eq!((ran.code(), ran.stdout.as_str()), (7, ""), "{ran}");
    assert!(ran.stderr.contains("aborted: gave up after 1 attempt: exit status 3\n"), "{ran}");
}

#[test]
fn a_failure_shows_the_end_of_the_output() {
    let turn = "seq 1 100; echo reading; echo no such branch >&2; exit 3";
    let sandbox = started_with(turn, LAST).with_real_clock();
    for json in [false, true] {
        let mut words = vec!["enqueue", "ada", "x", "--await"];
        words.extend(json.then_some("--json"));
        let cmd = waiting(&sandbox, sandbox.cmd(words));
        sandbox.cmd(["tick", "ada", "--until-idle"]).output();
        let ran = cmd.end().exits(7);
        if json {
            let output = objects(&ran.stdout)[0]["output"].as_str().unwrap().to_owned();
            assert!(
                output.starts_with("82\n") && output.ends_with("\n100\nreading\nno such branch"),
                "{output}"
            );
        } else {
            let said = &ran.stderr;
            assert!(
                said.starts_with("| 82\n") && said.contains("\n| reading\n| no such branch\ndormouse: "),
                "{said}"
            );
            assert!(said.ends_with("gave up after 1 attempt: exit status 3: no such branch\n"), "{said}");
        }
    }
    // `ask` shows the output of its own turn once.
    let ran = sandbox.cmd(["ask", "ada", "y"]).output();
    assert_eq!(
        (
            ran.code(),
            ran.stderr
                .lines()
                .filter(|line| line.ends_with("| no such branch") || *line == "no such branch")
                .count()
        ),
        (7, 1),
        "{ran}"
    );
}

#[test]
fn a_message_that_failed_is_tried_again_under_its_key() {
    let sandbox = started_with("test -e \"$HOME/ok\" && echo fine", LAST).with_real_clock();
    let once = ["enqueue", "ada", "build", "--dedupe-key", "k", "--await"];
    let retry = [&once[..], &["--retry"]].concat();
    let cmd = waiting(&sandbox, sandbox.cmd(once));
    sandbox.cmd(["tick", "ada"]).output();
    assert_eq!(cmd.end().code(), 7);
    let ran = sandbox.cmd(once).exits(7);
    assert!(ran.stderr.contains("has this key and failed before: `--retry` tries it again"), "{ran}");
    let cmd = waiting(&sandbox, sandbox.cmd(&retry));
    fs::write(sandbox.home().join("ok"), "").unwrap();
    // A second retry meanwhile waits for the same attempt.
    let second = Beside::start(sandbox.cmd(&retry));
    sandbox.run(["tick", "ada", "--until-idle"]);
    for ran in [cmd.end(), second.end()] {
        assert_eq!((ran.code(), ran.stdout.as_str(), ran.stderr.as_str()), (0, "fine\n", ""), "{ran}");
    }
    assert_eq!(sandbox.run(&retry), "fine\n", "a message that was completed does not run again");
    let runs = sandbox.json_lines(["run", "list", "-a", "ada"]);
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0]["message_id"], runs[1]["message_id"]);
    for wrong in [
        &["enqueue", "ada", "x", "--retry"][..],
        &["enqueue", "ada", "x", "--dedupe-key", "k", "--in", "1h", "--retry"],
    ] {
        sandbox.cmd(wrong).status(2).output();
    }
}

#[test]
fn ask_tries_a_failed_message_again_under_its_key() {
    let sandbox = started_with("test -e \"$HOME/ok\" && echo fine", LAST);
    sandbox.cmd(["ask", "ada", "build", "--dedupe-key", "k"]).status(7).output();
    fs::write(sandbox.home().join("ok"), "").unwrap();
    sandbox.cmd(["ask", "ada", "build", "--dedupe-key", "k"]).status(7).output();
    let ran = sandbox.cmd(["ask", "ada", "build", "--dedupe-key", "k", "--retry"]).output();
    assert_eq!((ran.code(), ran.stdout.as_str()), (0, "fine\n"), "{ran}");
}

#[test]
fn another_text_under_the_same_key_is_said() {
    let sandbox = started("echo done");
    let with = |text| ["enqueue", "ada", text, "--dedupe-key", "k"];
    let id = sandbox.run(with("one"));
    let ran = sandbox.cmd(with("one")).output();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), (id.as_str(), ""), "{ran}");
    for ended in [false, true] {
        let ran = sandbox.cmd(with("two")).output();
        assert_eq!((ran.code(), ran.stdout.as_str()), (0, id.as_str()), "{ran}");
        assert!(ran.stderr.contains("another text: your text was not sent"), "{ended}: {ran}");
        let ran = sandbox.cmd(["--json"].iter().chain(&with("two")).copied()).output();
        assert_eq!(objects(&ran.stdout)[0]["differs"], true, "{ran}");
        assert!(sandbox.json(with("one"))["differs"].is_null());
        sandbox.run(["tick", "ada"]);
    }
}

#[test]
fn the_time_ends_and_the_message_stays() {
    let sandbox = started("true").with_real_clock();
    let ran = sandbox.cmd(["enqueue", "ada", "x", "--await", "--timeout", "30ms"]).output();
    assert_eq!((ran.code(), ran.stdout.as_str()), (8, ""), "{ran}");
    assert!(ran.stderr.contains("stays queued; `dormouse await ada --message msg_"), "{ran}");
    sandbox.cmd(["enqueue", "ada", "x", "--await", "--timeout", "0", "--json"]).fails(8, "timed_out");
    assert_eq!(pending(&sandbox), 2);
    sandbox.cmd(["enqueue", "ada", "x", "--timeout", "1s"]).status(2).output();
    assert_eq!(pending(&sandbox), 2);
}

#[test]
fn a_repeat_of_what_has_ended_is_answered_at_once_even_by_a_stopped_agent() {
    let sandbox = started("echo done once").with_real_clock();
    let line = ["enqueue", "ada", "build 7", "--dedupe-key", "build-7", "--await", "--timeout", "5m"];
    let cmd = waiting(&sandbox, sandbox.cmd(line));
    // Whoever asks a second time meanwhile waits for the same message.
    let second = Beside::start(sandbox.cmd(line));
    sandbox.run(["tick", "ada", "--until-idle"]);
    let (first, second) = (cmd.end(), second.end());
    assert_eq!((first.code(), first.stdout.as_str()), (0, "done once\n"), "{first}");
    assert_eq!((second.code(), second.stdout.as_str()), (0, "done once\n"), "{second}");
    assert_eq!(sandbox.run(line), "done once\n");
    sandbox.run(["stop", "ada"]);
    let answer = sandbox.json(line);
    assert_eq!((&answer["duplicate"], &answer["brief"]), (&true.into(), &"done once".into()));
    assert_eq!(sandbox.json_lines(["run", "list", "-a", "ada"]).len(), 1);
}

#[test]
fn what_a_timer_holds_is_waited_for() {
    let sandbox = started("echo later").with_real_clock();
    let cmd = Beside::start(sandbox.cmd(["enqueue", "ada", "x", "--in", "1ms", "--await"]));
    eventually("the message is due", || {
        (!sandbox.run(["timer", "list", "-a", "ada"]).is_empty()).then_some(())
    });
    sandbox.run(["tick", "ada", "--until-idle"]);
    let ran = cmd.end();
    assert_eq!((ran.code(), ran.stdout.as_str()), (0, "later\n"), "{ran}");
    let cmd = Beside::start(sandbox.cmd(["enqueue", "ada", "x", "--in", "30d", "--await"]));
    let timer = eventually("the timer", || {
        let timers = sandbox.json_lines(["timer", "list", "-a", "ada"]);
        timers.first().map(|timer| timer["id"].as_str().unwrap().to_owned())
    });
    sandbox.run(["timer", "cancel", &timer]);
    let ran = cmd.end();
    assert_eq!((ran.code(), ran.stdout.as_str()), (7, ""), "{ran}");
    assert!(ran.stderr.contains("dropped: its timer was cancelled\n"), "{ran}");
}

#[test]
fn a_batch_waits_for_all_and_ends_with_the_gravest_verdict() {
    let turn = r#"case "$(cat)" in *'"text": "bad"'*) exit 3 ;; *'"text": "one"'*) echo first ;; *) echo last ;; esac"#;
    let sandbox = started_with(turn, LAST).with_real_clock();
    let lines = "{\"text\":\"one\"}\n{\"text\":\"bad\"}\n{\"text\":\"two\"}\n";
    let lines_at = sandbox.home().join("lines");
    fs::write(&lines_at, lines).unwrap();
    let script = format!("{} enqueue ada --batch --await --json < \"$HOME/lines\"", own_name());
    let cmd = waiting(&sandbox, sandbox.program("sh", vec!["-c".into(), script.into()]));
    sandbox.cmd(["tick", "ada", "--until-idle"]).output();
    // The failure has a backoff; the last one is taken up after it.
    eventually("all are done", || {
        sandbox.cmd(["tick", "ada", "--until-idle"]).output();
        (pending(&sandbox) == 0).then_some(())
    });
    let ran = cmd.end();
    let briefs: Vec<_> = objects(&ran.stdout).iter().map(|answer| answer["brief"].clone()).collect();
    assert_eq!(ran.code(), 7, "{ran}");
    assert_eq!(briefs, [serde_json::json!("first"), serde_json::Value::Null, serde_json::json!("last")]);
}

#[test]
fn a_closed_gate_is_said_before_anything_is_said_to_it_and_ends_the_wait() {
    let sandbox = started("true").with_real_clock();
    let cmd = waiting(&sandbox, sandbox.cmd(["enqueue", "ada", "x", "--await"]));
    sandbox.run(["stop", "ada"]);
    let ran = cmd.end();
    assert_eq!((ran.code(), ran.stdout.as_str()), (4, ""), "{ran}");
    assert!(ran.stderr.contains("stays queued") && ran.stderr.contains("`ada` is stopped"), "{ran}");
    let ran = sandbox.cmd(["enqueue", "ada", "x", "--await"]).exits(4);
    assert!(ran.stderr.contains("nothing was said to it"), "{ran}");
    assert_eq!(pending(&sandbox), 1);
}

#[test]
fn nobody_waits_for_himself() {
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
fn a_signal_ends_the_wait_and_says_where_the_message_is() {
    let sandbox = started("touch \"$HOME/begun\"; echo done").with_real_clock();
    let cmd = waiting(&sandbox, sandbox.cmd(["enqueue", "ada", "x", "--await"]));
    // It looks once more before it waits: the signal may only come then.
    let pid = Pid::from_raw(cmd.0.id() as i32).unwrap();
    eventually("it waits", || {
        let call = fs::read_to_string(format!("/proc/{}/wchan", cmd.0.id())).unwrap_or_default();
        (call.contains("poll") || call == "0").then_some(())
    });
    kill_process(pid, Signal::INT).unwrap();
    let ran = cmd.end();
    // Whoever has not begun to wait is ended by the signal itself.
    if ran.status.code().is_some() {
        assert_eq!(ran.code(), 1, "{ran}");
        assert!(ran.stderr.contains("stays queued") && ran.stderr.contains("ended by signal 2"), "{ran}");
    }
    sandbox.run(["tick", "ada"]);
    wait_for(&sandbox.home().join("begun"));
    say(&sandbox, "more");
}
