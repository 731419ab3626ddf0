//! Checks of the file system of the state directory, and of the effect of locks there.
//!
//! A file system that several machines share has no fencing: a machine that was cut off continues
//! its turn while another machine takes the agent over. So only one machine may tick there
//! (contract, special cases).

use std::fs::File;
use std::path::Path;

use crate::cap_fs::CapPath;
use crate::error::{Error, Result};
use crate::local::{StateDir, layout, lock, machine};

use super::{Finding, Remedy};

/// File systems that several machines share, and the reach of their locks.
const SHARED: &[(&str, Reach)] = &[
    ("nfs", Reach::UnlessMountedSo(&["nolock", "local_lock=all", "local_lock=flock"])),
    ("nfs4", Reach::UnlessMountedSo(&["local_lock=all", "local_lock=flock"])),
    ("cifs", Reach::UnlessMountedSo(&["nobrl"])),
    ("smb3", Reach::UnlessMountedSo(&["nobrl"])),
    ("ceph", Reach::UnlessMountedSo(&[])),
    ("fuse.ceph", Reach::UnlessMountedSo(&[])),
    ("fuse.ceph-fuse", Reach::UnlessMountedSo(&[])),
    ("fuse.glusterfs", Reach::UnlessMountedSo(&[])),
    ("gfs2", Reach::UnlessMountedSo(&["localflocks"])),
    ("ocfs2", Reach::UnlessMountedSo(&["localflocks"])),
    ("lustre", Reach::UnlessMountedSo(&["localflock", "noflock"])),
    ("beegfs", Reach::UnlessMountedSo(&[])),
    ("afs", Reach::UnlessMountedSo(&[])),
    ("fuse.sshfs", Reach::Never),
    ("fuse.rclone", Reach::Never),
    ("fuse.s3fs", Reach::Never),
    ("fuse.gcsfuse", Reach::Never),
    ("9p", Reach::Never),
    ("virtiofs", Reach::Never),
    ("vboxsf", Reach::Never),
    ("prl_fs", Reach::Never),
];

/// Reach of a file lock on a kind of file system.
#[derive(Debug, Clone, Copy)]
enum Reach {
    /// Locks act between all machines, unless the file system is mounted with one of these options.
    UnlessMountedSo(&'static [&'static str]),
    /// Locks never act between machines, only between processes of one machine.
    Never,
}

impl StateDir {
    /// Checks the file system of the state directory.
    pub(super) fn place(&self) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        if let Some(message) = machine::mount_of(self.anchor.path()).and_then(|mount| shared(&mount)) {
            findings.push(Finding::new(self.cap(), "shared_file_system", message, Remedy::ONE_TICKER));
        }
        if let Some(message) = locks_fail(&self.cap())? {
            findings.push(Finding::new(self.cap(), "locks", message, Remedy::NONE));
        }
        Ok(findings)
    }
}

/// True if other machines may write to the directory without a notification on this machine. Also
/// true if the kernel does not name the file system, and for every FUSE file system.
pub fn may_be_shared(dir: &Path) -> bool {
    let mount = machine::mount_of(dir);
    let kind = mount.as_deref().and_then(|mount| mount.split_once(" - ")?.1.split(' ').next());
    kind.is_none_or(|kind| kind.starts_with("fuse") || SHARED.iter().any(|(name, _)| *name == kind))
}

/// Returns the problem of a mount that several machines share, from its line in mountinfo
/// (proc(5)).
fn shared(mount: &str) -> Option<String> {
    let (place, what) = mount.split_once(" - ")?;
    let mut what = what.split(' ');
    let (kind, of_all) = (what.next()?, what.nth(1).unwrap_or_default());
    let (_, reach) = SHARED.iter().find(|(name, _)| *name == kind)?;
    let mut options = place.split(' ').nth(5).unwrap_or_default().split(',').chain(of_all.split(','));
    let local = match reach {
        Reach::Never => Some(String::new()),
        Reach::UnlessMountedSo(local) => {
            options.find(|option| local.contains(option)).map(|option| format!(" with `{option}`"))
        }
    };
    Some(match local {
        Some(so) => format!(
            "it lies on {kind}{so}, where no machine sees the locks of another: two that change an agent at once lose \
             records, and two that tick run a turn twice"
        ),
        None => format!(
            "it lies on {kind}, which other machines may share: their locks are seen only while its server answers, so \
             a machine that was cut off continues a turn that another one runs again"
        ),
    })
}

