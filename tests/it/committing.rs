//! `tick --commit`: what it asks git before a step, and that it prints the step whatever git says afterwards.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{Ran, Sandbox, write_program};
use crate::setup::{
    commit_all, failure, field, git, hook, make_repository, names, objects, raw_git, say, started,
    started_in_git, tree,
};

/// `ada` with a message, in a repository with one commit.
fn committed(shell: &str) -> Sandbox {
    let sandbox = started(shell);
    make_repository(&sandbox);
    commit_all(&sandbox, "start");
    say(&sandbox, "hello");
    sandbox
}

fn tick(sandbox: &Sandbox) -> Ran {
    sandbox.cmd(["tick", "ada", "--commit", "--json", "--lock-timeout", "300ms"]).output()
}

/// The tick fails with these words before it has changed anything.
#[track_caller]
fn refused(sandbox: &Sandbox, ran: &Ran, status: i32, words: &str) {
    assert_eq!(ran.code(), status, "{ran}");
    assert_eq!(objects(&ran.stdout).len(), 1, "no step: {ran}");
    let failed = failure(ran);
    assert!(failed["message"].as_str().unwrap().contains(words), "{ran}");
    assert!(failed["hint"].is_string(), "{ran}");
    assert_eq!(names(&sandbox.agent("ada").join("runs")).len(), 0, "nothing was claimed");
}

/// The step is printed, and after it why it is not committed.
#[track_caller]
fn done_without_commit(sandbox: &Sandbox, ran: &Ran, words: &str) {
    assert_eq!(ran.code(), 1, "{ran}");
    let lines = objects(&ran.stdout);
    assert_eq!((lines.len(), &lines[0]["terminal"]), (2, &"completed".into()), "{ran}");
    let failed = failure(ran);
    assert!(failed["message"].as_str().unwrap().contains(words), "{ran}");
    assert_eq!(failed["hint"], "the step is done and recorded; only its git commit is missing");
    assert_eq!(field(sandbox, "counters.messages_processed"), "1");
}

fn settings(sandbox: &Sandbox, lines: &str) {
    let path = sandbox.store().join("dormouse.toml");
    fs::write(&path, format!("{}\n{lines}\n", fs::read_to_string(&path).unwrap())).unwrap();
}

#[test]
fn without_a_repository_no_step_begins() {
    let sandbox = started("true");
    say(&sandbox, "one");
    let cmd = sandbox.cmd(["tick", "ada", "--commit", "--json"]);
    let ran = cmd.env("GIT_CEILING_DIRECTORIES", sandbox.root()).output();
    refused(&sandbox, &ran, 1, "not a git repository");
}

#[test]
fn where_git_knows_nobody_to_commit_as_no_step_begins() {
    let sandbox = committed("true");
    fs::write(sandbox.home().join(".gitconfig"), "[user]\nuseConfigOnly = true\n").unwrap();
    refused(&sandbox, &tick(&sandbox), 1, "dentity");
    // The committer alone is not enough, and with both the step goes its way.
    let cmd = || {
        let cmd = sandbox.cmd(["tick", "ada", "--commit", "--json"]);
        cmd.env("GIT_COMMITTER_NAME", "c").env("GIT_COMMITTER_EMAIL", "c@example.org")
    };
    refused(&sandbox, &cmd().output(), 1, "dentity");
    cmd().env("GIT_AUTHOR_NAME", "a").env("GIT_AUTHOR_EMAIL", "a@example.org").exits(0);
    assert_eq!(git(&sandbox, &["log", "-1", "--format=%an %cn"]), "a c\n");
}

#[test]
fn in_the_middle_of_something_no_step_begins() {
    let cases: &[(&[&str], &str)] = &[
        (&["merge", "theirs-saved"], "a merge"),
        (&["rebase", "theirs-saved"], "a rebase"),
        (&["cherry-pick", "theirs-saved"], "a cherry-pick"),
    ];
    for (words, what) in cases {
        let sandbox = started_in_git();
        fs::write(sandbox.project().join("code"), "one").unwrap();
        git(&sandbox, &["checkout", "--quiet", "-b", "theirs-saved"]);
        git(&sandbox, &["add", "code"]);
        git(&sandbox, &["commit", "--quiet", "-m", "one"]);
        git(&sandbox, &["checkout", "--quiet", "main"]);
        fs::write(sandbox.project().join("code"), "two").unwrap();
        git(&sandbox, &["add", "code"]);
        git(&sandbox, &["commit", "--quiet", "-m", "two"]);
        assert_ne!(raw_git(&sandbox, &sandbox.project(), words).code(), 0, "{words:?}");
        say(&sandbox, "hello");
        refused(&sandbox, &tick(&sandbox), 1, &format!("in the middle of {what}"));
        // Without --commit nobody asks git.
        sandbox.run(["tick", "ada"]);
    }
}

