//! One revision of an agent's records, read from memory or from the directory.

use std::collections::HashSet;
use std::ops::Deref;
use std::rc::Rc;

use crate::error::Result;
use crate::model::dedupe::DedupeEntry;
use crate::model::event::Event;
use crate::model::id::{MessageId, RunId, WorkId};
use crate::model::message::{InboxKey, Message, MessageStatus, Priority, WakeHint};
use crate::model::record::{Kept, Record};
use crate::model::records::Misfit;
use crate::model::run::{Brief, Run};
use crate::model::state::State;
use crate::model::time::{Span, Time};

use super::super::dir::{self, Dropped, Rejected, Waiting};
use super::{Records, record};

#[derive(Debug)]
pub struct Snapshot<'a> {
    pub(super) dir: dir::Snapshot<'a>,
    pub(super) records: Option<Rc<Records>>,
}

impl<'a> Deref for Snapshot<'a> {
    type Target = dir::Snapshot<'a>;

    fn deref(&self) -> &dir::Snapshot<'a> {
        &self.dir
    }
}

/// Answers from the records in memory if the agent has such, else from the directory.
macro_rules! either {
    ($seen:expr, $records:ident => $memory:expr, $dir:ident => $directory:expr) => {
        match &$seen.records {
            Some($records) => $memory,
            None => {
                let $dir = &$seen.dir;
                $directory
            }
        }
    };
}

