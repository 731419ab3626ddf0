//! Tests the timeouts of states (contract, execution §4) to the millisecond, with the timeout set,
//! unset and switched off.

use std::fs;

use chrono::{DateTime, SecondsFormat};
use serde_json::{Value, json};

use crate::harness::{Sandbox, each_in_parallel};
use crate::setup::{
    Beside, assert_includes, decision, eventually, extend_policy, failure, field, hook, lives, names, noted,
    objects, own_name, record, say, started, step, step_on, wait_for_line,
};

/// Returns an agent `ada` that was never started.
fn created() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "ada", "--shell", "true"]);
    sandbox
}

/// State with a time limit that a step enforces.
struct Limited {
    state: &'static str,
    key: &'static str,
    /// Time limit of `state` without a setting, in milliseconds.
    default: i64,
    reason: &'static str,
    /// Decision of a step exactly at the time limit of `state`.
    in_time: &'static str,
    /// Decision of a step in `state` years later, if the setting switches the time limit off.
    unlimited: &'static str,
}

const LIMITED: [Limited; 3] = [
    Limited {
        state: "waiting_resources",
        key: "resources",
        default: 300_000,
        reason: "resource_timeout",
        in_time: "wait_for_resources (the turn asked to come back later (exit status 75))",
        unlimited: "start_model_turn (resources_available) deferred",
    },
    Limited {
        state: "suspended",
        key: "suspend",
        default: 3_600_000,
        reason: "suspend_timeout",
        in_time: "wait_for_resources (suspended: its turn yielded)",
        unlimited: "wait_for_resources (suspended: its turn yielded)",
    },
    Limited {
        state: "recovering",
        key: "recovery",
        default: 120_000,
        reason: "recovery_timeout",
        in_time: "start_recovery (retry)",
        unlimited: "start_recovery (retry)",
    },
];

/// Pause after each failure and deferral, in milliseconds: longer than any limit in this file.
const DAY: i64 = 24 * 3600 * 1000;

/// Returns an agent in the state of `limited`, which only time or an operator's command ends.
fn agent_in(limited: &Limited, setting: Option<&str>) -> Sandbox {
    let turn = match limited.state {
        "waiting_resources" => "exit 75".to_owned(),
        "suspended" => format!("{} yield", own_name()),
        _ => "exit 1".to_owned(),
    };
    let sandbox = started(&turn);
    let timeout = setting.map(|setting| format!("{} = {setting}\n", limited.key)).unwrap_or_default();
    let policy = format!(
        "[recovery]\nstrategy = \"fixed\"\nbase = \"1d\"\nmax_delay = \"1d\"\n\n[timeouts]\n{timeout}"
    );
    extend_policy(&sandbox, "ada", &policy);
    step_on(&sandbox, "hello");
    if limited.state == "recovering" {
        let script = r#"test -e "$HOME/go" && exit; echo begun > "$HOME/begun"; exec sleep 600"#;
        hook(&sandbox.agent("ada"), "on-recovery-start", script);
        let recovery =
            Beside::start(sandbox.cmd(["recover", "ada"])).after_it_made(sandbox.home().join("begun"));
        drop(recovery);
        fs::write(sandbox.home().join("go"), "").unwrap();
    }
    assert_eq!(field(&sandbox, "execution.state"), limited.state);
    sandbox
}

#[track_caller]
fn time(value: &Value) -> i64 {
    DateTime::parse_from_rfc3339(value.as_str().unwrap()).unwrap().timestamp_millis()
}

