//! Tests commands in hostile state directories: no command writes outside of the directory, or
//! hangs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Sandbox, copy_of_dormouse, dormouse, each_in_parallel};
use crate::journal::{NO_MARK, line, write};
use crate::missing_tools::leave_out;
use crate::setup::{json_in, words};

/// Reading and writing commands that a script may run in a git clone.
const COMMANDS: &[&[&str]] = &[
    &["doctor"],
    &["doctor", "--repair"],
    &["list"],
    &["get", "ada"],
    &["explain", "ada"],
    &["events", "ada"],
    &["briefs", "ada"],
    &["queue", "list", "-a", "ada"],
    &["queue", "rejected", "-a", "ada"],
    &["run", "list", "-a", "ada"],
    &["task", "list", "-a", "ada", "--ended"],
    &["next-wake", "--all"],
    &["state", "ada"],
    &["enqueue", "ada", "hello"],
    &["enqueue", "ada", "hello", "--dedupe-key", "k"],
    &["enqueue", "ada", "hello", "--in", "1h"],
    &["wake", "ada", "--reason", "x"],
    &["work", "add", "-a", "ada", "a thing"],
    &["timer", "add", "-a", "ada", "--in", "1h", "later"],
    &["wait", "-a", "ada", "--on", "operator", "--reason", "x"],
    &["task", "start", "-a", "ada", "--", "true"],
    &["create", "bob", "--", "true"],
    &["start", "ada"],
    &["tick", "ada"],
    &["tick", "--all", "--jobs", "2"],
    &["recover", "ada"],
    &["preempt", "ada", "--reason", "x"],
    &["stop", "ada"],
];

/// Agent that has had a turn, and has records of several kinds.
fn lived() -> Sandbox {
    live(Sandbox::empty())
}

fn live(sandbox: Sandbox) -> Sandbox {
    sandbox.run(["init"]);
    sandbox.run(["create", "ada", "--", "true"]);
    sandbox.run(["start", "ada"]);
    sandbox.run(["enqueue", "ada", "one", "--dedupe-key", "one"]);
    sandbox.run(["work", "add", "-a", "ada", "a thing"]);
    sandbox.run(["timer", "add", "-a", "ada", "--in", "1d", "later"]);
    sandbox.run(["tick", "ada", "--until-idle"]);
    sandbox.run(["enqueue", "ada", "two"]);
    sandbox
}

/// Returns paths, modes and contents of all files below a directory, as text.
fn picture(dir: &Path) -> String {
    let mut lines = Vec::new();
    for entry in walkdir::WalkDir::new(dir).sort_by_file_name() {
        let entry = entry.unwrap();
        let found = entry.path().symlink_metadata().unwrap();
        let content = if found.is_file() { fs::read(entry.path()).unwrap() } else { Vec::new() };
        lines.push(format!("{} {:o} {content:?}", entry.path().display(), found.permissions().mode()));
    }
    lines.join("\n")
}

/// Creates the directory `treasure` outside of the state directory, which no command may change.
fn treasure(sandbox: &Sandbox) {
    let dir = sandbox.root().join("treasure");
    fs::create_dir_all(dir.join("below")).unwrap();
    for name in ["authorized_keys", "state.json", "agent.toml", "2-msg_0.json", "lock", "below/run.json"] {
        fs::write(dir.join(name), "precious\n").unwrap();
    }
}

/// Returns the revision of `ada`.
fn revision(sandbox: &Sandbox) -> u64 {
    json_in(sandbox.agent("ada").join("state.json"))["revision"].as_u64().unwrap()
}

/// Runs each command in a separate copy, and asserts that the files outside of the state directory
/// are the same afterwards.
fn nothing_leaves(sandbox: &Sandbox, what: &str, also: impl Fn(&str, i32)) {
    for args in COMMANDS {
        let copy = sandbox.copy();
        let treasure = copy.root().join("treasure");
        let before = picture(&treasure);
        let ran = copy.cmd(args.iter().copied()).output();
        assert_eq!(picture(&treasure), before, "{what}: {args:?}: {ran}");
        assert!(!ran.stderr.contains("panicked"), "{what}: {args:?}: {ran}");
        assert!([0, 1, 3, 4, 6, 7].contains(&ran.code()), "{what}: {args:?}: {ran}");
        also(args[0], ran.code());
    }
}

