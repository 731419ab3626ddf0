//! Tests that the next step does what `tick --dry-run`, `explain` and `next-wake` predict, also
//! after a command was killed.
//!
//! The commands of the crash tests, and some more, are killed at their system calls. CI takes a
//! sample with a seed; `DORMOUSE_FORECASTS=all cargo test --test it forecasts` takes every call,
//! and `DORMOUSE_FORECASTS_SEED` draws another sample.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Sandbox, each_in_parallel};
use crate::scenarios::{AGENT, SCENARIOS, Scenario, after, command, created, queued, started, tick};
use crate::setup::{
    Beside, decision, edit_state, eventually, extend_policy, field, hook, number, objects, processes, record,
    say, words,
};
use crate::strace::{self, Call, Harm};

/// Number of kills in a sample.
const SAMPLE: usize = 120;

/// Number of steps that are compared after a kill.
const STEPS: usize = 3;

/// Situations that the crash tests lack: several processes, or many messages in the inbox.
const SITUATIONS: &[Scenario] = &[
    tick("the backoff of a failure is over", || {
        let sandbox = with_message("false", "[recovery]\nmax_attempts = 3\n");
        sandbox.cmd(words("tick ada")).output();
        sandbox.pass(3600);
        sandbox
    }),
    tick("an outcome that begins a task and delegates", || {
        const ANSWER: &str = r#"case $(cat "$DORMOUSE_CONTEXT") in *task_result*) ;; *)
                printf '{"actions": [
                    {"do": "task.start", "command": ["sh", "-c", "until test -e go || ! test -e $HOME; do sleep 0.05; done"]},
                    {"do": "task.start", "delegate": "kid", "text": "help"},
                    {"do": "wait", "kind": "task", "reason": "the help of the kid"}]}' > "$DORMOUSE_OUTCOME"
                esac"#;
        with_message(ANSWER, "")
    }),
    tick("an outcome that the last attempt leaves, and then the agent stops", || {
        with_message("false", "[recovery]\nmax_attempts = 1\non_exhausted = \"stop\"\n")
    }),
    command("the start of a task", "task start -a ada -- sh -c UNTIL_GO", started),
    tick("a task without its supervisor", without_supervisor),
    command("the stop of an agent with a task", "stop ada", without_supervisor),
    command("the start of a delegation", DELEGATION, started),
    command("the end of a delegation", "tick kid", || {
        after(started(), &[DELEGATION, "enqueue kid more", "tick kid"])
    }),
    tick("more dropped files than a step takes in", || {
        let sandbox = started();
        extend_policy(&sandbox, AGENT, "[limits]\nmax_drops_per_step = 2\n");
        for at in 0..5 {
            let body = format!("{{\"text\":\"{at}\",\"dedupe_key\":\"{}\"}}\n", at / 2);
            fs::write(sandbox.agent(AGENT).join(format!("inbox/{at}.json")), body).unwrap();
        }
        fs::write(sandbox.agent(AGENT).join("inbox/0-bad.json"), "{").unwrap();
        fs::write(sandbox.agent(AGENT).join("inbox/1-bad.json"), "{").unwrap();
        sandbox
    }),
    tick("a file that interjects is dropped into a backoff", || {
        let sandbox = with_message("false", "[recovery]\nmax_attempts = 3\nbase = \"1h\"\n");
        sandbox.cmd(words("tick ada")).output();
        let body = "{\"text\":\"now\",\"priority\":\"interject\"}\n";
        fs::write(sandbox.agent(AGENT).join("inbox/now.json"), body).unwrap();
        sandbox
    }),
    tick("a message behind many that are stale", || {
        let sandbox = started();
        let batch: String = (0..70).map(|at| format!("{{\"text\":\"{at}\",\"ttl\":\"1s\"}}\n")).collect();
        assert_eq!(sandbox.cmd(words("enqueue ada --batch")).stdin(batch).output().code(), 0);
        sandbox.pass(3600);
        sandbox.run(words("enqueue ada fresh"));
        sandbox
    }),
    tick("a message behind many invalid files", || {
        let sandbox = started();
        let inbox = sandbox.agent(AGENT).join("inbox");
        for at in 0..70 {
            fs::write(inbox.join(format!("0-msg_{at:08x}00007000800000000000000{}.json", at % 7)), "{}")
                .unwrap();
        }
        sandbox.run(words("enqueue ada fresh"));
        sandbox
    }),
    tick("transitions with an on-state-change hook", || {
        let sandbox = queued();
        hook(&sandbox.store(), "on-state-change", "true");
        sandbox
    }),
];