#[test]
fn where_git_would_refuse_the_state_directory_no_step_begins() {
    let sandbox = committed("true");
    fs::write(sandbox.project().join(".gitignore"), ".dormouse\n").unwrap();
    refused(&sandbox, &tick(&sandbox), 1, "git ignores");
    fs::remove_file(sandbox.project().join(".gitignore")).unwrap();
    let cmd = sandbox.cmd(["tick", "ada", "--commit", "--json"]).env("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1");
    refused(&sandbox, &cmd.output(), 1, "dubious ownership");
    let index = sandbox.project().join(".git/index");
    let kept = fs::read(&index).unwrap();
    fs::write(&index, "no index").unwrap();
    refused(&sandbox, &tick(&sandbox), 1, "index");
    fs::write(&index, kept).unwrap();
    assert_eq!(tick(&sandbox).code(), 0);
}

#[test]
fn what_a_merge_left_in_the_state_directory_is_not_committed_with_its_markers() {
    let sandbox = committed("true");
    let policy = sandbox.agent("ada").join("agent.toml");
    let text = fs::read_to_string(&policy).unwrap();
    commit_all(&sandbox, "said");
    fs::write(&policy, format!("# stashed\n{text}")).unwrap();
    git(&sandbox, &["stash", "--quiet"]);
    fs::write(&policy, format!("# committed\n{text}")).unwrap();
    git(&sandbox, &["commit", "--quiet", "-am", "edited"]);
    assert_ne!(raw_git(&sandbox, &sandbox.project(), &["stash", "pop"]).code(), 0);
    refused(&sandbox, &tick(&sandbox), 6, "agent.toml: it has a merge conflict that is not resolved");
    fs::write(&policy, text).unwrap();
    refused(&sandbox, &tick(&sandbox), 6, "agent.toml: it has a merge conflict that is not resolved");
    git(&sandbox, &["add", ".dormouse"]);
    assert_eq!(tick(&sandbox).code(), 0);
}

/// A step beside another git, which lets go of the index a while after it has taken it.
fn steps_when_freed(sandbox: &Sandbox, lock: &Path) {
    thread::scope(|scope| {
        scope.spawn(|| {
            while !lock.exists() {
                thread::sleep(Duration::from_millis(10));
            }
            thread::sleep(Duration::from_millis(400));
            fs::remove_file(lock).unwrap();
        });
        let ran = sandbox.cmd(["tick", "ada", "--commit"]).output();
        assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""));
    });
    assert_eq!(git(sandbox, &["status", "--porcelain"]), "");
}

#[test]
fn a_step_waits_for_the_index_as_long_as_for_its_own_locks() {
    let sandbox = committed("true");
    let lock = sandbox.project().join(".git/index.lock");
    fs::write(&lock, "").unwrap();
    refused(&sandbox, &tick(&sandbox), 5, "index.lock is locked by another git");
    steps_when_freed(&sandbox, &lock);
}

#[test]
fn after_the_turn_the_index_is_waited_for_as_well() {
    let sandbox = committed("touch .git/index.lock");
    let lock = sandbox.project().join(".git/index.lock");
    steps_when_freed(&sandbox, &lock);
}

#[test]
fn a_step_is_printed_whatever_git_says_of_it() {
    let sandbox = committed("touch .git/index.lock");
    done_without_commit(&sandbox, &tick(&sandbox), "index.lock");
    fs::remove_file(sandbox.project().join(".git/index.lock")).unwrap();
    say(&sandbox, "again");
    fs::write(sandbox.agent("ada").join("agent.toml"), "[turn]\ncommand = [\"true\"]\n").unwrap();
    // The next step's commit has both.
    assert_eq!(tick(&sandbox).code(), 0);
    assert_eq!(git(&sandbox, &["status", "--porcelain"]), "");
}

