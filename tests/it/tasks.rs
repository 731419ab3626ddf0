//! Tests background tasks end to end: each ends once, and none of its processes survives.

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::checker;
use crate::harness::{Sandbox, dormouse, each_in_parallel};
use crate::setup::{Beside, add, assert_includes, edit_file, edit_state, eventually, kill, processes};
use crate::strace::{self, Call, Harm};

/// Returns a started agent whose turns append the id of their message to `$HOME/turns`.
fn agent() -> Sandbox {
    agent_that(r#"echo "$DORMOUSE_MESSAGE" >> "$HOME/turns""#)
}

fn agent_that(turn: &str) -> Sandbox {
    let sandbox = Sandbox::new().with_real_clock();
    add(&sandbox, "ada", turn);
    sandbox
}

/// Waits until a condition holds.
#[track_caller]
fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

fn start(sandbox: &Sandbox, flags: &[&str], script: &str) -> String {
    let mut args = vec!["task", "start", "-a", "ada"];
    args.extend_from_slice(flags);
    args.extend_from_slice(&["--", "sh", "-c", script]);
    sandbox.run(args).trim().to_owned()
}

fn status(sandbox: &Sandbox, id: &str) -> Value {
    sandbox.json(["task", "status", id])
}

#[track_caller]
fn ended(sandbox: &Sandbox, id: &str) -> Value {
    let is_open = |task: &Value| {
        ["queued", "running", "cancelling"].contains(&task["status"].as_str().unwrap_or_default())
    };
    soon("the end of the task", || !is_open(&status(sandbox, id)));
    status(sandbox, id)
}

fn queue(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.json_lines(["queue", "list", "-a", "ada"])
}

/// Checks, at the end of a test, that no process is left and `doctor` finds nothing.
#[track_caller]
fn nothing_left(sandbox: &Sandbox) {
    soon("the end of all processes", || processes(sandbox).is_empty());
    sandbox.run(["doctor"]);
}

#[test]
fn a_task_starts_at_once_and_its_end_is_a_message() {
    let sandbox = agent();
    let flags = ["--summary", "the tests"];
    let id = start(&sandbox, &flags, "echo one; until test -e go; do sleep 0.05; done; echo two; exit 3");
    let task = status(&sandbox, &id);
    assert_eq!((task["status"].as_str(), task["notify"].as_bool()), (Some("running"), Some(true)));
    assert_eq!(sandbox.json(["get", "ada"])["active_tasks"][0]["id"], id.as_str());
    assert_eq!(sandbox.json(["task", "list", "-a", "ada"])["id"], id.as_str());
    soon("its output", || sandbox.run(["task", "output", &id]) == "one\n");
    fs::write(sandbox.project().join("go"), "").unwrap();
    let task = ended(&sandbox, &id);
    assert_eq!((task["status"].as_str(), &task["exit"]["code"]), (Some("failed"), &Value::from(3)));
    let queue = queue(&sandbox);
    assert_eq!(queue.len(), 1);
    assert_eq!(queue[0]["kind"], "task_result");
    assert_eq!(queue[0]["body"]["text"], "the tests: failed (exit status 3)\ntwo");
    assert_eq!(sandbox.run(["task", "output", &id]), "one\ntwo\n");
    assert_eq!(sandbox.run(["task", "output", &id, "--bytes", "4"]), "two\n");
    assert_eq!(sandbox.run(["task", "output", &id, "--stderr"]), "");
    assert_eq!(sandbox.run(["task", "list", "-a", "ada"]), "");
    assert_eq!(sandbox.json(["task", "list", "-a", "ada", "--ended"])["id"], id.as_str());
    assert_eq!(sandbox.json(["tick", "ada"])["reason"], "task_result");
    nothing_left(&sandbox);
}

#[test]
fn a_forged_supervisor_variable_keeps_no_process_alive() {
    let sandbox = agent_that("DORMOUSE_SUPERVISOR=1 setsid -f sleep 600; : > ready");
    let script = "DORMOUSE_SUPERVISOR=$DORMOUSE_TASK setsid -f sleep 600; : > started; sleep 600";
    let id = start(&sandbox, &[], script);
    soon("its start", || sandbox.project().join("started").exists());
    sandbox.run(["task", "stop", &id]);
    sandbox.run(["enqueue", "ada", "go"]);
    sandbox.run(["tick", "ada", "--until-idle"]);
    assert!(sandbox.project().join("ready").exists());
    nothing_left(&sandbox);
}

#[test]
fn a_turn_waits_for_its_task_and_is_resumed_by_the_result() {
    let turn = r#"test "$(cat "$HOME/turns" 2>/dev/null)" && exit
        echo started >> "$HOME/turns"
        id=$(dormouse task start -- sh -c 'until test -e go; do sleep 0.05; done')
        dormouse wait --on task --resource "$id" --reason "the build""#;
    let sandbox = agent_that(&turn.replace("dormouse", &dormouse().to_string_lossy()));
    sandbox.run(["enqueue", "ada", "build"]);
    let step = sandbox.json(["tick", "ada"]);
    assert_eq!(step["terminal"], "completed", "{step}");
    assert_eq!(step["closure"]["waiting_reason"], "awaiting_task_result");
    assert_eq!(step["status"], "awaiting_task");
    assert_eq!(sandbox.json(["tick", "ada"])["decision"], "wait_for_task");
    // The task has outlived the turn that started it.
    let task = sandbox.json(["task", "list", "-a", "ada"]);
    assert_eq!(task["status"], "running");
    assert!(task["run_id"].is_string());
    fs::write(sandbox.project().join("go"), "").unwrap();
    ended(&sandbox, task["id"].as_str().unwrap());
    let step = sandbox.json(["tick", "ada"]);
    assert_eq!(step["continuation"]["class"], "resume_expected_wait");
    assert_eq!(step["continuation"]["matched_waiting_reason"], true);
    assert_eq!(sandbox.run(["wait", "list", "-a", "ada"]), "");
    nothing_left(&sandbox);
}

#[test]
fn a_turn_can_wait_for_a_task_that_has_ended_meanwhile() {
    let command = r#"dormouse wait --on task --resource "$id" --reason "the build""#;
    let action = r#"echo '{"actions": [{"do": "wait", "kind": "task", "resource": "'$id'", "reason": "the build"}]}' \
        > "$DORMOUSE_OUTCOME""#;
    for wait in [command, action] {
        let turn = format!(
            r#"test "$(cat "$HOME/turns" 2>/dev/null)" && exit
            echo started >> "$HOME/turns"
            id=$(dormouse task start -- true)
            until dormouse task list --ended | grep -q "$id"; do sleep 0.02; done
            {wait}"#
        );
        let sandbox = agent_that(&turn.replace("dormouse", &dormouse().to_string_lossy()));
        sandbox.run(["enqueue", "ada", "build"]);
        let step = sandbox.json(["tick", "ada"]);
        assert_eq!(step["terminal"], "completed", "{step}");
        assert_eq!(sandbox.json(["tick", "ada"])["continuation"]["class"], "resume_expected_wait");
        nothing_left(&sandbox);
    }
}

#[test]
fn output_is_followed_to_the_end() {
    let sandbox = agent();
    let id = start(&sandbox, &[], "for i in 1 2 3; do echo line $i é; sleep 0.1; done; echo oops >&2");
    assert_eq!(sandbox.run(["task", "output", &id, "--follow"]), "line 1 é\nline 2 é\nline 3 é\n");
    assert_eq!(sandbox.run(["task", "output", &id, "--stderr", "--follow"]), "oops\n");
    nothing_left(&sandbox);
}

/// Counts the context switches of a follower: fewer than 5 per second, where polling every 100 ms
/// would need 10.
#[test]
fn task_output_follow_sleeps_while_the_task_prints_nothing() {
    let sandbox = agent();
    let id = start(&sandbox, &[], "echo one; sleep 600");
    let mut follower = sandbox.cmd(["task", "output", &id, "--follow"]).into_command();
    let mut follower = Beside(follower.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = [0; 4];
    follower.0.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"one\n");
    let status = format!("/proc/{}/status", follower.0.id());
    let wakes = || {
        let status = fs::read_to_string(&status).unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        count.trim().parse::<u64>().unwrap()
    };
    let is_quiet = |_| {
        let before = wakes();
        std::thread::sleep(Duration::from_secs(1));
        wakes() - before < 5
    };
    assert!((0..5).any(is_quiet), "the follower does not sleep");
    sandbox.run(["task", "stop", &id, "--grace", "0s"]);
    assert_eq!(follower.0.wait().unwrap().code(), Some(0), "the follower must end with the task");
    nothing_left(&sandbox);
}

#[test]
fn a_task_with_a_missing_command_fails() {
    let sandbox = agent();
    let id = sandbox.run(["task", "start", "-a", "ada", "--", "no-such-program"]).trim().to_owned();
    let task = ended(&sandbox, &id);
    assert_includes(&task, json!({ "status": "failed", "exit.how": "not_started" }));
    nothing_left(&sandbox);
}

#[test]
fn a_task_whose_supervisor_is_killed_is_interrupted_once() {
    let sandbox = agent();
    // The child has its own process group and session, and survives the leader.
    let id = start(&sandbox, &[], "setsid sleep 600 & echo ready; exec sleep 600");
    soon("the command", || sandbox.run(["task", "output", &id]) == "ready\n");
    assert_eq!(sandbox.json(["tick", "ada"])["decision"], "sleep");
    assert_eq!(sandbox.json(["tick", "ada"])["decision"], "stay_idle");
    kill("KILL", &status(&sandbox, &id)["supervisor_pid"]);
    soon("the death of the supervisor and the leader", || processes(&sandbox).len() == 1);
    assert_eq!(sandbox.json(["tick", "--dry-run", "ada"])["reason"], "task_result");
    assert!(!sandbox.run(["next-wake", "ada"]).trim().is_empty());
    assert_eq!(status(&sandbox, &id)["status"], "running");
    let step = sandbox.json(["tick", "ada"]);
    assert_eq!(step["reason"], "task_result");
    assert_eq!(processes(&sandbox), Vec::<String>::new());
    let task = status(&sandbox, &id);
    assert_includes(&task, json!({ "status": "interrupted", "reason": "its supervisor is gone" }));
    assert_eq!(sandbox.json(["tick", "ada"])["decision"], "sleep");
    assert_eq!(fs::read_to_string(sandbox.home().join("turns")).unwrap().lines().count(), 1);
    assert_eq!(sandbox.json_lines(["task", "list", "-a", "ada", "--ended"]).len(), 1);
    nothing_left(&sandbox);
}

#[test]
fn a_step_commits_the_end_of_a_task_that_its_supervisor_could_not() {
    let sandbox = agent();
    let id = start(&sandbox, &[], "until test -e go; do sleep 0.05; done; exit 4");
    let pid = status(&sandbox, &id)["supervisor_pid"].clone();
    // The test holds the agent's lock, so that the supervisor can't commit the end.
    let lock = fs::File::open(sandbox.agent("ada").join("lock")).unwrap();
    lock.lock().unwrap();
    fs::write(sandbox.project().join("go"), "").unwrap();
    let noted = sandbox.agent("ada").join("tasks").join(&id).join("end.json");
    soon("the note", || noted.exists());
    kill("KILL", &pid);
    soon("the death of the supervisor", || processes(&sandbox).is_empty());
    lock.unlock().unwrap();
    assert_eq!(sandbox.json(["tick", "ada"])["reason"], "task_result");
    let task = status(&sandbox, &id);
    assert_eq!((task["status"].as_str(), &task["exit"]["code"]), (Some("failed"), &Value::from(4)));
    assert_eq!(queue(&sandbox), Vec::<Value>::new());
    nothing_left(&sandbox);
}

#[test]
fn a_stop_ends_all_tasks_and_keeps_their_results() {
    let sandbox = agent();
    let one = start(&sandbox, &[], "exec sleep 600");
    let other = start(&sandbox, &[], "trap '' TERM; echo ready; while :; do sleep 1; done");
    soon("the trap", || sandbox.run(["task", "output", &other]) == "ready\n");
    let stopped = sandbox.json(["stop", "ada", "--grace", "300ms"]);
    assert_eq!(stopped["tasks"], serde_json::json!([one, other]));
    assert_eq!(status(&sandbox, &one)["status"], "cancelled");
    let killed = status(&sandbox, &other);
    let expected = json!({ "status": "cancelled", "exit.signal": 9 });
    assert_includes(&killed, expected.clone());
    // Stopping an ended task changes nothing.
    assert_includes(&sandbox.json(["task", "stop", &other]), expected);
    assert_eq!(status(&sandbox, &other), killed);
    assert_eq!(queue(&sandbox).len(), 2);
    assert_eq!(sandbox.json(["tick", "ada"])["decision"], "stop");
    assert_eq!(sandbox.json(["stop", "ada"])["tasks"], serde_json::json!([]));
    let expected = "dormouse: `ada` is stopped: it starts no tasks\nhint: `dormouse start` lets it run\n";
    sandbox.cmd(["task", "start", "-a", "ada", "--", "true"]).status(4).complains(expected);
    sandbox.run(["start", "ada"]);
    assert_eq!(sandbox.json(["tick", "ada"])["reason"], "task_result");
    nothing_left(&sandbox);
}

#[test]
fn a_task_with_no_notify_starts_no_turn() {
    let sandbox = agent();
    let id = start(&sandbox, &["--no-notify"], "echo quiet");
    ended(&sandbox, &id);
    assert_eq!(queue(&sandbox)[0]["kind"], "task_status");
    assert_eq!(sandbox.json(["tick", "ada"])["decision"], "reduce_message_only");
    assert!(!sandbox.home().join("turns").exists());
    nothing_left(&sandbox);
}

#[test]
fn a_message_of_a_task_has_its_agent_as_origin_and_one_more_hop() {
    let sandbox = agent();
    let program = dormouse();
    let script = format!("{} enqueue ada 'half done'", program.display());
    let id = start(&sandbox, &[], &script);
    ended(&sandbox, &id);
    let message = &queue(&sandbox)[0];
    assert_includes(message, json!({ "kind": "internal_followup", "origin.id": "ada" }));
    assert_eq!((message["hops"].as_i64(), message["causation_id"].as_str()), (Some(1), Some(&*id)));
    // After the end of a task, no command may send a message in its name.
    let ran = sandbox
        .cmd(["--json", "enqueue", "ada", "late"])
        .env("DORMOUSE_AGENT", "ada")
        .env("DORMOUSE_TASK", &id)
        .output();
    assert!(ran.code() == 4 && ran.stdout.contains("task_ended"), "{ran}");
    nothing_left(&sandbox);
}

#[test]
fn task_stop_with_force_interrupts_a_task_of_a_lost_host() {
    let sandbox = agent();
    let id = start(&sandbox, &[], "true");
    ended(&sandbox, &id);
    sandbox.run(["tick", "ada"]);
    // The record looks like one that another machine has left in a copied state directory.
    let mut task = status(&sandbox, &id);
    for gone in ["ended_at", "exit", "stdout_bytes", "stderr_bytes"] {
        task.as_object_mut().unwrap().remove(gone);
    }
    let other = format!("task_{}", "7".repeat(12) + "7000800000000000000a");
    task["schema"] = "dormouse/task/1".into();
    for (name, value) in [("id", &*other), ("status", "running"), ("host", "gone"), ("boot_id", "gone")] {
        task[name] = value.into();
    }
    fs::write(sandbox.agent("ada").join(format!("tasks/{other}.json")), task.to_string()).unwrap();
    edit_state(&sandbox, |state| state["open_tasks"] = 1.into());
    sandbox.cmd(["task", "stop", &other]).exits(4).warns("--force");
    let ran = sandbox.cmd(["--json", "task", "stop", &other, "--force"]).output();
    assert!(ran.stderr.contains("its processes are left alone"), "{ran}");
    let ended: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_includes(&ended, json!({ "status": "interrupted", "reason": "counted as lost: it ran on gone" }));
    assert_eq!(queue(&sandbox).len(), 1);
}

#[test]
fn an_agent_that_stops_after_its_last_attempt_ends_its_tasks() {
    let sandbox = agent_that("exit 1");
    edit_file(&sandbox.agent("ada").join("agent.toml"), |text| {
        text + "\n[recovery]\nmax_attempts = 1\non_exhausted = \"stop\"\n"
    });
    let id = start(&sandbox, &[], "sleep 600");
    sandbox.run(["enqueue", "ada", "x"]);
    sandbox.cmd(["tick", "ada"]).exits(7);
    assert_eq!(status(&sandbox, &id)["status"], "cancelled");
    nothing_left(&sandbox);
}

#[test]
fn a_wait_for_a_task_with_no_notify_is_refused() {
    let sandbox = agent();
    let id = start(&sandbox, &["--no-notify"], "until test -e go; do sleep 0.05; done");
    let ran = sandbox.cmd(["wait", "-a", "ada", "--on", "task", "--resource", &id, "--reason", "x"]).output();
    assert!(ran.code() == 4 && ran.stderr.contains("started with --no-notify"), "{ran}");
    sandbox.run(["task", "stop", &id]);
    nothing_left(&sandbox);
}

#[test]
fn an_outcome_starts_tasks_and_waits_for_them() {
    needs!("jq");
    let turn = r#"case "$(jq -r .message.kind "$DORMOUSE_CONTEXT")" in operator_prompt) echo '{"actions": [
        {"do": "task.start", "command": ["sh", "-c", "echo built"], "summary": "the build"},
        {"do": "wait", "kind": "task", "reason": "the build"}]}' > "$DORMOUSE_OUTCOME" ;; esac"#;
    let sandbox = agent_that(turn);
    sandbox.run(["enqueue", "ada", "go"]);
    let step = sandbox.json(["tick", "ada"]);
    assert_eq!(step["closure"]["waiting_reason"], "awaiting_task_result", "{step}");
    let id = sandbox.json(["wait", "list", "-a", "ada"])["resource"].as_str().unwrap().to_owned();
    let task = ended(&sandbox, &id);
    assert_eq!((task["status"].as_str(), &task["run_id"]), (Some("completed"), &step["run_id"]));
    let step = sandbox.json(["tick", "ada"]);
    assert_includes(&step, json!({ "continuation.class": "resume_expected_wait", "task_id": id.as_str() }));
    nothing_left(&sandbox);
}

