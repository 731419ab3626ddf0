//! Scratch directories: nothing that lies in one is needed, so nothing in one stops a command, of
//! whatever kind it is.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType};

use crate::error::{Error, Result};

use super::{Spot, describe, kind};

impl Spot {
    /// The same place as a scratch directory: nothing that lies in it is needed. Where something of
    /// the wrong kind, or something that this user can't open, is in the way here or further down,
    /// a reader finds nothing, and a writer removes it, tells the user, and goes on.
    pub fn scratch(self) -> Spot {
        let scratch = Some(self.path.as_os_str().len());
        Spot { scratch, ..self }
    }

    pub(super) fn is_scratch(&self) -> bool {
        self.scratch.is_some_and(|scratch| self.path.as_os_str().len() >= scratch)
    }

    /// The answer of a reader that has met `error`: nothing lies here if this is in a scratch
    /// directory and the fault is that of the file.
    pub(super) fn unless_scratch<T>(&self, error: Error) -> Result<Option<T>> {
        if self.is_scratch() && error.is_of_file() { Ok(None) } else { Err(error) }
    }

    /// Does `act` once more if its error comes from what is in the way in a scratch directory,
    /// without that.
    pub(super) fn or_clear<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        match act() {
            Err(error) if self.is_scratch() && error.is_of_file() => {
                self.clear_way();
                act()
            }
            done => done,
        }
    }

    /// Removes the first thing that is in the way of a file at this place of a scratch directory:
    /// something else than a directory above it, and whatever lies at the place itself.
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
                    // One that its owner closed is in the way as well.
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

    /// Makes room for `new`, a file or a directory, if what lies here in a scratch directory is the
    /// other of the two.
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

    /// Removes what lies here if it is of this kind.
    fn remove_kind(&self, found: FileType) -> Result<()> {
        if found == FileType::Directory {
            return self.remove_tree();
        }
        let unlink = |above: &OwnedFd, name: &OsStr| rustix::fs::unlinkat(above, name, AtFlags::empty());
        self.in_parent(unlink).map_err(|errno| self.refused(errno, "remove"))
    }
}
