//! A file that a command writes where its user tells it to, outside the state directory.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};

/// A file that is written beside its place, and gets its name when it is whole. Until then nothing has changed there.
pub struct Aside {
    file: File,
    path: PathBuf,
    place: PathBuf,
    is_placed: bool,
}

impl Aside {
    /// `mode`: the rights of the file, less what the umask takes.
    pub fn begin(place: &Path, mode: u32) -> Result<Aside> {
        let Some(name) = place.file_name() else {
            return Err(Error::in_word("--output", format!("{}: no name of a file", place.display())));
        };
        let mut beside = name.to_owned();
        beside.push(format!(".new-{}", std::process::id()));
        let path = place.with_file_name(beside);
        let mut options = File::options();
        let file = options.write(true).create_new(true).mode(mode).open(&path).context("create", &path)?;
        Ok(Aside { file, path, place: place.to_owned(), is_placed: false })
    }

    /// What is written to it.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Takes the place of what was there.
    pub fn place(mut self) -> Result<()> {
        self.file.sync_all().context("sync", &self.path)?;
        fs::rename(&self.path, &self.place).context("rename to", &self.place)?;
        self.is_placed = true;
        let dir = self.place.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir).and_then(|dir| dir.sync_all()).context("sync directory", dir)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.is_placed {
            // The error that got us here is the one worth telling.
            let _ = fs::remove_file(&self.path);
        }
    }
}
