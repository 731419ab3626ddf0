//! Waiting for a change of files instead of looking again and again.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use rustix::event::{PollFd, PollFlags, Timespec};

/// How long a watch is relied on: on a network file system what others write there raises no event.
const WATCHED: Duration = Duration::from_secs(5);

/// How often one looks where nothing can be watched.
const UNWATCHED: Duration = Duration::from_millis(250);

/// A watch over some directories, not over those below them. What changes after it is made is
/// never missed: look at the files after that. Its descriptor is readable after a change.
pub struct Watch {
    changes: Option<UnixStream>,
    watcher: Option<RecommendedWatcher>,
}

impl Watch {
    pub fn new() -> Watch {
        Watch::told().unwrap_or(Watch { changes: None, watcher: None })
    }

    fn told() -> io::Result<Watch> {
        let (changes, tell) = UnixStream::pair()?;
        changes.set_nonblocking(true)?;
        tell.set_nonblocking(true)?;
        let handler = move |event: notify::Result<Event>| {
            // Our own reading raises events too.
            if event.map_or(true, |event| !event.kind.is_access()) {
                // Where it is full, there is enough to be read already.
                let _ = (&tell).write(&[0]);
            }
        };
        Ok(Watch { changes: Some(changes), watcher: notify::recommended_watcher(handler).ok() })
    }

    /// Watches one more directory. Where that can't be done, because the system has no more watches
    /// to give, `wait` returns often instead.
    pub fn add(&mut self, dir: &Path) {
        let watched =
            self.watcher.as_mut().is_some_and(|it| it.watch(dir, RecursiveMode::NonRecursive).is_ok());
        if !watched {
            self.watcher = None;
        }
    }

    /// How long to wait for a change at most before looking anyway.
    pub fn patience(&self) -> Duration {
        if self.watcher.is_some() { WATCHED } else { UNWATCHED }
    }

    /// Returns after a change, or after a while; at the latest when `left` is over.
    pub fn wait(&self, left: Option<Duration>) {
        let wait = left.map_or(self.patience(), |left| left.min(self.patience()));
        match self.changes() {
            Some(changes) => {
                let timeout = Timespec::try_from(wait).ok();
                // Whoever is woken for nothing looks once more.
                let _ = rustix::event::poll(&mut [PollFd::new(&changes, PollFlags::IN)], timeout.as_ref());
                self.calm();
            }
            None => std::thread::sleep(wait),
        }
    }

    /// Readable after a change, until `calm`. `None`: nothing can be watched here.
    pub fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.changes.as_ref().filter(|_| self.watcher.is_some()).map(AsFd::as_fd)
    }

    /// Takes in all that was told of so far. To be called before looking, not after.
    pub fn calm(&self) {
        let mut told = [0; 512];
        if let Some(mut changes) = self.changes.as_ref() {
            while matches!(changes.read(&mut told), Ok(length) if length == told.len()) {}
        }
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
        let before = Instant::now();
        std::fs::rename(&file, dir.path().join("other")).unwrap();
        watch.wait(None);
        assert!(before.elapsed() < WATCHED, "the change was not seen");
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
