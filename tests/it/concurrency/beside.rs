//! What several commands do to one state directory, one repository, one project.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{AGENT, agent, is_sound, run};
use crate::harness::Sandbox;
use crate::setup::{git, make_repository};

#[test]
fn ticks_that_commit_to_git_do_not_get_in_each_others_way() {
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
                    run(sandbox, &format!("tick {name} --commit"), &[0]);
                }
            })
        });
        let ran = ticks.map(|tick| tick.join().is_ok());
        is_over.store(true, Ordering::SeqCst);
        assert_eq!(ran, [true; 3]);
    });
    run(&sandbox, "tick --all --jobs 3 --until-idle --commit", &[0]);
    let left = git(&sandbox, &["status", "--porcelain", "--", ".dormouse"]);
    assert_eq!(left, "");
    is_sound(&sandbox);
}

#[test]
fn of_many_who_make_the_state_directory_nobody_fails() {
    for _ in 0..10 {
        let sandbox = Sandbox::in_memory();
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| run(&sandbox, "init", &[0]));
            }
        });
        assert_eq!(run(&sandbox, "doctor", &[0]).stdout.lines().count(), 1);
        let left: Vec<String> = crate::checker::names(&sandbox.store());
        assert_eq!(left, [".gitattributes", ".gitignore", "agents", "dormouse.toml", "hooks"]);
        assert!(!fs::read(sandbox.store().join("dormouse.toml")).unwrap().is_empty());
    }
}
