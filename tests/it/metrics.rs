//! Tests `metrics` and `GET /metrics`: Prometheus accepts them, they survive `gc` and `export`, and
//! HTTP names no private agent. Also tests the alert rules in `examples/prometheus`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::harness::Sandbox;
use crate::ingress::get;
use crate::setup::{add, edit_file, mode, names, say, started, started_with, step_on};
use crate::strace;

/// Runs promtool, which must succeed. Without promtool this check is left out and listed as such.
fn promtool(args: &[&str], dir: &Path, stdin: &str) {
    needs!("promtool");
    let mut promtool = assert_cmd::Command::new("promtool");
    promtool.args(args).current_dir(dir).write_stdin(stdin).assert().success();
}

/// Returns the value of a series (name and labels) in the output of `metrics`.
#[track_caller]
fn value(text: &str, series: &str) -> f64 {
    let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {series} in:\n{text}")).parse().unwrap()
}

/// Returns a state directory in which `ada` had two completed turns, a dead letter and a queued
/// message. The agent `eve` is private and was never started.
fn with_history() -> Sandbox {
    let outcome = r#"{"usage": {"input_tokens": 7, "output_tokens": 5, "cost_usd": 0.25}}"#;
    let sandbox = started_with(
        &format!(
            "case \"$(cat)\" in *'\"text\": \"fail\"'*) exit 1 ;; esac; echo '{outcome}' > \"$DORMOUSE_OUTCOME\""
        ),
        "[recovery]\nmax_attempts = 1\n",
    );
    sandbox.run(["create", "eve", "--visibility", "private", "--shell", "true"]);
    for text in ["one", "two", "fail"] {
        step_on(&sandbox, text);
    }
    say(&sandbox, "later");
    sandbox
}

#[test]
fn prometheus_accepts_the_metrics() {
    let sandbox = with_history();
    let text = sandbox.run(["metrics"]);
    promtool(&["check", "metrics"], sandbox.root(), &text);
    for (series, expected) in [
        ("dormouse_agents{posture=\"has_queued_input\"}", 1.0),
        ("dormouse_agents{posture=\"idle\"}", 1.0),
        ("dormouse_agents_unreadable", 0.0),
        ("dormouse_queue_messages", 1.0),
        ("dormouse_agent_queue_messages{agent=\"ada\"}", 1.0),
        ("dormouse_agent_dead_letters{agent=\"ada\"}", 1.0),
        ("dormouse_agent_turns_total{agent=\"ada\",terminal=\"completed\"}", 2.0),
        ("dormouse_agent_turns_total{agent=\"ada\",terminal=\"failed\"}", 1.0),
        ("dormouse_agent_turns_total{agent=\"eve\",terminal=\"failed\"}", 0.0),
        ("dormouse_agent_turn_duration_seconds_count{agent=\"ada\"}", 3.0),
        ("dormouse_agent_turn_duration_seconds_bucket{agent=\"ada\",le=\"+Inf\"}", 3.0),
        ("dormouse_agent_tokens_total{agent=\"ada\",direction=\"input\"}", 14.0),
        ("dormouse_agent_cost_usd_total{agent=\"ada\"}", 0.5),
        ("dormouse_agent_lock_waits_total{agent=\"ada\"}", 0.0),
        ("dormouse_agent_attention{agent=\"ada\"}", 1.0),
    ] {
        assert_eq!(value(&text, series), expected, "{series}");
    }
    let oldest = value(&text, "dormouse_agent_queue_oldest_timestamp_seconds{agent=\"ada\"}");
    let read = value(&text, "dormouse_metrics_timestamp_seconds");
    assert!(oldest < read && read < oldest + 60.0, "{oldest} {read}");
    // JSON contains the text, whose time alone differs.
    let in_json = sandbox.json(["metrics"]);
    let in_json = in_json["text"].as_str().unwrap();
    assert_eq!(in_json.lines().count(), text.lines().count());
    assert_eq!(value(in_json, "dormouse_agent_cost_usd_total{agent=\"ada\"}"), 0.5);
}

