//! Tests that no path in a state directory leads outside it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use tempfile::TempDir;

use super::*;

/// Returns a directory with links to files outside, and the outside directory.
fn trapped() -> (TempDir, Spot) {
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
fn acts(spot: &Spot, good: &Spot) -> Vec<(&'static str, Result<()>)> {
    vec![
        ("read", spot.read(100).map(drop)),
        ("open_in_place", spot.open_in_place(true).map(drop)),
        ("create", spot.create().map(drop)),
        ("open_dir", spot.open_dir().map(drop)),
        ("entries", spot.entries().map(drop)),
        ("make_dir", spot.make_dir().map(drop)),
        ("make_dirs", spot.make_dirs()),
        ("make_pipe", spot.make_pipe()),
        ("rename to", good.create().and_then(|_| good.rename(spot))),
        ("replace", good.create().and_then(|_| good.replace(spot)).map(drop)),
        ("rename", spot.rename(good)),
        ("set_mode", spot.set_mode(0o777)),
        ("remove", spot.remove()),
        ("remove_dir", spot.remove_dir()),
        ("remove_tree", spot.remove_tree()),
    ]
}

#[test]
fn nothing_outside_is_read_or_changed_whatever_lies_inside() {
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
fn a_link_is_named_as_what_is_in_the_way_even_one_that_stays_inside() {
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
fn walking_down_opens_and_refuses_the_same_as_one_call() {
    let (_dir, root) = trapped();
    fs::create_dir(root.join("real/deep").path()).unwrap();
    fs::write(root.join("real/deep/file").path(), "ours").unwrap();
    let ways = [
        ".",
        "real",
        "real/deep/file",
        "real/deep/none",
        "none/none",
        "link",
        "link/file",
        "inner-link/deep",
        "file-link",
        "dangling",
        "real/deep/file/more",
        "../outside",
        "real/../real",
    ];
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for way in ways {
        let spot = if way == "." { root.clone() } else { root.join(way) };
        let id =
            |opened: rustix::io::Result<OwnedFd>| opened.ok().map(|fd| rustix::fs::fstat(fd).unwrap().st_ino);
        let (once, walked) = (id(spot.open(flags, Mode::empty())), id(spot.walk(flags, Mode::empty())));
        // Only `open` resolves a `..` that does not leave the root. No other code uses `..`.
        if way != "real/../real" {
            assert_eq!(once, walked, "{way}");
        }
        let is_there = matches!(way, "." | "real" | "real/deep/file");
        assert!(walked.is_some() == is_there, "{way}");
    }
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let (_dir, root) = trapped();
    root.join("pipe").make_pipe().unwrap();
    let _writer = root.join("pipe").open_pipe(OFlags::RDWR).unwrap().unwrap();
    let _socket = UnixListener::bind(root.join("socket").path()).unwrap();
    for (name, what) in [("pipe", "a pipe"), ("socket", "a socket"), ("real", "a directory")] {
        for done in [root.join(name).read(100).map(drop), root.join(name).open_in_place(true).map(drop)] {
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
fn what_is_there_is_opened_and_what_is_not_is_made_only_where_that_is_meant() {
    let (_dir, root) = trapped();
    let spot = root.join("lines");
    assert!(spot.open_file().unwrap().is_none());
    assert!(spot.open_in_place(false).unwrap().is_none());
    assert_eq!(spot.open_in_place(true).unwrap().unwrap().1, 0);
    fs::write(spot.path(), "12").unwrap();
    for makes in [true, false] {
        assert_eq!(spot.open_in_place(makes).unwrap().unwrap().1, 2);
    }
    assert!(spot.make_dir().is_err());
    assert!(root.join("none/dir").make_dir().is_err());
    assert_eq!((root.join("dir").make_dir().unwrap(), root.join("dir").make_dir().unwrap()), (true, false));
}

#[test]
fn what_is_too_large_is_refused_unread() {
    let (_dir, root) = trapped();
    let sparse = File::create(root.join("sparse").path()).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let error = root.join("sparse").read(1 << 20).unwrap_err();
    assert_eq!(error.kind(), "damaged");
    assert!(error.to_string().contains("1099511627776 bytes, of which the disk has 0"), "{error}");
    // A hollow file is refused with any limit.
    assert!(root.join("sparse").open_file().is_err());
    fs::write(root.join("fits").path(), "1234").unwrap();
    assert_eq!(root.join("fits").read(4).unwrap().unwrap(), b"1234");
    let error = root.join("fits").read(3).unwrap_err();
    assert!(error.to_string().contains("4 bytes: a file of its kind has at most 3"), "{error}");
}

#[test]
fn a_new_file_is_never_written_into_what_had_its_name() {
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
fn a_tree_goes_with_its_links_and_not_with_what_they_lead_to() {
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
fn two_directories_have_each_others_names_in_one_call() {
    let dir = tempfile::tempdir().unwrap();
    let spot = |name: &str| at(dir.path()).join(name);
    for name in ["one", "other"] {
        spot(name).make_dir().unwrap();
        fs::write(spot(name).join(name).path(), "").unwrap();
    }
    spot("one").try_exchange(&spot("other")).unwrap().unwrap();
    assert!(spot("one/other").exists().unwrap() && spot("other/one").exists().unwrap());
    assert!(spot("one").try_exchange(&spot("none")).unwrap().is_err());
}

#[test]
fn what_has_a_name_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let spot = |name: &str| at(dir.path()).join(name);
    fs::write(spot("one").path(), "one").unwrap();
    fs::write(spot("other").path(), "other").unwrap();
    assert!(!spot("one").rename_if_free(&spot("other")).unwrap());
    assert!(!spot("none").rename_if_free(&spot("new")).unwrap());
    assert!(spot("one").rename_if_free(&spot("new")).unwrap());
    assert_eq!(
        (fs::read(spot("new").path()).unwrap(), fs::read(spot("other").path()).unwrap()),
        (b"one".into(), b"other".into())
    );
}

/// A new directory gets the permissions of the directory that it replaces, and the kind of a change
/// shows that it was one.
#[test]
fn a_directory_takes_after_another_and_shows_a_change() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let dir = tempfile::tempdir().unwrap();
    let spot = |name: &str| at(dir.path()).join(name);
    let found = |name: &str| fs::metadata(spot(name).path()).unwrap();
    for name in ["one", "other"] {
        spot(name).make_dir().unwrap();
    }
    fs::set_permissions(spot("one").path(), fs::Permissions::from_mode(0o3770)).unwrap();
    assert!(spot("other").take_after(&spot("one")).unwrap());
    assert_eq!((found("other").mode(), found("other").gid()), (found("one").mode(), found("one").gid()));
    assert!(spot("other").set_changed(1).unwrap());
    assert_eq!((found("other").mtime(), found("other").mtime_nsec()), (1, 0));
    fs::write(spot("other/file").path(), "").unwrap();
    assert!(found("other").mtime() > 1);
}

#[test]
fn a_file_takes_the_place_of_another_and_of_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let spot = |name: &str| at(dir.path()).join(name);
    for name in ["dir", "other/dir"] {
        spot(name).make_dirs().unwrap();
    }
    for (target, before) in [("file", Some("before")), ("other/none", None)] {
        fs::write(spot("staged").path(), "after").unwrap();
        if let Some(before) = before {
            fs::write(spot(target).path(), before).unwrap();
        }
        spot("staged").replace(&spot(target)).unwrap().unwrap();
        assert_eq!(fs::read_to_string(spot(target).path()).unwrap(), "after");
        assert!(!spot("staged").exists().unwrap(), "{target}");
    }
    fs::write(spot("staged").path(), "after").unwrap();
    assert!(spot("staged").replace(&spot("dir")).unwrap().is_err());
    assert!(spot("dir").is_dir().unwrap() && spot("staged").is_file().unwrap());
    assert_eq!(spot("staged").replace(&spot("nowhere/file")).unwrap(), Err(Errno::NOENT));
    assert!(spot("staged").is_file().unwrap());
}