impl<'a> Snapshot<'a> {
    pub fn without_passed_over(self, state: &State) -> Snapshot<'a> {
        Snapshot { dir: self.dir.without_passed_over(state), ..self }
    }

    pub fn without_unchanged(self, state: &State) -> Snapshot<'a> {
        Snapshot { dir: self.dir.without_unchanged(state), ..self }
    }

    pub fn open<T: Kept>(&self) -> Result<Vec<T>> {
        either!(self, records => {
            let of_kind = records.open.iter().filter(|((plane, _), _)| *plane == T::PLANE);
            Ok(of_kind.map(|(_, value)| record(value)).collect())
        }, dir => dir.open())
    }

    /// Nothing for records in memory, so that the caller reads them again.
    pub fn touched(&self, state: &State) -> Option<dir::Touched> {
        either!(self, _records => None, dir => dir.touched(state))
    }

    pub fn open_one<T: Kept>(&self, id: T::Id) -> Result<Option<T>> {
        either!(self, records => Ok(records.open.get(&(T::PLANE, id.to_string())).map(record)), dir => dir.open_one(id))
    }

    pub fn open_ids<T: Kept>(&self) -> Result<Vec<T::Id>> {
        either!(self, _records => Ok(self.open::<T>()?.iter().map(Kept::id).collect()), dir => dir.open_ids::<T>())
    }

    pub fn is_open<T: Kept>(&self, id: T::Id) -> Result<bool> {
        either!(self, _records => Ok(self.open_one::<T>(id)?.is_some()), dir => dir.is_open::<T>(id))
    }

    pub fn plan(&self, id: WorkId) -> Result<Option<String>> {
        either!(self, records => Ok(records.plans.get(&id).cloned()), dir => dir.plan(id))
    }

    pub fn first(&self, count: usize) -> Result<Vec<Waiting>> {
        either!(self, records => {
            Ok(records.inbox.keys().take(count).map(|key| Waiting::from((*key, String::new()))).collect())
        }, dir => dir.first(count))
    }

    pub fn keys(&self) -> Result<Vec<InboxKey>> {
        either!(self, records => Ok(records.inbox.keys().copied().collect()), dir => dir.keys())
    }

    pub fn waiting(&self, id: MessageId) -> Result<Option<Waiting>> {
        either!(self, records => {
            let found = records.inbox.keys().find(|key| key.id == id);
            Ok(found.map(|key| Waiting::from((*key, String::new()))))
        }, dir => dir.waiting(id))
    }

    pub fn read(&self, waiting: &Waiting) -> Result<Option<Message>> {
        either!(self, records => Ok(records.inbox.get(&waiting.key).cloned()), dir => dir.read(waiting))
    }

    pub fn try_read(&self, waiting: &Waiting) -> Result<Option<Result<Message, Misfit>>> {
        either!(self, _records => Ok(self.read(waiting)?.map(Ok)), dir => dir.try_read(waiting))
    }

    pub fn hints(&self) -> Result<(Vec<WakeHint>, Vec<Misfit>)> {
        either!(self, records => Ok((records.hints.values().cloned().collect(), Vec::new())), dir => dir.hints())
    }

    pub fn last_interject(&self) -> Result<Option<MessageId>> {
        either!(self, records => {
            let mut interjects = records.inbox.keys().filter(|key| key.priority == Priority::Interject);
            Ok(interjects.next_back().map(|key| key.id))
        }, dir => dir.last_interject())
    }

    pub fn has_background(&self) -> Result<bool> {
        either!(self, records => {
            Ok(records.inbox.keys().any(|key| key.priority == Priority::Background))
        }, dir => dir.has_background())
    }

    pub fn waits_since(&self) -> Result<Option<Time>> {
        either!(self, records => {
            let ids = records.inbox.keys().map(|key| key.id).chain(records.hints.keys().copied());
            Ok(ids.filter_map(|id| id.minted_at()).min())
        }, dir => dir.waits_since())
    }

    pub fn is_settled(&self, id: MessageId, now: Time) -> Result<bool> {
        either!(self, _records => {
            let end = self.ended_message(id)?.and_then(|message| message.settlement);
            Ok(end.is_some_and(|end| end.status != MessageStatus::Queued))
        }, dir => dir.is_settled(id, now))
    }

    pub fn admitted_under(
        &self,
        key: &str,
        now: Time,
        window: Span,
        revision: u64,
    ) -> Result<Option<DedupeEntry>> {
        either!(self, records => {
            let within = |entry: &&DedupeEntry| now.since(entry.admitted_at).max(entry.admitted_at.since(now)) < window;
            Ok(records.keys.get(key).filter(within).cloned())
        }, dir => dir.admitted_under(key, now, window, revision))
    }

    pub fn dropped(&self) -> Result<Vec<Dropped>> {
        either!(self, _records => Ok(Vec::new()), dir => dir.dropped())
    }

    pub fn rejected(&self, state: &State) -> Result<Vec<Rejected>> {
        either!(self, _records => Ok(Vec::new()), dir => dir.rejected(state))
    }

    pub fn count_rejected(&self, state: &State) -> Result<usize> {
        either!(self, _records => Ok(0), dir => dir.count_rejected(state))
    }

    pub fn ended<T: Record>(&self, mut each: impl FnMut(T) -> bool) -> Result<()> {
        either!(self, records => {
            let mut of_kind = records.ended.iter().rev().filter(|(kind, _)| *kind == T::KIND);
            of_kind.all(|(_, value)| each(record(value)));
            Ok(())
        }, dir => dir.ended(each))
    }

    fn newest<T: Record>(&self, count: usize, wanted: impl Fn(&T) -> bool) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.ended(|record: T| {
            found.extend(Some(record).filter(|record| found.len() < count && wanted(record)));
            found.len() < count
        })?;
        Ok(found)
    }

    pub fn ended_one<T: Kept>(&self, id: T::Id) -> Result<Option<T>> {
        either!(self, _records => Ok(self.newest(1, |record: &T| record.id() == id)?.pop()), dir => dir.ended_one(id))
    }

    pub fn recent<T: Record>(&self, now: Time, count: usize, wanted: impl Fn(&T) -> bool) -> Result<Vec<T>> {
        either!(self, _records => self.newest(count, wanted), dir => dir.recent(now, count, wanted))
    }

    pub fn ended_message(&self, id: MessageId) -> Result<Option<Message>> {
        either!(self, _records => {
            Ok(self.newest(1, |message: &Message| message.id == id)?.pop())
        }, dir => dir.ended_message(id))
    }

    pub fn ended_among(&self, ids: &HashSet<MessageId>) -> Result<HashSet<MessageId>> {
        either!(self, _records => {
            let found = self.newest(usize::MAX, |message: &Message| ids.contains(&message.id))?;
            Ok(found.iter().map(|message| message.id).collect())
        }, dir => dir.ended_among(ids))
    }

    pub fn run(&self, id: RunId) -> Result<Option<Run>> {
        either!(self, _records => Ok(self.newest(1, |run: &Run| run.id == id)?.pop()), dir => dir.run(id))
    }

    pub fn is_run(&self, id: RunId) -> Result<bool> {
        either!(self, _records => Ok(self.run(id)?.is_some()), dir => dir.is_run(id))
    }

    pub fn runs(&self, count: usize) -> Result<(Vec<Run>, bool)> {
        either!(self, _records => {
            let mut known = HashSet::new();
            let mut all = self.newest(usize::MAX, |_: &Run| true)?;
            all.retain(|run| known.insert(run.id));
            let more = all.len() > count;
            all.truncate(count);
            Ok((all, more))
        }, dir => dir.runs(count))
    }

    pub fn runs_since(&self, since: Time) -> Result<Vec<Run>> {
        either!(self, _records => Ok(self.runs(usize::MAX)?.0), dir => dir.runs_since(since))
    }

    pub fn run_ids(&self) -> Result<Vec<RunId>> {
        either!(self, _records => Ok(self.runs(usize::MAX)?.0.iter().map(|run| run.id).collect()), dir => dir.run_ids())
    }

    pub fn briefs(&self, count: usize) -> Result<Vec<Brief>> {
        either!(self, _records => self.newest(count, |_: &Brief| true), dir => dir.briefs(count))
    }

    pub fn events(
        &self,
        state: &State,
        since: Option<Time>,
        each: impl FnMut(Event) -> Result<()>,
    ) -> Result<()> {
        either!(self, records => records.events.iter().cloned().try_for_each(each), dir => dir.events(state, since, each))
    }

    pub fn last_events(
        &self,
        state: &State,
        count: usize,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Vec<Event>> {
        either!(self, records => {
            Ok(records.events.iter().rev().filter(|event| wanted(event)).take(count).cloned().collect())
        }, dir => dir.last_events(state, count, wanted))
    }
}
