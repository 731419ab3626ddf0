//! Notifications of file changes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};

use crate::local::{LocalAgent, layout, workdir::Dir};
use crate::model::id::AgentName;

/// Watches on the files of some agents. No change after `follow` is missed, so the caller reads the
/// files after that.
///
/// The watches are on directories without their subdirectories: they report files that appear, are
/// replaced, or are removed there.
pub struct DirWatch {
    changes: Option<OwnedFd>,
    followed: Vec<AgentName>,
}

impl DirWatch {
    pub fn new() -> DirWatch {
        let changes = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        DirWatch { changes, followed: Vec::new() }
    }

    /// Watches an agent's records and inbox. Called before each read of them, because a step may
    /// have replaced the inbox by another directory.
    pub fn follow(&mut self, agent: &LocalAgent<'_>) {
        if !self.followed.contains(&agent.name) {
            self.add(agent.dir.path());
            self.followed.push(agent.name.clone());
        }
        self.add(&agent.dir.join(layout::INBOX));
    }

    /// Watches an agent's records alone, for a caller that does not wait for arrivals.
    pub fn follow_records(&mut self, agent: &LocalAgent<'_>) {
        self.add(agent.dir.path());
    }

    /// Watches the output of a run or a task. Called before each read, because the directory of a
    /// new run is made later.
    pub fn follow_output(&mut self, of: &Dir) {
        let all = of.cap.parent();
        if all.is_dir().is_ok_and(|is_dir| is_dir) {
            self.add(all.path());
        }
        if of.exists() {
            self.add_for(of.cap.path(), WatchFlags::CREATE | WatchFlags::MODIFY | WatchFlags::MOVED_TO);
        }
    }

    /// Adds a watch on one directory. If the system has no free watches, no change at all is
    /// reported.
    pub(in crate::store) fn add(&mut self, dir: &Path) {
        let changes = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
        self.add_for(dir, changes);
    }

    fn add_for(&mut self, dir: &Path, what: WatchFlags) {
        self.changes = self.changes.take().filter(|changes| add_watch(changes, dir, what).is_ok());
    }

    /// Returns a descriptor that is readable after a change; `None` if the system has no free
    /// watches.
    pub fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.changes.as_ref().map(AsFd::as_fd)
    }

    /// True if a file has changed since the last call. The caller then reads all files that it
    /// needs.
    pub fn has_news(&self) -> bool {
        let Some(changes) = &self.changes else { return false };
        let (mut told, mut is_changed) = ([0; 4096], false);
        while rustix::io::read(changes, &mut told[..]).is_ok_and(|length| length > 0) {
            is_changed = true;
        }
        is_changed
    }
}
