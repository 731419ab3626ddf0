//! Reading half of the interface of the stores.

use std::fmt::Debug;

use crate::error::Result;
use crate::model::id::MessageId;
use crate::model::message::InboxKey;
use crate::model::record::Plane;
use crate::model::time::Time;

use super::super::dir::inbox::Dropped;
use super::super::dir::view::Touched;
use super::{KeyWindow, Op};

/// One revision of an agent's records.
pub trait ReadView: Debug {
    fn state(&self) -> Result<String>;

    /// True if this is still the revision that the store has. Always true if each answer is of this
    /// revision, or fails as [`CHANGED`](super::CHANGED).
    fn is_current(&self) -> Result<bool> {
        Ok(true)
    }

    /// Returns the open records of a kind, each after the id under which it lies, in order of id.
    fn open(&self, plane: Plane) -> Result<Vec<(String, String)>>;

    /// Returns the ids of the open records of a kind, in order.
    fn open_ids(&self, plane: Plane) -> Result<Vec<String>> {
        Ok(self.open(plane)?.into_iter().map(|(id, _)| id).collect())
    }

    fn open_one(&self, plane: Plane, id: &str) -> Result<Option<String>>;

    fn is_open(&self, plane: Plane, id: &str) -> Result<bool> {
        Ok(self.open_one(plane, id)?.is_some())
    }

    /// Tells whether open records were added, replaced or removed since, at less cost than a read
    /// of them. `None` if that can't be told.
    fn touched(&self, _has_tasks: bool) -> Option<Touched> {
        None
    }

    /// Returns the plan of an open work item.
    fn plan(&self, work: &str) -> Result<Option<String>>;

    /// Returns the keys of the messages in the inbox, in processing order, at most `count`.
    fn messages(&self, count: usize) -> Result<Vec<InboxKey>>;

    /// Returns a message that is in the inbox.
    fn message(&self, key: InboxKey) -> Result<Option<String>>;

    fn has_message(&self, key: InboxKey) -> Result<bool> {
        Ok(self.message(key)?.is_some())
    }

    /// Returns the name in the inbox of a message that was found there. The state remembers under
    /// it what steps pass over.
    fn name_of(&self, key: InboxKey) -> String {
        format!("{key}.json")
    }

    /// Calls `each` with the texts of those of the messages that are in the inbox.
    fn texts(&self, keys: &[InboxKey], each: &mut dyn FnMut(&str)) -> Result<()> {
        for key in keys {
            self.message(*key)?.iter().for_each(|text| each(text));
        }
        Ok(())
    }

    /// Returns the ids of the hints in the inbox, in order.
    fn hints(&self) -> Result<Vec<MessageId>>;

    /// Returns a hint that is in the inbox.
    fn hint(&self, id: MessageId) -> Result<Option<String>>;

    /// Returns the hand-written files in the inbox, in the order in which a step takes them in.
    fn submissions(&self) -> Result<Vec<Dropped>> {
        Ok(Vec::new())
    }

    /// True if files may lie in the inbox that could not be admitted.
    fn has_rejected(&self) -> Result<bool> {
        Ok(false)
    }

    /// Returns the time at which the oldest message or hint in the inbox was made, as far as ids
    /// show it.
    fn waits_since(&self) -> Result<Option<Time>> {
        let ids = self.messages(usize::MAX)?.into_iter().map(|key| key.id).chain(self.hints()?);
        Ok(ids.filter_map(|id| id.minted_at()).min())
    }

    /// Returns the entry of a dedupe key. A store that keeps one entry for each key may return one
    /// that is outside of the window.
    fn key(&self, key: &str, window: KeyWindow) -> Result<Option<String>>;

    /// Calls `each` with the lines of the archive of these kinds (`message`, `run`, …), newest
    /// first, until it returns `false`. With ids: only with lines of those records.
    fn ended(
        &self,
        kinds: &[&'static str],
        ids: Option<&[String]>,
        each: &mut dyn FnMut(&str) -> Result<bool>,
    ) -> Result<()>;

    /// Maximum number of ids of one such question.
    fn most_ids(&self) -> usize {
        256
    }

    /// Calls `each` with the lines of a kind like [`ReadView::ended`]. May leave out lines that are
    /// older than a month, or before a few hundred kilobytes of newer lines.
    fn recent(
        &self,
        kind: &'static str,
        _now: Time,
        each: &mut dyn FnMut(&str) -> Result<bool>,
    ) -> Result<()> {
        self.ended(&[kind], None, each)
    }

    /// True if a message may have ended, by an index of the archive. `None`: there is no index.
    fn may_have_ended(&self, _id: MessageId, _now: Time) -> Result<Option<bool>> {
        Ok(None)
    }

    /// Calls `each` with the lines of the archive and the events from before a moment, as the
    /// pieces that made them, without the remains of removed months. The cost grows with the number
    /// of lines.
    fn before(&self, moment: Time, each: &mut dyn FnMut(Op) -> Result<()>) -> Result<()>;

    /// Calls `each` with the lines of events, until it returns `false`: the oldest first from a
    /// moment on, or the newest first. A line may come twice.
    fn events(&self, order: Order, each: &mut dyn FnMut(&str) -> Result<bool>) -> Result<()>;

    /// Calls `each` with all pieces of the agent: lines in the order of their writing. Dedupe keys
    /// are not among them, as a store makes them out of the others.
    fn pieces(&self, each: &mut dyn FnMut(Op) -> Result<()>) -> Result<()>;
}

/// Order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Oldest first. With a moment: none that is older.
    Since(Option<Time>),
    NewestFirst,
}
