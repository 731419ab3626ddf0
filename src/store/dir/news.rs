//! File watches that report to a long-running process which agents have changed.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::{Errno, Result as Answer};

use crate::local::{LocalAgent, StateDir, layout};
use crate::model::id::AgentName;

use super::doctor::may_be_shared;

/// A change in the state directory that a file watch reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Records of an agent, or its inbox, have changed.
    Agent(AgentName),
    /// A file was created in the inbox of an agent. Its maker may still be writing it.
    Begun(AgentName),
    /// Agents were created or removed.
    Agents,
    /// Anything may have changed: there were more events than the kernel keeps.
    Anything,
    /// The state directory itself was moved, or its settings have changed.
    Moved,
}

/// Watches on the state directory, on the list of agents, and on each agent and its inbox. The
/// default watches nothing, for records that are no files.
#[derive(Default)]
pub struct News {
    events: Option<OwnedFd>,
    places: HashMap<i32, WatchSubject>,
    agents: HashMap<AgentName, i32>,
    has_list: bool,
    /// True if the records are files, which the system could watch.
    pub is_possible: bool,
}

/// Directory that a watch is on.
#[derive(Debug, Clone)]
enum WatchSubject {
    Root,
    Agents,
    Agent(AgentName),
    Inbox(AgentName),
}

/// Events if the watched directory is removed or moved.
const SELF: WatchFlags = WatchFlags::DELETE_SELF.union(WatchFlags::MOVE_SELF).union(WatchFlags::ONLYDIR);
/// Events of a watch on an agent's directory: a file is created, replaced, or written in place, as
/// only the journal is by a command that is killed right after its commit.
const RECORDS: WatchFlags =
    SELF.union(WatchFlags::CREATE).union(WatchFlags::MOVED_TO).union(WatchFlags::MODIFY);
/// Events if a file is created, moved in, or closed after a write.
const ARRIVALS: WatchFlags =
    WatchFlags::ONLYDIR.union(WatchFlags::CREATE).union(WatchFlags::MOVED_TO).union(WatchFlags::CLOSE_WRITE);
const NAMES: WatchFlags = SELF
    .union(WatchFlags::CREATE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM);

/// Bytes of events that are read at a time.
const BUFFER: usize = 16 << 10;

impl News {
    /// Starts watching. From now on every change of the list of agents is reported.
    pub(in crate::store) fn of(state_dir: &StateDir) -> News {
        let events = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        let mut news = News { events, is_possible: true, ..News::default() };
        news.follow_list(state_dir);
        news
    }

    /// Watches the list of agents. Returns `false` if that is impossible: the caller then has to
    /// poll the list.
    pub fn follow_list(&mut self, state_dir: &StateDir) -> bool {
        let list = state_dir.cap().join(layout::AGENTS);
        self.has_list = !may_be_shared(state_dir.anchor.path())
            && self.add(state_dir.anchor.path(), NAMES, WatchSubject::Root).is_ok()
            && self.add(&list, NAMES, WatchSubject::Agents).is_ok();
        self.has_list
    }

    /// Watches an agent, so that every later change of its files is reported. Must be called before
    /// each read of the agent, because its inbox may have been replaced by another directory.
    /// Returns `false` if the system has no free watches, or other machines write to the directory:
    /// the caller then has to poll the agent.
    pub fn follow(&mut self, agent: &LocalAgent<'_>) -> bool {
        if !self.has_list {
            return false;
        }
        let LocalAgent { name, dir, .. } = agent;
        if !self.agents.contains_key(name) {
            let Ok(watch) = self.add(dir.path(), RECORDS, WatchSubject::Agent(name.clone())) else {
                return false;
            };
            self.agents.insert(name.clone(), watch);
        }
        match self.add(&dir.join(layout::INBOX), ARRIVALS, WatchSubject::Inbox(name.clone())) {
            // A missing inbox needs no watch, because the agent's watch reports its creation.
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => true,
            Err(_) => false,
        }
    }

    fn add(&mut self, dir: &Path, what: WatchFlags, place: WatchSubject) -> Answer<i32> {
        let events = self.events.as_ref().ok_or(Errno::NOSYS)?;
        let watch = add_watch(events, dir, what)?;
        self.places.insert(watch, place);
        Ok(watch)
    }

    /// Returns the changes in the state directory since the last call.
    pub fn take(&mut self) -> Vec<Told> {
        let mut changes = Vec::new();
        let Some(events) = &self.events else { return changes };
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(events, &mut buffer);
        while let Ok(event) = reader.next() {
            let (watch, flags) = (event.wd(), event.events());
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                changes.push(Told::Anything);
                continue;
            }
            let is_gone =
                flags.intersects(ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF);
            let name = event.file_name().map(|name| name.to_bytes()).unwrap_or_default();
            let Some(place) = self.places.get(&watch) else { continue };
            let change = match place {
                WatchSubject::Root if is_gone => Some(Told::Moved),
                WatchSubject::Root => {
                    let names = [layout::AGENTS, layout::CONFIG];
                    names.iter().any(|known| known.as_bytes() == name).then_some(Told::Moved)
                }
                WatchSubject::Agents if is_gone => Some(Told::Moved),
                // A hidden name belongs to an agent that is still being created or deleted.
                WatchSubject::Agents => (!name.starts_with(b".")).then_some(Told::Agents),
                WatchSubject::Agent(agent) => {
                    let names = [layout::STATE, layout::INBOX, layout::JOURNAL];
                    let is_record = names.iter().any(|known| known.as_bytes() == name);
                    (is_gone || is_record).then(|| Told::Agent(agent.clone()))
                }
                WatchSubject::Inbox(agent) if flags.contains(ReadFlags::CREATE) => {
                    Some(Told::Begun(agent.clone()))
                }
                WatchSubject::Inbox(agent) => Some(Told::Agent(agent.clone())),
            };
            if is_gone && let Some(WatchSubject::Agent(agent)) = self.places.remove(&watch) {
                self.agents.remove(&agent);
            }
            if let Some(change) = change.filter(|change| changes.last() != Some(change)) {
                changes.push(change);
            }
        }
        changes
    }

    /// Returns a descriptor that is readable after a change; `None` if nothing can be watched.
    pub fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().map(AsFd::as_fd)
    }
}
