//! Snapshot of one revision of an agent's records, and the queries on it.

use std::cell::OnceCell;
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::local::{files::fault_of_file, layout};
use crate::model::dedupe::DedupeEntry;
use crate::model::id::{AgentName, MessageId, WorkId};
use crate::model::message::{InboxKey, Message, MessageStatus, Priority, WakeHint};
use crate::model::record::{OpenRecord, Plane, Record};
use crate::model::records::MalformedFile;
use crate::model::state::State;
use crate::model::time::{Span, Time};

use super::super::backend::{ENDED, KeyWindow, ReadView, Txn};
use super::super::dir::gc::is_ended_line;
use super::super::dir::inbox::{check_hint, check_message};
use super::super::dir::record::{decode, decode_at};
use super::super::dir::view::View;
use super::super::dir::{Dropped, HandWritten, Rejected, Waiting, quarantine, submissions};
use super::source::RecordSource;

/// Number of messages that are examined to find one of background priority.
const LOOKED_AT: usize = 256;

/// One revision of an agent's records. Records are read at the first request.
#[derive(Debug)]
pub struct Snapshot<'a> {
    pub(super) records: &'a RecordSource<'a>,
    source: Source<'a>,
    view: OnceCell<Rc<dyn ReadView + 'a>>,
    left_out: LeftOut,
}

/// Source of the revision, which is read at the first request.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// Current records, without the agent's lock.
    Now,
    /// Current records, without a check for an interrupted transaction.
    Unchecked,
    /// Records under the agent's lock.
    Locked(&'a dyn Txn),
}

impl<'a> Source<'a> {
    pub(super) fn view(self, records: &'a RecordSource<'a>) -> Result<Rc<dyn ReadView + 'a>> {
        match self {
            Source::Now => records.records().read_view(),
            Source::Unchecked => records.records().unchecked_view(),
            Source::Locked(lock) => lock.now(),
        }
    }
}

/// Names in the inbox that a snapshot leaves out.
#[derive(Debug, Clone)]
pub enum LeftOut {
    /// Only the messages, hints and other files with these names.
    Names(Vec<String>),
    All,
}

impl<'a> Snapshot<'a> {
    pub(super) fn new(records: &'a RecordSource<'a>, source: Source<'a>, left_out: LeftOut) -> Snapshot<'a> {
        Snapshot { records, source, view: OnceCell::new(), left_out }
    }

    /// Returns a snapshot of a view.
    pub(super) fn of(records: &'a RecordSource<'a>, view: Rc<dyn ReadView + 'a>) -> Snapshot<'a> {
        let left_out = LeftOut::Names(Vec::new());
        Snapshot { view: OnceCell::from(view), ..Snapshot::new(records, Source::Now, left_out) }
    }

    /// Returns the name of the agent.
    pub(super) fn agent(&self) -> &AgentName {
        &self.records.local.name
    }

    pub(super) fn view(&self) -> Result<&(dyn ReadView + 'a)> {
        if let Some(view) = self.view.get() {
            return Ok(&**view);
        }
        let view = self.source.view(self.records)?;
        Ok(&**self.view.get_or_init(|| view))
    }

    /// Leaves out the entries of the inbox that steps skip.
    pub fn without_passed_over(self, state: &State) -> Snapshot<'a> {
        self.without(quarantine::all_passed_over(state))
    }

    /// Leaves out the inbox entries that steps skip, except changed ones, which a step tries again.
    pub fn without_unchanged(self, state: &State) -> Snapshot<'a> {
        let names = self.records.local.passed_over(state);
        self.without(names)
    }

    fn without(self, names: Vec<String>) -> Snapshot<'a> {
        match self.left_out {
            LeftOut::All => self,
            LeftOut::Names(_) => Snapshot { left_out: LeftOut::Names(names), ..self },
        }
    }

    fn is_left_out(&self, name: &str) -> bool {
        match &self.left_out {
            LeftOut::All => true,
            LeftOut::Names(names) => names.iter().any(|other| other == name),
        }
    }
}

