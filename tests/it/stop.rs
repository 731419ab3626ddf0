//! Tests `stop` in difficult situations: what it ends in which order, and the records afterwards.

use std::fs;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::checker;
use crate::harness::{Ran, Sandbox};
use crate::setup::{
    Beside, add, assert_includes, edit_state, eventually, extend_policy, failure, field, hook, in_time,
    lives, objects, record, say, started, step, texts, wait_for,
};
use crate::strace::{self, Harm};

const POLITE: &str = "echo done; touch running; until test -e go; do sleep 0.02; done";
const DEAF: &str = "trap '' TERM; echo heard nothing; touch running; while :; do sleep 0.02; done";

/// Returns an agent in a turn, the id of the turn's message, and the tick that runs the turn.
fn running(turn: &str) -> (Sandbox, String, Beside) {
    let sandbox = started(turn);
    let message = say(&sandbox, "work");
    let tick = Beside::start(sandbox.cmd(["tick", "ada", "--json"]))
        .after_it_made(sandbox.project().join("running"));
    (sandbox, message, tick)
}

fn signal(process: &Beside, signal: Signal) {
    rustix::process::kill_process(Pid::from_child(&process.0), signal).unwrap();
}

#[track_caller]
fn ended_well(ran: Ran) -> Value {
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{ran}");
    objects(&ran.stdout).remove(0)
}

#[track_caller]
fn is_sound(sandbox: &Sandbox, agent: &str) -> checker::Found {
    let found = checker::look(&sandbox.agent(agent));
    assert_eq!(found.complaints, Vec::<String>::new());
    assert_eq!(found.leftovers, Vec::<String>::new());
    sandbox.run(["doctor"]);
    found
}

/// Aborts a turn: its message runs again only after the command that `stop` prints was called.
#[test]
fn a_stop_prints_the_command_that_requeues_the_message() {
    let (sandbox, message, tick) = running(POLITE);
    let said = sandbox.run(["stop", "ada", "--now"]);
    tick.end();
    let run = field(&sandbox, "last_turn.run_id");
    let command = format!("dormouse queue requeue {message}");
    let cure = format!("aborted {run}; `{command}` puts its message back\n");
    assert_eq!(said, format!("ada  awake_running → stopped, {cure}"));
    sandbox.run(command.split(' ').skip(1));
    assert_eq!(sandbox.json(["queue", "show", &message])["status"], "queued");
    // `stop --requeue` requeues the message itself, so it prints no command for that.
    let (sandbox, message, tick) = running(POLITE);
    let said = sandbox.run(["stop", "ada", "--now", "--requeue"]);
    tick.end();
    assert!(said.contains("aborted run_") && !said.contains("requeue"), "{said}");
    assert_eq!(sandbox.json(["queue", "show", &message])["status"], "queued");
}

/// Stops an agent in a turn: no message is claimed any more, even before the turn has ended.
#[test]
fn a_stop_prevents_new_claims_before_the_turn_has_ended() {
    let (sandbox, message, tick) = running(&format!("trap : TERM; {POLITE}"));
    let stop = Beside::start(sandbox.cmd(["stop", "ada", "--grace", "1h", "--json"]));
    eventually("the gate", || (field(&sandbox, "status") == "stopped").then_some(()));
    let run = field(&sandbox, "current_run.run_id");
    assert_eq!(field(&sandbox, "execution.state"), "shutting_down");
    let next = sandbox.run(["-q", "enqueue", "ada", "more"]).trim_end().to_owned();
    let meanwhile = sandbox.json(["tick", "ada"]);
    assert_eq!((&meanwhile["decision"], &meanwhile["reason"]), (&json!("stop"), &json!("stopped")));
    sandbox.cmd(["start", "ada"]).exits(4).warns("still being stopped");
    // The turn exits by itself when the file `go` exists, within the grace period.
    fs::write(sandbox.project().join("go"), "").unwrap();
    let expected = json!({
        "agent": "ada", "action": "stop", "previous_status": "awake_running", "status": "stopped",
        "changed": true, "tasks": [], "completed_run_id": run,
    });
    assert_eq!(ended_well(stop.end()), expected);
    let ticked = ended_well(tick.end());
    assert_eq!((&ticked["terminal"], &ticked["brief"]), (&json!("completed"), &json!("done")));
    let execution = sandbox.json(["get", "ada"])["execution"].clone();
    assert_eq!((&execution["state"], &execution["reason"]), (&json!("completed"), &Value::Null));
    let found = is_sound(&sandbox, "ada");
    assert_eq!(found.ended_as(&message), Some("processed"));
    assert!(found.queued.contains_key(&next));
    let mut kinds = texts(&sandbox.json_lines(["events", "ada"]), "kind");
    let relevant = ["control_request_admitted", "control_applied", "current_run_aborted", "run_settled"];
    kinds.retain(|kind| relevant.contains(&&**kind));
    assert_eq!(kinds[kinds.len() - 3..], ["control_request_admitted", "control_applied", "run_settled"]);
}

