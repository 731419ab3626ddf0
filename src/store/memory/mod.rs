//! A second store, for tests: records in memory behind the same verbs. Test builds ask it or the directory.
//!
//! What is a machine's own (locks, seats, settings, the directories of runs) lies in the directory in both cases,
//! and is reached through `Deref`. What steps ask about records is answered here; the directory of an agent whose
//! records are in memory has none, so that a question that goes past this file finds nothing.

mod snapshot;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::Value;
use uuid::Uuid;

use crate::beneath;
use crate::error::{Error, Result};
use crate::model::dedupe::DedupeEntry;
use crate::model::event::Event;
use crate::model::id::{AgentName, MessageId, WorkId};
use crate::model::message::{InboxKey, Message, WakeHint};
use crate::model::record::{Kept, Plane, Record};
use crate::model::run::{Brief, Run};
use crate::model::state::State;
use crate::model::time::{Span, Time};
use crate::model::transaction::{Archived, Delete, Put, Transaction};
use crate::model::trigger::Trigger;

use super::dir::{self, NewAgent, Opener};

pub use snapshot::Snapshot;

/// The records of one agent.
#[derive(Debug, Clone)]
struct Records {
    state: State,
    open: BTreeMap<(Plane, String), Value>,
    plans: BTreeMap<WorkId, String>,
    inbox: BTreeMap<InboxKey, Message>,
    hints: BTreeMap<MessageId, WakeHint>,
    keys: BTreeMap<String, DedupeEntry>,
    /// What has ended, by kind, in order.
    ended: Vec<(&'static str, Value)>,
    events: Vec<Event>,
}

/// As they are now. Whoever has looked keeps what was looked at.
type Current = Rc<RefCell<Rc<Records>>>;

// A record that is no JSON, or is not read back, fails the test that has put it there: only test builds have this store.

fn value<T: Record>(record: &T) -> Value {
    serde_json::to_value(record).expect("records are JSON")
}

fn record<T: Record>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("what was put is what is read")
}

#[derive(Debug)]
pub struct Store {
    anchor: dir::Store,
    memory: Option<RefCell<BTreeMap<AgentName, Current>>>,
}

impl Deref for Store {
    type Target = dir::Store;

    fn deref(&self) -> &dir::Store {
        &self.anchor
    }
}

impl Store {
    pub fn open(path: PathBuf, opener: Opener) -> Result<Store> {
        Ok(Store { anchor: dir::Store::open(path, opener)?, memory: None })
    }

    /// The same with the records of new agents in memory.
    pub fn in_memory(path: PathBuf, opener: Opener) -> Result<Store> {
        Ok(Store { memory: Some(RefCell::default()), ..Store::open(path, opener)? })
    }

    pub fn find(named: Option<&Path>, start: &Path, settings: Option<&Path>) -> Result<PathBuf> {
        dir::Store::find(named, start, settings)
    }

    pub fn is_same(one: &Path, other: &Path) -> Result<bool> {
        dir::Store::is_same(one, other)
    }

    pub fn init(dir: &Path) -> Result<(PathBuf, bool)> {
        dir::Store::init(dir)
    }

    pub fn create(&self, new: &NewAgent) -> Result<()> {
        self.anchor.create(new)?;
        let Some(memory) = &self.memory else { return Ok(()) };
        let mut records = Records {
            state: new.state.clone(),
            open: BTreeMap::new(),
            plans: BTreeMap::new(),
            inbox: BTreeMap::new(),
            hints: BTreeMap::new(),
            keys: BTreeMap::new(),
            ended: Vec::new(),
            events: new.events.clone(),
        };
        put(&mut records, &new.trigger);
        let name = &new.identity.name;
        memory.borrow_mut().insert(name.clone(), Rc::new(RefCell::new(Rc::new(records))));
        self.anchor.agent(name)?.dir().join(dir::layout::STATE).remove()
    }

    pub fn stage<'s>(&'s self, name: &AgentName, former: &AgentName) -> Result<Arriving<'s>> {
        let dir = self.anchor.stage(name, former)?;
        let agent = Agent { store: self, anchor: dir.agent().clone(), records: None };
        Ok(Arriving { dir, agent })
    }

    pub fn agent(&self, name: &AgentName) -> Result<Agent<'_>> {
        let records = self.memory.as_ref().and_then(|memory| memory.borrow().get(name).cloned());
        Ok(Agent { store: self, anchor: self.anchor.agent(name)?, records })
    }
}

/// An agent that comes from elsewhere: its records are in the directory.
pub struct Arriving<'s> {
    dir: dir::Arriving<'s>,
    agent: Agent<'s>,
}

impl<'s> Deref for Arriving<'s> {
    type Target = dir::Arriving<'s>;

    fn deref(&self) -> &dir::Arriving<'s> {
        &self.dir
    }
}

impl DerefMut for Arriving<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.dir
    }
}

impl<'s> Arriving<'s> {
    pub fn agent(&self) -> &Agent<'s> {
        &self.agent
    }

    pub fn place(self, now: Time) -> Result<dir::Appeared> {
        self.dir.place(now)
    }
}

