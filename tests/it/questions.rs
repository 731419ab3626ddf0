//! Tests conditions that only a person can end: questions to the operator, stalled agents, and
//! state directories without a tick. Every listing shows them, and a tick reports each once.

use std::fs;

use predicates::prelude::*;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{
    add, advisories, assert_includes, decisions, extend_policy, field, hook, noted_objects, objects, say,
    started, step, step_on,
};

/// Turn that asks the operator a question if its message is `go`.
const ASKS: &str = r#"if [ "$(jq -r .message.body.text < "$DORMOUSE_CONTEXT")" = go ]; then
  dormouse wait --on operator --reason 'Deploy to production?' --option yes --option no
fi"#;

/// Hook that appends its input to `home/noted`.
const NOTE: &str = r#"cat >> "$HOME/noted""#;

fn is_without_ticks(sandbox: &Sandbox) -> bool {
    advisories(sandbox).contains(&"nobody_ticks".to_owned())
}

fn question(sandbox: &Sandbox) -> Value {
    sandbox.json(["get", "ada"])["attention"].clone()
}

#[test]
fn a_question_is_reported_once_and_ends_with_its_answer() {
    needs!("jq");
    let sandbox = started(ASKS);
    hook(&sandbox.agent("ada"), "on-attention", NOTE);
    say(&sandbox, "go");
    // A question is not a failure, so the tick exits with 0.
    let ran = sandbox.cmd(["tick", "ada", "-q", "--json"]).exits(0);
    let wait = sandbox.json(["wait", "list", "-a", "ada"])["id"].as_str().unwrap().to_owned();
    let answer = format!("dormouse enqueue ada --wait {wait} TEXT");
    let expected = format!("dormouse: ada: asks: Deploy to production? (yes / no); answer: {answer}\n");
    assert_eq!(ran.stderr, expected);
    let told = &objects(&ran.stdout)[0]["attention"][0];
    assert_includes(told, json!({ "subject": "asked", "answer_with": answer }));
    let ran = sandbox.cmd(["tick", "ada", "--until-idle"]).exits(0);
    assert_eq!(ran.stderr, "", "the tick has reported the question twice: {ran}");
    let [told] = noted_objects(&sandbox).try_into().unwrap();
    let expected = json!({
        "subject": "asked", "reason": "Deploy to production?", "options": ["yes", "no"], "wait_id": wait,
    });
    assert_includes(&told, expected);

    // Every listing shows the command that answers the question.
    sandbox.cmd(["list"]).assert().success().stdout(contains("ada !")).stderr(contains(&answer));
    sandbox.cmd([""; 0]).output().shows(&answer);
    sandbox.cmd(["get", "ada"]).output().shows(&answer);
    sandbox.cmd(["doctor"]).exits(0).shows(&answer);
    let shown = question(&sandbox);
    assert_eq!([&shown["count"], &shown["newest"][0]["subject"]], [&json!(1), &json!("asked")]);
    // Acknowledging dead letters does not answer the question.
    sandbox.cmd(["queue", "dead", "--ack", "-a", "ada"]).output();
    assert_eq!(question(&sandbox)["count"], 1);

    sandbox.run(["enqueue", "ada", "yes", "--wait", &wait]);
    step(&sandbox);
    assert_eq!(question(&sandbox), Value::Null);
    assert_eq!(noted_objects(&sandbox).len(), 1);
}

#[test]
fn a_repeated_question_is_reported_again_only_after_an_answer() {
    let sandbox = started("dormouse wait --on operator --reason 'Which one?'");
    let stderr = || sandbox.cmd(["tick", "ada", "--until-idle"]).output().stderr;
    sandbox.run(["work", "add", "choose", "-a", "ada", "--pick"]);
    assert!(stderr().contains("asks: Which one?"));
    // A message from a channel does not answer the question, but its turn repeats the question.
    extend_policy(&sandbox, "ada", "[inbox]\nunmatched = \"run\"\n");
    sandbox.run(["enqueue", "ada", "news", "--kind", "channel_event", "--origin", "channel:irc"]);
    let before = question(&sandbox);
    assert_eq!(stderr(), "", "the repeated question is reported again");
    let after = question(&sandbox);
    assert_eq!((&after["count"], &after["since"]), (&json!(1), &before["since"]));
    assert_ne!(after["newest"][0]["wait_id"], before["newest"][0]["wait_id"]);
    say(&sandbox, "the left one");
    assert!(stderr().contains("asks: Which one?"), "the question after the answer is not reported");
}

