//! Runs pairs of commands and a reader at once, on agents in all situations. Each command exits
//! with a status that the contract allows, and all records stay consistent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Child;
use std::sync::Barrier;
use std::thread;

use tempfile::TempDir;

use super::{AGENT, heard, is_sound, run, spawn};
use crate::checker;
use crate::command_lists::{READERS, WRITERS};
use crate::harness::{Cmd, Ran, Sandbox, each_in_parallel, one_in, write_program};
use crate::paused::Held;
use crate::setup::{
    HOOKS, eventually, extend_policy, fifo, kill, lives, names, number, own_name, processes, words,
};
use crate::strace::{Call, record_inside};

/// Standard input of every command.
const INPUT: &str = "{\"text\":\"one\"}\n{\"text\":\"two\"}\n";

/// Turn that does what its message says. Writes `home/overlaps` if two turns of an agent overlap.
const TURN: &str = r#"exec 9>> "$HOME/lock.$DORMOUSE_AGENT"
flock -n 9 || echo "$DORMOUSE_RUN" >> "$HOME/overlaps"
case "$(cat)" in
*'"text": "+wait"'*)
    # Only the first turn blocks: `ask` would wait for ever if a second turn of its message did.
    test -e "$HOME/go" || mkdir "$HOME/first" 2>/dev/null || exit 0
    test -e "$HOME/go" || echo $$ > "$HOME/up"
    until test -e "$HOME/go"; do
        {dormouse} safe-point -q
        case $? in 0) sleep 0.01 ;; 10) {dormouse} yield -q; exit ;; *) exit 1 ;; esac
    done ;;
*'"text": "+yield"'*) test -e "$HOME/go" || {dormouse} yield -q ;;
*'"text": "+fail"'*) exit 1 ;;
esac"#;

/// State of the agent when the commands start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Situation {
    Idle,
    Backlog,
    Running,
    Suspended,
    Backoff,
    Recovering,
    Tasks,
    Lost,
    Delegated,
    Hooks,
    Stopped,
}

use Situation::*;

const SITUATIONS: &[Situation] = &[
    Idle, Running, Backlog, Suspended, Tasks, Delegated, Recovering, Hooks, Running, Backoff, Lost, Stopped,
];

/// Prepared agent in one of the situations, without processes, and the ids of its records.
struct Template {
    sandbox: Sandbox,
    ids: BTreeMap<&'static str, String>,
}

fn template(situation: Situation) -> Template {
    let sandbox = Sandbox::in_memory().with_real_clock();
    sandbox.run(["init"]);
    let turn = TURN.replace("{dormouse}", &own_name());
    let made = sandbox.run(["create", AGENT, "--secret-file", "secret", "--shell", &turn]);
    let trigger = made.split_whitespace().find(|word| word.starts_with("trig_")).unwrap().to_owned();
    let base = if situation == Backoff { "1h" } else { "1ms" };
    extend_policy(&sandbox, AGENT, &format!("[recovery]\nbase = \"{base}\"\nmax_attempts = 2\n"));
    let say = |line: &str| run(&sandbox, line, &[0, 7]).stdout.trim().to_owned();
    say("start ada");
    let command = if situation == Lost { "sleep 1000" } else { "true" };
    let task = start_task(&sandbox, command);
    let supervisor = || living(&sandbox).into_iter().find(|process| process.contains(" supervise "));
    if let (Lost, Some(process)) = (situation, supervisor()) {
        kill("KILL", words(&process)[0]);
    }
    eventually("the end of the task", || living(&sandbox).is_empty().then_some(()));
    if situation != Lost {
        say("tick ada --until-idle");
    }
    let task = if situation == Delegated { say("task start -a ada --delegate kid hello") } else { task };
    let begin = |text: &str| {
        let ran = run(&sandbox, &format!("enqueue ada {text}"), &[0]);
        run(&sandbox, "tick ada", &[0, 7]);
        ran.stdout.trim().to_owned()
    };
    let message = match situation {
        Suspended => begin("+yield"),
        Backoff | Recovering => begin("+fail"),
        Running => say("enqueue ada +wait"),
        Idle | Backlog | Tasks | Lost | Delegated | Hooks | Stopped => say("enqueue ada hello"),
    };
    let item = say("work add objective -a ada --plan prose");
    let wait = say(&format!("wait -a ada --on operator --reason why --work-item {item}"));
    let timer = say("timer add -a ada --in 30d due");
    match situation {
        Idle => drop(say("tick ada --until-idle")),
        Backlog | Hooks => {
            say("enqueue ada again --dedupe-key key");
            say("enqueue ada +fail");
            say("wake ada --reason why");
            say("timer add -a ada --in 0s due");
        }
        Stopped => drop(say("stop ada")),
        Running | Suspended | Backoff | Recovering | Tasks | Lost | Delegated => {}
    }
    let names = ["{message}", "{item}", "{wait}", "{timer}", "{task}", "{trigger}"];
    let ids = names.into_iter().zip([message, item, wait, timer, task, trigger]).collect();
    Template { sandbox, ids }
}

