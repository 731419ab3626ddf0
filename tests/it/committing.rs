//! Tests that `tick --commit` refuses a step that git could not commit, and prints each step even
//! if the commit fails afterwards.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{Ran, Sandbox, write_program};
use crate::setup::{
    commit_all, edit_file, failure, field, git, git_in, hook, make_repository, names, objects, raw_git, say,
    started, started_in_git, tree, words,
};

/// Makes `ada` with a message, in a repository with one commit.
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

/// Asserts that a tick has failed with these words before it has changed anything.
#[track_caller]
fn refused(sandbox: &Sandbox, ran: &Ran, status: i32, words: &str) {
    assert_eq!(ran.code(), status, "{ran}");
    assert_eq!(objects(&ran.stdout).len(), 1, "the output has the error and no step: {ran}");
    let failed = failure(ran);
    assert!(failed["message"].as_str().unwrap().contains(words), "{ran}");
    assert!(failed["hint"].is_string(), "{ran}");
    assert_eq!(names(&sandbox.agent("ada").join("runs")).len(), 0, "the step has begun a run");
}

/// Asserts that a tick has printed its step, and after it why there is no commit.
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

/// Appends lines to the settings of the state directory.
fn settings(sandbox: &Sandbox, lines: &str) {
    edit_file(&sandbox.store().join("dormouse.toml"), |text| format!("{text}\n{lines}\n"));
}

