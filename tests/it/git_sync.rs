//! `sync`: clones of one state directory and the bare repository between them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Sandbox, write_program};
use crate::remotes::{Remote, processed, queued};
use crate::setup::{Beside, edit_file, failure, names, raw_git, started, tree};

#[track_caller]
fn refused(remote: &Remote, at: usize, status: i32, words: &str) {
    let before =
        (tree(&remote.dirs[at].join(".dormouse/agents/ada/inbox")), remote.git(at, &["rev-parse", "HEAD"]));
    let ran = remote.ran(at, &["--json", "sync"]).exits(status);
    let failed = failure(&ran);
    assert!(failed["message"].as_str().unwrap().contains(words), "{words}: {ran}");
    assert!(failed["hint"].is_string(), "{ran}");
    let after =
        (tree(&remote.dirs[at].join(".dormouse/agents/ada/inbox")), remote.git(at, &["rev-parse", "HEAD"]));
    assert_eq!(before, after, "what was refused changes nothing");
}

#[test]
fn what_three_clones_say_and_do_comes_together() {
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
    // One of them steps, and all hear of it.
    remote.run(1, &["tick", "ada", "--until-idle", "-q"]);
    let late = remote.enqueue(2, "ada", "late");
    remote.agree();
    for at in 0..3 {
        assert_eq!(processed(&remote.agent(at, "ada")).len(), 3, "clone {at}");
        assert_eq!(queued(&remote.agent(at, "ada")), std::slice::from_ref(&late));
    }
    // A new agent is whole when it comes, and a clone that has nothing new makes no commit.
    remote.run(2, &["create", "eve", "--shell", "echo eve"]);
    remote.agree();
    assert_eq!(remote.run(0, &["get", "eve", "status"]).trim(), "booting");
    let before = remote.git(0, &["rev-parse", "HEAD"]);
    let nothing = remote.sync(0);
    assert_eq!((&nothing["received"], &nothing["sent"]), (&0.into(), &0.into()));
    assert_eq!(remote.git(0, &["rev-parse", "HEAD"]), before);
}

#[test]
fn where_two_clones_have_ticked_the_one_that_came_further_is_believed() {
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
    let ran = remote.ran(1, &["--json", "sync"]).exits(0);
    let found: Value = serde_json::from_str(ran.stdout.trim()).unwrap();
    assert!(
        found["quarantined"].as_array().unwrap().iter().any(|path| path == "agents/ada/state.json"),
        "{found}"
    );
    remote.sync(0);
    for at in 0..2 {
        assert!(remote.agent(at, "ada").join("quarantine/state.json").exists());
        assert_eq!(processed(&remote.agent(at, "ada"))[&both], 2, "both ends are on record");
        assert_eq!(processed(&remote.agent(at, "ada"))[&own], 1);
        assert!(remote.run(at, &["work", "list", "-a", "ada"]).contains("of the other clone"), "{item}");
        let ran = remote.ran(at, &["doctor", "--repair"]);
        assert!(ran.stdout.contains("ended_twice"), "{ran}");
    }
    remote.agree();
}

