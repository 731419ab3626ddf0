//! Waiting for a change of an agent with few reads.
//!
//! The kernel notifies changes of files, and a database changes of its records. A caller also polls
//! at long intervals, because a notification may be missing.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::local::workdir::Dir;
use crate::model::id::AgentName;

use super::super::backend::Subscription;
use super::super::dir;
use super::{Agent, Store};

/// Maximum pause between two reads if changes are notified. On a network file system the writes of
/// other machines raise no event, and a store may not notify a change that was in progress when the
/// subscription began.
const TOLD: Duration = Duration::from_secs(5);

/// Pause between two reads without notifications.
const UNTOLD: Duration = Duration::from_millis(250);

/// Maximum pause between two reads for a caller that also waits for arrivals, which no store
/// notifies.
const ARRIVALS: Duration = Duration::from_secs(1);

/// Maximum number of agents in a subscription. A caller that waits for more agents polls.
const MOST: usize = 16;

/// Waits for a change of the records of some agents. No change after `follow` is missed, so the
/// caller reads the records after `follow`.
#[derive(Default)]
pub struct RecordWatch {
    /// Watch on files; `None` until a file is followed.
    files: Option<dir::DirWatch>,
    /// Followed agents with records in another store; at most `MOST + 1`, which shows that they are
    /// too many for a subscription.
    remote: Vec<AgentName>,
    /// Subscription to the agents; `None` if they are too many, or none.
    subscription: Option<Box<dyn Subscription>>,
    /// True if the caller also waits for arrivals in the inboxes of the followed agents.
    for_arrivals: bool,
    /// True if the caller has waited. A command whose first read succeeds needs no subscription.
    has_waited: bool,
}

impl RecordWatch {
    pub fn new() -> RecordWatch {
        RecordWatch::default()
    }

    /// Returns a watch that subscribes at its first use, for a caller that will certainly wait.
    pub fn for_long() -> RecordWatch {
        RecordWatch { has_waited: true, ..RecordWatch::default() }
    }

    /// Watches an agent's records and inbox. Called before each read of either, because a step may
    /// have replaced the inbox by another directory.
    pub fn follow(&mut self, agent: &Agent<'_>) {
        if !self.listen(agent.store(), agent.name(), true) {
            self.files().follow(agent.local());
        }
    }

    /// Watches an agent's records alone, for a caller that does not wait for arrivals. Called
    /// before each read of the records.
    pub fn follow_records(&mut self, agent: &Agent<'_>) {
        if !self.listen(agent.store(), agent.name(), false) {
            self.files().follow_records(agent.local());
        }
    }

    /// Watches the output of a run or a task. Called before each read, because the directory of a
    /// new run is made later.
    pub fn follow_output(&mut self, of: &Dir) {
        self.files().follow_output(of);
    }

    /// Removes all watches on files.
    pub fn let_go_of_files(&mut self) {
        self.files = None;
    }

    fn files(&mut self) -> &mut dir::DirWatch {
        self.files.get_or_insert_with(dir::DirWatch::new)
    }

    /// Subscribes to changes of an agent. Returns `false` if file watches report them.
    fn listen(&mut self, store: &Store, name: &AgentName, for_arrivals: bool) -> bool {
        let Some(backend) = store.records.remote() else { return false };
        self.for_arrivals |= for_arrivals;
        if !self.remote.contains(name) && self.remote.len() <= MOST {
            self.remote.push(name.clone());
        }
        if self.remote.len() > MOST {
            self.subscription = None;
            return true;
        }
        let subscription = self.subscription.get_or_insert_with(|| backend.subscribe());
        if self.has_waited {
            subscription.listen(&self.remote);
        }
        true
    }

