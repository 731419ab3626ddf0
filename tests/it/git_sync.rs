//! Tests `sync` of clones of one state directory with the bare repository between them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Cmd, Sandbox, write_program};
use crate::remotes::{Remote, processed, queued};
use crate::setup::{Beside, edit_file, failure, names, raw_git, started, tree};

/// Asserts that a command with `--json` fails with this status and a message with these words.
/// Returns the failure.
#[track_caller]
fn assert_fails(cmd: Cmd<'_>, status: i32, words: &str) -> Value {
    let ran = cmd.exits(status);
    let failed = failure(&ran);
    assert!(failed["message"].as_str().unwrap().contains(words), "{words}: {ran}");
    failed
}

/// Asserts that `sync` fails with a hint and changes neither the inbox nor the branch.
#[track_caller]
fn refused(remote: &Remote, at: usize, status: i32, words: &str) {
    let inbox = remote.agent(at, "ada").join("inbox");
    let state = || (tree(&inbox), remote.git(at, &["rev-parse", "HEAD"]));
    let before = state();
    let failed = assert_fails(remote.cmd(at, &["--json", "sync"]), status, words);
    assert!(failed["hint"].is_string(), "{failed}");
    assert_eq!(before, state(), "a refused sync has changed something");
}

#[test]
fn three_clones_share_messages_policies_and_steps() {
    let remote = Remote::new(&["ada", "bob"], "echo done", 3);
    let mut said = Vec::new();
    for at in 0..3 {
        said.push(remote.enqueue(at, "ada", &format!("from {at}")));
        remote.run(at, &["wake", "bob", "--reason", &format!("by {at}")]);
        remote.sync(at);
    }
    edit_file(&remote.agent(1, "bob").join("agent.toml"), |text| format!("{text}\n# of clone 1\n"));
    remote.agree();
    said.sort();
    for at in 0..3 {
        let mut found = queued(&remote.agent(at, "ada"));
        found.sort();
        assert_eq!(found, said, "clone {at}");
        assert!(
            fs::read_to_string(remote.agent(at, "bob").join("agent.toml")).unwrap().contains("of clone 1")
        );
    }
    // A step in one clone reaches all clones.
    remote.run(1, &["tick", "ada", "--until-idle", "-q"]);
    let late = remote.enqueue(2, "ada", "late");
    remote.agree();
    for at in 0..3 {
        assert_eq!(processed(&remote.agent(at, "ada")).len(), 3, "clone {at}");
        assert_eq!(queued(&remote.agent(at, "ada")), [&*late]);
    }
    // A new agent arrives complete, and a `sync` without changes makes no commit.
    remote.run(2, &["create", "eve", "--shell", "echo eve"]);
    remote.agree();
    assert_eq!(remote.run(0, &["get", "eve", "status"]).trim(), "booting");
    let before = remote.git(0, &["rev-parse", "HEAD"]);
    let nothing = remote.sync(0);
    assert_eq!((&nothing["received"], &nothing["sent"]), (&0.into(), &0.into()));
    assert_eq!(remote.git(0, &["rev-parse", "HEAD"]), before);
}

#[test]
fn the_clone_with_more_steps_wins_a_merge() {
    let remote = Remote::new(&["ada"], "echo done", 2);
    let both = remote.enqueue(0, "ada", "for both");
    remote.agree();
    remote.run(0, &["tick", "ada", "-q"]);
    remote.sync(0);
    let own = remote.enqueue(1, "ada", "said to the other clone");
    let item = remote.run(1, &["-q", "work", "add", "of the other clone", "-a", "ada"]);
    for _ in 0..3 {
        remote.run(1, &["tick", "ada", "-q"]);
    }
    let found = remote.sync(1);
    let quarantined = found["quarantined"].as_array().unwrap();
    assert!(quarantined.iter().any(|path| path == "agents/ada/state.json"), "{found}");
    remote.sync(0);
    for at in 0..2 {
        assert!(remote.agent(at, "ada").join("quarantine/state.json").exists());
        assert_eq!(processed(&remote.agent(at, "ada"))[&both], 2, "both ends are recorded");
        assert_eq!(processed(&remote.agent(at, "ada"))[&own], 1);
        assert!(remote.run(at, &["work", "list", "-a", "ada"]).contains("of the other clone"), "{item}");
        remote.ran(at, &["doctor", "--repair"]).shows("ended_twice");
    }
    remote.agree();
}