/// Queries on records that have not ended.
impl Snapshot<'_> {
    /// Returns every record of a kind that has not ended, sorted by id.
    pub fn open<T: OpenRecord>(&self) -> Result<Vec<T>> {
        let texts = self.view()?.open(T::PLANE)?;
        texts.iter().map(|(id, text)| self.decoded_open(id, text)).collect()
    }

    /// Returns the record with this id, if it has not ended.
    pub fn open_one<T: OpenRecord>(&self, id: T::Id) -> Result<Option<T>> {
        let id = id.to_string();
        let text = self.view()?.open_one(T::PLANE, &id)?;
        text.map(|text| self.decoded_open(&id, &text)).transpose()
    }

    /// Decodes a record that has not ended. Refuses a record that is stored under another id: the
    /// next change would be written under the record's own id and leave this copy behind.
    fn decoded_open<T: OpenRecord>(&self, id: &str, text: &str) -> Result<T> {
        let place = self.records.place(layout::open(T::PLANE, id));
        let mut record: T = decode(&place, text.as_bytes())?;
        // A record may have a former name of its agent; an outbox message has its receiver's name.
        if T::PLANE != Plane::Outbox {
            record.set_agent(self.agent());
        }
        let own = record.id().to_string();
        if own == id {
            return Ok(record);
        }
        Err(Error::damaged(place, format!("its content is {own}: a record lies under its own id")))
    }

    /// Returns the ids of the records of a kind that have not ended, sorted.
    pub fn open_ids<T: OpenRecord>(&self) -> Result<Vec<T::Id>> {
        Ok(self.view()?.open_ids(T::PLANE)?.iter().filter_map(|id| id.parse().ok()).collect())
    }

    pub fn is_open<T: OpenRecord>(&self, id: T::Id) -> Result<bool> {
        self.view()?.is_open(T::PLANE, &id.to_string())
    }

    /// Returns the plan of a work item that is not completed, a Markdown text.
    pub fn plan(&self, id: WorkId) -> Result<Option<String>> {
        self.view()?.plan(&id.to_string())
    }
}

