//! Tests that three clones of one bare repository lose no message while each of them runs random
//! commands.
//!
//! `DORMOUSE_RACES=50 DORMOUSE_RACES_SEED=7 cargo test --test it git_races` runs more races, with
//! other commands.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use crate::remotes::{Remote, processed, queued};
use crate::setup::{eventually, extend_policy, number};

const AGENTS: [&str; 2] = ["ada", "bob"];

/// Command of a clone.
#[derive(Debug, Clone)]
enum Act {
    Say(&'static str),
    SayOnce(&'static str, u8),
    Deliver(&'static str),
    Work(&'static str),
    Rotate(&'static str),
    Step(&'static str),
    Sync,
    /// Command that is killed after this number of milliseconds.
    Killed(&'static [&'static str], u64),
}

const SYNC: &[&str] = &["sync", "-q"];
const PUSH: &[&str] = &["tick", "--all", "--push", "-q"];

fn act() -> impl Strategy<Value = Act> {
    let agent = || prop::sample::select(&AGENTS[..]);
    prop_oneof![
        4 => agent().prop_map(Act::Say),
        1 => (agent(), 0..3_u8).prop_map(|(agent, key)| Act::SayOnce(agent, key)),
        2 => agent().prop_map(Act::Deliver),
        1 => agent().prop_map(Act::Work),
        1 => agent().prop_map(Act::Rotate),
        3 => agent().prop_map(Act::Step),
        3 => Just(Act::Sync),
        1 => (20..600_u64).prop_map(|ms| Act::Killed(SYNC, ms)),
        1 => (20..900_u64).prop_map(|ms| Act::Killed(PUSH, ms)),
    ]
}

/// Runs the acts of one clone. Returns agent and id of each acknowledged message.
fn play(remote: &Remote, at: usize, acts: &[Act], is_pushed: bool) -> Vec<(&'static str, String)> {
    let mut said = Vec::new();
    let root = remote.sandbox.root();
    for (number, act) in acts.iter().enumerate() {
        let text = format!("{at} {number}");
        match act {
            Act::Say(agent) => said.push((*agent, remote.enqueue(at, agent, &text))),
            Act::SayOnce(agent, key) => {
                let key = format!("{key}");
                let id = remote.run(at, &["-q", "enqueue", agent, &text, "--dedupe-key", &key]);
                said.push((*agent, id.trim().to_owned()));
            }
            Act::Deliver(agent) => {
                let trigger = std::fs::read_to_string(root.join(format!("{agent}.trigger"))).unwrap();
                let secret = root.join(format!("{agent}.secret")).display().to_string();
                let words = ["trigger", "deliver", &trigger, "-a", agent, "--secret-file", &secret, &text];
                let ran = remote.ran(at, &[&["-q"], &words[..]].concat());
                // The status is 4 if this clone, or a clone from which it has pulled, has rotated
                // the secret.
                assert!([0, 4].contains(&ran.code()), "{ran}");
                said.extend((ran.code() == 0).then(|| (*agent, ran.stdout.trim().to_owned())));
            }
            Act::Work(agent) => drop(remote.run(at, &["-q", "work", "add", &text, "-a", agent])),
            Act::Rotate(agent) => {
                let trigger = std::fs::read_to_string(root.join(format!("{agent}.trigger"))).unwrap();
                let file = root.join(format!("new-{at}-{number}")).display().to_string();
                remote.run(at, &["trigger", "rotate", &trigger, "-a", agent, "--secret-file", &file]);
            }
            Act::Step(agent) => {
                let words: &[&str] =
                    if is_pushed { &["tick", agent, "--push", "-q"] } else { &["tick", agent, "-q"] };
                let ran = remote.ran(at, words);
                assert!([0, 7].contains(&ran.code()), "{ran}");
            }
            Act::Sync => drop(remote.run(at, SYNC)),
            Act::Killed(words, ms) => {
                let words = if is_pushed { words } else { SYNC };
                remote.kill_after(at, words, Duration::from_millis(*ms));
            }
        }
    }
    said
}

/// Runs the acts of three clones at the same time. `is_pushed`: all steps are made by `tick
/// --push`, so that each message must be processed exactly once.
fn race(acts: &[Vec<Act>], is_pushed: bool) {
    let remote = Remote::new(&AGENTS, "echo done", 3);
    for agent in AGENTS {
        extend_policy(&remote.sandbox, agent, "\n[recovery]\nbase = \"1ms\"\nmax_delay = \"1ms\"\n");
        let secret = remote.sandbox.root().join(format!("{agent}.secret")).display().to_string();
        let made = remote.run(0, &["--json", "trigger", "create", "-a", agent, "--secret-file", &secret]);
        let made: serde_json::Value = serde_json::from_str(made.trim()).unwrap();
        let id = made["id"].as_str().unwrap();
        std::fs::write(remote.sandbox.root().join(format!("{agent}.trigger")), id).unwrap();
    }
    remote.agree();
    let said: Vec<(&str, String)> = std::thread::scope(|scope| {
        let remote = &remote;
        let clones: Vec<_> = acts
            .iter()
            .enumerate()
            .map(|(at, acts)| scope.spawn(move || play(remote, at, acts, is_pushed)))
            .collect();
        clones.into_iter().flat_map(|clone| clone.join().unwrap()).collect()
    });
    let words = if is_pushed { PUSH } else { &["tick", "--all", "-q"] };
    for at in [0, 1, 2, 0, 1, 2] {
        remote.run(at, SYNC);
    }
    eventually("all messages are processed", || {
        let ran = remote.ran(0, &[words, &["--until-idle"]].concat());
        assert!([0, 7].contains(&ran.code()), "{ran}");
        AGENTS.iter().all(|agent| queued(&remote.agent(0, agent)).is_empty()).then_some(())
    });
    for at in [0, 1, 2, 0, 1, 2] {
        remote.run(at, SYNC);
    }
    for at in 0..3 {
        assert_eq!(remote.committed(at), remote.committed(0));
        for agent in AGENTS {
            let found = processed(&remote.agent(at, agent));
            let wanted: BTreeSet<&String> =
                said.iter().filter(|(of, _)| *of == agent).map(|(_, id)| id).collect();
            let ended = crate::checker::look(&remote.agent(at, agent));
            for id in wanted {
                assert!(ended.ended_as(id).is_some(), "{agent}: {id} is lost in clone {at}");
            }
            let twice = found.values().any(|count| *count > 1);
            assert!(!(twice && is_pushed), "{agent}: {found:?}");
        }
    }
}

#[test]
fn three_clones_with_random_commands_lose_no_message() {
    let (count, seed) = (number("DORMOUSE_RACES", 2), number("DORMOUSE_RACES_SEED", 1));
    for number in 0..count {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(proptest::test_runner::Config::default(), rng);
        let acts = prop::collection::vec(prop::collection::vec(act(), 8), 3);
        let acts = acts.new_tree(&mut runner).unwrap().current();
        let is_pushed = number % 2 == 0;
        println!("seed {seed}, race {number}, pushed {is_pushed}: {acts:?}");
        race(&acts, is_pushed);
    }
}
