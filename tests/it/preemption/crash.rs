//! Tests that a command that a turn runs, killed at any system call, has taken effect completely or
//! not at all.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::checker;
use crate::harness::{Sandbox, each_in_parallel};
use crate::setup::{self, Beside, field, json_in, say};
use crate::strace::{self, Harm, Harmed};

use super::{agent, current_run, ended, go, running, suspended, text_of, turn};

/// Returns a copy of `template`, and its tick, whose turn waits for the file `go` before it runs
/// `script`. Sends `interjections` to the agent during that turn.
fn live(template: &Sandbox, script: &str, interjections: &[&str]) -> (Sandbox, Beside) {
    let sandbox = template.copy();
    let tick = running(&sandbox, &format!("up; come go; {script}"));
    for text in interjections {
        sandbox.run(["enqueue", "ada", text, "--priority", "interject"]);
    }
    (sandbox, tick)
}

/// Returns the environment variables by which a command knows that it runs in the current turn.
fn inside(sandbox: &Sandbox) -> [String; 2] {
    ["DORMOUSE_AGENT=ada".to_owned(), format!("DORMOUSE_RUN={}", current_run(sandbox))]
}

/// A command that a turn runs. The tests kill the command, not the turn.
struct Cut<'a> {
    template: &'a Sandbox,
    /// Commands that the turn runs after the killed one.
    script: &'a str,
    interjections: &'a [&'a str],
    args: &'a [&'a str],
    stdin: &'a str,
}

impl Cut<'_> {
    /// Kills the command at each system call that changes something, each time in a copy of the
    /// template. Then lets the turn of that copy run `script`, and calls `check`.
    fn everywhere(&self, check: impl Fn(&Sandbox, Beside, &Harmed) + Sync) {
        let Cut { template, script, interjections, args, stdin } = *self;
        let (sandbox, tick) = live(template, script, interjections);
        let points = strace::record_inside(&sandbox, &inside(&sandbox), args, stdin).points();
        go(&sandbox, "go");
        ended(tick);
        let hit = AtomicUsize::new(0);
        each_in_parallel(&points, |call| {
            let (sandbox, tick) = live(template, script, interjections);
            let harmed = strace::harm_inside(&sandbox, &inside(&sandbox), args, stdin, call, Harm::Kill);
            hit.fetch_add(harmed.hit.len(), Ordering::Relaxed);
            go(&sandbox, "go");
            check(&sandbox, tick, &harmed);
            let found = checker::look(&sandbox.agent("ada"));
            assert!(found.complaints.is_empty() && !found.has_journal, "{call}: {:#?}", found.complaints);
            sandbox.cmd(["doctor"]).exits(0);
        });
        let hit = hit.into_inner();
        println!("{args:?}: cut at {hit} of {} points", points.len());
        assert!(hit * 10 >= points.len() * 9, "{hit} of {} cuts were hit", points.len());
    }
}

/// The run is either suspended with the complete new checkpoint, or not suspended with the old one.
#[test]
fn a_killed_yield_saves_its_whole_checkpoint_or_has_no_effect() {
    needs!("strace");
    let template = suspended("old");
    template.run(["resume", "ada"]);
    let new = "new, and quite a bit longer ".repeat(1000);
    let (suspensions, deferrals) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Without a yield, exit status 75 defers the turn, so the test knows if the killed `yield` took
    // effect.
    let args = &["yield", "--checkpoint", "-"];
    let cut = Cut { template: &template, script: "exit 75", interjections: &[], args, stdin: &new };
    cut.everywhere(|sandbox, tick, harmed| {
        let stepped = ended(tick);
        let expected = match stepped["terminal"].as_str().unwrap() {
            "suspended" => {
                suspensions.fetch_add(1, Ordering::Relaxed);
                sandbox.run(["resume", "ada"]);
                &new
            }
            "deferred" => {
                deferrals.fetch_add(1, Ordering::Relaxed);
                sandbox.pass(60);
                "old"
            }
            other => panic!("{other}: {:?}", harmed.hit),
        };
        // A `yield` that has printed its answer must have taken effect.
        assert!(harmed.ran.stdout.is_empty() || expected == new, "{:?}", harmed.hit);
        let stepped = turn(sandbox, r#"cp "$DORMOUSE_CHECKPOINT" "$HOME/given""#);
        assert_eq!((&stepped["terminal"], &stepped["attempt"]), (&json!("completed"), &json!(1)));
        let given = text_of(sandbox, "given");
        assert!(given == expected, "{} bytes: {:?}", given.len(), harmed.hit);
    });
    let (suspensions, deferrals) = (suspensions.into_inner(), deferrals.into_inner());
    assert!(suspensions > 0 && deferrals > 0, "{suspensions} suspensions, {deferrals} deferrals");
}

/// Each of the operator's messages is printed by the killed `safe-point` or the next one, or by
/// both if the first was killed between printing and recording. The context of the next attempt has
/// every message.
#[test]
fn a_safe_point_that_is_killed_loses_no_message() {
    needs!("strace");
    let template = agent();
    say(&template, "a long job");
    let script = r#"$D safe-point --json > "$HOME/again"; exit 1"#;
    let (early, late) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let cut = Cut {
        template: &template,
        script,
        interjections: &["one", "two"],
        args: &["safe-point", "--json"],
        stdin: "",
    };
    cut.everywhere(|sandbox, tick, harmed| {
        assert_eq!(ended(tick)["terminal"], "failed");
        let again = texts(&read(sandbox, "again")["interjections"]);
        // The second `safe-point` prints nothing if the killed one had recorded both as delivered.
        let counter = if again.is_empty() { &early } else { &late };
        counter.fetch_add(1, Ordering::Relaxed);
        assert!(again.is_empty() || again == ["one", "two"], "{again:?}: {:?}", harmed.hit);
        // The killed `safe-point` may record messages as delivered only after it has printed them.
        assert!(!again.is_empty() || harmed.ran.stdout.contains("two"), "lost: {:?}", harmed.hit);
        sandbox.run(["recover", "ada"]);
        let stepped = turn(sandbox, r#"cp "$DORMOUSE_CONTEXT" "$HOME/context"; $D safe-point >&2"#);
        assert_eq!((&stepped["terminal"], &stepped["attempt"]), (&json!("completed"), &json!(2)));
        assert_eq!(texts(&read(sandbox, "context")["interjected"]), ["one", "two"], "{:?}", harmed.hit);
        assert_eq!(field(sandbox, "queue.pending"), "0");
    });
    let (early, late) = (early.into_inner(), late.into_inner());
    assert!(early > 0 && late > 0, "{early} before the cut, {late} after it");
}

/// Returns the JSON value of a file in `$HOME`.
fn read(sandbox: &Sandbox, name: &str) -> Value {
    json_in(sandbox.home().join(name))
}

fn texts(messages: &Value) -> Vec<String> {
    setup::texts(messages.as_array().map_or(&[], Vec::as_slice), "body.text")
}
