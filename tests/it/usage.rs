//! `usage`: what turns have used, by agent, day or model, and what is left of the budgets.

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{add, say, started_with};

/// `ada` has used something on three days, `bob` has a budget and has done nothing.
fn lived() -> Sandbox {
    let sandbox = started_with("case \"$(cat)\" in
        *'\"text\": \"fail\"'*) exit 1 ;;
        *'\"text\": \"large\"'*) echo '{\"usage\": {\"input_tokens\": 1000, \"cost_usd\": 0.1, \"model\": \"large\"}}' ;;
        *) echo '{\"usage\": {\"input_tokens\": 10, \"output_tokens\": 5, \"cost_usd\": 0.2, \"model\": \"small\"}}' ;;
        esac > \"$DORMOUSE_OUTCOME\"", "[recovery]\nmax_attempts = 1\n[limits]\ncost_per_day = 0.5\nturns_per_hour = 10\n");
    add(&sandbox, "bob", "true");
    for text in ["small", "large", "fail"] {
        say(&sandbox, text);
        sandbox.cmd(["tick", "ada", "--until-idle"]).output();
        sandbox.pass(24 * 3600);
    }
    say(&sandbox, "small");
    sandbox.cmd(["tick", "ada", "--until-idle"]).output();
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
    for (field, expected) in [
        ("turns", json!(4)),
        ("completed", json!(3)),
        ("failed", json!(1)),
        ("input_tokens", json!(1020)),
        ("output_tokens", json!(10)),
        ("cost_usd", json!(0.5)),
        ("limits", json!({ "turns_per_hour": 10, "cost_per_day": 0.5 })),
        ("left", json!({ "turns_per_hour": 9, "cost_per_day": 0.3 })),
    ] {
        assert_eq!(ada[field], expected, "{field} of {ada}");
    }
    let bob = of(&objects, "agent", "bob");
    assert_eq!((&bob["turns"], &bob["left"]), (&json!(0), &Value::Null), "{bob}");
    let total = objects.last().unwrap();
    assert_eq!((&total["total"]["turns"], &total["total"]["cost_usd"]), (&json!(4), &json!(0.5)));
    // Named twice is one agent.
    let twice = sandbox.json_lines(["usage", "ada", "ada"]);
    assert_eq!(of(&twice, "agent", "ada")["turns"], 4, "{twice:?}");
    // A failed turn has said no model.
    let objects = sandbox.json_lines(["usage", "--by", "model"]);
    assert_eq!(of(&objects, "model", "small")["turns"], 2);
    assert_eq!(of(&objects, "model", "large")["input_tokens"], 1000);
    assert_eq!(of(&objects, "model", "")["failed"], 1);
    let objects = sandbox.json_lines(["usage", "ada", "--by", "day"]);
    let days: Vec<&str> = objects.iter().filter_map(|object| object["day"].as_str()).collect();
    assert_eq!(days, ["2026-01-02", "2026-01-03", "2026-01-04", "2026-01-05"]);
    // Days are local ones.
    let ran = sandbox.cmd(["usage", "ada", "--by", "day", "--json"]).env("TZ", "Pacific/Auckland").output();
    assert!(ran.stdout.starts_with("{\"day\":\"2026-01-02\""), "{ran}");
    let ran =
        sandbox.cmd(["usage", "ada", "--by", "day", "--json"]).env("TZ", "America/Los_Angeles").output();
    assert!(ran.stdout.starts_with("{\"day\":\"2026-01-01\""), "{ran}");
}

#[test]
fn since_leaves_out_what_ended_before() {
    let sandbox = lived();
    let turns = |since: &str| sandbox.json_lines(["usage", "ada", "--since", since])[0]["turns"].clone();
    assert_eq!([turns("1h"), turns("25h"), turns("2026-01-01"), turns("2026-01-04T12:00:00Z")], [1, 2, 4, 1]);
    // A month that is over is opened only where it is asked for.
    sandbox.pass(40 * 24 * 3600);
    assert_eq!([turns("7d"), turns("60d")], [0, 4]);
}

#[test]
fn people_get_a_table_with_what_is_left() {
    let sandbox = lived();
    let text = sandbox.run(["usage"]);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(text.starts_with("turns that ended since "), "{text}");
    let lines = &lines[1..];
    assert_eq!(lines[0], ["AGENT", "TURNS", "FAILED", "TOKENS", "IN", "OUT", "USD", "TIME", "LEFT"]);
    assert_eq!(lines[1][..6], ["ada", "4", "1", "1020", "10", "0.5"]);
    assert!(text.contains("9 of 10 turns this hour, 0.3 of 0.5 USD today"), "{text}");
    assert_eq!(lines[2][..3], ["bob", "0", "0"]);
    assert_eq!(lines[3][..3], ["total", "4", "1"]);
    sandbox.cmd(["usage", "nobody"]).exits(3);
    sandbox.cmd(["usage", "--since", "yesterday-ish"]).exits(2);
}
