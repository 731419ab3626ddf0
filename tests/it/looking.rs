//! Commands that only look run nothing and change nothing, whatever there is to do.

use std::fs;
use std::path::PathBuf;

use crate::harness::{Sandbox, dormouse};
use crate::setup::{Beside, HOOKS, add, changes, hook, say, started, step, tree};

/// An agent with everything that a step would run something for: hooks, a message, a timer that is due, a
/// task that never began, and a turn whose tick was killed.
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
    let mut tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.project().join("begun"));
    tick.0.kill().unwrap();
    drop(tick);
    for mark in ["hooked", "begun", "stay"] {
        let _ = fs::remove_file(sandbox.project().join(mark));
    }
    sandbox.pass(3600);
    (sandbox, done, run)
}

#[test]
fn what_only_looks_runs_nothing_and_changes_nothing() {
    needs!("strace");
    let (sandbox, done, run) = full_of_things_to_do();
    let log = sandbox.root().join("execs");
    for args in [
        &["list"][..],
        &["get", "ada"],
        &["explain", "ada"],
        &["state", "ada"],
        &["state", "ada", "--hooks"],
        &["events", "ada"],
        &["briefs", "ada"],
        &["next-wake", "--all"],
        &["await", "ada", "--status", "awake_running", "--timeout", "1s"],
        &["await", "ada", "--message", &done],
        &["queue", "list", "-a", "ada"],
        &["queue", "show", &done],
        &["queue", "dead", "-a", "ada"],
        &["run", "list", "-a", "ada"],
        &["run", "show", &run, "--stdout"],
        &["work", "list", "-a", "ada"],
        &["wait", "list", "-a", "ada"],
        &["timer", "list", "-a", "ada"],
        &["task", "list", "-a", "ada"],
        &["tick", "--all", "--dry-run"],
        &["doctor"],
    ] {
        let before = tree(&sandbox.project());
        let mut line: Vec<String> =
            ["-f", "-qq", "-e", "trace=execve,execveat", "-o"].map(str::to_owned).to_vec();
        line.extend([log.display().to_string(), dormouse().display().to_string()]);
        line.extend(args.iter().map(|word| (*word).to_owned()));
        let ran = sandbox.program("strace", line.into_iter().map(Into::into).collect()).output();
        assert!([0, 6].contains(&ran.code()), "{args:?}: {ran}");
        let execs = fs::read_to_string(&log).unwrap();
        assert_eq!(execs.lines().filter(|line| line.contains("exec")).count(), 1, "{args:?}: {execs}");
        // doctor takes the lock, and a lock says who took it last.
        let locks = |path: &PathBuf| path.ends_with("lock");
        let changed: Vec<_> =
            changes(&before, &tree(&sandbox.project())).into_iter().filter(|path| !locks(path)).collect();
        assert_eq!(changed, Vec::<PathBuf>::new(), "{args:?}");
    }
    assert!(!sandbox.project().join("hooked").exists());
    // And there was something to do.
    for _ in 0..3 {
        sandbox.cmd(["tick", "--all", "--until-idle"]).output();
        sandbox.pass(60);
    }
    assert!(sandbox.project().join("hooked").exists() && sandbox.project().join("begun").exists());
}