const DELEGATION: &str = "task start -a ada --delegate kid help";

/// Started agent with this turn and policy, which has a pending message.
fn with_message(turn: &str, policy: &str) -> Sandbox {
    after(created(turn, policy), &["start ada", "enqueue ada hello"])
}

/// Agent with a task whose supervisor and command were killed.
fn without_supervisor() -> Sandbox {
    let sandbox = started();
    sandbox.run(words("task start -a ada -- sleep 86400"));
    let kill = |line: &String| {
        let pid = line.split(' ').next().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
    };
    eventually("the end of all processes", || {
        let left = processes(&sandbox);
        left.iter().for_each(kill);
        left.is_empty().then_some(())
    });
    sandbox
}

/// Kill of a command at one system call. Each command belongs to one scenario.
struct Cut {
    name: &'static str,
    /// Index of the scenario in the list of all scenarios.
    place: usize,
    args: Vec<String>,
    stdin: &'static str,
    call: Call,
    number: usize,
}

#[test]
fn predictions_hold_after_a_kill_at_any_call() {
    needs!("strace");
    let of_crashes = SCENARIOS.iter().filter(|scenario| scenario.name != "tick: a backlog is filed");
    let situations: Vec<&Scenario> = of_crashes.chain(SITUATIONS).collect();
    let only = std::env::var("DORMOUSE_FORECASTS").unwrap_or_default();
    let templates: Vec<Sandbox> = situations.iter().map(|situation| (situation.prepare)()).collect();
    let mut cuts = Vec::new();
    for (place, (situation, template)) in situations.iter().zip(&templates).enumerate() {
        let args = situation.args(template);
        let shown: Vec<&str> = args.iter().map(String::as_str).collect();
        let points = strace::record(&template.copy(), &shown, situation.stdin).points();
        for (number, call) in points.into_iter().enumerate() {
            let (args, stdin) = (args.clone(), situation.stdin);
            cuts.push(Cut { name: situation.name, place, args, stdin, call, number });
        }
    }
    let all = cuts.len();
    match only.as_str() {
        "" => cuts = sample(cuts),
        "all" => {}
        part => cuts.retain(|cut| cut.name.contains(part)),
    }
    println!("{} of {all} cuts in {} situations", cuts.len(), situations.len());
    each_in_parallel(&cuts, |cut| {
        let sandbox = templates[cut.place].copy();
        let shown: Vec<&str> = cut.args.iter().map(String::as_str).collect();
        let harmed = strace::harm(&sandbox, &shown, cut.stdin, &cut.call, Harm::Kill);
        sandbox.leave();
        let what = format!("{}, killed at {} (really: {:?})", cut.name, cut.call, harmed.hit);
        if cut.number % 2 == 1 {
            sandbox.pass(7200);
        }
        for step in 1..=STEPS {
            assert_predicted(&sandbox, &format!("{what}, step {step}"));
        }
    });
}

/// Returns a sample, which depends only on the seed and has at least one kill of each situation.
fn sample(cuts: Vec<Cut>) -> Vec<Cut> {
    let mut state = number("DORMOUSE_FORECASTS_SEED", 1);
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let one_in = (cuts.len() / SAMPLE).max(1);
    let mut seen = std::collections::BTreeSet::new();
    cuts.into_iter().filter(|cut| draw(one_in) == 0 || seen.insert(cut.place)).collect()
}