#[test]
fn counters_survive_gc_and_export() {
    let sandbox = with_history();
    let counters = |sandbox: &Sandbox| {
        let text = sandbox.run(["metrics"]);
        let lines = text.lines().filter(|line| line.contains("_total{") || line.contains("duration"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = counters(&sandbox);
    sandbox.pass(400 * 24 * 3600);
    sandbox.run(["gc", "--keep", "0s"]);
    assert_eq!(counters(&sandbox), before);
    // An exported agent keeps its counters.
    sandbox.run(["export", "ada", "-o", "stream"]);
    let other = Sandbox::new();
    fs::copy(sandbox.project().join("stream"), other.project().join("stream")).unwrap();
    other.run(["import", "stream"]);
    let of_ada =
        |lines: Vec<String>| lines.into_iter().filter(|line| line.contains("ada")).collect::<Vec<_>>();
    assert_eq!(of_ada(counters(&other)), of_ada(before));
}

#[test]
fn a_file_is_written_to_a_temporary_file_and_renamed() {
    needs!("strace");
    let sandbox = with_history();
    let file = sandbox.project().join("dormouse.prom");
    fs::write(&file, "what was there").unwrap();
    let object = sandbox.json(["metrics", "-o", "dormouse.prom"]);
    assert_eq!((object["path"].as_str(), object["agents"].as_u64()), (Some("dormouse.prom"), Some(2)));
    let text = fs::read_to_string(&file).unwrap();
    promtool(&["check", "metrics"], sandbox.root(), &text);
    assert_eq!(mode(&file), 0o644, "other users can read the file");
    assert_eq!(names(&sandbox.project()), [".dormouse", "dormouse.prom"], "no temporary file is left");
    let calls = strace::calls(&sandbox, &["metrics", "-o", "dormouse.prom"]);
    assert!(calls.keys().any(|name| name.starts_with("rename")), "{calls:?}");
    // The command must fail if the file's directory is missing, or if the path is a directory, in
    // which it must create no file.
    sandbox.cmd(["metrics", "-o", "missing/dormouse.prom"]).exits(1);
    fs::create_dir(sandbox.project().join("dir")).unwrap();
    sandbox.cmd(["metrics", "-o", "dir"]).exits(1);
    assert_eq!(names(&sandbox.project().join("dir")), Vec::<String>::new());
}

#[test]
fn an_unreadable_agent_is_counted_and_named() {
    let sandbox = with_history();
    fs::write(sandbox.agent("eve").join("state.json"), "no record").unwrap();
    let ran = sandbox.cmd(["metrics"]).exits(6);
    promtool(&["check", "metrics"], sandbox.root(), &ran.stdout);
    assert_eq!(value(&ran.stdout, "dormouse_agents_unreadable"), 1.0);
    assert_eq!(value(&ran.stdout, "dormouse_agent_unreadable{agent=\"eve\"}"), 1.0);
    assert_eq!(value(&ran.stdout, "dormouse_agent_queue_messages{agent=\"ada\"}"), 1.0);
    // `-o` writes the file despite the error, because Prometheus reports the unreadable agent.
    sandbox.cmd(["metrics", "-o", "numbers"]).exits(6);
    assert!(fs::read_to_string(sandbox.project().join("numbers")).unwrap().contains("agent=\"eve\""));
}

#[test]
fn an_agent_that_was_moved_away_has_no_series() {
    let sandbox = with_history();
    sandbox.run(["export", "ada", "--move", "elsewhere", "-o", "stream"]);
    let text = sandbox.run(["metrics"]);
    assert_eq!(value(&text, "dormouse_agents_moved"), 1.0);
    assert!(!text.contains("agent=\"ada\""), "{text}");
}

#[test]
fn a_wait_for_the_lock_is_counted_with_its_duration() {
    let sandbox = started("true").with_real_clock();
    let lock = fs::File::options().write(true).open(sandbox.agent("ada").join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut waiting = sandbox.cmd(["work", "add", "objective", "-a", "ada"]).into_command();
    let mut waiting = waiting.stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    drop(lock);
    assert!(waiting.wait().unwrap().success());
    let text = sandbox.run(["metrics"]);
    assert_eq!(value(&text, "dormouse_agent_lock_waits_total{agent=\"ada\"}"), 1.0);
    let seconds = value(&text, "dormouse_agent_lock_wait_seconds_total{agent=\"ada\"}");
    assert!((0.05..30.0).contains(&seconds), "{seconds}");
}

#[test]
fn over_http_no_private_agent_is_named() {
    let sandbox = with_history();
    let answer = get(&sandbox, "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
    let (_, text) = answer.split_once("\r\n\r\n").unwrap();
    promtool(&["check", "metrics"], sandbox.root(), text);
    assert_eq!(value(text, "dormouse_dead_letters"), 1.0);
    assert!(!text.contains("agent=") && !text.contains("tokens") && !text.contains("cost"), "{text}");
    edit_file(&sandbox.store().join("dormouse.toml"), |settings| {
        format!("{settings}[ingress]\nread = true\n")
    });
    let text = get(&sandbox, "/metrics");
    assert!(text.contains("agent=\"ada\"") && !text.contains("agent=\"eve\""), "{text}");
    fs::write(sandbox.agent("eve").join("state.json"), "no record").unwrap();
    let text = get(&sandbox, "/metrics");
    assert!(text.contains("\ndormouse_agents_unreadable 1\n") && !text.contains("eve"), "{text}");
}

#[test]
fn every_alert_fires_and_uses_existing_series() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/prometheus");
    promtool(&["check", "rules", "dormouse.rules.yml"], &dir, "");
    promtool(&["test", "rules", "dormouse.test.yml"], &dir, "");
    let rules = fs::read_to_string(dir.join("dormouse.rules.yml")).unwrap();
    let tests = fs::read_to_string(dir.join("dormouse.test.yml")).unwrap();
    for name in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tests.contains(&format!("- alertname: {name}\n        eval_time: ")), "{name} is not tested");
        let fires = tests
            .split("  - name: ")
            .any(|case| case.starts_with(&format!("{name}\n")) && case.contains("exp_labels:"));
        assert!(fires, "{name} never fires");
    }
    let word = |c: char| c.is_ascii_lowercase() || c == '_';
    let words = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c| !word(c)).filter(|word| word.starts_with("dormouse_"));
        words.map(str::to_owned).collect()
    };
    let sandbox = started("true");
    add(&sandbox, "bob", "true");
    let missing = &words(&rules) - &words(&sandbox.run(["metrics"]));
    assert!(missing.is_empty(), "{missing:?}");
}
