//! Many commands at once on one agent: producers, ticks, readers, `start` and `stop`.

mod beside;
mod delegations;
mod pairs;
mod readers;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::Value;

use crate::checker;
use crate::harness::{Ran, Sandbox};
use crate::held::{Held, call};
use crate::setup::{lives, names, words};
use crate::strace::record;

const AGENT: &str = "ada";

/// Whoever waits for a lock longer than this waits for ever, however busy the machine is: it exits with 5.
const PATIENCE: &str = "--lock-timeout 10m";

/// Appends to the log outside the store, in one write.
const TURN: &str = r#"echo "$DORMOUSE_MESSAGE $DORMOUSE_ATTEMPT" >> "$HOME/turns""#;

fn agent(turn: &str, policy: &str) -> Sandbox {
    let sandbox = Sandbox::in_memory().with_real_clock();
    sandbox.run(["init"]);
    sandbox.run(["create", AGENT, "--shell", turn]);
    let path = sandbox.agent(AGENT).join("agent.toml");
    fs::write(&path, format!("{}\n{policy}", fs::read_to_string(&path).unwrap())).unwrap();
    sandbox.run(["start", AGENT]);
    sandbox
}

/// Runs a command that may be refused, but never breaks.
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
                // Eight more, each of them twice under one key, in one go.
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
    assert!(not_once.is_empty(), "not exactly one turn: {not_once:?}");
    let found = is_sound(&sandbox);
    assert_eq!(found.state["counters"]["turns"], admitted.len());
    println!("{} messages, {} turns", admitted.len(), turns.len());
}

#[test]
fn of_many_with_the_same_key_one_is_admitted() {
    let sandbox = agent(TURN, "");
    for round in 0..5 {
        let answers = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let line = format!("enqueue {AGENT} hello --dedupe-key k{round} --json");
                    let ran = run(&sandbox, &line, &[0]);
                    answers.lock().unwrap().push(serde_json::from_str::<Value>(&ran.stdout).unwrap());
                });
            }
        });
        let answers = answers.into_inner().unwrap();
        let ids: BTreeSet<&str> =
            answers.iter().map(|answer| answer["message_id"].as_str().unwrap()).collect();
        let admitted = answers.iter().filter(|answer| answer["duplicate"] == false).count();
        assert_eq!((ids.len(), admitted), (1, 1), "{answers:?}");
    }
    assert_eq!(is_sound(&sandbox).queued.len(), 5);
}

#[test]
fn batches_do_not_sweep_each_other_away() {
    const PRODUCERS: usize = 8;
    const BATCHES: usize = 20;
    let sandbox = agent(TURN, "");
    thread::scope(|scope| {
        for _ in 0..PRODUCERS {
            scope.spawn(|| {
                for _ in 0..BATCHES {
                    let line = format!("enqueue {AGENT} --batch {PATIENCE}");
                    sandbox.cmd(words(&line)).stdin("{\"text\":\"hello\"}\n").exits(0);
                }
            });
        }
    });
    assert_eq!(is_sound(&sandbox).queued.len(), PRODUCERS * BATCHES);
    let left = names(&sandbox.agent(AGENT).join("tmp"));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn whatever_is_mixed_nothing_breaks() {
    const WORKERS: u64 = 6;
    const OPERATIONS: u64 = 60;
    let sandbox = agent(TURN, "[recovery]\nbase = \"1ms\"\n");
    let admitted = Mutex::new(BTreeSet::new());
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (sandbox, admitted) = (&sandbox, &admitted);
            scope.spawn(move || {
                // The same sequence of commands every time; how they meet is another matter.
                let mut state = worker * 2 + 1;
                for _ in 0..OPERATIONS {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    match (state >> 33) % 12 {
                        0 => drop(run(sandbox, "start ada", &[0, 4])),
                        1 => drop(run(sandbox, "stop ada --requeue --grace 5s", &[0])),
                        2..=5 => {
                            let ran = run(sandbox, "enqueue ada hello", &[0]);
                            admitted.lock().unwrap().insert(ran.stdout.trim().to_owned());
                        }
                        6 => drop(run(sandbox, "wake ada", &[0])),
                        7 => drop(run(sandbox, "get ada --json", &[0])),
                        8 => drop(run(sandbox, "queue list -a ada --limit 0", &[0])),
                        9 => drop(run(sandbox, "recover ada", &[0, 4])),
                        // A turn that was stopped has failed for its tick.
                        _ => drop(run(sandbox, "tick ada", &[0, 7])),
                    }
                }
            });
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
            // The last stop may have met a run that somebody had claimed.
            Some("aborted") => {}
            other => panic!("{id} ended as {other:?}"),
        }
    }
    println!("{} operations, {} messages", WORKERS * OPERATIONS, admitted.len());
}