#[test]
fn a_message_from_one_clone_is_run_once_while_another_one_ticks() {
    let remote = Remote::new(&["ada"], "echo done", 2);
    for round in 0..4 {
        let id = remote.enqueue(1, "ada", &format!("round {round}"));
        // Both clones must change `state.json`: one by a message with a dedupe key, one by a tick.
        remote.run(1, &["-q", "enqueue", "ada", "keyed", "--dedupe-key", &format!("k{round}")]);
        remote.run(0, &["tick", "ada", "--until-idle", "-q"]);
        remote.sync(1);
        remote.sync(0);
        assert!(queued(&remote.agent(0, "ada")).contains(&id));
    }
    remote.run(0, &["tick", "ada", "--until-idle", "-q"]);
    let found = processed(&remote.agent(0, "ada"));
    assert_eq!((found.len(), found.values().max()), (8, Some(&1)), "{found:?}");
    remote.agree();
}

/// A `sync` was killed after it had written the files of another clone, and before it had moved the
/// branch. The next `sync` must not take these files for changes of its own clone.
#[test]
fn files_that_a_killed_sync_has_written_are_no_changes_of_its_clone() {
    let remote = Remote::new(&["ada", "bob"], "echo done", 2);
    let keyed = |round: usize| {
        remote.run(0, &["-q", "enqueue", "ada", "keyed", "--dedupe-key", &format!("k{round}")]);
    };
    for round in 0..3 {
        keyed(round);
        fs::write(remote.agent(0, "ada").join("inbox/by-hand.json"), r#"{"text": "by hand"}"#).unwrap();
        fs::write(remote.agent(0, "bob").join("inbox/by-hand.json"), r#"{"text": "by hand"}"#).unwrap();
        remote.sync(0);
        let before = remote.git(1, &["rev-parse", "HEAD"]);
        remote.sync(1);
        remote.git(1, &["reset", "--quiet", "--mixed", before.trim()]);
        if round == 1 {
            // Another command changes the files after the kill.
            remote.run(1, &["-q", "enqueue", "ada", "keyed", "--dedupe-key", "here"]);
        }
        keyed(round + 10);
        remote.run(0, &["tick", "--all", "--until-idle", "-q"]);
        remote.sync(0);
        let found = remote.sync(1);
        assert_eq!(found["quarantined"].as_array().map(Vec::len), Some((round == 1).into()), "{found}");
        remote.sync(0);
        remote.run(0, &["tick", "--all", "--until-idle", "-q"]);
    }
    remote.agree();
    let counts = ["ada", "bob"].map(|name| processed(&remote.agent(0, name)));
    let expected = [(10, Some(1)), (3, Some(1))];
    assert_eq!(counts.map(|found| (found.len(), found.values().max().copied())), expected);
}

/// Two clones, of which the second has pushed a change of `code` and a new file `other`.
fn with_pushed_files() -> Remote {
    let remote = Remote::new(&["ada"], "echo done", 2);
    fs::write(remote.dirs[1].join("code"), "two\n").unwrap();
    fs::write(remote.dirs[1].join("other"), "other\n").unwrap();
    remote.git(1, &["add", "other", "code"]);
    remote.git(1, &["commit", "--quiet", "-m", "code"]);
    remote.sync(1);
    remote
}

/// Files in the work tree that already have the content of the merge don't prevent it. A git that
/// is killed after it has written files, and before it writes its index, leaves such files.
#[test]
fn files_that_already_have_the_merged_content_prevent_no_merge() {
    let remote = with_pushed_files();
    let here = &remote.dirs[0];
    fs::write(here.join("code"), "two\n").unwrap();
    fs::write(here.join("other"), "mine\n").unwrap();
    refused(&remote, 0, 4, "uncommitted changes prevent the merge");
    fs::write(here.join("other"), "other\n").unwrap();
    // `sync` keeps a staged change of a person, even if the file itself has the merged content.
    fs::write(here.join("code"), "staged\n").unwrap();
    remote.git(0, &["add", "code"]);
    fs::write(here.join("code"), "two\n").unwrap();
    refused(&remote, 0, 4, "uncommitted changes prevent the merge");
    assert_eq!(remote.git(0, &["show", ":code"]), "staged\n");
    remote.git(0, &["reset", "--quiet"]);
    remote.sync(0);
    assert_eq!(remote.git(0, &["status", "--short"]), "");
}

#[test]
fn sync_keeps_uncommitted_files_beside_the_state_directory() {
    let remote = with_pushed_files();
    // One new file is unknown to git, and one is staged.
    let here = &remote.dirs[0];
    fs::write(here.join("mine"), "mine\n").unwrap();
    fs::write(here.join("staged"), "staged\n").unwrap();
    remote.git(0, &["add", "staged"]);
    let id = remote.enqueue(0, "ada", "hello");
    remote.sync(0);
    assert_eq!(fs::read_to_string(here.join("code")).unwrap(), "two\n");
    assert_eq!(remote.git(0, &["status", "--short"]), "A  staged\n?? mine\n");
    assert!(!remote.committed(0).contains("staged"));
    // An uncommitted change of a file that another clone has changed prevents the merge.
    fs::write(here.join("code"), "mine\n").unwrap();
    fs::write(remote.dirs[1].join("code"), "three\n").unwrap();
    remote.git(1, &["commit", "--quiet", "-am", "code"]);
    remote.sync(1);
    refused(&remote, 0, 4, "uncommitted changes prevent the merge");
    assert_eq!(fs::read_to_string(here.join("code")).unwrap(), "mine\n");
    // If both clones have committed changes of the same lines, a person must merge them.
    remote.git(0, &["commit", "--quiet", "-m", "mine", "code"]);
    refused(&remote, 0, 4, "code: it was changed here and at origin");
    remote.git(0, &["reset", "--quiet", "--hard", "HEAD~1"]);
    remote.sync(0);
    assert_eq!(fs::read_to_string(here.join("code")).unwrap(), "three\n");
    assert!(queued(&remote.agent(1, "ada")).contains(&id));
}

#[test]
fn sync_fails_without_a_repository_remote_or_branch() {
    let sandbox = started("true");
    let sync = sandbox.cmd(["--json", "sync"]).env("GIT_CEILING_DIRECTORIES", sandbox.root());
    assert_fails(sync, 1, "not a git repository");
    let remote = Remote::new(&["ada"], "echo done", 1);
    remote.git(0, &["remote", "add", "other", "/nowhere"]);
    assert_fails(remote.cmd(0, &["--json", "sync", "third"]), 1, "there is no remote `third`");
    assert_fails(remote.cmd(0, &["--json", "sync", "other"]), 1, "can't fetch from other");
    remote.git(0, &["switch", "--quiet", "--detach"]);
    refused(&remote, 0, 1, "HEAD is detached");
    remote.git(0, &["switch", "--quiet", "main"]);
    fs::write(remote.dirs[0].join(".git/MERGE_HEAD"), remote.git(0, &["rev-parse", "HEAD"])).unwrap();
    refused(&remote, 0, 1, "in the middle of a merge");
    fs::remove_file(remote.dirs[0].join(".git/MERGE_HEAD")).unwrap();
    remote.git(0, &["remote", "remove", "other"]);
    remote.git(0, &["remote", "remove", "origin"]);
    refused(&remote, 0, 1, "the repository has no remote");
}

/// Adds a git hook that always fails, and returns its path.
fn git_hook(git_dir: &Path, name: &str) -> std::path::PathBuf {
    let path = git_dir.join("hooks").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_program(&path, "#!/bin/sh\necho 'not today' >&2\nexit 1\n");
    path
}

/// `sync` and `tick --push` work in every kind of clone, with common settings of git.
#[test]
fn every_kind_of_clone_syncs() {
    let hooks = |dir: &Path| {
        for name in ["pre-commit", "commit-msg", "pre-push", "post-commit", "reference-transaction"] {
            git_hook(&dir.join(".git"), name);
        }
    };
    type Prepare<'p> = &'p dyn Fn(&Path);
    /// Name of a clone, the git command that makes it, its settings, and a function to prepare it.
    type Case<'c> = (&'c str, &'c [&'c str], &'c [&'c [&'c str]], Prepare<'c>);
    let nothing: Prepare<'_> = &|_| {};
    let cases: [Case<'_>; 8] = [
        ("shallow", &["clone", "--quiet", "--depth", "1"], &[], nothing),
        ("crlf", &["clone", "--quiet", "-c", "core.autocrlf=true"], &[], nothing),
        ("input", &["clone", "--quiet", "-c", "core.autocrlf=input"], &[], nothing),
        (
            "signed",
            &["clone", "--quiet"],
            &[&["config", "commit.gpgSign", "true"], &["config", "gpg.program", "/bin/false"]],
            nothing,
        ),
        ("hooked", &["clone", "--quiet"], &[], &hooks),
        ("alone", &["clone", "--quiet"], &[&["branch", "--unset-upstream"]], nothing),
        ("named", &["clone", "--quiet", "--origin", "elsewhere"], &[], nothing),
        ("staged", &["clone", "--quiet"], &[&["rm", "--quiet", "--cached", "code"]], nothing),
    ];
    let remote = Remote::new(&["ada"], "echo done", 1);
    let url = format!("file://{}", remote.bare().display());
    let use_clone = |dir: &Path| {
        for words in [&["enqueue", "ada", "hello"][..], &["tick", "ada", "--push", "-q"], &["sync", "-q"]] {
            remote.sandbox.cmd([&["-C", dir.to_str().unwrap()], words].concat()).exits(0);
        }
    };
    for (name, clone, settings, prepare) in cases {
        let dir = remote.sandbox.root().join(name);
        remote.git(0, &[clone, &[&url, dir.to_str().unwrap()]].concat());
        for words in settings {
            remote.git(0, &[&["-C", dir.to_str().unwrap()], *words].concat());
        }
        prepare(&dir);
        let before = raw_git(&remote.sandbox, &dir, &["diff", "--cached", "--name-status"]).stdout;
        use_clone(&dir);
        let after = raw_git(&remote.sandbox, &dir, &["diff", "--cached", "--name-status"]).stdout;
        assert_eq!(after, before, "{name}");
        let short = raw_git(&remote.sandbox, &dir, &["status", "--short", ".dormouse"]).stdout;
        assert_eq!(short, "", "{name}");
    }
    remote.agree();
    let found = processed(&remote.agent(0, "ada"));
    assert!(found.len() == 8 && found.values().all(|count| *count == 1), "{found:?}");
    // A second work tree of the first clone has its own branch.
    let dir = remote.sandbox.root().join("beside");
    remote.git(0, &["worktree", "add", "--quiet", dir.to_str().unwrap(), "-b", "side"]);
    use_clone(&dir);
    remote.git(0, &["rev-parse", "--verify", "refs/dormouse/origin/side"]);
    remote.agree();
}

/// Object ids of a SHA-256 repository are longer, including the null id and the id of the empty
/// tree.
#[test]
fn clones_with_longer_ids_sync() {
    let sandbox = Sandbox::empty().with_real_clock();
    let settings = sandbox.home().join(".config/git");
    fs::create_dir_all(&settings).unwrap();
    fs::write(settings.join("config"), "[init]\n\tdefaultObjectFormat = sha256\n").unwrap();
    let remote = Remote::of(sandbox, &["ada"], "echo done", 2);
    let head = remote.git(0, &["rev-parse", "HEAD"]);
    // An older git ignores `init.defaultObjectFormat`, so the length is not asserted.
    println!("ids of {} digits", head.trim().len());
    remote.enqueue(1, "ada", "hello");
    remote.sync(1);
    remote.run(0, &["tick", "ada", "--push", "-q"]);
    remote.enqueue(1, "ada", "from here");
    remote.agree();
    assert_eq!(processed(&remote.agent(1, "ada")).len(), 1);
    // `sync` must create a branch that the remote does not have yet.
    remote.git(0, &["switch", "--quiet", "-c", "side"]);
    remote.enqueue(0, "ada", "again");
    remote.sync(0);
}

/// `sync` and `tick --push` fail in a clone in which git converts line endings of the records.
#[test]
fn a_clone_that_changes_the_ends_of_lines_is_refused() {
    let remote = Remote::new(&["ada"], "echo done", 1);
    fs::write(remote.dirs[0].join(".dormouse/.gitattributes"), "*.jsonl merge=union\n").unwrap();
    remote.enqueue(0, "ada", "hello");
    remote.sync(0);
    remote.git(0, &["config", "core.autocrlf", "true"]);
    for words in [&["--json", "sync"][..], &["--json", "tick", "ada", "--push"]] {
        assert_fails(remote.cmd(0, words), 1, "core.autocrlf is set");
    }
    remote.run(0, &["doctor", "--repair"]);
    remote.run(0, &["tick", "ada", "--push", "-q"]);
    remote.git(0, &["config", "core.autocrlf", "false"]);
    remote.agree();
}

/// If the remote refuses a push, a command fails at once. If the remote is only ahead, the command
/// merges and pushes again.
#[test]
fn a_push_fails_if_the_remote_refuses_and_merges_if_the_remote_is_ahead() {
    let remote = Remote::new(&["ada"], "echo done", 2);
    let hook = git_hook(&remote.bare(), "pre-receive");
    let id = remote.enqueue(0, "ada", "hello");
    let begun = Instant::now();
    for words in [&["--json", "sync"][..], &["--json", "tick", "ada", "--push"]] {
        let failed = assert_fails(remote.cmd(0, words), 1, "can't push to origin, branch main");
        assert!(failed["message"].as_str().unwrap().contains("declined"), "{failed}");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "a refused push is repeated");
    assert_eq!(queued(&remote.agent(0, "ada")), [&*id]);
    fs::remove_file(hook).unwrap();
    remote.agree();
    // A person has set the branch of the remote back; the next push restores the lost commit.
    remote.git(0, &["--git-dir", remote.bare().to_str().unwrap(), "update-ref", "refs/heads/main", "main~1"]);
    remote.run(0, &["tick", "ada", "--push", "-q"]);
    remote.agree();
    assert_eq!(processed(&remote.agent(1, "ada")), std::collections::BTreeMap::from([(id, 1)]));
}

#[test]
fn sync_fails_after_git_timeout_if_the_remote_does_not_answer() {
    let remote = Remote::new(&["ada"], "echo done", 1);
    let settings = remote.dirs[0].join(".dormouse/dormouse.toml");
    edit_file(&settings, |text| format!("{text}\n[git]\ntimeout = \"1s\"\n"));
    let stuck = remote.dirs[0].join("stuck");
    write_program(&stuck, "#!/bin/sh\nexec sleep 600\n");
    remote.git(0, &["remote", "set-url", "origin", "ssh://nobody@example.invalid/x"]);
    let begun = Instant::now();
    assert_fails(remote.cmd(0, &["--json", "sync"]).env("GIT_SSH_COMMAND", &stuck), 1, "git.timeout");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn invalid_records_of_a_hostile_clone_are_refused() {
    type Spoil = fn(&Path);
    let cases: &[(&str, Spoil)] = &[
        ("state.json", |ada| fs::write(ada.join("state.json"), "{\"schema\":").unwrap()),
        ("work/x.json", |ada| fs::write(ada.join("work/x.json"), "nonsense").unwrap()),
        ("a link or another repository", |ada| symlink("/etc/passwd", ada.join("work/x.json")).unwrap()),
        ("state.json", |ada| {
            fs::remove_file(ada.join("state.json")).unwrap();
            fs::create_dir(ada.join("state.json")).unwrap();
            fs::write(ada.join("state.json/x"), "x").unwrap();
        }),
        ("belongs to one machine", |ada| fs::write(ada.join("journal.jsonl"), "{}\n").unwrap()),
        ("ledger", |ada| {
            fs::remove_dir_all(ada.join("ledger")).unwrap();
            fs::write(ada.join("ledger"), "x").unwrap();
        }),
    ];
    for (words, spoil) in cases {
        for is_ahead in [false, true] {
            let remote = Remote::new(&["ada"], "echo done", 2);
            fs::create_dir_all(remote.agent(1, "ada").join("work")).unwrap();
            spoil(&remote.agent(1, "ada"));
            remote.git(1, &["add", "--all", "--force", ".dormouse/agents/ada"]);
            remote.git(1, &["commit", "--quiet", "-m", "spoilt"]);
            remote.git(1, &["push", "--quiet"]);
            if is_ahead {
                remote.enqueue(0, "ada", "hello");
                remote.git(0, &["add", "--all"]);
                remote.git(0, &["commit", "--quiet", "-m", "said"]);
            }
            refused(&remote, 0, 6, words);
            assert!(!remote.dirs[0].join(".git/dormouse-check").exists());
            remote.run(0, &["tick", "ada", "-q"]);
        }
    }
}

#[test]
fn a_merge_by_hand_without_the_driver_is_found() {
    let remote = Remote::new(&["ada"], "echo done", 2);
    for at in 0..2 {
        remote.enqueue(at, "ada", "hello");
        remote.run(at, &["tick", "ada", "-q"]);
        remote.git(at, &["add", "--all"]);
        remote.git(at, &["commit", "--quiet", "-m", "ticked"]);
    }
    remote.git(1, &["push", "--quiet"]);
    assert_ne!(raw_git(&remote.sandbox, &remote.dirs[0], &["pull", "--quiet", "--no-rebase"]).code(), 0);
    refused(&remote, 0, 1, "in the middle of a merge");
    remote.git(0, &["merge", "--abort"]);
    remote.sync(0);
    // `sync` has configured the merge driver.
    assert!(remote.git(0, &["config", "merge.dormouse.driver"]).contains("merge-driver"));
    remote.run(0, &["tick", "ada", "--until-idle", "-q"]);
    // A person commits a file with conflict markers; `sync` does not push it.
    edit_file(&remote.agent(0, "ada").join("state.json"), |whole| {
        format!("<<<<<<< HEAD\n{whole}=======\n{whole}>>>>>>> other\n")
    });
    remote.git(0, &["commit", "--quiet", "-am", "merged"]);
    remote.ran(0, &["--json", "sync"]).fails(6, "damaged");
}

/// A `sync` during a turn, and while messages arrive in both clones, loses no message.
#[test]
fn a_turn_continues_during_a_sync() {
    let remote = Remote::new(&["ada"], "echo begun > \"$DORMOUSE_DIR/../begun\"; sleep 2; echo done", 2);
    let first = remote.enqueue(0, "ada", "one");
    let tick =
        Beside::start(remote.cmd(0, &["tick", "ada", "-q"])).after_it_made(remote.dirs[0].join("begun"));
    let mut said = vec![first];
    for number in 0..4 {
        said.push(remote.enqueue(1, "ada", &format!("there {number}")));
        said.push(remote.enqueue(0, "ada", &format!("here {number}")));
        remote.sync(1);
        remote.sync(0);
    }
    tick.end().exits(0);
    fs::remove_file(remote.dirs[0].join("begun")).unwrap();
    remote.agree();
    said.sort();
    let mut found = queued(&remote.agent(1, "ada"));
    found.extend(processed(&remote.agent(1, "ada")).into_keys());
    found.sort();
    assert_eq!(found, said);
}

/// `sync` of a state directory in a subdirectory of a repository leaves the other state directory
/// of the repository alone.
#[test]
fn two_state_directories_of_one_repository_are_synced_separately() {
    let remote = Remote::new(&["ada"], "echo done", 1);
    let other = remote.dirs[0].join("deep/er/[x]");
    fs::create_dir_all(&other).unwrap();
    let run = |dir: &Path, words: &[&str]| {
        remote.sandbox.cmd([&["-C", dir.to_str().unwrap()], words].concat()).exits(0).stdout
    };
    run(&other, &["init", "-q", other.to_str().unwrap()]);
    run(&other, &["create", "bob", "--shell", "echo bob"]);
    run(&other, &["sync"]);
    assert!(remote.git(0, &["status", "--short", "deep"]).is_empty());
    let clone = remote.sandbox.root().join("again");
    remote.git(0, &["clone", "--quiet", remote.bare().to_str().unwrap(), clone.to_str().unwrap()]);
    let there = clone.join("deep/er/[x]");
    assert!(there.join(".dormouse/agents/bob/state.json").exists());
    run(&there, &["enqueue", "bob", "hi"]);
    run(&there, &["sync"]);
    assert_eq!(run(&other, &["sync"]).trim(), "origin main: 1 file received, 0 files sent");
    assert_eq!(queued(&other.join(".dormouse/agents/bob")).len(), 1);
}

/// Three clones enqueue messages for all agents and tick one agent each, all at the same time,
/// while some of their `sync` commands are killed.
#[test]
fn racing_clones_whose_syncs_are_killed_lose_no_message() {
    const AGENTS: [&str; 3] = ["ada", "bob", "eve"];
    let remote = Remote::new(&AGENTS, "echo done", 3);
    let said = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (at, own) in AGENTS.into_iter().enumerate() {
            let (remote, said) = (&remote, &said);
            scope.spawn(move || {
                for round in 0..6_u32 {
                    for name in AGENTS {
                        let id = remote.enqueue(at, name, &format!("{at} {round}"));
                        said.lock().unwrap().push(id);
                    }
                    remote.run(at, &["tick", own, "-q"]);
                    if (round + at as u32).is_multiple_of(2) {
                        let pause = Duration::from_millis(u64::from(40 + 57 * round));
                        remote.kill_after(at, &["sync", "-q"], pause);
                        clear_locks(&remote.dirs[at]);
                    } else {
                        remote.sync(at);
                    }
                }
            });
        }
    });
    remote.agree();
    for (at, name) in AGENTS.iter().enumerate() {
        remote.run(at, &["tick", name, "--until-idle", "-q"]);
    }
    remote.agree();
    let mut found = Vec::new();
    for name in AGENTS {
        let processed = processed(&remote.agent(0, name));
        assert!(processed.values().all(|count| *count == 1), "{processed:?}");
        found.extend(processed.into_keys());
        assert!(names(&remote.agent(0, name).join("quarantine")).is_empty(), "{name}");
    }
    found.sort();
    let mut said = said.into_inner().unwrap();
    said.sort();
    assert_eq!(found, said);
}