/// Returns the fields of a decision, without ids that only the step itself creates.
fn told(step: &Value, is_known: impl Fn(&str) -> bool) -> Value {
    let fields = words("decision reason evidence continuation model_reentry liveness_only recovered_run_id");
    let mut told: Vec<Value> = fields.iter().map(|field| step[*field].clone()).collect();
    for id in ["message_id", "work_item_id", "task_id"] {
        told.push(step[id].as_str().filter(|id| is_known(id)).into());
    }
    if step["reason"] == "turn_in_progress" {
        told.push(step["run_id"].clone());
    }
    json!(told)
}

/// Asserts that `tick --dry-run`, `explain` and `next-wake` predict the next step. Returns it.
#[track_caller]
fn assert_predicted(sandbox: &Sandbox, what: &str) -> Value {
    // The file `go` lets tasks end that earlier commands have started. The test then removes the
    // file, so that a task of this step does not end before the step has decided.
    let go = sandbox.project().join("go");
    fs::write(&go, "").unwrap();
    eventually("the end of all processes", || processes(sandbox).is_empty().then_some(()));
    fs::remove_file(&go).unwrap();
    // Predictions depend on the time, so all commands of this comparison get the same one.
    let now = next_time(sandbox);
    let ask = |words: &[&str]| {
        let ran = sandbox.cmd([&["--json"], words].concat()).env("DORMOUSE_NOW", &now).output();
        assert!(
            [0, 7].contains(&ran.code()),
            "{what}: {words:?}: {ran}\nreproduce:\n{}",
            sandbox.reproduction()
        );
        (objects(&ran.stdout).into_iter().next().unwrap_or_default(), ran)
    };
    let waiting: Vec<String> =
        ["inbox", "work", "tasks"].iter().flat_map(|dir| walk(&sandbox.agent(AGENT).join(dir))).collect();
    let is_known = |id: &str| waiting.iter().any(|name| name.contains(id));
    let (foreseen, _) = ask(&["tick", AGENT, "--dry-run"]);
    let (explained, _) = ask(&["explain", AGENT]);
    let (wake, _) = ask(&["next-wake", AGENT]);
    let before = record(sandbox, "state.json");
    let (done, ran) = ask(&["tick", AGENT]);
    let reproduce = || format!("{ran}\nreproduce:\n{}", sandbox.reproduction());
    assert_eq!(told(&foreseen, is_known), told(&done, is_known), "{what}: a dry run\n{}", reproduce());
    let mut reason = explained["decision"].clone();
    for field in ["model_reentry", "liveness_only", "recovered_run_id"] {
        reason[field] = foreseen[field].clone();
    }
    assert_eq!(told(&reason, is_known), told(&done, is_known), "{what}: explain\n{}", reproduce());
    let is_due = wake["next_due_at"].as_str().is_some_and(|at| *at <= *now);
    let moved = ["start_recovery", "start_model_turn", "reduce_message_only", "emit_system_tick"]
        .contains(&done["decision"].as_str().unwrap_or_default());
    let did = moved || done["recovered_run_id"].is_string() || done["attention"].is_array();
    assert!(is_due || !did, "{what}: next-wake says {wake}\n{}", reproduce());
    let after = record(sandbox, "state.json");
    assert!(
        !is_due || before != after,
        "{what}: next-wake says {wake}, but the step has changed nothing\n{}",
        reproduce()
    );
    done
}

/// Returns the time of the next command as a value of `DORMOUSE_NOW`.
fn next_time(sandbox: &Sandbox) -> String {
    let ran = sandbox.program("sh", ["-c", "printf %s \"$DORMOUSE_NOW\""].map(Into::into).into()).output();
    format!("{}.000Z", ran.stdout.trim_end_matches('Z'))
}

/// Returns the names of all files below a directory.
fn walk(dir: &std::path::Path) -> Vec<String> {
    walkdir::WalkDir::new(dir)
        .into_iter()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect()
}

