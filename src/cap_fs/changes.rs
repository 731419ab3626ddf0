//! Operations that change paths below the state directory: create, rename, remove.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use crate::error::{IoContext, Result};

use super::{CapPath, OWNERS_FILE, PLAIN, kind};

/// Users who may access a new file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Access only for the user who creates the file or directory.
    Owner,
    /// Access also for the group of the parent directory. Members of that group may read a new
    /// file, and may add files to a new directory and remove files from it.
    Group,
}

impl Access {
    const fn file(self) -> Mode {
        match self {
            Access::Owner => OWNERS_FILE,
            Access::Group => OWNERS_FILE.union(Mode::RGRP),
        }
    }

    const fn dir(self) -> Mode {
        match self {
            Access::Owner => Mode::RWXU,
            Access::Group => Mode::RWXU.union(Mode::RWXG),
        }
    }

    /// Calls `make`, which creates a file, with a umask that removes no permissions of the group. A
    /// later chmod would be too late: if the command of a group member were killed before it, the
    /// owner of the state directory could not open the leftover file.
    fn make<T>(self, make: impl FnOnce() -> T) -> T {
        match self {
            Access::Owner => make(),
            Access::Group => {
                let before = rustix::process::umask(Mode::RWXO);
                let made = make();
                rustix::process::umask(before);
                made
            }
        }
    }
}

impl CapPath {
    /// Creates a new, empty file that only its owner may use, open for reading and writing. Removes
    /// an existing file first, because its content could be shared with another path (hard link).
    pub fn create(&self) -> Result<File> {
        self.create_for(Access::Owner)
    }

    /// Creates a new, empty file like [`CapPath::create`], for the users in `access`.
    pub fn create_for(&self, access: Access) -> Result<File> {
        self.root.check_may_change()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | PLAIN;
        let open = || access.make(|| self.open(flags, access.file()));
        let made = self.or_clear(|| {
            let made = match open() {
                Err(Errno::EXIST) => {
                    self.remove()?;
                    open()
                }
                made => made,
            };
            made.map_err(|errno| self.refused(errno, "create"))
        });
        let file = File::from(made?);
        let made = rustix::fs::fstat(&file).and_then(|found| give_mode(&file, found.st_mode, access.file()));
        made.context("change the mode of", &self.path)?;
        Ok(file)
    }

    /// Creates a directory that only its owner may use. The parent must exist. Returns true if the
    /// directory is new.
    pub fn make_dir(&self) -> Result<bool> {
        self.make_dir_for(Access::Owner)
    }

