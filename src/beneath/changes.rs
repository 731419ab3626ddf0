//! Operations that change names beneath the state directory: making, renaming, removing.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Context, Result};

use super::{OWNERS_FILE, Spot, kind};

const OWNERS_DIR: Mode = Mode::RWXU;

impl Spot {
    /// Makes a directory that only its owner may use; the directory above it must exist. A directory that is
    /// there already is no error. Returns whether it is new.
    pub fn make_dir(&self) -> Result<bool> {
        let made = self.in_parent(|above, name| rustix::fs::mkdirat(above, name, OWNERS_DIR));
        match made {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) if self.is_dir()? => Ok(false),
            Err(errno) => Err(self.refused(errno, "make directory")),
        }
    }

    /// Makes a directory that only its owner may use, and every missing directory above it.
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

    /// Makes a named pipe that only its owner may use. If something has that name already, nothing changes.
    pub fn make_pipe(&self) -> Result<()> {
        let make =
            |above: &OwnedFd, name: &OsStr| rustix::fs::mknodat(above, name, FileType::Fifo, OWNERS_FILE, 0);
        match self.in_parent(make) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(self.refused(errno, "make")),
        }
    }

    /// Renames what lies here to `to`, and replaces what has that name. The inner error is the system's: the
    /// caller decides what it means.
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

    /// Renames what lies here to `to`, whose directory the caller has open as `dir`. Fails if nothing lies
    /// here.
    pub fn rename_into(&self, dir: &File, to: &Spot) -> Result<()> {
        match self.in_parent(|from_dir, from| rustix::fs::renameat(from_dir, from, dir, to.name())) {
            Err(Errno::LOOP | Errno::XDEV) => Err(self.refused(Errno::LOOP, "rename")),
            renamed => renamed.context("rename to", &to.path),
        }
    }

    /// Renames what lies here to `to`, and replaces what has that name. Fails if nothing lies here.
    pub fn rename(&self, to: &Spot) -> Result<()> {
        self.try_rename(to)?.context("rename to", &to.path)
    }

    /// Removes anything but a directory: a file, a link, a pipe. If nothing lies here, that is no error.
    pub fn remove(&self) -> Result<()> {
        self.unlink(AtFlags::empty())
    }

    /// Removes an empty directory. If nothing lies here, that is no error.
    pub fn remove_dir(&self) -> Result<()> {
        self.unlink(AtFlags::REMOVEDIR)
    }

    fn unlink(&self, how: AtFlags) -> Result<()> {
        match self.in_parent(|above, name| rustix::fs::unlinkat(above, name, how)) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.refused(errno, "remove")),
        }
    }

    /// Removes whatever lies here, a directory with everything in it. No symbolic link is followed.
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

    /// Sets the permissions of what lies here, if anything does. A symbolic link has none and stays as it is.
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
        // The kernel changes no mode through an O_PATH descriptor, only through its name in /proc/self/fd.
        let own = format!("/proc/self/fd/{}", found.as_raw_fd());
        rustix::fs::chmod(own, Mode::from_raw_mode(mode)).context("change the mode of", &self.path)
    }
}