/// Queries on the inbox.
impl Snapshot<'_> {
    /// Returns the first messages in processing order, at most `count`.
    pub fn first(&self, count: usize) -> Result<Vec<Waiting>> {
        let keys = self.first_keys(count)?;
        keys.into_iter().map(|key| self.found(key)).collect()
    }

    /// Returns the key of every message, in processing order.
    pub fn keys(&self) -> Result<Vec<InboxKey>> {
        self.first_keys(usize::MAX)
    }

    fn first_keys(&self, count: usize) -> Result<Vec<InboxKey>> {
        let more = match &self.left_out {
            LeftOut::All => return Ok(Vec::new()),
            LeftOut::Names(names) => names.len(),
        };
        let view = self.view()?;
        let mut keys = view.messages(count.saturating_add(more))?;
        keys.retain(|key| more == 0 || !self.is_left_out(&view.name_of(*key)));
        keys.truncate(count);
        Ok(keys)
    }

    fn found(&self, key: InboxKey) -> Result<Waiting> {
        Ok(Waiting { key, name: self.view()?.name_of(key) })
    }

    /// Finds a message in the inbox by its id alone.
    pub fn waiting(&self, id: MessageId) -> Result<Option<Waiting>> {
        if matches!(self.left_out, LeftOut::All) {
            return Ok(None);
        }
        for &priority in Priority::ALL {
            let key = InboxKey { priority, id };
            if self.view()?.has_message(key)? {
                return Ok(Some(self.found(key)?).filter(|found| !self.is_left_out(&found.name)));
            }
        }
        Ok(None)
    }

    /// Reads a message. Returns `None` if the message is gone. Error if the message is malformed or
    /// belongs to another agent.
    pub fn read(&self, waiting: &Waiting) -> Result<Option<Message>> {
        let Some(text) = self.view()?.message(waiting.key)? else { return Ok(None) };
        let place = self.records.place(format_args!("{}/{}", layout::INBOX, waiting.name));
        let mut message: Message = decode(&place, text.as_bytes())?;
        check_message(&message, waiting.key, &|name| self.records.is_own(name))
            .map_err(|wrong| Error::damaged(place, wrong))?;
        // A message that arrived before a rename calls the agent by its former name.
        message.set_agent(self.agent());
        Ok(Some(message))
    }

    /// Reads a message for a caller that continues with the next message: a message that can't be
    /// read, or is another agent's, is returned as a malformed file.
    pub fn try_read(&self, waiting: &Waiting) -> Result<Option<Result<Message, MalformedFile>>> {
        match self.read(waiting) {
            Ok(found) => Ok(found.map(Ok)),
            Err(error) => Ok(Some(Err(self.unfit(waiting, fault_of_file(error)?)))),
        }
    }

    /// Returns the hints in the inbox, in order of arrival, and the malformed files named like
    /// hints.
    pub fn hints(&self) -> Result<(Vec<WakeHint>, Vec<MalformedFile>)> {
        let (mut hints, mut malformed) = (Vec::new(), Vec::new());
        for id in self.hint_ids()? {
            match self.hint(id) {
                Ok(hint) => hints.extend(hint),
                Err(error) => {
                    malformed.push(MalformedFile { name: hint_name(id), reason: fault_of_file(error)? });
                }
            }
        }
        Ok((hints, malformed))
    }

    fn hint_ids(&self) -> Result<Vec<MessageId>> {
        if matches!(self.left_out, LeftOut::All) {
            return Ok(Vec::new());
        }
        let mut ids = self.view()?.hints()?;
        ids.retain(|id| !self.is_left_out(&hint_name(*id)));
        Ok(ids)
    }

    fn hint(&self, id: MessageId) -> Result<Option<WakeHint>> {
        let Some(text) = self.view()?.hint(id)? else { return Ok(None) };
        let place = self.records.place(layout::hint(id));
        let mut hint: WakeHint = decode(&place, text.as_bytes())?;
        check_hint(&hint, id, &|name| self.records.is_own(name))
            .map_err(|wrong| Error::damaged(place, wrong))?;
        hint.set_agent(self.agent());
        Ok(Some(hint))
    }

    /// Returns the last message of priority `interject`.
    pub fn last_interject(&self) -> Result<Option<MessageId>> {
        // The inbox lists interjections first, so a short beginning usually has them all.
        let mut most = 64;
        loop {
            let keys = self.first_keys(most)?;
            let is_all =
                keys.len() < most || keys.last().is_some_and(|key| key.priority != Priority::Interject);
            if is_all {
                let mut interjects = keys.iter().filter(|key| key.priority == Priority::Interject);
                return Ok(interjects.next_back().map(|key| key.id));
            }
            most = most.saturating_mul(8);
        }
    }

    /// True if a message of background priority may be in the inbox. Also true for a backlog that
    /// was not searched completely.
    pub fn has_background(&self) -> Result<bool> {
        let keys = self.first_keys(LOOKED_AT)?;
        Ok(keys.len() == LOOKED_AT || keys.last().is_some_and(|key| key.priority == Priority::Background))
    }

    /// Returns the creation time of the oldest message or hint in the inbox, according to the ids.
    pub fn oldest_arrival(&self) -> Result<Option<Time>> {
        match &self.left_out {
            LeftOut::Names(names) if names.is_empty() => self.view()?.oldest_arrival(),
            LeftOut::Names(_) | LeftOut::All => {
                let ids = self.keys()?.into_iter().map(|key| key.id).chain(self.hint_ids()?);
                Ok(ids.filter_map(|id| id.minted_at()).min())
            }
        }
    }

    /// True if a message has ended and was not requeued since. Needs the agent's lock.
    pub fn is_settled(&self, id: MessageId, now: Time) -> Result<bool> {
        let may_have_ended = self.view()?.may_have_ended(id, now)?;
        if may_have_ended == Some(false) {
            return Ok(false);
        }
        let place = self.archive::<Message>();
        let mut is_settled = may_have_ended.unwrap_or(false);
        self.view()?.ended(&[Message::KIND, ENDED], Some(&[id.to_string()]), &mut |line| {
            is_settled = is_ended_line(line) || {
                let message: Message = decode_at(&place, 0, line.as_bytes())?;
                message.settlement.is_none_or(|end| end.status != MessageStatus::Queued)
            };
            Ok(false)
        })?;
        Ok(is_settled)
    }

    /// Returns the entry of a dedupe key, if a message was admitted under the key within `length`
    /// of `now`. `revision`: the agent's revision. Without the agent's lock an entry may be missed.
    pub fn admitted_under(
        &self,
        key: &str,
        now: Time,
        length: Span,
        revision: u64,
    ) -> Result<Option<DedupeEntry>> {
        let text = self.view()?.key(key, KeyWindow { now, length, revision })?;
        Ok(self.decoded_key(key, text)?.filter(|entry| {
            entry.key == key && now.since(entry.admitted_at).max(entry.admitted_at.since(now)) < length
        }))
    }

    /// Returns the entry that a new entry of a dedupe key would replace.
    pub(super) fn replaced_key(&self, new: &DedupeEntry) -> Result<Option<DedupeEntry>> {
        self.decoded_key(&new.key, self.view()?.replaced_key(&new.key, new.admitted_at)?)
    }

    fn decoded_key(&self, key: &str, text: Option<String>) -> Result<Option<DedupeEntry>> {
        let place = || self.records.place(format_args!("{}/{key}", layout::DEDUPE));
        text.map(|text| decode(&place(), text.as_bytes())).transpose()
    }
}

