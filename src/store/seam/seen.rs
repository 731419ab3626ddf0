//! One revision of records in a database, read out of their texts.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::model::dedupe::DedupeEntry;
use crate::model::event::Event;
use crate::model::id::{MessageId, RunId, TaskId, WorkId};
use crate::model::message::{InboxKey, Message, MessageStatus, Priority, WakeHint};
use crate::model::record::{OpenRecord, Plane, Record};
use crate::model::records::MalformedFile;
use crate::model::run::Run;
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::time::{Span, Time};
use crate::model::work::WorkItem;

use super::super::dir::files::fault_of_file;
use super::super::dir::months::LineHashes as Met;
use super::super::dir::record::{decode_at, decode_plain};
use super::super::dir::witness::ReferenceScan;
use super::super::dir::{Waiting, aside, gc, inbox, layout};
use super::super::elsewhere::{ENDED, Order, ReadView, Txn};
use super::remote::Remote;

/// Length of the end of the archive that is read for the context of a turn, in bytes.
const TAIL: usize = 256 * 1024;

/// Number of messages that are examined to find one of background priority.
const LOOKED_AT: usize = 256;

/// About how many records one question is.
const AT_ONCE: usize = 256;

/// Names in the inbox that a snapshot passes over.
#[derive(Debug, Clone)]
pub enum LeftOut {
    /// These names.
    Names(Vec<String>),
    All,
}

/// One revision, asked for when something of it is needed.
#[derive(Debug)]
pub struct RemoteSnapshot<'a> {
    of: &'a Remote,
    lock: Option<&'a dyn Txn>,
    sight: OnceCell<Rc<dyn ReadView>>,
    left_out: LeftOut,
}

impl<'a> RemoteSnapshot<'a> {
    /// A revision that is seen already.
    pub fn of(of: &'a Remote, sight: Rc<dyn ReadView>) -> RemoteSnapshot<'a> {
        RemoteSnapshot { sight: OnceCell::from(sight), ..RemoteSnapshot::later(of) }
    }

    /// The revision that is the current one when something is asked first.
    pub fn later(of: &'a Remote) -> RemoteSnapshot<'a> {
        RemoteSnapshot { of, lock: None, sight: OnceCell::new(), left_out: LeftOut::Names(Vec::new()) }
    }

    /// Reads the current revision under the agent's lock.
    pub fn under(of: &'a Remote, lock: &'a dyn Txn, left_out: LeftOut) -> RemoteSnapshot<'a> {
        RemoteSnapshot { lock: Some(lock), left_out, ..RemoteSnapshot::later(of) }
    }

    /// Leaves out what steps pass over in the inbox.
    pub fn without_passed_over(self, state: &State) -> RemoteSnapshot<'a> {
        match self.left_out {
            LeftOut::All => self,
            LeftOut::Names(_) => {
                RemoteSnapshot { left_out: LeftOut::Names(aside::all_passed_over(state)), ..self }
            }
        }
    }

    fn sight(&self) -> Result<&dyn ReadView> {
        if let Some(sight) = self.sight.get() {
            return Ok(&**sight);
        }
        let sight = match self.lock {
            Some(hold) => hold.now()?,
            None => self.of.records.see()?,
        };
        Ok(&**self.sight.get_or_init(|| sight))
    }

    pub fn open<T: OpenRecord>(&self) -> Result<Vec<T>> {
        let texts = self.sight()?.open(T::PLANE)?;
        texts.iter().map(|text| self.of.decoded(open_place::<T>(text), text)).collect()
    }

    pub fn open_one<T: OpenRecord>(&self, id: T::Id) -> Result<Option<T>> {
        let Some(text) = self.sight()?.open_one(T::PLANE, &id.to_string())? else { return Ok(None) };
        let place = format!("{}/{id}", layout::plane(T::PLANE));
        let record: T = self.of.decoded(&place, &text)?;
        if record.id() == id {
            return Ok(Some(record));
        }
        let wrong = format!("its content is {}: a record lies under its own id", record.id());
        Err(Error::damaged(self.of.place(place), wrong))
    }

    pub fn plan(&self, id: WorkId) -> Result<Option<String>> {
        self.sight()?.plan(&id.to_string())
    }

    fn is_left_out(&self, name: &str) -> bool {
        match &self.left_out {
            LeftOut::All => true,
            LeftOut::Names(names) => names.iter().any(|other| other == name),
        }
    }

    /// The first messages in processing order.
    pub fn keys(&self, count: usize) -> Result<Vec<InboxKey>> {
        let more = match &self.left_out {
            LeftOut::All => return Ok(Vec::new()),
            LeftOut::Names(names) => names.len(),
        };
        let mut keys = self.sight()?.messages(count.saturating_add(more))?;
        keys.retain(|key| more == 0 || !self.is_left_out(&name_of(*key)));
        keys.truncate(count);
        Ok(keys)
    }

    pub fn waiting(&self, id: MessageId) -> Result<Option<Waiting>> {
        for &priority in Priority::ALL {
            let key = InboxKey { priority, id };
            if !self.is_left_out(&name_of(key)) && self.sight()?.message(key)?.is_some() {
                return Ok(Some(waiting(key)));
            }
        }
        Ok(None)
    }

