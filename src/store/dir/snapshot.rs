//! View of one revision of an agent's records in a directory.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use crate::cap_fs::Content;
use crate::error::Result;
use crate::model::id::MessageId;
use crate::model::message::{InboxKey, Message, WakeHint};
use crate::model::record::Plane;
use crate::model::time::Time;

use super::super::backend::{EachLine, EachOp, ImportedFile, KeyWindow, Order, ReadView};
use super::agent::missing;
use super::inbox::{self, Dropped, Scan};
use super::record::{encode, text};
use super::view::View;
use super::{DirAgent, DirTxn, copying, dedupe, ended_ids, evidence, layout};

/// View of one revision of an agent's records. Records are read at the first request, and the inbox
/// is listed once.
#[derive(Debug)]
pub struct DirReadView<'a> {
    agent: &'a DirAgent<'a>,
    view: View<'a>,
    /// Lock under which the records are read.
    lock: Option<&'a DirTxn<'a>>,
    /// Content of `state.json` when the view was made. `None` under the lock.
    before: Option<Option<Content>>,
    scan: OnceCell<Rc<Scan>>,
    /// Paths, relative to the agent's directory, of messages that were found in directories of the
    /// inbox.
    filed: RefCell<HashMap<InboxKey, String>>,
}

/// Message in the inbox that was found by its name and is not read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub key: InboxKey,
    /// Name of the message's file in the inbox.
    pub(in crate::store) name: String,
}

impl<'a> DirReadView<'a> {
    /// Returns a view for reads without the lock. `before`: the `state.json` from which `view` was
    /// made.
    pub(super) fn of(
        agent: &'a DirAgent<'a>,
        view: View<'a>,
        before: Option<Option<Content>>,
    ) -> DirReadView<'a> {
        DirReadView { agent, view, lock: None, before, scan: OnceCell::new(), filed: RefCell::default() }
    }

    /// Returns a view of the current records under a lock.
    pub(super) fn under(lock: &'a DirTxn<'a>, view: View<'a>) -> DirReadView<'a> {
        DirReadView { lock: Some(lock), ..DirReadView::of(lock.agent, view, None) }
    }

    /// Returns the names in the inbox. Lists the inbox at the first call.
    fn scan(&self) -> Result<&Scan> {
        if let Some(scan) = self.scan.get() {
            return Ok(scan);
        }
        let scan = match self.lock {
            Some(lock) => lock.listed()?,
            None => Rc::new(inbox::scan(&self.view)?),
        };
        Ok(self.scan.get_or_init(|| scan))
    }

    /// Path of a message that was found, relative to the agent's directory.
    fn path_of(&self, key: InboxKey) -> String {
        self.filed.borrow().get(&key).cloned().unwrap_or_else(|| layout::message(key))
    }
}

