//! Durable writes of whole files, and bounded reads.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::Stat;
use rustix::io::Errno;

use crate::cap_fs::{Access, CapPath};
use crate::error::{Error, IoContext, Result, describe};
use crate::model::settings::Durability;
use crate::model::time::Time;

/// Maximum bytes of a record. The limit also holds for every other file that is read as a whole,
/// unless the file's reader names another limit.
pub const MAX_RECORD: u64 = 16 << 20;

/// Maximum bytes of a file of lines that is read as a whole.
pub const MAX_LINES: u64 = 256 << 20;

/// Maximum bytes of a journal, and so of the changes of one transaction.
pub const MAX_JOURNAL: u64 = 256 << 20;

/// Returns the content of a record's file; `None` if the file is missing. A file that is not a
/// plain file, or too large for a record, is refused unread.
pub fn read(cap: &CapPath) -> Result<Option<Vec<u8>>> {
    cap.read(MAX_RECORD)
}

/// Removes the temporary file if its write, which has returned `written`, has failed half-way.
pub fn or_remove<T>(temporary: &CapPath, written: Result<T>) -> Result<T> {
    // The error of the write is reported, not an error of this removal.
    written.inspect_err(|_| drop(temporary.remove()))
}

/// Durability and access rights of the files that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    pub durability: Durability,
    /// Users who may use the files that are made.
    pub access: Access,
}

impl Disk {
    /// Returns settings with which only the owner may use the files that are made.
    pub fn new(durability: Durability) -> Disk {
        Disk { durability, access: Access::Owner }
    }

    /// True if writes have to survive a power cut.
    pub fn syncs(self) -> bool {
        self.durability == Durability::Full
    }

    /// Makes a file's content durable.
    pub fn sync_file(self, file: &File, path: &Path) -> Result<()> {
        if self.syncs() { file.sync_all().context("sync", path) } else { Ok(()) }
    }

    /// Makes the content and length of a file durable, without its other metadata.
    pub fn sync_content(self, file: &File, path: &Path) -> Result<()> {
        if self.syncs() { file.sync_data().context("sync", path) } else { Ok(()) }
    }

    /// Makes the names in a directory durable.
    pub fn sync_dir(self, cap: &CapPath) -> Result<()> {
        if !self.syncs() {
            return Ok(());
        }
        match cap.open_dir()? {
            Some(dir) => dir.sync_all().context("sync directory", cap.path()),
            None => Ok(()),
        }
    }

    /// Makes all files durable that any process has written to the file system of a directory.
    pub fn sync_file_system(self, cap: &CapPath) -> Result<()> {
        cap.open_dir()?.map_or(Ok(()), |dir| self.sync_file_system_of(&dir, cap))
    }

    /// Makes all files durable that any process has written to the file system of `dir`. Errors of
    /// writes since `dir` was opened are reported. `cap`: path of `dir`.
    pub fn sync_file_system_of(self, dir: &File, cap: &CapPath) -> Result<()> {
        if self.syncs() { rustix::fs::syncfs(dir).context("sync the file system of", cap) } else { Ok(()) }
    }

    /// Makes a new file at `temporary` like `stage`, but leaves the sync to the caller.
    pub fn stage_unsynced(self, temporary: &CapPath, bytes: &[u8]) -> Result<File> {
        let mut file = in_new_parent(temporary, || temporary.create_for(self.access))?;
        or_remove(temporary, file.write_all(bytes).context("write", temporary.path()))?;
        Ok(file)
    }

    /// Renames a staged file to its final path, durably. If that fails, the staged file is removed.
    pub fn place(self, temporary: &CapPath, target: &CapPath) -> Result<()> {
        or_remove(temporary, self.place_all([(temporary.clone(), target.clone())]))
    }

    /// Renames many staged files of one directory into another directory, durably. Both stay open,
    /// so that all files arrive even if a directory above is renamed meanwhile.
    pub fn place_all(self, staged: impl IntoIterator<Item = (CapPath, CapPath)>) -> Result<()> {
        let (mut dirs, mut patience) = (None, PATIENCE);
        for (temporary, target) in staged {
            let open = || Ok((temporary.parent().open_existing_dir()?, dir_for(&target)?, target.parent()));
            loop {
                let placed = match dirs.take().map_or_else(open, Ok) {
                    Ok(open) => {
                        let (from, to, _) = dirs.insert(open);
                        temporary.rename_between(from, to, &target)
                    }
                    Err(error) => Err(error),
                };
                match placed {
                    Err(error) if error.is_not_found() => {
                        // A step has replaced and removed the open inbox. Before that, files that
                        // a sharing group member stages in the inbox are missing for a moment.
                        let is_replaced = dirs.take().is_some_and(|(_, to, _)| was_removed(&to));
                        if !is_replaced && (self.access != Access::Group || patience == 0) {
                            return Err(error);
                        } else if !is_replaced {
                            patience -= 1;
                            std::thread::sleep(COMES_BACK / PATIENCE);
                        }
                    }
                    placed => break placed?,
                }
            }
        }
        let Some((_, dir, cap)) = dirs else { return Ok(()) };
        if self.syncs() { dir.sync_all().context("sync directory", &cap) } else { Ok(()) }
    }
}

/// Maximum time for which a file that was staged in an inbox may be missing while a step replaces
/// the inbox, and the number of tries in that time.
const COMES_BACK: Duration = Duration::from_secs(2);
const PATIENCE: u32 = 200;

/// Renames a file, without a sync. Creates a directory that is missing after `git clone`.
pub fn rename(from: &CapPath, to: &CapPath) -> Result<()> {
    or_into_new_dir(to, || from.try_rename(to))
}

