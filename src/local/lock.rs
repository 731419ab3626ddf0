//! Locks that the kernel holds: each ends with the process that took it, however the process ends.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cap_fs::CapPath;
use crate::error::{Error, IoContext, Result};
use crate::model::id::AgentName;
use crate::model::json;
use crate::model::time::Time;

use super::{files, machine};

/// Process that holds a lock, as written into the lock file for messages to people. No decision
/// uses a field but `agent`: the agent that occupies a workspace or a `max_running` slot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    pub command: String,
    pub host: String,
    pub since: Time,
    /// Agent for which the lock is held, if the path of the lock does not name the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
}

impl Holder {
    /// True if the process is on this machine and stopped (SIGSTOP): it can't release the lock.
    pub fn is_stopped(&self) -> bool {
        self.host == machine::name() && machine::is_stopped(self.pid)
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` (pid {} on {}, since {})", self.command, self.pid, self.host, self.since)
    }
}

/// Held lock. Dropping this releases the lock; the file stays, so that all processes lock one file.
#[derive(Debug)]
pub struct LockGuard {
    file: File,
    cap: CapPath,
    /// Time that this process waited for the lock. `None` if the lock was free, or once `take_wait`
    /// has returned the time.
    waited: Cell<Option<Duration>>,
}

/// True if the path of a lock still leads to the file that was opened: another agent of the same
/// name may have replaced it meanwhile.
fn is_still_named(file: &File, cap: &CapPath) -> Result<bool> {
    let here = file.metadata().context("look at lock", cap)?;
    Ok(cap.look()?.is_some_and(|there| (there.st_dev, there.st_ino) == (here.dev(), here.ino())))
}

/// Tries once to take the lock through `file`, which was opened at `path`. Returns the file again
/// if another process has the lock, even for a check only.
fn take(mut file: File, path: &CapPath, holder: Option<&Holder>) -> Result<Result<LockGuard, File>> {
    while attempt(&file, Sharing::Exclusive, path)? {
        if is_still_named(&file, path)? {
            let held = LockGuard::of(file, path);
            holder.iter().for_each(|holder| held.sign(holder));
            return Ok(Ok(held));
        }
        (file, _) = files::open_or_create(path)?;
    }
    Ok(Err(file))
}

/// Takes the lock if it is free; returns `None` if another process holds it. A process that only
/// checks the lock ([`is_held`]) shares it for a moment, for which this function waits.
pub fn try_acquire(path: &CapPath, holder: Option<&Holder>) -> Result<Option<LockGuard>> {
    let (mut file, _) = files::open_or_create(path)?;
    for _ in 0..PROBE_TRIES {
        file = match take(file, path, holder)? {
            Ok(held) => return Ok(Some(held)),
            Err(file) => file,
        };
        // A shared lock is refused only while another process holds the lock exclusively.
        if !attempt(&file, Sharing::Shared, path)? {
            return Ok(None);
        }
        fs2::FileExt::unlock(&file).context("unlock", path)?;
        std::thread::sleep(BETWEEN_TRIES);
    }
    Ok(None)
}

/// Maximum number of tries for a lock. Another process that checks the lock may be stopped while it
/// holds the lock. Tries are counted rather than time, because on a busy machine the checking
/// processes are as slow as this one.
const PROBE_TRIES: u32 = 1000;

impl LockGuard {
    fn of(file: File, path: &CapPath) -> LockGuard {
        LockGuard { file, cap: path.clone(), waited: Cell::new(None) }
    }

    /// Returns at the first call the time that this process waited; `None` if the lock was free.
    pub fn take_wait(&self) -> Option<Duration> {
        self.waited.take()
    }

    /// Duplicates the lock for a child process. The lock is free once both processes have released
    /// it.
    pub fn share(&self) -> Result<File> {
        self.file.try_clone().context("share lock", &self.cap)
    }

    /// Writes into the lock file which process holds the lock.
    pub fn sign(&self, holder: &Holder) {
        // A failed write leaves the lock held: a reader then finds the former holder, or none.
        let Ok(mut line) = serde_json::to_vec(holder) else { return };
        line.push(b'\n');
        let _ = self.file.write_all_at(&line, 0);
        let _ = self.file.set_len(line.len() as u64);
    }
}

/// Takes over a lock that the parent process has shared. Error if `file` is not the lock file.
pub fn inherited(path: &CapPath, file: File, holder: &Holder) -> Result<LockGuard> {
    if !is_still_named(&file, path)? {
        return Err(Error::usage(format!("{} was not handed over as stdin", path.display())));
    }
    fs2::FileExt::try_lock_exclusive(&file).context("lock", path)?;
    let held = LockGuard::of(file, path);
    held.sign(holder);
    Ok(held)
}

/// Tries to lock an open file or directory. Returns false if another process has the lock.
pub fn try_hold(file: &File, path: &Path) -> Result<bool> {
    attempt(file, Sharing::Exclusive, path)
}

/// Locks an open file. Waits about a second for other processes, then fails with `busy`.
pub fn hold(file: &File, cap: &CapPath) -> Result<()> {
    let begun = Instant::now();
    if attempt_often(file, cap)? {
        return Ok(());
    }
    Err(Error::busy(cap.path(), "another process".to_owned(), begun.elapsed()))
}

/// Tries to lock a file or directory that other processes lock for a moment only.
fn attempt_often(file: &File, path: &Path) -> Result<bool> {
    for _ in 0..PROBE_TRIES {
        if attempt(file, Sharing::Exclusive, path)? {
            return Ok(true);
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    Ok(false)
}

/// Takes the lock of a directory. Returns `None` if another process has it.
pub fn try_dir(path: &CapPath) -> Result<Option<LockGuard>> {
    let dir = path.open_dir()?.ok_or_else(|| Error::gone("open", path))?;
    Ok(attempt(&dir, Sharing::Exclusive, path)?.then(|| LockGuard::of(dir, path)))
}

/// True if a process holds the lock exclusively, not only shared for a check. Creates no file.
pub fn is_held(path: &CapPath) -> Result<bool> {
    Ok(!would_get(path, Sharing::Shared)?)
}

/// Takes the lock, waiting at most `patience`. The timeout error names the holder of the lock.
pub fn acquire(path: &CapPath, holder: &Holder, patience: Duration) -> Result<LockGuard> {
    let (mut file, _) = files::open_or_create(path)?;
    let mut start = Instant::now();
    // Transactions last milliseconds, so the pauses between tries begin short and grow.
    let mut pause = Duration::from_micros(200);
    let mut has_waited = false;
    loop {
        file = match take(file, path, Some(holder))? {
            Ok(held) => {
                held.waited.set(has_waited.then(|| start.elapsed()));
                return Ok(held);
            }
            Err(file) => file,
        };
        let waited = start.elapsed();
        has_waited = true;
        if waited >= patience {
            return Err(Error::busy(path.path(), describe_holder(path), waited));
        }
        let (begun, asked) = (Instant::now(), pause.min(patience - waited));
        std::thread::sleep(asked);
        start += stood_still(asked, begun.elapsed());
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// Returns the part of a pause that does not count as waiting. If the pause took much longer than
/// asked, the whole machine was probably suspended, and the holder of the lock has made no more
/// progress than this process.
fn stood_still(asked: Duration, took: Duration) -> Duration {
    const STANDS_STILL: Duration = Duration::from_secs(1);
    Some(took.saturating_sub(asked)).filter(|late| *late >= STANDS_STILL).unwrap_or_default()
}

/// Describes the holder of a lock from the lock file, and notes if the holder is stopped.
pub fn describe_holder(path: &CapPath) -> String {
    let Some(holder) = holder(path) else { return "another process".to_owned() };
    if !holder.is_stopped() {
        return holder.to_string();
    }
    format!("{holder}, which is stopped: `kill -CONT {}` continues it", holder.pid)
}

/// Returns the current or last holder of a lock from its file; `None` if that is unreadable.
pub fn holder(path: &CapPath) -> Option<Holder> {
    let bytes = path.read(MAX_LOCK).ok()??;
    json::read(bytes.trim_ascii()).ok()
}

/// Maximum bytes that are read of a lock file.
const MAX_LOCK: u64 = 64 << 10;

/// Lock mode: exclusive, or shared with other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    Exclusive,
    Shared,
}

fn attempt(file: &File, sharing: Sharing, path: &Path) -> Result<bool> {
    let tried = match sharing {
        Sharing::Exclusive => fs2::FileExt::try_lock_exclusive(file),
        Sharing::Shared => fs2::FileExt::try_lock_shared(file),
    };
    match tried {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == fs2::lock_contended_error().raw_os_error() => Ok(false),
        Err(error) => Err(error).context("lock", path),
    }
}

const BETWEEN_TRIES: Duration = Duration::from_millis(1);

/// Takes the lock of a workspace or of hooks, alone or shared; `None` if another process has it.
/// The lock file still names the process that had the lock before, until [`LockGuard::sign`].
pub fn occupy(path: &CapPath, sharing: Sharing) -> Result<Option<LockGuard>> {
    let (file, _) = files::open_or_create(path)?;
    let _turn = lock_probe(path)?;
    Ok(attempt(&file, sharing, path)?.then(|| LockGuard::of(file, path)))
}

/// True if `occupy` would get the lock. Neither creates the file nor keeps the lock.
pub fn is_vacant(path: &CapPath, sharing: Sharing) -> Result<bool> {
    let _turn = lock_probe(path)?;
    would_get(path, sharing)
}

/// Takes the lock on the directory that serializes checks of locks. A check takes the checked lock
/// for a moment, so two concurrent checks would mistake each other for the holder.
fn lock_probe(path: &CapPath) -> Result<Option<File>> {
    let dir = path.parent();
    let Some(turn) = dir.open_dir()? else { return Ok(None) };
    attempt_often(&turn, &dir)?;
    Ok(Some(turn))
}

fn would_get(path: &CapPath, sharing: Sharing) -> Result<bool> {
    path.open_file()?.map_or(Ok(true), |(file, _)| attempt(&file, sharing, path))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::alone::alone;
    use crate::cap_fs::at;

    #[test]
    fn is_held_never_makes_try_acquire_fail() {
        // A child process that another test is starting inherits the files that this test has open,
        // and keeps them locked until its exec.
        let _alone = alone();
        let dir = tempfile::tempdir().unwrap();
        let path = at(dir.path()).join("run.lock");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::SeqCst) {
                        is_held(&path).unwrap();
                    }
                });
            }
            let missed = (0..500).filter(|_| try_acquire(&path, None).unwrap().is_none()).count();
            is_over.store(true, Ordering::SeqCst);
            assert_eq!(missed, 0);
        });
    }

    #[test]
    fn is_vacant_never_makes_occupy_fail() {
        let _alone = alone();
        let dir = tempfile::tempdir().unwrap();
        let path = at(dir.path()).join("place.lock");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for sharing in [Sharing::Exclusive, Sharing::Exclusive, Sharing::Shared] {
                let (path, is_over) = (&path, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::SeqCst) {
                        is_vacant(path, sharing).unwrap();
                    }
                });
            }
            let missed = (0..500).filter(|at| {
                let sharing = if at % 2 == 0 { Sharing::Exclusive } else { Sharing::Shared };
                occupy(&path, sharing).unwrap().is_none()
            });
            let missed = missed.count();
            is_over.store(true, Ordering::SeqCst);
            assert_eq!(missed, 0);
        });
        let held = occupy(&path, Sharing::Shared).unwrap();
        assert!(is_vacant(&path, Sharing::Shared).unwrap() && !is_vacant(&path, Sharing::Exclusive).unwrap());
        drop(held);
        assert!(is_vacant(&path, Sharing::Exclusive).unwrap());
    }

    #[test]
    fn the_time_of_a_suspension_does_not_count_as_waiting() {
        let millis = Duration::from_millis;
        assert_eq!(stood_still(millis(5), millis(5)), Duration::ZERO);
        assert_eq!(stood_still(millis(5), millis(900)), Duration::ZERO, "a busy machine");
        assert_eq!(stood_still(millis(5), millis(31_005)), millis(31_000));
    }

    #[test]
    fn acquire_returns_the_lock_of_the_current_file_after_a_replacement() {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = (at(dir.path()).join("ada"), at(dir.path()).join("other"));
        here.make_dirs().unwrap();
        there.make_dirs().unwrap();
        let path = here.join("lock");
        let since = Time::from_millis(0);
        let holder =
            Holder { pid: 1, command: "a test".to_owned(), host: "here".to_owned(), since, agent: None };
        let patience = Duration::from_secs(600);
        for _ in 0..50 {
            let first = acquire(&path, &holder, patience).unwrap();
            std::thread::scope(|scope| {
                let waits = || {
                    let held = acquire(&path, &holder, patience).unwrap();
                    is_still_named(&held.file, &path).unwrap()
                };
                let (one, other) = (scope.spawn(waits), scope.spawn(waits));
                // The directory is exchanged for another, as by an import over an agent that was
                // moved away.
                here.try_exchange(&there).unwrap().unwrap();
                drop(first);
                assert!(one.join().unwrap() && other.join().unwrap());
            });
        }
    }

    #[test]
    fn is_held_reports_a_held_lock_and_try_acquire_does_not_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = at(dir.path()).join("run.lock");
        assert!(!is_held(&path).unwrap());
        assert!(!path.exists().unwrap());
        let held = try_acquire(&path, None).unwrap();
        assert!(held.is_some());
        assert!(is_held(&path).unwrap());
        assert!(try_acquire(&path, None).unwrap().is_none());
        drop(held);
        assert!(!is_held(&path).unwrap());
    }
}