/// Returns the reason why locks have no effect here, if any: a held lock must be refused to a
/// second descriptor, as to another process.
fn locks_fail(root: &CapPath) -> Result<Option<String>> {
    let settings = root.join(layout::CONFIG);
    let file = || Ok(settings.open_in_place()?.map(|(file, _)| file));
    let dir = || root.open_dir();
    for (what, one, other) in [("a file", file(), file()), ("a directory", dir(), dir())] {
        // A user who may not open the file or directory can't test its lock.
        let (Ok(Some(one)), Ok(Some(other))) = (one, other) else { continue };
        if let Some(why) = fails(&one, &other, root) {
            return Ok(Some(format!("the lock of {what} {why}: nothing here keeps two commands apart")));
        }
    }
    Ok(None)
}

fn fails(one: &File, other: &File, at: &CapPath) -> Option<String> {
    let attempt = |file| lock::try_hold(file, at).map_err(|error: Error| format!("can't be had: {error}"));
    match (attempt(one), attempt(other)) {
        (Err(why), _) | (_, Err(why)) => Some(why),
        (Ok(true), Ok(true)) => Some("was given to two at once".to_owned()),
        (Ok(_), Ok(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cap_fs::at;

    #[test]
    fn a_shared_file_system_is_reported_with_the_effect_of_its_locks() {
        for (mount, wanted) in [
            (
                "36 35 0:43 / /srv rw,relatime shared:1 - nfs4 host:/srv rw,vers=4.2,local_lock=none",
                Some("server answers"),
            ),
            (
                "36 35 0:43 / /srv rw - nfs4 host:/srv rw,vers=4.2,local_lock=all,addr=::1",
                Some("with `local_lock=all`"),
            ),
            (
                "36 35 0:43 / /srv rw - nfs host:/a\\040b rw,vers=3,nolock,local_lock=all",
                Some("with `nolock`"),
            ),
            ("36 35 0:43 / /srv rw - cifs //host/srv rw,nobrl", Some("with `nobrl`")),
            ("36 35 0:43 / /srv rw - ceph 10.0.0.1:/ rw,acl", Some("lies on ceph, which")),
            (
                "36 35 0:43 / /srv rw master:1 propagate_from:2 - fuse.sshfs me@host:/ rw",
                Some("no machine sees"),
            ),
            ("36 35 8:1 / /srv rw,local_lock=all - ext4 /dev/sda1 rw", None),
            ("36 35 0:43 / /srv rw - tmpfs tmpfs rw", None),
            ("36 35 0:43 / /srv rw", None),
            ("36 35 0:43 / /srv rw - ", None),
            ("", None),
        ] {
            match (shared(mount), wanted) {
                (Some(message), Some(wanted)) => assert!(message.contains(wanted), "{mount}: {message}"),
                (found, wanted) => assert_eq!(found.as_deref(), wanted, "{mount}"),
            }
        }
    }

    #[test]
    fn locks_hold_where_the_tests_run() {
        let dir = tempfile::tempdir().unwrap();
        assert!(machine::mount_of(dir.path()).is_some());
        let root = at(dir.path());
        std::fs::write(dir.path().join(layout::CONFIG), "").unwrap();
        assert_eq!(locks_fail(&root).unwrap(), None);
        assert!(may_be_shared(Path::new("/nowhere")) && !may_be_shared(Path::new("/proc")));
        let held = root.open_dir().unwrap().unwrap();
        assert!(lock::try_hold(&held, &root).unwrap());
        assert_eq!(locks_fail(&root).unwrap(), None, "somebody else has it");
        let copy = held.try_clone().unwrap();
        let why = fails(&held, &copy, &root).unwrap();
        assert!(why.contains("two at once"), "one descriptor is as a lock that keeps nobody out: {why}");
    }
}
