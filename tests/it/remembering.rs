//! What a step leaves to others of the open records that it has read is never taken for the records.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Sandbox, each_in_parallel};
use crate::setup::{names, texts, words};
use crate::strace::{self, Call, Harm};

const CACHE: &str = "cache/open/work";

/// An agent with so many open items that they are worth it.
fn busy() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "ada", "--", "true"]);
    sandbox.run(["start", "ada"]);
    for number in 0..40 {
        sandbox.run(["work", "add", "-a", "ada", &format!("item {number:02}"), "--blocked-by", "release"]);
    }
    sandbox.run(["enqueue", "ada", "hello"]);
    sandbox
}

/// A copy whose files are old enough to be remembered.
fn settled(sandbox: &Sandbox) -> Sandbox {
    let copy = sandbox.copy();
    std::thread::sleep(Duration::from_millis(2_300));
    copy
}

/// What a reader says, with what was remembered and without.
fn is_the_same_without(sandbox: &Sandbox, what: &str) {
    let look = || ["work list -a ada --json", "get ada --json"].map(|line| sandbox.run(words(line)));
    let with = look();
    let _ = fs::remove_dir_all(sandbox.agent("ada").join("cache/open"));
    assert_eq!(with, look(), "{what}");
}

#[test]
fn an_edit_in_place_is_seen_although_a_step_has_remembered_the_record() {
    let sandbox = settled(&busy());
    let agent = sandbox.agent("ada");
    sandbox.run(["work", "list", "-a", "ada"]);
    assert!(!agent.join(CACHE).exists(), "who only looks writes nothing");
    sandbox.run(["tick", "ada"]);
    assert!(agent.join(CACHE).exists());
    assert!(names(&agent.join("tmp")).is_empty());
    let inode = |path: &str| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(agent.join(path)).unwrap().ino()
    };
    let before = inode(CACHE);
    let objectives = || {
        let items = sandbox.json_lines(["work", "list", "-a", "ada"]);
        texts(&items, "objective")
    };
    let name = names(&agent.join("work")).into_iter().next().unwrap();
    let path = agent.join("work").join(name);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("item 00", "edited!")).unwrap();
    assert_eq!(objectives()[0], "edited!");
    // One that git, a backup or an editor puts back.
    let other = agent.join("other");
    fs::write(&other, text.replace("item 00", "put bak")).unwrap();
    fs::rename(&other, &path).unwrap();
    assert_eq!(objectives()[0], "put bak");
    fs::remove_file(&path).unwrap();
    assert_eq!(objectives().len(), 39);
    fs::write(&path, &text).unwrap();
    sandbox.run(["enqueue", "ada", "more"]);
    assert_eq!(
        sandbox.json(["tick", "ada"])["closure"]["outcome"],
        sandbox.json(["get", "ada"])["closure"]["outcome"]
    );
    assert_eq!(inode(CACHE), before, "it is not written for one record");
    // A step's own changes.
    let id = sandbox.json_lines(["work", "list", "-a", "ada"])[3]["id"].as_str().unwrap().to_owned();
    sandbox.run(["work", "complete", &id]);
    is_the_same_without(&sandbox, "completed");
    for content in [&b""[..], b"torn", &[0; 200], &[0xff; 4096]] {
        fs::create_dir_all(agent.join("cache/open")).unwrap();
        fs::write(agent.join(CACHE), content).unwrap();
        is_the_same_without(&sandbox, "not what was written");
    }
    sandbox.run(["doctor"]);
}

#[test]
fn a_step_that_is_killed_or_fails_while_it_remembers_leaves_nothing_wrong() {
    needs!("strace");
    let sandbox = busy();
    let calls = strace::record(&settled(&sandbox), &["tick", "ada"], "").calls;
    let is_about = |call: &&Call| {
        call.rest.contains("/tmp/open\"")
            || call.rest.contains("/tmp/open>")
            || call.rest.contains("cache/open")
    };
    let calls: Vec<Call> = calls.iter().filter(is_about).cloned().collect();
    assert!(calls.len() > 3, "{calls:?}", calls = calls.iter().map(Call::to_string).collect::<Vec<_>>());
    let cases: Vec<(&Call, Harm)> =
        calls.iter().flat_map(|call| [(call, Harm::Kill), (call, Harm::Error("ENOSPC"))]).collect();
    let hit = AtomicUsize::new(0);
    each_in_parallel(&cases, |(call, harm)| {
        let sandbox = settled(&sandbox);
        let harmed = strace::harm(&sandbox, &["tick", "ada"], "", call, *harm);
        hit.fetch_add(harmed.hit.len(), Ordering::Relaxed);
        let what = format!("{harm:?} at {call}: {}", harmed.ran);
        if matches!(harm, Harm::Error(_)) {
            assert_eq!(harmed.ran.code(), 0, "{what}");
            assert!(names(&sandbox.agent("ada").join("tmp")).is_empty(), "{what}");
        }
        is_the_same_without(&sandbox, &what);
        sandbox.run(["tick", "ada", "--until-idle"]);
        sandbox.run(["tick", "ada"]);
        assert_eq!(sandbox.json(["get", "ada", "counters.turns"]), Value::from(1), "{what}");
        assert!(names(&sandbox.agent("ada").join("tmp")).is_empty(), "{what}");
        is_the_same_without(&sandbox, &what);
    });
    assert_eq!(hit.into_inner(), cases.len());
}
