//! One revision of an agent's records, and what can be asked of it.

use std::cell::OnceCell;
use std::rc::Rc;

use crate::beneath::Version;
use crate::error::{Error, Result};
use crate::model::dedupe::DedupeEntry;
use crate::model::id::{MessageId, WorkId};
use crate::model::message::{InboxKey, Priority};
use crate::model::state::State;
use crate::model::time::{Span, Time};

use super::drops::{self, Dropped, HandWritten};
use super::inbox::{self, Scan};
use super::view::View;
use super::{DirAgent, aside, dedupe, layout};

/// One revision of an agent's records. What is asked for is read when it is asked for, and the
/// inbox listed once.
#[derive(Debug)]
pub struct DirSnapshot<'a> {
    pub(in crate::store) agent: &'a DirAgent<'a>,
    pub(in crate::store) view: View<'a>,
    /// The names in the inbox that this snapshot passes over.
    left_out: Vec<String>,
    scan: OnceCell<Rc<Scan>>,
}

/// The versions of the directories of open records, one for each kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched(Vec<Option<Version>>);

/// A message in the inbox that was found by its name and is not read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub key: InboxKey,
    pub(in crate::store) place: String,
}

impl From<(InboxKey, String)> for Waiting {
    fn from((key, place): (InboxKey, String)) -> Waiting {
        Waiting { key, place }
    }
}

impl<'a> DirSnapshot<'a> {
    pub(super) fn new(agent: &'a DirAgent<'a>, view: View<'a>) -> DirSnapshot<'a> {
        DirSnapshot { agent, view, left_out: Vec::new(), scan: OnceCell::new() }
    }

    /// Snapshot with an inbox that was listed before.
    pub(super) fn with_inbox(agent: &'a DirAgent<'a>, view: View<'a>, scan: Rc<Scan>) -> DirSnapshot<'a> {
        DirSnapshot { agent, view, left_out: Vec::new(), scan: OnceCell::from(scan) }
    }

    /// Leaves out what steps pass over in the inbox.
    pub fn without_passed_over(self, state: &State) -> DirSnapshot<'a> {
        DirSnapshot { left_out: aside::all_passed_over(state), ..self }
    }

    /// Leaves out names that a step passes over again. A step retries those that have changed
    /// since.
    pub fn without_unchanged(self, state: &State) -> DirSnapshot<'a> {
        DirSnapshot { left_out: self.agent.passed_over(state), ..self }
    }

    /// Caches the open records that a step reads, for the next command.
    pub(super) fn remembering(self) -> DirSnapshot<'a> {
        DirSnapshot { view: self.view.remembering(self.agent.store.disk), ..self }
    }

    /// The names in the inbox. Lists the inbox at the first call.
    pub(in crate::store) fn scan(&self) -> Result<&Scan> {
        if self.scan.get().is_none() {
            let mut scan = inbox::scan(&self.view)?;
            scan.pass_over(self.left_out.iter().cloned());
            let _ = self.scan.set(Rc::new(scan));
        }
        self.scan
            .get()
            .map(Rc::as_ref)
            .ok_or_else(|| Error::gone("list", &self.agent.dir.join(layout::INBOX)))
    }
}

impl DirSnapshot<'_> {
    /// Tells whether open records were added, replaced or removed since, by a transaction or by
    /// another program. `None` if that can't be told. This looks at one directory for each kind,
    /// and at no record.
    pub fn touched(&self, state: &State) -> Option<Touched> {
        let planes = [layout::WORK, layout::WAITS, layout::TIMERS, layout::TASKS];
        let read = if state.open_tasks > 0 { &planes[..] } else { &planes[..3] };
        read.iter().map(|dir| self.agent.dir.join(dir).touched().ok()).collect::<Option<_>>().map(Touched)
    }

    /// The prose plan of an open work item.
    pub fn plan(&self, id: WorkId) -> Result<Option<String>> {
        let bytes = self.view.bytes(&layout::plan(id))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// The last message of priority `interject`.
    pub fn last_interject(&self) -> Result<Option<MessageId>> {
        let mut interjects = self.scan()?.direct.iter().filter(|key| key.priority == Priority::Interject);
        Ok(interjects.next_back().map(|key| key.id))
    }

    /// When the oldest message or hint in the inbox was made, as far as names tell.
    pub fn waits_since(&self) -> Result<Option<Time>> {
        let scan = self.scan()?;
        let first = scan.direct.iter().chain(scan.segments.iter().map(|segment| &segment.from));
        let arrived = first.map(|key| key.id).chain(scan.hints.iter().copied());
        Ok(arrived.filter_map(|id| id.minted_at()).min())
    }

    /// The entry of a dedupe key, if a message was admitted under it within the window. `revision`
    /// is the agent's. Without the lock this only looks into the cache, and may miss an entry.
    pub fn admitted_under(
        &self,
        key: &str,
        now: Time,
        window: Span,
        revision: u64,
    ) -> Result<Option<DedupeEntry>> {
        if self.view.is_locked() {
            dedupe::find(&self.view, key, now, window, revision, self.agent.store.disk)
        } else {
            dedupe::peek(&self.view, key, now, window, revision)
        }
    }

    /// When a hand-written file was put into the inbox: its last change of status, since a rename
    /// keeps the time of its content. `None` if it has gone.
    pub fn dropped_at(&self, file: &Dropped) -> Result<Option<Time>> {
        let found = self.view.agent.join(layout::INBOX).join(file.place()).look()?;
        Ok(found.map(|found| Time::from_millis(found.st_ctime * 1000)))
    }

    /// Reads a hand-written file: its content, or why it can't be read. `None` if it has gone.
    pub fn read_dropped(&self, file: &Dropped) -> Result<Option<std::result::Result<HandWritten, String>>> {
        let spot = self.view.agent.join(layout::INBOX).join(file.place());
        drops::read(&spot)
    }

    /// Number of files that could not be admitted.
    pub fn count_rejected(&self, state: &State) -> Result<usize> {
        let names = drops::rejected_names(&self.view, self.scan()?.has_rejected)?;
        Ok(names.len() + aside::passed_over(state).len())
    }
}
