//! Files, as the store needs them: whole, durable, and never through a symbolic link.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FileType, Mode, OFlags, RawDir};

use crate::error::{Context, Error, Result};
use crate::model::settings::Durability;
use crate::model::time::Time;

const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits() as i32;
/// Opening a pipe that somebody put in a record's place must not wait for its other end.
const NONBLOCK: i32 = OFlags::NONBLOCK.bits() as i32;

/// The content of a file; `None` if there is none. A symbolic link or a directory is refused.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match OpenOptions::new().read(true).custom_flags(NOFOLLOW | NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refuse_link(error, "open", path)),
    };
    // Records are small: most fit the first read, and the second finds the end.
    let mut bytes = Vec::with_capacity(4096);
    // Not asked for its size: that would be two calls more for each of many small files.
    match file.take(u64::MAX).read_to_end(&mut bytes) {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            Err(Error::damaged(path, "a directory: a record is a file"))
        }
        Err(error) => Err(error).context("read", path),
    }
}

fn refuse_link(error: io::Error, action: &'static str, path: &Path) -> Error {
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_symlink());
    if is_link {
        Error::Damaged {
            path: path.to_owned(),
            line: 0,
            column: 0,
            message: "a symbolic link: records and their directories are never followed elsewhere".to_owned(),
            hint: Some("put the real file or directory in its place".to_owned()),
        }
    } else {
        Error::Io { action, path: path.to_owned(), source: error }
    }
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: OsString,
    pub is_dir: bool,
}

/// What one look into a directory takes in: enough for most at once.
const DIR_BUFFER: usize = 32 << 10;

/// Calls `each` with every entry but `.` and `..`, in no order, until it says stop (`false`). A
/// directory that is not there has none: git does not keep empty ones.
pub fn each_entry(path: &Path, mut each: impl FnMut(&[u8], bool) -> bool) -> Result<()> {
    let Some(dir) = open_dir(path)? else { return Ok(()) };
    let mut buffer = Box::new_uninit_slice(DIR_BUFFER);
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry.context("read directory", path)?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let is_dir = match entry.file_type() {
            FileType::Directory => true,
            FileType::Unknown => child(path, name).is_dir(),
            _ => false,
        };
        if !each(name, is_dir) {
            break;
        }
    }
    Ok(())
}

/// Every entry, sorted by name.
pub fn entries(path: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    each_entry(path, |name, is_dir| {
        entries.push(Entry { name: OsString::from_vec(name.to_vec()), is_dir });
        true
    })?;
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// A directory, for reading or syncing; `None` if there is none. A symbolic link is refused.
pub fn open_dir(path: &Path) -> Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(dir) => Ok(Some(File::from(dir))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(errno) => Err(refuse_link(errno.into(), "open directory", path)),
    }
}

/// Makes a directory and those above it, for the owner alone.
pub fn make_dir(path: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).context("make directory", path)
}

/// Makes a directory that a clone lacks, as nothing was in it, and if need be the one that it is in. What
/// is above has to be there: an agent that somebody has removed is not made anew, in part.
fn make_dir_again(path: &Path) -> Result<()> {
    let make = |path: &Path| match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    match make(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(parent(path)).and_then(|()| make(path)).context("make directory", path)
        }
        made => made.context("make directory", path),
    }
}

/// Makes what the last step of a durable write leaves undone if it fails half-way: nothing.
struct Unfinished<'a>(Option<&'a Path>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // The error that got us here is the one worth telling.
            let _ = fs::remove_file(path);
        }
    }
}

/// How writes reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    pub durability: Durability,
}

impl Disk {
    fn syncs(self) -> bool {
        self.durability == Durability::Full
    }

    /// Makes a file's content durable.
    pub fn sync_file(self, file: &File, path: &Path) -> Result<()> {
        if self.syncs() { file.sync_all().context("sync", path) } else { Ok(()) }
    }

    /// Files or directories to make durable together. None yet.
    pub fn unsynced(self) -> Unsynced {
        Unsynced { disk: self, files: Vec::new() }
    }

    /// Makes the names in several directories durable; those that are gone have none.
    pub fn sync_dirs(self, paths: impl IntoIterator<Item = PathBuf>) -> Result<()> {
        if !self.syncs() {
            return Ok(());
        }
        let mut dirs = self.unsynced();
        for path in paths {
            if let Some(dir) = open_dir(&path)? {
                dirs.add(dir, path)?;
            }
        }
        dirs.sync()
    }

    /// Makes the names in a directory durable.
    pub fn sync_dir(self, path: &Path) -> Result<()> {
        if !self.syncs() {
            return Ok(());
        }
        match open_dir(path)? {
            Some(dir) => dir.sync_all().context("sync directory", path),
            None => Ok(()),
        }
    }

    /// A new file at `temporary` with this content, durable; on any failure it is gone again.
    pub fn stage(self, temporary: &Path, bytes: &[u8]) -> Result<()> {
        let mut unfinished = Unfinished(Some(temporary));
        let file = self.stage_unsynced(temporary, bytes)?;
        self.sync_file(&file, temporary)?;
        unfinished.0 = None;
        Ok(())
    }