#[test]
fn a_second_stop_with_a_shorter_grace_ends_a_waiting_stop() {
    let (sandbox, message, tick) = running(DEAF);
    let patient = Beside::start(sandbox.cmd(["stop", "ada", "--grace", "1d", "--json"]));
    eventually("the gate", || (field(&sandbox, "status") == "stopped").then_some(()));
    let hasty = sandbox.json(["stop", "ada", "--grace", "100ms"]);
    assert_eq!((&hasty["changed"], &hasty["previous_status"]), (&json!(false), &json!("stopped")));
    assert_eq!(ended_well(patient.end())["aborted_run_id"], hasty["aborted_run_id"]);
    tick.end();
    assert_eq!(field(&sandbox, "execution.reason"), "shutdown_timeout");
    assert_eq!(is_sound(&sandbox, "ada").ended_as(&message), Some("aborted"));
}

/// Suspends the tick by SIGSTOP while `stop` settles its run: after SIGCONT the tick only adds the
/// turn's output to that run.
#[test]
fn a_tick_that_resumes_after_a_stop_records_only_the_output() {
    for requeue in [None, Some("--requeue")] {
        let (sandbox, message, tick) = running(DEAF);
        signal(&tick, Signal::STOP);
        let stopped = sandbox.json(["stop", "ada", "--grace", "100ms"].into_iter().chain(requeue));
        let run = stopped["aborted_run_id"].as_str().unwrap().to_owned();
        let settled = sandbox.json(["run", "show", &run]);
        assert_includes(&settled, json!({ "terminal": "aborted", "exit": { "how": "unknown" } }));
        // The suspended tick still holds the lock of the run, so no other tick starts a turn.
        sandbox.run(["start", "ada"]);
        assert_eq!(step(&sandbox)["reason"], "turn_in_progress");
        sandbox.run(["stop", "ada"]);
        let before = record(&sandbox, "state.json");
        signal(&tick, Signal::CONT);
        let ticked = ended_well(tick.end());
        assert_eq!((&ticked["terminal"], &ticked["closure"]), (&json!("aborted"), &Value::Null));
        let mut after = record(&sandbox, "state.json");
        for changes in ["revision", "counters"] {
            after[changes] = before[changes].clone();
        }
        assert_eq!(after, before, "the agent is as the stop has left it");
        let settlements = sandbox.json_lines(["events", "ada", "--kind", "run_settled"]);
        let current: Vec<&Value> = settlements.iter().map(|event| &event["data"]["current"]).collect();
        assert_eq!(current, [&Value::Null, &json!(false)]);
        let late = sandbox.json(["run", "show", &run]);
        assert_eq!(late["exit"], json!({ "how": "signal", "signal": 9 }));
        assert_eq!((&late["terminal"], &late["stdout_bytes"]), (&json!("aborted"), &json!(14)));
        assert_eq!(late["reason"], settled["reason"]);
        let found = is_sound(&sandbox, "ada");
        let shown = sandbox.json(["queue", "show", &message]);
        match requeue {
            None => assert_eq!(found.ended_as(&message), Some("aborted")),
            Some(_) => assert_eq!((&shown["status"], &shown["attempt"]), (&json!("queued"), &json!(1))),
        }
    }
}

