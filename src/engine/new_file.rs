//! Files that a command creates at a path named by the user, outside the state directory.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, IoContext, Result};
use crate::store::Store;

/// New file. Dropping this value removes the file, unless `keep` was called.
pub struct NewFile {
    file: File,
    path: PathBuf,
    is_kept: bool,
}

impl NewFile {
    /// Creates the file with this content, durably. `mode`: permissions before the umask. `None` if
    /// the name exists already, even as a link.
    pub fn write(path: &Path, mode: u32, bytes: &[u8]) -> Result<Option<NewFile>> {
        let file = match create_new(path, mode) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
            created => created.context("create", path)?,
        };
        let mut new = NewFile { file, path: path.to_owned(), is_kept: false };
        new.file.write_all(bytes).context("write", path)?;
        new.file.sync_all().context("sync", path)?;
        sync_dir_of(path)?;
        Ok(Some(new))
    }

    /// True if the file can be read and has other content.
    pub fn has_become_other_than(&self, bytes: &[u8]) -> bool {
        fs::read(&self.path).is_ok_and(|found| found != bytes)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the file when this value is dropped.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // The error that caused this removal is reported, not an error of the removal.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Complete new content of a file, which is renamed to its place when it is written. Until then the
/// file at the place is unchanged. A killed command may leave the new file, as `NAME.new-NUMBER`.
///
/// A device or a pipe is written to directly and not replaced.
pub struct Replacement {
    new: NewFile,
    place: PathBuf,
}

impl Replacement {
    /// Creates the file for the new content of `place`. `mode`: permissions before the umask.
    pub fn begin(place: &Path, mode: u32) -> Result<Replacement> {
        let Some(name) = place.file_name() else {
            return Err(Error::in_word("--output", format!("{}: not a file name", place.display())));
        };
        if fs::metadata(place).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            let file = File::options().write(true).open(place).context("open", place)?;
            let new = NewFile { file, path: place.to_owned(), is_kept: true };
            return Ok(Replacement { new, place: place.to_owned() });
        }
        let mut number = std::process::id();
        let (file, path) = loop {
            let mut temporary = name.to_owned();
            temporary.push(format!(".new-{number}"));
            let path = place.with_file_name(temporary);
            match create_new(&path, mode) {
                // A killed command with this process id has left a file.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number = number.wrapping_add(1),
                // Errors name `place`, the path that the user gave.
                created => break (created.context("create", place)?, path),
            }
        };
        let new = NewFile { file, path, is_kept: false };
        Ok(Replacement { new, place: place.to_owned() })
    }

    /// Returns the file to write to.
    pub fn file(&self) -> &File {
        &self.new.file
    }

    /// Renames the complete file to its place, durably, replacing the previous file.
    pub fn place(mut self) -> Result<()> {
        if self.new.path == self.place {
            return Ok(());
        }
        self.new.file.sync_all().context("sync", &self.place)?;
        fs::rename(&self.new.path, &self.place).context("rename to", &self.place)?;
        self.new.keep();
        sync_dir_of(&self.place)
    }
}

fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(mode).open(path)
}

fn sync_dir_of(path: &Path) -> Result<()> {
    let dir = dir_of(path);
    File::open(dir).and_then(|dir| dir.sync_all()).context("sync directory", dir)
}

/// True if the name exists, even as a dangling link.
pub fn name_exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Error when a path is in the state directory. `flag` and `hint` are used in the error.
pub fn refuse_within(store: &Store, path: &Path, flag: &str, hint: &str) -> Result<()> {
    let dir = dir_of(path);
    let real = fs::canonicalize(dir).context("find", dir)?;
    if !fs::canonicalize(store.anchor().path()).is_ok_and(|root| real.starts_with(root)) {
        return Ok(());
    }
    Err(Error::usage(format!("{flag}: {} is in the state directory", path.display())).with_hint(hint))
}

/// Returns the directory that contains a path.
pub fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
