//! Tests turns, tasks and hooks that resist their end, and ticks and supervisors that are killed:
//! all their processes end, no turn runs twice at the same time, and no other process is hit.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::checker;
use crate::harness::{Sandbox, each_in_parallel};
use crate::setup::{
    Beside, add, decision, edit_state, eventually, extend_policy, field, hook, in_time, lives, objects,
    processes, record, say, step, wait_for,
};
use crate::strace::{self, Call, Harm};

/// First lines of each turn: they record processes of earlier turns in `overlaps`, and end each
/// turn but the first. A process that has inherited descriptor 9 keeps the file `lock` locked.
const BEGIN: &str = r#"exec 9>> "$HOME/lock"
    flock -n 9 || echo "$DORMOUSE_RUN: the lock is held" >> "$HOME/overlaps"
    for run in $(cat "$HOME/runs" 2>/dev/null); do
        grep -lsz "^DORMOUSE_RUN=$run\$" /proc/[0-9]*/environ >> "$HOME/overlaps"
    done
    echo "$DORMOUSE_RUN" >> "$HOME/runs"
    test "$(wc -l < "$HOME/runs")" = 1 || exit 0
"#;

/// Starts three processes that ignore signals: one in the process group; a daemon that has left
/// group and descriptors, and can be recognised by its environment alone; and one that is stopped.
const ZOO: &str = r#"
    sh "$HOME/kid" deaf &
    (setsid sh "$HOME/kid" daemon &)
    (sh "$HOME/kid" stopped &)
    until test -e "$HOME/up.deaf" -a -e "$HOME/up.daemon" -a -e "$HOME/up.stopped"; do sleep 0.02; done
"#;

const KID: &str = r#"trap '' TERM INT HUP
    test "$1" = daemon && exec 0<&- 1>&- 2>&- 9>&-
    echo $$ >> "$HOME/pids"
    touch "$HOME/up.$1"
    test "$1" = stopped && kill -STOP $$
    for second in $(seq 1000); do sleep 1; done
"#;

/// Script of a child process that a turn leaves behind, and that ends on SIGTERM.
const POLITE_KID: &str = r#"test "$1" = daemon && exec 0<&- 1>&- 2>&- 9>&-
    echo $$ >> "$HOME/pids"
    touch "$HOME/up.$1"
    test "$1" = stopped && kill -STOP $$
    exec sleep 1000
"#;

const LOOP: &str = r#"echo $$ >> "$HOME/pids"; touch "$HOME/up"; while :; do sleep 0.02; done"#;

/// Names of three kinds of process group leaders, and how the script of each handles SIGTERM.
const LEADERS: [(&str, &str); 3] = [
    ("deaf", "trap '' TERM INT HUP"),
    ("stops when it is asked", "trap 'kill -STOP $$' TERM"),
    ("stops at once", r#"(until test -e "$HOME/up"; do sleep 0.02; done; kill -STOP $$) &"#),
];

fn agent(turn: &str, kid: &str) -> Sandbox {
    let sandbox = Sandbox::new().with_real_clock();
    fs::write(sandbox.home().join("kid"), kid).unwrap();
    add(&sandbox, "ada", turn);
    extend_policy(&sandbox, "ada", "\n[recovery]\nbase = \"1ms\"\n");
    sandbox
}

fn set_timeout(sandbox: &Sandbox, before: &str, timeout: &str) {
    let path = sandbox.agent("ada").join("agent.toml");
    let text = fs::read_to_string(&path).unwrap();
    let set = text.replace(&format!("timeout = \"{before}\""), &format!("timeout = \"{timeout}\""));
    assert_ne!(set, text);
    fs::write(&path, set).unwrap();
}

fn noted(sandbox: &Sandbox, name: &str) -> Vec<String> {
    let text = fs::read_to_string(sandbox.home().join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Checks that no process of the sandbox is alive: none may outlive the command that ends it.
#[track_caller]
fn nothing_is_left(sandbox: &Sandbox, what: &str) {
    assert_eq!(processes(sandbox), Vec::<String>::new(), "{what}");
    let alive: Vec<String> = noted(sandbox, "pids").into_iter().filter(|pid| lives(pid)).collect();
    assert_eq!(alive, Vec::<String>::new(), "{what}");
}

/// Checks that the agent's records are sound and no process is left, once the agent is at rest.
#[track_caller]
fn all_is_well(sandbox: &Sandbox, what: &str) -> checker::Found {
    nothing_is_left(sandbox, what);
    assert_eq!(noted(sandbox, "overlaps"), Vec::<String>::new(), "{what}");
    let found = checker::look(&sandbox.agent("ada"));
    assert!(found.complaints.is_empty() && !found.has_journal, "{what}: {:#?}", found.complaints);
    assert_eq!(found.leftovers, Vec::<String>::new(), "{what}");
    assert!(found.state["current_run"].is_null(), "{what}: {:#}", found.state);
    assert_ne!(found.state["status"], "awake_running", "{what}");
    assert_eq!(found.state["open_tasks"].as_u64().unwrap_or(0), 0, "{what}");
    sandbox.run(["doctor"]);
    found
}

fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Runs each case in its own thread, since the cases mostly wait.
fn at_once<T: Sync>(cases: &[T], work: impl Fn(&T) + Sync) {
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| work(case));
        }
    });
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Timeout,
    Stop,
    Requeue,
    Term,
    Int,
    Hup,
    /// The tick is killed, and the next tick recovers the run.
    Kill,
    /// The tick is killed, and `stop` recovers the run.
    KillThenStop,
    /// The turn kills its tick.
    Parricide,
}