/// Starts the agent while `stop` runs its hook: `stop` must not end the new turn.
#[test]
fn a_stop_does_not_end_a_turn_that_started_during_its_hook() {
    let (sandbox, first, tick) = running(POLITE);
    let there = |name: &str| sandbox.project().join(name);
    hook(&sandbox.agent("ada"), "on-shutdown", "touch hook; until test -e hook-go; do sleep 0.02; done");
    let stop = Beside::start(sandbox.cmd(["stop", "ada", "--json"])).after_it_made(there("hook"));
    let run = field(&sandbox, "current_run.run_id");
    fs::write(there("go"), "").unwrap();
    assert_eq!(ended_well(tick.end())["terminal"], "completed");
    ["go", "running"].iter().for_each(|name| fs::remove_file(there(name)).unwrap());
    sandbox.run(["start", "ada"]);
    let second = say(&sandbox, "more");
    let tick = Beside::start(sandbox.cmd(["tick", "ada", "--json"])).after_it_made(there("running"));
    fs::write(there("hook-go"), "").unwrap();
    let stopped = ended_well(stop.end());
    assert_includes(&stopped, json!({ "completed_run_id": run, "status": "awake_running" }));
    fs::write(there("go"), "").unwrap();
    assert_eq!(ended_well(tick.end())["terminal"], "completed");
    let found = is_sound(&sandbox, "ada");
    assert_eq!(found.ended_as(&first), Some("processed"));
    assert_eq!(found.ended_as(&second), Some("processed"));
}

/// Kills a `stop` that waits for the turn: the tick ends the turn after the grace period.
#[test]
fn a_stop_that_is_killed_while_it_waits_is_finished_by_the_tick() {
    in_time(|grace| {
        let (sandbox, message, tick) = running(DEAF);
        let mut stop = Beside::start(sandbox.cmd(["stop", "ada", "--grace", grace]));
        eventually("the shutdown", || {
            ["shutting_down", "failed"].contains(&&*field(&sandbox, "execution.state")).then_some(())
        });
        signal(&stop, Signal::KILL);
        let was_killed = stop.0.wait().unwrap().code().is_none();
        assert_eq!(ended_well(tick.end())["terminal"], "aborted");
        assert_eq!(field(&sandbox, "execution.reason"), "shutdown_timeout");
        assert_eq!(is_sound(&sandbox, "ada").ended_as(&message), Some("aborted"));
        was_killed.then_some(())
    });
}

/// Kills a `stop` after its commit and before it changes files: the tick reads the journal as well.
#[test]
fn a_stop_that_is_killed_between_its_commit_and_its_files_is_finished_by_the_tick() {
    needs!("strace");
    let stop = ["stop", "ada", "--grace", "1s"];
    let calls = strace::record(&started(DEAF), &stop, "").points();
    let is_change = |call: &&strace::Call| call.act() == "rename" && call.rest.contains("/state.json");
    let change = calls.iter().find(is_change).expect("no rename of state.json");
    let (sandbox, message, tick) = running(DEAF);
    let harmed = strace::harm(&sandbox, &stop, "", change, Harm::Kill);
    assert!(harmed.hit.iter().any(|call| call.contains("\"state.json\"")), "{:?}", harmed.hit);
    assert_eq!(ended_well(tick.end())["terminal"], "aborted");
    assert_eq!(is_sound(&sandbox, "ada").ended_as(&message), Some("aborted"));
}

#[test]
fn a_second_stop_with_requeue_requeues_the_message_of_a_killed_stop() {
    let (sandbox, message, tick) = running(POLITE);
    hook(&sandbox.agent("ada"), "on-shutdown", "touch hook; while :; do sleep 0.02; done");
    let stop = Beside::start(sandbox.cmd(["stop", "ada"])).after_it_made(sandbox.project().join("hook"));
    signal(&stop, Signal::KILL);
    stop.end();
    let expected = json!(["dormouse stop ada, which ends its run, and then dormouse start ada"]);
    assert_eq!(sandbox.json(["explain", "ada"])["wakes"], expected);
    hook(&sandbox.agent("ada"), "on-shutdown", "true");
    let finished = sandbox.json(["stop", "ada", "--requeue"]);
    assert_eq!(finished["changed"], false);
    assert_eq!(ended_well(tick.end())["terminal"], "aborted");
    assert_eq!(sandbox.json(["queue", "show", &message])["status"], "queued");
    assert!(is_sound(&sandbox, "ada").queued.contains_key(&message));
}

