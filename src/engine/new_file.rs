//! Files that a command creates at a path named by the user, outside the state directory.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, CWD, FlockOperation, Mode, OFlags, flock, linkat};
use rustix::io::Errno;
use rustix::process::geteuid;

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
        let file = match File::options().write(true).create_new(true).mode(mode).open(path) {
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

/// Nameless file, which gets its name when it is complete. Until then the file at the place is
/// unchanged, and a killed command leaves no file.
///
/// The file is written under the name `NAME.new-dormouse` if the file system has no nameless files.
/// It also has this name briefly if it replaces a file, because only a rename is atomic. It is
/// locked while its command lives; the next command for the same place removes the file of a killed
/// command.
///
/// A device or a pipe is written to directly and not replaced.
pub struct Replacement {
    file: File,
    place: PathBuf,
    beside: PathBuf,
    named: FileName,
}

/// Present name of the file: none, the temporary name, or the final name.
#[derive(PartialEq)]
enum FileName {
    Nothing,
    Beside,
    Place,
}

/// Maximum wait for another command that writes to the same place.
const PATIENCE: Duration = Duration::from_secs(2);

impl Replacement {
    /// Creates the file for `place`. `mode`: permissions before the umask.
    pub fn begin(place: &Path, mode: u32) -> Result<Replacement> {
        let Some(name) = place.file_name() else {
            return Err(Error::in_word("--output", format!("{}: not a file name", place.display())));
        };
        let mut beside = name.to_owned();
        beside.push(".new-dormouse");
        let beside = place.with_file_name(beside);
        let (file, named) = if fs::metadata(place).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            (File::options().write(true).open(place).context("open", place)?, FileName::Place)
        } else if let Some(file) = nameless(dir_of(place), mode) {
            (file, FileName::Nothing)
        } else {
            (create_temporary(&beside, place, mode)?, FileName::Beside)
        };
        Ok(Replacement { file, place: place.to_owned(), beside, named })
    }

    /// Returns the file to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Renames the complete file to its place, durably, replacing the previous file.
    pub fn place(mut self) -> Result<()> {
        match self.named {
            FileName::Place => return Ok(()),
            FileName::Nothing | FileName::Beside => self.file.sync_all().context("sync", &self.place)?,
        }
        if self.named == FileName::Nothing && give_name(&self.file, &self.place)? {
            return sync_dir_of(&self.place);
        }
        let began = Instant::now();
        while self.named == FileName::Nothing {
            if give_name(&self.file, &self.beside)? {
                self.named = FileName::Beside;
            } else {
                remove_abandoned(&self.beside, began)?;
            }
        }
        fs::rename(&self.beside, &self.place).context("rename to", &self.place)?;
        self.named = FileName::Place;
        sync_dir_of(&self.place)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if self.named == FileName::Beside {
            // The error that caused this removal is reported, not an error of the removal.
            let _ = fs::remove_file(&self.beside);
        }
    }
}

/// Creates a locked, nameless file in a directory. `None` if the file system has no nameless files,
/// or if the file could not be named later.
fn nameless(dir: &Path, mode: u32) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(dir, flags, Mode::from_raw_mode(mode)).ok()?);
    let can_be_named = rustix::fs::access(by_descriptor(&file), Access::EXISTS).is_ok();
    (can_be_named && is_locked(&file)).then_some(file)
}

fn by_descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Links a nameless file to `name`. Returns false if the name exists.
fn give_name(file: &File, name: &Path) -> Result<bool> {
    match linkat(CWD, by_descriptor(file), CWD, name, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(io::Error::from(error)).context("name", name),
    }
}

/// Creates a locked file with the temporary name. Errors name the place that the user named.
fn create_temporary(name: &Path, place: &Path, mode: u32) -> Result<File> {
    let began = Instant::now();
    loop {
        match File::options().write(true).create_new(true).mode(mode).open(name) {
            // Another command may have removed the file as abandoned before it was locked.
            Ok(file) if is_locked(&file) && is_still(&file, name)? => return Ok(file),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => remove_abandoned(name, began)?,
            Err(error) => return Err(error).context("create", place),
        }
    }
}

/// Removes the temporary file of a killed command. Waits briefly if the command still lives.
fn remove_abandoned(name: &Path, began: Instant) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(io::Error::from(error)).context("open", name),
    };
    let found = file.metadata().context("look at", name)?;
    if !found.is_file() || found.uid() != geteuid().as_raw() {
        let error = io::Error::new(ErrorKind::AlreadyExists, "another user's, or no file");
        return Err(error).context("make", name);
    }
    if is_locked(&file) {
        return match is_still(&file, name)? {
            true => fs::remove_file(name).context("remove", name),
            false => Ok(()),
        };
    }
    if began.elapsed() > PATIENCE {
        return Err(Error::busy(name, "another command that writes there".to_owned(), began.elapsed()));
    }
    std::thread::sleep(Duration::from_millis(10));
    Ok(())
}

fn is_locked(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// True if the name still refers to this open file.
fn is_still(file: &File, name: &Path) -> Result<bool> {
    let here = file.metadata().context("look at", name)?;
    match fs::symlink_metadata(name) {
        Ok(there) => Ok((there.dev(), there.ino()) == (here.dev(), here.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context("look at", name),
    }
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
