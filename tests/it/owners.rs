//! Tests that only the owner of a state directory changes it: commands of other users, and of root,
//! do not.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use serde_json::Value;

use crate::harness::Ran;
use crate::setup::{commands, edit_file, failure, objects, tree};
use crate::sharing::{OWNER, STRANGER, Shared, mode, unshared};

/// Makes agent `a` with one message, owned by [`OWNER`]. `None` if the test can't switch users.
fn owned() -> Option<Shared> {
    let owned = unshared(OWNER)?;
    owned.owner(&["init"]);
    owned.owner(&["create", "a", "--", "true"]);
    owned.owner(&["start", "a"]);
    owned.owner(&["enqueue", "a", "x"]);
    Some(owned)
}

/// Returns the paths of all that is below a directory, with owner and mode.
fn rights(dir: &Path) -> Vec<(String, u32, u32)> {
    let entries = walkdir::WalkDir::new(dir).sort_by_file_name().into_iter().map(Result::unwrap);
    let with_rights = entries.map(|entry| {
        let found = entry.metadata().unwrap();
        (entry.path().display().to_string(), found.uid(), found.mode() & 0o7777)
    });
    with_rights.collect()
}

/// Runs a script as this user. The script finds the path of the program in `$DORMOUSE`.
fn script(owned: &Shared, user: u32, text: &str) -> Ran {
    let program = owned.sandbox.root().join("dormouse");
    owned.run_as(user, Path::new("sh"), &["-ec", &format!("DORMOUSE={}; {text}", program.display())])
}

/// Asserts that an answer is a failure with this exit status and kind, and returns the failure.
#[track_caller]
fn fails(ran: &Ran, status: i32, kind: &str, case: &str) -> Value {
    let error = failure(ran);
    assert_eq!((ran.code(), error["kind"].as_str()), (status, Some(kind)), "{case}: {ran}");
    error
}

#[test]
fn root_changes_nothing_in_the_directory_of_another_user() {
    let Some(owned) = owned() else { return };
    let stream = owned.sandbox.root().join("stream.tar");
    let exported = script(&owned, OWNER, "umask 022; $DORMOUSE export a");
    fs::write(&stream, exported.stdout).unwrap();
    let before = (tree(&owned.state()), rights(&owned.state()));
    let stream = stream.to_str().unwrap();
    let writers = format!(
        "tick a, tick --all --until-idle, recover a, enqueue a y, enqueue a y --dedupe-key k, \
         enqueue a y --in 1h, ask a y, wake a, create b -- true, clone a b, rename a b, stop a, rm a, \
         work add y -a a, timer add -a a --in 1h y, \
         wait -a a --whole-agent --on external --resource r --reason y, task start -a a -- true, \
         trigger create -a a --mode wake_hint, import {stream} --as b, export a --output /dev/null, \
         service cron --user"
    );
    for args in commands(&writers) {
        let ran = owned.dormouse(0, &[&["--json", "-C", "."], &*args].concat());
        let error = fails(&ran, 4, "not_owner", args[0]);
        assert!(error["hint"].as_str().unwrap().contains(&format!("sudo -u '#{OWNER}'")), "{args:?}: {ran}");
        assert_eq!((tree(&owned.state()), rights(&owned.state())), before, "{args:?}");
    }
    // `doctor --repair` and `gc` of root change nothing either.
    for args in [&["doctor", "--repair"][..], &["gc"]] {
        owned.dormouse(0, &[&["-C", "."], args].concat());
        assert_eq!((tree(&owned.state()), rights(&owned.state())), before, "{args:?}");
    }
    owned.owner(&["tick", "a"]);
}

#[test]
fn root_reads_the_directory_of_another_user() {
    let Some(owned) = owned() else { return };
    owned.owner(&["tick", "a"]);
    owned.owner(&["enqueue", "a", "y"]);
    let before = (tree(&owned.state()), rights(&owned.state()));
    let readers = "list, get a, state a, explain a, next-wake --all, tick a --dry-run, queue list -a a, \
                   work list -a a, wait list -a a, timer list -a a, task list -a a, trigger list -a a, \
                   briefs a, events a, logs a, report a, usage a, metrics, doctor, doctor --quick, \
                   gc --dry-run, service cron";
    for args in commands(readers) {
        owned.dormouse(0, &[&["-C", "."], &*args].concat()).exits(0);
        assert_eq!((tree(&owned.state()), rights(&owned.state())), before, "{args:?}");
    }
    // Root gets a unit of the system, the owner gets a unit of the user.
    let path = |user| {
        objects(&owned.dormouse(user, &["-C", ".", "--json", "service", "systemd"]).stdout)[0]["path"].clone()
    };
    assert_eq!(path(0), "/etc/systemd/system/dormouse-project.service");
    assert_eq!(path(OWNER), "~/.config/systemd/user/dormouse-project.service");
    let ran = owned.dormouse(OWNER, &["-C", ".", "service", "cron", "--system"]);
    assert!(ran.stdout.starts_with("# /etc/cron.d/dormouse-project\n"), "{ran}");
    // Without `-C`, root does not even read the directory of another user.
    let ran = owned.dormouse(0, &["--json", "list"]).fails(4, "not_trusted");
    assert!(failure(&ran)["hint"].as_str().unwrap().contains("sudo -u"), "{ran}");
}

