//! Records of one agent, and views of one revision of them.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::io::{Read, Seek, Write};
use std::num::NonZeroU32;
use std::rc::Rc;

use crate::cap_fs::Content;
use crate::error::{Error, IoContext, Result};
use crate::local::{config, files, layout, lock};
use crate::model::bound::{CHECKPOINT, MAX_SETTINGS};
use crate::model::id::{MessageId, TriggerId};
use crate::model::message::{InboxKey, Message, WakeHint};
use crate::model::preemption::Checkpoint;
use crate::model::record::Plane;
use crate::model::state::State;
use crate::model::time::Time;
use crate::model::trigger::Uses;

use super::super::backend::{
    AgentRecords, Arrival, EachLine, EachOp, KeyWindow, Order, ReadView, UseOutcome,
};
use super::agent::{DirAgent, missing};
use super::inbox::{self, Dropped, Scan};
use super::journal::{FoundJournal, Journal};
use super::record::{encode, text};
use super::view::View;
use super::{DirTxn, copying, dedupe, ended_ids, evidence};

/// Maximum bytes of a signature key.
const MAX_KEY: u64 = 4096;

/// View of one revision of an agent's records. Records are read at the first request, and the inbox
/// is listed once.
#[derive(Debug)]
pub struct DirReadView<'a> {
    agent: &'a DirAgent<'a>,
    view: View<'a>,
    /// Lock under which the records are read; `None` for reads without the agent's lock.
    lock: Option<&'a DirTxn<'a>>,
    /// Content of `state.json` when the view was made; `Some(None)` if the file was missing, `None`
    /// if the view is not compared with later records.
    before: Option<Option<Content>>,
    scan: OnceCell<Rc<Scan>>,
    /// Paths, relative to the agent's directory, of messages in subdirectories of the inbox.
    filed: RefCell<HashMap<InboxKey, String>>,
}

/// Message that was found in the inbox by its file name and is not read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub key: InboxKey,
    /// Name of the message's file in the inbox.
    pub(in crate::store) name: String,
}

impl DirAgent<'_> {
    fn put_arrival(&self, arrival: &Arrival) -> Result<()> {
        let (id, path, text) = match arrival {
            Arrival::Message { key, text } => (key.id, layout::message(*key), text),
            Arrival::Hint { id, text } => (*id, layout::hint(*id), text),
        };
        let name = path.rsplit('/').next().unwrap_or(&path);
        let here = self.here()?;
        let now = id.minted_at().unwrap_or(Time::from_millis(0));
        let put = self.local.disk().replace(
            &self.local.staging(name),
            &self.local.dir.join(&path),
            text.as_bytes(),
        );
        self.confirm(put, here, &[name.to_owned()], now)
    }
}