/// Stops an agent during a hook that runs between the claim and the turn: the hook is ended, and
/// the turn never begins.
#[test]
fn a_run_that_is_stopped_during_its_hook_starts_no_turn() {
    // A hook that exits with 0 does not prevent the turn, so only `stop` can.
    let polite = r#"trap 'exit 0' TERM
        echo up >> "$HOME/hooks"
        case $(cat) in *'"to":"scheduled"'*) while :; do sleep 0.02; done ;; esac"#;
    for (name, hooks) in [("on-scheduled", 1), ("on-state-change", 4)] {
        let sandbox = started("touch begun");
        let message = say(&sandbox, "work");
        hook(&sandbox.agent("ada"), name, polite);
        let tick =
            Beside::start(sandbox.cmd(["tick", "ada", "--json"])).after_it_made(sandbox.home().join("hooks"));
        let stop = Beside::start(sandbox.cmd(["stop", "ada", "--grace", "1d"]));
        let (stop, ticked) = (stop.end(), tick.end());
        assert_eq!((stop.code(), ticked.code()), (0, 0), "{stop}\n{ticked}");
        assert_eq!(objects(&ticked.stdout)[0]["terminal"], "aborted", "{ticked}");
        assert!(!sandbox.project().join("begun").exists(), "{name}");
        let ran = fs::read_to_string(sandbox.home().join("hooks")).unwrap().lines().count();
        assert_eq!(ran, hooks, "{name}");
        let found = is_sound(&sandbox, "ada");
        assert_eq!(found.ended_as(&message), Some("aborted"));
        assert_eq!(field(&sandbox, "execution.state"), "completed");
    }
}