#[test]
fn a_question_ends_with_a_ready_plan_a_stop_or_a_cancelled_wait() {
    let sandbox = started("true");
    let item = sandbox.run(["work", "add", "paint it", "-a", "ada", "--plan-status", "needs_input"]);
    let item = item.trim_end();
    decisions(&sandbox);
    let answer = format!("dormouse enqueue ada --work-item {item} TEXT");
    let expected = json!({ "reason": "needs input: paint it", "answer_with": answer });
    assert_includes(&question(&sandbox)["newest"][0], expected);
    sandbox.run(["work", "update", item, "--plan-status", "ready"]);
    assert_eq!(question(&sandbox), Value::Null);
    let wait = sandbox.json(["wait", "-a", "ada", "--on", "operator", "--whole-agent", "--reason", "Why?"]);
    let wait = wait["id"].as_str().unwrap();
    decisions(&sandbox);
    assert_eq!(question(&sandbox)["newest"][0]["wait_id"], wait);
    sandbox.run(["stop", "ada"]);
    assert_eq!(question(&sandbox), Value::Null, "a stopped agent asks nothing");
    sandbox.run(["start", "ada"]);
    assert_eq!(question(&sandbox)["count"], 1);
    sandbox.run(["wait", "cancel", wait]);
    assert_eq!(question(&sandbox), Value::Null);
    let refused = ["wait", "-a", "ada", "--on", "external", "--reason", "x", "--option", "yes"];
    sandbox.cmd(refused).exits(2).warns("kind `operator`");
}

#[test]
fn a_question_reaches_the_hook_again_if_the_hook_has_killed_its_tick() {
    needs!("jq");
    let sandbox = started(ASKS);
    hook(&sandbox.agent("ada"), "on-attention", &format!("{NOTE}; kill -9 $PPID"));
    say(&sandbox, "go");
    sandbox.cmd(["tick", "ada"]).output();
    assert_eq!(noted_objects(&sandbox).len(), 1);
    hook(&sandbox.agent("ada"), "on-attention", NOTE);
    step(&sandbox);
    assert_eq!(noted_objects(&sandbox).len(), 2, "the hook gets the question from a later tick");
    step(&sandbox);
    assert_eq!(noted_objects(&sandbox).len(), 2);
}

#[test]
fn a_stalled_agent_is_reported_after_a_day() {
    let sandbox = started("true");
    hook(&sandbox.agent("ada"), "on-attention", NOTE);
    sandbox.run(["work", "add", "dig", "-a", "ada", "--pick"]);
    decisions(&sandbox);
    assert!(advisories(&sandbox).contains(&"idle_posture_has_runnable_work".to_owned()));
    let line = sandbox.json(["list"]);
    assert!(line["stalled"].as_str().unwrap().contains("dormouse wake ada"), "{line}");
    assert_eq!(line["attention"], Value::Null, "the advisory is reported before a day has passed: {line}");
    sandbox.cmd(["list"]).output().shows("stalled: dig is runnable");
    sandbox.pass(24 * 3600);
    sandbox.cmd(["tick", "--all"]).exits(0).warns("ada: stalled work_");
    assert_eq!(noted_objects(&sandbox)[0]["subject"], "stalled");
    sandbox.pass(48 * 3600);
    assert_eq!(sandbox.cmd(["tick", "--all"]).output().stderr, "", "the stall is reported twice");
    sandbox.run(["wake", "ada"]);
    decisions(&sandbox);
    sandbox.pass(24 * 3600);
    // A second stall is reported although the first one was reported already.
    sandbox.cmd(["tick", "--all"]).output().warns("stalled");
}

