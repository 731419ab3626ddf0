//! A state directory belongs to one user. Whoever else calls a command changes nothing, root included.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use crate::setup::{edit_file, failure, objects, tree};
use crate::sharing::{OWNER, Shared, mode, unshared};

/// A state directory of the owner's with a started agent `a`, which has one message.
fn owned() -> Option<Shared> {
    let owned = unshared(OWNER)?;
    owned.owner(&["init"]);
    owned.owner(&["create", "a", "--", "true"]);
    owned.owner(&["start", "a"]);
    owned.owner(&["enqueue", "a", "x"]);
    Some(owned)
}

/// The names of everything beneath a directory, with owner and mode.
fn rights(dir: &Path) -> Vec<(String, u32, u32)> {
    let entries = walkdir::WalkDir::new(dir).sort_by_file_name().into_iter().map(|entry| {
        let entry = entry.unwrap();
        let found = entry.metadata().unwrap();
        (entry.path().display().to_string(), found.uid(), found.mode() & 0o7777)
    });
    entries.collect()
}

#[test]
fn root_changes_nothing_in_the_directory_of_another_user() {
    let Some(owned) = owned() else { return };
    let stream = owned.sandbox.root().join("stream.tar");
    let exported = owned.run_as(
        OWNER,
        Path::new("sh"),
        &["-c", &format!("umask 022; {}/dormouse export a", owned.sandbox.root().display())],
    );
    fs::write(&stream, exported.stdout).unwrap();
    let before = (tree(&owned.state()), rights(&owned.state()));
    let stream = stream.to_str().unwrap();
    for args in [
        &["tick", "a"][..],
        &["tick", "--all", "--until-idle"],
        &["recover", "a"],
        &["enqueue", "a", "y"],
        &["enqueue", "a", "y", "--dedupe-key", "k"],
        &["enqueue", "a", "y", "--in", "1h"],
        &["ask", "a", "y"],
        &["wake", "a"],
        &["create", "b", "--", "true"],
        &["clone", "a", "b"],
        &["rename", "a", "b"],
        &["stop", "a"],
        &["rm", "a"],
        &["work", "add", "y", "-a", "a"],
        &["timer", "add", "-a", "a", "--in", "1h", "y"],
        &["wait", "-a", "a", "--whole-agent", "--on", "external", "--resource", "r", "--reason", "y"],
        &["task", "start", "-a", "a", "--", "true"],
        &["trigger", "create", "-a", "a", "--mode", "wake_hint"],
        &["import", stream, "--as", "b"],
        &["export", "a", "--output", "/dev/null"],
        &["service", "cron", "--user"],
    ] {
        let line: Vec<&str> = ["--json", "-C", "."].into_iter().chain(args.iter().copied()).collect();
        let ran = owned.dormouse(0, &line);
        let error = failure(&ran);
        assert_eq!((ran.code(), error["kind"].as_str()), (4, Some("not_owner")), "{args:?}: {ran}");
        assert!(error["hint"].as_str().unwrap().contains(&format!("sudo -u '#{OWNER}'")), "{args:?}: {ran}");
        assert_eq!((tree(&owned.state()), rights(&owned.state())), before, "{args:?}");
    }
    // `doctor` looks, and mends nothing; what others only remove at leisure stays too.
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
    for args in [
        &["list"][..],
        &["get", "a"],
        &["state", "a"],
        &["explain", "a"],
        &["next-wake", "--all"],
        &["tick", "a", "--dry-run"],
        &["queue", "list", "-a", "a"],
        &["work", "list", "-a", "a"],
        &["wait", "list", "-a", "a"],
        &["timer", "list", "-a", "a"],
        &["task", "list", "-a", "a"],
        &["trigger", "list", "-a", "a"],
        &["briefs", "a"],
        &["events", "a"],
        &["logs", "a"],
        &["report", "a"],
        &["usage", "a"],
        &["metrics"],
        &["doctor"],
        &["doctor", "--quick"],
        &["gc", "--dry-run"],
        &["service", "cron"],
    ] {
        owned.dormouse(0, &[&["-C", "."], args].concat()).exits(0);
        assert_eq!((tree(&owned.state()), rights(&owned.state())), before, "{args:?}");
    }
    // The service manager is root's, unless the owner asks.
    let path = |user| {
        objects(&owned.dormouse(user, &["-C", ".", "--json", "service", "systemd"]).stdout)[0]["path"].clone()
    };
    assert_eq!(path(0), "/etc/systemd/system/dormouse-project.service");
    assert_eq!(path(OWNER), "~/.config/systemd/user/dormouse-project.service");
    let ran = owned.dormouse(OWNER, &["-C", ".", "service", "cron", "--system"]);
    assert!(ran.stdout.starts_with("# /etc/cron.d/dormouse-project\n"), "{ran}");
    // A directory that was only found is not even read; the hint leads to no change either.
    let ran = owned.dormouse(0, &["--json", "list"]).fails(4, "not_trusted");
    assert!(failure(&ran)["hint"].as_str().unwrap().contains("sudo -u"), "{ran}");
}