/// Suspends the tick during `on-scheduled`: after `stop` and SIGCONT the tick starts no turn.
#[test]
fn a_tick_that_resumes_after_a_stop_starts_no_turn() {
    let sandbox = started("touch begun");
    let message = say(&sandbox, "work");
    hook(&sandbox.agent("ada"), "on-scheduled", r#"kill -STOP $PPID; touch "$HOME/up""#);
    let tick = Beside::start(sandbox.cmd(["tick", "ada", "--json"])).after_it_made(sandbox.home().join("up"));
    let stopped = sandbox.json(["stop", "ada"]);
    assert!(stopped["aborted_run_id"].is_string(), "{stopped}");
    assert_eq!(field(&sandbox, "current_run"), "");
    signal(&tick, Signal::CONT);
    assert_eq!(ended_well(tick.end())["terminal"], "aborted");
    assert!(!sandbox.project().join("begun").exists());
    assert_eq!(is_sound(&sandbox, "ada").ended_as(&message), Some("aborted"));
}

/// Suspends a task's supervisor: `stop` records an interrupted task, and ignores a later report.
#[test]
fn a_stop_records_a_task_with_a_hanging_supervisor_as_interrupted() {
    let sandbox = started("true");
    let line = ["task", "start", "-a", "ada", "--", "sh", "-c", POLITE];
    let id = sandbox.run(line).trim().to_owned();
    wait_for(&sandbox.project().join("running"));
    let pid = sandbox.json(["task", "status", &id])["supervisor_pid"].as_i64().unwrap();
    let supervisor = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(supervisor, Signal::STOP).unwrap();
    let stopped = sandbox.json(["stop", "ada", "--grace", "100ms"]);
    assert_eq!(stopped["tasks"], json!([id]));
    let task = sandbox.json(["task", "status", &id]);
    assert_eq!(task["status"], "interrupted");
    assert_eq!(task["reason"], "it was stopped, and its supervisor does not answer");
    rustix::process::kill_process(supervisor, Signal::CONT).unwrap();
    eventually("the end of the supervisor", || (!lives(pid)).then_some(()));
    assert_eq!(sandbox.json(["task", "status", &id]), task, "the supervisor has changed the record");
    assert_eq!(sandbox.json_lines(["queue", "list", "-a", "ada"]).len(), 1);
    is_sound(&sandbox, "ada");
}

/// Returns a parent with a task and two delegations, to `kid` and `cub`, and the tick of a turn of
/// `kid`, which ignores SIGTERM.
fn family(policy: &str) -> (Sandbox, [String; 3], Beside) {
    let sandbox = Sandbox::new();
    add(&sandbox, "ada", &format!("test \"$DORMOUSE_AGENT\" = ada || {{ {DEAF}; }}"));
    extend_policy(&sandbox, "ada", policy);
    let task = |words: &[&str]| {
        let line = ["task", "start", "-a", "ada"].iter().chain(words).copied();
        sandbox.run(line.collect::<Vec<_>>()).trim().to_owned()
    };
    let tasks = [
        task(&["--", "sleep", "1000"]),
        task(&["--delegate", "kid", "work"]),
        task(&["--delegate", "cub", "work"]),
    ];
    sandbox.run(["tick", "ada"]);
    let tick = Beside::start(sandbox.cmd(["tick", "kid", "--json"]))
        .after_it_made(sandbox.project().join("running"));
    (sandbox, tasks, tick)
}

#[test]
fn a_stop_ends_the_turns_and_tasks_of_the_children_as_well() {
    let (sandbox, tasks, tick) = family("");
    let grandchild = sandbox.run(["task", "start", "-a", "kid", "--", "sleep", "1000"]).trim().to_owned();
    let stopped = sandbox.json(["stop", "ada", "--grace", "200ms"]);
    assert_eq!(stopped["tasks"], json!(tasks));
    assert_eq!(ended_well(tick.end())["terminal"], "aborted");
    for id in tasks.iter().chain([&grandchild]) {
        assert_eq!(sandbox.json(["task", "status", id])["status"], "cancelled");
    }
    for child in ["kid", "cub"] {
        assert_eq!(sandbox.run(["get", child, "status"]).trim(), "stopped");
        is_sound(&sandbox, child);
    }
    assert_eq!(sandbox.run(["get", "kid", "execution.reason"]).trim(), "shutdown_timeout");
    let run = sandbox.json(["run", "list", "-a", "kid"]);
    assert_eq!(run["reason"], format!("stopped: its parent has stopped {}", tasks[1]));
    is_sound(&sandbox, "ada");
}

/// Damages the record of the turn's process: `stop` reports the error and still ends the tasks.
#[test]
fn a_stop_ends_the_tasks_even_if_the_run_can_not_be_ended() {
    let (sandbox, message, tick) = running(POLITE);
    let task = sandbox.run(["task", "start", "-a", "ada", "--", "sleep", "1000"]).trim().to_owned();
    let run = field(&sandbox, "current_run.run_id");
    let leader = sandbox.agent("ada").join("runs").join(&run).join("leader");
    let kept = fs::read(&leader).unwrap();
    fs::remove_file(&leader).unwrap();
    fs::create_dir(&leader).unwrap();
    let ran = sandbox.cmd(["stop", "ada", "--grace", "200ms", "--json"]).output();
    assert_eq!((ran.code(), failure(&ran)["path"].as_str()), (6, leader.to_str()), "{ran}");
    let stopped = &objects(&ran.stdout)[0];
    assert_eq!((&stopped["status"], &stopped["tasks"]), (&json!("stopped"), &json!([task])), "{ran}");
    assert_eq!(sandbox.json(["task", "status", &task])["status"], "cancelled");
    fs::remove_dir(&leader).unwrap();
    fs::write(&leader, kept).unwrap();
    sandbox.run(["stop", "ada"]);
    tick.end();
    assert_eq!(is_sound(&sandbox, "ada").ended_as(&message), Some("aborted"));
}

/// Prevents the release of a child's workspace: `stop` reports that and ends everything else.
#[test]
fn a_stop_ends_all_children_even_if_a_workspace_is_not_released() {
    let (sandbox, tasks, tick) = family("\n[workspace]\npath = \".\"\n");
    signal(&tick, Signal::STOP);
    let ran = sandbox.cmd(["stop", "ada", "--grace", "200ms", "--json"]).exits(1);
    assert!(failure(&ran)["message"].as_str().unwrap().contains("is not released"), "{ran}");
    let stopped = &objects(&ran.stdout)[0];
    assert_eq!((&stopped["status"], &stopped["tasks"]), (&json!("stopped"), &json!(tasks)), "{ran}");
    for id in &tasks {
        assert_eq!(sandbox.json(["task", "status", id])["status"], "cancelled", "{id}");
    }
    for child in ["kid", "cub"] {
        assert_eq!(sandbox.run(["get", child, "status"]).trim(), "stopped");
    }
    signal(&tick, Signal::CONT);
    tick.end();
    is_sound(&sandbox, "ada");
    is_sound(&sandbox, "kid");
}

#[test]
fn a_stop_clears_pending_wakes_and_keeps_waits_timers_and_work() {
    let sandbox = started("true");
    sandbox.run(["work", "add", "objective", "-a", "ada"]);
    sandbox.run(["timer", "add", "-a", "ada", "--in", "1h", "later"]);
    let wait = sandbox.run(["wait", "-a", "ada", "--on", "external", "--reason", "why", "--whole-agent"]);
    sandbox.run(["tick", "ada", "--until-idle"]);
    sandbox.run(["wake", "ada", "a noise"]);
    let until = "2026-01-02T09:00:00.000Z";
    edit_state(&sandbox, |state| state["sleeping_until"] = json!(until));
    sandbox.run(["stop", "ada"]);
    let state = record(&sandbox, "state.json");
    for cleared in ["sleeping_until", "pending_wake_hint", "current_run"] {
        assert!(state[cleared].is_null(), "{cleared}: {state:#}");
    }
    let get = sandbox.json(["get", "ada"]);
    assert_eq!(get["active_waits"][0]["id"], wait.trim());
    assert_eq!(get["active_timers"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        get["work"]["open"].as_array().map(Vec::len).or(get["work"]["open"].as_u64().map(|n| n as usize)),
        Some(1)
    );
    is_sound(&sandbox, "ada");
}

/// `stop --now` ends the turn without waiting for the hook `on-shutdown`.
#[test]
fn stop_now_ends_the_turn_without_waiting_for_the_hook() {
    let (sandbox, _, tick) = running(&format!("echo $$ > pid.new; mv pid.new pid; {DEAF}"));
    let script = r#"for i in $(seq 1 1000); do
        grep -q '^State:.[^Z]' "/proc/$(cat pid)/status" 2>/dev/null || { echo "gone $DORMOUSE_RUN" > seen; exit; }
        sleep 0.01
    done
    echo lives > seen"#;
    hook(&sandbox.agent("ada"), "on-shutdown", script);
    let ran = sandbox.cmd(["stop", "ada", "--now", "--grace", "10ms", "--json"]).output();
    assert!(ended_well(ran)["aborted_run_id"].is_string());
    assert_eq!(objects(&tick.end().stdout)[0]["terminal"], "aborted");
    let seen = fs::read_to_string(sandbox.project().join("seen")).unwrap();
    assert_eq!(seen, "gone \n", "the hook's commands must run as the operator");
    is_sound(&sandbox, "ada");
}

#[test]
fn every_stop_has_its_event() {
    let sandbox = started("true");
    sandbox.run(["stop", "ada"]);
    sandbox.cmd(["stop", "ada"]).prints("ada  stopped already\n");
    sandbox.run(["start", "ada"]);
    let applied = sandbox.json_lines(["events", "ada", "--kind", "control_applied"]);
    let shown = |event: &Value| {
        let word = |name: &str| event["data"][name].as_str().unwrap().to_owned();
        format!("{} {} {} {}", word("action"), word("previous_status"), word("next_status"), word("boundary"))
    };
    let expected = [
        "start booting awake_idle bootstrap",
        "stop awake_idle stopped control",
        "stop stopped stopped control",
        "start stopped awake_idle control",
    ];
    assert_eq!(applied.iter().map(shown).collect::<Vec<_>>(), expected);
}

/// Semantics §14: each change of the status has an event with both statuses and the kind of action.
#[test]
fn every_change_of_the_status_has_an_event_with_its_boundary() {
    let sandbox = started("true");
    step(&sandbox);
    say(&sandbox, "hello");
    for _ in 0..2 {
        step(&sandbox);
    }
    sandbox.run(["wait", "-a", "ada", "--on", "operator", "--reason", "you"]);
    sandbox.run(["wake", "ada"]);
    for _ in 0..3 {
        step(&sandbox);
    }
    let events = sandbox.json_lines(["events", "ada"]);
    let changes = events.iter().map(|event| &event["data"]).filter(|data| data["next_status"].is_string());
    let shown = changes.map(|data| {
        let word = |name: &str| data[name].as_str().unwrap();
        format!("{} {}", word("boundary"), word("next_status"))
    });
    let expected = [
        "bootstrap awake_idle",
        "lifecycle_sleep asleep",
        "message_admission awake_running",
        "message_admission awake_idle",
        "lifecycle_sleep asleep",
        "message_admission awake_idle",
        "lifecycle_sleep asleep",
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    assert_eq!(events[0]["data"]["boundary"], "bootstrap");
}