/// Renames a file whose content is in the journal until the file is durable. Replaces a target
/// without flushing the new file to the disk.
pub fn replace(from: &CapPath, to: &CapPath) -> Result<()> {
    or_into_new_dir(to, || from.replace(to))
}

fn or_into_new_dir(to: &CapPath, rename: impl Fn() -> Result<rustix::io::Result<()>>) -> Result<()> {
    let mut renamed = rename()?;
    if renamed == Err(Errno::NOENT) {
        dir_for(to)?;
        renamed = rename()?;
    }
    renamed.context("rename to", to.path())
}

/// Opens a file for reading and writing in place, creating it and its directory if they are
/// missing. Returns its length in bytes, too.
pub fn open_or_create(cap: &CapPath) -> Result<(File, u64)> {
    in_new_parent(cap, || cap.create_in_place())
}

/// Makes a file or directory; before a second try its parent, which is missing after `git clone`.
pub fn in_new_parent<T>(cap: &CapPath, make: impl Fn() -> Result<T>) -> Result<T> {
    match make() {
        Err(error) if error.is_not_found() => {
            cap.parent().make_dirs()?;
            make()
        }
        made => made,
    }
}

/// Opens the directory that is to contain a file. Creates it if it is missing after `git clone`.
fn dir_for(target: &CapPath) -> Result<File> {
    let cap = target.parent();
    if let Some(dir) = cap.open_dir()? {
        return Ok(dir);
    }
    cap.make_dirs()?;
    // The parent, which has the new name, is always synced: directories are rarely missing.
    let above = cap.parent();
    if let Some(dir) = above.open_dir()? {
        dir.sync_all().context("sync directory", above.path())?;
    }
    cap.open_existing_dir()
}

/// True if an open directory was removed.
fn was_removed(dir: &File) -> bool {
    dir.metadata().is_ok_and(|found| found.nlink() == 0)
}

/// Renames a file that may be gone. Returns true if the file existed.
pub fn move_if_there(from: &CapPath, to: &CapPath) -> Result<bool> {
    match from.try_rename(to)? {
        Err(Errno::NOENT) => Ok(false),
        renamed => renamed.context("move", from).map(|()| true),
    }
}

/// Time of the last change of a file, its permissions and name included (ctime).
pub fn changed_at(found: &Stat) -> Time {
    let millis = i64::try_from(found.st_ctime_nsec / 1_000_000).unwrap_or(0);
    Time::from_millis(found.st_ctime.saturating_mul(1000).saturating_add(millis))
}

/// Returns an unused path in a directory: with this name, or with this name and a number. The path
/// with `suffix` added is unused, too.
pub fn free_place(dir: &CapPath, name: &OsStr, suffix: &str) -> Result<CapPath> {
    let numbered = |number: u32, suffix: &str| {
        let mut numbered = name.to_owned();
        if number > 0 {
            numbered.push(format!(".{number}"));
        }
        numbered.push(suffix);
        dir.join(numbered)
    };
    let is_taken = |number| {
        let is_there = |suffix| numbered(number, suffix).exists();
        Ok::<bool, Error>(is_there("")? || !suffix.is_empty() && is_there(suffix)?)
    };
    if !is_taken(0)? {
        return Ok(numbered(0, ""));
    }
    // A linear search would be slow if a script has used this name for months.
    let (mut taken, mut free) = (0, 1);
    while is_taken(free)? {
        taken = free;
        free = free.saturating_mul(2);
    }
    while free - taken > 1 {
        let middle = taken + (free - taken) / 2;
        if is_taken(middle)? { taken = middle } else { free = middle }
    }
    Ok(numbered(free, ""))
}

/// Returns the length of a file that only grows, and true if its last line is complete.
pub fn end_of(cap: &CapPath) -> Result<(u64, bool)> {
    use std::os::unix::fs::FileExt;

    let Some((file, length)) = cap.open_file()? else { return Ok((0, true)) };
    if length == 0 {
        return Ok((0, true));
    }
    let mut last = [0];
    file.read_exact_at(&mut last, length - 1).context("read", cap.path())?;
    Ok((length, last == *b"\n"))
}

/// Returns the reason why a file can't be read or moved, if the fault is in that file. An error of
/// the disk or of this process is returned as an error.
pub fn fault_of_file(error: Error) -> Result<String> {
    match error {
        Error::Damaged { line: 0, message, .. } => Ok(message),
        Error::Damaged { line, column, message, .. } => {
            Ok(format!("line {line}, column {column}: {message}"))
        }
        Error::Newer { found, known, .. } => {
            Ok(format!("written in {found}, newer than the {known} that this dormouse reads"))
        }
        Error::Io { action, ref source, .. } if error.is_of_file() => {
            Ok(format!("can't {action} it: {}", describe(source)))
        }
        Error::Io { .. }
        | Error::Usage { .. }
        | Error::NoStore { .. }
        | Error::NotAStore { .. }
        | Error::NoAgent { .. }
        | Error::NoRecord { .. }
        | Error::Refused { .. }
        | Error::Busy { .. }
        | Error::Failed { .. } => Err(error),
    }
}

/// Returns the number of the line with the first git conflict marker, from 1.
pub fn conflict_marker(bytes: &[u8]) -> Option<usize> {
    let is_marker = |line: &[u8]| line.starts_with(b"<<<<<<< ") || line.starts_with(b">>>>>>> ");
    bytes.split(|byte| *byte == b'\n').position(is_marker).map(|at| at + 1)
}