/// Removes the locks of killed git commands, as git asks a person to do.
pub fn clear_locks(dir: &Path) {
    std::thread::sleep(Duration::from_millis(300));
    for entry in walkdir::WalkDir::new(dir.join(".git")).into_iter().flatten() {
        if entry.path().extension().is_some_and(|ending| ending == "lock")
            && entry.file_name() != "dormouse.lock"
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[test]
fn a_sync_that_another_clone_always_overtakes_ends_in_time() {
    let remote = Remote::new(&["ada"], "echo done", 1);
    // The hook changes the branch during each push, as if another clone had pushed just before.
    let race = "#!/bin/sh
export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x
git update-ref \"$1\" \"$(git commit-tree -p \"$2\" -m other \"$2^{tree}\")\"
";
    write_program(&remote.bare().join("hooks/update"), race);
    remote.enqueue(0, "ada", "x");
    let ran = remote.ran(0, &["--json", "--lock-timeout", "0", "sync"]).fails(5, "contended");
    assert!(failure(&ran)["hint"].as_str().unwrap().contains("--lock-timeout"), "{ran}");
    fs::remove_file(remote.bare().join("hooks/update")).unwrap();
    remote.sync(0);
    assert_eq!(queued(&remote.agent(0, "ada")).len(), 1);
}