    pub fn read(&self, key: InboxKey) -> Result<Option<Message>> {
        let Some(text) = self.sight()?.message(key)? else { return Ok(None) };
        let place = format!("{}/{key}", layout::INBOX);
        let message: Message = self.of.decoded(&place, &text)?;
        let wrong = if message.key() != key {
            format!("it is named {key}, its content is {}", message.key())
        } else if message.agent != self.of.name {
            format!("it is a message to `{}`: it belongs into that agent's inbox", message.agent)
        } else {
            return Ok(Some(message));
        };
        Err(Error::damaged(self.of.place(place), wrong))
    }

    pub fn try_read(&self, key: InboxKey) -> Result<Option<Result<Message, MalformedFile>>> {
        match self.read(key) {
            Ok(found) => Ok(found.map(Ok)),
            Err(error) => Ok(Some(Err(inbox::unfit(&name_of(key), fault_of_file(error)?)))),
        }
    }

    pub fn hints(&self) -> Result<(Vec<WakeHint>, Vec<MalformedFile>)> {
        let (mut hints, mut misfits) = (Vec::new(), Vec::new());
        for (id, text) in self.hint_texts()? {
            match self.hint(id, &text) {
                Ok(hint) => hints.push(hint),
                Err(error) => misfits.push(inbox::unfit(&hint_name(id), fault_of_file(error)?)),
            }
        }
        Ok((hints, misfits))
    }

    fn hint_texts(&self) -> Result<Vec<(MessageId, String)>> {
        if matches!(self.left_out, LeftOut::All) {
            return Ok(Vec::new());
        }
        let mut texts = self.sight()?.hints()?;
        texts.retain(|(id, _)| !self.is_left_out(&hint_name(*id)));
        Ok(texts)
    }

    fn hint(&self, id: MessageId, text: &str) -> Result<WakeHint> {
        let place = format!("{}/w-{id}", layout::INBOX);
        let hint: WakeHint = self.of.decoded(&place, text)?;
        let wrong = if hint.id != id {
            format!("it is named {id}, its content is {}", hint.id)
        } else if hint.agent != self.of.name {
            format!("it is a hint to `{}`: it belongs into that agent's inbox", hint.agent)
        } else {
            return Ok(hint);
        };
        Err(Error::damaged(self.of.place(place), wrong))
    }

    pub fn last_interject(&self) -> Result<Option<MessageId>> {
        // They come first in processing order.
        let mut most = 64;
        loop {
            let keys = self.keys(most)?;
            let is_all =
                keys.len() < most || keys.last().is_some_and(|key| key.priority != Priority::Interject);
            if is_all {
                let mut interjects = keys.iter().filter(|key| key.priority == Priority::Interject);
                return Ok(interjects.next_back().map(|key| key.id));
            }
            most = most.saturating_mul(8);
        }
    }

    /// `true` also where more messages wait than are looked at.
    pub fn has_background(&self) -> Result<bool> {
        let keys = self.keys(LOOKED_AT)?;
        Ok(keys.len() == LOOKED_AT || keys.last().is_some_and(|key| key.priority == Priority::Background))
    }

    pub fn waits_since(&self) -> Result<Option<Time>> {
        let keys = self.keys(usize::MAX)?;
        let hints = self.hint_texts()?;
        let ids = keys.iter().map(|key| key.id).chain(hints.iter().map(|(id, _)| *id));
        Ok(ids.filter_map(|id| id.minted_at()).min())
    }

    pub fn is_settled(&self, id: MessageId) -> Result<bool> {
        let place = self.of.place(format_args!("{}/{}", layout::ARCHIVE, Message::KIND));
        let mut is_settled = false;
        self.sight()?.ended(&[Message::KIND, ENDED], Some(&[id.to_string()]), &mut |line| {
            is_settled = gc::is_ended_line(line) || {
                let message: Message = decode_at(&place, 0, line.as_bytes())?;
                message.settlement.is_none_or(|end| end.status != MessageStatus::Queued)
            };
            Ok(false)
        })?;
        Ok(is_settled)
    }

    pub fn admitted_under(&self, key: &str, now: Time, window: Span) -> Result<Option<DedupeEntry>> {
        let within = |entry: &DedupeEntry| {
            entry.key == key && now.since(entry.admitted_at).max(entry.admitted_at.since(now)) < window
        };
        Ok(self.key(key)?.filter(within))
    }

    /// Returns the entry of a dedupe key, whenever it was admitted.
    pub fn key(&self, key: &str) -> Result<Option<DedupeEntry>> {
        let text = self.sight()?.key(key)?;
        text.map(|text| self.of.decoded(format_args!("{}/{key}", layout::DEDUPE), &text)).transpose()
    }