#[test]
fn the_planes_of_an_agent_can_be_changed_by_many_at_once() {
    const WORKERS: usize = 8;
    const ROUNDS: usize = 6;
    // The turns do the same from within: as commands, and by what they leave.
    let turn = r#"echo '{"actions": [{"do": "timer.add", "in": "30d", "text": "x"}]}' > "$DORMOUSE_OUTCOME"
        echo "$DORMOUSE_MESSAGE $DORMOUSE_ATTEMPT" >> "$HOME/turns""#;
    let sandbox = agent(turn, "");
    let made = Mutex::new(BTreeSet::new());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let run = |line: &str| {
                    let ran = run(&sandbox, line, &[0]);
                    ran.stdout.trim().to_owned()
                };
                let make = |line: &str| {
                    let id = run(line);
                    assert!(made.lock().unwrap().insert(id.clone()), "{id} is there twice");
                    id
                };
                for _ in 0..ROUNDS {
                    let item = make("work add objective -a ada --plan prose");
                    make(&format!("wait -a ada --on external --reason why --work-item {item}"));
                    // Nothing that is said here ends this one.
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
    assert!(open.is_empty(), "each was ended: {open:?}");
    let more_than_once: Vec<_> = turns(&sandbox).into_iter().filter(|(_, ran)| ran != &["1"]).collect();
    assert!(more_than_once.is_empty(), "{more_than_once:?}");
}

#[test]
fn readers_are_never_disturbed() {
    let sandbox = agent(TURN, "");
    let is_over = AtomicBool::new(false);
    let reads = AtomicUsize::new(0);
    thread::scope(|scope| {
        for line in [
            "get ada --json",
            "list --json",
            "events ada --json",
            "queue list -a ada --limit 0 --json",
            "explain ada --json",
            "tick ada --dry-run --json",
        ] {
            let (sandbox, is_over, reads) = (&sandbox, &is_over, &reads);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let ran = run(sandbox, line, &[0]);
                    for line in ran.stdout.lines() {
                        serde_json::from_str::<Value>(line).unwrap();
                    }
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
    println!("{} reads beside 300 turns", reads.into_inner());
}

/// A named pipe: who opens it waits for the other side, so that nobody has to guess how long.
fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn spawn(sandbox: &Sandbox, line: &str) -> Child {
    let mut command = sandbox.cmd(words(line)).into_command();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a turn has said so, and returns what it said.
fn heard(path: &Path) -> Vec<i32> {
    let mut text = String::new();
    fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Who dies with its parent is gone a moment after it.
fn wait_for_end(pid: i32) {
    while lives(pid) {
        thread::yield_now();
    }
}

#[test]
fn of_two_ticks_one_runs_the_turn() {
    let turn = r#"echo "$DORMOUSE_MESSAGE $DORMOUSE_ATTEMPT" >> "$HOME/turns"; echo $$ > "$HOME/up"; cat "$HOME/down""#;
    let sandbox = agent(turn, "");
    let (up, down): (PathBuf, PathBuf) = (sandbox.home().join("up"), sandbox.home().join("down"));
    fifo(&up);
    fifo(&down);
    run(&sandbox, "enqueue ada hello", &[0]);
    let first = spawn(&sandbox, "tick ada --json");
    heard(&up);
    let second = sandbox.json(["tick", AGENT]);
    assert_eq!((&second["decision"], &second["reason"]), (&"noop".into(), &"turn_in_progress".into()));
    let refused = run(&sandbox, "recover ada", &[4]);
    assert!(refused.stderr.contains("is running"), "{refused}");
    fs::write(&down, "").unwrap();
    let first = first.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!((first.status.code(), &report["terminal"]), (Some(0), &"completed".into()));
    assert_eq!(second["run_id"], report["run_id"]);
    assert_eq!(turns(&sandbox).into_values().collect::<Vec<_>>(), [["1"]]);
    is_sound(&sandbox);
}

#[test]
fn who_comes_to_recover_a_run_that_ends_in_that_moment_has_interrupted_none() {
    needs!("strace");
    let turn = r#"echo $$ > "$HOME/up"; cat "$HOME/down""#;
    let running = || {
        let sandbox = agent(turn, "");
        ["up", "down"].iter().for_each(|name| fifo(&sandbox.home().join(name)));
        run(&sandbox, "enqueue ada hello", &[0]);
        let tick = spawn(&sandbox, "tick ada");
        heard(&sandbox.home().join("up"));
        (sandbox, tick)
    };
    let end = |sandbox: &Sandbox, tick: Child| {
        fs::write(sandbox.home().join("down"), "").unwrap();
        assert_eq!(tick.wait_with_output().unwrap().status.code(), Some(0));
    };
    let (sandbox, tick) = running();
    let calls = record(&sandbox, &["recover", AGENT], "").calls;
    end(&sandbox, tick);
    let (sandbox, tick) = running();
    let recover = Held::at(&sandbox, &["recover", AGENT], "", call(&calls, "open", "/run.lock"));
    end(&sandbox, tick);
    let ran = recover.go_on();
    assert_eq!((ran.code(), &*ran.stdout), (4, ""), "{ran}");
    is_sound(&sandbox);
}

#[test]
fn a_tick_that_is_killed_takes_its_turn_along() {
    // The first run leaves a child in the group, and one in a session of its own.
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
        wait_for_end(pids[0]);
        // Whoever comes next ends the others, before the message may run again.
        if round == 1 {
            let recovered = sandbox.json(["recover", AGENT]);
            assert!(recovered["interrupted_run_id"].is_string(), "{recovered}");
        }
        while turns(&sandbox).values().map(Vec::len).sum::<usize>() == 1 {
            run(&sandbox, "tick ada", &[0]);
            assert!(pids.iter().all(|pid| !lives(*pid)), "{pids:?}");
        }
        run(&sandbox, "tick ada --until-idle", &[0]);
        assert_eq!(
            turns(&sandbox).into_values().collect::<Vec<_>>(),
            [["1", "1"]],
            "an interruption costs no attempt"
        );
        let found = is_sound(&sandbox);
        let ended: Vec<&str> = found.archived.keys().filter_map(|id| found.ended_as(id)).collect();
        assert_eq!(ended, ["processed"]);
        assert_eq!(found.runs.len(), 2);
    }
}

#[test]
fn a_task_that_is_stopped_before_it_begins_was_started_all_the_same() {
    let sandbox = agent("true", "");
    for _ in 0..30 {
        let start = AtomicBool::new(false);
        thread::scope(|scope| {
            for line in ["task start -a ada -- true", "stop ada --grace 5s"] {
                let (sandbox, start) = (&sandbox, &start);
                scope.spawn(move || {
                    while !start.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    // Behind a closed gate none is started.
                    run(sandbox, line, &[0, 4]);
                });
            }
            start.store(true, Ordering::SeqCst);
        });
        run(&sandbox, "start ada", &[0]);
    }
    is_sound(&sandbox);
}