    /// Creates a directory like [`CapPath::make_dir`], for the users in `access`.
    pub fn make_dir_for(&self, access: Access) -> Result<bool> {
        self.root.check_may_change()?;
        self.or_clear(|| match self.mkdir(access) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) if self.is_dir()? => Ok(false),
            Err(errno) => Err(self.refused(errno, "make directory")),
        })
    }

    /// Creates a directory that only its owner may use, and missing parents, except those that
    /// [`CapPath::existing`] marks as required.
    pub fn make_dirs(&self) -> Result<()> {
        match self.make_dir() {
            Err(error) if error.is_not_found() && self.path != self.root.path => {
                self.parent().make_dirs()?;
                self.make_dir().map(drop)
            }
            made => made.map(drop),
        }
    }

    fn mkdir(&self, access: Access) -> rustix::io::Result<()> {
        if self.path.as_os_str().len() <= self.existing {
            return Err(if self.glance().is_ok_and(|found| found.is_some()) {
                Errno::EXIST
            } else {
                Errno::NOENT
            });
        }
        let make = |above: &OwnedFd, name: &OsStr| {
            rustix::fs::mkdirat(above, name, access.dir())?;
            let moded =
                rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW).and_then(
                    |found| match wanted_mode(found.st_mode, access.dir()) {
                        Some(mode) => rustix::fs::chmodat(above, name, mode, AtFlags::empty()),
                        None => Ok(()),
                    },
                );
            match moded {
                // Another command has taken the new directory for a stale one and removed it; the
                // caller detects that later.
                Err(Errno::NOENT) => Ok(()),
                moded => moded,
            }
        };
        access.make(|| self.in_parent(make))
    }

    /// Creates a named pipe that only its owner may use. Changes nothing if the path exists.
    pub fn make_pipe(&self) -> Result<()> {
        self.root.check_may_change()?;
        let make =
            |above: &OwnedFd, name: &OsStr| rustix::fs::mknodat(above, name, FileType::Fifo, OWNERS_FILE, 0);
        match self.in_parent(make) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(self.refused(errno, "make")),
        }
    }

    /// Renames this path to `to`, and replaces an existing file at `to`. The inner result is that
    /// of the system call, which the caller interprets.
    pub fn try_rename(&self, to: &CapPath) -> Result<rustix::io::Result<()>> {
        self.rename_by(to, |from_dir, from, to_dir, name| rustix::fs::renameat(from_dir, from, to_dir, name))
    }

    /// Calls `rename` with the open parent directories and the names of both paths. The inner error
    /// is that of the system; a link, or a file in place of a directory, is an outer error.
    fn rename_by(
        &self,
        to: &CapPath,
        rename: impl FnOnce(&OwnedFd, &OsStr, &OwnedFd, &OsStr) -> rustix::io::Result<()>,
    ) -> Result<rustix::io::Result<()>> {
        self.root.check_may_change()?;
        to.clear_if_unlike(self)?;
        let renamed = self.in_parent(|from_dir, from| {
            if self.path.parent() == to.path.parent() {
                return rename(from_dir, from, from_dir, to.name());
            }
            to.in_parent(|to_dir, name| rename(from_dir, from, to_dir, name))
        });
        match renamed {
            Err(Errno::LOOP | Errno::XDEV | Errno::NOTDIR) => {
                let blamed = if self.parent().is_dir().is_ok_and(|is_dir| is_dir) { to } else { self };
                Err(blamed.refused(Errno::LOOP, "rename to"))
            }
            renamed => Ok(renamed),
        }
    }

    /// Renames this path to `to`. The caller has the parents of both open, whatever their paths are
    /// by now. Fails if this path does not exist.
    pub fn rename_between(&self, from_dir: &File, to_dir: &File, to: &CapPath) -> Result<()> {
        self.root.check_may_change()?;
        to.clear_if_unlike(self)?;
        rustix::fs::renameat(from_dir, self.name(), to_dir, to.name()).context("rename to", &to.path)
    }

    /// Renames this path to `to`, and replaces a file at `to`. Fails if this path does not exist.
    pub fn rename(&self, to: &CapPath) -> Result<()> {
        self.try_rename(to)?.context("rename to", &to.path)
    }

    /// Replaces `other` by this file: exchanges the names in one call and removes the old file,
    /// because a plain rename over a file makes ext4 write the new content immediately. After this
    /// call only content that was synced before is durable. The inner error is that of the system.
    pub fn replace(&self, other: &CapPath) -> Result<rustix::io::Result<()>> {
        self.rename_by(other, |from_dir, from, to_dir, name| {
            let exchange = || rustix::fs::renameat_with(from_dir, from, to_dir, name, RenameFlags::EXCHANGE);
            if exchange().is_err() {
                // `other` does not exist, or the file system can't exchange names.
                return rustix::fs::renameat(from_dir, from, to_dir, name);
            }
            rustix::fs::unlinkat(from_dir, from, AtFlags::empty()).inspect_err(|_| {
                // `other` is a directory, which no file replaces, so both names are put back.
                let _ = exchange();
            })
        })
    }

    /// Exchanges the names of two files or directories in one call. The inner error is that of the
    /// system, for example if the file system can't exchange names.
    pub fn try_exchange(&self, other: &CapPath) -> Result<rustix::io::Result<()>> {
        self.rename_by(other, |from_dir, from, to_dir, name| {
            rustix::fs::renameat_with(from_dir, from, to_dir, name, RenameFlags::EXCHANGE)
        })
    }

    /// Renames this path to `to`, unless `to` exists. Returns true if the path was renamed.
    pub fn rename_if_free(&self, to: &CapPath) -> Result<bool> {
        let renamed = self.rename_by(to, |from_dir, from, to_dir, name| {
            rustix::fs::renameat_with(from_dir, from, to_dir, name, RenameFlags::NOREPLACE)
        });
        match renamed? {
            Ok(()) => Ok(true),
            Err(Errno::EXIST | Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.refused(errno, "move")),
        }
    }

    /// Sets the modification time of a directory, in seconds since 1970. The next change in the
    /// directory sets the present time again. Returns false if another user owns the directory.
    pub fn set_changed(&self, seconds: i64) -> Result<bool> {
        self.root.check_may_change()?;
        let at = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: at, last_modification: at };
        let set = self
            .in_parent(|above, name| rustix::fs::utimensat(above, name, &times, AtFlags::SYMLINK_NOFOLLOW));
        match set {
            Ok(()) => Ok(true),
            Err(Errno::PERM | Errno::ACCESS) => Ok(false),
            Err(errno) => Err(self.refused(errno, "set the time of")),
        }
    }

    /// Gives this directory the owner, group and permissions of `other`. Returns false if this user
    /// may not do that, or if `other` also has an access control list (ACL), which is not copied.
    pub fn copy_owner_from(&self, other: &CapPath) -> Result<bool> {
        self.root.check_may_change()?;
        let (Some(new), Some(old)) = (self.open_dir()?, other.open_dir()?) else { return Ok(false) };
        let (new_stat, old_stat) = (
            rustix::fs::fstat(&new).context("look at", &self.path)?,
            rustix::fs::fstat(&old).context("look at", &other.path)?,
        );
        if has_access_list(&old) {
            return Ok(false);
        }
        if (new_stat.st_uid, new_stat.st_gid) != (old_stat.st_uid, old_stat.st_gid) {
            let (owner, group) = (Uid::from_raw(old_stat.st_uid), Gid::from_raw(old_stat.st_gid));
            if rustix::fs::fchown(&new, Some(owner), Some(group)).is_err() {
                return Ok(false);
            }
        }
        rustix::fs::fchmod(&new, Mode::from_raw_mode(old_stat.st_mode))
            .context("change the mode of", &self.path)?;
        Ok(true)
    }

    /// Removes a file, link, pipe or other path that is no directory. Idempotent.
    pub fn remove(&self) -> Result<()> {
        self.unlink(AtFlags::empty())
    }

    /// Removes an empty directory. Idempotent.
    pub fn remove_dir(&self) -> Result<()> {
        self.unlink(AtFlags::REMOVEDIR)
    }

    fn unlink(&self, how: AtFlags) -> Result<()> {
        self.root.check_may_change()?;
        match self.in_parent(|above, name| rustix::fs::unlinkat(above, name, how)) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR) if self.is_scratch() => self.remove_tree(),
            Err(errno) => self.unless_scratch::<()>(self.refused(errno, "remove")).map(drop),
        }
    }

    /// Removes a path of any kind, and the content of a directory. Follows no symbolic link.
    pub fn remove_tree(&self) -> Result<()> {
        let Some(found) = self.look()?.filter(|found| kind(found) == FileType::Directory) else {
            return self.remove();
        };
        if self.is_scratch() && found.st_mode & 0o700 != 0o700 {
            self.set_mode(0o700)?;
        }
        for entry in self.entries()? {
            let within = self.join(&entry.name);
            if entry.is_dir { within.remove_tree()? } else { within.remove()? }
        }
        self.remove_dir()
    }

    /// Sets the permissions of a file or directory, if the path exists. A symbolic link has no
    /// permissions and is not changed.
    pub fn set_mode(&self, mode: u32) -> Result<()> {
        self.change("change the mode of", |own| rustix::fs::chmod(own, Mode::from_raw_mode(mode)))
    }

    /// Sets the group of a file or directory, if the path exists. A symbolic link is not changed.
    pub fn set_group(&self, group: u32) -> Result<()> {
        let group = Some(Gid::from_raw(group));
        self.change("change the group of", |own| rustix::fs::chown(own, None, group))
    }

    /// Calls `change` with a path of this file or directory in /proc/self/fd, because the kernel
    /// does not change permissions through an O_PATH descriptor itself. Does nothing if the path
    /// does not exist or is a symbolic link.
    fn change(
        &self,
        action: &'static str,
        change: impl FnOnce(&str) -> rustix::io::Result<()>,
    ) -> Result<()> {
        self.root.check_may_change()?;
        let found = match self.open(OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(self.refused(errno, action)),
        };
        let stat = rustix::fs::fstat(&found).context("look at", &self.path)?;
        if kind(&stat) == FileType::Symlink {
            return Ok(());
        }
        change(&format!("/proc/self/fd/{}", found.as_raw_fd())).context(action, &self.path)
    }
}

