//! One revision of an agent's records, and what can be asked of it.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::rc::Rc;

use crate::beneath::Version;
use crate::error::{Error, Result};
use crate::model::dedupe::DedupeEntry;
use crate::model::event::Event;
use crate::model::id::{MessageId, RunId, WorkId};
use crate::model::message::{InboxKey, Message, Priority, WakeHint};
use crate::model::record::{Kept, Record};
use crate::model::records::Misfit;
use crate::model::run::{Brief, Run};
use crate::model::state::State;
use crate::model::time::{Span, Time};

use super::drops::{self, Dropped, Reads, Rejected, Said};
use super::inbox::{self, Scan};
use super::view::View;
use super::{Agent, aside, dedupe, evidence, layout, settled};

/// One revision of an agent's records. What is asked for is read when it is asked for, and the
/// inbox listed once.
#[derive(Debug)]
pub struct Snapshot<'a> {
    pub(super) agent: &'a Agent<'a>,
    pub(super) view: View<'a>,
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
    place: String,
}

impl From<(InboxKey, String)> for Waiting {
    fn from((key, place): (InboxKey, String)) -> Waiting {
        Waiting { key, place }
    }
}

impl<'a> Snapshot<'a> {
    pub(super) fn new(agent: &'a Agent<'a>, view: View<'a>) -> Snapshot<'a> {
        Snapshot { agent, view, left_out: Vec::new(), scan: OnceCell::new() }
    }

    /// The same with the list of an inbox that was made already.
    pub(super) fn with_inbox(agent: &'a Agent<'a>, view: View<'a>, scan: Rc<Scan>) -> Snapshot<'a> {
        Snapshot { agent, view, left_out: Vec::new(), scan: OnceCell::from(scan) }
    }

    /// Leaves out what steps pass over in the inbox.
    pub fn without_passed_over(self, state: &State) -> Snapshot<'a> {
        Snapshot { left_out: aside::all_passed_over(state), ..self }
    }

    /// The same for a step, which looks again at what has changed since it was passed over.
    pub fn without_unchanged(self, state: &State) -> Snapshot<'a> {
        Snapshot { left_out: self.agent.passed_over(state), ..self }
    }

