//! Read interface of a store: a view of one revision.

use std::fmt::Debug;

use crate::error::Result;
use crate::model::id::MessageId;
use crate::model::message::InboxKey;
use crate::model::record::Plane;
use crate::model::time::{Span, Time};

use super::super::dir::inbox::Dropped;
use super::{EachOp, KeyWindow};

/// Function that handles a line, and returns `false` if it wants no more lines.
pub type EachLine<'e> = dyn FnMut(&str) -> Result<bool> + 'e;

/// View of one revision of an agent's records.
pub trait ReadView: Debug {
    fn state(&self) -> Result<String>;

    /// True if the records are still at this revision. Always true for a view whose methods either
    /// answer from this revision or fail as [`CHANGED`](super::CHANGED).
    fn is_current(&self) -> Result<bool> {
        Ok(true)
    }

    /// Returns the records of a kind that have not ended, with their stored ids, sorted by id.
    fn open(&self, plane: Plane) -> Result<Vec<(String, String)>>;

    /// Returns the ids of the records of a kind that have not ended, sorted.
    fn open_ids(&self, plane: Plane) -> Result<Vec<String>> {
        Ok(self.open(plane)?.into_iter().map(|(id, _)| id).collect())
    }

    fn open_one(&self, plane: Plane, id: &str) -> Result<Option<String>>;

    fn is_open(&self, plane: Plane, id: &str) -> Result<bool> {
        Ok(self.open_one(plane, id)?.is_some())
    }

    /// Returns the plan of a work item that is not completed.
    fn plan(&self, work: &str) -> Result<Option<String>>;

    /// Calls `each` with each work item that has a plan, and the plan.
    fn plans(&self, each: &mut dyn FnMut(String, String) -> Result<()>) -> Result<()> {
        for id in self.open_ids(Plane::Work)? {
            if let Some(plan) = self.plan(&id)? {
                each(id, plan)?;
            }
        }
        Ok(())
    }

    /// Returns the keys of the messages in the inbox, in processing order, at most `count`.
    fn messages(&self, count: usize) -> Result<Vec<InboxKey>>;

    /// Returns a message that is in the inbox.
    fn message(&self, key: InboxKey) -> Result<Option<String>>;

    fn has_message(&self, key: InboxKey) -> Result<bool> {
        Ok(self.message(key)?.is_some())
    }

    /// Returns the file name of a message in the inbox. `state.json` lists the messages that steps
    /// skip by this name.
    fn name_of(&self, key: InboxKey) -> String {
        format!("{key}.json")
    }

    /// Calls `each` with those of the given messages that are in the inbox.
    fn texts(&self, keys: &[InboxKey], each: &mut dyn FnMut(InboxKey, &str) -> Result<()>) -> Result<()> {
        for key in keys {
            if let Some(text) = self.message(*key)? {
                each(*key, &text)?;
            }
        }
        Ok(())
    }

    /// Returns the ids of the hints in the inbox, sorted.
    fn hints(&self) -> Result<Vec<MessageId>>;

    /// Returns a hint that is in the inbox.
    fn hint(&self, id: MessageId) -> Result<Option<String>>;

    /// Returns the files that programs put into the inbox for admission, in the order of admission.
    fn submissions(&self) -> Result<Vec<Dropped>> {
        Ok(Vec::new())
    }

    /// True if the store may have rejected files: inbox files that no step could admit.
    fn has_rejected(&self) -> Result<bool> {
        Ok(false)
    }

    /// Returns the creation time of the oldest message or hint in the inbox, according to the ids.
    fn oldest_arrival(&self) -> Result<Option<Time>> {
        let ids = self.messages(usize::MAX)?.into_iter().map(|key| key.id).chain(self.hints()?);
        Ok(ids.filter_map(|id| id.minted_at()).min())
    }

    /// Returns the entry of a dedupe key, if a message was admitted under the key within the
    /// window. A store that keeps one entry for each key may return an entry outside the window.
    fn key(&self, key: &str, window: KeyWindow) -> Result<Option<String>>;

    /// Returns the entry that a new entry of a dedupe key would replace.
    fn replaced_key(&self, key: &str, admitted_at: Time) -> Result<Option<String>> {
        self.key(key, KeyWindow { now: admitted_at, length: Span::default(), revision: u64::MAX })
    }

    /// Calls `each` with the lines of the archive of these kinds (`message`, `run`, …), newest
    /// first, until `each` returns `false`. If there are `ids`, skips the lines of other records.
    fn ended(&self, kinds: &[&'static str], ids: Option<&[String]>, each: &mut EachLine<'_>) -> Result<()>;

    /// Maximum number of ids in one call of [`ReadView::ended`].
    fn max_ids(&self) -> usize {
        256
    }

    /// Calls `each` with the newest lines of a kind, like [`ReadView::ended`]. May leave out lines
    /// that are older than a month, or that precede a few hundred kilobytes of newer lines.
    fn recent(&self, kind: &'static str, _now: Time, each: &mut EachLine<'_>) -> Result<()> {
        self.ended(&[kind], None, each)
    }

    /// True if an index shows that a message ended, perhaps before a requeue. `None` without index.
    fn may_have_ended(&self, _id: MessageId, _now: Time) -> Result<Option<bool>> {
        Ok(None)
    }

    /// Calls `each` with the lines of the archive and the events, as the operations that added
    /// them. `before`: only lines before this moment, without the lists of ids kept from deleted
    /// months. The cost grows with the number of lines.
    fn history(&self, before: Option<Time>, each: &mut EachOp<'_>) -> Result<()>;

    /// Calls `each` with the lines of events in this order, until `each` returns `false`. A line
    /// may occur twice.
    fn events(&self, order: Order, each: &mut EachLine<'_>) -> Result<()>;
}

/// Order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Oldest first; if there is a moment, only events from that moment on.
    Since(Option<Time>),
    NewestFirst,
}
