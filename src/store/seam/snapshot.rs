//! One revision of an agent's records, and what can be asked of it.

use std::collections::{BTreeMap, HashSet};

use crate::error::Result;
use crate::model::dedupe::DedupeEntry;
use crate::model::event::Event;
use crate::model::id::{MessageId, RunId, WorkId};
use crate::model::message::{InboxKey, Message, WakeHint};
use crate::model::record::{OpenRecord, Record};
use crate::model::records::MalformedFile;
use crate::model::run::{Brief, Run};
use crate::model::state::State;
use crate::model::time::{Span, Time};

use super::super::dir::{
    self, Dropped, HandWritten, Reads, Rejected, Waiting, aside, drops, evidence, inbox, layout, settled,
};
use super::seen::{RemoteSnapshot, waiting};

/// One revision of an agent's records. What is asked for is read when it is asked for.
#[derive(Debug)]
pub struct Snapshot<'a> {
    dir: dir::DirSnapshot<'a>,
    seen: Option<RemoteSnapshot<'a>>,
}

/// Answers from the database if the agent's records are there, else from the directory.
macro_rules! either {
    ($from:expr, $seen:ident => $remote:expr, $dir:ident => $directory:expr) => {
        match &$from.seen {
            Some($seen) => $remote,
            None => {
                let $dir = &$from.dir;
                $directory
            }
        }
    };
}

impl<'a> Snapshot<'a> {
    pub(super) fn of_dir(dir: dir::DirSnapshot<'a>) -> Snapshot<'a> {
        Snapshot { dir, seen: None }
    }

    pub(super) fn new(dir: dir::DirSnapshot<'a>, seen: Option<RemoteSnapshot<'a>>) -> Snapshot<'a> {
        Snapshot { dir, seen }
    }

    /// Leaves out what steps pass over in the inbox.
    pub fn without_passed_over(self, state: &State) -> Snapshot<'a> {
        match self.seen {
            None => Snapshot::of_dir(self.dir.without_passed_over(state)),
            Some(seen) => Snapshot { seen: Some(seen.without_passed_over(state)), ..self },
        }
    }

    /// Leaves out less for a step, which retries the names that have changed since they were passed
    /// over.
    pub fn without_unchanged(self, state: &State) -> Snapshot<'a> {
        match self.seen {
            None => Snapshot::of_dir(self.dir.without_unchanged(state)),
            Some(_) => self.without_passed_over(state),
        }
    }
}

/// Open records.
impl Snapshot<'_> {
    /// Every open record of a kind, in order of id.
    pub fn open<T: OpenRecord>(&self) -> Result<Vec<T>> {
        either!(self, seen => seen.open(), dir => dir.view.records(layout::plane(T::PLANE)))
    }

    /// Tells whether open records were added, replaced or removed since. `None` if that can't be
    /// told: then the caller reads them again.
    pub fn touched(&self, state: &State) -> Option<dir::Touched> {
        either!(self, _seen => None, dir => dir.touched(state))
    }

    /// One open record.
    pub fn open_one<T: OpenRecord>(&self, id: T::Id) -> Result<Option<T>> {
        either!(self, seen => seen.open_one(id), dir => dir.view.record(&layout::open::<T>(id)))
    }

    /// The ids of the open records of a kind, in order.
    pub fn open_ids<T: OpenRecord>(&self) -> Result<Vec<T::Id>> {
        either!(self, seen => Ok(seen.open::<T>()?.iter().map(OpenRecord::id).collect()), dir => dir.view.ids(layout::plane(T::PLANE)))
    }

    pub fn is_open<T: OpenRecord>(&self, id: T::Id) -> Result<bool> {
        either!(self, seen => Ok(seen.open_one::<T>(id)?.is_some()), dir => dir.view.exists(&layout::open::<T>(id)))
    }

    /// The prose plan of an open work item.
    pub fn plan(&self, id: WorkId) -> Result<Option<String>> {
        either!(self, seen => seen.plan(id), dir => dir.plan(id))
    }
}

