//! Tests merges of two clones that have changed the same agent.

use std::fs;

use serde_json::Value;

use crate::harness::Sandbox;
use crate::remotes::{Remote, processed, queued};
use crate::setup::{Beside, names, only_object, raw_git, words};

/// Creates a trigger of `ada` in the first clone, whose secret is written to this file.
fn create_trigger(remote: &Remote, flags: &[&str], secret_file: &str) -> Value {
    let words = ["--json", "trigger", "create", "-a", "ada", "--secret-file", secret_file];
    only_object(&remote.run(0, &[&words[..], flags].concat()))
}

/// Asserts that `doctor` finds nothing wrong in a clone.
#[track_caller]
fn assert_sound(remote: &Remote, at: usize) {
    let ran = remote.ran(at, &["doctor", "--json"]);
    assert_eq!(ran.code(), 0, "clone {at}: {ran}");
}

/// Sandbox without an agent.
fn elsewhere() -> Sandbox {
    let sandbox = Sandbox::empty().with_real_clock();
    sandbox.run(["init"]);
    sandbox
}

/// A message that one clone has enqueued after the other one has moved the agent away is not lost:
/// it is in the queue when the agent comes back.
#[test]
fn an_agent_that_one_clone_moves_and_another_ticks_has_moved() {
    let remote = Remote::new(&["ada"], "echo done", 2);
    let both = remote.enqueue(0, "ada", "for both");
    remote.agree();
    // The second clone makes more steps, because it does not know of the move yet.
    for _ in 0..5 {
        remote.run(1, &["tick", "ada", "-q"]);
        remote.run(1, &["-q", "work", "add", "there", "-a", "ada"]);
    }
    let late = remote.enqueue(1, "ada", "late");
    let file = remote.sandbox.root().join("ada.tar");
    let words = ["export", "ada", "--move", "host-b", "-o", file.to_str().unwrap()];
    remote.run(0, &words);
    let bytes = fs::read(&file).unwrap();
    remote.sync(0);
    remote.sync(1);
    remote.sync(0);
    for at in 0..2 {
        remote.ran(at, &["--json", "tick", "ada"]).fails(4, "moved");
        assert!(remote.agent(at, "ada").join("quarantine/state.json").exists(), "clone {at}");
        assert!(queued(&remote.agent(at, "ada")).contains(&late), "clone {at}");
        remote.ran(at, &["--json", "doctor"]).exits(0).shows("late_arrival");
        // Either clone must be able to repeat the export, with the same messages.
        remote.run(at, &words);
        let other = elsewhere();
        other.run(["import", file.to_str().unwrap()]);
        assert_eq!(queued(&other.agent("ada")), [&*both], "clone {at}");
    }
    // The agent moves back to the second clone, after steps in another state directory.
    let away = elsewhere();
    away.cmd(["import", "-"]).stdin(bytes).output();
    away.run(["tick", "ada", "-q", "--until-idle"]);
    away.run(["export", "ada", "--move", "here", "-o", file.to_str().unwrap()]);
    remote.run(1, &["import", file.to_str().unwrap()]);
    remote.sync(1);
    remote.sync(0);
    for at in 0..2 {
        assert_eq!(queued(&remote.agent(at, "ada")), [&*late], "clone {at}");
        assert!(processed(&remote.agent(at, "ada")).contains_key(&both));
    }
    remote.run(0, &["tick", "ada", "-q"]);
    assert_eq!(processed(&remote.agent(0, "ada"))[&late], 1);
}

/// The removal of an agent in one clone removes the agent in all clones. But if another clone has
/// changed the agent meanwhile, all clones have the whole agent again.
#[test]
fn an_agent_that_a_clone_removes_is_deleted_or_complete_in_all_clones() {
    let changes = ["", "enqueue bob more", "enqueue ada more", "tick ada -q"];
    let cases = changes.into_iter().flat_map(|line| [0, 1].map(|first| (line, first)));
    for (line, first) in cases {
        let case = format!("`{line}`, clone {first} syncs first");
        let is_changed = line.contains("ada");
        let remote = Remote::new(&["ada", "bob"], "echo done", 2);
        remote.enqueue(0, "ada", "hello");
        remote.agree();
        let file = remote.sandbox.root().join("ada.tar");
        remote.run(0, &["rm", "ada", "--force", "-o", file.to_str().unwrap()]);
        if !line.is_empty() {
            remote.run(1, &words(line));
        }
        remote.sync(first);
        remote.agree();
        for at in 0..2 {
            let agents = names(remote.agent(at, "ada").parent().unwrap());
            let expected: &[&str] = if is_changed { &["ada", "bob"] } else { &["bob"] };
            assert_eq!(agents, expected, "{case}: clone {at}");
            assert_sound(&remote, at);
        }
        if is_changed {
            let queued = |at| queued(&remote.agent(at, "ada"));
            assert_eq!(queued(0), queued(1), "{case}");
            remote.run(0, &["tick", "ada", "--until-idle", "-q"]);
        }
    }
}