/// Ends turns that resist, in every way: when the command that ends the turn has returned, all
/// processes of the turn are gone, and only then the message runs again.
#[test]
fn every_way_to_end_a_turn_ends_a_turn_that_resists() {
    use End::*;
    let ends = [Timeout, Stop, Requeue, Term, Int, Hup, Kill, KillThenStop, Parricide];
    let cases: Vec<(End, (&str, &str))> =
        ends.iter().flat_map(|end| LEADERS.map(|leader| (*end, leader))).collect();
    at_once(&cases, |(end, leader)| in_time(|limit| end_a_turn(*end, *leader, limit)));
}

/// Ends a turn; `limit` is its timeout, or the grace of `stop`. `None` if the limit was too short.
fn end_a_turn(end: End, (name, leader): (&str, &str), limit: &str) -> Option<()> {
    use End::*;
    let what = format!("{end:?}, leader: {name}");
    let murder = if end == Parricide { "touch \"$HOME/up\"; kill -KILL $PPID\n" } else { "" };
    let sandbox = agent(&format!("{BEGIN}{ZOO}{murder}{leader}\n{LOOP}"), KID);
    if end == Timeout {
        set_timeout(&sandbox, "30m", limit);
    }
    let message = say(&sandbox, "work");
    let mut tick = Beside::start(sandbox.cmd(["tick", "ada", "--json"]));
    if end != Timeout {
        wait_for(&sandbox.home().join("up"));
    }
    let pid = tick.0.id();
    match end {
        Timeout | Stop | Requeue => {}
        Term => kill(pid, Signal::TERM),
        Int => kill(pid, Signal::INT),
        Hup => kill(pid, Signal::HUP),
        Kill | KillThenStop => tick.0.kill().unwrap(),
        Parricide => drop(tick.0.wait().unwrap()),
    }
    let is_stop = matches!(end, Stop | Requeue | KillThenStop);
    if is_stop {
        let requeue = (end == Requeue).then_some("--requeue");
        let stopped = sandbox.json(["stop", "ada", "--grace", limit].into_iter().chain(requeue));
        assert_eq!(stopped["status"], "stopped", "{what}");
    }
    let ticked = tick.end();
    if matches!(end, Kill | Parricide) {
        let step = step(&sandbox);
        assert!(step["recovered_run_id"].is_string(), "{what}: {step}");
    } else if end != KillThenStop {
        assert_eq!(ticked.code(), if is_stop { 0 } else { 7 }, "{what}: {ticked}");
    }
    nothing_is_left(&sandbox, &what);
    if end == Timeout {
        if !sandbox.home().join("up").exists() {
            return None;
        }
        set_timeout(&sandbox, limit, "30m");
    }
    if is_stop {
        // A leader without a trap dies of SIGTERM, so `stop` does not have to kill it.
        let went = end != KillThenStop && name == "stops at once";
        if went && field(&sandbox, "execution.state") == "failed" && limit != "5m" {
            return None;
        }
        assert_eq!(field(&sandbox, "execution.state"), if went { "completed" } else { "failed" }, "{what}");
        assert_eq!(field(&sandbox, "execution.reason"), if went { "" } else { "shutdown_timeout" }, "{what}");
        sandbox.run(["start", "ada"]);
    }
    sandbox.run(["tick", "ada", "--until-idle"]);
    let found = all_is_well(&sandbox, &what);
    let (terminal, ended, runs) = match end {
        Timeout => ("timed_out", "processed", 2),
        Stop | KillThenStop => ("aborted", "aborted", 1),
        Requeue => ("aborted", "processed", 2),
        Term | Int | Hup | Kill | Parricide => ("interrupted", "processed", 2),
    };
    assert_eq!(found.ended_as(&message), Some(ended), "{what}");
    let mut terminals: Vec<&str> = found.runs.values().map(|run| run["terminal"].as_str().unwrap()).collect();
    terminals.sort_unstable();
    let mut expected = if runs == 2 { vec![terminal, "completed"] } else { vec![terminal] };
    expected.sort_unstable();
    assert_eq!(terminals, expected, "{what}");
    assert_eq!(noted(&sandbox, "runs").len(), runs, "{what}");
    Some(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskEnd {
    Timeout,
    TaskStop,
    AgentStop,
    /// The supervisor gets SIGTERM.
    Term,
    /// The supervisor is killed, and the next step ends the task's processes.
    Kill,
    KillThenStop,
    /// The task kills its supervisor.
    Parricide,
}

#[test]
fn every_way_to_end_a_task_ends_a_task_that_resists() {
    use TaskEnd::*;
    let ends = [Timeout, TaskStop, AgentStop, Term, Kill, KillThenStop, Parricide];
    let cases: Vec<(TaskEnd, (&str, &str))> =
        ends.iter().flat_map(|end| LEADERS.map(|leader| (*end, leader))).collect();
    at_once(&cases, |(end, leader)| in_time(|limit| end_a_task(*end, *leader, limit)));
}

/// Ends a task, with `limit` as its timeout. Returns `None` if the task had not begun in time.
fn end_a_task(end: TaskEnd, (name, leader): (&str, &str), limit: &str) -> Option<()> {
    use TaskEnd::*;
    let what = format!("{end:?} of a task, leader: {name}");
    let murder = if end == Parricide { "touch \"$HOME/up\"; kill -KILL $PPID\n" } else { "" };
    let sandbox = agent("true", KID);
    let script = format!("{ZOO}{murder}{leader}\n{LOOP}");
    let timeout = if end == Timeout { limit } else { "1d" };
    let line = ["task", "start", "-a", "ada", "--timeout", timeout, "--", "sh", "-c", &script];
    let id = sandbox.run(line).trim().to_owned();
    if end != Timeout {
        wait_for(&sandbox.home().join("up"));
    }
    let task = || sandbox.json(["task", "status", &id]);
    let supervisor = u32::try_from(task()["supervisor_pid"].as_u64().unwrap()).unwrap();
    let is_gone = || eventually("the end of the supervisor", || (!lives(supervisor)).then_some(()));
    match end {
        Timeout => {}
        TaskStop => drop(sandbox.run(["task", "stop", &id, "--grace", "200ms"])),
        AgentStop => drop(sandbox.run(["stop", "ada", "--grace", "200ms"])),
        Term => kill(supervisor, Signal::TERM),
        Kill | KillThenStop => kill(supervisor, Signal::KILL),
        Parricide => {}
    }
    if matches!(end, Kill | KillThenStop | Parricide) {
        is_gone();
        assert_eq!(task()["status"], "running", "{what}");
    }
    match end {
        Kill | Parricide => drop(step(&sandbox)),
        KillThenStop => drop(sandbox.run(["stop", "ada", "--grace", "200ms"])),
        // The supervisor ends the task, commits its result, and exits; the test waits for the exit.
        Timeout | Term => is_gone(),
        TaskStop | AgentStop => {}
    }
    let ended = task();
    let alive: Vec<String> = noted(&sandbox, "pids").into_iter().filter(|pid| lives(pid)).collect();
    assert_eq!(alive, Vec::<String>::new(), "{what}");
    let (status, reason) = match end {
        Timeout => ("failed", json!(format!("timed out after {limit}"))),
        TaskStop | AgentStop => ("cancelled", Value::Null),
        Term => ("interrupted", json!("its supervisor was ended by signal 15")),
        Kill | KillThenStop | Parricide => ("interrupted", json!("its supervisor is gone")),
    };
    assert_eq!((ended["status"].as_str(), &ended["reason"]), (Some(status), &reason), "{what}: {ended}");
    is_gone();
    if !sandbox.home().join("up").exists() {
        return None;
    }
    if matches!(end, AgentStop | KillThenStop) {
        sandbox.run(["start", "ada"]);
    }
    sandbox.run(["tick", "ada", "--until-idle"]);
    let found = all_is_well(&sandbox, &what);
    let results: Vec<&String> =
        found.archived.keys().filter(|id| found.ended_as(id) == Some("processed")).collect();
    assert_eq!((results.len(), found.runs.len()), (1, 1), "{what}: one result, and one turn about it");
    Some(())
}

/// Kills a tick at system calls from the claim to the settlement: the next tick ends all processes
/// of the turn, and the message runs again only if the end of the turn was not recorded.
#[test]
fn a_tick_can_be_killed_at_any_moment_of_a_turn_that_leaves_processes() {
    needs!("strace");
    let make = || {
        let sandbox = agent(&format!("{BEGIN}{ZOO}echo $$ >> \"$HOME/pids\""), POLITE_KID);
        let message = say(&sandbox, "work");
        (sandbox, message)
    };
    let (recorded, _) = make();
    let points = strace::record(&recorded, &["tick", "ada"], "").points();
    let noted_at = points.iter().position(Call::is_about_end_note).unwrap();
    all_is_well(&recorded, "not killed");
    // A kill at every call takes too long. Calls near the record of the turn's end matter most.
    let mut cuts: Vec<(usize, &Call)> = Vec::new();
    for (at, call) in points.iter().enumerate() {
        let is_last = points[at + 1..].iter().all(|other| other.name != call.name);
        if call.nth == 1 || is_last || at % 7 == 0 || at.abs_diff(noted_at) <= 1 {
            cuts.push((at, call));
        }
    }
    let (killed, again) = (AtomicUsize::new(0), AtomicUsize::new(0));
    each_in_parallel(&cuts, |(at, call)| {
        let (sandbox, message) = make();
        let harmed = strace::harm(&sandbox, &["tick", "ada"], "", call, Harm::Kill);
        let what = format!("point {at} of {}, killed at {call}: {:?}", points.len(), harmed.hit);
        killed.fetch_add(harmed.hit.len(), Ordering::Relaxed);
        let is_noted = sandbox
            .agent("ada")
            .join("runs")
            .read_dir()
            .is_ok_and(|mut runs| runs.any(|run| run.unwrap().path().join("end.json").exists()));
        // After a single step, no process of the killed turn may be alive.
        sandbox.cmd(["tick", "ada"]).output();
        nothing_is_left(&sandbox, &what);
        assert_ne!(field(&sandbox, "status"), "awake_running", "{what}");
        sandbox.cmd(["tick", "ada", "--until-idle"]).output();
        let found = all_is_well(&sandbox, &what);
        assert_eq!(found.ended_as(&message), Some("processed"), "{what}");
        let runs = noted(&sandbox, "runs").len();
        assert!(runs == 1 || (runs == 2 && !is_noted), "{what}: ran {runs} times");
        again.fetch_add(runs - 1, Ordering::Relaxed);
    });
    let (killed, again) = (killed.into_inner(), again.into_inner());
    println!("killed at {killed} of {} points; the turn ran again after {again}", cuts.len());
    // Runs differ in the number of polls, so some calls are not reached.
    assert!(killed * 4 > cuts.len() * 3 && again > 0);
}

/// Process outside of the agent, in its own process group, that no command may end.
struct Innocent(Beside);

impl Innocent {
    fn new() -> Innocent {
        Innocent(Beside(Command::new("sleep").arg("86400").env_clear().process_group(0).spawn().unwrap()))
    }

    fn pid(&self) -> u32 {
        self.0.0.id()
    }

    /// Changes a process group leader's record to this process, started `earlier` clock ticks ago.
    fn forge(&self, leader: &Path, earlier: u64) {
        let text = fs::read_to_string(leader).unwrap();
        // The last line of the record is a copy of `/proc/PID/stat`.
        let (head, _) = text.trim_end().rsplit_once('\n').unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let (front, fields) = stat.rsplit_once(") ").unwrap();
        let mut fields: Vec<String> = fields.split(' ').map(str::to_owned).collect();
        let start: u64 = fields[19].parse().unwrap();
        // The machine may have booted less than `earlier` clock ticks before this process started.
        fields[19] = start.saturating_sub(earlier).to_string();
        fs::write(leader, format!("{head}\n{front}) {}", fields.join(" "))).unwrap();
    }

    fn lives(&mut self) -> bool {
        self.0.0.try_wait().unwrap().is_none()
    }
}

/// Gives the pid of a dead leader to another process: a command ends this process only if its start
/// time equals the recorded one.
#[test]
fn a_process_with_the_reused_pid_of_a_run_is_not_killed() {
    for (earlier, is_hit) in [(1, false), (360_000, false), (0, true)] {
        for by in [&["tick", "ada"][..], &["recover", "ada"], &["stop", "ada"]] {
            let sandbox = agent(&format!("{BEGIN}{LOOP}"), KID);
            say(&sandbox, "work");
            let mut tick =
                Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("up"));
            tick.kill();
            eventually("the end of the turn", || processes(&sandbox).is_empty().then_some(()));
            let mut innocent = Innocent::new();
            let run = field(&sandbox, "current_run.run_id");
            innocent.forge(&sandbox.agent("ada").join("runs").join(run).join("leader"), earlier);
            edit_state(&sandbox, |state| state["current_run"]["pid"] = innocent.pid().into());
            sandbox.cmd(by.to_vec()).output();
            assert_eq!(innocent.lives(), !is_hit, "{by:?}, {earlier} ticks earlier");
            assert_eq!(field(&sandbox, "current_run"), "");
        }
    }
}

#[test]
fn a_process_with_the_reused_pid_of_a_task_is_not_killed() {
    for (earlier, is_hit) in [(1, false), (360_000, false), (0, true)] {
        for by in ["tick", "task stop", "stop"] {
            let sandbox = agent("true", KID);
            let line = ["task", "start", "-a", "ada", "--", "sh", "-c", LOOP];
            let id = sandbox.run(line).trim().to_owned();
            wait_for(&sandbox.home().join("up"));
            let supervisor = sandbox.json(["task", "status", &id])["supervisor_pid"].as_u64().unwrap();
            kill(u32::try_from(supervisor).unwrap(), Signal::KILL);
            eventually("the end of both", || processes(&sandbox).is_empty().then_some(()));
            let mut innocent = Innocent::new();
            innocent.forge(&sandbox.agent("ada").join("tasks").join(&id).join("leader"), earlier);
            let path = sandbox.agent("ada").join(format!("tasks/{id}.json"));
            let mut task = record(&sandbox, &path);
            task["supervisor_pid"] = innocent.pid().into();
            fs::write(&path, serde_json::to_string_pretty(&task).unwrap() + "\n").unwrap();
            match by {
                "task stop" => sandbox.run(["task", "stop", &id]),
                by => sandbox.run([by, "ada"]),
            };
            assert_eq!(innocent.lives(), !is_hit, "{by}, {earlier} ticks earlier");
            assert_eq!(sandbox.json(["task", "status", &id])["status"], "interrupted");
        }
    }
}

/// Hooks of a step, with the decision of the step if the hook takes too long.
const HOOKS: [(&str, &str); 3] = [
    ("on-scheduled", "start_model_turn (operator_prompt) failed"),
    ("on-state-change", "start_model_turn (operator_prompt) completed"),
    ("on-recovery-start", "start_recovery (retry)"),
];

/// Returns an agent with a message, and with a failed turn if `hook` belongs to recovery. Turns
/// fail while the file `fail` exists.
fn agent_before(hook: &str) -> Sandbox {
    let sandbox = agent("test ! -e \"$HOME/fail\"", KID);
    say(&sandbox, "work");
    if hook == "on-recovery-start" {
        fs::write(sandbox.home().join("fail"), "").unwrap();
        step(&sandbox);
    }
    sandbox
}

/// Installs a hook that, when it runs for the first time, resists its end.
fn resisting_hook(sandbox: &Sandbox, name: &str, leader: &str) {
    let script = format!("mkdir \"$HOME/once\" 2>/dev/null || exit 0\n{ZOO}{leader}{LOOP}");
    hook(&sandbox.agent("ada"), name, &script);
}

fn tick_until_the_queue_is_empty(sandbox: &Sandbox) {
    eventually("an empty queue", || {
        sandbox.cmd(["tick", "ada", "--until-idle"]).output();
        (field(sandbox, "queue.pending") == "0").then_some(())
    });
}

#[test]
fn a_hook_that_resists_is_ended_after_its_timeout() {
    let cases: Vec<_> = HOOKS.iter().flat_map(|hook| LEADERS.map(|leader| (*hook, leader))).collect();
    at_once(&cases, |((name, comes_to), (how, leader))| {
        let what = format!("{name}, leader: {how}");
        let sandbox = agent_before(name);
        extend_policy(&sandbox, "ada", "\n[timeouts]\nhook = \"1s\"\n");
        resisting_hook(&sandbox, name, &format!("{leader}\n"));
        let ran = sandbox.cmd(["tick", "ada", "--json"]).output();
        assert_eq!(decision(&objects(&ran.stdout)[0]), *comes_to, "{what}: {ran}");
        nothing_is_left(&sandbox, &what);
        let events = sandbox.json_lines(["events", "ada", "--kind", "hook_ended"]);
        assert_eq!(events[0]["data"]["reason"], "timed out after 1s", "{what}: {events:?}");
        fs::remove_file(sandbox.agent("ada").join("hooks").join(name)).unwrap();
        let _ = fs::remove_file(sandbox.home().join("fail"));
        tick_until_the_queue_is_empty(&sandbox);
        all_is_well(&sandbox, &what);
    });
}

#[test]
fn the_next_tick_ends_leftover_processes_of_a_hook_of_a_killed_tick() {
    at_once(&HOOKS, |(name, _)| {
        let sandbox = agent_before(name);
        let _ = fs::remove_file(sandbox.home().join("fail"));
        resisting_hook(&sandbox, name, "");
        let mut tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("up"));
        tick.kill();
        sandbox.cmd(["tick", "ada"]).output();
        nothing_is_left(&sandbox, name);
        tick_until_the_queue_is_empty(&sandbox);
        all_is_well(&sandbox, name);
    });
}