#[test]
fn no_command_follows_a_link_in_place_of_a_file() {
    let template = live(Sandbox::in_memory());
    treasure(&template);
    let places = words(
        "inbox tmp work waits timers tasks runs ledger archive cache triggers lock run.lock state.json \
         identity.json agent.toml journal.jsonl quarantine inbox/rejected tmp/apply cache/dedupe",
    );
    each_in_parallel(&places, |place| {
        let sandbox = template.copy();
        let path = sandbox.agent("ada").join(place);
        match path.symlink_metadata() {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&path).unwrap(),
            Ok(_) => fs::remove_file(&path).unwrap(),
            Err(_) => fs::create_dir_all(path.parent().unwrap()).unwrap(),
        }
        let up = "../".repeat(place.split('/').count() + 3);
        let is_file = place.contains(".json") || place.contains(".toml") || place.contains("lock");
        let target = if is_file { "treasure/state.json" } else { "treasure" };
        symlink(format!("{up}{target}"), &path).unwrap();
        assert!(path.exists(), "the link {place} is broken");
        nothing_leaves(&sandbox, place, |_, _| {});
    });
    for place in ["agents", "agents/ada"] {
        let sandbox = template.copy();
        let path = sandbox.store().join(place);
        fs::rename(&path, sandbox.root().join("treasure/moved")).unwrap();
        symlink(sandbox.root().join("treasure/moved"), &path).unwrap();
        let before = picture(&sandbox.root().join("treasure"));
        for args in COMMANDS {
            let ran = sandbox.cmd(args.iter().copied()).output();
            assert_eq!(picture(&sandbox.root().join("treasure")), before, "{place}: {args:?}: {ran}");
            // Some commands don't fail with 6, because they do not open the linked directory:
            // `create` makes another agent beside the link.
            let is_beside =
                args[0] == "create" && place != "agents" || ["list", "tick", "next-wake"].contains(&args[0]);
            assert!(ran.code() == 6 || is_beside || args[0] == "doctor", "{place}: {args:?}: {ran}");
        }
    }
}

const TO_STATE: &str = r#"{"path":"notes/authorized_keys","content":"ssh-rsa evil\n"}"#;

/// Returns a journal with one line, which no command has applied.
fn journal(writes: &str, appends: &str, deletes: &str, revision: u64) -> String {
    let entry = format!(
        r#"{{"schema":"dormouse/journal/1","base_revision":{revision},"writes":[{writes}],"appends":[{appends}],"deletes":[{deletes}],"number":1}}"#
    );
    line(&serde_json::from_str(&entry).unwrap(), NO_MARK, NO_MARK)
}

fn git(dir: &Path, words: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]).args(words);
    let ran = command.current_dir(dir).env("HOME", dir).output().unwrap();
    assert!(ran.status.success(), "{words:?}: {ran:?}");
}

#[test]
fn a_journal_that_git_tracks_is_quarantined() {
    let origin = lived();
    treasure(&origin);
    let ada = origin.agent("ada");
    symlink("../../../../treasure", ada.join("notes")).unwrap();
    write(&ada.join("journal.jsonl"), journal(TO_STATE, "", "", revision(&origin)).as_bytes());
    git(&origin.project(), &["init", "-q"]);
    git(&origin.project(), &["add", "--force", "."]);
    git(&origin.project(), &["commit", "-q", "--allow-empty", "-m", "all of it"]);
    nothing_leaves(&origin, "a tracked journal", |_, code| assert!([0, 1, 4, 6].contains(&code)));
    let clone = origin.copy();
    clone.cmd(["tick", "ada"]).exits(0).warns("is not applied, because git tracks it");
    assert!(clone.agent("ada").join("quarantine/journal.jsonl").exists());
    clone.run(["doctor"]);
    clone.run(["tick", "ada", "--until-idle"]);
}

#[test]
fn a_journal_of_another_machine_is_quarantined() {
    if fs::read("/etc/machine-id").is_ok_and(|id| !id.trim_ascii().is_empty()) {
        let sandbox = lived();
        let entry = serde_json::json!({ "schema": "dormouse/journal/1", "machine": "0123",
            "base_revision": revision(&sandbox),
            "writes": [{ "path": "state.json", "content": "{}" }], "appends": [], "deletes": [], "number": 1 });
        let text = line(&entry, NO_MARK, NO_MARK);
        write(&sandbox.agent("ada").join("journal.jsonl"), text.as_bytes());
        sandbox.run(["get", "ada"]);
        sandbox.cmd(["tick", "ada"]).exits(0).warns("written on another machine");
        sandbox.run(["doctor"]);
    } else {
        leave_out("this machine has no id");
    }
}

