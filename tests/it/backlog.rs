//! Tests how a step replaces a large inbox by an empty one, how files are found that arrive in the
//! former inbox, and how a large batch arrives as one directory.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use crate::checker;
use crate::harness::{Sandbox, each_in_parallel};
use crate::setup::{Beside, commit_all, git, make_repository, mode, names, objects, texts};
use crate::strace::{self, Call, Harm, harm};

const TICK: [&str; 2] = ["tick", "a"];

fn agent() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "a", "--", "true"]);
    sandbox.run(["start", "a"]);
    sandbox.run(TICK);
    sandbox
}

/// Enqueues `count` messages in one batch, and returns their ids.
fn batch(sandbox: &Sandbox, count: usize) -> Vec<String> {
    let lines = "{\"text\":\"hello\"}\n".repeat(count);
    let ran = sandbox.cmd(["enqueue", "a", "--batch"]).stdin(lines).exits(0);
    ran.stdout.lines().map(str::to_owned).collect()
}

/// Makes an agent with `count` messages directly in the inbox. Returns their ids in order.
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

/// Number of messages in a directory, without those in its subdirectories.
fn messages(dir: &Path) -> usize {
    names(dir).iter().filter(|name| name.as_bytes().get(1) == Some(&b'-') && name.ends_with(".json")).count()
}

/// Returns the paths of the inbox's buckets, which are directories of messages.
fn buckets(sandbox: &Sandbox) -> Vec<PathBuf> {
    let names = names(&inbox(sandbox)).into_iter().filter(|name| name.starts_with("from-"));
    names.map(|name| inbox(sandbox).join(name)).collect()
}

fn queued(sandbox: &Sandbox) -> Vec<String> {
    texts(&sandbox.json_lines(["queue", "list", "-a", "a", "--limit", "0"]), "id")
}

/// Asserts that the agent has exactly these messages, each queued or archived.
fn all_there(sandbox: &Sandbox, ids: &[String]) {
    let found = checker::look(&sandbox.agent("a"));
    assert_eq!(found.complaints, Vec::<String>::new());
    assert_eq!(found.messages(), ids.iter().cloned().collect::<BTreeSet<_>>());
}

#[test]
fn a_step_replaces_a_large_inbox_and_keeps_its_other_files() {
    let (sandbox, ids) = long(1500);
    sandbox.run(["wake", "a"]);
    let dir = inbox(&sandbox);
    fs::create_dir(dir.join("rejected")).unwrap();
    fs::write(dir.join("rejected/one"), "no message").unwrap();
    fs::write(dir.join(".being-written"), "").unwrap();
    fs::write(dir.join("drop.json"), "{\"text\": \"dropped\"}").unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o3770)).unwrap();
    let (was, large) = (fs::metadata(&dir).unwrap().ino(), fs::metadata(&dir).unwrap().size());
    assert_eq!(sandbox.json(TICK)["message_id"], ids[0]);
    let is = fs::metadata(&dir).unwrap();
    assert!(is.ino() != was && is.size() < large, "{} was {large}", is.size());
    assert_eq!(mode(&dir), 0o3770);
    let kept = names(&dir);
    for name in [".being-written", "rejected"] {
        assert!(kept.iter().any(|kept| kept == name), "{name}: {kept:?}");
    }
    assert!(dir.join(".gitkeep").exists());
    assert!(!sandbox.agent("a").join("inbox.old").exists());
    assert_eq!(fs::metadata(&buckets(&sandbox)[0]).unwrap().ino(), was, "the directory was copied");
    assert_eq!(texts(&sandbox.json_lines(["queue", "rejected", "-a", "a"]), "path"), ["one"]);
    let left = queued(&sandbox);
    assert_eq!(left[..1499], ids[1..], "in order");
    assert_eq!(left.len(), 1500, "with the message of the dropped file");
    sandbox.run(["doctor"]);
    // Steps take the messages of the bucket in order.
    for id in left.iter().take(3) {
        assert_eq!(sandbox.json(TICK)["message_id"], **id);
    }
}