#[test]
fn an_outcome_with_an_invalid_task_starts_no_task() {
    let bad = [
        r#"{"do": "task.start"}"#,
        r#"{"do": "task.start", "command": [""]}"#,
        r#"{"do": "task.start", "command": ["true"], "text": "x"}"#,
        r#"{"do": "task.start", "delegate": "kid"}"#,
        r#"{"do": "task.start", "delegate": "kid", "text": "x", "interactive": true}"#,
        r#"{"do": "task.start", "delegate": "ada", "text": "x"}"#,
        r#"{"do": "task.start", "command": ["true"], "timeout": "soon"}"#,
    ];
    for action in bad {
        let turn = format!(
            r#"echo '{{"actions": [{{"do": "task.start", "command": ["true"]}}, {action}]}}' > "$DORMOUSE_OUTCOME""#
        );
        let sandbox = agent_that(&turn);
        sandbox.run(["enqueue", "ada", "go"]);
        let ran = sandbox.cmd(["tick", "ada"]).output();
        assert!(ran.code() == 7 && ran.stdout.contains("$.actions[1]"), "{action}: {ran}");
        assert_eq!(sandbox.run(["task", "list", "-a", "ada"]), "");
        nothing_left(&sandbox);
    }
}

#[test]
fn an_interactive_task_reads_its_input() {
    let sandbox = agent();
    let script = "read name; echo hello $name; read more; echo $more; exec <&-; sleep 600";
    let id = start(&sandbox, &["--interactive"], script);
    sandbox.run(["task", "input", &id, "Ada"]);
    soon("the answer", || sandbox.run(["task", "output", &id]) == "hello Ada\n");
    assert_eq!(sandbox.cmd(["task", "input", &id, "-"]).stdin("again\n").output().code(), 0);
    soon("the answer", || sandbox.run(["task", "output", &id]) == "hello Ada\nagain\n");
    soon("the end of listening", || {
        let ran = sandbox.cmd(["task", "input", &id, "anybody?"]).output();
        ran.code() == 4 && ran.stderr.contains("no process reads it")
    });
    assert_eq!(sandbox.json(["task", "stop", &id])["status"], "cancelled");
    let ran = sandbox.cmd(["task", "input", &id, "late"]).output();
    assert_eq!((ran.code(), ran.stderr.contains("is cancelled: it takes no input")), (4, true), "{ran}");
    let deaf = start(&sandbox, &[], "cat; echo end");
    ended(&sandbox, &deaf);
    assert_eq!(sandbox.run(["task", "output", &deaf]), "end\n");
    nothing_left(&sandbox);
}

