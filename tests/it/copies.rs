//! Tests copies of a state directory, and restores over one, while a turn, a task or a hook runs.
//! No command in the copy kills a process of the original directory, or runs the message of a
//! running turn again before the original's lease has ended (contract, execution §9).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use predicates::prelude::*;
use predicates::str::contains;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::harness::{Ran, Sandbox};
use crate::setup::{
    Beside, assert_includes, eventually, failure, field, git, hook, make_repository, objects, say, started,
    wait_for, wait_for_line,
};

/// Turn that appends to `begun` and `ended`, and lasts until the file `go` exists.
const TURN: &str = "echo $$ >>begun; until test -e go; do sleep 0.02; done; echo $$ >>ended";

/// Starts a tick of `ada`, and returns once its turn has begun.
fn running(sandbox: &Sandbox) -> Beside {
    say(sandbox, "work");
    let tick = Beside::start(sandbox.cmd(["tick", "ada"]));
    wait_for_line(&sandbox.project().join("begun"));
    tick
}

/// Lets the turn, task or hook in the original state directory end.
fn release(sandbox: &Sandbox) {
    fs::write(sandbox.project().join("go"), "").unwrap();
}

/// Runs a command in another directory.
fn run_in(sandbox: &Sandbox, dir: &Path, words: &[&str]) -> Ran {
    sandbox.cmd(["-C", dir.to_str().unwrap()].iter().chain(words).copied()).output()
}

/// State directory in which a turn runs, and a copy of it.
struct Copied {
    sandbox: Sandbox,
    tick: Beside,
    copy: PathBuf,
}

impl Copied {
    fn new(how: impl FnOnce(&Sandbox, &Path)) -> Copied {
        let sandbox = started(TURN);
        let tick = running(&sandbox);
        let copy = sandbox.root().join("copy");
        how(&sandbox, &copy);
        Copied { sandbox, tick, copy }
    }

    /// Runs a command in the copy of the state directory.
    fn run(&self, words: &[&str]) -> Ran {
        run_in(&self.sandbox, &self.copy, words)
    }

    /// Path of the original state directory.
    fn original(&self) -> String {
        self.sandbox.store().to_string_lossy().into_owned()
    }

    /// Lets the turn in the original state directory end. Asserts that it ran once and is settled.
    fn original_ends_by_itself(self) {
        let Copied { sandbox, tick, .. } = self;
        assert_eq!(field(&sandbox, "execution.state"), "running");
        release(&sandbox);
        tick.end().exits(0);
        assert_eq!(field(&sandbox, "last_turn.terminal"), "completed");
        for file in ["begun", "ended"] {
            let lines = fs::read_to_string(sandbox.project().join(file)).unwrap();
            assert_eq!(lines.lines().count(), 1, "{file}: {lines}");
        }
    }
}

/// Runs a line of shell in the project.
#[track_caller]
fn shell(sandbox: &Sandbox, line: &str) {
    let ran = Command::new("sh").args(["-c", line]).current_dir(sandbox.project()).output().unwrap();
    assert!(ran.status.success(), "{line}: {ran:?}");
}

fn by_cp(sandbox: &Sandbox, copy: &Path) {
    shell(sandbox, &format!("cp -a . '{}'", copy.display()));
    fs::remove_file(copy.join("begun")).unwrap();
}

/// Commits the state directory, and not the files of the turn.
fn commit_store(sandbox: &Sandbox) {
    make_repository(sandbox);
    git(sandbox, &["add", ".dormouse"]);
    git(sandbox, &["commit", "-qm", "live"]);
}

fn by_clone(sandbox: &Sandbox, copy: &Path) {
    commit_store(sandbox);
    git(sandbox, &["clone", "-q", ".", copy.to_str().unwrap()]);
}

fn by_worktree(sandbox: &Sandbox, copy: &Path) {
    commit_store(sandbox);
    git(sandbox, &["worktree", "add", "-q", copy.to_str().unwrap()]);
}

fn by_tar(sandbox: &Sandbox, copy: &Path) {
    let staged = copy.with_extension("new");
    fs::create_dir(&staged).unwrap();
    shell(sandbox, &format!("tar cf - .dormouse | tar xf - -C '{}'", staged.display()));
    fs::rename(staged, copy).unwrap();
}