impl ReadView for DirReadView<'_> {
    fn state(&self) -> Result<String> {
        if let Some(lock) = self.lock {
            return lock.state_text();
        }
        let bytes = match &self.before {
            Some(before) if !self.view.has_journal() => before.as_ref().map(|content| content.bytes.clone()),
            Some(_) | None => self.view.bytes(layout::STATE)?,
        };
        let cap = self.agent.dir.join(layout::STATE);
        text(&cap, bytes.ok_or_else(|| missing(&cap))?)
    }

    fn is_current(&self) -> Result<bool> {
        let Some(before) = &self.before else { return Ok(true) };
        // The journal is read before `state.json`, so that a line that is applied between the two
        // reads shows in `state.json`.
        let pending = self.agent.pending(before.as_ref())?;
        let now = pending.last().map(|entry| entry.base_revision);
        let is_overtaken = now.is_some() && now != self.view.base_revision();
        let bytes = |content: Option<&Content>| content.map(|content| content.bytes.clone());
        Ok(!is_overtaken && bytes(self.agent.state_file()?.as_ref()) == bytes(before.as_ref()))
    }

    fn open(&self, plane: Plane) -> Result<Vec<(String, String)>> {
        let dir = layout::plane(plane);
        let named = |(path, bytes): (String, Vec<u8>)| {
            let text = String::from_utf8(bytes)
                .or_else(|error| text(&self.agent.dir.join(&path), error.into_bytes()))?;
            Ok((layout::id_at(&path).to_owned(), text))
        };
        self.view.contents(dir)?.into_iter().map(named).collect()
    }

    fn open_ids(&self, plane: Plane) -> Result<Vec<String>> {
        let mut paths = self.view.record_paths(layout::plane(plane))?;
        paths.retain(|path| !self.view.is_deleted(path));
        Ok(paths.iter().map(|path| layout::id_at(path).to_owned()).collect())
    }

    fn open_one(&self, plane: Plane, id: &str) -> Result<Option<String>> {
        let path = layout::open(plane, id);
        let bytes = self.view.bytes(&path)?;
        bytes.map(|bytes| text(&self.agent.dir.join(&path), bytes)).transpose()
    }

    fn is_open(&self, plane: Plane, id: &str) -> Result<bool> {
        self.view.exists(&layout::open(plane, id))
    }

    fn plan(&self, work: &str) -> Result<Option<String>> {
        let bytes = self.view.bytes(&layout::plan(work))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn messages(&self, count: usize) -> Result<Vec<InboxKey>> {
        let scan = self.scan()?;
        let found = match count {
            usize::MAX => inbox::all(&self.view, scan)?,
            count => inbox::first(&self.view, scan, count)?,
        };
        let mut filed = self.filed.borrow_mut();
        let mut keys = Vec::with_capacity(found.len());
        for (key, path) in found {
            keys.push(key);
            if path != layout::message(key) {
                filed.insert(key, path);
            }
        }
        Ok(keys)
    }

    fn message(&self, key: InboxKey) -> Result<Option<String>> {
        let said = |message: Message, user: &str| message.said_by(user);
        let mut found = self.view.arrival(&self.path_of(key), said)?;
        // A reader without the lock searches again as often as the message is moved meanwhile.
        while found.is_none() && !self.view.is_locked() {
            let Some(path) = inbox::find_filed(&self.view, &inbox::scan(&self.view)?, key)? else { break };
            found = self.view.arrival(&path, said)?;
        }
        Ok(found)
    }

    fn has_message(&self, key: InboxKey) -> Result<bool> {
        let scan = self.scan()?;
        if scan.direct.binary_search(&key).is_ok() {
            return Ok(true);
        }
        let found = inbox::find_filed(&self.view, scan, key)?;
        Ok(found.map(|path| self.filed.borrow_mut().insert(key, path)).is_some())
    }

    fn name_of(&self, key: InboxKey) -> String {
        inbox::from_inbox(&self.path_of(key)).to_owned()
    }

    fn hints(&self) -> Result<Vec<MessageId>> {
        Ok(self.scan()?.hints.clone())
    }

    fn hint(&self, id: MessageId) -> Result<Option<String>> {
        self.view.arrival(&layout::hint(id), |hint: WakeHint, user| Ok(hint.said_by(user)))
    }

    fn submissions(&self) -> Result<Vec<Dropped>> {
        Ok(inbox::submissions(self.scan()?))
    }

    fn has_rejected(&self) -> Result<bool> {
        Ok(self.scan()?.has_rejected)
    }

    fn waits_since(&self) -> Result<Option<Time>> {
        let scan = self.scan()?;
        let first = scan.direct.iter().chain(scan.segments.iter().map(|segment| &segment.from));
        let arrived = first.map(|key| key.id).chain(scan.hints.iter().copied());
        Ok(arrived.filter_map(|id| id.minted_at()).min())
    }

    /// Returns the message of a dedupe key. Without the lock only the cache is searched, which may
    /// miss an entry.
    fn key(&self, key: &str, window: KeyWindow) -> Result<Option<String>> {
        let found = if self.view.is_locked() {
            dedupe::find(self, &self.view, key, window, self.agent.store.disk)
        } else {
            dedupe::peek(&self.view, key, window)
        };
        found?.map(|entry| text(self.agent.dir.path(), encode(&entry))).transpose()
    }

    fn replaced_key(&self, key: &str, admitted_at: Time) -> Result<Option<String>> {
        let path = dedupe::path(key, admitted_at);
        self.view.bytes(&path)?.map(|bytes| text(&self.agent.dir.join(&path), bytes)).transpose()
    }

    fn ended(&self, kinds: &[&'static str], ids: Option<&[String]>, each: &mut EachLine<'_>) -> Result<()> {
        evidence::ended(&self.view, kinds, ids, each)
    }

    fn most_ids(&self) -> usize {
        usize::MAX
    }

    fn recent(&self, kind: &'static str, now: Time, each: &mut EachLine<'_>) -> Result<()> {
        evidence::recent(&self.view, kind, now, each)
    }

    fn may_have_ended(&self, id: MessageId, now: Time) -> Result<Option<bool>> {
        ended_ids::may_have_ended(&self.view, id, now).map(Some)
    }

    fn history(&self, before: Option<Time>, each: &mut EachOp<'_>) -> Result<()> {
        copying::history(&self.view, before, each)
    }

    fn events(&self, order: Order, each: &mut EachLine<'_>) -> Result<()> {
        match order {
            Order::Since(since) => evidence::events(&self.view, since, each),
            Order::NewestFirst => evidence::newest_events(&self.view, each),
        }
    }

    fn imported_files(&self, each: &mut dyn FnMut(ImportedFile) -> Result<()>) -> Result<()> {
        copying::files(self.view.agent, Path::new(""), each)
    }
}