/// Its owner would find it there, and could not use it.
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
fn the_umask_takes_nothing_from_the_owner() {
    let Some(owned) = unshared(OWNER) else { return };
    let program = owned.sandbox.root().join("dormouse");
    for umask in ["777", "0", "277"] {
        let dir = format!("u{umask}");
        owned.run_as(
            OWNER,
            Path::new("sh"),
            &[
                "-ec",
                &format!(
                    "mkdir {dir}; cd {dir}; umask {umask}; d={}; $d init; $d create a -- true; $d start a; \
                     $d enqueue a x; $d tick a --until-idle; $d enqueue a y --dedupe-key k; $d wake a; \
                     $d trigger create -a a --mode wake_hint; $d tick a --until-idle; $d get a; $d doctor",
                    program.display()
                ),
            ],
        ).exits(0);
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
        let found: Vec<(String, bool)> = objects(&ran.stdout)
            .into_iter()
            .filter(|object| object["kind"] == "foreign_owner")
            .map(|object| (object["message"].as_str().unwrap().to_owned(), object["warning"] == true))
            .collect();
        (ran.code(), found)
    };
    assert_eq!(findings(), (0, Vec::new()));
    // What a root's tick of an earlier version left.
    chown(state.join("agents/a/journal.jsonl"), Some(0), Some(0)).unwrap();
    mode(&state.join("agents/a/journal.jsonl"), 0o600);
    let (code, found) = findings();
    let [(message, is_warning)] = found.as_slice() else { panic!("{found:?}") };
    assert!(code == 6 && !is_warning, "{message}");
    let advice = format!("sudo chown -hR {OWNER} {}", state.join("agents/a").display());
    assert!(message.contains("journal.jsonl belongs to root") && message.contains(&advice), "{message}");
    // It can be read, so it is only worth knowing.
    mode(&state.join("agents/a/journal.jsonl"), 0o644);
    let (_, found) = findings();
    assert!(matches!(found.as_slice(), [(_, true)]), "{found:?}");
    chown(state.join("agents/a/journal.jsonl"), Some(OWNER), Some(OWNER)).unwrap();
    mode(&state.join("agents/a/journal.jsonl"), 0o600);
    // The state directory's own files count as well.
    fs::create_dir_all(state.join("slots")).unwrap();
    mode(&state.join("slots"), 0o700);
    let (code, found) = findings();
    assert!(code == 6 && found.len() == 1 && found[0].0.contains("slots belongs to root"), "{found:?}");
}

