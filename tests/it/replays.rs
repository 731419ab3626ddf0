//! Tests that a message that has ended does not run again when its file is restored.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{add, extend_policy};

/// Returns a sandbox with a started agent `a` whose turns run this script.
fn sandbox(script: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    add(&sandbox, "a", script);
    sandbox
}

/// Sends a message and returns its id, path and record.
fn say(sandbox: &Sandbox, priority: &str) -> (String, PathBuf, Vec<u8>) {
    let id = sandbox.run(["enqueue", "a", "hello", "--priority", priority]).trim().to_owned();
    let digit =
        ["interject", "next", "normal", "background"].iter().position(|one| *one == priority).unwrap();
    let path = sandbox.agent("a").join("inbox").join(format!("{digit}-{id}.json"));
    let bytes = fs::read(&path).unwrap();
    (id, path, bytes)
}

fn turns(sandbox: &Sandbox) -> Value {
    sandbox.json(["get", "a", "counters.turns"])
}

/// Returns the number of events that say that the message was dropped because it had ended before.
fn dropped(sandbox: &Sandbox, id: &str) -> usize {
    let events = sandbox.json_lines(["events", "a", "--kind", "message_settled", "--limit", "0"]);
    let is_it = |event: &&Value| {
        let data = &event["data"];
        data["message_id"] == id && data["status"] == "dropped" && data["reason"] == "already_settled"
    };
    events.iter().filter(is_it).count()
}

#[test]
fn a_processed_message_whose_file_comes_back_is_dropped() {
    for priority in ["interject", "next", "normal", "background"] {
        let sandbox = sandbox("true");
        let (id, path, bytes) = say(&sandbox, priority);
        sandbox.run(["tick", "a", "--until-idle"]);
        for time in 1..3 {
            fs::write(&path, &bytes).unwrap();
            // The step drops the restored message and runs the next one.
            let (next, ..) = say(&sandbox, "background");
            assert_eq!(sandbox.json(["tick", "a"])["message_id"], next);
            assert!(!path.exists());
            assert_eq!((turns(&sandbox), dropped(&sandbox, &id)), (json!(1 + time), time), "{priority}");
        }
        // Commands show the archived state of the message, not the restored file.
        assert_eq!(sandbox.json(["queue", "show", &id])["status"], "processed");
        assert_eq!(sandbox.cmd(["await", "a", "--message", &id, "-q"]).output().code(), 0);
        assert_eq!(sandbox.cmd(["queue", "requeue", &id]).output().code(), 4);
        assert_eq!(sandbox.json(["get", "a"])["attention"], Value::Null);
        sandbox.run(["doctor"]);
    }
}

/// Removes the archive or the event ledger: either suffices to recognise an ended message.
#[test]
fn the_archive_or_the_ledger_suffices_to_recognize_an_ended_message() {
    for gone in [&["cache"][..], &["cache", "archive"], &["cache", "ledger"], &["archive"], &["ledger"]] {
        let sandbox = sandbox("true");
        let (id, path, bytes) = say(&sandbox, "normal");
        sandbox.run(["tick", "a", "--until-idle"]);
        if gone.len() == 1 && gone != ["cache"] {
            // The cache of ended messages, which these cases keep, is filled by the next step.
            say(&sandbox, "normal");
            sandbox.run(["tick", "a", "--until-idle"]);
        }
        let before = turns(&sandbox);
        for dir in gone {
            fs::remove_dir_all(sandbox.agent("a").join(dir)).unwrap();
        }
        fs::write(&path, &bytes).unwrap();
        sandbox.run(["tick", "a", "--until-idle"]);
        assert_eq!(turns(&sandbox), before, "{gone:?}");
        assert!(!path.exists() && dropped(&sandbox, &id) == 1, "{gone:?}");
    }
}