#[test]
fn a_blocked_item_and_a_suspended_run_are_reported_after_a_day() {
    let sandbox = started("true");
    sandbox.run(["work", "add", "dig", "-a", "ada", "--blocked-by", "rain"]);
    decisions(&sandbox);
    assert!(field(&sandbox, "attention").is_empty());
    sandbox.pass(24 * 3600);
    sandbox.cmd(["tick", "ada"]).output().warns("dormouse work unblock");

    add(&sandbox, "bob", "dormouse yield");
    extend_policy(&sandbox, "bob", "[timeouts]\nsuspend = \"never\"\n");
    sandbox.run(["enqueue", "bob", "go"]);
    sandbox.run(["tick", "bob", "--until-idle"]);
    assert_eq!(sandbox.json(["state", "bob"])["state"], "suspended");
    sandbox.pass(24 * 3600);
    sandbox.cmd(["tick", "bob"]).output().warns("dormouse resume bob");
}

#[test]
fn every_reader_reports_that_no_process_ticks() {
    let sandbox = started("true");
    decisions(&sandbox);
    say(&sandbox, "x");
    sandbox.pass(590);
    assert!(!is_without_ticks(&sandbox));
    sandbox.cmd(["doctor"]).assert().stdout(contains("nobody_ticks").not());
    sandbox.pass(71);
    assert!(is_without_ticks(&sandbox));
    let line = sandbox.json(["list"]);
    let due = &line["nobody_ticks"];
    assert!(due["since"].is_string() && due["last_step_at"].is_string(), "{line}");
    for reader in [&["list"][..], &[], &["explain", "ada"]] {
        let text = "no process ticks: a step has been due for 11m";
        sandbox.cmd(reader.iter().copied()).output().shows(text);
    }
    let text = "nobody_ticks: 1 agent: a step has been due for 11m";
    sandbox.cmd(["doctor"]).exits(0).shows(text);
    sandbox.cmd(["metrics"]).output().shows("nobody_ticks");
    step(&sandbox);
    assert!(!is_without_ticks(&sandbox));
    // Ticks of `ada` alone don't help `bob`, whose due step is missed.
    add(&sandbox, "bob", "true");
    sandbox.run(["enqueue", "bob", "x"]);
    sandbox.pass(661);
    sandbox.run(["tick", "ada"]);
    assert!(sandbox.json(["get", "bob"])["advisories"].to_string().contains("nobody_ticks"));
    // A timer overdue by `overdue_after` shows that nobody ticks, unless the agent is stopped.
    sandbox.run(["tick", "--all", "--until-idle"]);
    sandbox.run(["timer", "add", "-a", "ada", "--in", "1h", "wake"]);
    sandbox.pass(3600 + 661);
    assert!(is_without_ticks(&sandbox));
    let settings = sandbox.store().join("dormouse.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, format!("{text}\n[scheduler]\noverdue_after = \"1d\"\n")).unwrap();
    assert!(!is_without_ticks(&sandbox));
    fs::write(&settings, text).unwrap();
    sandbox.run(["stop", "ada"]);
    assert!(!is_without_ticks(&sandbox));
}

#[test]
fn await_reports_within_seconds_that_no_process_ticks() {
    let sandbox = started("true").with_real_clock();
    let ran = sandbox.cmd(["enqueue", "ada", "x", "--await", "--timeout", "6s"]).exits(8);
    ran.warns("ada: no process ticks it: a step has been due for").warns("none was ever made");
}

#[test]
fn get_shows_at_most_50_records_of_a_kind_and_counts_the_others() {
    let sandbox = started("true");
    for hours in 1..=52 {
        sandbox.run(["timer", "add", "-a", "ada", "--in", &format!("{hours}h"), "look"]);
    }
    let summary = sandbox.json(["get", "ada"]);
    assert_eq!(summary["active_timers"].as_array().unwrap().len(), 50);
    let more = json!({ "active_timers": { "count": 2, "see": "dormouse timer list -a ada" } });
    assert_eq!(summary["left_out"], more);
}