    /// The same, except that the caller syncs the file that it gets.
    pub fn stage_unsynced(self, temporary: &Path, bytes: &[u8]) -> Result<File> {
        let open = || {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .custom_flags(NOFOLLOW)
                .open(temporary)
        };
        let mut file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A clone has no tmp/: make it and try once more.
                make_dir_again(parent(temporary))?;
                open()
            }
            opened => opened,
        }
        .map_err(|error| refuse_link(error, "create", temporary))?;
        let mut unfinished = Unfinished(Some(temporary));
        file.write_all(bytes).context("write", temporary)?;
        unfinished.0 = None;
        Ok(file)
    }

    /// Puts a file in place as a whole: stage, rename, sync the directory. A reader finds the old
    /// content or the new, and so does whoever comes after a power cut.
    pub fn replace(self, temporary: &Path, target: &Path, bytes: &[u8]) -> Result<()> {
        self.stage(temporary, bytes)?;
        let mut unfinished = Unfinished(Some(temporary));
        rename(temporary, target)?;
        unfinished.0 = None;
        self.sync_dir(parent(target))
    }
}

/// How many files are open and synced at once: enough to share the cost, few enough for the tightest limits
/// of open files that are in use.
const TOGETHER: usize = 32;

/// Open files that are written and not durable yet. However many are added, no more than 32 are ever open.
#[derive(Debug)]
pub struct Unsynced {
    disk: Disk,
    files: Vec<(File, PathBuf)>,
}

impl Unsynced {
    /// Takes over one more. It may sync those that were added before.
    pub fn add(&mut self, file: File, path: PathBuf) -> Result<()> {
        if !self.disk.syncs() {
            return Ok(());
        }
        self.files.push((file, path));
        if self.files.len() < TOGETHER { Ok(()) } else { self.sync() }
    }

    /// Makes all of them durable. The kernel is asked to begin with all before the first is waited for: the
    /// file system then flushes its own journal once or twice for all of them instead of once for each.
    pub fn sync(&mut self) -> Result<()> {
        let files = std::mem::take(&mut self.files);
        if files.len() > 1 {
            for (file, _) in &files {
                // What is not to be cached is written at once. It is only a hint, and of no use for directories.
                let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
            }
        }
        // Each is tried, whatever becomes of the others.
        let synced = files.iter().map(|(file, path)| self.disk.sync_file(file, path));
        synced.fold(Ok(()), Result::and)
    }
}

/// Renames, making the directory of the target if a clone lacks it.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !parent(to).exists() => {
            make_dir(parent(to))?;
            // So rarely that it need not depend on the durability that was asked for.
            if let Some(above) = open_dir(parent(parent(to)))? {
                above.sync_all().context("sync directory", parent(parent(to)))?;
            }
            fs::rename(from, to).context("rename to", to)
        }
        renamed => renamed.context("rename to", to),
    }
}

/// Removes a file. One that is not there is removed already.
pub fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.context("remove", path),
    }
}

/// Renames what may have gone away meanwhile. Returns whether it was there.
pub fn move_if_there(from: &Path, to: &Path) -> Result<bool> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        renamed => renamed.context("move", from).map(|()| true),
    }
}

/// Removes a file, or a directory with all that is in it. What is not there is removed already.
pub fn remove_whatever(path: &Path) -> Result<()> {
    let is_dir = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let removed = if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.context("remove", path),
    }
}

/// When a file was last changed, its rights and its name included; `None` if there is none to be seen.
pub fn changed_at(path: &Path) -> Option<Time> {
    let found = fs::symlink_metadata(path).ok()?;
    Some(Time::from_millis(found.ctime() * 1000 + found.ctime_nsec() / 1_000_000))
}

/// When a file was last changed, how large it is, and whether it is a directory; `None` if there is none.
pub fn look_at(path: &Path) -> Result<Option<(Time, u64, bool)>> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => {
            let found = found.context("look at", path)?;
            let at = Time::from_millis(found.ctime() * 1000 + found.ctime_nsec() / 1_000_000);
            Ok(Some((at, found.len(), found.is_dir())))
        }
    }
}

/// A place in a directory that nothing has yet: of this name, or of this name and a number.
pub fn free_place(dir: &Path, name: &OsStr) -> PathBuf {
    let mut place = dir.join(name);
    let mut number = 0;
    while fs::symlink_metadata(&place).is_ok() {
        number += 1;
        let mut name = name.to_owned();
        name.push(format!(".{number}"));
        place = dir.join(name);
    }
    place
}

/// The directory that a path is in; a path without one is in the working directory.
pub fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// Joins a name from `each_entry`.
pub fn child(dir: &Path, name: &[u8]) -> PathBuf {
    dir.join(OsString::from_vec(name.to_vec()))
}

/// The length of a file, and whether its last line is whole.
pub fn end_of(path: &Path) -> Result<(u64, bool)> {
    use std::os::unix::fs::FileExt;

    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((0, true)),
        Err(error) => return Err(error).context("open", path),
    };
    let length = file.metadata().context("read", path)?.len();
    if length == 0 {
        return Ok((0, true));
    }
    let mut last = [0];
    file.read_exact_at(&mut last, length - 1).context("read", path)?;
    Ok((length, last == *b"\n"))
}
