//! Tests `logs` and `run show latest --follow`: events as text for people, and the output of a
//! running turn.

use serde_json::Value;
use std::fs;

use crate::setup::{Beside, add, eventually, say, started, step_on};
use crate::strace;

/// Reads lines up to the first one with this part, and returns that.
#[track_caller]
fn find(lines: &mut impl Iterator<Item = String>, part: &str) -> String {
    lines.find(|line| line.contains(part)).unwrap_or_else(|| panic!("no `{part}`"))
}

#[test]
fn logs_shows_events_in_words_and_local_time() {
    let sandbox = started(
        "case \"$(cat)\" in *'\"text\": \"fail\"'*) echo no >&2; exit 1 ;; esac; echo working; echo done",
    );
    add(&sandbox, "bob", "echo other");
    step_on(&sandbox, "go");
    step_on(&sandbox, "fail");
    sandbox.run(["enqueue", "bob", "go"]);
    sandbox.run(["tick", "bob"]);
    let text = sandbox.run(["logs", "ada"]);
    let said: Vec<&str> = text.lines().map(|line| line.get(21..).unwrap_or(line)).collect();
    for expected in [
        "created",
        "takes a message from you: go",
        "a turn starts: a message from you",
        "| working",
        "| done",
        "the turn completed",
        "| no",
    ] {
        assert!(said.contains(&expected), "no `{expected}` in:\n{text}");
    }
    let at = |line: &str| said.iter().position(|one| one.starts_with(line)).unwrap();
    assert!(at("a turn starts") < at("| working") && at("| done") < at("the turn completed"), "{text}");
    assert!(at("the turn failed: exit status 1: no") > at("| no"), "{text}");
    assert!(text.starts_with("2026-01-02 03:04:0"), "{text}");
    let ran = sandbox.cmd(["logs", "ada"]).env("TZ", "Asia/Tokyo").output();
    assert!(ran.stdout.starts_with("2026-01-02 12:04:0"), "{ran}");
    // Without a name, `logs` shows the events of all agents, in their order.
    let all = sandbox.run(["logs"]);
    assert_eq!(all, sandbox.run(["logs", "--all"]));
    assert!(all.lines().all(|line| line.starts_with("ada  ") || line.starts_with("bob  ")), "{all}");
    assert!(all.lines().any(|line| line.ends_with("| other")), "{all}");
    assert_eq!(sandbox.cmd(["logs", "bob", "--since", "1s"]).output().stdout, "");
    let objects = sandbox.json_lines(["logs", "bob"]);
    let output: Vec<&Value> = objects.iter().filter(|object| !object["log"].is_null()).collect();
    assert_eq!(output.len(), 1);
    assert_eq!([&output[0]["text"], &output[0]["agent"]], ["other", "bob"]);
    sandbox.cmd(["logs", "nobody"]).exits(3);
}

#[test]
fn logs_shows_the_status_changes_of_a_trigger() {
    let sandbox = started("true");
    let id = sandbox.json(["trigger", "create", "-a", "ada"])["id"].as_str().unwrap().to_owned();
    sandbox.run(["trigger", "revoke", &id]);
    let text = sandbox.run(["logs", "ada"]);
    for word in ["active", "revoked"] {
        assert!(text.contains(&format!("{id} is {word}")), "{text}");
    }
}

#[test]
fn logs_and_run_show_follow_the_output_of_a_running_turn() {
    let sandbox =
        started("echo one; until test -e \"$HOME/go\"; do sleep 0.01; done; echo two").with_real_clock();
    let (mut child, mut lines) =
        Beside::with_lines(sandbox.cmd(["logs", "-f", "ada", "--since", "2026-01-01"]));
    find(&mut lines, "created");
    say(&sandbox, "go");
    let tick = Beside::start(sandbox.cmd(["tick", "ada"]));
    find(&mut lines, "a turn starts");
    find(&mut lines, "| one");
    // `run show` follows the turn, which waits for the file `go`.
    let (mut run, mut output) = Beside::with_lines(sandbox.cmd(["run", "show", "latest", "ada", "--follow"]));
    assert_eq!(find(&mut output, "one"), "one");
    assert!(sandbox.run(["logs", "ada"]).contains("| one\n"));
    fs::write(sandbox.home().join("go"), "").unwrap();
    find(&mut lines, "| two");
    find(&mut lines, "the turn completed");
    find(&mut output, "two");
    assert_eq!(run.0.wait().unwrap().code(), Some(0), "`run show` ends with the turn");
    tick.end();
    // `logs --follow` shows the next turn, too.
    say(&sandbox, "again");
    sandbox.run(["tick", "ada"]);
    find(&mut lines, "a turn starts");
    find(&mut lines, "| one");
    find(&mut lines, "the turn completed");
    assert_eq!(sandbox.run(["run", "show", "latest", "ada", "--stdout"]), "one\ntwo\n");
    drop(lines);
    assert_eq!(child.0.wait().unwrap().code(), Some(0), "`logs` ends without a reader");
}

#[test]
fn logs_follow_shows_new_agents_and_ends_with_the_state_directory() {
    let sandbox = started("echo one").with_real_clock();
    let (mut child, mut lines) =
        Beside::with_lines(sandbox.cmd(["logs", "-f", "--all", "--since", "2026-01-01"]));
    find(&mut lines, "created");
    add(&sandbox, "bob", "echo two");
    sandbox.run(["enqueue", "bob", "go"]);
    sandbox.run(["tick", "bob"]);
    assert!(find(&mut lines, "| two").starts_with("bob  "));
    fs::remove_dir_all(sandbox.store()).unwrap();
    eventually("`logs` ends without a state directory", || child.0.try_wait().unwrap());
}

#[test]
fn logs_escapes_control_characters_in_the_output_of_turns() {
    let sandbox = started("printf 'a\\033[31mb\\rc\\n\\342\\200\\256d\\n'; printf 'no end'");
    step_on(&sandbox, "go");
    let text = sandbox.run(["logs", "ada"]);
    assert!(text.contains("| a\\u{1b}[31mb\\rc\n") && text.contains("| \\u{202e}d\n"), "{text}");
    assert!(text.contains("| no end\n"), "{text}");
}

#[test]
fn logs_shows_a_blank_message_without_a_text() {
    let sandbox = started("true");
    sandbox.run(["enqueue", "ada", "--allow-empty", " "]);
    sandbox.run(["tick", "ada"]);
    let text = sandbox.run(["logs", "ada"]);
    assert!(text.lines().any(|line| line.ends_with("  takes a message from you")), "{text}");
}

/// `logs` reads the file of ended messages equally often for 2 and for 8 messages.
#[test]
fn logs_reads_the_archive_equally_often_for_2_and_8_messages() {
    needs!("strace");
    let line = ["logs", "ada", "--since", "1d"];
    let reads = [2, 8].map(|count| {
        let sandbox = started("case \"$(cat)\" in *'\"text\": \"fail\"'*) exit 1 ;; esac");
        let texts: Vec<String> = (0..count).map(|number| format!("message {number}")).collect();
        texts.iter().for_each(|text| drop(step_on(&sandbox, text)));
        step_on(&sandbox, "fail");
        let shown = sandbox.run(line);
        for text in texts.iter().map(String::as_str).chain(["fail"]) {
            assert!(shown.contains(&format!("takes a message from you: {text}\n")), "{shown}");
        }
        let named = strace::named(&sandbox, &line);
        named.lines().filter(|line| line.contains("message.jsonl")).count()
    });
    assert!(reads[0] > 0 && reads[0] == reads[1], "{reads:?}");
}
