//! Files that a command makes where its user tells it to, outside the state directory.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};

/// A file that was not there before. Dropping this value removes it, unless it is kept.
pub struct NewFile {
    file: File,
    path: PathBuf,
    is_kept: bool,
}

impl NewFile {
    /// Makes the file with this content, durably. `mode`: its rights, less what the umask takes. `None`: something has
    /// that name already, be it a link.
    pub fn write(path: &Path, mode: u32, bytes: &[u8]) -> Result<Option<NewFile>> {
        let mut new = match NewFile::create(path, mode) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
            created => created.context("create", path)?,
        };
        new.file.write_all(bytes).context("write", path)?;
        new.file.sync_all().context("sync", path)?;
        sync_dir_of(path)?;
        Ok(Some(new))
    }

    fn create(path: &Path, mode: u32) -> io::Result<NewFile> {
        let file = File::options().write(true).create_new(true).mode(mode).open(path)?;
        Ok(NewFile { file, path: path.to_owned(), is_kept: false })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Something depends on it from now on.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // Nothing depends on it: the error that got us here is the one worth telling.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A file that is written beside its place, and gets its name when it is whole. Until then nothing has changed there.
pub struct Replacement {
    new: NewFile,
    place: PathBuf,
}

impl Replacement {
    /// `mode`: the rights of the file, less what the umask takes.
    pub fn begin(place: &Path, mode: u32) -> Result<Replacement> {
        let Some(name) = place.file_name() else {
            return Err(Error::in_word("--output", format!("{}: no name of a file", place.display())));
        };
        let mut beside = name.to_owned();
        beside.push(format!(".new-{}", std::process::id()));
        let path = place.with_file_name(beside);
        let new = NewFile::create(&path, mode).context("create a file beside", place)?;
        Ok(Replacement { new, place: place.to_owned() })
    }

    /// What is written to it.
    pub fn file(&self) -> &File {
        &self.new.file
    }

    /// Takes the place of what was there.
    pub fn place(mut self) -> Result<()> {
        self.new.file.sync_all().context("sync", &self.new.path)?;
        fs::rename(&self.new.path, &self.place).context("rename to", &self.place)?;
        self.new.keep();
        sync_dir_of(&self.place)
    }
}

fn sync_dir_of(path: &Path) -> Result<()> {
    let dir = dir_of(path);
    File::open(dir).and_then(|dir| dir.sync_all()).context("sync directory", dir)
}

/// The directory that a file is in.
pub fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
