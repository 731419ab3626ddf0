//! What changes names beneath the state directory: making, renaming, removing.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Context, Result};

use super::{OWNERS_FILE, Spot, kind};

const OWNERS_DIR: Mode = Mode::RWXU;

impl Spot {
    /// Makes a directory for the owner alone, in one that is there. One that is there already will do.
    /// Returns whether it is new.
    pub fn make_dir(&self) -> Result<bool> {
        let made = self.in_parent(|above, name| rustix::fs::mkdirat(above, name, OWNERS_DIR));
        match made {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) if self.is_dir()? => Ok(false),
            Err(errno) => Err(self.refused(errno, "make directory")),
        }
    }

    /// The same, and those above it that are missing.
    pub fn make_dirs(&self) -> Result<()> {
        let made = self.in_parent(|above, name| rustix::fs::mkdirat(above, name, OWNERS_DIR));
        match made {
            Err(Errno::NOENT) if self.path != self.root.path => {
                self.parent().make_dirs()?;
                self.make_dir().map(drop)
            }
            Ok(()) => Ok(()),
            Err(Errno::EXIST) if self.is_dir()? => Ok(()),
            Err(errno) => Err(self.refused(errno, "make directory")),
        }
    }

    /// Makes a named pipe for the owner alone. One that is there already will do.
    pub fn make_pipe(&self) -> Result<()> {
        let make =
            |above: &OwnedFd, name: &OsStr| rustix::fs::mknodat(above, name, FileType::Fifo, OWNERS_FILE, 0);
        match self.in_parent(make) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(self.refused(errno, "make")),
        }
    }

    /// Gives what lies here another name; what had that name before is gone. The inner error is the system's.
    pub fn try_rename(&self, to: &Spot) -> Result<rustix::io::Result<()>> {
        let renamed = self.in_parent(|from_dir, from| {
            if self.path.parent() == to.path.parent() {
                return rustix::fs::renameat(from_dir, from, from_dir, to.name());
            }
            to.in_parent(|to_dir, name| rustix::fs::renameat(from_dir, from, to_dir, name))
        });
        match renamed {
            Err(Errno::LOOP | Errno::XDEV | Errno::NOTDIR) => {
                let blamed = if self.parent().is_dir().is_ok_and(|is_dir| is_dir) { to } else { self };
                Err(blamed.refused(Errno::LOOP, "rename to"))
            }
            renamed => Ok(renamed),
        }
    }

    /// The same for whoever has the directory of the new name open. What lies here must be there.
    pub fn rename_into(&self, dir: &File, to: &Spot) -> Result<()> {
        match self.in_parent(|from_dir, from| rustix::fs::renameat(from_dir, from, dir, to.name())) {
            Err(Errno::LOOP | Errno::XDEV) => Err(self.refused(Errno::LOOP, "rename")),
            renamed => renamed.context("rename to", &to.path),
        }
    }

    /// The same. What lies here must be there.
    pub fn rename(&self, to: &Spot) -> Result<()> {
        self.try_rename(to)?.context("rename to", &to.path)
    }

    /// Removes a file, a link, a pipe, whatever is no directory. What is not there is removed already.
    pub fn remove(&self) -> Result<()> {
        self.unlink(AtFlags::empty())
    }

    /// Removes a directory that is empty. One that is not there is removed already.
    pub fn remove_dir(&self) -> Result<()> {
        self.unlink(AtFlags::REMOVEDIR)
    }

    fn unlink(&self, how: AtFlags) -> Result<()> {
        match self.in_parent(|above, name| rustix::fs::unlinkat(above, name, how)) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.refused(errno, "remove")),
        }
    }

    /// Removes a directory and all that is in it, following nothing; or whatever else lies here.
    pub fn remove_tree(&self) -> Result<()> {
        if !self.is_dir()? {
            return self.remove();
        }
        for entry in self.entries()? {
            let within = self.join(&entry.name);
            if entry.is_dir { within.remove_tree()? } else { within.remove()? }
        }
        self.remove_dir()
    }

    /// Gives what lies here other permissions. A symbolic link has none.
    pub fn set_mode(&self, mode: u32) -> Result<()> {
        let found = match self.open(OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(self.refused(errno, "change the mode of")),
        };
        let stat = rustix::fs::fstat(&found).context("look at", &self.path)?;
        if kind(&stat) == FileType::Symlink {
            return Ok(());
        }
        // A descriptor of this sort has no mode to change; its name among the process's own leads to what it is of.
        let own = format!("/proc/self/fd/{}", found.as_raw_fd());
        rustix::fs::chmod(own, Mode::from_raw_mode(mode)).context("change the mode of", &self.path)
    }
}
