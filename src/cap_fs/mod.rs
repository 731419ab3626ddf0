//! Access to paths below the state directory. Every file of the state directory is opened by this
//! module, and no other file is (contract, cli §1).
//!
//! A path is resolved downwards from a descriptor of the state directory, and through no symbolic
//! link. So no command reads, writes, creates, renames or removes files outside the directory, even
//! if another user has put links into it.

pub mod accounts;
mod changes;
mod scratch;
#[cfg(test)]
mod tests;
mod version;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::geteuid;

use crate::error::{Error, IoContext, Result};

pub use changes::{Access, move_file};
pub use version::{VERSION_LENGTH, Version, nanoseconds};

/// State directory that is open, or is being created.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
    path: PathBuf,
    /// User id of the owner of the state directory.
    owner: u32,
    /// True if this process may change the state directory.
    is_open_to_changes: AtomicBool,
    /// Callback that reports the removal of a file that blocked the path of a cache.
    tell: OnceLock<fn(&str)>,
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

    /// Sets the callback that reports the removal of a file that blocked the path of a cache.
    pub fn tell_by(&self, tell: fn(&str)) {
        let _ = self.tell.set(tell);
    }

    /// Permits all changes that file permissions allow to this user. Root gets no permission in the
    /// directory of another user, because the system refuses root no change.
    pub fn admit_guest(&self) {
        self.is_open_to_changes.fetch_or(!geteuid().is_root(), Ordering::Relaxed);
    }

    /// Returns the user id of the owner of the state directory.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Error when this user does not own the state directory, because the owner could not open the
    /// files that this user creates.
    pub fn refuse_stranger(&self) -> Result<()> {
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

/// Path below a state directory; a file need not exist there.
#[derive(Debug, Clone)]
pub struct CapPath {
    root: Arc<Root>,
    /// Path of the state directory, followed by the path below it.
    path: PathBuf,
    /// Length of the leading part of the path that is never created.
    existing: usize,
    /// Length of the leading part of the path that is a scratch directory, if there is one.
    scratch: Option<usize>,
}

/// Entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: OsString,
    pub is_dir: bool,
}

/// Content and metadata of a file.
#[derive(Debug)]
pub struct Content {
    pub bytes: Vec<u8>,
    /// User id of the owner of the file.
    pub owner: u32,
    /// Version of the file before its content was read.
    pub version: Version,
    /// Time of the last change of content, permissions or name before the content was read, in
    /// nanoseconds since 1970.
    pub changed: u64,
}

/// Size of the buffer for directory entries, in bytes: enough for most directories.
const DIR_BUFFER: usize = 32 << 10;

/// Size in bytes from which files are checked for holes.
const HOLLOW_FROM: u64 = 16 << 20;
/// Divisor for the minimum disk usage of a large file, even on a compressing file system.
const HOLLOW_PART: u64 = 64;

/// Flags for opening a plain file. Without NONBLOCK, the open would wait on a pipe at this path.
const PLAIN: OFlags = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