    /// Calls `each` with the ended records of a kind, newest first, until it returns `false`; with
    /// ids, with those of them.
    fn each_ended<T: Record>(
        &self,
        ids: Option<&[String]>,
        mut each: impl FnMut(T, usize) -> bool,
    ) -> Result<()> {
        let place = self.of.place(format_args!("{}/{}", layout::ARCHIVE, T::KIND));
        let mut met = Met::default();
        self.sight()?.ended(&[T::KIND], ids, &mut |line| {
            let is_new = met.insert(line.as_bytes());
            Ok(!is_new || each(decode_at(&place, 0, line.as_bytes())?, line.len()))
        })
    }

    pub fn ended<T: Record>(&self, mut each: impl FnMut(T) -> bool) -> Result<()> {
        self.each_ended(None, |record, _| each(record))
    }

    /// The last word about one record.
    pub fn ended_by<T: Record>(&self, id: &str) -> Result<Option<T>> {
        let mut found = None;
        self.each_ended(Some(&[id.to_owned()]), |record, _| {
            found = Some(record);
            false
        })?;
        Ok(found)
    }

    pub fn recent<T: Record>(&self, count: usize, wanted: impl Fn(&T) -> bool) -> Result<Vec<T>> {
        let (mut found, mut read) = (Vec::new(), 0);
        if count > 0 {
            self.each_ended(None, |record, length| {
                found.extend(Some(record).filter(&wanted));
                read += length;
                found.len() < count && read < TAIL
            })?;
        }
        Ok(found)
    }

    pub fn ended_among(&self, ids: &HashSet<MessageId>) -> Result<HashSet<MessageId>> {
        Ok(self
            .last_words(ids.iter().map(MessageId::to_string), |message: &Message| message.id)?
            .into_keys()
            .collect())
    }

    /// The last words about those of the records that have ended. `id`: which one it is.
    fn last_words<T: Record, Id: Eq + Hash>(
        &self,
        ids: impl Iterator<Item = String>,
        id: impl Fn(&T) -> Id,
    ) -> Result<HashMap<Id, T>> {
        let mut found = HashMap::new();
        for some in ids.collect::<Vec<_>>().chunks(AT_ONCE) {
            self.each_ended(Some(some), |record: T, _| {
                found.entry(id(&record)).or_insert(record);
                true
            })?;
        }
        Ok(found)
    }

    fn each_event(&self, order: Order, mut each: impl FnMut(Event) -> Result<bool>) -> Result<()> {
        let place = self.of.place(layout::LEDGER);
        self.sight()?.events(order, &mut |line| each(decode_plain(&place, 0, line.as_bytes())?))
    }

    pub fn events(&self, since: Option<Time>, mut each: impl FnMut(Event) -> Result<()>) -> Result<()> {
        self.each_event(Order::Since(since), |event| each(event).map(|()| true))
    }

    pub fn last_events(&self, count: usize, wanted: impl Fn(&Event) -> bool) -> Result<Vec<Event>> {
        let mut found: Vec<Event> = Vec::new();
        if count > 0 {
            self.each_event(Order::NewestFirst, |event| {
                found.extend(Some(event).filter(&wanted));
                Ok(found.len() < count)
            })?;
        }
        Ok(found)
    }
}

impl ReferenceScan for RemoteSnapshot<'_> {
    fn open_tasks(&self) -> Result<HashSet<TaskId>> {
        Ok(self.open::<Task>()?.iter().map(|task| task.id).collect())
    }

    fn runs_among(&self, ids: &HashSet<RunId>) -> Result<HashMap<RunId, Run>> {
        self.last_words(ids.iter().map(RunId::to_string), |run: &Run| run.id)
    }

    fn tasks_among(&self, ids: &HashSet<TaskId>) -> Result<HashMap<TaskId, Task>> {
        self.last_words(ids.iter().map(TaskId::to_string), |task: &Task| task.id)
    }

    fn each_open(&self, most: usize, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let sight = self.sight()?;
        for plane in [Plane::Work, Plane::Waits, Plane::Timers, Plane::Tasks] {
            sight.open(plane)?.iter().for_each(|text| each(text.as_bytes()));
        }
        for item in self.open::<WorkItem>()? {
            sight.plan(&item.id.to_string())?.iter().for_each(|text| each(text.as_bytes()));
        }
        let keys = sight.messages(most.saturating_add(1))?;
        let are_all = keys.len() <= most;
        if are_all {
            sight.texts(&keys, &mut |text| each(text.as_bytes()))?;
        }
        Ok(are_all)
    }
}

/// A message that was found by its key. It lies nowhere but under that.
pub fn waiting(key: InboxKey) -> Waiting {
    Waiting::from((key, name_of(key)))
}

/// The name that a file of the message would have, under which a state remembers what is passed
/// over.
fn name_of(key: InboxKey) -> String {
    format!("{key}.json")
}

fn hint_name(id: MessageId) -> String {
    format!("w-{id}.json")
}

/// The place of an open record of which only the text is known.
fn open_place<T: OpenRecord>(text: &str) -> String {
    let id = text.split_once("\"id\"").and_then(|(_, rest)| rest.split('"').nth(1)).unwrap_or("?");
    format!("{}/{id}", layout::plane(T::PLANE))
}