/// Waits for the end of all processes, checks the records, and returns the number of ended tasks.
#[track_caller]
fn ended_once(sandbox: &Sandbox, what: &str) -> usize {
    soon("the end of all processes", || processes(sandbox).is_empty());
    let found = checker::look(&sandbox.agent("ada"));
    assert!(found.complaints.is_empty() && !found.has_journal, "{what}: {:#?}", found.complaints);
    assert_eq!(found.state["open_tasks"].as_u64().unwrap_or(0), 0, "{what}: a record stays open");
    sandbox.run(["doctor"]);
    found.over.iter().filter(|id| id.starts_with("task_")).count()
}

#[test]
fn a_task_that_is_killed_at_any_call_has_one_result_or_no_record() {
    needs!("strace");
    let often = ["renameat", "unlinkat", "fdatasync", "pwrite64", "write"].map(|call| (call, 12, 1));
    let rare = ["flock", "ftruncate", "mkdirat", "execve", "wait4", "waitid", "poll", "ppoll", "exit_group"];
    let rare = rare.map(|call| (call, 4, 1));
    let calls = often.into_iter().chain(rare).chain([("openat2", 60, 4)]);
    let cuts: Vec<(&str, u32)> =
        calls.flat_map(|(call, last, step)| (1..=last).step_by(step).map(move |at| (call, at))).collect();
    each_in_parallel(&cuts, |(call, at)| {
        let sandbox = agent();
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:signal=SIGKILL:when={at}"));
        let program = dormouse();
        let options = ["-qq", "-f", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        let start = ["task", "start", "-a", "ada", "--", "true"];
        let words = options.into_iter().chain([program.to_str().unwrap()]).chain(start);
        // strace counts `when` for each process, so it kills the starter, the supervisor, the
        // command, or several of them.
        sandbox.program("strace", words.map(Into::into).collect()).output();
        soon("the end of the supervisor", || processes(&sandbox).is_empty());
        // The next step starts a task that was committed and not started.
        sandbox.run(["tick", "ada"]);
        soon("the end of the task", || sandbox.run(["task", "list", "-a", "ada"]).is_empty());
        sandbox.run(["tick", "ada", "--until-idle"]);
        let ended = ended_once(&sandbox, &format!("{call} {at}"));
        let turns = fs::read_to_string(sandbox.home().join("turns")).unwrap_or_default().lines().count();
        assert!(ended == turns && ended <= 1, "{call} {at}: {ended} ended, {turns} turns");
    });
}

/// Kills `task start` or `task stop` of an endless task at every call: no process runs without a
/// record, and no record stays open.
#[test]
fn task_start_and_task_stop_can_be_killed_at_every_call() {
    needs!("strace");
    let long = ["task", "start", "-a", "ada", "--", "sleep", "86400"];
    let stop = |sandbox: &Sandbox| {
        for task in sandbox.json_lines(["task", "list", "-a", "ada"]) {
            let stopped = sandbox.json(["task", "stop", task["id"].as_str().unwrap(), "--grace", "5s"]);
            let ends = ["cancelled", "interrupted", "failed"];
            assert!(ends.contains(&stopped["status"].as_str().unwrap()), "{stopped}");
        }
    };
    let sandbox = agent();
    let starts = strace::record(&sandbox, &long, "").points();
    let id = sandbox.json(["task", "list", "-a", "ada"])["id"].as_str().unwrap().to_owned();
    let stops = strace::record(&sandbox, &["task", "stop", &id], "").points();
    assert_eq!(ended_once(&sandbox, "not cut"), 1);
    let cuts: Vec<(bool, &Call)> =
        starts.iter().map(|call| (true, call)).chain(stops.iter().map(|call| (false, call))).collect();
    let tally = AtomicUsize::new(0);
    each_in_parallel(&cuts, |(is_start, call)| {
        let sandbox = agent();
        let what = format!("{} killed at {call}", if *is_start { "start" } else { "stop" });
        let harmed = if *is_start {
            strace::harm(&sandbox, &long, "", call, Harm::Kill)
        } else {
            let id = sandbox.run(long).trim_end().to_owned();
            strace::harm(&sandbox, &["task", "stop", &id], "", call, Harm::Kill)
        };
        tally.fetch_add(harmed.hit.len(), Ordering::Relaxed);
        // A supervisor that has just started may still be about to change its record.
        sandbox.run(["tick", "ada", "--until-idle"]);
        stop(&sandbox);
        let ended = ended_once(&sandbox, &what);
        assert!(ended == 1 || (*is_start && ended == 0), "{what}: {ended} ended");
    });
    println!("killed at {} of {} points", tally.into_inner(), cuts.len());
}

#[test]
fn concurrent_stops_of_an_ending_task_record_one_end() {
    let rounds: Vec<u32> = (0..12).collect();
    each_in_parallel(&rounds, |round| {
        let sandbox = agent();
        let id = start(&sandbox, &[], "echo ready; until test -e go; do sleep 0.01; done");
        soon("the command", || sandbox.run(["task", "output", &id]) == "ready\n");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| sandbox.run(["task", "stop", &id, "--grace", "5s"]));
            }
            scope.spawn(|| sandbox.run(["tick", "ada"]));
            fs::write(sandbox.project().join("go"), "").unwrap();
        });
        let task = status(&sandbox, &id);
        let end = task["status"].as_str().unwrap();
        assert!(["completed", "cancelled"].contains(&end), "round {round}: {task}");
        assert_eq!(ended_once(&sandbox, &format!("round {round}")), 1);
    });
}
