//! Tests kills of `tick --push` and `sync` at each git command that they start and at each of their
//! own changes of a file, and git commands that fail. Both clones can continue, no message is lost,
//! no turn runs twice, and no lock stays.
//!
//! A sample of the places is tested. `DORMOUSE_CUTS=1 cargo test --test it git_kills` takes all.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{Cmd, Ran, each_in_parallel, one_in, write_program};
use crate::remotes::{Remote, processed};
use crate::setup::{eventually, extend_policy, failure, names};
use crate::strace::{self, Call, Harm};

/// Turn that writes the id of its message to a log, which both clones share.
const TURN: &str =
    r#"d=${DORMOUSE_DIR%%/project*}; echo "$DORMOUSE_MESSAGE" >> "${d%%/clone-*}/turns"; echo done"#;

/// Program `git` that calls the real git, and at call number `GIT_AT` does `GIT_HARM`.
const GIT: &str = r#"#!/bin/sh
real=$(PATH=${PATH#*:}; command -v git)
number=$(($(cat "$GIT_CALLS/count") + 1))
echo "$number" > "$GIT_CALLS/count"
test "$number" = "$GIT_AT" || exec "$real" "$@"
echo "$*" > "$GIT_CALLS/hit"
case $GIT_HARM in
before) kill -9 $PPID ;;
after) "$real" "$@"; kill -9 $PPID ;;
both)
    # All processes are killed, as with a container, after git has created its lock.
    strace -qq -o /dev/null -e trace=rename,renameat,renameat2,link -e inject=rename,renameat,renameat2,link:signal=SIGKILL:when=1 \
        "$real" "$@"
    kill -9 $PPID
    ;;
fail) echo 'fatal: it does not want to' >&2; exit 128 ;;
esac
"#;

/// Two clones, each with a message that the other one lacks. The second clone has also pushed a
/// change of a file beside the state directory.
fn two() -> Remote {
    let remote = Remote::new(&["ada"], TURN, 2);
    extend_policy(&remote.sandbox, "ada", "[recovery]\nbase = \"1ms\"\nmax_delay = \"1ms\"\n");
    for at in 0..2 {
        remote.git(at, &["remote", "set-url", "origin", "../origin.git"]);
    }
    remote.agree();
    remote.enqueue(1, "ada", "from there");
    fs::write(remote.dirs[1].join("code"), "two\n").unwrap();
    remote.git(1, &["commit", "--quiet", "-m", "code", "code"]);
    remote.sync(1);
    remote.enqueue(0, "ada", "from here");
    let bin = remote.sandbox.root().join("bin");
    fs::create_dir(&bin).unwrap();
    write_program(&bin.join("git"), GIT);
    remote
}

fn copy(template: &Remote) -> Remote {
    let sandbox = template.sandbox.copy();
    let dirs = vec![sandbox.project(), sandbox.root().join("clone-1")];
    Remote { sandbox, dirs }
}

/// Command in the first clone whose git call number `at` suffers `harm`, a case of [`GIT`].
fn with_git<'r>(remote: &'r Remote, words: &[&str], at: usize, harm: &str) -> Cmd<'r> {
    let root = remote.sandbox.root();
    fs::write(root.join("count"), "0").unwrap();
    let path = format!("{}:{}", root.join("bin").display(), std::env::var("PATH").unwrap());
    let cmd = remote.sandbox.cmd(words.iter().copied());
    cmd.env("PATH", path).env("GIT_CALLS", root).env("GIT_AT", at.to_string()).env("GIT_HARM", harm)
}

/// Returns how many git commands a command starts.
fn calls_of(template: &Remote, words: &[&str]) -> usize {
    let remote = copy(template);
    with_git(&remote, words, 0, "").output().exits(0);
    fs::read_to_string(remote.sandbox.root().join("count")).unwrap().trim().parse().unwrap()
}

/// Returns the number of turns of each message.
fn turns(remote: &Remote) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for id in fs::read_to_string(remote.sandbox.root().join("turns")).unwrap_or_default().lines() {
        *found.entry(id.to_owned()).or_default() += 1;
    }
    found
}

/// Returns the lock files of killed git commands, which only a person may delete.
fn left_locks(remote: &Remote) -> Vec<PathBuf> {
    let dirs = remote.dirs.iter().map(|dir| dir.join(".git")).chain([remote.bare()]);
    let files = dirs.flat_map(walkdir::WalkDir::new).flatten().map(walkdir::DirEntry::into_path);
    files
        .filter(|path| path.extension().is_some_and(|end| end == "lock") && !path.ends_with("dormouse.lock"))
        .collect()
}

