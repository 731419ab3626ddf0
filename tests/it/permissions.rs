//! Tests that a missing file and a file that may not be read lead to different errors, with
//! different hints.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{Ran, Sandbox, copy_of_dormouse};
use crate::missing_tools::leave_out;
use crate::setup::{commands, eventually, failure, mode, only_file, say, started, step, tree, words};
use crate::sharing::mode as set_mode;

/// Runs a command as a user who owns no file of the sandbox. Returns `None` unless the tests run as
/// root.
pub fn as_a_stranger(sandbox: &Sandbox, args: &[&str]) -> Option<Ran> {
    if !rustix::process::geteuid().is_root() {
        leave_out("needs root");
        return None;
    }
    // The other user may run programs only in a directory that everybody may enter.
    let program = sandbox.root().join("dormouse");
    copy_of_dormouse(&program);
    for open in [sandbox.root().to_owned(), program.clone()] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = std::process::Command::new(program);
    command.args(args).current_dir(sandbox.project()).env_clear().uid(65534).gid(65534);
    Some(command.output().unwrap().into())
}

/// Runs a command with `--json` in the project as another user. `None` unless the tests are root.
fn in_project(sandbox: &Sandbox, args: &[&str]) -> Option<Ran> {
    let project = sandbox.project();
    as_a_stranger(sandbox, &[&["--json", "-C", project.to_str().unwrap()], args].concat())
}

/// Lets every user read all that is below a directory.
fn open_all(dir: &Path) {
    for entry in walkdir::WalkDir::new(dir) {
        let entry = entry.unwrap();
        let is_dir = entry.file_type().is_dir();
        set_mode(entry.path(), if is_dir { 0o755 } else { 0o644 });
    }
}

/// Agent with a record of every kind, which every user may read.
struct Open {
    sandbox: Sandbox,
    message: String,
    done: String,
    run: String,
    task: String,
}

fn open_to_all() -> Open {
    let sandbox = started("echo done");
    let done = say(&sandbox, "x");
    let run = step(&sandbox)["run_id"].as_str().unwrap().to_owned();
    sandbox.run(["work", "add", "x", "-a", "ada", "--plan", "y"]);
    sandbox.run(words("wait -a ada --whole-agent --on external --resource r --reason x"));
    sandbox.run(["timer", "add", "-a", "ada", "--in", "1h", "x"]);
    let task = sandbox.run(["task", "start", "-a", "ada", "--", "true"]).trim_end().to_owned();
    let has_ended = || (sandbox.json(["task", "status", &task])["status"] == "completed").then_some(());
    eventually("the end of the task", has_ended);
    // The tick processes the result of the task, so that the inbox has one message.
    sandbox.run(["tick", "ada", "--until-idle"]);
    let message = say(&sandbox, "y");
    // The new work item leaves a line in the journal.
    sandbox.run(["work", "add", "z", "-a", "ada"]);
    open_all(&sandbox.store());
    Open { sandbox, message, done, run, task }
}