fn start_task(sandbox: &Sandbox, command: &str) -> String {
    sandbox.run(words(&format!("task start -a ada -- {command}"))).trim().to_owned()
}

/// Returns the process id and command line of each living process of a sandbox.
fn living(sandbox: &Sandbox) -> Vec<String> {
    let mut processes = processes(sandbox);
    processes.retain(|process| lives(words(process)[0]));
    processes
}

/// Copy of a prepared agent, on which commands run.
struct Case {
    sandbox: Sandbox,
    ids: BTreeMap<&'static str, String>,
    /// Tick whose turn runs already.
    tick: Option<Child>,
    /// True if a turn calls commands that change files: they may be killed with the turn.
    may_be_cut: bool,
}

impl Case {
    fn new(template: &Template, situation: Situation, hooks: &Path) -> Case {
        let sandbox = template.sandbox.copy();
        let mut ids = template.ids.clone();
        let mut tick = None;
        match situation {
            Running => {
                let up = sandbox.home().join("up");
                fifo(&up);
                tick = Some(spawn(&sandbox, "tick ada"));
                heard(&up);
            }
            Tasks => drop(ids.insert("{task}", start_task(&sandbox, "sleep 1000"))),
            Hooks => symlink(hooks, sandbox.store().join("hooks.new"))
                .and_then(|()| fs::remove_dir_all(sandbox.store().join("hooks")))
                .and_then(|()| fs::rename(sandbox.store().join("hooks.new"), sandbox.store().join("hooks")))
                .unwrap(),
            Idle | Backlog | Suspended | Recovering | Backoff | Lost | Delegated | Stopped => {}
        }
        let may_be_cut = matches!(situation, Running | Suspended);
        Case { sandbox, ids, tick, may_be_cut }
    }

    /// Returns the environment variables (`NAME=VALUE`) of a command that the turn calls.
    fn inside(&self, line: &str) -> Vec<String> {
        if !line.starts_with('@') {
            return Vec::new();
        }
        let run = names(&self.sandbox.agent(AGENT).join("runs")).pop();
        vec![format!("DORMOUSE_AGENT={AGENT}"), format!("DORMOUSE_RUN={}", run.unwrap_or_default())]
    }

    fn cmd(&self, line: &str, patience: &str) -> Cmd<'_> {
        let cmd = self.sandbox.cmd(args_of(line, patience)).stdin(INPUT);
        let inside = self.inside(line);
        let inside = inside.iter().filter_map(|entry| entry.split_once('='));
        inside.fold(cmd, |cmd, (name, value)| cmd.env(name, value))
    }

    fn line(&self, line: &str, unique: &str) -> String {
        let with_id = |line: String, (name, id): (&&str, &String)| line.replace(name, id);
        self.ids.iter().fold(line.replace("{unique}", unique), with_id)
    }

    fn race(&self, lines: &[String]) -> Vec<Ran> {
        let start = Barrier::new(lines.len());
        thread::scope(|scope| {
            let runs = lines.iter().map(|line| {
                scope.spawn(|| {
                    let cmd = self.cmd(line, LONG);
                    start.wait();
                    cmd.output()
                })
            });
            let runs: Vec<_> = runs.collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        })
    }

    /// Ends all processes. Asserts consistent records, no lost message and no overlapping turns.
    #[track_caller]
    fn end(mut self, said: &BTreeSet<String>, described: &str) {
        fs::write(self.sandbox.home().join("go"), "").unwrap();
        if let Some(tick) = self.tick.take() {
            let code = tick.wait_with_output().unwrap().status.code();
            assert!(matches!(code, Some(0 | 7)), "the tick ended with {code:?}: {described}");
        }
        run(&self.sandbox, "stop --all --grace 5s", &[0]);
        eventually("the end of every process", || living(&self.sandbox).is_empty().then_some(()));
        let found = is_sound(&self.sandbox);
        let messages = found.messages();
        let lost: Vec<_> = said.difference(&messages).collect();
        assert!(lost.is_empty(), "lost: {lost:?}: {described}");
        for name in names(&self.sandbox.store().join("agents")) {
            let found = checker::look(&self.sandbox.agent(&name));
            assert!(found.complaints.is_empty(), "{:#?}: {described}", found.complaints);
            assert!(self.may_be_cut || found.leftovers.is_empty(), "{:?}: {described}", found.leftovers);
        }
        let overlaps = fs::read_to_string(self.sandbox.home().join("overlaps"));
        assert!(overlaps.is_err(), "turns that overlapped others: {overlaps:?}: {described}");
    }
}

