//! Tests many commands at once on one agent: producers, ticks, readers, `start` and `stop`.

mod beside;
mod delegations;
mod pairs;
mod readers;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use serde_json::Value;

use crate::checker;
use crate::harness::{Ran, Sandbox};
use crate::paused::{Held, call};
use crate::setup::{extend_policy, fifo, lives, names, objects, texts, words};
use crate::strace::record;

const AGENT: &str = "ada";

/// Lock timeout of most commands in these tests, so long that only a deadlock can reach it.
const PATIENCE: &str = "--lock-timeout 10m";

/// Turn that appends its message and attempt to `home/turns`, in one write.
const TURN: &str = r#"echo "$DORMOUSE_MESSAGE $DORMOUSE_ATTEMPT" >> "$HOME/turns""#;

fn agent(turn: &str, policy: &str) -> Sandbox {
    let sandbox = Sandbox::in_memory().with_real_clock();
    sandbox.run(["init"]);
    sandbox.run(["create", AGENT, "--shell", turn]);
    extend_policy(&sandbox, AGENT, &format!("\n{policy}"));
    sandbox.run(["start", AGENT]);
    sandbox
}

/// Runs a command that must exit with one of the `allowed` statuses.
#[track_caller]
fn run(sandbox: &Sandbox, line: &str, allowed: &[i32]) -> Ran {
    let ran = sandbox.cmd(words(&format!("{line} {PATIENCE}"))).output();
    assert!(allowed.contains(&ran.code()), "`dormouse {line}`: {ran}");
    ran
}

#[track_caller]
fn is_sound(sandbox: &Sandbox) -> checker::Found {
    let found = checker::look(&sandbox.agent(AGENT));
    assert!(found.complaints.is_empty() && !found.has_journal, "{:#?}", found.complaints);
    run(sandbox, "doctor", &[0]);
    found
}

/// Calls `work` on `count` threads at once, with the number of each thread.
fn at_once(count: usize, work: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for number in 0..count {
            let work = &work;
            scope.spawn(move || work(number));
        }
    });
}

/// Returns the attempts of all turns that have run, by message.
fn turns(sandbox: &Sandbox) -> BTreeMap<String, Vec<String>> {
    let mut turns: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in fs::read_to_string(sandbox.home().join("turns")).unwrap_or_default().lines() {
        let (id, attempt) = line.split_once(' ').unwrap();
        turns.entry(id.to_owned()).or_default().push(attempt.to_owned());
    }
    turns
}