fn shown(millis: i64) -> String {
    DateTime::from_timestamp_millis(millis).unwrap().to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Runs a step at the time `millis`, in milliseconds since 1970.
fn step_at(sandbox: &Sandbox, millis: i64) -> Value {
    let ran = sandbox.cmd(["tick", "ada", "--json"]).env("DORMOUSE_NOW", shown(millis)).output();
    objects(&ran.stdout).remove(0)
}

fn transitions(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.json_lines(["events", "ada", "--kind", "state_transition"])
}

/// Checks that no state transition has the given cause.
#[track_caller]
fn assert_never_caused(sandbox: &Sandbox, cause: &str, name: &str) {
    let causes: Vec<Value> =
        transitions(sandbox).into_iter().map(|event| event["data"]["cause"].clone()).collect();
    assert!(!causes.contains(&json!(cause)), "{name}: {causes:?}");
}

const SET: &str = "\"1m30s250ms\"";

fn setting_millis(limited: &Limited, setting: Option<&str>) -> i64 {
    if setting == Some(SET) { 90_250 } else { limited.default }
}

#[test]
fn a_state_fails_one_millisecond_after_its_timeout() {
    let cases: Vec<_> =
        LIMITED.iter().flat_map(|limited| [None, Some(SET)].map(|setting| (limited, setting))).collect();
    each_in_parallel(&cases, |(limited, setting)| {
        let sandbox = agent_in(limited, *setting);
        let before = record(&sandbox, "state.json");
        let message = sandbox.json(["queue", "list", "-a", "ada"]);
        let name = format!("{} {setting:?}", limited.state);
        let limit = time(&before["execution"]["since"]) + setting_millis(limited, *setting);
        assert_eq!(field(&sandbox, "execution.timeout_at"), shown(limit), "{name}");
        assert_eq!(field(&sandbox, "next_due_at"), shown(limit + 1), "{name}");
        if limited.state != "recovering" {
            // A recovery without a tick is due at once, not at its time limit.
            assert_eq!(sandbox.run(["next-wake", "ada"]).trim_end(), shown(limit + 1), "{name}");
        }

        let in_time = sandbox.copy();
        assert_eq!(decision(&step_at(&in_time, limit)), limited.in_time, "{name}");
        assert_never_caused(&in_time, limited.reason, &name);
        if limited.state != "recovering" {
            assert_eq!(record(&in_time, "state.json")["execution"], before["execution"], "{name}");
        }

        let over = limit + 1;
        let stepped = step_at(&sandbox, over);
        assert_eq!(decision(&stepped), "wait_for_timer (recovery_backoff)", "{name}");
        let not_before = shown(over + DAY);
        assert_eq!(
            ["status", "execution_state", "next_due_at"].map(|field| stepped[field].as_str().unwrap()),
            ["awake_idle", "failed", &*not_before],
            "{name}"
        );
        let state = record(&sandbox, "state.json");
        let execution = ["state", "since", "reason"].map(|field| state["execution"][field].clone());
        assert_eq!(execution, [json!("failed"), json!(shown(over)), json!(limited.reason)], "{name}");
        assert_eq!(state["retry"]["not_before"], not_before, "{name}");
        assert_eq!(state["retry"]["reason"], limited.reason, "{name}");
        assert_eq!(state["held"], Value::Null, "{name}");
        let event = transitions(&sandbox).pop().unwrap();
        let edge = ["from", "to", "cause"].map(|field| event["data"][field].clone());
        assert_eq!(edge, [json!(limited.state), json!("failed"), json!(limited.reason)], "{name}");
        assert_eq!(event["at"], shown(over), "{name}");
        let machine = sandbox.json(["state", "ada"]);
        assert_eq!(
            (&machine["reason"], &machine["history"][0]["cause"], &machine["next"]),
            (&json!(limited.reason), &json!(limited.reason), &json!(["recovering"])),
            "{name}"
        );
        assert_eq!(field(&sandbox, "execution.timeout_at"), "", "{name}: a failed agent is not late");
        let asked = sandbox.cmd(["next-wake", "ada"]).env("DORMOUSE_NOW", shown(over)).output();
        assert_eq!(asked.stdout.trim_end(), not_before, "{name}");
        let kept = sandbox.json(["queue", "show", message["id"].as_str().unwrap()]);
        assert_eq!((&kept["status"], &kept["attempt"]), (&json!("queued"), &message["attempt"]), "{name}");
        sandbox.run(["doctor"]);
    });
}

#[test]
fn a_disabled_timeout_never_expires() {
    let cases: Vec<_> = LIMITED
        .iter()
        .flat_map(|limited| ["0", "\"0\"", "\"never\""].map(|setting| (limited, setting)))
        .collect();
    each_in_parallel(&cases, |(limited, setting)| {
        let sandbox = agent_in(limited, Some(setting));
        let name = format!("{} {setting}", limited.state);
        assert_eq!(field(&sandbox, "execution.timeout_at"), "", "{name}");
        let since = time(&json!(field(&sandbox, "execution.since")));
        assert_eq!(decision(&step_at(&sandbox, since + 3650 * DAY)), limited.unlimited, "{name}");
        assert_never_caused(&sandbox, limited.reason, &name);
    });
}

#[test]
fn a_resumed_run_has_no_suspend_timeout() {
    let suspended = &LIMITED[1];
    let sandbox = agent_in(suspended, Some("\"1ms\""));
    assert_ne!(field(&sandbox, "execution.timeout_at"), "");
    let late = sandbox.copy();
    assert_eq!(decision(&step(&late)), "wait_for_timer (recovery_backoff)");
    sandbox.cmd(["resume", "ada"]).exits(0);
    assert_eq!(field(&sandbox, "execution.timeout_at"), "");
    sandbox.pass(365 * 24 * 3600);
    assert_eq!(decision(&step(&sandbox)), "start_model_turn (resume_suspended) suspended");
}

#[test]
fn an_unstarted_agent_has_no_init_timeout() {
    let sandbox = created();
    extend_policy(&sandbox, "ada", "[timeouts]\ninit = \"1ms\"\n");
    let before = record(&sandbox, "state.json");
    sandbox.pass(365 * 24 * 3600);
    assert_eq!(field(&sandbox, "execution.timeout_at"), "");
    assert_eq!(sandbox.run(["next-wake", "ada"]), "");
    assert_eq!(decision(&step(&sandbox)), "noop (not_started)");
    assert_eq!(record(&sandbox, "state.json")["execution"], before["execution"]);
    sandbox.run(["start", "ada"]);
    assert_eq!(field(&sandbox, "execution.state"), "runnable");
}

#[test]
fn a_start_ends_after_the_shorter_of_the_init_and_hook_timeouts() {
    for (init, hook_limit) in [
        ("\"100ms\"", "\"1h\""),
        ("\"100ms\"", "\"never\""),
        ("\"1h\"", "\"100ms\""),
        ("0", "\"100ms\""),
        ("\"never\"", "\"100ms\""),
    ] {
        let name = format!("init {init}, hook {hook_limit}");
        let sandbox = created();
        extend_policy(&sandbox, "ada", &format!("[timeouts]\ninit = {init}\nhook = {hook_limit}\n"));
        hook(&sandbox.agent("ada"), "on-startup", r#"sleep 600 & echo $! > "$HOME/noted"; wait"#);
        let before = record(&sandbox, "state.json");
        let ran = sandbox.cmd(["start", "ada", "--json"]).exits(1);
        assert_eq!(failure(&ran)["message"], "on-startup failed: timed out after 100ms", "{name}");
        assert!(!noted(&sandbox).iter().any(lives), "{name}: a process of the hook is left");
        assert_eq!(names(&sandbox.agent("ada").join("tmp")), Vec::<String>::new(), "{name}");
        // A failed start leaves the state as it was, but the time limit counts from this start.
        let after = record(&sandbox, "state.json");
        let expected = (&json!("initializing"), &json!("booting"));
        assert_eq!((&after["execution"]["state"], &after["status"]), expected, "{name}");
        assert!(time(&after["execution"]["since"]) > time(&before["execution"]["since"]), "{name}");
        assert_eq!(transitions(&sandbox), Vec::<Value>::new(), "{name}");
    }
    let sandbox = created();
    extend_policy(&sandbox, "ada", "[timeouts]\ninit = 0\nhook = \"never\"\n");
    let script = r#"echo up > "$HOME/up"; while ! test -e "$HOME/go"; do sleep 0.02; done"#;
    hook(&sandbox.agent("ada"), "on-startup", script);
    let start = Beside::start(sandbox.cmd(["start", "ada"])).after_it_made(sandbox.home().join("up"));
    fs::write(sandbox.home().join("go"), "").unwrap();
    assert_eq!(start.end().code(), 0);
    assert_eq!(field(&sandbox, "execution.state"), "runnable");
}

#[test]
fn a_killed_start_fails_after_the_init_timeout_and_can_be_repeated() {
    let sandbox = created();
    let script = r#"echo up >> "$HOME/up"; test -e "$HOME/go" || exec sleep 600"#;
    hook(&sandbox.agent("ada"), "on-startup", script);
    let start = Beside::start(sandbox.cmd(["start", "ada"]));
    wait_for_line(&sandbox.home().join("up"));
    drop(start);
    let since = time(&sandbox.json(["get", "ada"])["execution"]["since"]);
    let limit = since + 60_000;
    assert_eq!(time(&sandbox.json(["get", "ada"])["execution"]["timeout_at"]), limit);
    assert_eq!(time(&sandbox.json(["get", "ada"])["next_due_at"]), limit + 1);
    for (at, did, state, status) in [
        (limit, "noop (not_started)", "initializing", "booting"),
        (limit + 1, "stop (stopped)", "failed", "stopped"),
    ] {
        assert_eq!(decision(&step_at(&sandbox, at)), did);
        assert_eq!(field(&sandbox, "execution.state"), state);
        assert_eq!(field(&sandbox, "status"), status);
    }
    assert_eq!(field(&sandbox, "execution.reason"), "init_timeout");
    // `on-startup` runs again at the next start, and ends because the file `go` exists.
    fs::write(sandbox.home().join("go"), "").unwrap();
    sandbox.run(["start", "ada"]);
    assert_eq!(fs::read_to_string(sandbox.home().join("up")).unwrap(), "up\nup\n");
    assert_eq!(decision(&step_at(&sandbox, limit + 1000)), "wait_for_timer (recovery_backoff)");
    assert_eq!(decision(&step_at(&sandbox, limit + 1001)), "start_recovery (retry)");
    assert_eq!(field(&sandbox, "execution.state"), "runnable");
}

#[test]
fn the_shutdown_timeout_can_not_be_disabled() {
    for off in ["0", "\"0\"", "\"0s\"", "\"never\""] {
        let sandbox = started("true");
        let policy = format!("[turn]\ncommand = [\"true\"]\n\n[timeouts]\nshutdown = {off}\n");
        fs::write(sandbox.project().join("ada.toml"), &policy).unwrap();
        fs::write(sandbox.agent("ada").join("agent.toml"), &policy).unwrap();
        let wrong = "5:12: timeouts.shutdown can't be switched off";
        let place = "[SANDBOX]/project/.dormouse/agents/ada/agent.toml";
        for command in ["tick", "stop"] {
            let expected =
                format!("dormouse: ada: {place}:{wrong}\nhint: correct it with `dormouse edit ada`\n");
            sandbox.cmd([command, "ada"]).status(6).complains(&expected);
        }
        let ran = sandbox.cmd(["create", "bob", "--from", "ada.toml"]).output();
        assert!(ran.code() != 0 && ran.stderr.contains(wrong), "{off}: {ran}");
    }
}

#[test]
fn a_stop_kills_the_turn_after_the_shutdown_timeout() {
    let stubborn = r#"trap "" TERM; echo up > "$HOME/up"; exec sleep 600"#;
    for (setting, grace, millis) in [
        (None, None, 30_000),
        (Some("\"1m30s250ms\""), None, 90_250),
        (Some("\"1s\""), Some("1h"), 3_600_000),
    ] {
        let name = format!("{setting:?} {grace:?}");
        let sandbox = started(stubborn);
        if let Some(setting) = setting {
            extend_policy(&sandbox, "ada", &format!("[timeouts]\nshutdown = {setting}\n"));
        }
        say(&sandbox, "hello");
        let tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("up"));
        let words = ["stop", "ada"].into_iter().chain(grace.into_iter().flat_map(|grace| ["--grace", grace]));
        let stop = Beside::start(sandbox.cmd(words));
        eventually("shutting_down", || (field(&sandbox, "execution.state") == "shutting_down").then_some(()));
        let limit = time(&json!(field(&sandbox, "execution.since"))) + millis;
        assert_eq!(field(&sandbox, "current_run.stopping.kill_at"), shown(limit), "{name}");
        assert_eq!(field(&sandbox, "execution.timeout_at"), shown(limit), "{name}");
        // The first `stop` is killed. A second one, after the shutdown timeout, must not wait.
        drop(stop);
        sandbox.cmd(["stop", "ada"]).env("DORMOUSE_NOW", shown(limit + 1)).exits(0);
        tick.end();
        let event = transitions(&sandbox).pop().unwrap();
        let expected = json!({ "from": "shutting_down", "to": "failed", "cause": "shutdown_timeout" });
        assert_eq!(event["data"], expected, "{name}");
        assert_eq!(field(&sandbox, "execution.reason"), "shutdown_timeout", "{name}");
        assert_eq!(field(&sandbox, "execution.timeout_at"), "", "{name}");
    }
}

#[test]
fn a_wait_expires_one_millisecond_after_its_limit_or_never_without_one() {
    let shell = r#"test -e "$HOME/waited" || { echo > "$HOME/waited"; exec sh "$HOME/wait"; }"#;
    for (expires, millis) in [(Some("1m30s250ms"), Some(90_250)), (None, None)] {
        let sandbox = started(shell);
        let flags = expires.map(|span| format!("--expires {span}")).unwrap_or_default();
        let wait = format!("{} wait --on operator --reason why {flags}", own_name());
        fs::write(sandbox.home().join("wait"), wait).unwrap();
        say(&sandbox, "hello");
        assert_eq!(step(&sandbox)["execution_state"], "waiting");
        let id = sandbox.json(["wait", "list", "-a", "ada"])["id"].as_str().unwrap().to_owned();
        let since = time(&json!(field(&sandbox, "execution.since")));
        let years_later = since + 3650 * DAY;
        assert_eq!(
            field(&sandbox, "execution.timeout_at"),
            "",
            "{expires:?}: a timeout besides that of the wait"
        );
        let Some(millis) = millis else {
            assert_eq!(sandbox.run(["next-wake", "ada"]), "");
            assert_eq!(decision(&step_at(&sandbox, years_later)), "wait_for_operator (agent_operator_wait)");
            assert_eq!(field(&sandbox, "execution.state"), "waiting");
            continue;
        };
        let limit = since + millis;
        assert_eq!(sandbox.json(["wait", "list", "-a", "ada"])["expires_at"], shown(limit));
        assert_eq!(field(&sandbox, "next_due_at"), shown(limit + 1));

        let in_time = sandbox.copy();
        let before = record(&in_time, "state.json");
        assert_eq!(decision(&step_at(&in_time, limit)), "wait_for_operator (agent_operator_wait)");
        assert_eq!(in_time.run(["next-wake", "ada"]).trim_end(), shown(limit + 1));
        assert_eq!(record(&in_time, "state.json")["execution"], before["execution"]);
        assert_eq!(in_time.json(["wait", "list", "-a", "ada"])["status"], "active");

        assert_eq!(decision(&step_at(&sandbox, limit + 1)), "start_model_turn (system_tick) completed");
        let ended = sandbox.json_lines(["events", "ada", "--kind", "wait_transition"]).pop().unwrap();
        assert_includes(&ended, json!({ "data.wait_id": id, "data.to": "expired", "at": shown(limit + 1) }));
        assert_eq!(sandbox.run(["wait", "list", "-a", "ada"]), "");
        assert_eq!(field(&sandbox, "execution.state"), "completed");
    }
}
