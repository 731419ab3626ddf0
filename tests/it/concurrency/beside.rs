//! Tests several commands at once on one state directory and one git repository.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{AGENT, agent, is_sound, run};
use crate::harness::Sandbox;
use crate::paused::{Held, call};
use crate::setup::{add, edit_file, git, make_repository, names};
use crate::strace::{Call, record};

#[test]
fn ticks_that_commit_to_git_do_not_disturb_each_other() {
    needs!("strace");
    let sandbox = agent("true", "");
    make_repository(&sandbox);
    for name in ["bob", "eve"] {
        add(&sandbox, name, "true");
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                run(&sandbox, "enqueue eve hello --ttl 1ms", &[0]);
            }
        });
        let ticks = [AGENT, "bob", "eve"].map(|name| {
            let sandbox = &sandbox;
            scope.spawn(move || {
                for _ in 0..8 {
                    run(sandbox, &format!("enqueue {name} hello"), &[0]);
                    // The tick exits with 7 if a message has expired.
                    run(sandbox, &format!("tick {name} --commit"), &[0, 7]);
                }
            })
        });
        let ran = ticks.map(|tick| tick.join().is_ok());
        is_over.store(true, Ordering::SeqCst);
        assert_eq!(ran, [true; 3]);
    });
    run(&sandbox, "tick --all --jobs 3 --until-idle --commit", &[0, 7]);
    assert_eq!(git(&sandbox, &["status", "--porcelain", "--", ".dormouse"]), "");
    is_sound(&sandbox);
}

#[test]
fn two_inits_at_once_both_succeed() {
    needs!("strace");
    let calls = record(&Sandbox::in_memory(), &["init"], "").calls;
    for name in [".gitignore", "dormouse.toml"] {
        let sandbox = Sandbox::in_memory();
        let first = Held::at(&sandbox, &["init"], "", call(&calls, "open", &format!("{name}.new")));
        run(&sandbox, "init", &[0]);
        // While the first `init` is stopped, other commands find complete settings.
        run(&sandbox, "create ada -- true", &[0]);
        first.go_on().exits(0);
        let left = names(&sandbox.store());
        assert_eq!(left, [".gitattributes", ".gitignore", "agents", "dormouse.toml", "hooks"]);
        is_sound(&sandbox);
    }
}

#[test]
fn two_repairs_at_once_do_not_disturb_each_other() {
    needs!("strace");
    let broken = || {
        let sandbox = agent("true", "");
        sandbox.run(["enqueue", AGENT, "hello"]);
        sandbox.run(["tick", AGENT, "--until-idle"]);
        let agent = sandbox.agent(AGENT);
        let month = names(&agent.join("archive")).remove(0);
        for file in [format!("ledger/{month}.jsonl"), format!("archive/{month}/message.jsonl")] {
            edit_file(&agent.join(file), |text| format!("broken\n{text}"));
        }
        fs::write(agent.join("work/work_0.json"), "broken").unwrap();
        sandbox
    };
    let recording = record(&broken(), &["doctor", "--repair"], "").calls;
    // The first repair is stopped at each call that opens the lock or moves a file.
    let is_moment = |call: &&Call| call.rest.contains("/lock\"") || call.rest.contains("quarantine");
    for call in recording.iter().filter(is_moment) {
        let sandbox = broken();
        let before = run(&sandbox, "queue list -a ada", &[0]).stdout;
        let first = Held::at(&sandbox, &["doctor", "--repair"], "", call);
        let second = sandbox.cmd(["doctor", "--repair", "--lock-timeout", "0s"]).output();
        assert!([0, 5].contains(&second.code()), "{call}: {second}");
        first.go_on().exits(0);
        assert_eq!(run(&sandbox, "queue list -a ada", &[0]).stdout, before);
        // The checker does not know this directory.
        fs::remove_dir_all(sandbox.agent(AGENT).join("quarantine")).unwrap();
        is_sound(&sandbox);
    }
}