/// The inbox.
impl Snapshot<'_> {
    /// The first messages in processing order, at most `count`.
    pub fn first(&self, count: usize) -> Result<Vec<Waiting>> {
        either!(self, seen => Ok(seen.keys(count)?.into_iter().map(waiting).collect()), dir => Ok(inbox::first(&dir.view, dir.scan()?, count)?.into_iter().map(Waiting::from).collect()))
    }

    /// Every message in processing order, by its key.
    pub fn keys(&self) -> Result<Vec<InboxKey>> {
        either!(self, seen => seen.keys(usize::MAX), dir => inbox::all(&dir.view, dir.scan()?))
    }

    /// A message by its id alone, if it is in the inbox.
    pub fn waiting(&self, id: MessageId) -> Result<Option<Waiting>> {
        either!(self, seen => seen.waiting(id), dir => Ok(inbox::find_id(&dir.view, dir.scan()?, id)?.map(Waiting::from)))
    }

    /// Reads a message. `None` if it has gone. A message that can't be read, or is another agent's,
    /// is an error.
    pub fn read(&self, waiting: &Waiting) -> Result<Option<Message>> {
        either!(self, seen => seen.read(waiting.key), dir => inbox::read(&dir.view, waiting.key, &waiting.place))
    }

    /// Reads a message for a caller that continues with the next one: a message that can't be read,
    /// or is another agent's, is returned as a misfit.
    pub fn try_read(&self, waiting: &Waiting) -> Result<Option<Result<Message, MalformedFile>>> {
        either!(self, seen => seen.try_read(waiting.key), dir => inbox::try_read(&dir.view, waiting.key, &waiting.place))
    }

    /// The hints in the inbox in order of arrival, and the misfits that have the names of hints.
    pub fn hints(&self) -> Result<(Vec<WakeHint>, Vec<MalformedFile>)> {
        either!(self, seen => seen.hints(), dir => inbox::read_hints(&dir.view, dir.scan()?))
    }

    /// The last message of priority `interject`.
    pub fn last_interject(&self) -> Result<Option<MessageId>> {
        either!(self, seen => seen.last_interject(), dir => dir.last_interject())
    }

    /// True if a message of background priority may be in the inbox. Also true for a backlog that
    /// was not searched.
    pub fn has_background(&self) -> Result<bool> {
        either!(self, seen => seen.has_background(), dir => Ok(dir.scan()?.has_background()))
    }

    /// When the oldest message or hint in the inbox was made, as far as names tell.
    pub fn waits_since(&self) -> Result<Option<Time>> {
        either!(self, seen => seen.waits_since(), dir => dir.waits_since())
    }

    /// True if a message has ended and was not requeued since. The caller must hold the lock.
    pub fn is_settled(&self, id: MessageId, now: Time) -> Result<bool> {
        either!(self, seen => seen.is_settled(id), dir => settled::is_settled(&dir.view, id, now))
    }

    /// The entry of a dedupe key, if a message was admitted under it within the window. `revision`
    /// is the agent's. Without the lock this may miss an entry.
    pub fn admitted_under(
        &self,
        key: &str,
        now: Time,
        window: Span,
        revision: u64,
    ) -> Result<Option<DedupeEntry>> {
        either!(self, seen => seen.admitted_under(key, now, window),
            dir => dir.admitted_under(key, now, window, revision))
    }
}

/// Files that other programs and people have put into the inbox: there are none where the records
/// are no files.
impl Snapshot<'_> {
    /// The hand-written files, in the order in which a step takes them in.
    pub fn dropped(&self) -> Result<Vec<Dropped>> {
        either!(self, _seen => Ok(Vec::new()), dir => Ok(drops::in_order(&dir.scan()?.drops)))
    }

    /// When a hand-written file was put into the inbox. `None` if it has gone.
    pub fn dropped_at(&self, file: &Dropped) -> Result<Option<Time>> {
        either!(self, _seen => Ok(None), dir => dir.dropped_at(file))
    }

    /// Reads a submission: its content, or the reason why it can't be read. `None` if it is gone.
    pub fn read_dropped(&self, file: &Dropped) -> Result<Option<Result<HandWritten, String>>> {
        self.dir.read_dropped(file)
    }

    /// Returns the rejected files, with the reasons.
    pub fn rejected(&self, state: &State) -> Result<Vec<Rejected>> {
        drops::rejected(&self.dir.view, state)
    }

    /// Counts the rejected files.
    pub fn count_rejected(&self, state: &State) -> Result<usize> {
        self.dir.count_rejected(state)
    }

    /// True if no rejected file is left. Does not list the inbox.
    pub fn is_none_rejected(&self, state: &State) -> Result<bool> {
        Ok(aside::passed_over(state).is_empty() && drops::nothing_rejected(&self.dir.view)?)
    }

    /// Reads a rejected file as a step would.
    pub fn read_rejected(&self, file: &Rejected) -> Result<Reads> {
        drops::read_rejected(&self.dir.view, file)
    }

    /// Describes a message that the agent can't take up as it is.
    pub fn unfit(&self, waiting: &Waiting, reason: String) -> MalformedFile {
        inbox::unfit(&waiting.place, reason)
    }
}

