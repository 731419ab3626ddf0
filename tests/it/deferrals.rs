//! Deferrals: what every command says about a message that is put off, how long that may last, and every way
//! out (contract, execution §8).

use std::fs;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{
    assert_includes, decision, field, hook, objects, say, started, started_with, step, step_on,
};

const UNTIL: &str = "2026-01-02T05:00:00.000Z";

/// A turn that says that its interface is over its limit until five, unless there is a file `open`.
const LIMITED: &str = r#"test -e open && exit 0
    echo '{"deferred": {"resource": "api:x", "until": "2026-01-02T05:00:00Z", "reason": "429"}}' > "$DORMOUSE_OUTCOME"
    exit 75"#;

/// `ada`, whose turn has put the message off until five.
fn put_off() -> (Sandbox, String) {
    let sandbox = started(LIMITED);
    let id = say(&sandbox, "x");
    let deferred = step(&sandbox);
    assert_includes(&deferred, json!({ "terminal": "deferred", "terminal_reason": "api:x: 429" }));
    (sandbox, id)
}

fn tick_at(sandbox: &Sandbox, now: &str) -> Value {
    let ran = sandbox.cmd(["tick", "ada", "--json"]).env("DORMOUSE_NOW", now).output();
    objects(&ran.stdout).remove(0)
}

#[test]
fn the_step_and_every_look_say_what_is_missing_why_and_when_it_is_back() {
    let (sandbox, _) = put_off();
    let said = json!({ "resource": "api:x", "reason": "429", "until": UNTIL });
    let waiting = step(&sandbox);
    assert_eq!(decision(&waiting), "wait_for_resources (api:x: 429)");
    assert_eq!((&waiting["deferred"], &waiting["evidence"]), (&said, &json!([format!("back at {UNTIL}")])));
    assert_eq!(waiting["next_due_at"], UNTIL);
    let held = sandbox.json(["get", "ada"])["held"].clone();
    assert_eq!(
        (&held["resource"], &held["missing"], &held["deferred"]),
        (&json!("api:x"), &json!("api:x: 429"), &said)
    );
    assert_eq!(sandbox.run(["next-wake", "ada"]).trim_end(), UNTIL);
    let explained = sandbox.run(["explain", "ada"]);
    assert!(explained.contains("api:x: 429") && explained.contains(&format!("back {UNTIL}")), "{explained}");
    assert_eq!(field(&sandbox, "execution.reason"), "api:x: 429");
    assert_eq!(field(&sandbox, "execution.timeout_at"), "", "it is not late before that");
    // The moment is the first at which a step tries, hours after `timeouts.resources`.
    assert_eq!(decision(&tick_at(&sandbox, "2026-01-02T04:59:59.999Z")), "wait_for_resources (api:x: 429)");
    fs::write(sandbox.project().join("open"), "").unwrap();
    let done = tick_at(&sandbox, UNTIL);
    assert_eq!(decision(&done), "start_model_turn (resources_available) completed");
    let run = done["run_id"].as_str().unwrap();
    let context = fs::read(sandbox.agent("ada").join("runs").join(run).join("context.json")).unwrap();
    let context: Value = serde_json::from_slice(&context).unwrap();
    assert_eq!((&context["run"]["deferred"], &context["run"]["deferrals"]), (&said, &json!(1)));
}

#[test]
fn without_an_outcome_the_last_line_of_stderr_is_the_reason() {
    let sandbox = started("echo slow down >&2; exit 75");
    say(&sandbox, "x");
    assert_eq!(step(&sandbox)["terminal_reason"], "slow down");
    assert_eq!(field(&sandbox, "held.missing"), "slow down");
}

