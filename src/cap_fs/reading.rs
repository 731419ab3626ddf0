//! Opens plain files, directories and pipes, and reads files and directories.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, Mode, OFlags, RawDir, Stat};
use rustix::io::{Errno, retry_on_intr};

use crate::error::{Error, IoContext, Result};

use super::{CapPath, OWNERS_FILE, PLAIN, Version, changes, describe, kind, length, nanoseconds};

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

/// Size in bytes above which a file is checked for holes.
const HOLLOW_FROM: u64 = 16 << 20;
/// Divisor of a large file's length; a file with less disk usage than the quotient is mostly holes.
const HOLLOW_PART: u64 = 64;

impl CapPath {
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
        let Some((file, stat)) = self.open_plain()? else { return Ok(None) };
        let length = length(&stat);
        if length > most {
            return Err(self.too_large(length, most));
        }
        // A read that leaves the spare byte free has found the end of the file.
        let expected = usize::try_from(length).unwrap_or_default();
        let mut bytes = Vec::with_capacity(expected + 1);
        let read = || rustix::io::read(&file, spare_capacity(&mut bytes));
        let count = retry_on_intr(read).context("read", &self.path)?;
        if count != expected {
            // One byte more than allowed shows that the file has grown beyond the limit meanwhile.
            let rest = most.saturating_add(1).saturating_sub(count as u64);
            file.take(rest).read_to_end(&mut bytes).context("read", &self.path)?;
        }
        if bytes.len() as u64 > most {
            return Err(self.too_large(bytes.len() as u64, most));
        }
        let changed = nanoseconds(stat.st_ctime, stat.st_ctime_nsec);
        Ok(Some(Content { bytes, owner: stat.st_uid, version: Version::of(&stat), changed }))
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

    /// Opens a plain file for reading and writing in place. Returns file and length; `None` if it
    /// does not exist.
    pub fn open_in_place(&self) -> Result<Option<(File, u64)>> {
        match self.open_to_write(OFlags::empty(), Mode::empty()) {
            Err(error) if error.is_not_found() => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Opens a plain file like [`CapPath::open_in_place`], and creates it if it is missing.
    pub fn create_in_place(&self) -> Result<(File, u64)> {
        self.or_clear(|| self.open_to_write(OFlags::CREATE, OWNERS_FILE))
    }

    /// The system refuses a `mode` for a call that creates no file.
    fn open_to_write(&self, create: OFlags, mode: Mode) -> Result<(File, u64)> {
        self.root.check_may_change()?;
        let opened = self.open(OFlags::RDWR | create | PLAIN, mode);
        let (file, stat) = self.plain(opened.map_err(|errno| self.refused(errno, "open"))?, "open")?;
        changes::give_mode(&file, stat.st_mode, mode).context("change the mode of", &self.path)?;
        Ok((file, length(&stat)))
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

    /// Opens a directory for reading, locking or syncing. Error if the path does not exist.
    pub fn open_existing_dir(&self) -> Result<File> {
        self.open_dir()?.ok_or_else(|| Error::gone("open directory", &self.path))
    }

    /// Calls `each` with the name of every entry except `.` and `..`, and true for a directory, in
    /// any order, until `each` returns false. A missing directory counts as empty, because git does
    /// not store empty directories.
    pub fn each_entry(&self, mut each: impl FnMut(&[u8], bool) -> bool) -> Result<()> {
        let Some(dir) = self.open_dir()? else { return Ok(()) };
        let mut buffer = Box::new_uninit_slice(DIR_BUFFER);
        let mut entries = RawDir::new(dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.context("read directory", &self.path)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let kind = entry.file_type();
            let is_dir = kind == FileType::Directory
                || kind == FileType::Unknown && self.join(OsStr::from_bytes(name)).is_dir()?;
            if !each(name, is_dir) {
                break;
            }
        }
        Ok(())
    }

    /// Returns all entries of this directory, sorted by name.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        self.each_entry(|name, is_dir| {
            entries.push(Entry { name: OsStr::from_bytes(name).to_owned(), is_dir });
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
        let found_kind = kind(&rustix::fs::fstat(&found).context("open", &self.path)?);
        if found_kind == FileType::Fifo {
            return Ok(Ok(found));
        }
        Err(Error::damaged(&self.path, format!("{}: expected a pipe", describe(found_kind))))
    }
}