#[test]
fn files_that_arrive_in_the_former_inbox_are_found() {
    let (sandbox, ids) = long(2300);
    let other = sandbox.copy();
    // A program that opened the inbox before its replacement still writes to that directory.
    let open = File::open(inbox(&sandbox)).unwrap();
    sandbox.run(TICK);
    let urgent = other.run(["enqueue", "a", "at once", "--priority", "interject"]).trim().to_owned();
    let name = format!("0-{urgent}.json");
    let elsewhere = File::open(inbox(&other)).unwrap();
    rustix::fs::renameat(&elsewhere, &name, &open, &name).unwrap();
    assert_eq!(messages(&inbox(&sandbox)), 0, "the message is in the former inbox");
    assert_eq!(queued(&sandbox)[0], urgent, "`queue list` finds the message");
    assert_eq!(sandbox.json(TICK)["message_id"], urgent);
    // A step must also find a hand-written file and a hint in the former inbox.
    fs::write(inbox(&other).join("drop.json"), "{\"text\": \"dropped\", \"priority\": \"next\"}").unwrap();
    rustix::fs::renameat(&elsewhere, "drop.json", &open, "drop.json").unwrap();
    other.run(["wake", "a"]);
    let hint = names(&inbox(&other)).into_iter().find(|name| name.starts_with("w-")).unwrap();
    rustix::fs::renameat(&elsewhere, &hint, &open, &hint).unwrap();
    let step = sandbox.json(TICK);
    assert!(!ids.contains(&step["message_id"].as_str().unwrap().to_owned()), "not the dropped file: {step}");
    assert!(!inbox(&sandbox).join(&hint).exists(), "the hint was not taken in");
    assert_eq!(sandbox.json(TICK)["message_id"], ids[1]);
    assert_eq!(queued(&sandbox)[..], ids[2..]);
    sandbox.run(["doctor"]);
}

#[test]
fn a_bucket_that_is_used_up_is_removed() {
    needs!("strace");
    let sandbox = agent();
    let ids = batch(&sandbox, 1030);
    assert_eq!((messages(&inbox(&sandbox)), buckets(&sandbox).len()), (0, 1), "a batch is one bucket");
    assert_eq!(queued(&sandbox), ids);
    assert_eq!(sandbox.json(TICK)["message_id"], ids[0]);
    // The loop removes all messages of the bucket but the second and the last ten.
    for id in &ids[2..1020] {
        let path = find(&sandbox, id);
        fs::remove_file(&path).unwrap();
        // The removal fails while the bucket has other messages.
        let _ = fs::remove_dir(path.parent().unwrap());
    }
    let steps = sandbox.json_lines(["tick", "a", "--until-idle"]);
    let taken: Vec<_> = steps.iter().filter_map(|step| step["message_id"].as_str()).collect();
    assert_eq!(taken, [&ids[1..2], &ids[1020..]].concat());
    assert_eq!(names(&inbox(&sandbox)), Vec::<String>::new());
    // A tick without work takes no lock.
    let calls = strace::calls(&sandbox, &TICK);
    assert!(!calls.contains_key("flock"), "{calls:?}");
}

fn find(sandbox: &Sandbox, id: &str) -> PathBuf {
    let inbox = inbox(sandbox);
    let name = format!("2-{id}.json");
    let dirs = names(&inbox).into_iter().map(|dir| inbox.join(dir).join(&name));
    dirs.chain([inbox.join(&name)]).find(|path| path.exists()).unwrap()
}

#[test]
fn one_message_of_a_bucket_can_be_shown_and_dropped() {
    let sandbox = agent();
    let ids = batch(&sandbox, 1500);
    assert_eq!(sandbox.json(["queue", "show", &ids[1400]])["status"], "queued");
    sandbox.run(["queue", "drop", &ids[1400]]);
    sandbox.run(["queue", "drop", &ids[0]]);
    assert_eq!(sandbox.json(["queue", "show", &ids[1400]])["status"], "dropped");
    assert_eq!(sandbox.json(TICK)["message_id"], ids[1]);
    let left = queued(&sandbox);
    assert_eq!(left[..], [&ids[2..1400], &ids[1401..]].concat());
    sandbox.run(["doctor"]);
}

