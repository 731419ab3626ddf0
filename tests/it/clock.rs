//! A moment that a clock wrote while it ran ahead does not park an agent (contract, execution §4).

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{decision, field, objects, say, started, started_with, step, texts};

const AHEAD: &str = "2099-06-01T00:00:00Z";

/// A command of somebody whose clock runs ahead.
fn ahead(sandbox: &Sandbox, words: &[&str]) -> Vec<Value> {
    objects(&sandbox.cmd([&["--json"], words].concat()).env("DORMOUSE_NOW", AHEAD).output().stdout)
}

/// Steps, a minute apart, until a turn has run again.
fn until_a_turn(sandbox: &Sandbox) -> usize {
    let ran = (1..10).find(|_| {
        sandbox.pass(60);
        step(sandbox)["terminal"].is_string()
    });
    ran.expect("no turn has run")
}

fn repaired(sandbox: &Sandbox) -> Vec<String> {
    let events = sandbox.json_lines(["events", "ada", "--kind", "record_repaired"]);
    assert!(events.iter().all(|event| event["data"]["reason"] == "clock_in_future"), "{events:?}");
    texts(&events, "data.moment")
}

#[test]
fn a_turn_that_failed_or_was_put_off_by_a_clock_that_ran_ahead_is_tried_again_after_its_span() {
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
            let steps = if rests { 2 } else { 1 };
            (0..steps).for_each(|_| drop(ahead(&sandbox, &["tick", "ada"])));
            let advisories = sandbox.json(["get", "ada"])["advisories"].clone();
            assert!(advisories.to_string().contains("clock_in_future"), "{turn}: {advisories}");
            assert!(until_a_turn(&sandbox) <= 3, "{turn}, rests: {rests}");
            assert_eq!(repaired(&sandbox), moments, "{turn}");
            let advisories = sandbox.json(["get", "ada"])["advisories"].clone();
            assert!(!advisories.to_string().contains("clock_in_future"), "{turn}: {advisories}");
            sandbox.run(["doctor"]);
        }
    }
}

#[test]
fn a_limit_that_was_reached_by_a_clock_that_ran_ahead_is_back_with_this_day() {
    let sandbox = started_with("true", "[limits]\nturns_per_day = 1\n");
    say(&sandbox, "x");
    ahead(&sandbox, &["tick", "ada"]);
    say(&sandbox, "y");
    ahead(&sandbox, &["tick", "ada"]);
    let waiting = step(&sandbox);
    assert_eq!(
        (decision(&waiting), &waiting["next_due_at"]),
        ("wait_for_resources (turns_per_day)".to_owned(), &json!("2026-01-03T00:00:00.000Z"))
    );
    sandbox.pass(24 * 3600);
    assert_eq!(decision(&step(&sandbox)), "start_model_turn (resources_available) completed");
}

#[test]
fn a_key_that_was_used_by_a_clock_that_ran_ahead_swallows_nothing_for_years() {
    let sandbox = started("true");
    let said = |ahead_of: bool| {
        let words = ["enqueue", "ada", "x", "--dedupe-key", "k"];
        if ahead_of { ahead(&sandbox, &words).remove(0) } else { sandbox.json(words) }
    };
    assert_eq!(said(true)["duplicate"], false);
    let first = said(false);
    assert_eq!(first["duplicate"], false, "it is of another time");
    assert_eq!((&said(false)["duplicate"], &said(false)["message_id"]), (&json!(true), &first["message_id"]));
}

#[test]
fn an_interval_that_fired_by_a_clock_that_ran_ahead_goes_on_from_now() {
    let sandbox = started("true");
    sandbox.run(["timer", "add", "--every", "1m", "look", "-a", "ada"]);
    ahead(&sandbox, &["tick", "ada", "--until-idle"]);
    assert!(until_a_turn(&sandbox) <= 3);
    assert!(field(&sandbox, "next_due_at").starts_with("2026-01-02T"));
}