/// The owner of the project could not use a state directory of root.
#[test]
fn root_makes_no_state_directory_in_the_project_of_another_user() {
    let Some(project) = unshared(OWNER) else { return };
    for args in [&["--json", "init"][..], &["--json", "init", "new/below"]] {
        project.dormouse(0, args).fails(4, "not_owner");
        assert_eq!(fs::read_dir(project.sandbox.project()).unwrap().count(), 0);
    }
    project.owner(&["init"]);
}

#[test]
fn no_umask_takes_permissions_from_the_owner() {
    let Some(owned) = unshared(OWNER) else { return };
    for umask in ["777", "0", "277"] {
        let dir = format!("u{umask}");
        let text = format!(
            "mkdir {dir}; cd {dir}; umask {umask}; d=$DORMOUSE; $d init; $d create a -- true; $d start a; \
             $d enqueue a x; $d tick a --until-idle; $d enqueue a y --dedupe-key k; $d wake a; \
             $d trigger create -a a --mode wake_hint; $d tick a --until-idle; $d get a; $d doctor"
        );
        script(&owned, OWNER, &text).exits(0);
        let state = owned.sandbox.project().join(dir).join(".dormouse");
        for (path, uid, mode) in rights(&state) {
            let wanted = if Path::new(&path).is_dir() { 0o700 } else { 0o600 };
            assert_eq!((uid, mode & wanted), (OWNER, wanted), "{umask}: {path} has mode {mode:o}");
            assert_eq!(mode & 0o022, 0, "{umask}: {path} has mode {mode:o}");
        }
    }
}

#[test]
fn doctor_names_the_files_of_another_user_and_the_chown() {
    let Some(owned) = owned() else { return };
    let state = owned.state();
    let findings = || {
        let ran = owned.dormouse(OWNER, &["--json", "doctor"]);
        let mut found = objects(&ran.stdout);
        found.retain(|object| object["kind"] == "foreign_owner");
        let finding =
            |object: &Value| (object["message"].as_str().unwrap().to_owned(), object["warning"] == true);
        (ran.code(), found.iter().map(finding).collect::<Vec<_>>())
    };
    assert_eq!(findings(), (0, Vec::new()));
    // With an earlier version, a tick by root left a journal that only root can read.
    let journal = state.join("agents/a/journal.jsonl");
    chown(&journal, Some(0), Some(0)).unwrap();
    mode(&journal, 0o600);
    let (code, found) = findings();
    let [(message, is_warning)] = found.as_slice() else { panic!("{found:?}") };
    assert!(code == 6 && !is_warning, "{message}");
    let advice = format!("sudo chown -hR {OWNER} {}", state.join("agents/a").display());
    assert!(message.contains("journal.jsonl belongs to root") && message.contains(&advice), "{message}");
    // Another user's file that the state directory's owner can read is only a warning.
    mode(&journal, 0o644);
    let (_, found) = findings();
    assert!(matches!(found.as_slice(), [(_, true)]), "{found:?}");
    chown(&journal, Some(OWNER), Some(OWNER)).unwrap();
    mode(&journal, 0o600);
    // `doctor` also checks the owner of files outside of the agents.
    fs::create_dir_all(state.join("slots")).unwrap();
    mode(&state.join("slots"), 0o700);
    let (code, found) = findings();
    assert!(code == 6 && found.len() == 1 && found[0].0.contains("slots belongs to root"), "{found:?}");
}

/// A command in a removed working directory reports that, and works if `-C` names the whole path of
/// the state directory.
#[test]
fn a_command_reports_that_its_working_directory_was_removed() {
    let Some(owned) = owned() else { return };
    let from_nowhere = |args: &str| {
        script(&owned, OWNER, &format!("mkdir gone; cd gone; rmdir ../gone; exec $DORMOUSE {args}"))
    };
    for args in ["--json list", "--json -C . list", "--json init"] {
        let ran = from_nowhere(args);
        let error = fails(&ran, 1, "failed", args);
        assert!(ran.stderr.contains("working directory of this command was removed"), "{args}: {ran}");
        assert!(error["hint"].as_str().unwrap().contains("--dir"), "{args}: {ran}");
    }
    for args in ["list", "tick a", "get a"] {
        from_nowhere(&format!("-C {} {args}", owned.sandbox.project().display())).exits(0);
    }
}