#[test]
fn a_commit_runs_nothing_of_the_repository_unless_allowed() {
    let sandbox = committed("true");
    let mark = sandbox.home().join("ran");
    let hooks = sandbox.project().join(".git/hooks");
    for name in ["pre-commit", "commit-msg", "post-commit", "post-index-change", "reference-transaction"] {
        let program = hook(&sandbox.store(), name, &format!("echo {name} >> '{}'", mark.display()));
        fs::rename(program, hooks.join(name)).unwrap();
    }
    let monitor = hook(&sandbox.store(), "monitor", &format!("echo monitor >> '{}'; exit 1", mark.display()));
    let monitor = {
        let place = sandbox.home().join("monitor");
        fs::rename(monitor, &place).unwrap();
        place
    };
    git(&sandbox, &["config", "core.fsmonitor", monitor.to_str().unwrap()]);
    let _ = fs::remove_file(&mark);
    assert_eq!(tick(&sandbox).code(), 0);
    assert!(!mark.exists(), "{:?}", fs::read_to_string(&mark));
    settings(&sandbox, "[git]\nhooks = true");
    say(&sandbox, "again");
    assert_eq!(tick(&sandbox).code(), 0);
    let ran = fs::read_to_string(&mark).unwrap();
    assert!(["pre-commit", "post-commit", "monitor"].iter().all(|name| ran.contains(name)), "{ran}");
}

#[test]
fn a_commit_is_signed_only_where_the_settings_say_so() {
    let sandbox = committed("true");
    git(&sandbox, &["config", "commit.gpgSign", "true"]);
    git(&sandbox, &["config", "gpg.program", "false"]);
    assert_eq!(tick(&sandbox).code(), 0);
    let sandbox = committed("true");
    git(&sandbox, &["config", "commit.gpgSign", "true"]);
    git(&sandbox, &["config", "gpg.program", "false"]);
    settings(&sandbox, "[git]\nsign = true");
    done_without_commit(&sandbox, &tick(&sandbox), "gpg");
}

#[test]
fn the_repository_is_that_of_the_state_directory_whoever_calls() {
    let sandbox = committed("true");
    let other = sandbox.root().join("other");
    git(&sandbox, &["init", "--quiet", other.to_str().unwrap()]);
    let before = tree(&other);
    let cmd = sandbox.cmd(["tick", "ada", "--commit"]);
    let cmd = cmd.env("GIT_DIR", other.join(".git")).env("GIT_WORK_TREE", &other);
    let ran = cmd.env("GIT_INDEX_FILE", other.join(".git/index.other")).output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""));
    assert_eq!(tree(&other), before);
    assert_eq!(git(&sandbox, &["status", "--porcelain"]), "");
}

#[test]
fn a_hook_of_git_may_tick_once_the_index_is_free() {
    let sandbox = committed("true");
    let hooks = sandbox.project().join(".git/hooks");
    let script =
        "\"$D\" tick ada --commit --lock-timeout 200ms > \"$HOME/said\" 2>&1; echo $? >> \"$HOME/said\"";
    let program = hook(&sandbox.store(), "git", script);
    fs::create_dir_all(&hooks).unwrap();
    write_program(&hooks.join("pre-commit"), &fs::read_to_string(&program).unwrap());
    fs::write(sandbox.project().join("mine"), "").unwrap();
    git(&sandbox, &["add", "mine"]);
    git(&sandbox, &["commit", "--quiet", "-m", "mine", "mine"]);
    let said = fs::read_to_string(sandbox.home().join("said")).unwrap();
    assert!(said.contains("index.lock") && said.ends_with("5\n"), "{said}");
    fs::rename(hooks.join("pre-commit"), hooks.join("post-commit")).unwrap();
    fs::write(sandbox.project().join("mine"), "more").unwrap();
    git(&sandbox, &["commit", "--quiet", "-m", "more", "mine"]);
    let said = fs::read_to_string(sandbox.home().join("said")).unwrap();
    assert!(said.ends_with("\n0\n"), "{said}");
    let log = git(&sandbox, &["log", "-2", "--format=%s"]);
    assert_eq!(log, "ada: start_model_turn (operator_prompt)\nmore\n");
}