/// True if a command may exit with `code`: with 0 or one of `others`.
fn is_allowed(code: i32, others: &[i32]) -> bool {
    code == 0 || others.contains(&code)
}

/// Makes one directory of hooks on disk: sandboxes in memory may be on a `noexec` file system.
fn hooks() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in HOOKS {
        let path = dir.path().join(name);
        let script = format!("#!/bin/sh\n{} get \"$DORMOUSE_AGENT\" status > /dev/null\n", own_name());
        write_program(&path, &script);
    }
    dir
}

/// Splits a command line into words, and adds its lock timeout.
fn args_of<'l>(line: &'l str, patience: &'l str) -> Vec<&'l str> {
    ["--lock-timeout", patience].into_iter().chain(line.trim_start_matches('@').split(' ')).collect()
}

/// Lock timeout that ends only in a deadlock, however busy the machine is.
const LONG: &str = "10m";

fn templates() -> Vec<(Situation, Template)> {
    SITUATIONS.iter().map(|situation| (*situation, template(*situation))).collect()
}

/// Returns the ids of the messages that commands report as admitted.
fn admitted<'r>(ran: impl Iterator<Item = (&'r String, &'r Ran)>) -> BTreeSet<String> {
    let producers = ran.filter(|(line, _)| line.starts_with("enqueue"));
    producers.flat_map(|(_, ran)| ran.stdout.lines().map(str::to_owned)).collect()
}

/// Number of times that each pair of commands runs on an agent in each situation, from
/// `DORMOUSE_RACES`, for a long search. Without the variable the tests run a sample.
fn rounds() -> Option<usize> {
    std::env::var("DORMOUSE_RACES").ok()?.parse().ok()
}

#[test]
fn two_commands_and_a_reader_at_once_break_nothing() {
    needs!("strace");
    let (templates, hooks) = (templates(), hooks());
    let pairs = (0..WRITERS.len()).flat_map(|one| (one..WRITERS.len()).map(move |other| (one, other)));
    let mut cases: Vec<(usize, usize, usize, usize)> = Vec::new();
    for (at, (one, other)) in pairs.enumerate() {
        // A pair of commands runs in one situation, or with DORMOUSE_RACES in all situations.
        let times = rounds().map_or(1, |rounds| rounds * SITUATIONS.len());
        cases.extend((at..at + times).map(|at| (one, other, at % SITUATIONS.len(), at % READERS.len())));
    }
    let cases = if rounds().is_some() { cases } else { one_in(6, cases) };
    each_in_parallel(&cases, |&(one, other, situation, reader)| {
        let (situation, template) = &templates[situation];
        let case = Case::new(template, *situation, hooks.path());
        let [first, second] = [WRITERS[one], WRITERS[other]];
        let lines =
            [case.line(first.0, "one"), case.line(second.0, "two"), case.line(READERS[reader], "none")];
        let ran = case.race(&lines);
        let described = format!("{situation:?}: {lines:?}: {ran:?}");
        for (ran, allowed) in ran.iter().zip([first.1, second.1, &[]]) {
            assert!(is_allowed(ran.code(), allowed), "{described}");
        }
        case.end(&admitted(lines.iter().zip(&ran)), &described);
    });
    println!("{} cases", cases.len());
}

