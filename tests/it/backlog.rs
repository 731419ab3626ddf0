//! Inboxes that were large once: how a step exchanges one for an empty one, files that arrive through the old
//! one, and batches that arrive as one directory.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::json;

use crate::checker;
use crate::harness::{Sandbox, each_in_parallel};
use crate::setup::{self, Beside, git, make_repository, mode, names, texts};
use crate::strace::{self, Call, Harm, harm};

const TICK: &[&str] = &["tick", "a"];

fn agent() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "a", "--", "true"]);
    sandbox.run(["start", "a"]);
    sandbox.run(TICK.iter().copied());
    sandbox
}

/// So many in one batch. Returns the ids.
fn batch(sandbox: &Sandbox, count: usize) -> Vec<String> {
    let lines = "{\"text\":\"hello\"}\n".repeat(count);
    let ran = sandbox.cmd(["enqueue", "a", "--batch"]).stdin(lines).exits(0);
    ran.stdout.lines().map(str::to_owned).collect()
}

/// An agent whose inbox has so many messages, each a file right in it. Returns the ids in order as well.
fn long(count: usize) -> (Sandbox, Vec<String>) {
    let sandbox = agent();
    let mut ids = Vec::new();
    while ids.len() < count {
        ids.extend(batch(&sandbox, (count - ids.len()).min(1000)));
    }
    assert_eq!(messages(&inbox(&sandbox)), count);
    (sandbox, ids)
}

fn inbox(sandbox: &Sandbox) -> PathBuf {
    sandbox.agent("a").join("inbox")
}

/// How many messages lie right in a directory.
fn messages(dir: &Path) -> usize {
    names(dir).iter().filter(|name| name.as_bytes().get(1) == Some(&b'-') && name.ends_with(".json")).count()
}

/// The piles of the inbox.
fn piles(sandbox: &Sandbox) -> Vec<PathBuf> {
    let names = names(&inbox(sandbox)).into_iter().filter(|name| name.starts_with("from-"));
    names.map(|name| inbox(sandbox).join(name)).collect()
}

fn queued(sandbox: &Sandbox) -> Vec<String> {
    let listed = sandbox.json_lines(["queue", "list", "-a", "a", "--limit", "0"]);
    texts(&listed, "id")
}

/// Everything that was acknowledged is there once: queued or ended.
fn all_there(sandbox: &Sandbox, ids: &[String]) {
    let found = checker::look(&sandbox.agent("a"));
    assert_eq!(found.complaints, Vec::<String>::new());
    assert_eq!(found.messages(), ids.iter().cloned().collect::<BTreeSet<_>>());
}

#[test]
fn a_large_inbox_is_exchanged_and_keeps_what_is_its_own() {
    let (sandbox, ids) = long(1500);
    sandbox.run(["wake", "a"]);
    let dir = inbox(&sandbox);
    fs::create_dir(dir.join("rejected")).unwrap();
    fs::write(dir.join("rejected/one"), "no message").unwrap();
    fs::write(dir.join(".being-written"), "").unwrap();
    fs::write(dir.join("drop.json"), "{\"text\": \"dropped\"}").unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o3770)).unwrap();
    let (was, large) = (fs::metadata(&dir).unwrap().ino(), fs::metadata(&dir).unwrap().size());
    assert_eq!(sandbox.json(TICK.iter().copied())["message_id"], ids[0]);
    let is = fs::metadata(&dir).unwrap();
    assert!(is.ino() != was && is.size() < large, "{} was {large}", is.size());
    assert_eq!(mode(&dir), 0o3770);
    let kept = names(&dir);
    for name in [".being-written", "rejected"] {
        assert!(kept.iter().any(|kept| kept == name), "{name}: {kept:?}");
    }
    assert!(dir.join(".gitkeep").exists());
    assert!(!sandbox.agent("a").join("inbox.old").exists());
    assert_eq!(fs::metadata(&piles(&sandbox)[0]).unwrap().ino(), was, "it is not copied");
    let rejected = sandbox.json_lines(["queue", "rejected", "-a", "a"]);
    assert_eq!(rejected.iter().map(|one| &one["path"]).collect::<Vec<_>>(), [&json!("one")]);
    let left = queued(&sandbox);
    assert_eq!(left[..1499], ids[1..], "in order");
    assert_eq!(left.len(), 1500, "and what was dropped");
    sandbox.run(["doctor"]);
    // Each is taken in order, across the end of the first segment.
    for id in left.iter().take(3) {
        assert_eq!(sandbox.json(TICK.iter().copied())["message_id"], **id);
    }
}