#[test]
fn a_commit_needs_no_branch_and_no_earlier_commit() {
    let sandbox = started("true");
    make_repository(&sandbox);
    say(&sandbox, "first");
    assert_eq!(tick(&sandbox).code(), 0);
    assert_eq!(git(&sandbox, &["log", "--format=%s"]), "ada: start_model_turn (operator_prompt)\n");
    git(&sandbox, &["checkout", "--quiet", "--detach"]);
    say(&sandbox, "second");
    assert_eq!(tick(&sandbox).code(), 0);
    assert_eq!(git(&sandbox, &["rev-list", "--count", "HEAD"]), "2\n");
    // A second work tree of the same repository has an index of its own.
    let tree = sandbox.root().join("tree");
    git(&sandbox, &["worktree", "add", "--quiet", "--detach", tree.to_str().unwrap()]);
    fs::write(sandbox.project().join(".git/index.lock"), "").unwrap();
    let words = |rest: &[&str]| {
        let mut words = vec!["-C".to_owned(), tree.to_str().unwrap().to_owned()];
        words.extend(rest.iter().map(|word| (*word).to_owned()));
        words
    };
    sandbox.run(words(&["enqueue", "ada", "third"]));
    sandbox.run(words(&["tick", "ada", "--commit"]));
    let there =
        sandbox.program("git", words(&["rev-list", "--count", "HEAD"]).into_iter().map(Into::into).collect());
    assert_eq!(there.output().stdout, "3\n");
}

#[test]
fn a_state_directory_whose_name_git_takes_for_a_pattern_is_committed_alone() {
    let sandbox = Sandbox::empty();
    make_repository(&sandbox);
    let odd = sandbox.project().join(":(top)[a]*");
    fs::create_dir(&odd).unwrap();
    fs::write(sandbox.project().join("mine"), "").unwrap();
    let words = |rest: &[&str]| {
        let mut words = vec!["-C".to_owned(), odd.to_str().unwrap().to_owned()];
        words.extend(rest.iter().map(|word| (*word).to_owned()));
        words
    };
    sandbox.run(words(&["init"]));
    sandbox.run(words(&["create", "ada", "--shell", "true"]));
    sandbox.run(words(&["start", "ada"]));
    sandbox.run(words(&["enqueue", "ada", "x"]));
    sandbox.run(words(&["tick", "ada", "--commit"]));
    let left = git(&sandbox, &["status", "--porcelain"]);
    assert_eq!(left, "?? mine\n");
}

/// A `git` that does what it should, and for this word of its line sleeps instead.
fn sleeps_at(sandbox: &Sandbox, word: &str) -> String {
    let bin = sandbox.home().join("bin");
    let git = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|dir| dir.join("git"))
        .find(|path| path.exists())
        .unwrap();
    let script = format!(
        "for word do [ \"$word\" != {word} ] || {{ sleep 600 & wait; }}; done\nexec '{}' \"$@\"",
        git.display()
    );
    let program = hook(&sandbox.store(), "git", &script);
    fs::create_dir_all(&bin).unwrap();
    fs::rename(program, bin.join("git")).unwrap();
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

#[test]
fn a_git_that_hangs_is_ended() {
    for (word, begins) in [("ls-files", false), ("commit", true)] {
        let sandbox = committed("true");
        settings(&sandbox, "[git]\ntimeout = \"500ms\"");
        let path = sleeps_at(&sandbox, word);
        let start = Instant::now();
        let ran = sandbox.cmd(["tick", "ada", "--commit", "--json"]).env("PATH", path).output();
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(ran.code(), 1, "{ran}");
        let failed = failure(&ran);
        let words =
            format!("`git {word}` in {} took longer than git.timeout = 500ms", sandbox.store().display());
        assert_eq!(failed["message"], words);
        assert_eq!(objects(&ran.stdout).len(), 1 + usize::from(begins), "{ran}");
        assert_eq!(names(&sandbox.agent("ada").join("runs")).len(), usize::from(begins));
        assert!(!Path::new(&sandbox.project().join(".git/index.lock")).exists());
    }
}

#[test]
fn an_idle_step_asks_git_nothing() {
    let sandbox = committed("true");
    assert_eq!(sandbox.cmd(["tick", "ada", "--commit", "--until-idle"]).output().code(), 0);
    let path = sleeps_at(&sandbox, "rev-parse");
    sandbox.cmd(["tick", "ada", "--commit", "-q"]).env("PATH", path).output();
    sandbox.cmd(["tick", "ada", "--commit", "--json"]).env("PATH", "/nowhere").exits(0);
}