impl AgentRecords for DirAgent<'_> {
    fn identity(&self) -> Result<String> {
        let path = self.local.dir.join(layout::IDENTITY);
        let read = files::read(&path).and_then(|bytes| text(&path, bytes.ok_or_else(|| missing(&path))?));
        self.unless_gone(read)
    }

    fn policy(&self) -> Result<String> {
        let path = self.local.dir.join(layout::POLICY);
        let bytes = path.read(MAX_SETTINGS).and_then(|bytes| {
            bytes.ok_or_else(|| {
                Error::damaged(path.path(), "missing: it names the turn command")
                    .with_hint("restore it from git or a backup, or write a new one")
            })
        });
        let read = bytes.and_then(|bytes| config::utf8(&path, &bytes).map(str::to_owned));
        self.unless_gone(read)
    }

    fn state(&self) -> Result<String> {
        let found = self.state_file()?;
        self.state_text(found.map(|found| found.bytes))
    }

    /// Returns the state from the journal, because a power cut may have torn an unsynced
    /// `state.json`.
    fn pending_state(&self) -> Result<Option<String>> {
        let view = View::over(&self.local.dir, self.pending(self.state_file()?.as_ref())?);
        if !view.has_journal() {
            return Ok(None);
        }
        self.state_text(view.bytes(layout::STATE)?).map(Some)
    }

    fn is_interrupted(&self) -> Result<bool> {
        Ok(match Journal::look(&self.local.dir, false)? {
            FoundJournal::Nothing | FoundJournal::Blank | FoundJournal::Applied(_) => false,
            FoundJournal::Open(_) => true,
        })
    }

    fn is_quiet(&self, state: &State) -> Result<bool> {
        Ok(!self.is_interrupted()?
            && inbox::is_empty(&View::settled(&self.local.dir), &self.local.passed_over(state))?)
    }

    /// Puts each arrival into the inbox as a new file.
    ///
    /// # Errors
    ///
    /// `moved` if the agent was exported by `export --move` or `rm` meanwhile, without the arrival;
    /// `no_agent` if the agent was removed. The arrival's file is removed then.
    fn arrive(&self, arrivals: &[Arrival]) -> Result<bool> {
        arrivals.iter().try_for_each(|arrival| self.put_arrival(arrival))?;
        Ok(true)
    }

    fn read_view(&self) -> Result<Rc<dyn ReadView + '_>> {
        let state = self.state_file()?;
        let view = View::over(&self.local.dir, self.pending(state.as_ref())?);
        Ok(Rc::new(DirReadView::of(self, view, Some(state))))
    }

    fn unchecked_view(&self) -> Result<Rc<dyn ReadView + '_>> {
        Ok(Rc::new(DirReadView::of(self, View::settled(&self.local.dir), None)))
    }

    fn explain_if_gone(&self, error: Error) -> Error {
        match self.local.dir.cap().number() {
            Ok(None) => self.gone(),
            Ok(Some(_)) | Err(_) => error,
        }
    }

    fn flush(&self, now: Time) -> Result<()> {
        match Journal::look(&self.local.dir, false)? {
            FoundJournal::Nothing | FoundJournal::Blank => Ok(()),
            FoundJournal::Applied(_) | FoundJournal::Open(_) => self.change(now)?.empty_journal(),
        }
    }

    fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        copying::checkpoints(&self.local.dir)
    }

    fn saved(&self, checkpoint: Checkpoint, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match self.local.checkpoint(checkpoint).read(CHECKPOINT.most.0) {
            Ok(bytes) => Ok(bytes.map(|bytes| each(&bytes)).is_some()),
            Err(Error::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn trigger_key(&self, trigger: TriggerId, digest: &str) -> Result<Option<Vec<u8>>> {
        self.local.dir.join(layout::key(trigger, digest)).read(MAX_KEY)
    }

    fn forget_trigger_keys(&self, trigger: TriggerId, but: Option<&str>) -> Result<()> {
        let dir = self.local.dir.join(layout::KEYS);
        let kept = but.map(|hash| layout::key_name(trigger, hash));
        let of_trigger = format!("{trigger}.");
        for entry in dir.entries()? {
            let Some(name) = entry.name.to_str() else { continue };
            if name.starts_with(&of_trigger) && Some(name) != kept.as_deref() {
                dir.join(name).remove()?;
            }
        }
        Ok(())
    }

    /// Counts uses in a file of this state directory: another clone counts its own uses.
    fn use_trigger(&self, trigger: TriggerId, most: NonZeroU32, now: Time) -> Result<UseOutcome> {
        let cap = self.local.dir.join(layout::uses(trigger));
        let (mut file, _) = files::open_or_create(&cap)?;
        lock::hold(&file, &cap)?;
        let mut text = String::new();
        // A count that can't be read is discarded: the use below begins a new minute of counting.
        let _ = (&file).take(64).read_to_string(&mut text);
        let found = text.split_once(' ').and_then(|(since, count)| {
            let since = Time::from_millis(since.parse().ok()?);
            Some(Uses { since, count: count.trim().parse().ok()? })
        });
        let uses = match Uses::with_one(found, most, now) {
            Ok(uses) => uses,
            Err(pause) => return Ok(Err(pause)),
        };
        let line = format!("{:<15} {:<10}\n", uses.since.as_millis(), uses.count);
        file.rewind().and_then(|()| file.write_all(line.as_bytes())).context("write", &cap)?;
        Ok(Ok(()))
    }
}

impl<'a> DirReadView<'a> {
    /// Returns a view for reads without the agent's lock. `before`: the `state.json` from which
    /// `view` was made.
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
        self.agent.state_text(bytes)
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
        let mut records = Vec::new();
        for path in self.view.record_paths(layout::plane(plane))? {
            if let Some(bytes) = self.view.bytes(&path)? {
                let text = text(&self.agent.local.dir.join(&path), bytes)?;
                records.push((layout::id_at(&path).to_owned(), text));
            }
        }
        Ok(records)
    }

    fn open_ids(&self, plane: Plane) -> Result<Vec<String>> {
        let mut paths = self.view.record_paths(layout::plane(plane))?;
        paths.retain(|path| !self.view.is_deleted(path));
        Ok(paths.iter().map(|path| layout::id_at(path).to_owned()).collect())
    }

    fn open_one(&self, plane: Plane, id: &str) -> Result<Option<String>> {
        let path = layout::open(plane, id);
        let bytes = self.view.bytes(&path)?;
        bytes.map(|bytes| text(&self.agent.local.dir.join(&path), bytes)).transpose()
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
        // Without the agent's lock, the search is repeated if the message was moved meanwhile.
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
        Ok(self.scan()?.drops.clone())
    }

    fn has_rejected(&self) -> Result<bool> {
        Ok(self.scan()?.has_rejected)
    }

    fn oldest_arrival(&self) -> Result<Option<Time>> {
        let scan = self.scan()?;
        let keys = match scan.segments.iter().any(inbox::Segment::is_dirty) {
            // A changed directory may have messages before the key in its name, so all are listed.
            true => self.messages(usize::MAX)?,
            false => scan.segments.iter().map(|segment| segment.from).chain(scan.direct.clone()).collect(),
        };
        let arrived = keys.iter().map(|key| key.id).chain(scan.hints.iter().copied());
        Ok(arrived.filter_map(|id| id.minted_at()).min())
    }

    /// Returns the message of a dedupe key. Without the agent's lock only the cache is searched,
    /// which may miss an entry.
    fn key(&self, key: &str, window: KeyWindow) -> Result<Option<String>> {
        let found = if self.view.is_locked() {
            dedupe::find(self, &self.view, key, window, self.agent.local.disk())
        } else {
            dedupe::peek(&self.view, key, window)
        };
        found?.map(|entry| text(self.agent.local.dir.path(), encode(&entry))).transpose()
    }

    fn replaced_key(&self, key: &str, admitted_at: Time) -> Result<Option<String>> {
        let path = dedupe::path(key, admitted_at);
        self.view.bytes(&path)?.map(|bytes| text(&self.agent.local.dir.join(&path), bytes)).transpose()
    }

    fn ended(&self, kinds: &[&'static str], ids: Option<&[String]>, each: &mut EachLine<'_>) -> Result<()> {
        evidence::ended(&self.view, kinds, ids, each)
    }

    fn max_ids(&self) -> usize {
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
}