#[test]
fn a_dry_run_predicts_the_step_during_a_stop() {
    let sandbox = crate::setup::started("trap : TERM; touch up; until test -e go; do sleep 0.05; done");
    say(&sandbox, "work");
    let tick = Beside::start(sandbox.cmd(["tick", AGENT])).after_it_made(sandbox.project().join("up"));
    assert_eq!(decision(&assert_predicted_live(&sandbox, "a live turn")), "noop (turn_in_progress)");
    let stop = Beside::start(sandbox.cmd(["stop", AGENT, "--grace", "1h"]));
    eventually("the status stopped", || (field(&sandbox, "status") == "stopped").then_some(()));
    assert_eq!(decision(&assert_predicted_live(&sandbox, "a stop in progress")), "stop (stopped)");
    fs::write(sandbox.project().join("go"), "").unwrap();
    assert_eq!((stop.end().code(), tick.end().code()), (0, 0));
    assert_eq!(decision(&assert_predicted(&sandbox, "a stopped agent")), "stop (stopped)");
}

#[test]
fn a_dry_run_predicts_the_step_during_a_recovery() {
    let sandbox = crate::setup::started("exit 1");
    hook(&sandbox.agent(AGENT), "on-recovery-start", "touch up; until test -e go; do sleep 0.05; done");
    say(&sandbox, "work");
    sandbox.cmd(["tick", AGENT]).exits(7);
    sandbox.pass(3600);
    let tick = Beside::start(sandbox.cmd(["tick", AGENT])).after_it_made(sandbox.project().join("up"));
    assert_eq!(decision(&assert_predicted_live(&sandbox, "a live recovery")), "noop (turn_in_progress)");
    fs::write(sandbox.project().join("go"), "").unwrap();
    tick.end().exits(0);
    assert_predicted(&sandbox, "after the recovery");
}

/// Predictions hold for a run on another machine, also if its clock is years ahead.
#[test]
fn a_dry_run_predicts_the_step_during_a_run_of_another_machine() {
    needs!("strace");
    for claimed_at in [None, Some("2099-01-01T00:00:00.000Z")] {
        let sandbox = queued();
        let points = strace::record(&sandbox.copy(), &["tick", AGENT], "").points();
        let noted = points.iter().find(|call| call.is_about_end_note()).unwrap();
        strace::harm(&sandbox, &["tick", AGENT], "", noted, Harm::Kill);
        edit_state(&sandbox, |state| {
            let run = &mut state["current_run"];
            (run["host"], run["boot_id"]) = (json!("elsewhere"), json!("another boot"));
            if let Some(at) = claimed_at {
                (run["claimed_at"], run["lease_expires_at"]) = (json!(at), json!("2099-01-01T01:00:00.000Z"));
            }
        });
        let dry = sandbox.json(["tick", AGENT, "--dry-run"]);
        let what = format!("claimed at {claimed_at:?}");
        let live = assert_predicted_live(&sandbox, &what);
        assert_eq!(decision(&live), "noop (turn_in_progress)");
        assert_eq!(dry["next_due_at"].as_str().map(|at| &at[..4]), Some("2026"), "{what}: {dry}");
        sandbox.pass(10 * 24 * 3600);
        for step in 1..=STEPS {
            assert_predicted(&sandbox, &format!("{what}, step {step}"));
        }
    }
}

/// Asserts that `tick --dry-run` and `explain` predict the next step, which changes nothing because
/// another process works on the agent.
#[track_caller]
fn assert_predicted_live(sandbox: &Sandbox, what: &str) -> Value {
    let foreseen = sandbox.json(["tick", AGENT, "--dry-run"]);
    let explained = sandbox.json(["explain", AGENT]);
    let done = sandbox.json(["tick", AGENT]);
    assert_eq!(told(&foreseen, |_| true), told(&done, |_| true), "{what}: a dry run");
    assert_eq!(explained["decision"]["decision"], done["decision"], "{what}: explain");
    assert_eq!(explained["decision"]["reason"], done["reason"], "{what}: explain");
    let holds = explained["ladder"].as_array().into_iter().flatten().find(|rung| rung["holds"] == true);
    let rung = holds.and_then(|rung| rung["decision"].as_str()).unwrap_or_default();
    let is_it = rung.split(", ").any(|one| done["decision"] == one);
    assert!(is_it, "{what}: the first rung that holds is {rung}");
    done
}