/// After a rename in one clone all clones have the new name, also in the records of its children.
#[test]
fn an_agent_that_a_clone_renames_has_the_new_name_in_all_clones() {
    let remote = Remote::new(&["ada", "bob"], "echo done", 2);
    remote.run(0, &["create", "kid", "--parent", "ada", "-q", "--", "true"]);
    remote.enqueue(0, "ada", "hello");
    remote.agree();
    let before = queued(&remote.agent(1, "ada"));
    remote.ran(0, &["rename", "ada", "eve"]);
    remote.enqueue(1, "bob", "a change of the other clone, which syncs first");
    remote.sync(1);
    remote.agree();
    for at in 0..2 {
        let agents = names(remote.agent(at, "eve").parent().unwrap());
        assert_eq!(agents, ["bob", "eve", "kid"], "clone {at}");
        assert_eq!(queued(&remote.agent(at, "eve")), before, "clone {at}");
        let identity = fs::read_to_string(remote.agent(at, "kid").join("identity.json")).unwrap();
        assert!(identity.contains("\"parent\": \"eve\""), "clone {at}: {identity}");
        assert_sound(&remote, at);
    }
    remote.run(1, &["tick", "eve", "--until-idle", "-q"]);
    remote.agree();
    assert_eq!(processed(&remote.agent(0, "eve")).len(), before.len());
}

/// `export --move` is refused while another clone steps the agent, because that clone would
/// continue to step it.
#[test]
fn an_agent_that_another_clone_steps_can_not_be_moved() {
    let turn = r#"d="${DORMOUSE_DIR%%/project*}"; touch "$d/begun"; while test ! -e "$d/go"; do sleep 0.05; done; echo done"#;
    let remote = Remote::new(&["ada"], turn, 2);
    remote.enqueue(0, "ada", "hello");
    let tick = Beside::start(remote.cmd(0, &["tick", "ada", "--push", "-q"]))
        .after_it_made(remote.sandbox.root().join("begun"));
    remote.sync(1);
    remote.ran(1, &["--json", "export", "ada", "--move", "b", "-o", "x.tar"]).fails(4, "ticked_elsewhere");
    fs::write(remote.sandbox.root().join("go"), "").unwrap();
    tick.end().exits(0);
}

/// Runs a command in a clone. `is_further`: then also makes four more changes, so that the revision
/// of this clone is higher than that of the other one.
fn changed(remote: &Remote, at: usize, words: &[&str], is_further: bool) {
    remote.run(at, words);
    for _ in 0..if is_further { 4 } else { 0 } {
        remote.run(at, &["-q", "work", "add", "more", "-a", "ada"]);
    }
}

#[test]
fn a_trigger_that_one_clone_revokes_is_revoked() {
    for further in 0..2 {
        let remote = Remote::new(&["ada"], "echo done", 2);
        let file = remote.sandbox.root().join("secret");
        let made = create_trigger(&remote, &[], file.to_str().unwrap());
        let id = made["id"].as_str().unwrap();
        let waits = ["wait", "--on", "external", "--reason", "x", "-a", "ada", "--trigger", id];
        remote.run(0, &waits);
        remote.agree();
        let other = remote.sandbox.root().join("other");
        let rotate = ["trigger", "rotate", id, "-a", "ada", "--secret-file", other.to_str().unwrap()];
        changed(&remote, 0, &rotate, further == 0);
        changed(&remote, 1, &["trigger", "revoke", id, "-a", "ada"], further == 1);
        remote.agree();
        for at in 0..2 {
            assert!(!remote.agent(at, "ada").join(format!("triggers/{id}.json")).exists(), "{further} {at}");
            let shown = remote.run(at, &["--json", "trigger", "show", id, "-a", "ada"]);
            assert!(shown.contains("\"revoked\""), "{shown}");
            for secret in [&file, &other] {
                let deliver = ["--json", "trigger", "deliver", id, "-a", "ada", "--secret-file"];
                remote
                    .ran(at, &[&deliver[..], &[secret.to_str().unwrap(), "x"]].concat())
                    .fails(4, "wrong_capability");
            }
            let waits = remote.run(at, &["--json", "wait", "list", "-a", "ada"]);
            assert!(!waits.contains(id) && waits.contains("\"active\""), "{waits}");
        }
    }
}

