//! Tests that no kind of file in the place of `cache/`, `tmp/` or their files stops a command.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::setup::objects;
use crate::sharing::{OWNER, Shared, mode, unshared};

/// Kinds of files that are put in the place of a cache.
const KINDS: [&str; 7] = ["file", "directory", "link", "dangling", "pipe", "huge", "closed"];

fn remove(path: &Path) {
    mode_of_all(path);
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

fn mode_of_all(path: &Path) {
    if path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        mode(path, 0o700);
    }
}

/// Puts a file of this kind at a path. Returns false if the path normally has this kind.
fn put(path: &Path, kind: &str) -> bool {
    let is_dir = path.is_dir();
    if kind == "closed" {
        mode(path, 0);
        return true;
    }
    if (is_dir && kind == "directory") || (!is_dir && kind == "file") {
        return false;
    }
    remove(path);
    match kind {
        "file" => fs::write(path, "not a cache\n").unwrap(),
        "directory" => fs::create_dir_all(path.join("full/of/things")).unwrap(),
        "link" => symlink("/etc", path).unwrap(),
        "dangling" => symlink("/nowhere", path).unwrap(),
        "pipe" => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        "huge" => fs::File::create(path).unwrap().set_len(1 << 36).unwrap(),
        kind => panic!("{kind}"),
    }
    if path.symlink_metadata().unwrap().is_dir() {
        for entry in walkdir::WalkDir::new(path) {
            std::os::unix::fs::lchown(entry.unwrap().path(), Some(OWNER), Some(OWNER)).unwrap();
        }
    }
    std::os::unix::fs::lchown(path, Some(OWNER), Some(OWNER)).unwrap();
    true
}

/// Returns a state directory of a user who is not root, with an agent that has filled its caches.
fn used() -> Option<Shared> {
    let used = unshared(OWNER)?;
    used.owner(&["init"]);
    used.owner(&["create", "a", "--", "true"]);
    used.owner(&["start", "a"]);
    used.owner(&["enqueue", "a", "x", "--dedupe-key", "first"]);
    used.owner(&["tick", "a", "--until-idle"]);
    Some(used)
}

/// Asserts that commands that use the caches succeed, and know the dedupe key of [`used`].
fn life(used: &Shared, what: &str) {
    let run = |args: &[&str]| {
        let ran = used.dormouse(OWNER, &[&["--json"], args].concat()).exits(0);
        objects(&ran.stdout)
    };
    let again = run(&["enqueue", "a", "x", "--dedupe-key", "first"]);
    assert_eq!(again[0]["duplicate"], true, "{what}: {again:?}");
    run(&["enqueue", "a", "y"]);
    // A step looks in the cache of ended messages for each dropped file, so a file is dropped.
    let inbox = used.inbox();
    fs::write(inbox.join("drop.json"), r#"{"text": "z"}"#).unwrap();
    std::os::unix::fs::chown(inbox.join("drop.json"), Some(OWNER), Some(OWNER)).unwrap();
    run(&["tick", "a", "--until-idle"]);
    run(&["gc"]);
}

#[test]
fn no_file_type_in_the_place_of_a_cache_stops_a_command() {
    let Some(used) = used() else { return };
    let agent = used.state().join("agents/a");
    let mut places: Vec<PathBuf> = ["cache", "tmp"]
        .iter()
        .flat_map(|dir| walkdir::WalkDir::new(agent.join(dir)))
        .map(|entry| entry.unwrap().into_path())
        .collect();
    places.extend(["tmp/apply", "cache/sweep.json", "cache/settled"].map(|name| agent.join(name)));
    places.sort();
    // The files of a directory serve the same purpose, so one of them is tested.
    places.dedup_by(|place, other| place.is_file() && other.is_file() && place.parent() == other.parent());
    assert!(
        places.iter().any(|place| place.parent().unwrap().parent().unwrap().ends_with("dedupe")),
        "{places:?}"
    );
    for place in &places {
        for kind in KINDS {
            if !place.exists() {
                fs::create_dir_all(place.parent().unwrap()).unwrap();
                fs::write(place, "").unwrap();
                std::os::unix::fs::chown(place, Some(OWNER), Some(OWNER)).unwrap();
            }
            if put(place, kind) {
                life(&used, &format!("{kind} at {}", place.display()));
            }
            if place.symlink_metadata().is_ok_and(|found| !found.is_dir() && !found.is_file()) {
                remove(place);
            }
        }
    }
    assert_eq!(used.dormouse(OWNER, &["doctor"]).code(), 0);
}

#[test]
fn a_file_in_the_place_of_a_cache_is_replaced_and_is_no_finding() {
    let Some(used) = used() else { return };
    let agent = used.state().join("agents/a");
    remove(&agent.join("tmp"));
    assert!(!agent.join("tmp").exists());
    fs::write(agent.join("tmp"), "x").unwrap();
    std::os::unix::fs::chown(agent.join("tmp"), Some(OWNER), Some(OWNER)).unwrap();
    used.dormouse(OWNER, &["enqueue", "a", "x"]).exits(0).warns("agents/a/tmp: a plain file was in the way");
    used.owner(&["tick", "a", "--until-idle"]);
    for (place, kind) in
        [("tmp", "file"), ("cache", "link"), ("cache/dedupe", "pipe"), ("cache/settled", "file")]
    {
        put(&agent.join(place), kind);
        assert_eq!(used.dormouse(OWNER, &["doctor"]).code(), 0, "{place}");
        life(&used, place);
    }
    // The program must not delete the file to which the symbolic link points.
    assert!(Path::new("/etc/passwd").exists());
}