#[test]
fn logs_shows_the_last_50_events_and_reports_an_empty_period() {
    let sandbox = started("true");
    for _ in 0..20 {
        say(&sandbox, "x");
    }
    sandbox.run(["tick", "ada", "--until-idle"]);
    sandbox.pass(4 * 24 * 3600);
    let shown = sandbox.json_lines(["logs", "ada"]);
    assert_eq!(shown.iter().filter(|event| event["seq"].is_number()).count(), 50);
    let text = sandbox.run(["logs", "ada"]);
    assert_eq!(text.lines().filter(|line| line.starts_with("2026-")).count(), 50, "{text}");
    let ran = sandbox.cmd(["logs", "ada", "--since", "1d"]).output().printed(0, "");
    ran.warns("nothing has happened since").warns("the last event was");
}

#[test]
fn usage_names_the_period_of_its_counts() {
    let sandbox = started("true");
    let ran = sandbox.cmd(["usage"]).exits(0);
    assert_eq!(ran.stderr, "");
    assert!(ran.stdout.starts_with("turns that ended since 2025-12-26"), "{ran}");
    for line in sandbox.json_lines(["usage"]) {
        assert!(line["since"].is_string() && line["until"].is_string(), "{line}");
    }
}

#[test]
fn an_agent_without_a_turn_command_keeps_its_messages() {
    let sandbox = started("true");
    let settings = sandbox.agent("ada").join("agent.toml");
    let before = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, "").unwrap();
    say(&sandbox, "x");
    let ran = sandbox.cmd(["tick", "ada"]).exits(0);
    assert!(ran.stdout.starts_with("ada  wait_for_resources (command)"), "{ran}");
    for _ in 0..8 {
        sandbox.cmd(["tick", "ada"]).exits(0);
        sandbox.pass(120);
    }
    let held = sandbox.json(["get", "ada"])["held"].clone();
    assert!(held["missing"].as_str().unwrap().contains("names no turn.command"), "{held}");
    sandbox.cmd(["doctor"]).exits(0).shows("turn_command");
    fs::write(&settings, before).unwrap();
    sandbox.pass(3600);
    sandbox.run(["tick", "ada", "--until-idle"]);
    assert_eq!(sandbox.json(["get", "ada"])["last_turn"]["attempt"], 1);
}

#[test]
fn a_turn_may_not_run_gc_clone_or_doctor_with_repair() {
    let commands =
        ["gc", "doctor --repair", "doctor --repair bob", "doctor --merge-driver", "clone bob eve", "doctor"];
    let lines = commands.map(|command| format!("dormouse {command} >&2; echo $? >> \"$HOME/codes\"\n"));
    let sandbox = started(&lines.concat());
    add(&sandbox, "bob", "true");
    step_on(&sandbox, "x");
    let codes = fs::read_to_string(sandbox.home().join("codes")).unwrap();
    assert_eq!(codes, "4\n4\n4\n4\n4\n0\n", "a turn may run `doctor`, but nothing that changes other agents");
}

#[test]
fn a_deferred_or_suspended_turn_has_not_failed() {
    for (shell, state) in [("exit 75", "waiting_resources"), ("dormouse yield", "suspended")] {
        let sandbox = started(shell);
        let expected = json!({ "execution_state": state, "closure.outcome": "waiting" });
        assert_includes(&step_on(&sandbox, "x"), expected);
        assert_eq!(sandbox.json(["get", "ada"])["closure"]["outcome"], "waiting");
    }
}

#[test]
fn doctor_keeps_an_unreadable_state_and_errors_name_the_remedy() {
    let sandbox = started("true");
    let state = sandbox.agent("ada").join("state.json");
    fs::write(&state, "{").unwrap();
    for verb in ["tick", "get"] {
        sandbox.cmd([verb, "ada"]).exits(6).warns("restore it from git, a backup or an export");
    }
    sandbox.cmd(["doctor", "--repair"]).exits(6).shows("restore it from git");
    assert_eq!(fs::read_to_string(&state).unwrap(), "{");
}
