//! Tests `usage`: the consumption of turns by agent, day or model, and the rest of the budgets.

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{add, assert_includes, say, started_with, words};

/// Agent `ada` with a turn on each of four days, and agent `bob` without a turn.
fn lived() -> Sandbox {
    let sandbox = started_with("case \"$(cat)\" in
        *'\"text\": \"fail\"'*) exit 1 ;;
        *'\"text\": \"large\"'*) echo '{\"usage\": {\"input_tokens\": 1000, \"cost_usd\": 0.1, \"model\": \"large\"}}' ;;
        *) echo '{\"usage\": {\"input_tokens\": 10, \"output_tokens\": 5, \"cost_usd\": 0.2, \"model\": \"small\"}}' ;;
        esac > \"$DORMOUSE_OUTCOME\"", "[recovery]\nmax_attempts = 1\n[limits]\ncost_per_day = 0.5\nturns_per_hour = 10\n");
    add(&sandbox, "bob", "true");
    for (text, hours) in [("small", 24), ("large", 24), ("fail", 24), ("small", 0)] {
        say(&sandbox, text);
        sandbox.cmd(["tick", "ada", "--until-idle"]).output();
        sandbox.pass(hours * 3600);
    }
    sandbox
}

fn of<'v>(objects: &'v [Value], field: &str, name: &str) -> &'v Value {
    objects.iter().find(|object| object[field] == name).unwrap_or_else(|| panic!("no {name} in {objects:?}"))
}

#[test]
fn turns_are_added_up_by_agent_day_and_model() {
    let sandbox = lived();
    let objects = sandbox.json_lines(["usage"]);
    let ada = of(&objects, "agent", "ada");
    let expected = json!({
        "turns": 4, "completed": 3, "failed": 1, "input_tokens": 1020, "output_tokens": 10, "cost_usd": 0.5,
        "limits": { "turns_per_hour": 10, "cost_per_day": 0.5 },
        "left": { "turns_per_hour": 9, "cost_per_day": 0.3 },
    });
    assert_includes(ada, expected);
    assert_includes(of(&objects, "agent", "bob"), json!({ "turns": 0, "left": null }));
    assert_includes(objects.last().unwrap(), json!({ "total.turns": 4, "total.cost_usd": 0.5 }));
    // An agent that is named twice counts once.
    let twice = sandbox.json_lines(["usage", "ada", "ada"]);
    assert_eq!(of(&twice, "agent", "ada")["turns"], 4, "{twice:?}");
    // The failed turn has reported no model.
    let objects = sandbox.json_lines(["usage", "--by", "model"]);
    assert_eq!(of(&objects, "model", "small")["turns"], 2);
    assert_eq!(of(&objects, "model", "large")["input_tokens"], 1000);
    assert_eq!(of(&objects, "model", "")["failed"], 1);
    let objects = sandbox.json_lines(["usage", "ada", "--by", "day"]);
    let days: Vec<&str> = objects.iter().filter_map(|object| object["day"].as_str()).collect();
    assert_eq!(days, ["2026-01-02", "2026-01-03", "2026-01-04", "2026-01-05"]);
    // A day is a day of the local time zone.
    for (zone, first) in [("Pacific/Auckland", "2026-01-02"), ("America/Los_Angeles", "2026-01-01")] {
        let ran = sandbox.cmd(["usage", "ada", "--by", "day", "--json"]).env("TZ", zone).output();
        assert!(ran.stdout.starts_with(&format!("{{\"day\":\"{first}\"")), "{ran}");
    }
}

#[test]
fn since_omits_turns_that_ended_earlier() {
    let sandbox = lived();
    let turns = |since: &str| sandbox.json_lines(["usage", "ada", "--since", since])[0]["turns"].clone();
    assert_eq!([turns("1h"), turns("25h"), turns("2026-01-01"), turns("2026-01-04T12:00:00Z")], [1, 2, 4, 1]);
    // `--since` reaches into the archive of a past month only if the period does.
    sandbox.pass(40 * 24 * 3600);
    assert_eq!([turns("7d"), turns("60d")], [0, 4]);
}

#[test]
fn usage_prints_a_table_with_the_remaining_limits() {
    let sandbox = lived();
    let text = sandbox.run(["usage"]);
    assert!(text.starts_with("turns that ended since "), "{text}");
    let lines: Vec<Vec<&str>> = text.lines().skip(1).map(words).collect();
    assert_eq!(lines[0], ["AGENT", "TURNS", "FAILED", "TOKENS", "IN", "OUT", "USD", "TIME", "LEFT"]);
    assert_eq!(lines[1][..6], ["ada", "4", "1", "1020", "10", "0.5"]);
    assert!(text.contains("9 of 10 turns this hour, 0.3 of 0.5 USD today"), "{text}");
    assert_eq!(lines[2][..3], ["bob", "0", "0"]);
    assert_eq!(lines[3][..3], ["total", "4", "1"]);
    sandbox.cmd(["usage", "nobody"]).exits(3);
    sandbox.cmd(["usage", "--since", "yesterday-ish"]).exits(2);
}