#[derive(Debug)]
pub struct Agent<'s> {
    store: &'s Store,
    anchor: dir::Agent<'s>,
    records: Option<Current>,
}

impl<'s> Deref for Agent<'s> {
    type Target = dir::Agent<'s>;

    fn deref(&self) -> &dir::Agent<'s> {
        &self.anchor
    }
}

/// Which revision it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Version {
    Dir(beneath::Version),
    Memory(u64),
}

impl<'s> Agent<'s> {
    pub fn store(&self) -> &'s Store {
        self.store
    }

    fn now(&self) -> Option<Rc<Records>> {
        self.records.as_ref().map(|records| Rc::clone(&records.borrow()))
    }

    fn edit(&self, edit: impl FnOnce(&mut Records)) {
        if let Some(records) = &self.records {
            edit(Rc::make_mut(&mut records.borrow_mut()));
        }
    }

    pub fn peek(&self) -> Result<State> {
        self.now().map_or_else(|| self.anchor.peek(), |records| Ok(records.state.clone()))
    }

    pub fn triggers(&self) -> Result<Vec<Trigger>> {
        if self.records.is_none() { self.anchor.triggers() } else { self.glimpse().open() }
    }

    pub fn version(&self) -> Option<Version> {
        match self.now() {
            Some(records) => Some(Version::Memory(records.state.revision)),
            None => self.anchor.version().map(Version::Dir),
        }
    }

    pub fn is_quiet(&self, state: &State) -> Result<bool> {
        match self.now() {
            Some(records) => Ok(records.inbox.is_empty() && records.hints.is_empty()),
            None => self.anchor.is_quiet(state),
        }
    }

    pub fn look<T>(&self, read: impl Fn(Snapshot<'_>, State) -> Result<T>) -> Result<T> {
        match self.now() {
            Some(records) => read(self.glimpse(), records.state.clone()),
            None => self.anchor.look(|dir, state| read(Snapshot { dir, records: None }, state)),
        }
    }

    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        match self.now() {
            Some(_) => Ok(self.glimpse()),
            None => Ok(Snapshot { dir: self.anchor.snapshot()?, records: None }),
        }
    }

    pub fn glimpse(&self) -> Snapshot<'_> {
        Snapshot { dir: self.anchor.glimpse(), records: self.now() }
    }

    pub fn change(&self, now: Time) -> Result<Change<'_>> {
        Ok(Change { dir: self.anchor.change(now)?, agent: self })
    }

    pub fn try_change(&self, now: Time) -> Result<Option<Change<'_>>> {
        Ok(self.anchor.try_change(now)?.map(|dir| Change { dir, agent: self }))
    }

    pub fn change_damaged(&self, now: Time) -> Result<Change<'_>> {
        Ok(Change { dir: self.anchor.change_damaged(now)?, agent: self })
    }

    pub fn arrive(&self, message: &Message) -> Result<()> {
        if self.records.is_none() {
            return self.anchor.arrive(message);
        }
        self.edit(|records| drop(records.inbox.insert(message.key(), message.clone())));
        Ok(())
    }

    pub fn arrive_hint(&self, hint: &WakeHint) -> Result<()> {
        if self.records.is_none() {
            return self.anchor.arrive_hint(hint);
        }
        self.edit(|records| drop(records.hints.insert(hint.id, hint.clone())));
        Ok(())
    }

    pub fn batch(&self, name: Uuid) -> Result<Batch<'_>> {
        let dir = if self.records.is_none() { Some(self.anchor.batch(name)?) } else { None };
        Ok(Batch { agent: self, dir, staged: BTreeMap::new() })
    }
}

/// Messages on their way into the inbox.
pub struct Batch<'a> {
    agent: &'a Agent<'a>,
    dir: Option<dir::Batch<'a>>,
    staged: BTreeMap<InboxKey, Message>,
}

impl Batch<'_> {
    pub fn stage(&mut self, message: &Message) -> Result<()> {
        self.staged.insert(message.key(), message.clone());
        self.dir.as_mut().map_or(Ok(()), |dir| dir.stage(message))
    }

    pub fn stage_apart(&mut self, message: &Message) -> Result<()> {
        self.staged.insert(message.key(), message.clone());
        self.dir.as_mut().map_or(Ok(()), |dir| dir.stage_apart(message))
    }

    pub fn sync(&mut self) -> Result<()> {
        self.dir.as_mut().map_or(Ok(()), dir::Batch::sync)
    }

    pub fn read(&self, key: InboxKey) -> Result<Message> {
        match &self.dir {
            Some(dir) => dir.read(key),
            None => Ok(self.staged[&key].clone()),
        }
    }

    pub fn admit(self, keys: impl Iterator<Item = InboxKey> + Clone, now: Time) -> Result<()> {
        let Batch { agent, dir, mut staged } = self;
        if let Some(dir) = dir {
            return dir.admit(keys, now);
        }
        agent.edit(|records| records.inbox.extend(keys.filter_map(|key| staged.remove_entry(&key))));
        Ok(())
    }
}

