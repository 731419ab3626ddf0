//! Checks of `cache/` and `tmp/`: their files are not needed, but a file of the wrong kind blocks
//! commands.

use rustix::fs::{FileType, Stat};

use crate::cap_fs::{self, CapPath};

use super::super::layout;
use super::Remedy;
use super::records::Checkup;

/// Maximum bytes of a file of any cache.
const MOST: i64 = 64 << 20;

/// Expected kind of file at a path.
#[derive(Clone, Copy, PartialEq)]
enum Expected {
    Dir,
    File,
    /// File or directory: commands that are running create both kinds.
    Either,
}

/// Returns the expected kind of file at a path relative to the agent's directory. `None` if the
/// path is unknown.
fn expected(path: &str) -> Option<Expected> {
    match path.split('/').collect::<Vec<_>>().as_slice() {
        [layout::CACHE | layout::TMP] => Some(Expected::Dir),
        [layout::CACHE, "dedupe" | "settled" | "uses"] | [layout::CACHE, "dedupe", _] => Some(Expected::Dir),
        [layout::CACHE, "sweep.json" | "ticked-by"]
        | [layout::CACHE, "settled" | "uses", _]
        | [layout::CACHE, "dedupe", _, _]
        | [layout::TMP, "apply" | "replacement"] => Some(Expected::File),
        [layout::TMP, name] if name.ends_with(".lock") => Some(Expected::File),
        [layout::CACHE | layout::TMP, _] => Some(Expected::Either),
        _ => None,
    }
}

/// Returns the problem with a file at a path of the expected kind, if any.
fn wrong(found: &Stat, expected: Expected) -> Option<&'static str> {
    let kind = cap_fs::kind(found);
    match (kind, expected) {
        (FileType::Directory, Expected::File) => Some("a directory in the place of a file"),
        (FileType::Directory, _) if found.st_mode & 0o700 != 0o700 => {
            Some("its owner may not read and write this directory")
        }
        (FileType::Directory, _) => None,
        (FileType::RegularFile, Expected::Dir) => Some("a file in the place of a directory"),
        (FileType::RegularFile, _) if found.st_size > MOST => Some("larger than any cache"),
        (FileType::RegularFile, _) if found.st_mode & 0o600 != 0o600 => {
            Some("its owner may not read and write this file")
        }
        (FileType::RegularFile, _) => None,
        _ => Some("neither a plain file nor a directory"),
    }
}

impl Checkup<'_> {
    /// Adds findings about files in `cache/` and `tmp/` that block commands.
    pub fn scratch(&mut self) {
        for name in [layout::CACHE, layout::TMP] {
            self.scratch_at(self.agent.dir.cap().join(name));
        }
    }

    fn scratch_at(&mut self, cap: CapPath) {
        let path = cap.below(self.agent.dir.cap()).to_string_lossy().into_owned();
        let (Some(expected), Ok(Some(found))) = (expected(&path), cap.look()) else { return };
        if let Some(wrong) = wrong(&found, expected) {
            self.note(cap, "scratch", format!("{wrong}; its content is not needed"), Remedy::Renew);
        } else if cap_fs::kind(&found) == FileType::Directory {
            for entry in cap.entries().unwrap_or_default() {
                self.scratch_at(cap.join(&entry.name));
            }
        }
    }
}
