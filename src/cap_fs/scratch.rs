//! Scratch directories: their content may be deleted at any time, so a file of a wrong kind in one
//! of them never stops a command.

use std::iter::successors;

use rustix::fs::FileType;

use crate::error::{Error, Result};

use super::{CapPath, describe, kind};

impl CapPath {
    /// Marks the path as a scratch directory, whose content may be deleted. If a path of the wrong
    /// kind or without permission blocks this path or a path below it, a reader returns nothing,
    /// and a writer removes the blocking path and reports the removal to the user.
    pub fn scratch(self) -> CapPath {
        let scratch = Some(self.path.as_os_str().len());
        CapPath { scratch, ..self }
    }

    pub(super) fn is_scratch(&self) -> bool {
        self.scratch.is_some_and(|scratch| self.path.as_os_str().len() >= scratch)
    }

    /// Returns `None` if a file in a scratch directory causes `error`, so that a reader takes the
    /// file for missing. Returns any other `error`.
    pub(super) fn unless_scratch<T>(&self, error: Error) -> Result<Option<T>> {
        if self.is_scratch() && error.is_of_file() { Ok(None) } else { Err(error) }
    }

    /// Runs `act`. If a file in a scratch directory blocks the path, removes that file and runs
    /// `act` again.
    pub(super) fn or_clear<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        match act() {
            Err(error) if self.is_scratch() && error.is_of_file() => {
                self.clear_way();
                act()
            }
            done => done,
        }
    }

    /// Removes the first file that blocks this path in a scratch directory: a parent that is no
    /// directory, or a file of any type at the path itself.
    fn clear_way(&self) {
        let Some(scratch) = self.scratch else { return };
        let is_below = |cap: &CapPath| cap.path.as_os_str().len() > scratch;
        let upwards = successors(Some(self.clone()), |cap| is_below(cap).then(|| cap.parent()));
        let mut above: Vec<CapPath> = upwards.collect();
        while let Some(cap) = above.pop() {
            match cap.read_stat() {
                Ok(Some(found)) if kind(&found) == FileType::Directory && !above.is_empty() => {
                    // A parent directory without permissions for its owner blocks the path, too.
                    if found.st_mode & 0o700 != 0o700 {
                        let _ = cap.set_mode(0o700);
                    }
                }
                Ok(Some(found)) => {
                    let _ = cap.remove_tree();
                    if let (Ok(None), Some(tell)) = (cap.read_stat(), self.root.tell.get()) {
                        let found = describe(kind(&found));
                        tell(&format!(
                            "{}: {found} was in the way of a cache, and is removed",
                            cap.display()
                        ));
                    }
                    return;
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Removes this scratch path if `new` can't be renamed to it, because only one is a directory.
    pub(super) fn clear_if_unlike(&self, new: &CapPath) -> Result<()> {
        if !self.is_scratch() {
            return Ok(());
        }
        match self.read_stat() {
            Ok(None) => {}
            Ok(Some(found)) if (kind(&found) == FileType::Directory) == new.is_dir()? => {}
            Ok(Some(_)) => self.clear_way(),
            Err(error) if error.is_of_file() => self.clear_way(),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