#[test]
fn a_step_in_a_copy_does_not_end_the_turn_of_the_original() {
    for how in [by_cp, by_clone, by_worktree, by_tar] {
        let copied = Copied::new(how);
        let place = format!("it runs in {}", copied.original());
        for words in [&["tick", "ada", "--json"][..], &["tick", "ada", "--json", "--dry-run"]] {
            let step = &objects(&copied.run(words).exits(0).stdout)[0];
            let expected = json!({ "decision": "noop", "reason": "turn_elsewhere", "evidence": [&place] });
            assert_includes(step, expected);
            assert!(step["next_due_at"].is_string(), "{step}");
        }
        let ran = copied.run(&["tick", "ada"]);
        assert!(ran.stdout.contains(&format!("noop (turn elsewhere): {place}  next due")), "{ran}");
        copied.original_ends_by_itself();
    }
}

#[test]
fn no_command_in_a_copy_ends_the_turn_of_the_original() {
    for (words, said) in [
        (&["recover", "ada"][..], "turn_elsewhere"),
        (&["stop", "ada"], "its turn continues there"),
        (&["stop", "ada", "--now", "--requeue"], "its turn continues there"),
        (&["fail", "ada", "--reason", "why"], "is left alone"),
        (&["recover", "ada", "--force"], "its processes are left alone"),
        (&["doctor", "--repair"], "turn_elsewhere"),
    ] {
        let copied = Copied::new(by_cp);
        let ran = copied.run(words).exits(0);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        assert!(text.contains(said) && text.contains(&copied.original()), "{ran}");
        copied.original_ends_by_itself();
    }
}

#[test]
fn commands_in_a_copy_print_the_directory_in_which_the_turn_runs() {
    let copied = Copied::new(by_cp);
    let original = copied.original();
    let ran = copied.run(&["get", "ada"]);
    assert!(ran.stdout.contains(&format!("a turn runs in {original}, attempt 1")), "{ran}");
    let ran = copied.run(&["explain", "ada"]);
    assert!(ran.stdout.contains("turn_elsewhere") && ran.stdout.contains(&original), "{ran}");
    assert!(ran.stdout.contains("recover ada --force"), "{ran}");
    let ran = copied.run(&["list", "--json"]);
    assert_eq!(objects(&ran.stdout)[0]["posture"], "active_turn", "{ran}");
    let ran = copied.run(&["doctor", "--json"]);
    let found = objects(&ran.stdout);
    assert!(found.iter().any(|line| line["kind"] == "turn_elsewhere" && line["warning"] == true), "{ran}");
    copied.run(&["preempt", "ada", "--reason", "why", "--json"]).fails(4, "turn_elsewhere");
    // In the original state directory, `doctor` does not report a turn that runs elsewhere.
    copied.sandbox.cmd(["doctor", "--json"]).assert().stdout(contains("elsewhere").not());
    copied.original_ends_by_itself();
}

#[test]
fn after_the_lease_the_copy_runs_the_message_again_and_kills_no_process() {
    for by_force in [false, true] {
        let copied = Copied::new(by_cp);
        fs::write(copied.copy.join("go"), "").unwrap();
        let lease = field(&copied.sandbox, "current_run.lease_expires_at");
        let dir = copied.copy.to_str().unwrap().to_owned();
        if by_force {
            assert_eq!(copied.run(&["recover", "ada", "--force"]).code(), 0);
        }
        let tick = || copied.sandbox.cmd(["-C", &dir, "tick", "ada", "--json", "--until-idle"]);
        if !by_force {
            let ran = tick().env("DORMOUSE_NOW", lease.replace(".000Z", ".001Z")).output();
            assert!(objects(&ran.stdout)[0]["recovered_run_id"].is_string(), "{ran}");
        }
        let ran = tick().env("DORMOUSE_NOW", "2026-01-02T12:00:00Z").output();
        assert!(objects(&ran.stdout).iter().any(|step| step["terminal"] == "completed"), "{ran}");
        assert!(copied.copy.join("ended").exists());
        copied.original_ends_by_itself();
    }
}

