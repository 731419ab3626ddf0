//! A second store, for tests: it keeps records in memory and has the same functions. A test chooses between it and the
//! state directory.
//!
//! In both cases the directory has what belongs to the machine: locks, seats, settings, the directories of runs. These are
//! reached through `Deref`. Questions about records are answered here. The directory of an agent whose records are in memory
//! has no records, so a question that goes past this file finds nothing, and the test fails.

mod snapshot;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
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

use super::anchor::Anchor;
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

/// The records as they are now. A snapshot keeps the records that it was made from.
type Current = Rc<RefCell<Rc<Records>>>;

// Only test builds have this store, so a record that can't be written as JSON and read back ends the test.

fn value<T: Record>(record: &T) -> Value {
    serde_json::to_value(record).expect("records are JSON")
}

fn record<T: Record>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("what was put is what is read")
}

#[derive(Debug)]
pub struct Store {
    local: dir::Store,
    memory: Option<RefCell<BTreeMap<AgentName, Current>>>,
}

impl Deref for Store {
    type Target = dir::Store;

    fn deref(&self) -> &dir::Store {
        &self.local
    }
}

impl Store {
    pub fn open(anchor: Anchor, opener: Opener) -> Result<Store> {
        Ok(Store { local: dir::Store::open(anchor, opener)?, memory: None })
    }

    /// The same, and keeps the records of new agents in memory.
    pub fn in_memory(anchor: Anchor, opener: Opener) -> Result<Store> {
        Ok(Store { memory: Some(RefCell::default()), ..Store::open(anchor, opener)? })
    }

    pub fn init(anchor: &Anchor) -> Result<bool> {
        dir::Store::init(anchor)
    }

    pub fn create(&self, new: &NewAgent) -> Result<()> {
        self.local.create(new)?;
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
        self.local.agent(name)?.dir().join(dir::layout::STATE).remove()
    }

    pub fn stage<'s>(&'s self, name: &AgentName, former: &AgentName) -> Result<Arriving<'s>> {
        let dir = self.local.stage(name, former)?;
        let agent = Agent { store: self, local: dir.agent().clone(), records: None };
        Ok(Arriving { dir, agent })
    }

    pub fn agent(&self, name: &AgentName) -> Result<Agent<'_>> {
        let records = self.memory.as_ref().and_then(|memory| memory.borrow().get(name).cloned());
        Ok(Agent { store: self, local: self.local.agent(name)?, records })
    }
}

/// An agent that is imported: its records are in the directory.
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

    pub fn place_if_free(self) -> Result<bool> {
        self.dir.place_if_free()
    }

    pub fn place(self, now: Time) -> Result<dir::Appeared> {
        self.dir.place(now)
    }
}

#[derive(Debug)]
pub struct Agent<'s> {
    store: &'s Store,
    local: dir::Agent<'s>,
    records: Option<Current>,
}

impl<'s> Deref for Agent<'s> {
    type Target = dir::Agent<'s>;

    fn deref(&self) -> &dir::Agent<'s> {
        &self.local
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
        self.now().map_or_else(|| self.local.peek(), |records| Ok(records.state.clone()))
    }

    pub fn triggers(&self) -> Result<Vec<Trigger>> {
        if self.records.is_none() { self.local.triggers() } else { self.glimpse().open() }
    }

    pub fn version(&self) -> Option<Version> {
        match self.now() {
            Some(records) => Some(Version::Memory(records.state.revision)),
            None => self.local.version().map(Version::Dir),
        }
    }

    pub fn is_quiet(&self, state: &State) -> Result<bool> {
        match self.now() {
            Some(records) => Ok(records.inbox.is_empty() && records.hints.is_empty()),
            None => self.local.is_quiet(state),
        }
    }

    pub fn look<T>(&self, read: impl Fn(Snapshot<'_>, State) -> Result<T>) -> Result<T> {
        match self.now() {
            Some(records) => read(self.glimpse(), records.state.clone()),
            None => self.local.look(|dir, state| read(Snapshot { dir, records: None }, state)),
        }
    }

    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        match self.now() {
            Some(_) => Ok(self.glimpse()),
            None => Ok(Snapshot { dir: self.local.snapshot()?, records: None }),
        }
    }

    pub fn glimpse(&self) -> Snapshot<'_> {
        Snapshot { dir: self.local.glimpse(), records: self.now() }
    }

    pub fn change(&self, now: Time) -> Result<Change<'_>> {
        Ok(Change { dir: self.local.change(now)?, agent: self })
    }

    pub fn try_change(&self, now: Time) -> Result<Option<Change<'_>>> {
        Ok(self.local.try_change(now)?.map(|dir| Change { dir, agent: self }))
    }

    pub fn change_damaged(&self, now: Time) -> Result<Change<'_>> {
        Ok(Change { dir: self.local.change_damaged(now)?, agent: self })
    }

    pub fn arrive(&self, message: &Message) -> Result<()> {
        if self.records.is_none() {
            return self.local.arrive(message);
        }
        self.edit(|records| drop(records.inbox.insert(message.key(), message.clone())));
        Ok(())
    }

    pub fn arrive_hint(&self, hint: &WakeHint) -> Result<()> {
        if self.records.is_none() {
            return self.local.arrive_hint(hint);
        }
        self.edit(|records| drop(records.hints.insert(hint.id, hint.clone())));
        Ok(())
    }

    pub fn batch(&self, name: Uuid) -> Result<Batch<'_>> {
        let dir = if self.records.is_none() { Some(self.local.batch(name)?) } else { None };
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
            return Err(Error::refused("stale_revision", base.to_string()));
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
            // A checkpoint lies in the directory of its run.
            Delete::Checkpoint(_) => continue,
        };
        records.open.remove(&kept);
    }
    records.events.extend(events);
    for ended in &archived {
        let line = match ended {
            Archived::Message(message) => (Message::KIND, value(message.as_ref())),
            Archived::Wait(wait) => ("wait", value(wait.as_ref())),
            Archived::Work(item) => ("work", value(item.as_ref())),
            Archived::Timer(timer) => ("timer", value(timer.as_ref())),
            Archived::Task(task) => ("task", value(task.as_ref())),
            Archived::Trigger(trigger) => ("trigger", value(trigger.as_ref())),
            Archived::Run(run) => (Run::KIND, value(run.as_ref())),
            Archived::Brief(brief) => (Brief::KIND, value(brief.as_ref())),
        };
        // Equal lines of the archive are one, which stands where the last of them stands.
        records.ended.retain(|other| *other != line);
        records.ended.push(line);
    }
}
