//! Tests that no path in a state directory leads outside it.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use tempfile::TempDir;

use super::*;

/// Returns a directory with links to files outside, and the outside directory.
fn trapped() -> (TempDir, CapPath) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("outside/below")).unwrap();
    fs::write(dir.path().join("outside/file"), "theirs").unwrap();
    fs::create_dir(dir.path().join("state")).unwrap();
    let root = at(&dir.path().join("state"));
    symlink("../outside", root.join("link").path()).unwrap();
    symlink("../outside/file", root.join("file-link").path()).unwrap();
    symlink("nowhere", root.join("dangling").path()).unwrap();
    fs::create_dir(root.join("real").path()).unwrap();
    symlink("real", root.join("inner-link").path()).unwrap();
    (dir, root)
}

fn outside(dir: &TempDir) -> Vec<(PathBuf, Option<String>)> {
    let mut found = Vec::new();
    for place in ["outside", "outside/below"] {
        for entry in fs::read_dir(dir.path().join(place)).unwrap() {
            let path = entry.unwrap().path();
            found.push((path.clone(), fs::read_to_string(path).ok()));
        }
    }
    found.sort();
    found
}

/// Returns the name and result of every operation on a path.
fn acts(cap: &CapPath, good: &CapPath) -> Vec<(&'static str, Result<()>)> {
    vec![
        ("read", cap.read(100).map(drop)),
        ("open_in_place", cap.create_in_place().map(drop)),
        ("create", cap.create().map(drop)),
        ("open_dir", cap.open_dir().map(drop)),
        ("entries", cap.entries().map(drop)),
        ("make_dir", cap.make_dir().map(drop)),
        ("make_dirs", cap.make_dirs()),
        ("make_pipe", cap.make_pipe()),
        ("rename to", good.create().and_then(|_| good.rename(cap))),
        ("replace", good.create().and_then(|_| good.replace(cap)).map(drop)),
        ("rename", cap.rename(good)),
        ("set_mode", cap.set_mode(0o777)),
        ("remove", cap.remove()),
        ("remove_dir", cap.remove_dir()),
        ("remove_tree", cap.remove_tree()),
    ]
}

#[test]
fn no_path_reads_or_changes_a_file_outside_the_root() {
    let (dir, root) = trapped();
    let before = outside(&dir);
    let ways = [
        "link/file",
        "link/below",
        "link/below/new",
        "link/new",
        "../outside/file",
        "../outside/new",
        "real/../../outside/new",
    ];
    for way in ways {
        for (act, done) in acts(&root.join(way), &root.join("good")) {
            assert!(done.is_err(), "{act} {way}");
            assert_eq!(outside(&dir), before, "{act} {way}");
        }
    }
    // A link can be renamed and removed, and its target does not change.
    for link in ["link", "file-link", "dangling"] {
        acts(&root.join(link), &root.join("good"));
        assert_eq!(outside(&dir), before, "{link}");
    }
    let mode = fs::metadata(dir.path().join("outside/file")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644 & mode, "no mode outside has changed");
}

#[test]
fn any_symlink_in_a_path_is_an_error_that_names_the_symlink() {
    let (_dir, root) = trapped();
    for (way, link) in
        [("link/below/new", "link"), ("inner-link/file", "inner-link"), ("file-link", "file-link")]
    {
        let error = root.join(way).read(100).unwrap_err();
        assert_eq!((error.kind(), error.path()), ("damaged", Some(root.join(link).path())), "{way}");
        assert!(error.to_string().contains("symbolic link"), "{error}");
    }
}

#[test]
fn a_pipe_a_socket_or_a_directory_is_refused_as_a_file() {
    let (_dir, root) = trapped();
    root.join("pipe").make_pipe().unwrap();
    let _writer = root.join("pipe").open_pipe(OFlags::RDWR).unwrap().unwrap();
    let _socket = UnixListener::bind(root.join("socket").path()).unwrap();
    for (name, what) in [("pipe", "a pipe"), ("socket", "a socket"), ("real", "a directory")] {
        for done in [root.join(name).read(100).map(drop), root.join(name).create_in_place().map(drop)] {
            let error = done.unwrap_err();
            assert_eq!(error.kind(), "damaged", "{name}");
            assert!(error.to_string().contains(what), "{error}");
        }
    }
    let error = root.join("pipe").entries().unwrap_err();
    assert!(error.to_string().contains("a pipe"), "{error}");
    let error = root.join("pipe/more").read(100).unwrap_err();
    assert!(error.to_string().contains("a pipe: expected a directory"), "{error}");
}

#[test]
fn missing_files_are_created_only_on_request() {
    let (_dir, root) = trapped();
    let cap = root.join("lines");
    assert!(cap.open_file().unwrap().is_none());
    assert!(cap.open_in_place().unwrap().is_none());
    assert_eq!(cap.create_in_place().unwrap().1, 0);
    fs::write(cap.path(), "12").unwrap();
    assert_eq!(cap.open_in_place().unwrap().unwrap().1, 2);
    assert_eq!(cap.create_in_place().unwrap().1, 2);
    assert!(cap.make_dir().is_err());
    assert!(root.join("none/dir").make_dir().is_err());
    assert_eq!((root.join("dir").make_dir().unwrap(), root.join("dir").make_dir().unwrap()), (true, false));
}

