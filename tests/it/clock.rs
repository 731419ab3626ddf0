//! Tests that a record with a time far in the future does not block an agent (contract, execution
//! §4).

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{
    advisories, assert_includes, decision, field, objects, say, started, started_with, step, texts,
};

const AHEAD: &str = "2099-06-01T00:00:00Z";

/// Runs a command with a clock that runs 73 years ahead.
fn ahead(sandbox: &Sandbox, words: &[&str]) -> Vec<Value> {
    objects(&sandbox.cmd([&["--json"], words].concat()).env("DORMOUSE_NOW", AHEAD).output().stdout)
}

/// Runs steps, a minute apart, until one runs a turn, and returns their number.
fn until_a_turn(sandbox: &Sandbox) -> usize {
    let ran = (1..10).find(|_| {
        sandbox.pass(60);
        step(sandbox)["terminal"].is_string()
    });
    ran.expect("no turn in 9 steps")
}

fn repaired(sandbox: &Sandbox) -> Vec<String> {
    let events = sandbox.json_lines(["events", "ada", "--kind", "record_repaired"]);
    assert!(events.iter().all(|event| event["data"]["reason"] == "clock_in_future"), "{events:?}");
    texts(&events, "data.moment")
}

#[test]
fn a_turn_that_failed_or_was_deferred_under_a_fast_clock_is_retried_after_its_pause() {
    for (turn, moments) in [
        (
            "exit 1",
            ["execution.since", "retry.not_before", "spending.hour.since", "spending.day.since"].as_slice(),
        ),
        ("exit 75", &["execution.since", "held.not_before", "held.deferred_since"]),
    ] {
        for rests in [false, true] {
            let sandbox = started_with(turn, "[timeouts]\nresources = \"1h\"\n");
            say(&sandbox, "x");
            (0..1 + i32::from(rests)).for_each(|_| drop(ahead(&sandbox, &["tick", "ada"])));
            let is_warned = || advisories(&sandbox).iter().any(|kind| kind == "clock_in_future");
            assert!(is_warned(), "{turn}, rests: {rests}");
            assert!(until_a_turn(&sandbox) <= 3, "{turn}, rests: {rests}");
            assert_eq!(repaired(&sandbox), moments, "{turn}");
            assert!(!is_warned(), "{turn}, rests: {rests}");
            sandbox.run(["doctor"]);
        }
    }
}

#[test]
fn a_daily_limit_that_was_reached_under_a_fast_clock_ends_with_the_present_day() {
    let sandbox = started_with("true", "[limits]\nturns_per_day = 1\n");
    say(&sandbox, "x");
    ahead(&sandbox, &["tick", "ada"]);
    say(&sandbox, "y");
    ahead(&sandbox, &["tick", "ada"]);
    let waiting = step(&sandbox);
    assert_eq!(decision(&waiting), "wait_for_resources (turns_per_day)");
    assert_eq!(waiting["next_due_at"], "2026-01-03T00:00:00.000Z");
    sandbox.pass(24 * 3600);
    assert_eq!(decision(&step(&sandbox)), "start_model_turn (resources_available) completed");
}

#[test]
fn a_dedupe_key_that_was_used_under_a_fast_clock_drops_no_message_of_the_present() {
    const LINE: [&str; 5] = ["enqueue", "ada", "x", "--dedupe-key", "k"];
    let sandbox = started("true");
    assert_eq!(ahead(&sandbox, &LINE)[0]["duplicate"], false);
    let first = sandbox.json(LINE);
    assert_eq!(first["duplicate"], false, "the key was used at another time");
    for second in [sandbox.json(LINE), sandbox.json(LINE)] {
        assert_includes(&second, json!({ "duplicate": true, "message_id": first["message_id"] }));
    }
}

#[test]
fn an_interval_timer_that_fired_under_a_fast_clock_fires_again_after_its_interval() {
    let sandbox = started("true");
    sandbox.run(["timer", "add", "--every", "1m", "look", "-a", "ada"]);
    ahead(&sandbox, &["tick", "ada", "--until-idle"]);
    assert!(until_a_turn(&sandbox) <= 3);
    assert!(field(&sandbox, "next_due_at").starts_with("2026-01-02T"));
}
