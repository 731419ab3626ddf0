//! Waiting for a change of files instead of looking again and again.

use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

/// How long a watch is relied on: on a network file system what others write there raises no event.
const WATCHED: Duration = Duration::from_secs(5);

/// How often one looks where nothing can be watched.
const UNWATCHED: Duration = Duration::from_millis(250);

/// A watch over some directories, not over those below them. What changes after it is made is
/// never missed: look at the files after that.
pub struct Watch {
    changes: Receiver<()>,
    watcher: Option<RecommendedWatcher>,
}

impl Watch {
    pub fn new() -> Watch {
        // One change that nobody has looked at yet is as good as many.
        let (tell, changes) = sync_channel(1);
        let handler = move |event: notify::Result<Event>| {
            // Our own reading raises events too.
            if event.map_or(true, |event| !event.kind.is_access()) {
                let _ = tell.try_send(());
            }
        };
        Watch { changes, watcher: notify::recommended_watcher(handler).ok() }
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

    /// Returns after a change, or after a while; at the latest when `left` is over.
    pub fn wait(&self, left: Option<Duration>) {
        let most = if self.watcher.is_some() { WATCHED } else { UNWATCHED };
        let wait = left.map_or(most, |left| left.min(most));
        if self.watcher.is_some() {
            let _ = self.changes.recv_timeout(wait);
        } else {
            std::thread::sleep(wait);
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