#[test]
fn sparse_files_and_files_over_the_limit_are_refused() {
    let (_dir, root) = trapped();
    let sparse = File::create(root.join("sparse").path()).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let error = root.join("sparse").read(1 << 20).unwrap_err();
    assert_eq!(error.kind(), "damaged");
    assert!(error.to_string().contains("1099511627776 bytes, of which the disk has 0"), "{error}");
    // A sparse file is refused even by a call that has no size limit.
    assert!(root.join("sparse").open_file().is_err());
    fs::write(root.join("fits").path(), "1234").unwrap();
    assert_eq!(root.join("fits").read(4).unwrap().unwrap(), b"1234");
    let error = root.join("fits").read(3).unwrap_err();
    assert!(error.to_string().contains("4 bytes: a file of its kind has at most 3"), "{error}");
}

#[test]
fn create_never_writes_into_an_existing_file() {
    let (dir, root) = trapped();
    fs::hard_link(dir.path().join("outside/file"), root.join("staged").path()).unwrap();
    for name in ["staged", "file-link", "dangling"] {
        use std::io::Write;
        root.join(name).create().unwrap().write_all(b"ours").unwrap();
        assert_eq!(fs::read(root.join(name).path()).unwrap(), b"ours");
    }
    assert_eq!(fs::read_to_string(dir.path().join("outside/file")).unwrap(), "theirs");
}

#[test]
fn remove_tree_deletes_symlinks_but_not_their_targets() {
    let (dir, root) = trapped();
    let tree = root.join("tree");
    tree.join("a/b").make_dirs().unwrap();
    symlink("../../outside", tree.join("a/out").path()).unwrap();
    symlink(dir.path().join("outside"), tree.join("out").path()).unwrap();
    tree.join("a/pipe").make_pipe().unwrap();
    let before = outside(&dir);
    tree.remove_tree().unwrap();
    assert!(!tree.exists().unwrap());
    assert_eq!(outside(&dir), before);
    tree.remove_tree().unwrap();
}

#[test]
fn try_exchange_swaps_the_names_of_two_directories() {
    let dir = tempfile::tempdir().unwrap();
    let cap = |name: &str| at(dir.path()).join(name);
    for name in ["one", "other"] {
        cap(name).make_dir().unwrap();
        fs::write(cap(name).join(name).path(), "").unwrap();
    }
    cap("one").try_exchange(&cap("other")).unwrap().unwrap();
    assert!(cap("one/other").exists().unwrap() && cap("other/one").exists().unwrap());
    assert!(cap("one").try_exchange(&cap("none")).unwrap().is_err());
}

#[test]
fn rename_if_free_never_replaces_an_existing_file() {
    let dir = tempfile::tempdir().unwrap();
    let cap = |name: &str| at(dir.path()).join(name);
    fs::write(cap("one").path(), "one").unwrap();
    fs::write(cap("other").path(), "other").unwrap();
    assert!(!cap("one").rename_if_free(&cap("other")).unwrap());
    assert!(!cap("none").rename_if_free(&cap("new")).unwrap());
    assert!(cap("one").rename_if_free(&cap("new")).unwrap());
    assert_eq!(
        (fs::read(cap("new").path()).unwrap(), fs::read(cap("other").path()).unwrap()),
        (b"one".into(), b"other".into())
    );
}

/// A new directory gets the permissions of the directory that it replaces, and a change of the
/// directory updates its modification time.
#[test]
fn take_after_copies_permissions_and_a_change_updates_the_mtime() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let dir = tempfile::tempdir().unwrap();
    let cap = |name: &str| at(dir.path()).join(name);
    let found = |name: &str| fs::metadata(cap(name).path()).unwrap();
    for name in ["one", "other"] {
        cap(name).make_dir().unwrap();
    }
    fs::set_permissions(cap("one").path(), fs::Permissions::from_mode(0o3770)).unwrap();
    assert!(cap("other").copy_owner_from(&cap("one")).unwrap());
    assert_eq!((found("other").mode(), found("other").gid()), (found("one").mode(), found("one").gid()));
    assert!(cap("other").set_changed(1).unwrap());
    assert_eq!((found("other").mtime(), found("other").mtime_nsec()), (1, 0));
    fs::write(cap("other/file").path(), "").unwrap();
    assert!(found("other").mtime() > 1);
}

#[test]
fn replace_works_on_a_file_or_a_free_name_but_not_on_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let cap = |name: &str| at(dir.path()).join(name);
    for name in ["dir", "other/dir"] {
        cap(name).make_dirs().unwrap();
    }
    for (target, before) in [("file", Some("before")), ("other/none", None)] {
        fs::write(cap("staged").path(), "after").unwrap();
        if let Some(before) = before {
            fs::write(cap(target).path(), before).unwrap();
        }
        cap("staged").replace(&cap(target)).unwrap().unwrap();
        assert_eq!(fs::read_to_string(cap(target).path()).unwrap(), "after");
        assert!(!cap("staged").exists().unwrap(), "{target}");
    }
    fs::write(cap("staged").path(), "after").unwrap();
    assert!(cap("staged").replace(&cap("dir")).unwrap().is_err());
    assert!(cap("dir").is_dir().unwrap() && cap("staged").is_file().unwrap());
    assert_eq!(cap("staged").replace(&cap("nowhere/file")).unwrap(), Err(Errno::NOENT));
    assert!(cap("staged").is_file().unwrap());
}
