//! `tick --push`: several clones tick one repository.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::git_sync::clear_locks;
use crate::remotes::{Remote, processed, queued};
use crate::setup::{Beside, decision, eventually, failure, json_in, objects, wait_for};

/// What every turn writes into one log that all clones share: its message and attempt, when it begins and when it ends.
const LOGGED: &str = r#"log=${DORMOUSE_DIR%%/project*}; log=${log%%/clone-*}/turns
echo "begin $DORMOUSE_MESSAGE $DORMOUSE_ATTEMPT" >> "$log"
sleep 0.05
echo "end $DORMOUSE_MESSAGE $DORMOUSE_ATTEMPT" >> "$log"
echo done"#;

fn log(remote: &Remote) -> PathBuf {
    remote.sandbox.root().join("turns")
}

/// How many turns of each message have begun and ended.
fn turns(remote: &Remote) -> BTreeMap<String, (usize, usize)> {
    let mut found: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for line in fs::read_to_string(log(remote)).unwrap_or_default().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let counts = found.entry(words[1].to_owned()).or_default();
        match words[0] {
            "begin" => counts.0 += 1,
            _ => counts.1 += 1,
        }
    }
    found
}

#[test]
fn a_step_is_heard_of_by_the_other_clones_before_its_turn_and_after_it() {
    let turn = r#"git --git-dir="${DORMOUSE_DIR%%/project*}/origin.git" show main:.dormouse/agents/ada/state.json > "${DORMOUSE_DIR%%/project*}/heard"; echo done"#;
    let remote = Remote::new(&["ada"], turn, 2);
    let id = remote.enqueue(1, "ada", "hello");
    remote.sync(1);
    let steps = objects(&remote.run(0, &["--json", "tick", "ada", "--push"]));
    assert_eq!((steps.len(), &steps[0]["terminal"]), (1, &"completed".into()), "{steps:?}");
    let heard: Value = json_in(remote.sandbox.root().join("heard"));
    assert_eq!(heard["current_run"]["message_id"], *id);
    assert!(heard["ticked_by"]["id"].is_string());
    let log = remote.git(0, &["log", "--format=%s", "origin/main", "-3"]);
    assert!(log.starts_with("ada: start_model_turn (operator_prompt)\n"), "{log}");
    assert!(log.contains(&format!("ada: {id} is claimed\nada: taken by ")), "{log}");
    // Nothing is left to do, so nothing is pushed; and all agree on what was done.
    let before = remote.git(0, &["ls-remote", "origin", "main"]);
    for at in 0..2 {
        let steps = objects(&remote.run(at, &["--json", "tick", "--all", "--push", "origin"]));
        assert_eq!(steps[0]["terminal"], Value::Null, "{steps:?}");
    }
    assert_eq!(remote.git(0, &["ls-remote", "origin", "main"]), before);
    remote.agree();
    assert_eq!(processed(&remote.agent(1, "ada")), BTreeMap::from([(id, 1)]));
}

#[test]
fn what_can_not_be_right_is_refused() {
    let remote = Remote::new(&["ada", "bob"], "echo done", 1);
    for words in [
        &["tick", "--all", "--push", "--jobs", "2"][..],
        &["tick", "ada", "--push", "--commit"],
        &["tick", "ada", "--push", "--dry-run"],
    ] {
        assert_eq!(remote.ran(0, words).code(), 2, "{words:?}");
    }
    let id = remote.enqueue(0, "ada", "hello");
    let ran = remote.ran(0, &["--json", "tick", "ada", "--push", "nowhere"]).exits(1);
    assert!(failure(&ran)["message"].as_str().unwrap().contains("there is no remote `nowhere`"), "{ran}");
    // The remote is gone: no step begins.
    fs::rename(remote.bare(), remote.sandbox.root().join("away")).unwrap();
    let ran = remote.ran(0, &["--json", "tick", "ada", "--push"]);
    assert_eq!((ran.code(), objects(&ran.stdout).len()), (1, 1), "{ran}");
    assert_eq!(queued(&remote.agent(0, "ada")), [id]);
}

/// A clone is killed in the middle of a turn. Another one leaves the agent alone until its time is over.
#[test]
fn what_a_killed_clone_has_taken_is_its_own_until_its_time_is_over() {
    let turn = r#"d=${DORMOUSE_DIR%%/project*}; d=${d%%/clone-*}; if test -e "$d/go"; then echo done; else touch "$d/begun"; sleep 600; fi"#;
    let remote = Remote::new(&["ada"], turn, 3);
    let id = remote.enqueue(0, "ada", "hello");
    let mut child = remote
        .cmd(0, &["tick", "ada", "--push", "-q"])
        .into_command()
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_for(&remote.sandbox.root().join("begun"));
    child.kill().unwrap();
    child.wait().unwrap();
    fs::write(remote.sandbox.root().join("go"), "").unwrap();
    for words in [&["--json", "tick", "ada", "--push"][..], &["--json", "tick", "ada"]] {
        let steps = objects(&remote.run(1, words));
        assert_eq!(decision(&steps[0]), "noop (turn_elsewhere)", "{steps:?}");
        assert!(steps[0]["next_due_at"].is_string());
    }
    remote.ran(1, &["--json", "recover", "ada"]).fails(4, "ticked_elsewhere");
    // The clone itself goes on at once: its turn is over, and counts as interrupted.
    let copy = remote.sandbox.root().join("later");
    fs::create_dir(&copy).unwrap();
    crate::harness::copy_tree(&remote.bare(), &copy);
    let mut steps = objects(&remote.run(0, &["--json", "tick", "ada", "--push", "--until-idle"]));
    assert!(steps[0]["recovered_run_id"].is_string(), "{steps:?}");
    eventually("the message is dealt with", || {
        steps = objects(&remote.ran(0, &["--json", "tick", "ada", "--push", "--until-idle"]).stdout);
        (!processed(&remote.agent(0, "ada")).is_empty()).then_some(())
    });
    // Another one, to which the machine of the first is gone, does the same a day and some minutes later.
    remote.git(2, &["remote", "set-url", "origin", copy.to_str().unwrap()]);
    let now = chrono::Utc::now() + chrono::TimeDelta::hours(26);
    for _ in 0..4 {
        let later = now.format("%Y-%m-%dT%H:%M:%SZ").to_string();
        let ran =
            remote.cmd(2, &["tick", "ada", "--push", "--until-idle"]).env("DORMOUSE_NOW", &later).output();
        assert!([0, 7].contains(&ran.code()), "{ran}");
        let later = (now + chrono::TimeDelta::hours(1)).format("%Y-%m-%dT%H:%M:%SZ").to_string();
        let ran =
            remote.cmd(2, &["tick", "ada", "--push", "--until-idle"]).env("DORMOUSE_NOW", later).output();
        assert!([0, 7].contains(&ran.code()), "{ran}");
    }
    assert_eq!(processed(&remote.agent(2, "ada")), BTreeMap::from([(id, 1)]));
}

