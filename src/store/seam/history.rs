//! Queries of a snapshot on the history of its agent.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use crate::error::Result;
use crate::local::layout;
use crate::model::event::Event;
use crate::model::id::{MessageId, RunId};
use crate::model::message::Message;
use crate::model::record::{OpenRecord, Record};
use crate::model::run::{Brief, Run};
use crate::model::time::Time;

use super::super::backend::Order;
use super::super::dir::evidence::{self, each_ended, last_versions};
use super::super::dir::months::LineHashes;
use super::super::dir::record::{decode_at, decode_plain};
use super::snapshot::Snapshot;

/// Bytes at the end of the archive that are read for the context of a turn.
const TAIL: usize = 256 * 1024;

impl Snapshot<'_> {
    /// Path of the archive of a kind, for error messages.
    pub(super) fn archive<T: Record>(&self) -> PathBuf {
        self.records.place(format_args!("{}/{}", layout::ARCHIVE, T::KIND))
    }

    /// Calls `each` with the ended records of a kind, newest first, until `each` returns `false`.
    pub fn ended<T: Record>(&self, mut each: impl FnMut(T) -> bool) -> Result<()> {
        self.each_ended(None, &mut each)
    }

    /// Calls `each` with a kind's ended records, newest first; with `ids`, only with these.
    fn each_ended<T: Record>(&self, ids: Option<&[String]>, each: &mut dyn FnMut(T) -> bool) -> Result<()> {
        each_ended(self.view()?, &self.archive::<T>(), ids, |mut record: T| {
            record.set_agent(self.agent());
            each(record)
        })
    }

    /// Returns the newest ended record of a kind with this id.
    pub fn ended_one<T: OpenRecord>(&self, id: T::Id) -> Result<Option<T>> {
        self.ended_by(&id.to_string())
    }

    fn ended_by<T: Record>(&self, id: &str) -> Result<Option<T>> {
        let mut found = None;
        self.each_ended(Some(&[id.to_owned()]), &mut |record| {
            found = Some(record);
            false
        })?;
        Ok(found)
    }

    /// Returns the newest ended records of this month and last month that satisfy `wanted`, newest
    /// first, at most `count`. Reads a bounded part of the archive.
    pub fn recent<T: Record>(&self, now: Time, count: usize, wanted: impl Fn(&T) -> bool) -> Result<Vec<T>> {
        let (mut found, mut read, mut met) = (Vec::new(), 0, LineHashes::default());
        if count == 0 {
            return Ok(found);
        }
        let place = self.archive::<T>();
        self.view()?.recent(T::KIND, now, &mut |line| {
            let mut record: T = decode_at(&place, 0, line.as_bytes())?;
            record.set_agent(self.agent());
            found.extend(Some(record).filter(|record| met.insert(line.as_bytes()) && wanted(record)));
            read += line.len();
            Ok(found.len() < count && read < TAIL)
        })?;
        Ok(found)
    }

    /// Returns the value of `of` for the newest version of each of these messages in the archive.
    pub fn ended_among<V>(&self, ids: &[MessageId], of: fn(&Message) -> V) -> Result<HashMap<MessageId, V>> {
        let place = self.archive::<Message>();
        last_versions(self.view()?, &place, ids, |message: Message| (message.id, of(&message)))
    }

    /// Returns the record of a settled run. `None` for a live run.
    pub fn run(&self, id: RunId) -> Result<Option<Run>> {
        self.ended_by(&id.to_string())
    }

    /// True if a run of this id has a directory or a record, settled or not.
    pub fn is_run(&self, id: RunId) -> Result<bool> {
        Ok(self.records.local.run(id).exists() || self.run(id)?.is_some())
    }

    /// Returns the settled runs, newest first, at most `count`, and true if more exist.
    pub fn runs(&self, count: usize) -> Result<(Vec<Run>, bool)> {
        let mut found = BTreeMap::new();
        self.ended(|run: Run| {
            // The newest line of a run comes first, so older ones are ignored.
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
        let mut ids = evidence::run_dirs(&self.records.local.dir)?;
        self.view()?.ended(&[Run::KIND], None, &mut |line| {
            ids.extend(evidence::id_in::<RunId>(line.as_bytes()));
            Ok(true)
        })?;
        Ok(ids)
    }

    /// Returns the last summaries of turns, newest first.
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

    /// Calls `each` with the events, each once even if a merge has doubled its line, until `each`
    /// returns `false`.
    fn each_event(&self, order: Order, mut each: impl FnMut(Event) -> bool) -> Result<()> {
        let (place, mut met) = (self.records.place(layout::LEDGER), HashSet::new());
        self.view()?.events(order, &mut |line| {
            let mut event: Event = decode_plain(&place, 0, line.as_bytes())?;
            event.agent.clone_from(self.agent());
            Ok(!met.insert(event.id) || each(event))
        })
    }

    /// Calls `each` with the events from `since` on, oldest first. Older events of that month may
    /// be included.
    pub fn events(&self, since: Option<Time>, mut each: impl FnMut(Event) -> Result<()>) -> Result<()> {
        let mut told = Ok(());
        self.each_event(Order::Since(since), |event| {
            told = each(event);
            told.is_ok()
        })?;
        told
    }

    /// Returns the last events that satisfy `wanted`, newest first, at most `count`.
    pub fn last_events(&self, count: usize, wanted: impl Fn(&Event) -> bool) -> Result<Vec<Event>> {
        let mut found: Vec<Event> = Vec::new();
        if count > 0 {
            self.each_event(Order::NewestFirst, |event| {
                found.extend(Some(event).filter(&wanted));
                found.len() < count
            })?;
        }
        Ok(found)
    }
}