/// Returns the mode for a new file or directory of mode `found` with all permissions of `wanted`;
/// `None` if `found` has them. The umask or the parent directory's access control list may have
/// removed permissions from a new file.
fn wanted_mode(found: u32, wanted: Mode) -> Option<Mode> {
    let found = Mode::from_raw_mode(found);
    (!found.contains(wanted)).then(|| (found & (Mode::SUID | Mode::SGID | Mode::SVTX)) | wanted)
}

/// Adds wanted permissions that a new file of mode `found` lacks.
pub fn give_mode(file: &File, found: u32, wanted: Mode) -> rustix::io::Result<()> {
    wanted_mode(found, wanted).map_or(Ok(()), |mode| rustix::fs::fchmod(file, mode))
}

/// Moves a file from one open directory into another under the same name. The inner error is that
/// of the system.
pub fn move_file(from: &File, to: &File, name: &OsStr) -> rustix::io::Result<()> {
    rustix::fs::renameat(from, name, to, name)
}

/// True if a directory has an access control list (ACL), which a new directory would not get.
fn has_access_list(dir: &File) -> bool {
    let mut names = [0; 4096];
    match rustix::fs::flistxattr(dir, &mut names) {
        Ok(length) => names[..length].split(|byte| *byte == 0).any(|name| name.starts_with(b"system.")),
        // The file system supports no access lists.
        Err(Errno::NOTSUP | Errno::NOSYS) => false,
        Err(_) => true,
    }
}
