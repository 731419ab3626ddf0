//! `logs`, `run show latest --follow`: what happened, for people, and what turns write while they write it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::Sandbox;
use crate::setup::{add, say, started, step_on};
use crate::strace;

fn spawn(sandbox: &Sandbox, line: &[&str]) -> (Child, Lines) {
    let mut command: Command = sandbox.cmd(line.iter().copied()).into_command();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, Lines(lines))
}

struct Lines(std::io::Lines<BufReader<ChildStdout>>);

impl Lines {
    /// The next line with this in it.
    #[track_caller]
    fn find(&mut self, part: &str) -> String {
        let found = self.0.by_ref().map(Result::unwrap).find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("no `{part}`"))
    }
}

#[test]
fn what_happened_is_told_in_words_and_local_time() {
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
    // Several, in the order in which it happened; nobody named means everybody.
    let all = sandbox.run(["logs"]);
    assert_eq!(all, sandbox.run(["logs", "--all"]));
    assert!(all.lines().all(|line| line.starts_with("ada  ") || line.starts_with("bob  ")), "{all}");
    assert!(all.lines().any(|line| line.ends_with("| other")), "{all}");
    assert_eq!(sandbox.cmd(["logs", "bob", "--since", "1s"]).output().stdout, "");
    let objects = sandbox.json_lines(["logs", "bob"]);
    let output: Vec<&Value> = objects.iter().filter(|object| !object["log"].is_null()).collect();
    assert_eq!(output.len(), 1);
    assert_eq!((output[0]["text"].as_str(), output[0]["agent"].as_str()), (Some("other"), Some("bob")));
    assert_eq!(sandbox.cmd(["logs", "nobody"]).output().code(), 3);
}

#[test]
fn what_becomes_of_a_trigger_is_told() {
    let sandbox = started("true");
    let id = sandbox.json(["trigger", "create", "-a", "ada"])["id"].as_str().unwrap().to_owned();
    sandbox.run(["trigger", "revoke", &id]);
    let text = sandbox.run(["logs", "ada"]);
    for word in ["active", "revoked"] {
        assert!(text.contains(&format!("{id} is {word}")), "{text}");
    }
}

#[test]
fn a_turn_is_heard_while_it_runs() {
    let sandbox =
        started("echo one; until test -e \"$HOME/go\"; do sleep 0.01; done; echo two").with_real_clock();
    let (mut child, mut lines) = spawn(&sandbox, &["logs", "-f", "ada", "--since", "2026-01-01"]);
    lines.find("created");
    say(&sandbox, "go");
    let mut tick = sandbox.cmd(["tick", "ada"]).into_command();
    let mut tick = tick.stdout(Stdio::null()).spawn().unwrap();
    lines.find("a turn starts");
    lines.find("| one");
    // The turn still runs.
    let (mut run, mut output) = spawn(&sandbox, &["run", "show", "latest", "ada", "--follow"]);
    assert_eq!(output.find("one"), "one");
    assert!(sandbox.run(["logs", "ada"]).contains("| one\n"));
    fs::write(sandbox.home().join("go"), "").unwrap();
    lines.find("| two");
    lines.find("the turn completed");
    output.find("two");
    assert_eq!(run.wait().unwrap().code(), Some(0), "it ends with the turn");
    tick.wait().unwrap();
    // The next turn is heard as well.
    say(&sandbox, "again");
    sandbox.run(["tick", "ada"]);
    lines.find("a turn starts");
    lines.find("| one");
    lines.find("the turn completed");
    assert_eq!(sandbox.run(["run", "show", "latest", "ada", "--stdout"]), "one\ntwo\n");
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(0), "it ends when nobody reads");
}

#[test]
fn a_new_agent_is_heard_by_all_and_the_end_of_the_directory_is_an_end() {
    let sandbox = started("echo one").with_real_clock();
    let (mut child, mut lines) = spawn(&sandbox, &["logs", "-f", "--all", "--since", "2026-01-01"]);
    lines.find("created");
    add(&sandbox, "bob", "echo two");
    sandbox.run(["enqueue", "bob", "go"]);
    sandbox.run(["tick", "bob"]);
    assert!(lines.find("| two").starts_with("bob  "));
    fs::remove_dir_all(sandbox.store()).unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it follows nothing");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_turns_write_neither_steers_nor_breaks_a_line() {
    let sandbox = started("printf 'a\\033[31mb\\rc\\n\\342\\200\\256d\\n'; printf 'no end'");
    step_on(&sandbox, "go");
    let text = sandbox.run(["logs", "ada"]);
    assert!(text.contains("| a\\u{1b}[31mb\\rc\n") && text.contains("| \\u{202e}d\n"), "{text}");
    assert!(text.contains("| no end\n"), "{text}");
}

/// A message that says nothing has no text behind its line.
#[test]
fn a_message_without_content_is_told_without_a_text() {
    let sandbox = started("true");
    sandbox.run(["enqueue", "ada", "--allow-empty", " "]);
    sandbox.run(["tick", "ada"]);
    let text = sandbox.run(["logs", "ada"]);
    assert!(text.lines().any(|line| line.ends_with("  takes a message from you")), "{text}");
}

/// The texts of all shown messages are read together, whether they have ended or wait for another attempt.
#[test]
fn the_archive_is_read_once_however_much_is_shown() {
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