#[test]
fn what_comes_through_an_inbox_that_was_opened_before_is_found() {
    let (sandbox, ids) = long(2300);
    let other = sandbox.copy();
    // A program that stands in the directory, and goes on to put files there.
    let open = File::open(inbox(&sandbox)).unwrap();
    sandbox.run(TICK.iter().copied());
    let urgent = other.run(["enqueue", "a", "at once", "--priority", "interject"]).trim().to_owned();
    let name = format!("0-{urgent}.json");
    let elsewhere = File::open(inbox(&other)).unwrap();
    rustix::fs::renameat(&elsewhere, &name, &open, &name).unwrap();
    assert_eq!(messages(&inbox(&sandbox)), 0, "it is in what was the inbox");
    assert_eq!(queued(&sandbox)[0], urgent, "whoever looks sees it");
    assert_eq!(sandbox.json(TICK.iter().copied())["message_id"], urgent);
    // A hand-written file and a hint go back to the inbox.
    fs::write(inbox(&other).join("drop.json"), "{\"text\": \"dropped\", \"priority\": \"next\"}").unwrap();
    rustix::fs::renameat(&elsewhere, "drop.json", &open, "drop.json").unwrap();
    other.run(["wake", "a"]);
    let hint = names(&inbox(&other)).into_iter().find(|name| name.starts_with("w-")).unwrap();
    rustix::fs::renameat(&elsewhere, &hint, &open, &hint).unwrap();
    let step = sandbox.json(TICK.iter().copied());
    assert!(!ids.contains(&step["message_id"].as_str().unwrap().to_owned()), "what was dropped: {step}");
    assert!(!inbox(&sandbox).join(&hint).exists(), "it is taken in");
    assert_eq!(sandbox.json(TICK.iter().copied())["message_id"], ids[1]);
    assert_eq!(queued(&sandbox)[..], ids[2..]);
    sandbox.run(["doctor"]);
}

/// The whole backlog is used up, in order, and nothing of it stays.
#[test]
fn a_pile_that_is_used_up_is_removed() {
    needs!("strace");
    let sandbox = agent();
    let ids = batch(&sandbox, 1030);
    assert_eq!((messages(&inbox(&sandbox)), piles(&sandbox).len()), (0, 1), "a batch comes as one");
    assert_eq!(queued(&sandbox), ids);
    assert_eq!(sandbox.json(TICK.iter().copied())["message_id"], ids[0]);
    // But for the first few and the last.
    for id in ids[2..1020].iter() {
        let path = find(&sandbox, id);
        fs::remove_file(&path).unwrap();
        // One that is empty; any other stays.
        let _ = fs::remove_dir(path.parent().unwrap());
    }
    let steps = sandbox.json_lines(["tick", "a", "--until-idle"]);
    let taken: Vec<_> = steps.iter().filter_map(|step| step["message_id"].as_str()).collect();
    assert_eq!(taken, [&ids[1..2], &ids[1020..]].concat());
    assert_eq!(names(&inbox(&sandbox)), Vec::<String>::new());
    // It rests, and a look finds nothing to do.
    let calls = strace::calls(&sandbox, TICK);
    assert!(!calls.contains_key("flock"), "{calls:?}");
}

fn find(sandbox: &Sandbox, id: &str) -> PathBuf {
    let inbox = inbox(sandbox);
    let name = format!("2-{id}.json");
    let dirs = names(&inbox).into_iter().map(|dir| inbox.join(dir).join(&name));
    dirs.chain([inbox.join(&name)]).find(|path| path.exists()).unwrap()
}

#[test]
fn one_message_of_a_pile_can_be_shown_dropped_and_moved_up() {
    let sandbox = agent();
    let ids = batch(&sandbox, 1500);
    assert_eq!(sandbox.json(["queue", "show", &ids[1400]])["status"], "queued");
    sandbox.run(["queue", "drop", &ids[1400]]);
    sandbox.run(["queue", "drop", &ids[0]]);
    assert_eq!(sandbox.json(["queue", "show", &ids[1400]])["status"], "dropped");
    assert_eq!(sandbox.json(TICK.iter().copied())["message_id"], ids[1]);
    let left = queued(&sandbox);
    assert_eq!(left[..], [&ids[2..1400], &ids[1401..]].concat());
    sandbox.run(["doctor"]);
}