    /// Returns descriptors that are readable after a change, for a caller that polls other
    /// descriptors too.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.of_files().into_iter().chain(self.of_store())
    }

    fn of_files(&self) -> Option<BorrowedFd<'_>> {
        self.files.as_ref()?.readable()
    }

    fn of_store(&self) -> Option<BorrowedFd<'_>> {
        self.subscription.as_ref()?.readable()
    }

    /// True if a record or file has changed since the last call. The caller then reads all that it
    /// needs.
    pub fn has_news(&mut self) -> bool {
        // Both functions are called, because each reports a change only once.
        let (of_files, of_store) = (self.have_files_news(), self.has_store_news());
        of_files || of_store
    }

    fn have_files_news(&self) -> bool {
        self.files.as_ref().is_some_and(dir::DirWatch::has_news)
    }

    fn has_store_news(&mut self) -> bool {
        self.subscription.as_mut().is_some_and(|subscription| subscription.was_notified())
    }

    /// Returns the maximum pause between two reads without a notification.
    fn most(&self) -> Duration {
        let is_deaf = || !self.subscription.as_ref().is_some_and(|subscription| subscription.notifies());
        let no_file_tells = self.files.as_ref().is_some_and(|files| files.readable().is_none());
        if no_file_tells || !self.remote.is_empty() && is_deaf() {
            UNTOLD
        } else if self.for_arrivals {
            ARRIVALS
        } else {
            TOLD
        }
    }

    /// Returns after a change, after the maximum pause, or after `left`, whichever comes first.
    pub fn wait(&mut self, left: Option<Duration>) {
        self.has_waited = true;
        let begun = Instant::now();
        // The wait is short until a test notification has arrived. The read after that notification
        // also finds changes that were in progress when the subscription began, for which no
        // notification comes.
        let most = self.most();
        let mut wait = left.map_or(most, |left| left.min(most));
        let mut is_written = false;
        loop {
            if self.has_store_news() {
                return;
            }
            if self.have_files_news() {
                // Files may change constantly, and each return of `wait` may cause a request to a
                // remote store, so after a first change `wait` ignores files.
                is_written = true;
                wait = wait.min(if self.remote.is_empty() { Duration::ZERO } else { UNTOLD });
            }
            let left = wait.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return;
            }
            let of_files = self.of_files().filter(|_| !is_written);
            let wakes = of_files.into_iter().chain(self.of_store());
            let mut wakes: Vec<PollFd<'_>> =
                wakes.map(|wake| PollFd::from_borrowed_fd(wake, PollFlags::IN)).collect();
            if rustix::event::poll(&mut wakes, Timespec::try_from(left).ok().as_ref()).is_err() {
                // The caller handles the signal that has interrupted the poll.
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn of_files(dir: &Path) -> RecordWatch {
        let mut watch = RecordWatch::new();
        watch.files().add(dir);
        watch
    }

    #[test]
    fn a_change_ends_the_wait_and_reading_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "one").unwrap();
        let mut watch = of_files(dir.path());
        let start = Instant::now();
        std::fs::read(&file).unwrap();
        watch.wait(Some(Duration::from_millis(50)));
        assert!(start.elapsed() >= Duration::from_millis(50));
        // A busy machine may delay any wait, so one of 20 that ends early is enough.
        let is_seen = |_| {
            let before = Instant::now();
            std::fs::rename(&file, dir.path().join("other")).unwrap();
            std::fs::rename(dir.path().join("other"), &file).unwrap();
            watch.wait(None);
            before.elapsed() < TOLD
        };
        assert!((0..20).any(is_seen), "no change was seen");
    }

    #[test]
    fn a_watch_of_a_missing_directory_polls_at_intervals() {
        let mut watch = of_files(Path::new("/nowhere/at/all"));
        let start = Instant::now();
        watch.wait(None);
        assert!(start.elapsed() >= UNTOLD);
    }
    /// Subscription that is sure to report changes. The field is true until a notification is read.
    #[derive(Debug)]
    struct Tells(bool);

    impl Subscription for Tells {
        fn listen(&mut self, _: &[AgentName]) {}

        fn notifies(&self) -> bool {
            true
        }

        fn readable(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn was_notified(&mut self) -> bool {
            std::mem::take(&mut self.0)
        }
    }

    #[test]
    fn file_changes_do_not_query_the_store_more_often_than_polling() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "one").unwrap();
        let mut watch = of_files(dir.path());
        let mut took = |tells| {
            watch.subscription = Some(Box::new(Tells(tells)));
            watch.remote = vec!["a".parse().unwrap()];
            std::fs::rename(&file, dir.path().join("other")).unwrap();
            std::fs::rename(dir.path().join("other"), &file).unwrap();
            let begun = Instant::now();
            watch.wait(None);
            begun.elapsed()
        };
        // A busy machine may delay any wait, so one of 20 that ends early is enough.
        assert!((0..20).any(|_| (UNTOLD..TOLD).contains(&took(false))), "output is heard of");
        assert!(took(false) >= UNTOLD);
        assert!((0..20).any(|_| took(true) < UNTOLD), "a change ends the wait at once");
    }
}