#[test]
fn what_one_clone_says_while_another_one_ticks_is_heard_once() {
    let remote = Remote::new(&["ada"], "echo done", 2);
    for round in 0..4 {
        let id = remote.enqueue(1, "ada", &format!("round {round}"));
        // It has a say in `state.json`, as if the clone had ticked.
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

/// Killed after it has applied what another clone has pushed, and before the branch is moved.
#[test]
fn what_a_killed_sync_has_applied_is_no_change_of_this_clone() {
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
            // Changed since by another command.
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
    assert_eq!(
        counts.map(|found| (found.len(), found.values().max().copied())),
        [(10, Some(1)), (3, Some(1))]
    );
}

/// As a git leaves it that was killed between the files of a checkout and its index.
#[test]
fn what_is_there_already_is_in_nobody_s_way() {
    let remote = Remote::new(&["ada"], "echo done", 2);
    fs::write(remote.dirs[1].join("code"), "two\n").unwrap();
    fs::write(remote.dirs[1].join("other"), "other\n").unwrap();
    remote.git(1, &["add", "other", "code"]);
    remote.git(1, &["commit", "--quiet", "-m", "code"]);
    remote.sync(1);
    let here = &remote.dirs[0];
    fs::write(here.join("code"), "two\n").unwrap();
    fs::write(here.join("other"), "mine\n").unwrap();
    refused(&remote, 0, 4, "uncommitted changes prevent the merge");
    fs::write(here.join("other"), "other\n").unwrap();
    // What a person has staged is theirs, whatever the file has by now.
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
fn what_is_not_committed_elsewhere_stays_as_it_is() {
    let remote = Remote::new(&["ada"], "echo done", 2);
    fs::write(remote.dirs[1].join("code"), "two\n").unwrap();
    fs::write(remote.dirs[1].join("other"), "other\n").unwrap();
    remote.git(1, &["add", "other", "code"]);
    remote.git(1, &["commit", "--quiet", "-m", "code"]);
    remote.sync(1);
    // A file that nobody else has changed, one that is staged, and one that git does not know.
    let here = &remote.dirs[0];
    fs::write(here.join("mine"), "mine\n").unwrap();
    fs::write(here.join("staged"), "staged\n").unwrap();
    remote.git(0, &["add", "staged"]);
    let id = remote.enqueue(0, "ada", "hello");
    remote.sync(0);
    assert_eq!(fs::read_to_string(here.join("code")).unwrap(), "two\n");
    assert_eq!(remote.git(0, &["status", "--short"]), "A  staged\n?? mine\n");
    assert!(!remote.committed(0).contains("staged"));
    // What is in the way of a change of another clone is not touched.
    fs::write(here.join("code"), "mine\n").unwrap();
    fs::write(remote.dirs[1].join("code"), "three\n").unwrap();
    remote.git(1, &["commit", "--quiet", "-am", "code"]);
    remote.sync(1);
    refused(&remote, 0, 4, "uncommitted changes prevent the merge");
    assert_eq!(fs::read_to_string(here.join("code")).unwrap(), "mine\n");
    // Two that have changed the same lines are a person's to merge.
    remote.git(0, &["commit", "--quiet", "-m", "mine", "code"]);
    refused(&remote, 0, 4, "code: it was changed here and at origin");
    remote.git(0, &["reset", "--quiet", "--hard", "HEAD~1"]);
    remote.sync(0);
    assert_eq!(fs::read_to_string(here.join("code")).unwrap(), "three\n");
    assert!(queued(&remote.agent(1, "ada")).contains(&id));
}

#[test]
fn where_nothing_can_be_exchanged_that_is_said() {
    let sandbox = started("true");
    let ran = sandbox.cmd(["--json", "sync"]).env("GIT_CEILING_DIRECTORIES", sandbox.root()).output();
    assert!(
        (ran.code(), failure(&ran)["message"].as_str().unwrap().contains("not a git repository"))
            == (1, true)
    );
    let remote = Remote::new(&["ada"], "echo done", 1);
    remote.git(0, &["remote", "add", "other", "/nowhere"]);
    let ran = remote.ran(0, &["--json", "sync", "third"]);
    assert!(failure(&ran)["message"].as_str().unwrap().contains("there is no remote `third`"), "{ran}");
    let ran = remote.ran(0, &["--json", "sync", "other"]).exits(1);
    assert!(failure(&ran)["message"].as_str().unwrap().contains("can't fetch from other"), "{ran}");
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

/// A hook of git that refuses whatever comes.
fn git_hook(git_dir: &Path, name: &str) -> std::path::PathBuf {
    let path = git_dir.join("hooks").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_program(&path, "#!/bin/sh\necho 'not today' >&2\nexit 1\n");
    path
}

/// What people set in their clones, and what kinds of clones there are.
#[test]
fn every_kind_of_clone_exchanges() {
    let hooks = |dir: &Path| {
        for name in ["pre-commit", "commit-msg", "pre-push", "post-commit", "reference-transaction"] {
            git_hook(&dir.join(".git"), name);
        }
    };
    type Prepare<'p> = &'p dyn Fn(&Path);
    /// Its name, how it is made, what is set in it, and what else is done to it.
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
    for (name, clone, settings, prepare) in cases {
        let dir = remote.sandbox.root().join(name);
        remote.git(0, &[clone, &[&url, dir.to_str().unwrap()]].concat());
        for words in settings {
            remote.git(0, &[&["-C", dir.to_str().unwrap()], *words].concat());
        }
        prepare(&dir);
        let before = raw_git(&remote.sandbox, &dir, &["diff", "--cached", "--name-status"]).stdout;
        for words in [&["enqueue", "ada", "hello"][..], &["tick", "ada", "--push", "-q"], &["sync", "-q"]] {
            remote.sandbox.cmd([&["-C", dir.to_str().unwrap()], words].concat()).exits(0);
        }
        let after = raw_git(&remote.sandbox, &dir, &["diff", "--cached", "--name-status"]).stdout;
        assert_eq!(after, before, "{name}");
        let short = raw_git(&remote.sandbox, &dir, &["status", "--short", ".dormouse"]).stdout;
        assert_eq!(short, "", "{name}");
    }
    remote.agree();
    let found = processed(&remote.agent(0, "ada"));
    assert!(found.len() == 8 && found.values().all(|count| *count == 1), "{found:?}");
    // A work tree beside the first has a branch of its own.
    let dir = remote.sandbox.root().join("beside");
    remote.git(0, &["worktree", "add", "--quiet", dir.to_str().unwrap(), "-b", "side"]);
    for words in [&["enqueue", "ada", "hello"][..], &["tick", "ada", "--push", "-q"], &["sync", "-q"]] {
        remote.sandbox.cmd([&["-C", dir.to_str().unwrap()], words].concat()).exits(0);
    }
    remote.git(0, &["rev-parse", "--verify", "refs/dormouse/origin/side"]);
    remote.agree();
}

/// Ids of a SHA-256 repository are longer, also that of no object and that of the empty tree.
#[test]
fn clones_with_longer_ids_exchange() {
    let sandbox = Sandbox::empty().with_real_clock();
    let settings = sandbox.home().join(".config/git");
    fs::create_dir_all(&settings).unwrap();
    fs::write(settings.join("config"), "[init]\n\tdefaultObjectFormat = sha256\n").unwrap();
    let remote = Remote::of(sandbox, &["ada"], "echo done", 2);
    let head = remote.git(0, &["rev-parse", "HEAD"]);
    // An older git does not know the setting.
    println!("ids of {} digits", head.trim().len());
    remote.enqueue(1, "ada", "hello");
    remote.sync(1);
    remote.run(0, &["tick", "ada", "--push", "-q"]);
    remote.enqueue(1, "ada", "from here");
    remote.agree();
    assert_eq!(processed(&remote.agent(1, "ada")).len(), 1);
    // Nothing is at the remote yet.
    remote.git(0, &["switch", "--quiet", "-c", "side"]);
    remote.enqueue(0, "ada", "again");
    remote.sync(0);
}

/// Nothing is taken, stepped or pushed where git would make other lines of the files.
#[test]
fn a_clone_that_changes_the_ends_of_lines_is_refused() {
    let remote = Remote::new(&["ada"], "echo done", 1);
    fs::write(remote.dirs[0].join(".dormouse/.gitattributes"), "*.jsonl merge=union\n").unwrap();
    remote.enqueue(0, "ada", "hello");
    remote.sync(0);
    remote.git(0, &["config", "core.autocrlf", "true"]);
    for words in [&["--json", "sync"][..], &["--json", "tick", "ada", "--push"]] {
        let ran = remote.ran(0, words).exits(1);
        assert!(failure(&ran)["message"].as_str().unwrap().contains("core.autocrlf is set"), "{ran}");
    }
    remote.run(0, &["doctor", "--repair"]);
    remote.run(0, &["tick", "ada", "--push", "-q"]);
    remote.git(0, &["config", "core.autocrlf", "false"]);
    remote.agree();
}

/// A remote that takes nothing, for whatever reason: that is said, and another one goes on.
#[test]
fn a_remote_that_refuses_is_told_from_one_that_is_ahead() {
    let remote = Remote::new(&["ada"], "echo done", 2);
    let hook = git_hook(&remote.bare(), "pre-receive");
    let id = remote.enqueue(0, "ada", "hello");
    let begun = Instant::now();
    for words in [&["--json", "sync"][..], &["--json", "tick", "ada", "--push"]] {
        let ran = remote.ran(0, words).exits(1);
        let message = failure(&ran)["message"].as_str().unwrap().to_owned();
        assert!(
            message.contains("can't push to origin, branch main") && message.contains("declined"),
            "{ran}"
        );
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "it does not try again and again");
    assert_eq!(queued(&remote.agent(0, "ada")), std::slice::from_ref(&id));
    fs::remove_file(hook).unwrap();
    remote.agree();
    // Somebody has set the branch back: what the remote has lost it gets again.
    remote.git(0, &["--git-dir", remote.bare().to_str().unwrap(), "update-ref", "refs/heads/main", "main~1"]);
    remote.run(0, &["tick", "ada", "--push", "-q"]);
    remote.agree();
    assert_eq!(processed(&remote.agent(1, "ada")), std::collections::BTreeMap::from([(id, 1)]));
}

#[test]
fn a_remote_that_does_not_answer_is_given_up() {
    let remote = Remote::new(&["ada"], "echo done", 1);
    let settings = remote.dirs[0].join(".dormouse/dormouse.toml");
    fs::write(&settings, format!("{}\n[git]\ntimeout = \"1s\"\n", fs::read_to_string(&settings).unwrap()))
        .unwrap();
    let stuck = remote.dirs[0].join("stuck");
    write_program(&stuck, "#!/bin/sh\nexec sleep 600\n");
    remote.git(0, &["remote", "set-url", "origin", "ssh://nobody@example.invalid/x"]);
    let begun = Instant::now();
    let ran = remote.cmd(0, &["--json", "sync"]).env("GIT_SSH_COMMAND", &stuck).exits(1);
    assert!(failure(&ran)["message"].as_str().unwrap().contains("git.timeout"), "{ran}");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn what_a_hostile_clone_has_pushed_is_not_believed() {
    type Spoil = fn(&std::path::Path);
    let cases: &[(Spoil, &str)] = &[
        (|ada| fs::write(ada.join("state.json"), "{\"schema\":").unwrap(), "state.json"),
        (|ada| fs::write(ada.join("work/x.json"), "nonsense").unwrap(), "work/x.json"),
        (|ada| symlink("/etc/passwd", ada.join("work/x.json")).unwrap(), "a link or another repository"),
        (
            |ada| {
                fs::remove_file(ada.join("state.json")).unwrap();
                fs::create_dir(ada.join("state.json")).unwrap();
                fs::write(ada.join("state.json/x"), "x").unwrap();
            },
            "state.json",
        ),
        (|ada| fs::write(ada.join("journal.jsonl"), "{}\n").unwrap(), "belongs to one machine"),
        (
            |ada| {
                fs::remove_dir_all(ada.join("ledger")).unwrap();
                fs::write(ada.join("ledger"), "x").unwrap();
            },
            "ledger",
        ),
    ];
    for (spoil, words) in cases {
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
    // The driver is there now.
    assert!(remote.git(0, &["config", "merge.dormouse.driver"]).contains("merge-driver"));
    remote.run(0, &["tick", "ada", "--until-idle", "-q"]);
    // Somebody commits the marks of a conflict: that goes nowhere.
    edit_file(&remote.agent(0, "ada").join("state.json"), |whole| {
        format!("<<<<<<< HEAD\n{whole}=======\n{whole}>>>>>>> other\n")
    });
    remote.git(0, &["commit", "--quiet", "-am", "merged"]);
    remote.ran(0, &["--json", "sync"]).fails(6, "damaged");
}

/// While a turn runs, and while producers say more, an exchange takes nothing away.
#[test]
fn a_turn_that_runs_meanwhile_goes_on() {
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
    assert_eq!(tick.end().code(), 0);
    fs::remove_file(remote.dirs[0].join("begun")).unwrap();
    remote.agree();
    said.sort();
    let mut found = queued(&remote.agent(1, "ada"));
    found.extend(processed(&remote.agent(1, "ada")).into_keys());
    found.sort();
    assert_eq!(found, said);
}

/// A state directory deep in a repository, with another one beside it.
#[test]
fn each_of_two_state_directories_of_one_repository_is_exchanged_for_itself() {
    let remote = Remote::new(&["ada"], "echo done", 1);
    let other = remote.dirs[0].join("deep/er/[x]");
    fs::create_dir_all(&other).unwrap();
    let words = |rest: &[&str]| {
        let dir = other.to_str().unwrap().to_owned();
        let ran = remote.sandbox.cmd([&["-C", dir.as_str()], rest].concat()).exits(0);
        ran.stdout
    };
    words(&["init", "-q", other.to_str().unwrap()]);
    words(&["create", "bob", "--shell", "echo bob"]);
    words(&["sync"]);
    assert!(remote.git(0, &["status", "--short", "deep"]).is_empty());
    let there = remote.sandbox.root().join("again");
    remote.git(0, &["clone", "--quiet", remote.bare().to_str().unwrap(), there.to_str().unwrap()]);
    assert!(there.join("deep/er/[x]/.dormouse/agents/bob/state.json").exists());
    remote.sandbox.cmd(["-C", there.join("deep/er/[x]").to_str().unwrap(), "enqueue", "bob", "hi"]).exits(0);
    remote.sandbox.cmd(["-C", there.join("deep/er/[x]").to_str().unwrap(), "sync"]).exits(0);
    assert_eq!(words(&["sync"]).trim(), "origin main: 1 file received, 0 files sent");
    assert_eq!(queued(&other.join(".dormouse/agents/bob")).len(), 1);
}

/// Three clones say and tick at once, each its own agent, with kills in the middle of their exchanges.
#[test]
fn clones_that_race_and_are_killed_lose_nothing() {
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
                        let mut child = remote
                            .cmd(at, &["sync", "-q"])
                            .into_command()
                            .stdout(std::process::Stdio::null())
                            .spawn()
                            .unwrap();
                        std::thread::sleep(Duration::from_millis(u64::from(40 + 57 * round)));
                        let _ = child.kill();
                        child.wait().unwrap();
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

/// What a git leaves that was killed, and asks a person to remove.
pub fn clear_locks(dir: &std::path::Path) {
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
fn an_exchange_that_others_always_overtake_ends_in_time() {
    let remote = Remote::new(&["ada"], "echo done", 1);
    // Another clone pushes between the look at the branch and each push of this one.
    let race = "#!/bin/sh
export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x
git update-ref \"$1\" \"$(git commit-tree -p \"$2\" -m other \"$2^{tree}\")\"
";
    write_program(&remote.bare().join("hooks/update"), race);
    remote.enqueue(0, "ada", "x");
    let ran = remote.ran(0, &["--json", "--lock-timeout", "0", "sync"]);
    let failed = failure(&ran);
    assert_eq!((ran.code(), &failed["kind"]), (5, &"contended".into()), "{ran}");
    assert!(failed["hint"].as_str().unwrap().contains("--lock-timeout"), "{ran}");
    // Nothing was lost.
    fs::remove_file(remote.bare().join("hooks/update")).unwrap();
    remote.sync(0);
    assert_eq!(queued(&remote.agent(0, "ada")).len(), 1);
}