#[derive(Debug)]
pub struct Change<'a> {
    dir: dir::Change<'a>,
    agent: &'a Agent<'a>,
}

impl<'a> Deref for Change<'a> {
    type Target = dir::Change<'a>;

    fn deref(&self) -> &dir::Change<'a> {
        &self.dir
    }
}

impl Change<'_> {
    pub fn state(&self) -> Result<State> {
        self.agent.now().map_or_else(|| self.dir.state(), |records| Ok(records.state.clone()))
    }

    fn seen<'c>(
        &'c self,
        look: impl FnOnce(&'c dir::Change<'_>) -> Result<dir::Snapshot<'c>>,
    ) -> Result<Snapshot<'c>> {
        match self.agent.now() {
            Some(records) => Ok(Snapshot { dir: self.dir.look_past_inbox(), records: Some(records) }),
            None => Ok(Snapshot { dir: look(&self.dir)?, records: None }),
        }
    }

    pub fn look(&self, state: &State) -> Result<Snapshot<'_>> {
        self.seen(|dir| dir.look(state))
    }

    pub fn look_for_step(&self, state: &State, stuck: &[String]) -> Result<Snapshot<'_>> {
        self.seen(|dir| dir.look_for_step(state, stuck))
    }

    pub fn look_again(&self) -> Result<Snapshot<'_>> {
        self.seen(|dir| dir.look_again())
    }

    pub fn look_past_inbox(&self) -> Snapshot<'_> {
        let records = self.agent.now().map(|mut records| {
            let seen = Rc::make_mut(&mut records);
            seen.inbox.clear();
            seen.hints.clear();
            records
        });
        Snapshot { dir: self.dir.look_past_inbox(), records }
    }

    pub fn forget_old_keys(&self, now: Time, window: Span) -> Result<()> {
        self.agent.edit(|records| records.keys.retain(|_, entry| now.since(entry.admitted_at) < window));
        if self.agent.records.is_none() { self.dir.forget_old_keys(now, window) } else { Ok(()) }
    }

    pub fn commit(&self, transaction: Transaction) -> Result<State> {
        if self.agent.records.is_none() {
            return self.dir.commit(transaction);
        }
        let base = self.state()?.revision;
        if base != transaction.base_revision {
            return Err(Error::Refused { kind: "stale_revision", message: base.to_string(), hint: None });
        }
        let state = transaction.state.clone();
        self.agent.edit(|records| apply(records, transaction));
        Ok(state)
    }
}

fn put<T: Kept>(records: &mut Records, kept: &T) {
    records.open.insert((T::PLANE, kept.id().to_string()), value(kept));
}

fn apply(records: &mut Records, transaction: Transaction) {
    let Transaction { state, puts, deletes, archived, events, .. } = transaction;
    records.state = state;
    for change in puts {
        match change {
            Put::Message(message) => drop(records.inbox.insert(message.key(), *message)),
            Put::Hint(hint) => drop(records.hints.insert(hint.id, *hint)),
            Put::Trigger(trigger) => put(records, trigger.as_ref()),
            Put::Work(item) => put(records, item.as_ref()),
            Put::Plan(id, plan) => drop(records.plans.insert(id, plan)),
            Put::Wait(wait) => put(records, wait.as_ref()),
            Put::Timer(timer) => put(records, timer.as_ref()),
            Put::Task(task) => put(records, task.as_ref()),
            Put::Dedupe(entry) => drop(records.keys.insert(entry.key.clone(), *entry)),
        }
    }
    for delete in deletes {
        let kept = match delete {
            Delete::Message(key) => {
                records.inbox.remove(&key);
                continue;
            }
            Delete::Hint(id) => {
                records.hints.remove(&id);
                continue;
            }
            Delete::Work(id) => {
                records.plans.remove(&id);
                (Plane::Work, id.to_string())
            }
            Delete::Wait(id) => (Plane::Waits, id.to_string()),
            Delete::Timer(id) => (Plane::Timers, id.to_string()),
            Delete::Task(id) => (Plane::Tasks, id.to_string()),
            Delete::Trigger(id) => (Plane::Triggers, id.to_string()),
            // It lies in the directory of its run.
            Delete::Checkpoint(_) => continue,
        };
        records.open.remove(&kept);
    }
    records.events.extend(events);
    records.ended.extend(archived.iter().map(|ended| match ended {
        Archived::Message(message) => (Message::KIND, value(message.as_ref())),
        Archived::Wait(wait) => ("wait", value(wait.as_ref())),
        Archived::Work(item) => ("work", value(item.as_ref())),
        Archived::Timer(timer) => ("timer", value(timer.as_ref())),
        Archived::Task(task) => ("task", value(task.as_ref())),
        Archived::Trigger(trigger) => ("trigger", value(trigger.as_ref())),
        Archived::Run(run) => (Run::KIND, value(run.as_ref())),
        Archived::Brief(brief) => (Brief::KIND, value(brief.as_ref())),
    }));
}