/// If the merge ends a wait, it also revokes the trigger of the wait; otherwise both stay.
#[test]
fn the_trigger_of_a_wait_is_revoked_with_the_wait() {
    for further in 0..2 {
        let remote = Remote::new(&["ada"], "echo done", 2);
        let waits = ["-q", "wait", "--on", "external", "--reason", "x", "-a", "ada", "--resource", "r"];
        let wait = remote.run(0, &waits).trim().to_owned();
        let file = remote.sandbox.root().join("secret");
        create_trigger(&remote, &["--wait", &wait], file.to_str().unwrap());
        remote.agree();
        changed(&remote, 0, &["work", "add", "x", "-a", "ada"], further == 0);
        changed(&remote, 1, &["wait", "cancel", &wait, "-a", "ada"], further == 1);
        remote.agree();
        for at in 0..2 {
            let dir = remote.agent(at, "ada");
            let left = (names(&dir.join("waits")).len(), names(&dir.join("triggers")).len());
            // The numbers of triggers include the default trigger, which every agent has.
            assert_eq!(left, if further == 0 { (1, 2) } else { (0, 1) }, "{further} {at}");
        }
    }
}

/// Deliveries to one trigger in two clones each arrive once, and the trigger counts all of them.
#[test]
fn deliveries_to_two_clones_both_arrive() {
    let remote = Remote::new(&["ada"], "echo done", 2);
    let file = remote.sandbox.root().join("secret");
    let made = create_trigger(&remote, &[], file.to_str().unwrap());
    let id = made["id"].as_str().unwrap();
    remote.agree();
    let deliver = ["trigger", "deliver", id, "-a", "ada", "--secret-file", file.to_str().unwrap()];
    for number in 0..3 {
        for at in 0..2 {
            remote.run(at, &[&deliver[..], &[&format!("{at} {number}")]].concat());
        }
    }
    remote.run(0, &["tick", "ada", "-q"]);
    remote.agree();
    remote.run(1, &["tick", "ada", "--until-idle", "-q"]);
    remote.agree();
    for at in 0..2 {
        let found = processed(&remote.agent(at, "ada"));
        assert!(found.len() == 6 && found.values().all(|count| *count == 1), "{found:?}");
        let shown = remote.run(at, &["--json", "trigger", "show", id, "-a", "ada"]);
        assert_eq!(only_object(&shown)["delivery_count"], 6, "{shown}");
    }
}

/// Two clones create an agent with the same name. The merge keeps one agent, with the messages of
/// both.
#[test]
fn two_agents_of_one_name_become_one_with_all_messages() {
    for is_alike in [true, false] {
        let remote = Remote::new(&["ada"], "echo done", 2);
        let mut said = Vec::new();
        for at in 0..2 {
            let shell = if is_alike { "echo done".to_owned() } else { format!("echo {at}") };
            remote.run(at, &["create", "eve", "--shell", &shell]);
            remote.run(at, &["start", "eve"]);
            said.push(remote.enqueue(at, "eve", &format!("from {at}")));
        }
        remote.sync(0);
        if !is_alike {
            // The policies differ. A person must merge them, and the hint says how.
            let ran = remote.ran(1, &["--json", "sync"]).fails(4, "merge_conflict");
            ran.shows("git fetch origin && git merge origin/main");
            remote.git(1, &["fetch", "--quiet", "origin"]);
            let merge = raw_git(&remote.sandbox, &remote.dirs[1], &["merge", "--quiet", "origin/main"]);
            assert_ne!(merge.code(), 0, "{merge}");
            remote.ran(1, &["--json", "sync"]).exits(1).shows("in the middle of a merge");
            let unmerged = remote.git(1, &["diff", "--name-only", "--diff-filter=U"]);
            for path in unmerged.lines() {
                remote.git(1, &["checkout", "--quiet", "--theirs", path]);
            }
            remote.git(1, &["add", "--all"]);
            remote.git(1, &["commit", "--quiet", "--no-edit"]);
        }
        remote.agree();
        said.sort();
        for at in 0..2 {
            assert_eq!(queued(&remote.agent(at, "eve")), said, "{is_alike} {at}");
        }
        remote.run(1, &["tick", "eve", "--until-idle", "-q"]);
        assert_eq!(processed(&remote.agent(1, "eve")).len(), 2);
        remote.agree();
    }
}