#[test]
fn a_state_directory_that_was_moved_is_no_copy() {
    let sandbox = started(TURN);
    let mut tick = running(&sandbox);
    let moved = sandbox.root().join("moved");
    fs::rename(sandbox.project(), &moved).unwrap();
    fs::create_dir(sandbox.project()).unwrap();
    let words = ["-C", moved.to_str().unwrap(), "tick", "ada", "--json"];
    let ran = sandbox.cmd(words).output();
    assert_eq!(objects(&ran.stdout)[0]["reason"], "turn_in_progress", "{ran}");
    tick.kill();
    fs::write(moved.join("go"), "").unwrap();
    // The step kills the turn of the killed tick, and the message runs again after the usual pause.
    let step = eventually("the lease is free", || {
        let step = objects(&sandbox.cmd(words).output().stdout).remove(0);
        (step["reason"] != "turn_in_progress").then_some(step)
    });
    assert!(step["recovered_run_id"].is_string(), "{step}");
    let words = words.into_iter().chain(["--until-idle"]);
    let ran = sandbox.cmd(words).env("DORMOUSE_NOW", "2026-01-02T12:00:00Z").output();
    assert!(objects(&ran.stdout).iter().any(|step| step["terminal"] == "completed"), "{ran}");
}

#[test]
fn a_restore_over_a_live_directory_is_another_directory() {
    let sandbox = started(
        "echo $$ >>begun; until test -e go; do sleep 0.02; done; \
         dormouse enqueue ada again 2>said; echo $? >>said; dormouse checkpoint - <go 2>>said; echo $? >>said; mv said ended",
    );
    let tick = running(&sandbox);
    shell(&sandbox, "cp -a .dormouse ../backup; rm -rf .dormouse; cp -a ../backup .dormouse");
    let ran = sandbox.cmd(["tick", "ada", "--json"]).exits(0);
    let step = &objects(&ran.stdout)[0];
    assert_eq!(step["reason"], "turn_elsewhere", "{step}");
    assert_eq!(step["evidence"][0], "it runs in another state directory", "{step}");
    sandbox.cmd(["stop", "ada"]).exits(0);
    release(&sandbox);
    wait_for(&sandbox.project().join("ended"));
    // Commands of the old turn are refused, because the restored directory has no current run.
    let said = fs::read_to_string(sandbox.project().join("ended")).unwrap();
    assert_eq!(said.matches("no longer the current run").count(), 2, "{said}");
    assert_eq!(said.lines().filter(|line| *line == "4").count(), 2, "{said}");
    tick.end();
    assert_eq!(fs::read_to_string(sandbox.project().join("begun")).unwrap().lines().count(), 1);
}

#[test]
fn a_git_checkout_over_a_running_turn_does_not_end_the_turn() {
    let sandbox = started(TURN);
    commit_store(&sandbox);
    let tick = running(&sandbox);
    git(&sandbox, &["checkout", "-q", "-f", "HEAD", "--", ".dormouse"]);
    let step = objects(&sandbox.cmd(["tick", "ada", "--json"]).output().stdout).remove(0);
    // The restored records have no run, so the step names the process that has the lease.
    assert_eq!(step["reason"], "turn_in_progress", "{step}");
    let evidence = step["evidence"][0].as_str().unwrap();
    let pid = format!("pid {}", tick.0.id());
    assert!(evidence.contains("`dormouse tick`") && evidence.contains(&pid), "{step}");
    release(&sandbox);
    tick.end();
}

#[test]
fn no_command_in_a_copy_ends_the_task_of_the_original() {
    let sandbox = started("true");
    let line = "echo $$ >>begun; until test -e go; do sleep 0.02; done; echo done >>ended";
    let words = ["task", "start", "-a", "ada", "--timeout", "1h", "--", "sh", "-c", line];
    let id = sandbox.run(words).trim_end().to_owned();
    wait_for_line(&sandbox.project().join("begun"));
    let copy = sandbox.root().join("copy");
    by_cp(&sandbox, &copy);
    let original = sandbox.store().to_string_lossy().into_owned();
    let run = |words: &[&str]| run_in(&sandbox, &copy, words);
    let status = || objects(&run(&["task", "status", &id, "--json"]).stdout)[0]["status"].clone();

    assert_eq!(run(&["tick", "ada", "--until-idle"]).code(), 0);
    assert_eq!(status(), "running");
    let ran = run(&["task", "stop", &id, "--json"]).fails(4, "task_elsewhere");
    assert!(failure(&ran)["message"].as_str().unwrap().contains(&original), "{ran}");
    let ran = run(&["doctor", "--json"]);
    assert!(ran.stdout.contains("task_elsewhere"), "{ran}");
    let ran = run(&["stop", "ada"]);
    assert!(ran.code() == 0 && ran.stderr.contains(&format!("it runs in {original}")), "{ran}");
    assert_eq!(status(), "running");
    run(&["start", "ada"]);
    // A tick in the copied directory records the task as interrupted some time after its timeout.
    let cmd = sandbox.cmd(["-C", copy.to_str().unwrap(), "tick", "ada"]);
    cmd.env("DORMOUSE_NOW", "2026-01-02T06:00:00Z").exits(0);
    assert_eq!(status(), "interrupted");

    // `recover --force` records the interruption at once, and the task of the original continues.
    fs::remove_dir_all(&copy).unwrap();
    by_cp(&sandbox, &copy);
    let ran = run(&["recover", "ada", "--force"]);
    assert!(ran.code() == 0 && ran.stderr.contains("its processes are left alone"), "{ran}");
    assert_eq!(status(), "interrupted");
    release(&sandbox);
    let task = eventually("the end of the task", || {
        Some(sandbox.json(["task", "status", &id])).filter(|task| task["ended_at"].is_string())
    });
    assert_eq!(task["status"], "completed", "{task}");
}