#[test]
fn a_turn_that_always_puts_itself_off_keeps_its_attempt_and_is_held_in_the_end() {
    for (policy, timeouts) in [
        ("[timeouts]\nresources = \"10s\"\n\n[recovery]\nmax_deferrals = 6\n", true),
        ("[timeouts]\nresources = \"never\"\n\n[recovery]\nmax_deferrals = 6\n", false),
    ] {
        let sandbox = started_with("exit 75", policy);
        let id = say(&sandbox, "x");
        let (mut failures, mut alarms) = (Vec::new(), 0);
        for _ in 0..60 {
            sandbox.pass(3);
            let ran = sandbox.cmd(["tick", "ada", "--json"]).output();
            let stepped = objects(&ran.stdout).remove(0);
            failures.extend(stepped["failure"].as_str().map(str::to_owned));
            alarms += u32::from(stepped["attention"].is_array());
        }
        assert_eq!((!failures.is_empty(), alarms), (timeouts, 1), "{failures:?}");
        assert!(failures.iter().all(|failure| failure == "resource_timeout"), "{failures:?}");
        let why = "held for the operator: put off 6 times in a row (recovery.max_deferrals): \
                   the turn asked to come back later (exit status 75)";
        assert_eq!(field(&sandbox, "held.missing"), why);
        let message = sandbox.json(["queue", "show", &id]);
        assert_eq!((&message["status"], &message["attempt"]), (&json!("dequeued"), &json!(1)));
        sandbox.run(["doctor"]);
    }
}

#[test]
fn each_of_the_operators_ways_leads_out() {
    for (way, message, then) in [
        (vec!["recover ada"], "dequeued", "start_model_turn (resources_available) deferred"),
        (vec!["fail ada --reason enough"], "queued", "start_recovery (retry)"),
        (vec!["queue drop"], "dropped", "start_recovery (after_stop)"),
        (vec!["stop ada", "start ada"], "dequeued", "start_model_turn (resources_available) deferred"),
        (vec!["stop ada --requeue", "start ada"], "queued", "start_recovery (after_stop)"),
        (vec!["stop ada", "stop ada --requeue", "start ada"], "queued", "start_recovery (after_stop)"),
        (vec!["wake ada"], "dequeued", "wait_for_resources (api:x: 429)"),
        (
            vec!["enqueue ada look --priority interject"],
            "dequeued",
            "start_model_turn (resources_available) deferred",
        ),
        (vec!["enqueue ada look"], "dequeued", "wait_for_resources (api:x: 429)"),
    ] {
        let (sandbox, id) = put_off();
        for command in &way {
            let words = command.split(' ').chain((*command == "queue drop").then_some(&*id));
            sandbox.run(words.collect::<Vec<_>>());
        }
        assert_eq!(sandbox.json(["queue", "show", &id])["status"], message, "{way:?}");
        assert_eq!(decision(&step(&sandbox)), then, "{way:?}");
        sandbox.run(["doctor"]);
    }
}

#[test]
fn what_is_refused_names_what_works() {
    let (sandbox, _) = put_off();
    sandbox.cmd(["resume", "ada"]).status(4).complains(
        "dormouse: ada: invalid state transition: waiting_resources -> resumed\n\
         hint: `dormouse recover ada` tries again now\n",
    );
}

#[test]
fn a_recovery_that_fails_is_tried_more_and_more_rarely_and_somebody_is_told() {
    let sandbox = started_with("exit 1", "[recovery]\nmax_attempts = 3\nmax_delay = \"1h\"\n");
    hook(&sandbox.agent("ada"), "on-recovery-start", "echo no disk >&2; exit 1");
    step_on(&sandbox, "x");
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let due = field(&sandbox, "next_due_at");
        let ran = sandbox.cmd(["tick", "ada", "--json"]).env("DORMOUSE_NOW", &due).exits(7);
        let stepped = &objects(&ran.stdout)[0];
        assert_includes(stepped, json!({ "decision": "start_recovery", "failure": "no disk" }));
        let at = |time: &str| chrono::DateTime::parse_from_rfc3339(time).unwrap().timestamp();
        pauses
            .push((at(stepped["next_due_at"].as_str().unwrap()) - at(&due), stepped["attention"].is_array()));
    }
    assert_eq!(pauses, [(1, false), (2, false), (3600, true), (3600, false)]);
}
