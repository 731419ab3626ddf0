//! The lock of a clone's index, compatible with git's. Its content shows that this program made it,
//! so that a later command can remove the lock of a killed process. Only a person can judge a lock
//! of git itself.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::PAUSE;
use crate::error::{Error, IoContext, Result};

/// Content of this program's lock. Git's is empty, or an index.
const OURS: &[u8] = b"dormouse\n";

/// Lock of the index, removed when dropped. No git changes the index meanwhile.
pub(super) struct IndexLock {
    path: PathBuf,
    /// Locked file, so that others see that its process lives.
    _file: File,
}

impl IndexLock {
    /// Waits for the lock. `aside` is a path in the same directory at which this process alone
    /// creates it.
    pub(super) fn take(index: &Path, aside: &Path, patience: Duration) -> Result<IndexLock> {
        let path = path_of(index);
        let _ = fs::remove_file(aside);
        let mut file = File::options().write(true).create_new(true).open(aside).context("create", aside)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).context("lock", aside)?;
        file.write_all(OURS).context("write", aside)?;
        let start = Instant::now();
        let taken = loop {
            match fs::hard_link(aside, &path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && start.elapsed() < patience => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    break Err(busy(path.clone(), start));
                }
                linked => break linked.context("create", &path),
            }
            remove_abandoned(&path);
            std::thread::sleep(PAUSE);
        };
        let _ = fs::remove_file(aside);
        taken.map(|()| IndexLock { path, _file: file })
    }
}

impl Drop for IndexLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Waits until no process has locked the index.
pub(super) fn wait(index: &Path, patience: Duration) -> Result<()> {
    let (path, start) = (path_of(index), Instant::now());
    while path.symlink_metadata().is_ok() {
        if start.elapsed() >= patience {
            return Err(busy(path, start));
        }
        remove_abandoned(&path);
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn path_of(index: &Path) -> PathBuf {
    let mut lock = index.as_os_str().to_owned();
    lock.push(".lock");
    PathBuf::from(lock)
}

fn busy(path: PathBuf, start: Instant) -> Error {
    let holder = "another git, or one that was killed (then remove the file)".to_owned();
    Error::busy(path, holder, start.elapsed())
}

/// Removes a lock of this program whose process is gone. Any other file is kept.
fn remove_abandoned(path: &Path) {
    let Ok(mut file) = File::open(path) else { return };
    let mut said = [0; OURS.len() + 1];
    let is_ours = file.read(&mut said).is_ok_and(|length| said[..length] == *OURS);
    // While this process holds a lock on the file, no other command of this program replaces it.
    if !is_ours || flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    let ino = |found: std::io::Result<fs::Metadata>| found.ok().map(|found| (found.dev(), found.ino()));
    if ino(file.metadata()) == ino(path.symlink_metadata()) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_of_ours_has_locked_is_free_again() {
        let dir = tempfile::tempdir().unwrap();
        let (index, aside) = (dir.path().join("index"), dir.path().join("aside"));
        let lock = dir.path().join("index.lock");
        fs::write(&lock, OURS).unwrap();
        let held = IndexLock::take(&index, &aside, Duration::from_secs(1)).unwrap();
        assert!(lock.exists() && !aside.exists());
        // A held lock, git's lock, and anything but a file are kept.
        let soon = Duration::from_millis(30);
        assert!(matches!(wait(&index, soon), Err(Error::Busy { .. })));
        drop(held);
        assert!(!lock.exists());
        for other in [&b""[..], b"DIRC....", b"dormouse\nmore"] {
            fs::write(&lock, other).unwrap();
            assert!(matches!(IndexLock::take(&index, &aside, soon), Err(Error::Busy { .. })));
            assert!(wait(&index, soon).is_err() && lock.exists() && !aside.exists());
        }
    }
}