/// Damages the cache of ended messages: the next step rebuilds the cache.
#[test]
fn a_step_rebuilds_a_damaged_cache_of_ended_messages() {
    for content in [&b""[..], b"torn", &[0; 200], &[0xff; 4096]] {
        let sandbox = sandbox("true");
        let (id, path, bytes) = say(&sandbox, "normal");
        sandbox.run(["tick", "a", "--until-idle"]);
        say(&sandbox, "normal");
        sandbox.run(["tick", "a", "--until-idle"]);
        let dir = sandbox.agent("a").join("cache/settled");
        for entry in fs::read_dir(&dir).unwrap() {
            fs::write(entry.unwrap().path(), content).unwrap();
        }
        fs::write(&path, &bytes).unwrap();
        sandbox.run(["tick", "a", "--until-idle"]);
        assert_eq!((turns(&sandbox), dropped(&sandbox, &id)), (json!(2), 1), "{content:?}");
    }
}

#[test]
fn a_dead_letter_that_comes_back_stays_dead_until_it_is_requeued() {
    let sandbox = sandbox("exit 1");
    extend_policy(&sandbox, "a", "[recovery]\nmax_attempts = 1\n");
    let (id, path, bytes) = say(&sandbox, "normal");
    sandbox.cmd(["tick", "a", "--until-idle"]).output();
    assert_eq!(sandbox.json(["get", "a"])["queue"]["dead"], 1);
    fs::write(&path, &bytes).unwrap();
    sandbox.pass(3600);
    sandbox.cmd(["tick", "a", "--until-idle"]).output();
    assert_eq!((turns(&sandbox), dropped(&sandbox, &id)), (json!(1), 1));
    assert_eq!(sandbox.json(["get", "a"])["queue"]["dead"], 1);
    // A requeued message may run once more.
    sandbox.run(["queue", "requeue", &id]);
    sandbox.pass(3600);
    sandbox.cmd(["tick", "a", "--until-idle"]).output();
    assert_eq!((turns(&sandbox), dropped(&sandbox, &id)), (json!(2), 1));
    assert_eq!(sandbox.json(["get", "a"])["queue"]["dead"], 1);
    // The message has failed again after its requeue, so its restored file must not start a turn.
    fs::write(&path, &bytes).unwrap();
    sandbox.pass(3600);
    sandbox.cmd(["tick", "a", "--until-idle"]).output();
    assert_eq!((turns(&sandbox), dropped(&sandbox, &id)), (json!(2), 2));
}

#[test]
fn a_dropped_message_that_comes_back_stays_dropped() {
    let sandbox = sandbox("true");
    let (id, path, bytes) = say(&sandbox, "normal");
    sandbox.run(["queue", "drop", &id]);
    fs::write(&path, &bytes).unwrap();
    sandbox.run(["tick", "a", "--until-idle"]);
    assert_eq!((turns(&sandbox), dropped(&sandbox, &id)), (json!(0), 1));
}

/// Retries a message: the second attempt has the same id, but must not be dropped as a replay.
#[test]
fn retries_are_not_taken_for_replays() {
    let sandbox = sandbox("test -e again || { touch again; exit 1; }");
    let (id, ..) = say(&sandbox, "normal");
    assert_eq!(sandbox.cmd(["tick", "a"]).output().code(), 7);
    sandbox.pass(3600);
    sandbox.run(["tick", "a", "--until-idle"]);
    assert_eq!((turns(&sandbox), dropped(&sandbox, &id)), (json!(2), 0));
    assert_eq!(sandbox.json(["queue", "show", &id])["status"], "processed");
}

/// Copies the file of a message during its turn, and restores the file after the run is settled.
#[test]
fn a_claimed_message_whose_file_comes_back_runs_once() {
    let sandbox = sandbox("cp \"$DORMOUSE_DIR\"/agents/a/inbox/2-* . ");
    let (id, path, _) = say(&sandbox, "normal");
    sandbox.run(["tick", "a"]);
    let copy = sandbox.project().join(path.file_name().unwrap());
    fs::rename(copy, &path).unwrap();
    sandbox.run(["tick", "a", "--until-idle"]);
    assert_eq!((turns(&sandbox), dropped(&sandbox, &id)), (json!(1), 1));
}