    /// The same for a step, which caches the open records that it reads for the next command.
    pub(super) fn remembering(self) -> Snapshot<'a> {
        Snapshot { view: self.view.remembering(self.agent.store.disk), ..self }
    }

    /// The names in the inbox. Lists the inbox at the first call.
    pub(super) fn scan(&self) -> Result<&Scan> {
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

/// Open records.
impl Snapshot<'_> {
    /// Every open record of a kind, in order of id.
    pub fn open<T: Kept>(&self) -> Result<Vec<T>> {
        self.view.records(layout::plane(T::PLANE))
    }

    /// Tells whether open records were added, replaced or removed since, by a transaction or by
    /// another program. `None` if that can't be told. This looks at one directory for each kind,
    /// and at no record.
    pub fn touched(&self, state: &State) -> Option<Touched> {
        let planes = [layout::WORK, layout::WAITS, layout::TIMERS, layout::TASKS];
        let read = if state.open_tasks > 0 { &planes[..] } else { &planes[..3] };
        read.iter().map(|dir| self.agent.dir.join(dir).touched().ok()).collect::<Option<_>>().map(Touched)
    }

    /// One open record.
    pub fn open_one<T: Kept>(&self, id: T::Id) -> Result<Option<T>> {
        self.view.record(&layout::open::<T>(id))
    }

    /// The ids of the open records of a kind, in order. This reads no record.
    pub fn open_ids<T: Kept>(&self) -> Result<Vec<T::Id>> {
        self.view.ids(layout::plane(T::PLANE))
    }

    pub fn is_open<T: Kept>(&self, id: T::Id) -> Result<bool> {
        self.view.exists(&layout::open::<T>(id))
    }

    /// The prose plan of an open work item.
    pub fn plan(&self, id: WorkId) -> Result<Option<String>> {
        let bytes = self.view.bytes(&layout::plan(id))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// The inbox.
impl Snapshot<'_> {
    /// The first messages in processing order, at most `count`.
    pub fn first(&self, count: usize) -> Result<Vec<Waiting>> {
        Ok(inbox::first(&self.view, self.scan()?, count)?.into_iter().map(Waiting::from).collect())
    }

    /// Every message in processing order, by its key.
    pub fn keys(&self) -> Result<Vec<InboxKey>> {
        inbox::all(&self.view, self.scan()?)
    }

    /// A message by its id alone, if it is in the inbox.
    pub fn waiting(&self, id: MessageId) -> Result<Option<Waiting>> {
        Ok(inbox::find_id(&self.view, self.scan()?, id)?.map(Waiting::from))
    }

    /// Reads a message. `None` if it has gone. A message that can't be read, or is another agent's,
    /// is an error.
    pub fn read(&self, waiting: &Waiting) -> Result<Option<Message>> {
        inbox::read(&self.view, waiting.key, &waiting.place)
    }

    /// The same for a caller that goes on with the next message: one that can't be read, or is
    /// another agent's, is returned as a misfit.
    pub fn try_read(&self, waiting: &Waiting) -> Result<Option<Result<Message, Misfit>>> {
        inbox::try_read(&self.view, waiting.key, &waiting.place)
    }

    /// A message that the agent can't take up as it stands.
    pub fn unfit(&self, waiting: &Waiting, reason: String) -> Misfit {
        inbox::unfit(&waiting.place, reason)
    }

    /// The hints in the inbox in order of arrival, and the misfits that have the names of hints.
    pub fn hints(&self) -> Result<(Vec<WakeHint>, Vec<Misfit>)> {
        inbox::read_hints(&self.view, self.scan()?)
    }

    /// The last message of priority `interject`.
    pub fn last_interject(&self) -> Result<Option<MessageId>> {
        let mut interjects = self.scan()?.direct.iter().filter(|key| key.priority == Priority::Interject);
        Ok(interjects.next_back().map(|key| key.id))
    }

    /// Whether a message of background priority may be in the inbox. `true` also where the inbox
    /// has a backlog that was not looked through.
    pub fn has_background(&self) -> Result<bool> {
        Ok(self.scan()?.has_background())
    }

    /// When the oldest message or hint in the inbox was made, as far as names tell.
    pub fn waits_since(&self) -> Result<Option<Time>> {
        let scan = self.scan()?;
        let first = scan.direct.iter().chain(scan.segments.iter().map(|segment| &segment.from));
        let arrived = first.map(|key| key.id).chain(scan.hints.iter().copied());
        Ok(arrived.filter_map(|id| id.minted_at()).min())
    }

    /// Whether a message has ended and was not requeued since. The caller must hold the lock.
    pub fn is_settled(&self, id: MessageId, now: Time) -> Result<bool> {
        settled::is_settled(&self.view, id, now)
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
}

/// Files that other programs and people have put into the inbox.
impl Snapshot<'_> {
    /// The hand-written files, in the order in which a step takes them in.
    pub fn dropped(&self) -> Result<Vec<Dropped>> {
        Ok(drops::in_order(&self.scan()?.drops))
    }

    /// When a hand-written file was put into the inbox: its last change of status, since a rename
    /// keeps the time of its content. `None` if it has gone.
    pub fn dropped_at(&self, file: &Dropped) -> Result<Option<Time>> {
        let found = self.view.agent.join(layout::INBOX).join(file.place()).look()?;
        Ok(found.map(|found| Time::from_millis(found.st_ctime * 1000)))
    }

    /// Reads a hand-written file: its content, or why it can't be read. `None` if it has gone.
    pub fn read_dropped(&self, file: &Dropped) -> Result<Option<std::result::Result<Said, String>>> {
        let spot = self.view.agent.join(layout::INBOX).join(file.place());
        drops::read(&spot)
    }

    /// The files that could not be admitted, with the reasons.
    pub fn rejected(&self, state: &State) -> Result<Vec<Rejected>> {
        drops::rejected(&self.view, state)
    }

    /// How many files could not be admitted.
    pub fn count_rejected(&self, state: &State) -> Result<usize> {
        let names = drops::rejected_names(&self.view, self.scan()?.has_rejected)?;
        Ok(names.len() + aside::passed_over(state).len())
    }

    /// Whether no such file is left. This does not list the inbox.
    pub fn is_none_rejected(&self, state: &State) -> Result<bool> {
        Ok(aside::passed_over(state).is_empty() && drops::nothing_rejected(&self.view)?)
    }

    /// What a step would find in a file that could not be admitted.
    pub fn read_rejected(&self, one: &Rejected) -> Result<Reads> {
        drops::read_rejected(&self.view, one)
    }
}

/// The past.
impl Snapshot<'_> {
    /// Calls `each` with the ended records of a kind, newest first, until it returns `false`.
    pub fn ended<T: Record>(&self, each: impl FnMut(T) -> bool) -> Result<()> {
        evidence::archived(&self.view, each)
    }

    /// The newest ended record of a kind that has this id.
    pub fn ended_one<T: Kept>(&self, id: T::Id) -> Result<Option<T>> {
        evidence::archived_record(&self.view, |record: &T| record.id() == id)
    }

    /// The newest ended records of this month and the last, at most `count` that satisfy `wanted`,
    /// newest first. This reads only the end of the two files.
    pub fn recent<T: Record>(&self, now: Time, count: usize, wanted: impl Fn(&T) -> bool) -> Result<Vec<T>> {
        evidence::recent(&self.view, now, count, wanted)
    }

    /// The newest version of a message in the archive.
    pub fn ended_message(&self, id: MessageId) -> Result<Option<Message>> {
        evidence::archived_message(&self.view, id)
    }

    /// Those of the messages that are in the archive.
    pub fn ended_among(&self, ids: &HashSet<MessageId>) -> Result<HashSet<MessageId>> {
        evidence::archived_among(&self.view, ids)
    }

    /// The record of a settled run. `None` for a live run.
    pub fn run(&self, id: RunId) -> Result<Option<Run>> {
        evidence::run(&self.view, id)
    }

    /// Whether there is a run of this id, settled or not: its directory or its record.
    pub fn is_run(&self, id: RunId) -> Result<bool> {
        Ok(self.agent.workdir().run(id).exists() || self.run(id)?.is_some())
    }

    /// The settled runs, newest first, at most `count`, and whether there are more.
    pub fn runs(&self, count: usize) -> Result<(Vec<Run>, bool)> {
        evidence::runs(&self.view, count)
    }

    /// The settled runs of the months from this moment on, and perhaps some before it, newest
    /// first.
    pub fn runs_since(&self, since: Time) -> Result<Vec<Run>> {
        evidence::runs_since(&self.view, since)
    }

    /// The ids of all runs that have a record or a directory.
    pub fn run_ids(&self) -> Result<Vec<RunId>> {
        evidence::run_ids(&self.view)
    }

    /// The last briefs, newest first.
    pub fn briefs(&self, count: usize) -> Result<Vec<Brief>> {
        evidence::briefs(&self.view, count)
    }

    /// Calls `each` with the events from `since` on, oldest first. Events of the same month that
    /// are older come as well.
    pub fn events(&self, since: Option<Time>, each: impl FnMut(Event) -> Result<()>) -> Result<()> {
        evidence::events(&self.view, since, each)
    }

    /// The last events that satisfy `wanted`, newest first, at most `count`.
    pub fn last_events(&self, count: usize, wanted: impl Fn(&Event) -> bool) -> Result<Vec<Event>> {
        evidence::last_events(&self.view, count, wanted)
    }
}