#[test]
fn without_an_atomic_exchange_of_directories_messages_are_moved_one_by_one() {
    needs!("strace");
    let (sandbox, ids) = long(1100);
    let calls = strace::record(&sandbox.copy(), &TICK, "").calls;
    let exchange = calls.iter().find(|call| is_exchange(call)).unwrap();
    let harmed = harm(&sandbox, &TICK, "", exchange, Harm::Error("EINVAL"));
    assert_eq!((harmed.ran.code(), harmed.hit.len()), (0, 1), "{}", harmed.ran);
    assert_eq!((messages(&inbox(&sandbox)), buckets(&sandbox).len()), (0, 0));
    assert!(!sandbox.agent("a").join("inbox.old").exists());
    assert_eq!(queued(&sandbox)[..], ids[1..]);
    sandbox.run(["doctor"]);
}

fn is_exchange(call: &Call) -> bool {
    call.rest.contains("RENAME_EXCHANGE")
}

/// Kills a tick while it replaces a large inbox by an empty one. Later commands find all messages.
#[test]
fn a_killed_replacement_of_an_inbox_hides_no_message() {
    needs!("strace");
    let (template, ids) = long(1100);
    fs::write(inbox(&template).join(".hidden"), "").unwrap();
    template.run(["wake", "a"]);
    let points = strace::record(&template.copy(), &TICK, "").points();
    let at = points.iter().position(is_exchange).unwrap();
    // The kills are before the tick writes its journal, because the inbox is replaced by then.
    let end = at + points[at..].iter().position(Call::is_about_journal).unwrap();
    let is_near = |number: usize| number + 8 > at && (number < at + 22 || number + 14 > end) && number < end;
    let cases: Vec<(usize, &Call)> =
        points.iter().enumerate().filter(|(number, _)| is_near(*number)).collect();
    each_in_parallel(&cases, |(number, call)| {
        let sandbox = template.copy();
        harm(&sandbox, &TICK, "", call, Harm::Kill);
        let at = format!("{number}: {call}");
        assert_eq!(queued(&sandbox), ids, "{at}");
        assert_eq!(sandbox.json(["get", "a"])["queue"]["pending"], 1100, "{at}");
        if number % 3 == 0 {
            sandbox.cmd(["doctor", "--repair"]).output();
        } else if number % 3 == 1 {
            // After the kill, a command other than `tick` takes the agent's lock first.
            sandbox.run(["queue", "drop", &ids[1050]]);
        }
        let is_dropped = number % 3 == 1;
        let step = sandbox.json(TICK);
        assert!(step["message_id"] == ids[0] || step["message_id"] == ids[1], "{at}: {step}");
        sandbox.run(["doctor"]);
        all_there(&sandbox, &ids);
        assert!(!sandbox.agent("a").join("inbox.old").exists(), "{at}");
        assert_eq!(queued(&sandbox).contains(&ids[1050]), !is_dropped, "{at}");
        for name in [".hidden", ".gitkeep"] {
            assert!(inbox(&sandbox).join(name).exists(), "{name}: {at}");
        }
    });
}

#[test]
fn a_large_batch_that_is_killed_is_admitted_whole_or_not_at_all() {
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
        sandbox.run(TICK);
        sandbox.run(["doctor"]);
    });
    assert!(wholes.into_inner() > 0, "no batch was admitted");
}

/// Producers and a reader run while steps replace the inbox again and again.
#[test]
fn nothing_is_lost_or_hidden_while_the_inbox_is_replaced() {
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
                    assert_eq!(once.len(), seen.len(), "a message is listed twice");
                    let ended = names(&sandbox.agent("a").join("runs")).len();
                    assert!(seen.len() + ended + 1 >= least, "{} of {least}, {ended} ended", seen.len());
                }
            });
            sandbox.run(TICK);
            sandbox.run(TICK);
            reader.join().unwrap();
            producers.into_iter().flat_map(|producer| producer.join().unwrap()).collect()
        });
        ids.extend(settled);
    }
    all_there(&sandbox, &ids);
    sandbox.run(["doctor"]);
}

