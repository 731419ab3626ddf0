//! Tests `tick --push` of several clones of one repository.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::git_sync::clear_locks;
use crate::remotes::{Remote, processed, queued};
use crate::setup::{Beside, decision, eventually, failure, json_in, objects};

/// Turn that writes its message and attempt to a log, which all clones share, when the turn begins
/// and when it ends.
const LOGGED: &str = r#"log=${DORMOUSE_DIR%%/project*}; log=${log%%/clone-*}/turns
echo "begin $DORMOUSE_MESSAGE $DORMOUSE_ATTEMPT" >> "$log"
sleep 0.05
echo "end $DORMOUSE_MESSAGE $DORMOUSE_ATTEMPT" >> "$log"
echo done"#;

/// Returns for each message how many turns have begun and ended.
fn turns(remote: &Remote) -> BTreeMap<String, (usize, usize)> {
    let mut found: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for line in fs::read_to_string(remote.sandbox.root().join("turns")).unwrap_or_default().lines() {
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
fn a_step_is_pushed_before_its_turn_and_after_it() {
    let turn = r#"git --git-dir="${DORMOUSE_DIR%%/project*}/origin.git" show main:.dormouse/agents/ada/state.json > "${DORMOUSE_DIR%%/project*}/pushed"; echo done"#;
    let remote = Remote::new(&["ada"], turn, 2);
    let id = remote.enqueue(1, "ada", "hello");
    remote.sync(1);
    let steps = objects(&remote.run(0, &["--json", "tick", "ada", "--push"]));
    assert_eq!((steps.len(), &steps[0]["terminal"]), (1, &"completed".into()), "{steps:?}");
    let pushed = json_in(remote.sandbox.root().join("pushed"));
    assert_eq!(pushed["current_run"]["message_id"], *id);
    assert!(pushed["ticked_by"]["id"].is_string());
    let log = remote.git(0, &["log", "--format=%s", "origin/main", "-3"]);
    assert!(log.starts_with("ada: start_model_turn (operator_prompt)\n"), "{log}");
    assert!(log.contains(&format!("ada: {id} is claimed\nada: taken by ")), "{log}");
    // A tick that finds nothing to do pushes nothing, and both clones have the same records.
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
fn invalid_flags_and_remotes_are_refused() {
    let remote = Remote::new(&["ada", "bob"], "echo done", 1);
    for words in [
        &["tick", "--all", "--push", "--jobs", "2"][..],
        &["tick", "ada", "--push", "--commit"],
        &["tick", "ada", "--push", "--dry-run"],
    ] {
        remote.ran(0, words).exits(2);
    }
    let id = remote.enqueue(0, "ada", "hello");
    let ran = remote.ran(0, &["--json", "tick", "ada", "--push", "nowhere"]).exits(1);
    assert!(failure(&ran)["message"].as_str().unwrap().contains("there is no remote `nowhere`"), "{ran}");
    // Without its remote, `tick --push` begins no step.
    fs::rename(remote.bare(), remote.sandbox.root().join("away")).unwrap();
    let ran = remote.ran(0, &["--json", "tick", "ada", "--push"]);
    assert_eq!((ran.code(), objects(&ran.stdout).len()), (1, 1), "{ran}");
    assert_eq!(queued(&remote.agent(0, "ada")), [id]);
}

/// The tick of one clone is killed during a turn. Other clones do not step the agent until the
/// claim of that clone has expired.
#[test]
fn an_agent_of_a_killed_tick_belongs_to_its_clone_until_the_claim_expires() {
    let turn = r#"d=${DORMOUSE_DIR%%/project*}; d=${d%%/clone-*}; if test -e "$d/go"; then echo done; else touch "$d/begun"; sleep 600; fi"#;
    let remote = Remote::new(&["ada"], turn, 3);
    let id = remote.enqueue(0, "ada", "hello");
    let tick = Beside::start(remote.cmd(0, &["tick", "ada", "--push", "-q"]));
    tick.after_it_made(remote.sandbox.root().join("begun")).kill();
    fs::write(remote.sandbox.root().join("go"), "").unwrap();
    for words in [&["--json", "tick", "ada", "--push"][..], &["--json", "tick", "ada"]] {
        let steps = objects(&remote.run(1, words));
        assert_eq!(decision(&steps[0]), "noop (turn_elsewhere)", "{steps:?}");
        assert!(steps[0]["next_due_at"].is_string());
    }
    remote.ran(1, &["--json", "recover", "ada"]).fails(4, "ticked_elsewhere");
    // The next tick of the first clone, which knows that its turn was interrupted, ends its claim
    // in the remote. The third clone will use a copy of the remote that still has the claim.
    let copy = remote.sandbox.root().join("later");
    fs::create_dir(&copy).unwrap();
    crate::harness::copy_tree(&remote.bare(), &copy);
    let mut steps = objects(&remote.run(0, &["--json", "tick", "ada", "--push", "--until-idle"]));
    assert!(steps[0]["recovered_run_id"].is_string(), "{steps:?}");
    eventually("the message is processed", || {
        steps = objects(&remote.ran(0, &["--json", "tick", "ada", "--push", "--until-idle"]).stdout);
        (!processed(&remote.agent(0, "ada")).is_empty()).then_some(())
    });
    // The third clone, which never gets the later pushes of the first one, takes the agent over
    // after the claim has expired, 26 hours later.
    remote.git(2, &["remote", "set-url", "origin", copy.to_str().unwrap()]);
    let now = chrono::Utc::now();
    for hours in [26, 27].repeat(4) {
        let later = (now + chrono::TimeDelta::hours(hours)).format("%Y-%m-%dT%H:%M:%SZ").to_string();
        let tick = remote.cmd(2, &["tick", "ada", "--push", "--until-idle"]);
        let ran = tick.env("DORMOUSE_NOW", later).output();
        assert!([0, 7].contains(&ran.code()), "{ran}");
    }
    assert_eq!(processed(&remote.agent(2, "ada")), BTreeMap::from([(id, 1)]));
}

/// While a turn runs in one clone, the other clone pushes a message for the agent, and changes of
/// both agents.
#[test]
fn a_turn_is_settled_in_spite_of_pushes_of_another_clone() {
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
        assert_eq!(queued(&remote.agent(at, "ada")), [&*second]);
        assert!(remote.run(at, &["work", "list", "-a", "ada"]).contains("for ada"));
        assert!(remote.run(at, &["work", "list", "-a", "bob"]).contains("for bob"));
    }
}

/// Three clones enqueue messages and tick the same agents at the same time. `kills`: some of the
/// ticks are killed.
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
                    if kills && !(round + at as u64).is_multiple_of(3) {
                        let ms = 90 + 170 * ((round * 5 + at as u64 * 3) % 7);
                        remote.kill_after(at, &words, Duration::from_millis(ms));
                        clear_locks(&remote.dirs[at]);
                    } else {
                        let ran = remote.ran(at, &words);
                        // The status is 5 if on a busy machine the other clones push first until
                        // the timeout. A later tick does the work.
                        assert!(matches!(ran.code(), 0 | 5 | 7), "{ran}");
                    }
                }
            });
        }
    });
    let mut said = said.into_inner().unwrap();
    said.sort();
    // The clones tick until all messages are processed. The retry of an interrupted turn is
    // delayed.
    eventually("all messages are processed", || {
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
fn each_message_runs_in_one_of_several_racing_clones() {
    race(false);
}

#[test]
fn each_message_is_completed_once_by_racing_clones_that_are_killed() {
    race(true);
}