/// A turn whose working directory does not exist fails, and `explain` names the path.
#[test]
fn tick_and_explain_name_a_missing_working_directory_of_a_turn() {
    let Some(owned) = owned() else { return };
    owned.set("[workspace]\npath = \"work\"\n");
    edit_file(&owned.state().join("agents/a/agent.toml"), |text| {
        text.replace("[turn]\n", "[turn]\nworkdir = \"work\"\n")
    });
    let ran = owned.dormouse(OWNER, &["tick", "a"]);
    let told = format!("{}{}", ran.stdout, ran.stderr);
    assert!(told.contains("work") && !told.contains("panicked"), "{ran}");
    let explained = owned.dormouse(OWNER, &["explain", "a"]);
    assert!(explained.stdout.contains("/work"), "{explained}");
}

/// The user's settings decide which directories are trusted. If they can't be read, none is, and
/// the error says why.
#[test]
fn settings_of_the_user_that_cannot_be_read_trust_nothing() {
    let Some(owned) = owned() else { return };
    let config = owned.sandbox.home().join("config");
    fs::create_dir_all(config.join("dormouse")).unwrap();
    let settings = config.join("dormouse/config.toml");
    let list = || {
        let text = format!("XDG_CONFIG_HOME={} exec $DORMOUSE --json list", config.display());
        script(&owned, STRANGER, &text)
    };
    for dir in [owned.sandbox.home(), config.clone(), config.join("dormouse")] {
        mode(&dir, 0o755);
    }
    mode(&owned.state(), 0o755);
    mode(&owned.state().join("dormouse.toml"), 0o644);
    let told = |what: &str| {
        let ran = list();
        let error = fails(&ran, 4, "not_trusted", what);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("config.toml") && message.contains(what), "{what}: {ran}");
    };
    fs::write(&settings, "[trust]\ndirectories = [\"*\"]\n").unwrap();
    mode(&settings, 0o600);
    told("permission denied");
    fs::remove_file(&settings).unwrap();
    fs::create_dir(&settings).unwrap();
    told("plain file");
    fs::remove_dir(&settings).unwrap();
    let made = std::process::Command::new("mkfifo").arg("-m").arg("666").arg(&settings).status().unwrap();
    assert!(made.success());
    told("plain file");
    fs::remove_file(&settings).unwrap();
    std::os::unix::fs::symlink("config.toml", &settings).unwrap();
    told("symbolic links");
    fs::remove_file(&settings).unwrap();
    fs::write(&settings, "[trust\n").unwrap();
    mode(&settings, 0o644);
    list().fails(6, "damaged");
}

/// A state directory that can't be opened is not reported as missing.
#[test]
fn a_state_directory_that_can_not_be_opened_is_not_reported_as_missing() {
    let Some(owned) = owned() else { return };
    let project = owned.sandbox.project();
    let inner = project.join("inner");
    fs::create_dir(&inner).unwrap();
    chown(&inner, Some(OWNER), Some(OWNER)).unwrap();
    let place = inner.join(".dormouse");
    let list = || script(&owned, OWNER, "cd inner && exec $DORMOUSE --json list");
    // A directory without a state directory uses that of a parent directory.
    assert_eq!(list().code(), 0);
    for (target, kind, code, word) in [
        (".dormouse", "io", 1, "symbolic links"),
        ("/nowhere/volume", "damaged", 6, "is not there"),
        (&*"x".repeat(300), "io", 1, "name too long"),
    ] {
        std::os::unix::fs::symlink(target, &place).unwrap();
        let ran = list();
        fails(&ran, code, kind, target);
        assert!(ran.stderr.contains(word) && !ran.stderr.contains("dormouse init"), "{target}: {ran}");
        fs::remove_file(&place).unwrap();
    }
    // A directory in the place of `dormouse.toml` is damage.
    fs::create_dir_all(place.join("dormouse.toml")).unwrap();
    chown(&place, Some(OWNER), Some(OWNER)).unwrap();
    chown(place.join("dormouse.toml"), Some(OWNER), Some(OWNER)).unwrap();
    mode(&place, 0o700);
    mode(&place.join("dormouse.toml"), 0o700);
    list().fails(6, "damaged");
}