const OWNERS_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Identity of a file or directory among those that exist at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    device: u64,
    inode: u64,
}

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

    /// Marks the path as required: functions that create a path below it create neither this path
    /// nor its parents.
    pub fn existing(self) -> CapPath {
        let existing = self.path.as_os_str().len();
        CapPath { existing, ..self }
    }

    /// Returns the path of an entry of this directory.
    pub fn child(&self, name: &[u8]) -> CapPath {
        self.join(OsString::from_vec(name.to_vec()))
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
        self.plain_look().or_else(|error| self.unless_scratch(error))
    }

    fn plain_look(&self) -> Result<Option<Stat>> {
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
    pub fn number(&self) -> Result<Option<Number>> {
        Ok(self.glance()?.map(|found| Number { device: found.st_dev, inode: found.st_ino }))
    }

    /// Returns the metadata by one system call, which opens no file but follows links in parent
    /// directories, so callers must not reveal content.
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

    /// Returns the content of a file; `None` if the path does not exist. Error if the path is no
    /// plain file, or the file has more than `most` bytes.
    pub fn read(&self, most: u64) -> Result<Option<Vec<u8>>> {
        Ok(self.read_owned(most)?.map(|content| content.bytes))
    }

    /// Returns content and metadata of a file under the conditions of [`CapPath::read`].
    pub fn read_owned(&self, most: u64) -> Result<Option<Content>> {
        self.read_bounded(most).or_else(|error| self.unless_scratch(error))
    }

    fn read_bounded(&self, most: u64) -> Result<Option<Content>> {
        let Some((mut file, stat)) = self.open_plain()? else { return Ok(None) };
        let length = length(&stat);
        if length > most {
            return Err(self.too_large(length, most));
        }
        let expected = usize::try_from(length).unwrap_or_default();
        // The buffer has one byte more than the file: a read that leaves this byte free has reached
        // the end of the file, which saves another read.
        let mut bytes = Vec::with_capacity(expected + 1);
        loop {
            let read = || rustix::io::read(&file, spare_capacity(&mut bytes));
            let count = retry_on_intr(read).context("read", &self.path)?;
            if count == 0 || bytes.len() == expected {
                break;
            }
            if bytes.len() > expected {
                // The file has grown since its length was read.
                (&mut file).take(most - length).read_to_end(&mut bytes).context("read", &self.path)?;
                break;
            }
        }
        if bytes.len() as u64 > most {
            return Err(self.too_large(bytes.len() as u64, most));
        }
        let changed = nanoseconds(stat.st_ctime, stat.st_ctime_nsec);
        Ok(Some(Content { bytes, owner: stat.st_uid, version: Version::of(&stat), changed }))
    }

    /// Returns the user id of the owner of the state directory.
    pub fn owner_of_root(&self) -> u32 {
        self.root.owner
    }

    /// Returns the device and the inode number of the state directory.
    pub fn numbers_of_root(&self) -> Result<(u64, u64)> {
        let found = rustix::fs::fstat(&self.root.dir).context("look at", &self.root.path)?;
        Ok((found.st_dev, found.st_ino))
    }

    /// Returns the error for a file of `length` bytes, of which at most `most` are allowed.
    pub fn too_large(&self, length: u64, most: u64) -> Error {
        let message = format!("{length} bytes: a file of its kind has at most {most}");
        Error::damaged(&self.path, message)
    }

    /// Opens a plain file for reading. Returns file and length; `None` if it does not exist.
    pub fn open_file(&self) -> Result<Option<(File, u64)>> {
        Ok(self.open_plain()?.map(|(file, stat)| (file, length(&stat))))
    }

    fn open_plain(&self) -> Result<Option<(File, Stat)>> {
        let opened = match self.open(OFlags::RDONLY | PLAIN, Mode::empty()) {
            Ok(found) => self.plain(found, "open").map(Some),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => Err(self.refused(errno, "open")),
        };
        opened.or_else(|error| self.unless_scratch(error))
    }

    /// Opens a plain file for reading and writing in place, and returns its length in bytes.
    /// Creates a missing file if `makes` is set; otherwise returns `None`.
    pub fn open_in_place(&self, makes: bool) -> Result<Option<(File, u64)>> {
        self.root.refuse_stranger()?;
        if makes { self.or_clear(|| self.open_to_write(true)) } else { self.open_to_write(false) }
    }

    fn open_to_write(&self, makes: bool) -> Result<Option<(File, u64)>> {
        // The system refuses a mode for a call that creates no file.
        let (create, mode) =
            if makes { (OFlags::CREATE, OWNERS_FILE) } else { (OFlags::empty(), Mode::empty()) };
        match self.open(OFlags::RDWR | create | PLAIN, mode) {
            Ok(found) => {
                let (file, stat) = self.plain(found, "open")?;
                changes::give_mode(&file, stat.st_mode, mode).context("change the mode of", &self.path)?;
                Ok(Some((file, length(&stat))))
            }
            Err(Errno::NOENT) if !makes => Ok(None),
            Err(errno) => Err(self.refused(errno, "open")),
        }
    }

    fn plain(&self, found: OwnedFd, action: &'static str) -> Result<(File, Stat)> {
        let stat = rustix::fs::fstat(&found).context(action, &self.path)?;
        let found_kind = kind(&stat);
        if found_kind == FileType::RegularFile {
            return self.not_hollow(&stat).map(|()| (File::from(found), stat));
        }
        Err(Error::damaged(&self.path, format!("{}: expected a plain file", describe(found_kind))))
    }

    /// Error when a large file consists mostly of holes: this program writes no such file, and its
    /// content would fill the memory.
    fn not_hollow(&self, stat: &Stat) -> Result<()> {
        let (length, on_disk) =
            (length(stat), u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512));
        if length <= HOLLOW_FROM || on_disk >= length / HOLLOW_PART {
            return Ok(());
        }
        let message =
            format!("{length} bytes, of which the disk has {on_disk}: no file of its kind has holes");
        Err(Error::damaged(&self.path, message))
    }

    /// Opens a directory for reading, locking or syncing; `None` if the path does not exist.
    pub fn open_dir(&self) -> Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match self.open(flags, Mode::empty()) {
            Ok(dir) => Ok(Some(File::from(dir))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => self.unless_scratch(self.refused(errno, "open directory")),
        }
    }

    /// Calls `each` with the name of every entry except `.` and `..`, and true for a directory, in
    /// any order, until `each` returns false. A missing directory counts as empty, because git does
    /// not store empty directories.
    pub fn each_entry(&self, each: impl FnMut(&[u8], bool) -> bool) -> Result<()> {
        let Some(dir) = self.open_dir()? else { return Ok(()) };
        self.each_entry_of(&dir, each)
    }

    fn each_entry_of(&self, dir: &File, mut each: impl FnMut(&[u8], bool) -> bool) -> Result<()> {
        let mut buffer = Box::new_uninit_slice(DIR_BUFFER);
        let mut entries = RawDir::new(dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.context("read directory", &self.path)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let is_dir = if entry.file_type() == FileType::Unknown {
                self.child(name).is_dir()?
            } else {
                entry.file_type() == FileType::Directory
            };
            if !each(name, is_dir) {
                break;
            }
        }
        Ok(())
    }

    /// Returns all entries of this directory, sorted by name.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        self.open_dir()?.map_or(Ok(Vec::new()), |dir| self.entries_of(&dir))
    }

    fn entries_of(&self, dir: &File) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        self.each_entry_of(dir, |name, is_dir| {
            entries.push(Entry { name: OsString::from_vec(name.to_vec()), is_dir });
            true
        })?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    /// Opens one end of a named pipe without waiting for the other end. The caller interprets the
    /// inner error of the system.
    pub fn open_pipe(&self, end: OFlags) -> Result<rustix::io::Result<OwnedFd>> {
        let found = match self.open(end | PLAIN, Mode::empty()) {
            Ok(found) => found,
            Err(errno) => return Ok(Err(errno)),
        };
        let stat = rustix::fs::fstat(&found).context("open", &self.path)?;
        let found_kind = kind(&stat);
        if found_kind == FileType::Fifo {
            return Ok(Ok(found));
        }
        Err(Error::damaged(&self.path, format!("{}: expected a pipe", describe(found_kind))))
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
            // A path outside the state directory can't be opened below it, so the open fails.
            Err(_) => &self.path,
        }
    }

    fn open(&self, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(&self.root.dir, self.way(), flags, mode, beneath) {
            // The kernel lacks this call, a sandbox forbids the call, or another process renamed a
            // directory at the same time.
            Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => self.walk(flags, mode),
            opened => opened,
        }
    }

    /// Opens the path one directory after the other, if the kernel can't open it in one call.
    fn walk(&self, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let way = self.way();
        let is_downwards =
            way.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !is_downwards {
            return Err(Errno::XDEV);
        }
        let down = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut dir: Option<OwnedFd> = None;
        let mut parts = way.components().peekable();
        while let Some(part) = parts.next() {
            let above = dir.as_ref().map_or(self.root.dir.as_fd(), AsFd::as_fd);
            if parts.peek().is_none() {
                return rustix::fs::openat(above, part.as_os_str(), flags | OFlags::NOFOLLOW, mode);
            }
            let below = rustix::fs::openat(above, part.as_os_str(), down, Mode::empty())?;
            dir = Some(below);
        }
        Err(Errno::NOENT)
    }

    /// Returns the error for a failed call, about the file that blocks the path if there is one.
    fn refused(&self, errno: Errno, action: &'static str) -> Error {
        if matches!(errno, Errno::LOOP | Errno::XDEV | Errno::NOTDIR | Errno::NXIO | Errno::ISDIR)
            && let Some(error) = self.in_the_way()
        {
            return error;
        }
        Error::Io { action, path: self.path.clone(), source: errno.into() }
    }

    /// Returns an error about the first component of the path that blocks it: no directory, or, as
    /// the last component, no plain file.
    fn in_the_way(&self) -> Option<Error> {
        let mut here = self.root.cap();
        let parts: Vec<Component<'_>> = self.way().components().collect();
        for (at, part) in parts.iter().enumerate() {
            if !matches!(part, Component::Normal(_)) {
                return Some(Error::damaged(&self.path, "not a path inside the state directory"));
            }
            here = here.join(part.as_os_str());
            let found = kind(&here.look().ok()??);
            if found == FileType::Symlink {
                return Some(
                    Error::damaged(
                        here.path,
                        "a symbolic link: dormouse follows none inside a state directory",
                    )
                    .with_hint("put the real file or directory in its place"),
                );
            }
            if found != FileType::Directory && at + 1 < parts.len() {
                return Some(Error::damaged(here.path, format!("{}: expected a directory", describe(found))));
            }
            if found != FileType::RegularFile && at + 1 == parts.len() {
                let expected =
                    if found == FileType::Directory { "plain file" } else { "plain file or a directory" };
                let message = format!("{}: expected a {expected}", describe(found));
                return Some(Error::damaged(here.path, message));
            }
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
