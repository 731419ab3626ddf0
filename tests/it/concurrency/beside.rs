//! Several commands at once on one state directory, one repository, one workspace.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{AGENT, agent, is_sound, run};
use crate::harness::Sandbox;
use crate::held::{Held, call};
use crate::setup::{git, make_repository, names};
use crate::strace::record;

#[test]
fn ticks_that_commit_to_git_do_not_get_in_each_others_way() {
    needs!("strace");
    let sandbox = agent("true", "");
    make_repository(&sandbox);
    for name in ["bob", "eve"] {
        sandbox.run(["create", name, "--shell", "true"]);
        sandbox.run(["start", name]);
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
                    // A message whose time is over needs attention.
                    run(sandbox, &format!("tick {name} --commit"), &[0, 7]);
                }
            })
        });
        let ran = ticks.map(|tick| tick.join().is_ok());
        is_over.store(true, Ordering::SeqCst);
        assert_eq!(ran, [true; 3]);
    });
    run(&sandbox, "tick --all --jobs 3 --until-idle --commit", &[0, 7]);
    let left = git(&sandbox, &["status", "--porcelain", "--", ".dormouse"]);
    assert_eq!(left, "");
    is_sound(&sandbox);
}

#[test]
fn of_two_who_make_the_state_directory_neither_fails() {
    needs!("strace");
    let calls = record(&Sandbox::in_memory(), &["init"], "").calls;
    for name in [".gitignore", "dormouse.toml"] {
        let sandbox = Sandbox::in_memory();
        let first = Held::at(&sandbox, &["init"], "", call(&calls, "open", &format!("{name}.new")));
        run(&sandbox, "init", &[0]);
        // Nobody may find it half-written meanwhile.
        run(&sandbox, "create ada -- true", &[0]);
        first.go_on().exits(0);
        let left = names(&sandbox.store());
        assert_eq!(left, [".gitattributes", ".gitignore", "agents", "dormouse.toml", "hooks"]);
        is_sound(&sandbox);
    }
}

#[test]
fn two_repairs_do_not_mend_the_same_twice() {
    needs!("strace");
    let broken = || {
        let sandbox = agent("true", "");
        sandbox.run(["enqueue", AGENT, "hello"]);
        sandbox.run(["tick", AGENT, "--until-idle"]);
        for path in ["ledger", "archive"] {
            let month = sandbox.agent(AGENT).join(path).join(&*month(&sandbox));
            let file =
                if path == "ledger" { month.with_extension("jsonl") } else { month.join("message.jsonl") };
            fs::write(&file, format!("broken\n{}", fs::read_to_string(&file).unwrap())).unwrap();
        }
        fs::write(sandbox.agent(AGENT).join("work/work_0.json"), "broken").unwrap();
        sandbox
    };
    let recording = record(&broken(), &["doctor", "--repair"], "").calls;
    // Wherever the first one is about to get the lock, or to move something.
    for call in
        recording.iter().filter(|call| call.rest.contains("/lock\"") || call.rest.contains("quarantine"))
    {
        let sandbox = broken();
        let before = run(&sandbox, "queue list -a ada", &[0]).stdout;
        let first = Held::at(&sandbox, &["doctor", "--repair"], "", call);
        let second = sandbox.cmd(["doctor", "--repair", "--lock-timeout", "0s"]).output();
        assert!([0, 5].contains(&second.code()), "{call}: {second}");
        first.go_on().exits(0);
        assert_eq!(run(&sandbox, "queue list -a ada", &[0]).stdout, before);
        is_sound(sandbox_without(&sandbox, "quarantine"));
    }
}

/// The month in which everything happened.
fn month(sandbox: &Sandbox) -> String {
    names(&sandbox.agent(AGENT).join("archive")).remove(0)
}

/// What is in quarantine is for people.
fn sandbox_without<'s>(sandbox: &'s Sandbox, dir: &str) -> &'s Sandbox {
    fs::remove_dir_all(sandbox.agent(AGENT).join(dir)).unwrap();
    sandbox
}
