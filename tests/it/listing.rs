//! Tests the table that `list` shows to people: its order, columns and notes.

use crate::harness::Sandbox;
use crate::setup::{add, extend_policy, started, texts};

/// Agents with numbers in their names, and the agent `zoe`, which needs attention.
fn fleet() -> Sandbox {
    let sandbox = started("true");
    for name in ["a10", "a2", "zoe"] {
        add(&sandbox, name, "exit 1");
    }
    extend_policy(&sandbox, "zoe", "[recovery]\nmax_attempts = 1\n");
    for name in ["zoe", "a10", "a10", "a2"] {
        sandbox.run(["enqueue", name, "go"]);
    }
    sandbox.cmd(["tick", "zoe", "--until-idle"]).output();
    sandbox
}

fn first_words(text: &str) -> Vec<&str> {
    text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect()
}

#[test]
fn list_puts_attention_first_and_sorts_names_by_number() {
    let sandbox = fleet();
    let text = sandbox.run(["list"]);
    assert!(text.starts_with("AGENT  POSTURE "), "{text}");
    assert_eq!(first_words(&text), ["zoe", "a2", "a10", "ada"], "{text}");
    assert!(text.lines().nth(1).unwrap().starts_with("zoe !  "), "{text}");
    let sorted = |line: &[&str]| {
        let text = sandbox.run([&["list"][..], line].concat());
        first_words(&text).join(" ")
    };
    assert_eq!(sorted(&["--sort", "agent"]), "a2 a10 ada zoe");
    assert_eq!(sorted(&["--sort", "queue"]), "a10 a2 ada zoe");
    assert_eq!(sorted(&["--sort", "last"]), "zoe a2 a10 ada");
    sandbox.cmd(["list", "--sort", "dead"]).exits(2);
    let text = sandbox.run(["list", "--columns", "agent,queue,posture", "--sort", "agent"]);
    assert_eq!(text.lines().next(), Some("AGENT  QUEUE  POSTURE"));
    assert!(text.lines().nth(1).unwrap().starts_with("a2     1      "), "{text}");
    let ran = sandbox.cmd(["list", "--limit", "2"]).output();
    assert_eq!(first_words(&ran.stdout).len(), 2);
    assert_eq!(ran.stderr, "dormouse: 2 more; --limit 0 lists all\n");
    // JSON is sorted by name, unless `--sort` names another order.
    let names = |line: &[&str]| {
        let objects = sandbox.json_lines([&["list"][..], line].concat());
        texts(&objects, "agent")
    };
    assert_eq!(names(&[]), ["a10", "a2", "ada", "zoe"]);
    assert_eq!(names(&["--sort", "queue", "--limit", "2"]), ["a10", "a2"]);
    sandbox.cmd(["list", "--columns", "nonsense"]).exits(2);
}

#[test]
fn list_shows_why_a_queued_message_does_not_run_yet() {
    let program = crate::setup::own_name();
    let sandbox = started("exit 75");
    let turns = [("bob", format!("{program} yield >/dev/null; exit 1")), ("cyd", "kill -9 $$".to_owned())];
    for (name, turn) in &turns {
        add(&sandbox, name, turn);
    }
    for name in ["ada", "bob", "cyd"] {
        sandbox.run(["enqueue", name, "one"]);
        sandbox.cmd(["tick", name]).output();
        sandbox.run(["enqueue", name, "two"]);
    }
    let text = sandbox.run(["list", "--columns", "agent,posture,note"]);
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("ada").contains("has_queued_input  missing: the turn asked to come back later"), "{text}");
    assert!(line("bob").contains("has_queued_input  suspended: its turn yielded; next is"), "{text}");
    assert!(line("cyd").contains("has_queued_input  signal 9; attempt 2 is due"), "{text}");
    let bob = sandbox.json_lines(["list"]).into_iter().find(|line| line["agent"] == "bob").unwrap();
    assert_eq!(bob["missing"], "suspended: its turn yielded");
}

/// The table shows `stopped`, JSON shows `archived`; `--posture` accepts both words.
#[test]
fn the_posture_flag_accepts_both_stopped_and_archived() {
    let sandbox = started("true");
    sandbox.run(["stop", "ada"]);
    assert!(sandbox.run(["list"]).contains("stopped"));
    for word in ["stopped", "archived"] {
        assert_eq!(sandbox.json(["list", "--posture", word])["posture"], "archived", "{word}");
        sandbox.cmd(["await", "ada", "--posture", word, "--timeout", "5s"]).exits(0);
    }
}

#[test]
fn queued_and_runnable_work_is_due_now_whatever_the_next_timer() {
    let sandbox = started("true");
    sandbox.run(["timer", "add", "-a", "ada", "--in", "6h", "later"]);
    let due = || {
        let list = sandbox.run(["list"]);
        let row = list.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        let get = sandbox.run(["get", "ada"]);
        let all = sandbox.run([""; 0]);
        [
            row.contains(" now "),
            get.lines().any(|line| line.starts_with("next due") && line.ends_with(" now")),
            all.contains("the next step is due now"),
        ]
    };
    assert_eq!(due(), [false; 3]);
    sandbox.run(["enqueue", "ada", "x"]);
    assert_eq!(due(), [true; 3]);
    sandbox.run(["tick", "ada", "--until-idle"]);
    assert_eq!(due(), [false; 3]);
    sandbox.run(["work", "add", "x", "-a", "ada"]);
    assert_eq!(due(), [true; 3]);
}

#[test]
fn the_note_of_a_deferred_message_names_what_is_missing_once() {
    let sandbox = started(
        "echo '{\"deferred\": {\"resource\": \"the licence server of the compiler has no free seat for us\"}}' >$DORMOUSE_OUTCOME; exit 75",
    );
    sandbox.run(["enqueue", "ada", "x"]);
    sandbox.run(["tick", "ada", "--until-idle"]);
    let list = sandbox.run(["list"]);
    assert_eq!(list.matches("the licence server").count(), 1, "{list}");
}