/// Queries on files that other programs and people have put into the inbox of a state directory.
impl Snapshot<'_> {
    /// Returns files that programs put into the inbox, in the order in which a step claims them.
    pub fn dropped(&self) -> Result<Vec<Dropped>> {
        let mut found = self.view()?.submissions()?;
        found.retain(|file| !self.is_left_out(&file.name()));
        Ok(found)
    }

    /// Returns the time when another program put this file into the inbox: its ctime, since a
    /// rename keeps the mtime. `None` if the file is gone.
    pub fn dropped_at(&self, file: &Dropped) -> Result<Option<Time>> {
        submissions::dropped_at(&self.records.local.dir, file)
    }

    /// Reads a file in the inbox: its content, or why it is malformed. `None` if it is gone.
    pub fn read_dropped(&self, file: &Dropped) -> Result<Option<Result<HandWritten, String>>> {
        submissions::read(&self.records.local.dir, file)
    }

    /// Returns a view of the agent's local files, for reads of the inbox directory.
    fn files(&self) -> View<'_> {
        View::settled(&self.records.local.dir)
    }

    /// Returns the inbox files that no step could admit, with the reasons.
    pub fn rejected(&self, state: &State) -> Result<Vec<Rejected>> {
        submissions::rejected(&self.files(), state)
    }

    /// Counts the inbox files that no step could admit.
    pub fn count_rejected(&self, state: &State) -> Result<usize> {
        let names = submissions::rejected_names(&self.files(), self.view()?.has_rejected()?)?;
        Ok(names.len() + quarantine::passed_over(state).len())
    }

    /// True if no rejected file is left in `rejected/` or in the inbox. Does not list the inbox.
    pub fn is_none_rejected(&self, state: &State) -> Result<bool> {
        Ok(quarantine::passed_over(state).is_empty() && submissions::nothing_rejected(&self.files())?)
    }

    /// Describes a message that the agent can't process as it is.
    pub fn unfit(&self, waiting: &Waiting, reason: String) -> MalformedFile {
        MalformedFile { name: waiting.name.clone(), reason }
    }
}

/// Returns the file name of a hint in the inbox.
fn hint_name(id: MessageId) -> String {
    format!("w-{id}.json")
}