fn run_in(sandbox: &Sandbox, dir: &Path, line: &str) {
    sandbox.run(["-C", dir.to_str().unwrap()].into_iter().chain(words(line)));
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
fn without_an_identity_for_git_no_step_begins() {
    let sandbox = committed("true");
    fs::write(sandbox.home().join(".gitconfig"), "[user]\nuseConfigOnly = true\n").unwrap();
    refused(&sandbox, &tick(&sandbox), 1, "dentity");
    // A commit needs an author besides the committer that is set here.
    let cmd = || {
        let cmd = sandbox.cmd(["tick", "ada", "--commit", "--json"]);
        cmd.env("GIT_COMMITTER_NAME", "c").env("GIT_COMMITTER_EMAIL", "c@example.org")
    };
    refused(&sandbox, &cmd().output(), 1, "dentity");
    cmd().env("GIT_AUTHOR_NAME", "a").env("GIT_AUTHOR_EMAIL", "a@example.org").exits(0);
    assert_eq!(git(&sandbox, &["log", "-1", "--format=%an %cn"]), "a c\n");
}

#[test]
fn in_the_middle_of_a_merge_rebase_or_cherry_pick_no_step_begins() {
    for command in ["merge", "rebase", "cherry-pick"] {
        let sandbox = started_in_git();
        let commit_code = |text: &str| {
            fs::write(sandbox.project().join("code"), text).unwrap();
            git(&sandbox, &["add", "code"]);
            git(&sandbox, &["commit", "--quiet", "-m", text]);
        };
        git(&sandbox, &["checkout", "--quiet", "-b", "theirs-saved"]);
        commit_code("one");
        git(&sandbox, &["checkout", "--quiet", "main"]);
        commit_code("two");
        assert_ne!(raw_git(&sandbox, &sandbox.project(), &[command, "theirs-saved"]).code(), 0, "{command}");
        say(&sandbox, "hello");
        refused(&sandbox, &tick(&sandbox), 1, &format!("in the middle of a {command}"));
        // Without `--commit` a tick does not ask git.
        sandbox.run(["tick", "ada"]);
    }
}

#[test]
fn if_git_ignores_or_distrusts_the_state_directory_no_step_begins() {
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
fn a_merge_conflict_in_the_state_directory_is_not_committed() {
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

/// Asserts that a tick waits for the lock of git's index, which exists for 400 ms.
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
fn a_tick_waits_for_the_index_before_and_after_the_turn() {
    let sandbox = committed("true");
    let lock = sandbox.project().join(".git/index.lock");
    fs::write(&lock, "").unwrap();
    refused(&sandbox, &tick(&sandbox), 5, "index.lock is locked by another git");
    steps_when_freed(&sandbox, &lock);
    let sandbox = committed("touch .git/index.lock");
    steps_when_freed(&sandbox, &sandbox.project().join(".git/index.lock"));
}

#[test]
fn a_step_is_printed_although_its_commit_fails() {
    let sandbox = committed("touch .git/index.lock");
    done_without_commit(&sandbox, &tick(&sandbox), "index.lock");
    fs::remove_file(sandbox.project().join(".git/index.lock")).unwrap();
    say(&sandbox, "again");
    fs::write(sandbox.agent("ada").join("agent.toml"), "[turn]\ncommand = [\"true\"]\n").unwrap();
    // The commit of this step includes the changes of the first step, whose own commit failed.
    assert_eq!(tick(&sandbox).code(), 0);
    assert_eq!(git(&sandbox, &["status", "--porcelain"]), "");
}

#[test]
fn a_commit_runs_no_hook_of_the_repository_unless_the_settings_allow_it() {
    let sandbox = committed("true");
    let mark = sandbox.home().join("ran");
    let hooks = sandbox.project().join(".git/hooks");
    for name in ["pre-commit", "commit-msg", "post-commit", "post-index-change", "reference-transaction"] {
        write_program(&hooks.join(name), &format!("#!/bin/sh\necho {name} >> '{}'\n", mark.display()));
    }
    let monitor = sandbox.home().join("monitor");
    write_program(&monitor, &format!("#!/bin/sh\necho monitor >> '{}'; exit 1\n", mark.display()));
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
fn a_commit_is_never_signed() {
    let sandbox = committed("true");
    git(&sandbox, &["config", "commit.gpgSign", "true"]);
    git(&sandbox, &["config", "gpg.program", "false"]);
    assert_eq!(tick(&sandbox).code(), 0);
    settings(&sandbox, "[git]\nsign = true");
    let refused = tick(&sandbox);
    assert_eq!(refused.code(), 6);
    assert!(refused.stderr.contains("unknown field `sign`"), "{}", refused.stderr);
}

#[test]
fn variables_of_git_in_the_environment_do_not_change_the_repository() {
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
    // A second work tree has its own index, so the lock of the first index must not stop its tick.
    let tree = sandbox.root().join("tree");
    git(&sandbox, &["worktree", "add", "--quiet", "--detach", tree.to_str().unwrap()]);
    fs::write(sandbox.project().join(".git/index.lock"), "").unwrap();
    run_in(&sandbox, &tree, "enqueue ada third");
    run_in(&sandbox, &tree, "tick ada --commit");
    assert_eq!(git_in(&sandbox, &tree, &["rev-list", "--count", "HEAD"]), "3\n");
}

#[test]
fn a_commit_has_only_the_state_directory_also_if_git_reads_its_path_as_a_pattern() {
    let sandbox = Sandbox::empty();
    make_repository(&sandbox);
    let odd = sandbox.project().join(":(top)[a]*");
    fs::create_dir(&odd).unwrap();
    fs::write(sandbox.project().join("mine"), "").unwrap();
    for line in ["init", "create ada -- true", "start ada", "enqueue ada x", "tick ada --commit"] {
        run_in(&sandbox, &odd, line);
    }
    assert_eq!(git(&sandbox, &["status", "--porcelain"]), "?? mine\n");
}

/// Installs a `git` that runs the real one, but sleeps if its command line has this word. Returns
/// the value of `PATH` with which the program is found.
fn sleeps_at(sandbox: &Sandbox, word: &str) -> String {
    let bin = sandbox.home().join("bin");
    let git = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|dir| dir.join("git"))
        .find(|path| path.exists())
        .unwrap();
    let script = format!(
        "#!/bin/sh\nfor word do [ \"$word\" != {word} ] || {{ sleep 600 & wait; }}; done\nexec '{}' \"$@\"\n",
        git.display()
    );
    fs::create_dir_all(&bin).unwrap();
    write_program(&bin.join("git"), &script);
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

#[test]
fn a_git_that_hangs_is_killed_after_git_timeout() {
    for (word, begins) in [("ls-files", false), ("commit", true)] {
        let sandbox = committed("true");
        settings(&sandbox, "[git]\ntimeout = \"500ms\"");
        let path = sleeps_at(&sandbox, word);
        let start = Instant::now();
        let ran = sandbox.cmd(["tick", "ada", "--commit", "--json"]).env("PATH", path).output();
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(ran.code(), 1, "{ran}");
        let message =
            format!("`git {word}` in {} took longer than git.timeout = 500ms", sandbox.store().display());
        assert_eq!(failure(&ran)["message"], message);
        assert_eq!(objects(&ran.stdout).len(), 1 + usize::from(begins), "{ran}");
        assert_eq!(names(&sandbox.agent("ada").join("runs")).len(), usize::from(begins));
        assert!(!sandbox.project().join(".git/index.lock").exists());
    }
}

#[test]
fn a_tick_without_work_does_not_run_git() {
    let sandbox = committed("true");
    assert_eq!(sandbox.cmd(["tick", "ada", "--commit", "--until-idle"]).output().code(), 0);
    settings(&sandbox, "[defaults.timeouts]\nhook = \"10m\"");
    let path = sleeps_at(&sandbox, "rev-parse");
    sandbox.cmd(["tick", "ada", "--commit", "-q"]).env("PATH", path).output();
    sandbox.cmd(["tick", "ada", "--commit", "--json"]).env("PATH", "/nowhere").exits(0);
}
