//! Access to paths below the state directory. This module opens every file of the state directory
//! (contract, command line §1).
//!
//! A path is resolved downwards from a descriptor of the state directory, and through no symbolic
//! link. So no command reads, writes, creates, renames or removes files outside the directory, even
//! if another user has put links into the directory.

pub mod accounts;
mod changes;
mod reading;
mod scratch;
#[cfg(test)]
mod tests;
mod version;

use std::ffi::OsStr;
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::{Error, IoContext, Result};
use crate::model::place::PlaceId;

pub use changes::{Access, move_file};
pub use reading::{Content, Entry};
pub use version::{VERSION_LENGTH, Version, nanoseconds};

/// State directory that is open, or is being created.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
    path: PathBuf,
    /// User id of the owner of the state directory.
    pub owner: u32,
    /// True if this process may change the state directory.
    is_open_to_changes: AtomicBool,
    /// Callback that tells the user of the removal of a file that was in the place of a cache.
    pub tell: OnceLock<fn(&str)>,
}

impl Root {
    /// Opens the state directory that the user has named or a search has found. Only symbolic links
    /// in this path are followed.
    pub fn open(path: &Path) -> io::Result<Arc<Root>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        let owner = rustix::fs::fstat(&dir)?.st_uid;
        let is_open_to_changes = AtomicBool::new(owner == geteuid().as_raw());
        let tell = OnceLock::new();
        Ok(Arc::new(Root { dir, path: path.to_owned(), owner, is_open_to_changes, tell }))
    }

    /// Permits this user to change the state directory of another owner, as far as file permissions
    /// allow. Has no effect for root, because file permissions do not restrict root.
    pub fn allow_changes(&self) {
        self.is_open_to_changes.fetch_or(!geteuid().is_root(), Ordering::Relaxed);
    }

    /// Error when this user may not change the state directory, whose owner could not open files of
    /// this user.
    pub fn check_may_change(&self) -> Result<()> {
        if self.is_open_to_changes.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(not_owner(&self.path, self.owner))
    }

    /// Returns the path of the state directory itself.
    pub fn cap(self: &Arc<Root>) -> CapPath {
        CapPath { root: Arc::clone(self), path: self.path.clone(), existing: 0, scratch: None }
    }
}

/// Path below a state directory. A file need not exist at the path.
#[derive(Debug, Clone)]
pub struct CapPath {
    root: Arc<Root>,
    /// Path of the state directory, followed by the path below it.
    path: PathBuf,
    /// Length in bytes of the beginning of `path` that is never created if it is missing.
    existing: usize,
    /// Length in bytes of the beginning of `path` that is a directory whose content may be deleted.
    scratch: Option<usize>,
}

/// Flags for opening a plain file. Without NONBLOCK, the open would wait on a pipe at this path.
const PLAIN: OFlags = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

const OWNERS_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

impl CapPath {
    /// Returns the complete path, for messages and for programs that dormouse starts.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of `below` in this directory. If `below` leads upwards, every function that
    /// opens the result fails.
    pub fn join(&self, below: impl AsRef<Path>) -> CapPath {
        CapPath { root: Arc::clone(&self.root), path: self.path.join(below), ..*self }
    }

    /// Marks the path as required: functions that create a path below this path create neither this
    /// path nor its parents.
    pub fn existing(self) -> CapPath {
        let existing = self.path.as_os_str().len();
        CapPath { existing, ..self }
    }

    /// Returns the parent directory. The parent of the state directory is the state directory,
    /// because no directory above it is ever opened.
    pub fn parent(&self) -> CapPath {
        let above = self.path.parent().filter(|above| above.starts_with(&self.root.path));
        let path = above.unwrap_or(&self.root.path).to_owned();
        CapPath { root: Arc::clone(&self.root), path, ..*self }
    }

    /// Returns the last component of the path.
    pub fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// Returns the part of this path below `above`, which must be one of its parents.
    pub fn below(&self, above: &CapPath) -> &Path {
        self.path.strip_prefix(&above.path).unwrap_or(&self.path)
    }

    /// Returns the metadata without following a link; `None` if the path does not exist.
    pub fn look(&self) -> Result<Option<Stat>> {
        self.read_stat().or_else(|error| self.unless_scratch(error))
    }

    fn read_stat(&self) -> Result<Option<Stat>> {
        match self.open(OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Ok(found) => Ok(Some(rustix::fs::fstat(found).context("look at", &self.path)?)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.refused(errno, "look at")),
        }
    }

    /// True if a file of any type exists at the path.
    pub fn exists(&self) -> Result<bool> {
        Ok(self.look()?.is_some())
    }

    /// Returns the identity of a file or directory; `None` if it does not exist. Needs one system
    /// call, which opens no file.
    pub fn number(&self) -> Result<Option<PlaceId>> {
        Ok(self.glance()?.map(place_id))
    }