/// The past.
impl Snapshot<'_> {
    /// Calls `each` with the ended records of a kind, newest first, until it returns `false`.
    pub fn ended<T: Record>(&self, each: impl FnMut(T) -> bool) -> Result<()> {
        either!(self, seen => seen.ended(each), dir => evidence::archived(&dir.view, each))
    }

    /// The newest ended record of a kind that has this id.
    pub fn ended_one<T: OpenRecord>(&self, id: T::Id) -> Result<Option<T>> {
        either!(self, seen => seen.ended_by(&id.to_string()), dir => evidence::archived_record(&dir.view, |record: &T| record.id() == id))
    }

    /// The newest ended records of this month and the last, at most `count` that satisfy `wanted`,
    /// newest first. This reads a bounded part of the archive.
    pub fn recent<T: Record>(&self, now: Time, count: usize, wanted: impl Fn(&T) -> bool) -> Result<Vec<T>> {
        either!(self, seen => seen.recent(count, wanted), dir => evidence::recent(&dir.view, now, count, wanted))
    }

    /// The newest version of a message in the archive.
    pub fn ended_message(&self, id: MessageId) -> Result<Option<Message>> {
        either!(self, seen => seen.ended_by(&id.to_string()), dir => evidence::archived_message(&dir.view, id))
    }

    /// Those of the messages that are in the archive.
    pub fn ended_among(&self, ids: &HashSet<MessageId>) -> Result<HashSet<MessageId>> {
        either!(self, seen => seen.ended_among(ids), dir => evidence::archived_among(&dir.view, ids))
    }

    /// The record of a settled run. `None` for a live run.
    pub fn run(&self, id: RunId) -> Result<Option<Run>> {
        either!(self, seen => seen.ended_by(&id.to_string()), dir => evidence::run(&dir.view, id))
    }

    /// True if there is a run of this id, settled or not: its directory or its record.
    pub fn is_run(&self, id: RunId) -> Result<bool> {
        Ok(self.dir.agent.workdir().run(id).exists() || self.run(id)?.is_some())
    }

    /// Returns the settled runs, newest first, at most `count`, and whether there are more.
    pub fn runs(&self, count: usize) -> Result<(Vec<Run>, bool)> {
        let mut found = BTreeMap::new();
        self.ended(|run: Run| {
            // The newest line about a run comes first.
            found.entry(run.id).or_insert(run);
            found.len() <= count
        })?;
        let more = found.len() > count;
        Ok((found.into_values().rev().take(count).collect(), more))
    }

    /// Returns the settled runs of the months from this moment on, newest first.
    pub fn runs_since(&self, since: Time) -> Result<Vec<Run>> {
        let (mut found, first) = (BTreeMap::new(), since.month());
        self.ended(|run: Run| {
            let is_within = run.ended_at.month() >= first;
            if is_within {
                found.entry(run.id).or_insert(run);
            }
            is_within
        })?;
        Ok(found.into_values().rev().collect())
    }

    /// Returns the ids of all runs that have a record, or a directory on this machine.
    pub fn run_ids(&self) -> Result<Vec<RunId>> {
        let mut ids = evidence::run_ids(&self.dir.view)?;
        if self.seen.is_some() {
            ids.extend(self.runs(usize::MAX)?.0.iter().map(|run| run.id));
        }
        Ok(ids)
    }

    /// Returns the last briefs, newest first.
    pub fn briefs(&self, count: usize) -> Result<Vec<Brief>> {
        let mut briefs = Vec::new();
        if count > 0 {
            self.ended(|brief| {
                briefs.push(brief);
                briefs.len() < count
            })?;
        }
        Ok(briefs)
    }

    /// Calls `each` with the events from `since` on, oldest first. Events of the same month that
    /// are older may come as well.
    pub fn events(&self, since: Option<Time>, each: impl FnMut(Event) -> Result<()>) -> Result<()> {
        either!(self, seen => seen.events(since, each), dir => evidence::events(&dir.view, since, each))
    }

    /// The last events that satisfy `wanted`, newest first, at most `count`.
    pub fn last_events(&self, count: usize, wanted: impl Fn(&Event) -> bool) -> Result<Vec<Event>> {
        either!(self, seen => seen.last_events(count, wanted), dir => evidence::last_events(&dir.view, count, wanted))
    }
}