#[test]
fn a_journal_may_only_name_files_that_transactions_write() {
    let template = lived();
    treasure(&template);
    let revision = revision(&template);
    let id = "019b7ca99c2870008001a68215f28060";
    let paths = words(
        "agent.toml identity.json lock hooks/turn_started ../../dormouse.toml ../../.gitignore /etc/passwd . .. \
         inbox/../agent.toml inbox/x.json inbox/.gitkeep work/x.json tmp/x runs/x/run.json journal.jsonl \
         ledger/../agent.toml archive/x.jsonl cache/x inbox//x notes/x",
    );
    for path in paths.into_iter().chain([""]) {
        let put = format!(r#"{{"path":"{path}","content":"x"}}"#);
        let append = format!(r#"{{"path":"{path}","offset":0,"content":"x"}}"#);
        let delete = format!("\"{path}\"");
        for text in [
            journal(&put, "", "", revision),
            journal("", &append, "", revision),
            journal("", "", &delete, revision),
        ] {
            let sandbox = template.copy();
            write(&sandbox.agent("ada").join("journal.jsonl"), text.as_bytes());
            let before = picture(&sandbox.store());
            sandbox.cmd(["work", "add", "-a", "ada", "x"]).exits(6).warns("no transaction changes");
            let mut after = picture(&sandbox.store());
            // The lock file changes, because it names the process that has held the lock.
            let lock = |text: &str| text.lines().find(|line| line.contains("/ada/lock ")).unwrap().to_owned();
            after = after.replace(&lock(&after), &lock(&before));
            assert_eq!(after, before, "{path}");
            sandbox.cmd(["doctor", "--repair"]).output();
            sandbox.run(["doctor"]);
        }
    }
    for (put, append, delete) in [
        ("work/work_ID.plan.md", "ledger/2026-01.jsonl", "inbox/2-msg_ID.json"),
        ("inbox/2-msg_ID/2-msg_ID.json", "archive/2026-01/message.jsonl", "runs/run_ID/checkpoint-3"),
    ] {
        let sandbox = template.copy();
        let put = format!(r#"{{"path":"{put}","content":"x"}}"#).replace("ID", id);
        let append = format!(r#"{{"path":"{append}","offset":0,"content":""}}"#);
        let delete = format!("\"{delete}\"").replace("ID", id);
        let text = journal(&put, &append, &delete, revision);
        write(&sandbox.agent("ada").join("journal.jsonl"), text.as_bytes());
        let ran = sandbox.cmd(["stop", "ada"]).output();
        assert!(!ran.stderr.contains("no transaction changes"), "{ran}");
    }
}

/// No command waits for a pipe, a socket, a directory or a sparse file of 3 GiB in place of any
/// file, or reads it into memory.
#[test]
fn no_command_hangs_at_a_special_or_huge_file() {
    let template = live(Sandbox::in_memory());
    treasure(&template);
    let ada = template.agent("ada");
    let mut files: Vec<PathBuf> = walkdir::WalkDir::new(&ada)
        .into_iter()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().is_file())
        .map(|entry| entry.path().strip_prefix(&ada).unwrap().to_owned())
        .collect();
    files.push("tmp/apply".into());
    each_in_parallel(&files, |file| {
        for instead in ["pipe", "socket", "directory", "sparse"] {
            let sandbox = template.copy();
            let path = sandbox.agent("ada").join(file);
            let _ = fs::remove_file(&path);
            let mut _held = None;
            match instead {
                "pipe" | "socket" => {
                    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
                    let kind = if instead == "pipe" {
                        rustix::fs::FileType::Fifo
                    } else {
                        rustix::fs::FileType::Socket
                    };
                    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
                    // The pipe has a writer that never writes, so a read would wait for ever.
                    _held = fs::OpenOptions::new().read(true).write(true).open(&path).ok();
                }
                "directory" => fs::create_dir(&path).unwrap(),
                _ => fs::File::create(&path).unwrap().set_len(3 << 30).unwrap(),
            }
            for args in [
                &["doctor"][..],
                &["get", "ada"],
                &["enqueue", "ada", "x", "--dedupe-key", "k"],
                &["tick", "ada"],
                &["events", "ada"],
                &["stop", "ada"],
            ] {
                let mut line = vec!["--as=1073741824".to_owned(), dormouse().to_string_lossy().into_owned()];
                line.extend(args.iter().map(|word| (*word).to_owned()));
                let ran = sandbox.program("prlimit", line.into_iter().map(Into::into).collect()).output();
                let what = format!("{instead} for {}: {args:?}: {ran}", file.display());
                assert!([0, 1, 3, 4, 6, 7].contains(&ran.code()), "{what}");
                assert!(!ran.stderr.contains("panicked"), "{what}");
            }
        }
    });
}

/// Runs a command as [`USER`]. Returns `None` if the tests don't run as root.
fn as_user(sandbox: &Sandbox, args: &[&str]) -> Option<crate::harness::Ran> {
    if !rustix::process::geteuid().is_root() {
        leave_out("needs root");
        return None;
    }
    let program = sandbox.home().join("dormouse");
    if !program.exists() {
        copy_of_dormouse(&program);
        for dir in [sandbox.root(), &sandbox.home(), &sandbox.project()] {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
        }
        chown(sandbox.home(), Some(USER), Some(USER)).unwrap();
    }
    let mut line: Vec<String> =
        [format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".into()].into();
    line.push(program.to_string_lossy().into_owned());
    line.extend(args.iter().map(|word| (*word).to_owned()));
    Some(sandbox.program("setpriv", line.into_iter().map(Into::into).collect()).output())
}

const USER: u32 = 54321;

/// Sets the modes that git with umask 022 gives to the files of a checkout.
fn open_to_all(sandbox: &Sandbox) {
    for entry in walkdir::WalkDir::new(sandbox.store()) {
        let entry = entry.unwrap();
        let mode = if entry.file_type().is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(entry.path(), fs::Permissions::from_mode(mode)).unwrap();
    }
}

fn give(dir: &Path, user: u32) {
    for entry in walkdir::WalkDir::new(dir) {
        let path = entry.unwrap().into_path();
        std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
    }
}

#[test]
fn a_state_directory_that_was_only_found_must_belong_to_the_user() {
    let sandbox = lived();
    open_to_all(&sandbox);
    let Some(ran) = as_user(&sandbox, &["list"]) else { return };
    ran.exits(4).warns("belongs to user 0, not to you (54321)").warns("name it with --dir");
    as_user(&sandbox, &["list", "--json"]).unwrap().shows("\"kind\":\"not_trusted\"");
    give(&sandbox.store(), USER);
    as_user(&sandbox, &["list"]).unwrap().exits(0);
    // Root is refused, too, if the directory of another user is not named by `--dir`.
    sandbox.cmd(["list"]).exits(4);
    sandbox.run(["list", "--dir", "."]);
    for (path, mode) in
        [(sandbox.store(), 0o777), (sandbox.store().join("dormouse.toml"), 0o666), (sandbox.store(), 0o1777)]
    {
        let before = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        as_user(&sandbox, &["list"]).unwrap().exits(4).warns("others may write to");
        fs::set_permissions(&path, before).unwrap();
    }
    // A group with the number of the user counts as the user's private group.
    fs::set_permissions(sandbox.store(), fs::Permissions::from_mode(0o775)).unwrap();
    as_user(&sandbox, &["list"]).unwrap().exits(0);
    chown(sandbox.store(), None, Some(12345)).unwrap();
    as_user(&sandbox, &["list"]).unwrap().exits(4);
}

#[test]
fn the_settings_of_a_user_can_trust_other_directories() {
    let sandbox = lived();
    open_to_all(&sandbox);
    let Some(ran) = as_user(&sandbox, &["list"]) else { return };
    ran.exits(4);
    let settings = sandbox.home().join(".config/dormouse/config.toml");
    fs::create_dir_all(settings.parent().unwrap()).unwrap();
    let here = [sandbox.store(), sandbox.project()].map(|path| path.to_string_lossy().into_owned());
    for (listed, code) in
        [(here[0].as_str(), 0), (&here[1], 0), ("*", 0), ("/somewhere/else", 4), ("relative", 4)]
    {
        fs::write(&settings, format!("[trust]\ndirectories = [\"{listed}\"]\n")).unwrap();
        as_user(&sandbox, &["list"]).unwrap().exits(code);
    }
    fs::write(&settings, "[trust]\ndirectorys = []\n").unwrap();
    as_user(&sandbox, &["list"]).unwrap().exits(6).warns("config.toml:2");
}