#[test]
fn where_no_directory_can_be_exchanged_messages_are_filed_one_by_one() {
    needs!("strace");
    let (sandbox, ids) = long(1100);
    let calls = strace::record(&sandbox.copy(), TICK, "").calls;
    let exchange = exchange(&calls);
    let harmed = harm(&sandbox, TICK, "", exchange, Harm::Error("EINVAL"));
    assert_eq!((harmed.ran.code(), harmed.hit.len()), (0, 1), "{}", harmed.ran);
    assert_eq!((messages(&inbox(&sandbox)), piles(&sandbox).len()), (0, 0));
    assert!(!sandbox.agent("a").join("inbox.old").exists());
    assert_eq!(queued(&sandbox)[..], ids[1..]);
    sandbox.run(["doctor"]);
}

fn exchange(calls: &[Call]) -> &Call {
    calls.iter().find(|call| call.rest.contains("RENAME_EXCHANGE")).unwrap()
}

/// Each state between the exchange and its end, and what readers, clones and the next commands make of it.
#[test]
fn an_exchange_that_was_killed_hides_nothing() {
    needs!("strace");
    let (template, ids) = long(1100);
    fs::write(inbox(&template).join(".hidden"), "").unwrap();
    template.run(["wake", "a"]);
    let points = strace::record(&template.copy(), TICK, "").points();
    let at = points.iter().position(|call| call.rest.contains("RENAME_EXCHANGE")).unwrap();
    // From the making of the new one until all that is filed is in its place.
    let end = at + points[at..].iter().position(Call::is_about_journal).unwrap();
    let is_near = |number: usize| number + 8 > at && (number < at + 22 || number + 14 > end) && number < end;
    let cases: Vec<(usize, &Call)> =
        points.iter().enumerate().filter(|(number, _)| is_near(*number)).collect();
    each_in_parallel(&cases, |(number, call)| {
        let sandbox = template.copy();
        harm(&sandbox, TICK, "", call, Harm::Kill);
        let at = format!("{number}: {call}");
        assert_eq!(queued(&sandbox), ids, "{at}");
        assert_eq!(sandbox.json(["get", "a"])["queue"]["pending"], 1100, "{at}");
        if number % 3 == 0 {
            sandbox.cmd(["doctor", "--repair"]).output();
        } else if number % 3 == 1 {
            // Another command that takes the lock comes first.
            sandbox.run(["queue", "drop", &ids[1050]]);
        }
        let is_dropped = number % 3 == 1;
        let step = sandbox.json(TICK.iter().copied());
        assert!(step["message_id"] == ids[0] || step["message_id"] == ids[1], "{at}: {step}");
        sandbox.run(["doctor"]);
        all_there(&sandbox, &ids);
        assert!(!sandbox.agent("a").join("inbox.old").exists(), "{at}");
        let is_there = queued(&sandbox).contains(&ids[1050]);
        assert_eq!(is_there, !is_dropped, "{at}");
        assert!(
            inbox(&sandbox).join(".hidden").exists() && inbox(&sandbox).join(".gitkeep").exists(),
            "{at}"
        );
    });
}

/// A batch is there whole or not at all, wherever it is killed.
#[test]
fn a_large_batch_comes_whole_or_not_at_all() {
    needs!("strace");
    const BATCH: &[&str] = &["enqueue", "a", "--batch"];
    let template = agent();
    let lines = "{\"text\":\"hello\"}\n".repeat(1100);
    let points = strace::record(&template.copy(), BATCH, &lines).points();
    let last = points.len() - 40;
    let cases: Vec<&Call> =
        points.iter().step_by(400).chain(&points[last..]).filter(|call| call.act() != "write").collect();
    let wholes = std::sync::atomic::AtomicUsize::new(0);
    each_in_parallel(&cases, |call| {
        let sandbox = template.copy();
        harm(&sandbox, BATCH, &lines, call, Harm::Kill);
        let count = queued(&sandbox).len();
        assert!(count == 0 || count == 1100, "{count}: {call}");
        wholes.fetch_add(count / 1100, std::sync::atomic::Ordering::Relaxed);
        sandbox.run(TICK.iter().copied());
        sandbox.run(["doctor"]);
    });
    assert!(wholes.into_inner() > 0, "none came through");
}

/// Producers, droppers and readers beside steps that exchange the inbox again and again.
#[test]
fn nothing_is_lost_or_hidden_beside_an_exchange() {
    let sandbox = agent();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.extend(batch(&sandbox, 600));
        ids.extend(batch(&sandbox, 600));
        let least = ids.len();
        let settled: Vec<String> = thread::scope(|scope| {
            let producers: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let say = |_| sandbox.run(["enqueue", "a", "hello"]).trim().to_owned();
                        (0..8).map(say).collect::<Vec<_>>()
                    })
                })
                .collect();
            let reader = scope.spawn(|| {
                for _ in 0..6 {
                    let seen = queued(&sandbox);
                    let once: BTreeSet<_> = seen.iter().collect();
                    assert_eq!(once.len(), seen.len(), "shown twice");
                    let ended = setup::names(&sandbox.agent("a").join("runs")).len();
                    assert!(seen.len() + ended + 1 >= least, "{} of {least}, {ended} ended", seen.len());
                }
            });
            sandbox.run(TICK.iter().copied());
            sandbox.run(TICK.iter().copied());
            reader.join().unwrap();
            producers.into_iter().flat_map(|producer| producer.join().unwrap()).collect()
        });
        ids.extend(settled);
    }
    all_there(&sandbox, &ids);
    sandbox.run(["doctor"]);
}