/// A clone processes a bucket, a directory of messages. Later messages get into the inbox itself.
#[test]
fn a_clone_processes_a_bucket() {
    let (sandbox, ids) = long(1300);
    make_repository(&sandbox);
    sandbox.run(TICK);
    commit_all(&sandbox, "filed");
    let clone = sandbox.root().join("clone");
    git(&sandbox, &["clone", "-q", ".", clone.to_str().unwrap()]);
    let dir = clone.to_str().unwrap();
    let step = sandbox.json(["-C", dir, "tick", "a"]);
    assert_eq!(step["message_id"], ids[1]);
    let late = sandbox.run(["enqueue", "a", "late"]).trim().to_owned();
    let listed = sandbox.json_lines(["-C", dir, "queue", "list", "-a", "a", "--limit", "0"]);
    assert_eq!(listed.len(), 1298);
    commit_all(&sandbox, "late");
    assert!(inbox(&sandbox).join(format!("2-{late}.json")).exists());
    sandbox.run(["doctor"]);
}

#[test]
fn a_step_makes_as_many_system_calls_with_1100_queued_messages_as_with_4000() {
    needs!("strace");
    let costs = [1100, 4000].map(|count| {
        let sandbox = agent().with_real_clock();
        batch(&sandbox, count);
        sandbox.run(TICK);
        strace::calls(&sandbox, &TICK)
    });
    assert_eq!(costs[0], costs[1]);
}

#[test]
fn await_sees_the_end_of_a_message_after_the_inbox_was_replaced() {
    let (sandbox, ids) = long(1100);
    let waits = Beside::start(sandbox.cmd(["await", "a", "--message", &ids[1], "--timeout", "60s"]));
    sandbox.run(TICK);
    sandbox.run(TICK);
    waits.end().exits(0);
}

#[test]
fn files_links_and_false_buckets_in_the_place_of_new_directories_stop_no_step() {
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
                let steps = objects(&ran.stdout);
                assert_eq!(steps[steps.len() - 1]["message_id"], **id, "{in_the_way}, {is_link}: {ran}");
            }
            assert_eq!(queued(&sandbox)[..], ids[2..]);
            assert_eq!(names(&sandbox.home()), Vec::<String>::new());
        }
    }
    // A directory named like a bucket may have entries that are only named like messages.
    let sandbox = template.copy();
    let bucket = inbox(&sandbox).join("from-1-msg_00000000000070008000000000000001");
    fs::create_dir_all(bucket.join("2-msg_00000000000070008000000000000002.json/not/empty")).unwrap();
    fs::create_dir(bucket.join("from-2-msg_00000000000070008000000000000003")).unwrap();
    fs::write(bucket.join("1-msg_00000000000070008000000000000001.json"), "torn").unwrap();
    sandbox.cmd(["tick", "a", "--until-idle", "--max-steps", "4", "--json"]).output().shows(&ids[0]);
    assert!(!bucket.exists());
    assert_eq!(sandbox.json_lines(["queue", "rejected", "-a", "a"]).len(), 2);
}

/// A step that was killed while it replaced the inbox leaves the messages in the former inbox.
#[test]
fn messages_in_the_former_inbox_count_for_the_waiting_time_of_their_agent() {
    let (sandbox, ids) = long(3);
    sandbox.run(["create", "0", "--", "true"]);
    sandbox.run(["start", "0"]);
    sandbox.run(["tick", "0"]);
    sandbox.pass(600);
    sandbox.run(["enqueue", "0", "later"]);
    let former = sandbox.agent("a").join("inbox.old");
    fs::rename(inbox(&sandbox), &former).unwrap();
    fs::create_dir_all(inbox(&sandbox).join(format!("from-2-{}", ids[0]))).unwrap();
    sandbox.pass(600);
    let steps = sandbox.json_lines(["tick", "--all"]);
    assert_eq!(texts(&steps, "agent"), ["a", "0"]);
}