#[test]
fn the_next_start_ends_leftover_processes_of_a_start_that_was_killed() {
    let sandbox = Sandbox::new().with_real_clock();
    fs::write(sandbox.home().join("kid"), KID).unwrap();
    sandbox.run(["create", "ada", "--shell", "true"]);
    resisting_hook(&sandbox, "on-startup", "");
    let mut start = Beside::start(sandbox.cmd(["start", "ada"])).after_it_made(sandbox.home().join("up"));
    start.kill();
    sandbox.run(["start", "ada"]);
    all_is_well(&sandbox, "started");
}

/// Sends SIGTERM to a tick: the tick ends its turn, and starts no other turn of any agent.
#[test]
fn a_tick_that_gets_sigterm_starts_no_other_turn() {
    for words in [&["tick", "ada", "bob"][..], &["tick", "--all"], &["tick", "--all", "--until-idle"]] {
        let sandbox =
            agent(r#"echo "$DORMOUSE_AGENT" >> "$HOME/turns"; touch "$HOME/up"; exec sleep 1000"#, "");
        add(&sandbox, "bob", r#"echo "$DORMOUSE_AGENT" >> "$HOME/turns""#);
        let message = say(&sandbox, "work");
        sandbox.run(["enqueue", "bob", "work"]);
        let tick = Beside::start(sandbox.cmd(words.to_vec())).after_it_made(sandbox.home().join("up"));
        kill(tick.0.id(), Signal::TERM);
        let ran = tick.end().exits(7);
        assert_eq!(ran.stdout.lines().count(), 1, "{words:?}: {ran}");
        assert_eq!(noted(&sandbox, "turns"), ["ada"], "{words:?}");
        assert_eq!(sandbox.json(["queue", "show", &message])["attempt"], 1);
        all_is_well(&sandbox, "told to end");
    }
}

/// Ends `tick --jobs` by a signal: the ticks of all agents get the signal, and the command waits
/// for them. After a SIGKILL of the command, these ticks end, too.
#[test]
fn jobs_end_with_the_tick_that_runs_them() {
    for (signal, code) in [(Signal::TERM, Some(7)), (Signal::INT, Some(7)), (Signal::KILL, None)] {
        let turn = r#"echo $$ >> "$HOME/pids"; touch "$HOME/$DORMOUSE_AGENT"; exec sleep 1000"#;
        let sandbox = agent(turn, "");
        add(&sandbox, "bob", turn);
        add(&sandbox, "eve", turn);
        for name in ["ada", "bob", "eve"] {
            sandbox.run(["enqueue", name, "work"]);
        }
        let tick = Beside::start(sandbox.cmd(["tick", "--all", "--jobs", "2"]));
        for name in ["ada", "bob"] {
            wait_for(&sandbox.home().join(name));
        }
        kill(tick.0.id(), signal);
        let ran = tick.end();
        assert_eq!(ran.status.code(), code, "{ran}");
        for name in ["ada", "bob"] {
            let run = sandbox.json(["run", "list", "-a", name]);
            assert_eq!(run["terminal"], "interrupted", "{signal:?}: {run}");
        }
        assert!(!sandbox.home().join("eve").exists(), "{signal:?}: another began");
        if code.is_some() {
            assert_eq!(ran.stdout.lines().count(), 2, "{ran}");
        }
        all_is_well(&sandbox, "told to end");
    }
}

/// Signals a tick during a long grace period of `stop`: the turn ends at once, recorded as aborted.
#[test]
fn a_signal_to_the_tick_ends_the_grace_of_a_stop_at_once() {
    let sandbox = agent(&format!("{BEGIN}{ZOO}trap '' TERM\n{LOOP}"), KID);
    let message = say(&sandbox, "work");
    let tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("up"));
    let stop = Beside::start(sandbox.cmd(["stop", "ada", "--grace", "1d"]));
    eventually("the gate", || (field(&sandbox, "status") == "stopped").then_some(()));
    kill(tick.0.id(), Signal::INT);
    kill(tick.0.id(), Signal::TERM);
    let (ticked, stopped) = (tick.end(), stop.end());
    assert_eq!((ticked.code(), stopped.code()), (0, 0), "{ticked}\n{stopped}");
    let found = all_is_well(&sandbox, "stopped");
    assert_eq!(found.ended_as(&message), Some("aborted"));
    assert_eq!(field(&sandbox, "execution.reason"), "shutdown_timeout");
}

#[test]
fn a_shutdown_hook_delays_the_stop_by_its_timeout_at_most() {
    let sandbox = agent(r#"echo $$ >> "$HOME/pids"; touch "$HOME/up"; exec sleep 1000"#, KID);
    extend_policy(&sandbox, "ada", "\n[timeouts]\nhook = \"1s\"\n");
    hook(&sandbox.agent("ada"), "on-shutdown", &format!("{ZOO}trap '' TERM\n{LOOP}"));
    let message = say(&sandbox, "work");
    let tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("up"));
    let stopped = sandbox.cmd(["stop", "ada"]).exits(0);
    assert_eq!(stopped.stderr, "dormouse: ada: on-shutdown failed: timed out after 1s\n");
    assert_eq!(tick.end().code(), 0);
    assert_eq!(all_is_well(&sandbox, "stopped").ended_as(&message), Some("aborted"));
}