/// While a turn runs here, another clone says something, and a person changes another agent there.
#[test]
fn what_others_push_meanwhile_keeps_nobody_from_settling() {
    let turn = r#"touch "${DORMOUSE_DIR%%/project*}/begun"; sleep 2; echo done"#;
    let remote = Remote::new(&["ada", "bob"], turn, 2);
    let first = remote.enqueue(0, "ada", "one");
    let tick = Beside::start(remote.cmd(0, &["tick", "ada", "--push", "-q"]))
        .after_it_made(remote.sandbox.root().join("begun"));
    let second = remote.enqueue(1, "ada", "two");
    remote.run(1, &["-q", "work", "add", "for ada", "-a", "ada"]);
    remote.run(1, &["-q", "work", "add", "for bob", "-a", "bob"]);
    remote.sync(1);
    tick.end().exits(0);
    remote.agree();
    for at in 0..2 {
        assert_eq!(processed(&remote.agent(at, "ada")), BTreeMap::from([(first.clone(), 1)]));
        assert_eq!(queued(&remote.agent(at, "ada")), std::slice::from_ref(&second));
        assert!(remote.run(at, &["work", "list", "-a", "ada"]).contains("for ada"));
        assert!(remote.run(at, &["work", "list", "-a", "bob"]).contains("for bob"));
    }
}

/// Three clones that tick the same agents all the time, beside producers in each of them; some of the ticks are killed.
fn race(kills: bool) {
    const AGENTS: [&str; 2] = ["ada", "bob"];
    let remote = Remote::new(&AGENTS, LOGGED, 3);
    let said = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for at in 0..3 {
            let (remote, said) = (&remote, &said);
            scope.spawn(move || {
                for round in 0..4_u64 {
                    for name in AGENTS {
                        let id = remote.enqueue(at, name, &format!("{at} {round}"));
                        said.lock().unwrap().push(id);
                    }
                    let words = ["tick", "--all", "--push", "--until-idle", "-q"];
                    let mut child = remote
                        .cmd(at, &words)
                        .into_command()
                        .stdout(std::process::Stdio::null())
                        .spawn()
                        .unwrap();
                    if kills && !(round + at as u64).is_multiple_of(3) {
                        std::thread::sleep(Duration::from_millis(
                            90 + 170 * ((round * 5 + at as u64 * 3) % 7),
                        ));
                        let _ = child.kill();
                        child.wait().unwrap();
                        clear_locks(&remote.dirs[at]);
                    } else {
                        let status = child.wait().unwrap();
                        // On a busy machine the other clones may be ahead until the time is over (5): the
                        // tick says so, and a later one does the work.
                        assert!(matches!(status.code(), Some(0 | 5 | 7)), "{status}");
                    }
                }
            });
        }
    });
    let mut said = said.into_inner().unwrap();
    said.sort();
    // The clones go on until everything is done; an interrupted turn waits a while before it is tried again.
    eventually("everything is dealt with", || {
        for at in 0..3 {
            let ran = remote.ran(at, &["tick", "--all", "--push", "--until-idle", "-q"]);
            assert!([0, 7].contains(&ran.code()), "{ran}");
        }
        let done: usize = AGENTS.iter().map(|name| processed(&remote.agent(0, name)).len()).sum();
        if done < said.len() {
            std::thread::sleep(Duration::from_secs(1));
        }
        (done == said.len()).then_some(())
    });
    remote.agree();
    let mut found = Vec::new();
    for name in AGENTS {
        let processed = processed(&remote.agent(0, name));
        assert!(processed.values().all(|count| *count == 1), "{processed:?}");
        found.extend(processed.into_keys());
    }
    found.sort();
    assert_eq!(found, said);
    for (id, (begun, ended)) in turns(&remote) {
        assert!(begun == 1 && ended == 1 || kills && begun >= ended && ended >= 1, "{id}: {begun} {ended}");
        assert!(ended == 1, "{id} was done {ended} times");
    }
}

#[test]
fn of_clones_that_race_one_runs_each_message() {
    race(false);
}

#[test]
fn of_clones_that_race_and_are_killed_one_runs_each_message() {
    race(true);
}
