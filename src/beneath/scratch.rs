//! Scratch directories: their content is expendable, so that nothing in one, of any kind, stops a
//! command.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType};

use crate::error::{Error, Result};

use super::{Spot, describe, kind};

impl Spot {
    /// Marks the path as a scratch directory, whose content is expendable. If something of the
    /// wrong kind, or something that this user can't open, blocks this path or one below it, a
    /// reader finds nothing, and a writer removes it and reports that to the user.
    pub fn scratch(self) -> Spot {
        let scratch = Some(self.path.as_os_str().len());
        Spot { scratch, ..self }
    }

    pub(super) fn is_scratch(&self) -> bool {
        self.scratch.is_some_and(|scratch| self.path.as_os_str().len() >= scratch)
    }

    /// Returns `None` for a reader's `error` if this is in a scratch directory and the error comes
    /// from the file.
    pub(super) fn unless_scratch<T>(&self, error: Error) -> Result<Option<T>> {
        if self.is_scratch() && error.is_of_file() { Ok(None) } else { Err(error) }
    }

    /// Runs `act`, and once more if its error comes from a blocking file in a scratch directory,
    /// after removing that.
    pub(super) fn or_clear<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        match act() {
            Err(error) if self.is_scratch() && error.is_of_file() => {
                self.clear_way();
                act()
            }
            done => done,
        }
    }

    /// Removes the first thing that blocks a file at this path of a scratch directory: anything but
    /// a directory above it, and anything at the path itself.
    fn clear_way(&self) {
        let Some(scratch) = self.scratch else { return };
        let mut above: Vec<Spot> = Vec::new();
        let mut spot = self.clone();
        while spot.path.as_os_str().len() > scratch {
            let parent = spot.parent();
            above.push(std::mem::replace(&mut spot, parent));
        }
        above.push(spot);
        while let Some(spot) = above.pop() {
            match spot.plain_look() {
                Ok(Some(found)) if kind(&found) == FileType::Directory && !above.is_empty() => {
                    // A directory that its owner has closed blocks the path, too.
                    if found.st_mode & 0o700 != 0o700 {
                        let _ = spot.set_mode(0o700);
                    }
                }
                Ok(Some(found)) => {
                    let found = kind(&found);
                    if spot.remove_kind(found).is_ok()
                        && let Some(tell) = self.root.tell.get()
                    {
                        tell(&format!(
                            "{}: {} was in the way of a cache, and is removed",
                            spot.display(),
                            describe(found)
                        ));
                    }
                    return;
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Removes this from a scratch directory, if only one of this and `new` is a directory.
    pub(super) fn clear_if_unlike(&self, new: &Spot) -> Result<()> {
        if !self.is_scratch() {
            return Ok(());
        }
        match self.plain_look() {
            Ok(None) => {}
            Ok(Some(found)) if (kind(&found) == FileType::Directory) == new.is_dir()? => {}
            Ok(Some(_)) => self.clear_way(),
            Err(error) if error.is_of_file() => self.clear_way(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes a file or directory of this type.
    fn remove_kind(&self, found: FileType) -> Result<()> {
        if found == FileType::Directory {
            return self.remove_tree();
        }
        let unlink = |above: &OwnedFd, name: &OsStr| rustix::fs::unlinkat(above, name, AtFlags::empty());
        self.in_parent(unlink).map_err(|errno| self.refused(errno, "remove"))
    }
}