#[test]
fn no_command_in_a_copy_ends_the_hook_of_the_original() {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "ada", "--shell", "true"]);
    let script = "echo $$ >>begun; until test -e go; do sleep 0.02; done";
    hook(&sandbox.agent("ada"), "on-startup", script);
    let start = Beside::start(sandbox.cmd(["start", "ada"]));
    wait_for_line(&sandbox.project().join("begun"));
    let copy = sandbox.root().join("copy");
    by_cp(&sandbox, &copy);
    for words in [&["doctor", "--repair"][..], &["tick", "ada"], &["gc"], &["recover", "ada", "--force"]] {
        run_in(&sandbox, &copy, words);
    }
    release(&sandbox);
    start.end().printed(0, "ada  booting → awake_idle\n");
}

/// A tick that SIGSTOP has stopped keeps its lease for ever.
#[test]
fn commands_name_a_stopped_tick_that_has_the_lease() {
    let sandbox = started(TURN);
    let tick = running(&sandbox);
    let pid = Pid::from_child(&tick.0);
    let named = format!("`dormouse tick` (pid {}", tick.0.id());
    kill_process(pid, Signal::STOP).unwrap();
    let step = eventually("the tick is stopped", || {
        let step = objects(&sandbox.cmd(["tick", "ada", "--json"]).output().stdout).remove(0);
        step["evidence"][0].is_string().then_some(step)
    });
    let evidence = step["evidence"][0].as_str().unwrap();
    for part in [&*named, "since", "which is stopped", &format!("kill -CONT {}", tick.0.id())] {
        assert!(evidence.contains(part), "{part}: {step}");
    }
    sandbox.cmd(["tick", "ada"]).exits(0).shows(&named);
    for words in [&["explain", "ada"][..], &["recover", "ada"], &["tick", "ada", "--dry-run"]] {
        let ran = sandbox.cmd(words.iter().copied()).output();
        assert!(format!("{}{}", ran.stdout, ran.stderr).contains("which is stopped"), "{ran}");
    }
    kill_process(pid, Signal::CONT).unwrap();
    release(&sandbox);
    tick.end().exits(0);
}

/// The test has the agent's lock, but the lock file names a process that SIGSTOP has stopped.
#[test]
fn commands_name_a_stopped_process_that_has_the_lock() {
    let sandbox = started("true");
    let mut held = Command::new("sleep").arg("600").spawn().unwrap();
    let lock = sandbox.agent("ada").join("lock");
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let text = format!(
        "{{\"pid\":{},\"command\":\"dormouse tick\",\"host\":\"{host}\",\"since\":\"2026-01-02T03:04:05.000Z\"}}\n",
        held.id()
    );
    let file = File::options().read(true).write(true).open(&lock).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    fs::write(&lock, text).unwrap();
    let stop = |signal| kill_process(Pid::from_child(&held), signal).unwrap();
    stop(Signal::STOP);
    let ran = eventually("the holder of the lock is stopped", || {
        let ran = sandbox.cmd(["--lock-timeout", "50ms", "tick", "ada"]).exits(5);
        ran.stderr.contains("which is stopped").then_some(ran)
    });
    assert!(ran.stderr.contains(&format!("pid {}", held.id())), "{ran}");
    held.kill().unwrap();
    held.wait().unwrap();
}