/// A directory that is gone is named as such; the state directory is named by its whole path, and is used.
#[test]
fn a_working_directory_that_was_removed_is_told_as_that() {
    let Some(owned) = owned() else { return };
    let program = owned.sandbox.root().join("dormouse");
    let from_nowhere = |args: &str| {
        let script = format!("mkdir gone; cd gone; rmdir ../gone; exec {} {args}", program.display());
        owned.run_as(OWNER, Path::new("sh"), &["-c", &script])
    };
    for args in ["--json list", "--json -C . list", "--json init"] {
        let ran = from_nowhere(args);
        let error = failure(&ran);
        assert_eq!((ran.code(), error["kind"].as_str()), (1, Some("failed")), "{args}: {ran}");
        assert!(ran.stderr.contains("working directory of this command was removed"), "{args}: {ran}");
        assert!(error["hint"].as_str().unwrap().contains("--dir"), "{args}: {ran}");
    }
    for args in ["list", "tick a", "get a"] {
        from_nowhere(&format!("-C {} {args}", owned.sandbox.project().display())).exits(0);
    }
}

/// A turn whose directory is gone fails with its path, and the message is not lost.
#[test]
fn a_working_directory_of_a_turn_that_was_removed_is_named() {
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

/// The user's own settings decide what is trusted. Where they can't be read nothing is, and the reason is told.
#[test]
fn settings_of_the_user_that_cannot_be_read_trust_nothing() {
    let Some(owned) = owned() else { return };
    let config = owned.sandbox.home().join("config");
    fs::create_dir_all(config.join("dormouse")).unwrap();
    let settings = config.join("dormouse/config.toml");
    let list = || {
        let script = format!(
            "XDG_CONFIG_HOME={} exec {}/dormouse --json list",
            config.display(),
            owned.sandbox.root().display()
        );
        owned.run_as(crate::sharing::STRANGER, Path::new("sh"), &["-c", &script])
    };
    for dir in [owned.sandbox.home(), config.clone(), config.join("dormouse")] {
        mode(&dir, 0o755);
    }
    mode(&owned.state(), 0o755);
    mode(&owned.state().join("dormouse.toml"), 0o644);
    let told = |what: &str| {
        let ran = list();
        let error = failure(&ran);
        assert_eq!((ran.code(), error["kind"].as_str()), (4, Some("not_trusted")), "{what}: {ran}");
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

/// Only a look that finds nothing says that there is no state directory.
#[test]
fn a_state_directory_that_cannot_be_looked_at_is_not_told_as_missing() {
    let Some(owned) = owned() else { return };
    let project = owned.sandbox.project();
    let inner = project.join("inner");
    fs::create_dir(&inner).unwrap();
    chown(&inner, Some(OWNER), Some(OWNER)).unwrap();
    let place = inner.join(".dormouse");
    let list = || {
        let script = format!("cd inner && exec {}/dormouse --json list", owned.sandbox.root().display());
        owned.run_as(OWNER, Path::new("sh"), &["-c", &script])
    };
    // The one further up is found where there is none here.
    assert_eq!(list().code(), 0);
    for (target, kind, code, word) in [
        (".dormouse", "io", 1, "symbolic links"),
        ("/nowhere/volume", "damaged", 6, "is not there"),
        (&*"x".repeat(300), "io", 1, "name too long"),
    ] {
        std::os::unix::fs::symlink(target, &place).unwrap();
        let ran = list();
        let error = failure(&ran);
        assert_eq!((ran.code(), error["kind"].as_str()), (code, Some(kind)), "{target}: {ran}");
        assert!(ran.stderr.contains(word) && !ran.stderr.contains("dormouse init"), "{target}: {ran}");
        fs::remove_file(&place).unwrap();
    }
    // What makes it a state directory is of another kind.
    fs::create_dir_all(place.join("dormouse.toml")).unwrap();
    chown(&place, Some(OWNER), Some(OWNER)).unwrap();
    chown(place.join("dormouse.toml"), Some(OWNER), Some(OWNER)).unwrap();
    mode(&place, 0o700);
    mode(&place.join("dormouse.toml"), 0o700);
    list().fails(6, "damaged");
}