/// Uses both clones until all messages are processed, and asserts that they agree. `may_repeat`: a
/// turn that was interrupted may have run again.
fn go_on(remote: &Remote, what: &str, may_repeat: bool) {
    let must = |holds: bool, ran: &Ran| assert!(holds, "{what}: {ran}\n{}", remote.sandbox.root().display());
    // A `sync` that fails because of a leftover lock file of git names this file, with a hint.
    let locks = left_locks(remote);
    if !locks.is_empty() {
        let ran = remote.ran(0, &["--json", "--lock-timeout", "100ms", "sync"]);
        if ran.code() != 0 {
            let is_named = locks.iter().any(|lock| {
                lock.starts_with(&remote.dirs[0])
                    && ran.stdout.contains(lock.file_name().unwrap().to_str().unwrap())
            });
            must(is_named && [1, 5].contains(&ran.code()) && failure(&ran)["hint"].is_string(), &ran);
        }
        for lock in locks {
            let _ = fs::remove_file(lock);
        }
    }
    // The second clone may step the agent only after the first one has pushed its step. In half of
    // the cases only the second clone steps the agent.
    let ways: [(usize, &[&str]); 3] =
        [(0, &["tick", "ada", "-q"]), (0, &["sync", "-q"]), (1, &["tick", "ada", "--push", "-q"])];
    for (at, words) in ways.iter().skip(if what.len().is_multiple_of(2) { 0 } else { 2 }) {
        let ran = remote.ran(*at, words);
        must([0, 7].contains(&ran.code()), &ran);
    }
    eventually(what, || {
        for at in [0, 1] {
            let ran = remote.ran(at, &["tick", "ada", "--push", "--until-idle", "-q"]);
            must([0, 7].contains(&ran.code()), &ran);
        }
        (processed(&remote.agent(0, "ada")).len() == 2).then_some(())
    });
    remote.agree();
    assert_eq!(fs::read_to_string(remote.dirs[0].join("code")).unwrap(), "two\n", "{what}");
    for at in [0, 1] {
        let found = processed(&remote.agent(at, "ada"));
        assert!(found.len() == 2 && found.values().all(|count| *count == 1), "{what}: {found:?}");
    }
    let turns = turns(remote);
    assert!(turns.len() == 2 && (may_repeat || turns.values().all(|count| *count == 1)), "{what}: {turns:?}");
    let left = left_locks(remote);
    assert!(left.is_empty(), "{what}: {left:?}");
    let mut stale = names(&remote.dirs[0].join(".git"));
    stale.retain(|name| name.starts_with("dormouse-"));
    assert!(stale.is_empty(), "{what}: {stale:?}");
}

const COMMANDS: [&[&str]; 2] = [&["tick", "ada", "--push", "-q"], &["sync", "-q"]];

#[test]
fn a_command_that_syncs_can_be_killed_at_every_git_command() {
    let template = two();
    let mut cases = Vec::new();
    for words in COMMANDS {
        let count = calls_of(&template, words);
        println!("{words:?}: {count} calls of git");
        for at in 1..=count {
            cases.extend(["before", "after", "both", "fail"].map(|harm| (words, at, harm)));
        }
    }
    let cases = one_in(80, cases);
    let hit = AtomicUsize::new(0);
    each_in_parallel(&cases, |(words, at, harm)| {
        let remote = copy(&template);
        let ran = with_git(&remote, words, *at, harm).output();
        let call = fs::read_to_string(remote.sandbox.root().join("hit")).unwrap_or_default();
        hit.fetch_add(usize::from(!call.is_empty()), Ordering::Relaxed);
        let what = format!("{words:?}: {harm} git {at}: {call}");
        let is_well = match *harm {
            "fail" => ran.code() != 101 && (ran.code() == 0 || !ran.stderr.is_empty()),
            _ => ran.code() == 137 || call.is_empty(),
        };
        assert!(is_well, "{what}: {ran}");
        // A git command whose parent was killed needs a moment to end.
        std::thread::sleep(std::time::Duration::from_millis(50));
        go_on(&remote, &what, false);
    });
    println!("{} of {} cuts", hit.into_inner(), cases.len());
}

#[test]
fn a_command_that_syncs_can_be_killed_at_every_change_of_a_file() {
    needs!("strace");
    const CHANGES: [&str; 9] =
        ["rename", "unlink", "rmdir", "mkdir", "link", "linkat", "pwrite64", "write", "fdatasync"];
    let template = two();
    let mut cases = Vec::new();
    for words in COMMANDS {
        let points = strace::record(&copy(&template).sandbox, words, "").points();
        let found = points.into_iter().filter(|call: &Call| CHANGES.contains(&call.act()));
        cases.extend(found.map(|call| (words, call)));
    }
    println!("{} changes", cases.len());
    let cases = one_in(120, cases);
    each_in_parallel(&cases, |(words, call)| {
        let remote = copy(&template);
        strace::harm(&remote.sandbox, words, "", call, Harm::Kill);
        std::thread::sleep(std::time::Duration::from_millis(50));
        go_on(&remote, &format!("{words:?}: killed at {call}"), true);
    });
}