    /// Returns the metadata by one system call, which opens no file. The call follows links in
    /// parent directories, even out of the state directory, so callers must not reveal metadata.
    pub fn glance(&self) -> Result<Option<Stat>> {
        match rustix::fs::statat(&self.root.dir, self.way(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => self.unless_scratch(self.refused(errno, "look at")),
        }
    }

    pub fn is_dir(&self) -> Result<bool> {
        Ok(self.look()?.is_some_and(|found| kind(&found) == FileType::Directory))
    }

    /// True if the path is a plain file.
    pub fn is_file(&self) -> Result<bool> {
        Ok(self.look()?.is_some_and(|found| kind(&found) == FileType::RegularFile))
    }

    /// Returns the user id of the owner of the state directory.
    pub fn owner_of_root(&self) -> u32 {
        self.root.owner
    }

    /// Returns the identity of the state directory.
    pub fn id_of_root(&self) -> Result<PlaceId> {
        rustix::fs::fstat(&self.root.dir).map(place_id).context("look at", &self.root.path)
    }

    /// Calls `act` with the open parent directory, and the last component of the path.
    fn in_parent<T>(
        &self,
        act: impl FnOnce(&OwnedFd, &OsStr) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        let above = self.parent().open(OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        act(&above, self.name())
    }

    /// Returns the path relative to the state directory.
    fn way(&self) -> &Path {
        match self.path.strip_prefix(&self.root.path) {
            Ok(way) if way.as_os_str().is_empty() => Path::new("."),
            Ok(way) => way,
            // A path outside the state directory is left as it is; `openat2` then fails.
            Err(_) => &self.path,
        }
    }

    fn open(&self, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(&self.root.dir, self.way(), flags, mode, beneath)
    }

    /// Returns the error for a failed system call; it names the file that blocks the path, if any.
    fn refused(&self, errno: Errno, action: &'static str) -> Error {
        if matches!(errno, Errno::LOOP | Errno::XDEV | Errno::NOTDIR | Errno::NXIO | Errno::ISDIR)
            && let Some(error) = self.in_the_way()
        {
            return error;
        }
        if errno == Errno::NOSYS {
            return Error::failed(format!("{}: this system has no openat2", self.path.display()))
                .with_hint("dormouse needs Linux 5.6, and a sandbox that lets it call openat2");
        }
        Error::Io { action, path: self.path.clone(), source: errno.into() }
    }

    /// Returns an error about the first component that blocks the path: a parent that is no
    /// directory, or a last component that is no plain file.
    fn in_the_way(&self) -> Option<Error> {
        let mut here = self.root.cap();
        let parts: Vec<Component<'_>> = self.way().components().collect();
        for (at, part) in parts.iter().enumerate() {
            if !matches!(part, Component::Normal(_)) {
                return Some(Error::damaged(&self.path, "not a path inside the state directory"));
            }
            here = here.join(part.as_os_str());
            let found = kind(&here.look().ok()??);
            let expected = match (found, at + 1 == parts.len()) {
                (FileType::Symlink, _) => {
                    let message = "a symbolic link: dormouse follows none inside a state directory";
                    let hint = "put the real file or directory in its place";
                    return Some(Error::damaged(here.path, message).with_hint(hint));
                }
                (FileType::Directory, false) | (FileType::RegularFile, true) => continue,
                (FileType::Directory, true) => "plain file",
                (_, true) => "plain file or a directory",
                (_, false) => "directory",
            };
            let message = format!("{}: expected a {expected}", describe(found));
            return Some(Error::damaged(here.path, message));
        }
        Some(Error::damaged(here.path, "a plain file: expected a directory"))
    }
}

/// Gives access to the complete path, for example for messages.
impl Deref for CapPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

/// Compares paths only, because a command opens only one state directory.
impl PartialEq for CapPath {
    fn eq(&self, other: &CapPath) -> bool {
        self.path == other.path
    }
}

impl Eq for CapPath {}

/// Returns the error for a change by a user who does not own `path`.
pub fn not_owner(path: &Path, owner: u32) -> Error {
    let name = accounts::name(owner);
    let message = format!("{} belongs to {name}: only its owner changes anything in it", path.display());
    Error::refused(Error::NOT_OWNER, message)
        .with_hint(format!("run it as the owner: `{} dormouse …`", accounts::sudo(owner)))
}

/// Returns the type of a file.
pub fn kind(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

fn place_id(found: Stat) -> PlaceId {
    PlaceId { device: found.st_dev, inode: found.st_ino }
}

fn length(found: &Stat) -> u64 {
    u64::try_from(found.st_size).unwrap_or(0)
}

fn describe(found: FileType) -> &'static str {
    match found {
        FileType::RegularFile => "a plain file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "something unknown",
    }
}

/// Returns the path of a test's directory as a state directory.
#[cfg(test)]
pub fn at(dir: &Path) -> CapPath {
    Root::open(dir).unwrap().cap()
}