/// `rm` deletes an agent while another command changes it, and `import` creates the agent again
/// from the export that `rm` writes. The export has all admitted messages.
#[test]
fn a_command_during_rm_is_in_the_stream_or_refused() {
    needs!("strace");
    let (templates, hooks) = (templates(), hooks());
    let cases: Vec<usize> =
        (0..WRITERS.len() * rounds().map_or(1, |rounds| rounds * SITUATIONS.len())).collect();
    each_in_parallel(&cases, |&number| {
        let (situation, template) = &templates[(number + number / WRITERS.len()) % SITUATIONS.len()];
        let (line, allowed) = WRITERS[number % WRITERS.len()];
        let case = Case::new(template, *situation, hooks.path());
        let gone = case.sandbox.root().join("gone.tar");
        let lines = [format!("rm ada --force -o {}", gone.display()), case.line(line, "one")];
        let ran = case.race(&lines);
        let described = format!("{situation:?}: {lines:?}: {ran:?}");
        // `rm` may be refused. The other command may find all, half or nothing of the agent.
        assert!([0, 4].contains(&ran[0].code()), "{described}");
        assert!([3, 4].contains(&ran[1].code()) || is_allowed(ran[1].code(), allowed), "{described}");
        if ran[0].code() == 0 {
            assert!(!case.sandbox.agent(AGENT).exists(), "{described}");
            run(&case.sandbox, &format!("import {}", gone.display()), &[0]);
        }
        case.end(&admitted(lines.iter().zip(&ran)), &described);
    });
}

/// Stops a random command at a random system call, and runs another command meanwhile.
#[test]
fn a_command_that_is_stopped_at_a_system_call_breaks_no_other() {
    needs!("strace");
    let (templates, hooks) = (templates(), hooks());
    let readers = READERS.iter().map(|line| (*line, &[] as &[i32]));
    let all: Vec<(&str, &[i32])> = WRITERS.iter().copied().chain(readers).collect();
    let cases: Vec<u64> = (0..rounds().map_or(60, |rounds| rounds as u64 * 1000)).collect();
    each_in_parallel(&cases, |&number| {
        let mut draw = draws(number);
        let (situation, template) = &templates[draw(SITUATIONS.len())];
        let (held, other) = (all[draw(all.len())], all[draw(all.len())]);
        let case = || Case::new(template, *situation, hooks.path());
        let calls = calls_of(case(), held.0);
        let call = &calls[draw(calls.len())];
        let case = case();
        let lines = [case.line(held.0, "one"), case.line(other.0, "two")];
        let args = args_of(&lines[0], LONG);
        let first = Held::inside(&case.sandbox, &case.inside(&lines[0]), &args, INPUT, call);
        // The stopped first command may hold the lock, so the second must not wait for the lock.
        let second = case.cmd(&lines[1], "0s").output();
        let first = first.go_on();
        let described = format!("{situation:?}: {lines:?}, held at {call}\nfirst: {first}\nsecond: {second}");
        assert!(is_allowed(first.code(), held.1), "{described}");
        assert!(second.code() == 5 || is_allowed(second.code(), other.1), "{described}");
        case.end(&admitted(lines.iter().zip([&first, &second])), &described);
    });
}

/// Runs a command, and returns its system calls from the one that opens the settings.
fn calls_of(case: Case, line: &str) -> Vec<Call> {
    let line = case.line(line, "one");
    let inside = case.inside(&line);
    let calls = record_inside(&case.sandbox, &inside, &args_of(&line, LONG), INPUT).calls;
    case.end(&BTreeSet::new(), &line);
    let from = calls.iter().position(|call| call.rest.contains("dormouse.toml")).unwrap_or(0);
    calls[from..].to_vec()
}

/// Returns a function that draws numbers below a bound, from the case and `DORMOUSE_RACES_SEED`.
fn draws(case: u64) -> impl FnMut(usize) -> usize {
    let seed = number("DORMOUSE_RACES_SEED", 1);
    let mut state = (case + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(seed);
    move |below| {
        state ^= state >> 31;
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize) % below
    }
}
