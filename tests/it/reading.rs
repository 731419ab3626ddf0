//! Tests that commands that read run no program and change no file, although there is work to do.

use std::fs;
use std::path::PathBuf;

use crate::harness::{Sandbox, dormouse};
use crate::setup::{Beside, HOOKS, add, changes, commands, hook, say, started, step, tree};

/// Agent `ada` with all that makes a step run a program: hooks, a message, a due timer, and a turn
/// whose tick was killed. Returns the ids of a processed message and its run.
fn full_of_things_to_do() -> (Sandbox, String, String) {
    let sandbox = started("touch begun; while test -e stay; do sleep 0.1; done; echo done");
    let done = say(&sandbox, "x");
    let run = step(&sandbox)["run_id"].as_str().unwrap().to_owned();
    fs::remove_file(sandbox.project().join("begun")).unwrap();
    for name in HOOKS.iter().chain(&["on-attention"]) {
        hook(&sandbox.store(), name, "touch hooked");
    }
    add(&sandbox, "bob", "true");
    sandbox.run(["work", "add", "x", "-a", "ada", "--plan", "y"]);
    sandbox.run(["timer", "add", "-a", "ada", "--in", "1s", "x"]);
    say(&sandbox, "y");
    fs::write(sandbox.project().join("stay"), "").unwrap();
    // Dropping `Beside` kills the tick.
    drop(Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.project().join("begun")));
    for mark in ["hooked", "begun", "stay"] {
        let _ = fs::remove_file(sandbox.project().join(mark));
    }
    sandbox.pass(3600);
    (sandbox, done, run)
}

#[test]
fn read_only_commands_run_no_program_and_change_no_file() {
    needs!("strace");
    let (sandbox, done, run) = full_of_things_to_do();
    let log = sandbox.root().join("execs");
    let readers = format!(
        "list, get ada, explain ada, state ada, state ada --hooks, events ada, briefs ada, next-wake --all, \
         await ada --status awake_running --timeout 1s, await ada --message {done}, queue list -a ada, \
         queue show {done}, queue dead -a ada, run list -a ada, run show {run} --stdout, work list -a ada, \
         wait list -a ada, timer list -a ada, task list -a ada, tick --all --dry-run, doctor"
    );
    for args in commands(&readers) {
        let before = tree(&sandbox.project());
        let (log, own) = (log.to_str().unwrap(), dormouse());
        let strace = ["-f", "-qq", "-e", "trace=execve,execveat", "-o", log, own.to_str().unwrap()];
        let line = strace.iter().chain(&args).map(Into::into).collect();
        let ran = sandbox.program("strace", line).output();
        assert!([0, 6].contains(&ran.code()), "{args:?}: {ran}");
        let execs = fs::read_to_string(log).unwrap();
        assert_eq!(execs.lines().filter(|line| line.contains("exec")).count(), 1, "{args:?}: {execs}");
        // `doctor` takes the lock, and so writes its name into the lock file.
        let mut changed = changes(&before, &tree(&sandbox.project()));
        changed.retain(|path| !path.ends_with("lock"));
        assert_eq!(changed, Vec::<PathBuf>::new(), "{args:?}");
    }
    assert!(!sandbox.project().join("hooked").exists());
    // The next steps run hooks and a turn, so the reading commands above could have run them, too.
    for _ in 0..3 {
        sandbox.cmd(["tick", "--all", "--until-idle"]).output();
        sandbox.pass(60);
    }
    assert!(sandbox.project().join("hooked").exists() && sandbox.project().join("begun").exists());
}