/// Git sees messages that move, and no directory that was renamed; a clone goes on with the pile.
#[test]
fn a_clone_goes_on_with_a_pile() {
    let (sandbox, ids) = long(1300);
    make_repository(&sandbox);
    sandbox.run(TICK.iter().copied());
    git(&sandbox, &["add", "-A"]);
    git(&sandbox, &["commit", "-qm", "filed"]);
    let clone = sandbox.root().join("clone");
    git(&sandbox, &["clone", "-q", ".", clone.to_str().unwrap()]);
    let dir = clone.to_str().unwrap();
    let step = sandbox.json(["-C", dir, "tick", "a"]);
    assert_eq!(step["message_id"], ids[1]);
    let late = sandbox.run(["enqueue", "a", "late"]).trim().to_owned();
    let steps = sandbox.json_lines(["-C", dir, "queue", "list", "-a", "a", "--limit", "0"]);
    assert_eq!(steps.len(), 1298);
    git(&sandbox, &["add", "-A"]);
    git(&sandbox, &["commit", "-qm", "late"]);
    assert!(inbox(&sandbox).join(format!("2-{late}.json")).exists());
    sandbox.run(["doctor"]);
}

/// What a step costs does not depend on how much more is queued.
#[test]
fn a_step_makes_as_many_calls_with_few_queued_as_with_many() {
    needs!("strace");
    let costs = [1100, 4000].map(|count| {
        let sandbox = agent().with_real_clock();
        batch(&sandbox, count);
        sandbox.run(TICK.iter().copied());
        strace::calls(&sandbox, TICK)
    });
    assert_eq!(costs[0], costs[1]);
}

/// Waiting for a message goes on when its inbox is another one.
#[test]
fn who_waits_is_told_through_the_new_inbox() {
    let (sandbox, ids) = long(1100);
    let waits = Beside::start(sandbox.cmd(["await", "a", "--message", &ids[1], "--timeout", "60s"]));
    sandbox.run(TICK.iter().copied());
    sandbox.run(TICK.iter().copied());
    waits.end().exits(0);
}

/// Something in the place of what a step makes, or that looks like what it has made.
#[test]
fn what_lies_in_the_way_of_an_exchange_stops_nobody() {
    let (template, ids) = long(1100);
    for in_the_way in ["inbox.old", "inbox/from-2-msg_00000000000070008000000000000001"] {
        for is_link in [false, true] {
            let sandbox = template.copy();
            let path = sandbox.agent("a").join(in_the_way);
            if is_link {
                std::os::unix::fs::symlink(sandbox.home(), &path).unwrap();
            } else {
                fs::write(&path, "no directory").unwrap();
            }
            for id in &ids[..2] {
                let ran = sandbox.cmd(["tick", "a", "--json"]).output();
                let step: serde_json::Value =
                    serde_json::from_str(ran.stdout.lines().last().unwrap_or("null")).unwrap_or_default();
                assert_eq!(step["message_id"], **id, "{in_the_way}, {is_link}: {ran}");
            }
            assert_eq!(queued(&sandbox)[..], ids[2..]);
            assert_eq!(names(&sandbox.home()), Vec::<String>::new());
        }
    }
    // A pile that somebody has made of what is no message.
    let sandbox = template.copy();
    let pile = inbox(&sandbox).join("from-1-msg_00000000000070008000000000000001");
    fs::create_dir_all(pile.join("2-msg_00000000000070008000000000000002.json/not/empty")).unwrap();
    fs::create_dir(pile.join("from-2-msg_00000000000070008000000000000003")).unwrap();
    fs::write(pile.join("1-msg_00000000000070008000000000000001.json"), "torn").unwrap();
    let ran = sandbox.cmd(["tick", "a", "--until-idle", "--max-steps", "4", "--json"]).output();
    assert!(ran.stdout.contains(&ids[0]), "{ran}");
    assert!(!pile.exists());
    assert_eq!(sandbox.json_lines(["queue", "rejected", "-a", "a"]).len(), 2);
}