/// Exit status and kind of error of a command whose file is missing, or `None` for success.
type Missing = Option<(i32, &'static str)>;

#[test]
fn an_unreadable_record_is_not_reported_as_missing() {
    let open = open_to_all();
    let Open { sandbox, message, done, run, task } = &open;
    let agent = |path: &str| sandbox.agent("ada").join(path);
    let store = |path: &str| sandbox.store().join(path);
    let no_agent: Missing = Some((3, "no_agent"));
    let damaged: Missing = Some((6, "damaged"));
    let cases: Vec<(PathBuf, Vec<&str>, Missing)> = vec![
        (sandbox.store(), vec!["list"], Some((3, "no_state_directory"))),
        (store("dormouse.toml"), vec!["list"], Some((3, "no_state_directory"))),
        (store("agents"), vec!["list"], None),
        (store("agents"), vec!["get", "ada"], no_agent),
        (sandbox.agent("ada"), vec!["get", "ada"], no_agent),
        (sandbox.agent("ada"), vec!["tick", "ada"], no_agent),
        (agent("state.json"), vec!["get", "ada"], damaged),
        (agent("state.json"), vec!["list"], damaged),
        (agent("state.json"), vec!["tick", "ada", "--dry-run"], damaged),
        (agent("identity.json"), vec!["get", "ada"], damaged),
        (agent("agent.toml"), vec!["get", "ada"], damaged),
        (agent("agent.toml"), vec!["explain", "ada"], damaged),
        (agent("journal.jsonl"), vec!["get", "ada"], None),
        (agent("inbox"), vec!["get", "ada"], None),
        (agent("inbox"), vec!["queue", "list", "-a", "ada"], None),
        (only_file(sandbox, "inbox"), vec!["queue", "list", "-a", "ada"], None),
        (only_file(sandbox, "inbox"), vec!["queue", "show", message], Some((3, "no_record"))),
        (agent("work"), vec!["work", "list", "-a", "ada"], None),
        (agent("waits"), vec!["wait", "list", "-a", "ada"], None),
        (only_file(sandbox, "waits"), vec!["wait", "list", "-a", "ada"], None),
        (agent("timers"), vec!["get", "ada"], None),
        (only_file(sandbox, "timers"), vec!["timer", "list", "-a", "ada"], None),
        (agent("triggers"), vec!["get", "ada"], None),
        (agent("ledger"), vec!["events", "ada"], None),
        (only_file(sandbox, "ledger"), vec!["events", "ada", "--limit", "0"], None),
        (agent("archive"), vec!["queue", "show", done], Some((3, "no_record"))),
        (agent("archive"), vec!["run", "show", run], Some((3, "no_record"))),
        (agent("archive/2026-01/run.jsonl"), vec!["run", "show", run], Some((3, "no_record"))),
        (agent(&format!("runs/{run}/stdout.log")), vec!["run", "show", run, "--stdout"], None),
        (agent(&format!("tasks/{task}/stdout.log")), vec!["task", "output", task], None),
    ];
    let aside = sandbox.root().join("aside");
    for (path, args, missing) in &cases {
        let of = format!("{} for {args:?}", path.display());
        let is_made = !path.exists();
        if is_made {
            fs::write(path, "{}").unwrap();
        }
        let before = mode(path);
        set_mode(path, 0o700);
        let Some(closed) = in_project(sandbox, args) else { return };
        set_mode(path, before);
        let error = failure(&closed);
        let told = (closed.code(), error["kind"].as_str().unwrap());
        if path.parent().is_some_and(|dir| dir.ends_with("inbox")) && args.contains(&"list") {
            // A list reports a message that can't be read as damage: the next step quarantines it.
            assert_eq!(told, (6, "damaged"), "{of}: {closed}");
        } else {
            assert_eq!(told, (1, "not_allowed"), "{of}: {closed}");
            assert!(error["hint"].as_str().unwrap().contains("ls -ld"), "{of}: {closed}");
        }
        assert!(closed.stderr.contains("permission denied"), "{of}: {closed}");
        let named = PathBuf::from(error["path"].as_str().unwrap_or_else(|| panic!("{of}: {closed}")));
        assert!(named.starts_with(path), "{of}: another path is named: {closed}");
        fs::rename(path, &aside).unwrap();
        let gone = in_project(sandbox, args).unwrap();
        if is_made {
            fs::remove_file(&aside).unwrap();
        } else {
            fs::rename(&aside, path).unwrap();
        }
        let said = (gone.code() != 0).then(|| (gone.code(), failure(&gone)["kind"].clone()));
        assert_eq!(said, missing.map(|(status, kind)| (status, Value::from(kind))), "{of}: {gone}");
        assert!(!gone.stderr.contains("permission"), "{of}: {gone}");
    }
}

#[test]
fn a_command_without_write_permission_fails_and_changes_nothing() {
    let Open { sandbox, .. } = open_to_all();
    let before = tree(&sandbox.store());
    let writers = "enqueue ada x, enqueue ada x --dedupe-key k, wake ada, tick ada, stop ada, \
                   work add x -a ada, create bob -- true";
    for args in commands(writers) {
        let Some(ran) = in_project(&sandbox, &args) else { return };
        let error = failure(&ran);
        assert_eq!((ran.code(), error["kind"].as_str()), (4, Some("not_owner")), "{args:?}: {ran}");
        assert!(error["hint"].as_str().unwrap().contains("sudo -u root"), "{args:?}: {ran}");
        assert_eq!(tree(&sandbox.store()), before, "{args:?}");
    }
}

#[test]
fn an_unreadable_argument_file_is_not_reported_as_missing() {
    let Open { sandbox, .. } = open_to_all();
    let project = sandbox.project();
    for (file, mode) in [("closed", 0o600), ("dir", 0o700)] {
        match file {
            "dir" => fs::create_dir(project.join(file)).unwrap(),
            _ => fs::write(project.join(file), "x").unwrap(),
        }
        set_mode(&project.join(file), mode);
    }
    for (file, kind, hint) in
        [("closed", "not_allowed", true), ("dir/file", "not_allowed", true), ("gone", "io", false)]
    {
        let word = format!("@{file}");
        let list = format!(
            "enqueue ada {word}, enqueue ada --body-json {word}, work add x -a ada --plan {word}, \
             create bob --from {file}, task start -a ada --delegate kid --from {file} x, \
             create bob --secret-file dir/secret -- true"
        );
        for args in commands(&list) {
            if args.contains(&"--secret-file") && kind == "io" {
                continue;
            }
            let Some(ran) = in_project(&sandbox, &args) else { return };
            let error = failure(&ran);
            assert_eq!((ran.code(), error["kind"].as_str()), (1, Some(kind)), "{args:?}: {ran}");
            let named = error["path"].as_str().unwrap();
            assert!(named.contains(file) || named.contains("dir"), "{args:?}: {ran}");
            // An error about an argument `@FILE` always has a hint, which explains this notation.
            let hint = hint || args.contains(&word.as_str());
            assert_eq!(error["hint"].is_string(), hint, "{args:?}: {ran}");
        }
    }
}

/// The directory of the agents may be entered, but not listed.
#[test]
fn an_unknown_agent_is_reported_if_agents_may_not_be_listed() {
    let Open { sandbox, .. } = open_to_all();
    set_mode(&sandbox.store().join("agents"), 0o711);
    let Some(ran) = in_project(&sandbox, &["get", "nobody"]) else { return };
    let ran = ran.fails(3, "no_agent");
    assert_eq!(failure(&ran).get("hint"), None, "the hint names agents that may not be listed: {ran}");
    in_project(&sandbox, &["state", "ada"]).unwrap().exits(0);
}

#[test]
fn an_inaccessible_directory_is_not_reported_as_missing() {
    let Open { sandbox, .. } = open_to_all();
    let fails = |args: &[&str], kind: &str, status: i32| {
        as_a_stranger(&sandbox, args).map(|ran| ran.fails(status, kind))
    };
    set_mode(&sandbox.store(), 0o700);
    let list = "--json get ada, --json -C . get ada, --json -C .dormouse get ada, --json init";
    for args in commands(list) {
        if fails(&args, "not_allowed", 1).is_none() {
            return;
        }
    }
    let elsewhere = sandbox.home().join("closed/below");
    fs::create_dir_all(&elsewhere).unwrap();
    set_mode(&sandbox.home().join("closed"), 0o700);
    let elsewhere = elsewhere.to_str().unwrap();
    fails(&["--json", "-C", elsewhere, "list"], "not_allowed", 1);
    fails(&["--json", "-C", "/nowhere", "list"], "no_state_directory", 3);
}
