//! Waiting for a change of files instead of looking again and again.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::model::id::AgentName;

use crate::workdir::Dir;

use super::{Agent, layout};

/// How long a watch is relied on: on a network file system the writes of other machines raise no event.
const WATCHED: Duration = Duration::from_secs(5);

/// The pause between two looks if nothing can be watched.
const UNWATCHED: Duration = Duration::from_millis(250);

/// Waits for a change of the records of some agents, or for an arrival. No change is missed that comes after
/// `follow`, so the caller looks at the records after that.
///
/// The watches are on directories, not on those below them: they report files that appear there, are
/// replaced, or go.
pub struct Watch {
    changes: Option<OwnedFd>,
    followed: Vec<AgentName>,
}

impl Watch {
    pub fn new() -> Watch {
        Watch { changes: kernel::watch().ok(), followed: Vec::new() }
    }

    /// Adds an agent's records and inbox. To be called before each look at them, because the inbox may have
    /// been exchanged for another one.
    pub fn follow(&mut self, agent: &Agent<'_>) {
        if self.is_blind(agent) {
            return;
        }
        if !self.followed.contains(agent.name()) {
            self.add(agent.dir.path());
            self.followed.push(agent.name().clone());
        }
        self.add(&agent.dir.join(layout::INBOX));
    }

    /// Where no file changes with the records, the caller looks often instead.
    fn is_blind(&mut self, agent: &Agent<'_>) -> bool {
        let is_blind = agent.store.is_beside();
        if is_blind {
            self.changes = None;
        }
        is_blind
    }

    /// Adds an agent's records alone, for a caller that does not wait for arrivals.
    pub fn follow_records(&mut self, agent: &Agent<'_>) {
        if self.is_blind(agent) {
            return;
        }
        self.add(agent.dir.path());
    }

    /// The same for what a run or a task writes. To be called before each look at that: the directory of a run that has
    /// just begun comes to be later.
    pub fn follow_output(&mut self, of: &Dir) {
        let all = of.spot().parent();
        if all.is_dir().is_ok_and(|is_dir| is_dir) {
            self.add(all.path());
        }
        if of.exists() {
            let dir = of.path();
            self.changes = self.changes.take().filter(|changes| kernel::add_written(changes, dir).is_ok());
        }
    }

    /// Watches one more directory. If the system has no more watches to give, `wait` returns often instead.
    fn add(&mut self, dir: &Path) {
        self.changes = self.changes.take().filter(|changes| kernel::add(changes, dir).is_ok());
    }

    /// A descriptor that is readable after a change, for a caller that waits for something else as well; `None` if the
    /// system has no more watches to give.
    pub fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.changes.as_ref().map(AsFd::as_fd)
    }

    /// Whether something has changed since the last call. What it was does not matter: the caller looks at what it
    /// needs.
    pub fn has_news(&self) -> bool {
        let Some(changes) = &self.changes else { return false };
        let (mut told, mut is_changed) = ([0; 4096], false);
        while rustix::io::read(changes, &mut told[..]).is_ok_and(|length| length > 0) {
            is_changed = true;
        }
        is_changed
    }

    /// Returns after a change, or after a while; at the latest when `left` is over.
    pub fn wait(&self, left: Option<Duration>) {
        let most = if self.changes.is_some() { WATCHED } else { UNWATCHED };
        let wait = left.map_or(most, |left| left.min(most));
        match &self.changes {
            Some(changes) => {
                let timeout = Timespec::try_from(wait).ok();
                // A caller that is woken for nothing looks once more.
                let _ = rustix::event::poll(&mut [PollFd::new(changes, PollFlags::IN)], timeout.as_ref());
                self.has_news();
            }
            None => std::thread::sleep(wait),
        }
    }
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    use rustix::io::Result;

    pub fn watch() -> Result<OwnedFd> {
        init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
    }

    pub fn add(watch: &OwnedFd, dir: &Path) -> Result<()> {
        let changes = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
        add_watch(watch, dir, changes).map(drop)
    }

    pub fn add_written(watch: &OwnedFd, dir: &Path) -> Result<()> {
        add_watch(watch, dir, WatchFlags::CREATE | WatchFlags::MODIFY | WatchFlags::MOVED_TO).map(drop)
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use rustix::io::{Errno, Result};

    pub fn watch() -> Result<OwnedFd> {
        Err(Errno::NOSYS)
    }

    pub fn add(_: &OwnedFd, _: &Path) -> Result<()> {
        Err(Errno::NOSYS)
    }

    pub fn add_written(_: &OwnedFd, _: &Path) -> Result<()> {
        Err(Errno::NOSYS)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_change_ends_the_wait_and_reading_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "one").unwrap();
        let mut watch = Watch::new();
        watch.add(dir.path());
        let start = Instant::now();
        std::fs::read(&file).unwrap();
        watch.wait(Some(Duration::from_millis(50)));
        assert!(start.elapsed() >= Duration::from_millis(50));
        // Any single wait may take long on a busy machine.
        let is_seen = |_| {
            let before = Instant::now();
            std::fs::rename(&file, dir.path().join("other")).unwrap();
            std::fs::rename(dir.path().join("other"), &file).unwrap();
            watch.wait(None);
            before.elapsed() < WATCHED
        };
        assert!((0..20).any(is_seen), "no change was seen");
    }

    #[test]
    fn without_a_watch_one_looks_often() {
        let mut watch = Watch::new();
        watch.add(Path::new("/nowhere/at/all"));
        let start = Instant::now();
        watch.wait(None);
        assert!(start.elapsed() >= UNWATCHED);
    }
}