#[test]
fn a_thousand_messages_of_many_producers_make_a_turn_each() {
    const PRODUCERS: usize = 32;
    const TICKERS: usize = 4;
    const EACH: usize = 31;
    let sandbox = agent(TURN, "");
    let admitted = Mutex::new(BTreeSet::new());
    let (producing, is_over) = (AtomicUsize::new(PRODUCERS), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..PRODUCERS {
            scope.spawn(|| {
                for at in 0..EACH {
                    let ran = run(&sandbox, &format!("enqueue {AGENT} {at}"), &[0]);
                    assert!(admitted.lock().unwrap().insert(ran.stdout.trim().to_owned()));
                }
                // The last producer adds a batch of 8 more messages, each twice with one key.
                if producing.fetch_sub(1, Ordering::SeqCst) == 1 {
                    let batch: String = (0..16)
                        .map(|at| format!("{{\"text\":\"{at}\",\"dedupe_key\":\"k{}\"}}\n", at / 2))
                        .collect();
                    let line = format!("enqueue {AGENT} --batch {PATIENCE}");
                    let ran = sandbox.cmd(words(&line)).stdin(batch).exits(0);
                    admitted.lock().unwrap().extend(ran.stdout.lines().map(str::to_owned));
                    is_over.store(true, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..TICKERS {
            scope.spawn(|| {
                loop {
                    let is_over = is_over.load(Ordering::SeqCst);
                    run(&sandbox, &format!("tick {AGENT} --until-idle"), &[0]);
                    if is_over && names(&sandbox.agent(AGENT).join("inbox")).is_empty() {
                        break;
                    }
                }
            });
        }
    });
    let admitted = admitted.into_inner().unwrap();
    let turns = turns(&sandbox);
    assert_eq!(admitted.len(), PRODUCERS * EACH + 8);
    assert_eq!(turns.keys().cloned().collect::<BTreeSet<_>>(), admitted);
    let not_once: Vec<_> = turns.iter().filter(|(_, attempts)| *attempts != &["1"]).collect();
    assert!(not_once.is_empty(), "messages without exactly one turn: {not_once:?}");
    let found = is_sound(&sandbox);
    assert_eq!(found.state["counters"]["turns"], admitted.len());
    println!("{} messages, {} turns", admitted.len(), turns.len());
}

#[test]
fn of_many_messages_with_the_same_key_one_is_admitted() {
    let sandbox = agent(TURN, "");
    for round in 0..5 {
        let answers = Mutex::new(Vec::new());
        at_once(8, |_| {
            let line = format!("enqueue {AGENT} hello --dedupe-key k{round} --json");
            answers.lock().unwrap().extend(objects(&run(&sandbox, &line, &[0]).stdout));
        });
        let answers = answers.into_inner().unwrap();
        let ids: BTreeSet<String> = texts(&answers, "message_id").into_iter().collect();
        let admitted = answers.iter().filter(|answer| answer["duplicate"] == false).count();
        assert_eq!((answers.len(), ids.len(), admitted), (8, 1, 1), "{answers:?}");
    }
    assert_eq!(is_sound(&sandbox).queued.len(), 5);
}

#[test]
fn batches_do_not_delete_each_others_files() {
    const PRODUCERS: usize = 8;
    const BATCHES: usize = 20;
    let sandbox = agent(TURN, "");
    at_once(PRODUCERS, |_| {
        for _ in 0..BATCHES {
            let line = format!("enqueue {AGENT} --batch {PATIENCE}");
            sandbox.cmd(words(&line)).stdin("{\"text\":\"hello\"}\n").exits(0);
        }
    });
    assert_eq!(is_sound(&sandbox).queued.len(), PRODUCERS * BATCHES);
    assert_eq!(names(&sandbox.agent(AGENT).join("tmp")), [""; 0]);
}

#[test]
fn random_commands_at_once_lose_no_message() {
    const WORKERS: usize = 6;
    const OPERATIONS: usize = 60;
    let sandbox = agent(TURN, "[recovery]\nbase = \"1ms\"\n");
    let admitted = Mutex::new(BTreeSet::new());
    at_once(WORKERS, |worker| {
        // Each worker runs the same commands in every run of the test; their timing varies.
        let mut state = worker as u64 * 2 + 1;
        for _ in 0..OPERATIONS {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (line, allowed) = match (state >> 33) % 12 {
                0 => ("start ada", &[0, 4][..]),
                1 => ("stop ada --requeue --grace 5s", &[0][..]),
                2..=5 => ("enqueue ada hello", &[0][..]),
                6 => ("wake ada", &[0][..]),
                7 => ("get ada --json", &[0][..]),
                8 => ("queue list -a ada --limit 0", &[0][..]),
                9 => ("recover ada", &[0, 4][..]),
                // A tick exits with 7 if `stop` ends its turn.
                _ => ("tick ada", &[0, 7][..]),
            };
            let ran = run(&sandbox, line, allowed);
            if line.starts_with("enqueue") {
                admitted.lock().unwrap().insert(ran.stdout.trim().to_owned());
            }
        }
    });
    let found = is_sound(&sandbox);
    let admitted = admitted.into_inner().unwrap();
    let lost: Vec<_> = admitted.difference(&found.messages()).cloned().collect();
    assert!(lost.is_empty(), "{lost:?}");
    run(&sandbox, "stop ada", &[0]);
    run(&sandbox, "start ada", &[0]);
    while !is_sound(&sandbox).queued.is_empty() {
        run(&sandbox, "tick ada --until-idle", &[0, 7]);
    }
    let found = is_sound(&sandbox);
    for id in &admitted {
        let ran = turns(&sandbox).contains_key(id);
        match found.ended_as(id) {
            Some("processed") => assert!(ran, "{id} never ran"),
            // The final `stop`, without `--requeue`, aborts the message of an interrupted run.
            Some("aborted") => {}
            other => panic!("{id} ended as {other:?}"),
        }
    }
    println!("{} operations, {} messages", WORKERS * OPERATIONS, admitted.len());
}

#[test]
fn work_waits_and_timers_can_be_changed_by_many_commands_at_once() {
    const WORKERS: usize = 8;
    const ROUNDS: usize = 6;
    // Each turn adds a timer by its outcome.
    let turn = r#"echo '{"actions": [{"do": "timer.add", "in": "30d", "text": "x"}]}' > "$DORMOUSE_OUTCOME"
        echo "$DORMOUSE_MESSAGE $DORMOUSE_ATTEMPT" >> "$HOME/turns""#;
    let sandbox = agent(turn, "");
    let made = Mutex::new(BTreeSet::new());
    at_once(WORKERS, |_| {
        let run = |line: &str| run(&sandbox, line, &[0]).stdout.trim().to_owned();
        let make = |line: &str| {
            let id = run(line);
            assert!(made.lock().unwrap().insert(id.clone()), "two records have the id {id}");
            id
        };
        for _ in 0..ROUNDS {
            let item = make("work add objective -a ada --plan prose");
            make(&format!("wait -a ada --on external --reason why --work-item {item}"));
            // No message of this test names this resource, so none ends this wait.
            let on = format!("--on external --resource {item}");
            let wait = make(&format!("wait -a ada {on} --reason why --work-item {item}"));
            make("timer add -a ada --in 0s due");
            let timer = make("timer add -a ada --in 30d due");
            make("enqueue ada hello --in 0s");
            run("tick ada");
            run(&format!("work block {item} --reason why"));
            run(&format!("timer cancel {timer}"));
            run(&format!("wait cancel {wait}"));
            run(&format!("work complete {item} --result done"));
        }
    });
    run(&sandbox, "tick ada --until-idle", &[0]);
    let found = is_sound(&sandbox);
    let there: BTreeSet<String> = found.messages().union(&found.planes()).cloned().collect();
    let made = made.into_inner().unwrap();
    assert_eq!(made.len(), WORKERS * ROUNDS * 6);
    let lost: Vec<_> = made.difference(&there).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let open: Vec<_> = made.iter().filter(|id| found.open.contains(*id)).collect();
    assert!(open.is_empty(), "records that were not ended: {open:?}");
    let more_than_once: Vec<_> = turns(&sandbox).into_iter().filter(|(_, ran)| ran != &["1"]).collect();
    assert!(more_than_once.is_empty(), "{more_than_once:?}");
}

#[test]
fn readers_succeed_while_300_turns_run() {
    let sandbox = agent(TURN, "");
    let is_over = AtomicBool::new(false);
    let reads = AtomicUsize::new(0);
    thread::scope(|scope| {
        let lines = "get ada; list; events ada; queue list -a ada --limit 0; explain ada; tick ada --dry-run";
        for line in lines.split("; ") {
            let (sandbox, is_over, reads) = (&sandbox, &is_over, &reads);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    objects(&run(sandbox, &format!("{line} --json"), &[0]).stdout);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let batch: String = (0..300).map(|at| format!("{{\"text\":\"{at}\"}}\n")).collect();
            let line = format!("enqueue {AGENT} --batch");
            assert_eq!(sandbox.cmd(words(&line)).stdin(batch).output().code(), 0);
            let ran = sandbox.cmd(words(&format!("tick ada --until-idle {PATIENCE}"))).output();
            is_over.store(true, Ordering::SeqCst);
            assert_eq!(ran.code(), 0, "{ran}");
        });
    });
    assert_eq!(turns(&sandbox).len(), 300);
    is_sound(&sandbox);
    println!("{} reads during 300 turns", reads.into_inner());
}

fn spawn(sandbox: &Sandbox, line: &str) -> Child {
    let mut command = sandbox.cmd(words(line)).into_command();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a turn writes to a named pipe, and returns the process ids that it has written.
fn heard(path: &Path) -> Vec<i32> {
    let mut text = String::new();
    fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Starts a tick, and returns once its turn runs. [`end_turn`] lets the turn end.
fn running() -> (Sandbox, Child) {
    let sandbox = agent(&format!("{TURN}; echo $$ > \"$HOME/up\"; cat \"$HOME/down\""), "");
    ["up", "down"].iter().for_each(|name| fifo(&sandbox.home().join(name)));
    run(&sandbox, "enqueue ada hello", &[0]);
    let tick = spawn(&sandbox, "tick ada --json");
    heard(&sandbox.home().join("up"));
    (sandbox, tick)
}

/// Lets the turn of [`running`] end, and returns the step.
fn end_turn(sandbox: &Sandbox, tick: Child) -> Value {
    fs::write(sandbox.home().join("down"), "").unwrap();
    let output = tick.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn of_two_ticks_one_runs_the_turn() {
    let (sandbox, first) = running();
    let second = sandbox.json(["tick", AGENT]);
    assert_eq!((&second["decision"], &second["reason"]), (&"noop".into(), &"turn_in_progress".into()));
    let refused = run(&sandbox, "recover ada", &[4]);
    assert!(refused.stderr.contains("is running"), "{refused}");
    let first = end_turn(&sandbox, first);
    assert_eq!(first["terminal"], "completed");
    assert_eq!(second["run_id"], first["run_id"]);
    assert_eq!(turns(&sandbox).into_values().collect::<Vec<_>>(), [["1"]]);
    is_sound(&sandbox);
}

#[test]
fn recover_interrupts_no_run_that_ends_while_recover_begins() {
    needs!("strace");
    let (sandbox, tick) = running();
    let calls = record(&sandbox, &["recover", AGENT], "").calls;
    end_turn(&sandbox, tick);
    let (sandbox, tick) = running();
    let recover = Held::at(&sandbox, &["recover", AGENT], "", call(&calls, "open", "/run.lock"));
    end_turn(&sandbox, tick);
    recover.go_on().printed(4, "");
    is_sound(&sandbox);
}

#[test]
fn a_turn_ends_with_its_killed_tick_and_the_next_command_ends_its_children() {
    // The first turn has a child in its process group, and one in another session.
    let turn = r#"echo "$DORMOUSE_MESSAGE $DORMOUSE_ATTEMPT" >> "$HOME/turns"
        [ ! -e "$HOME/begun" ] || exit 0
        touch "$HOME/begun"
        sleep 100000 & group=$!
        setsid sleep 100000 & session=$!
        echo $$ $group $session > "$HOME/up"
        wait"#;
    for round in 0..3 {
        let sandbox = agent(turn, "[recovery]\nbase = \"1ms\"\n");
        let up = sandbox.home().join("up");
        fifo(&up);
        run(&sandbox, "enqueue ada hello", &[0]);
        let mut tick = spawn(&sandbox, "tick ada");
        let pids = heard(&up);
        assert_eq!(pids.len(), 3);
        tick.kill().unwrap();
        tick.wait().unwrap();
        // The kernel kills the turn a moment after the tick.
        while lives(pids[0]) {
            thread::yield_now();
        }
        // In round 1 `recover` ends the turn's two children, in the other rounds the next `tick`.
        if round == 1 {
            let recovered = sandbox.json(["recover", AGENT]);
            assert!(recovered["interrupted_run_id"].is_string(), "{recovered}");
        }
        while turns(&sandbox).values().map(Vec::len).sum::<usize>() == 1 {
            run(&sandbox, "tick ada", &[0]);
            assert!(pids.iter().all(|pid| !lives(*pid)), "{pids:?}");
        }
        run(&sandbox, "tick ada --until-idle", &[0]);
        // An interruption does not count as an attempt, so both turns have the number 1.
        assert_eq!(turns(&sandbox).into_values().collect::<Vec<_>>(), [["1", "1"]]);
        let found = is_sound(&sandbox);
        let ended: Vec<&str> = found.archived.keys().filter_map(|id| found.ended_as(id)).collect();
        assert_eq!(ended, ["processed"]);
        assert_eq!(found.runs.len(), 2);
    }
}

#[test]
fn task_start_during_a_stop_succeeds_or_is_refused() {
    let sandbox = agent("true", "");
    for _ in 0..30 {
        let start = Barrier::new(2);
        at_once(2, |number| {
            start.wait();
            // A stopped agent starts no task, so `task start` may exit with 4.
            run(&sandbox, ["task start -a ada -- true", "stop ada --grace 5s"][number], &[0, 4]);
        });
        run(&sandbox, "start ada", &[0]);
    }
    is_sound(&sandbox);
}
