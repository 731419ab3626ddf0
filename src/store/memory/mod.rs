//! A store in the memory of one process, for tests: the least that answers the traits of `elsewhere`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::model::id::{AgentName, MessageId};
use crate::model::message::InboxKey;
use crate::model::record::Plane;
use crate::model::time::Time;

use super::Subject;
use super::elsewhere::{
    Arrival, Beat, Brought, Claim, Claimant, Due, Elsewhere, Fault, Hold, Lease, Order, Piece, Pieces,
    Records, Sight,
};

/// All records of one agent, as texts.
#[derive(Debug, Clone, Default)]
struct Texts {
    identity: String,
    policy: String,
    /// The revision of the state.
    number: u64,
    state: String,
    due: Option<Time>,
    open: BTreeMap<(Plane, String), String>,
    plans: BTreeMap<String, String>,
    inbox: BTreeMap<InboxKey, String>,
    hints: BTreeMap<MessageId, String>,
    keys: BTreeMap<String, (Time, String)>,
    /// What has ended, in order: the kind, the id and the line.
    ended: Vec<(&'static str, Option<String>, Time, String)>,
    events: Vec<(u64, Time, String)>,
    is_shut: bool,
    files: Vec<Brought>,
}

impl Texts {
    fn of(pieces: Pieces<'_>) -> Result<Texts> {
        let mut texts = Texts::default();
        pieces(&mut |piece| {
            texts.change(piece);
            Ok(())
        })?;
        Ok(texts)
    }

    fn change(&mut self, piece: Piece) {
        match piece {
            Piece::Identity(text) => self.identity = text,
            Piece::Policy(text) => self.policy = text,
            Piece::State { revision, text, due } => {
                self.due = due;
                self.number = revision;
                self.state = text;
            }
            Piece::Open { plane, id, text } => drop(self.open.insert((plane, id), text)),
            Piece::Closed { plane, id } => {
                if plane == Plane::Work {
                    self.plans.remove(&id);
                }
                self.open.remove(&(plane, id));
            }
            Piece::Plan { work, text } => drop(self.plans.insert(work, text)),
            Piece::Arrived(Arrival::Message { key, text }) => {
                self.inbox.retain(|other, _| other.id != key.id);
                self.inbox.insert(key, text);
            }
            Piece::Arrived(Arrival::Hint { id, text }) => drop(self.hints.insert(id, text)),
            Piece::Taken(key) => drop(self.inbox.remove(&key)),
            Piece::Heard(id) => drop(self.hints.remove(&id)),
            Piece::Key { key, admitted_at, text } => drop(self.keys.insert(key, (admitted_at, text))),
            Piece::Ended { kind, id, text, at } => self.ended.push((kind, id, at, text)),
            Piece::Event { at, text, seq } => self.events.push((seq, at, text)),
            Piece::File(file) => self.files.push(file),
            Piece::Shut(is_shut) => self.is_shut = is_shut,
        }
    }
}

/// What is known of an agent: its records as they are now, and who has its lock and its leases.
#[derive(Debug, Default)]
struct Known {
    /// A sight keeps the records that it was made from.
    texts: RefCell<Rc<Texts>>,
    is_held: Cell<bool>,
    fence: Cell<u64>,
    leases: RefCell<Vec<(Subject, u64, Claimant)>>,
    is_removed: Cell<bool>,
    claim: RefCell<Option<Claim>>,
    loses_leases: Cell<bool>,
}

impl Known {
    fn is_fenced(&self) -> bool {
        self.claim.borrow().as_ref().is_some_and(|claim| {
            let leases = self.leases.borrow();
            !leases.iter().any(|(subject, fence, _)| (*subject, *fence) == (claim.subject, claim.fence))
        })
    }

    fn refuse_fenced(&self) -> Result<()> {
        if self.is_fenced() {
            Err(Error::refused(Error::FENCED, "another one has taken over"))
        } else {
            Ok(())
        }
    }

    fn edit(&self, edit: impl FnOnce(&mut Texts)) {
        edit(Rc::make_mut(&mut self.texts.borrow_mut()));
    }
}

/// A store that lasts as long as the process.
#[derive(Debug, Default)]
pub struct Memory(RefCell<BTreeMap<AgentName, Rc<Known>>>);

impl Memory {
    /// From now on every lease of the agent is lost by its next beat.
    pub fn lose_leases(&self, name: &AgentName) {
        self.0.borrow()[name].loses_leases.set(true);
    }
}

impl Elsewhere for Memory {
    fn shown(&self) -> String {
        "memory".to_owned()
    }

    fn agents(&self) -> Result<Vec<AgentName>> {
        let agents = self.0.borrow();
        Ok(agents.iter().filter(|(_, known)| !known.is_removed.get()).map(|(name, _)| name.clone()).collect())
    }

    fn due(&self, now: Time) -> Result<Due> {
        let mut due = Due::default();
        for (name, known) in self.0.borrow().iter().filter(|(_, known)| !known.is_removed.get()) {
            let texts = known.texts.borrow();
            let has_arrivals = !texts.inbox.is_empty() || !texts.hints.is_empty();
            if has_arrivals || texts.due.is_some_and(|due| due <= now) {
                due.names.push(name.clone());
            }
            due.next = due.next.into_iter().chain(texts.due.filter(|due| *due > now)).min();
        }
        Ok(due)
    }

    fn agent(&self, name: &AgentName) -> Result<Option<Rc<dyn Records>>> {
        let agents = self.0.borrow();
        let known = agents.get(name).filter(|known| !known.is_removed.get());
        Ok(known.map(|known| Rc::new(Of(Rc::clone(known))) as Rc<dyn Records>))
    }

    fn create(&self, name: &AgentName, pieces: Pieces<'_>) -> Result<bool> {
        if self.agent(name)?.is_some() {
            return Ok(false);
        }
        let known = Known { texts: RefCell::new(Rc::new(Texts::of(pieces)?)), ..Known::default() };
        self.0.borrow_mut().insert(name.clone(), Rc::new(known));
        Ok(true)
    }

    fn faults(&self, _: Time, _: bool) -> Result<Vec<Fault>> {
        Ok(Vec::new())
    }

    fn had_name(&self, _: &AgentName) -> Result<Vec<(AgentName, String)>> {
        let agents = self.0.borrow();
        let living = agents.iter().filter(|(_, known)| !known.is_removed.get());
        Ok(living.map(|(name, known)| (name.clone(), known.texts.borrow().identity.clone())).collect())
    }

    fn claim(&self, claim: Claim) {
        if let Some(known) = self.0.borrow().get(&claim.agent) {
            known.claim.replace(Some(claim));
        }
    }
}

#[derive(Debug)]
struct Of(Rc<Known>);

impl Of {
    fn now(&self) -> Rc<Texts> {
        Rc::clone(&self.0.texts.borrow())
    }
}

impl Records for Of {
    fn identity(&self) -> Result<String> {
        Ok(self.now().identity.clone())
    }

    fn policy(&self) -> Result<String> {
        Ok(self.now().policy.clone())
    }

    fn state(&self) -> Result<String> {
        Ok(self.now().state.clone())
    }

    fn version(&self) -> Option<u64> {
        Some(self.now().number)
    }

    fn has_arrivals(&self) -> Result<bool> {
        let now = self.now();
        Ok(!now.inbox.is_empty() || !now.hints.is_empty())
    }

    fn arrive(&self, arrivals: &[Arrival]) -> Result<bool> {
        self.0.refuse_fenced()?;
        if self.now().is_shut {
            return Ok(false);
        }
        self.0.edit(|texts| {
            for arrival in arrivals {
                let is_there = match arrival {
                    Arrival::Message { key, .. } => texts.inbox.keys().any(|other| other.id == key.id),
                    Arrival::Hint { id, .. } => texts.hints.contains_key(id),
                };
                if !is_there {
                    texts.change(Piece::Arrived(arrival.clone()));
                }
            }
        });
        Ok(true)
    }

    fn see(&self) -> Result<Rc<dyn Sight>> {
        Ok(self.now())
    }

    fn hold(&self, _: Duration) -> Result<Option<Box<dyn Hold>>> {
        if self.0.is_held.replace(true) {
            return Ok(None);
        }
        Ok(Some(Box::new(Locked(Rc::clone(&self.0)))))
    }

    fn lease(&self, subject: Subject, claimant: &Claimant) -> Result<Option<Box<dyn Lease>>> {
        let mut leases = self.0.leases.borrow_mut();
        if leases.iter().any(|(other, _, by)| *other == subject && by.anchor != claimant.anchor) {
            return Ok(None);
        }
        leases.retain(|(other, ..)| *other != subject);
        let fence = self.0.fence.get() + 1;
        self.0.fence.set(fence);
        leases.push((subject, fence, claimant.clone()));
        Ok(Some(Box::new(Taken { of: Rc::clone(&self.0), fence })))
    }

    fn is_leased(&self, subject: Subject, anchor: &str) -> Result<bool> {
        Ok(self.0.leases.borrow().iter().any(|(other, _, by)| *other == subject && by.anchor != anchor))
    }

    fn is_fenced(&self) -> Result<bool> {
        Ok(self.0.is_fenced())
    }
}

impl Sight for Texts {
    fn state(&self) -> Result<String> {
        Ok(self.state.clone())
    }

    fn open(&self, plane: Plane) -> Result<Vec<String>> {
        let of_kind = self.open.iter().filter(|((other, _), _)| *other == plane);
        Ok(of_kind.map(|(_, text)| text.clone()).collect())
    }

    fn open_one(&self, plane: Plane, id: &str) -> Result<Option<String>> {
        Ok(self.open.get(&(plane, id.to_owned())).cloned())
    }

    fn plan(&self, work: &str) -> Result<Option<String>> {
        Ok(self.plans.get(work).cloned())
    }

    fn messages(&self, count: usize) -> Result<Vec<InboxKey>> {
        Ok(self.inbox.keys().take(count).copied().collect())
    }

    fn message(&self, key: InboxKey) -> Result<Option<String>> {
        Ok(self.inbox.get(&key).cloned())
    }

    fn hints(&self) -> Result<Vec<(MessageId, String)>> {
        Ok(self.hints.iter().map(|(id, text)| (*id, text.clone())).collect())
    }

    fn key(&self, key: &str) -> Result<Option<String>> {
        Ok(self.keys.get(key).map(|(_, text)| text.clone()))
    }

    fn ended(
        &self,
        kind: &'static str,
        id: Option<&str>,
        each: &mut dyn FnMut(&str) -> Result<bool>,
    ) -> Result<()> {
        for (of, its, _, line) in self.ended.iter().rev() {
            let is_meant = *of == kind && (id.is_none() || its.as_deref() == id);
            if is_meant && !each(line)? {
                break;
            }
        }
        Ok(())
    }

    fn events(&self, order: Order, each: &mut dyn FnMut(&str) -> Result<bool>) -> Result<()> {
        let lines: Vec<&(u64, Time, String)> = match order {
            Order::Since(since) => {
                self.events.iter().filter(|(_, at, _)| since.is_none_or(|since| *at >= since)).collect()
            }
            Order::NewestFirst => self.events.iter().rev().collect(),
        };
        for (_, _, line) in lines {
            if !each(line)? {
                break;
            }
        }
        Ok(())
    }

    fn pieces(&self, each: &mut dyn FnMut(Piece) -> Result<()>) -> Result<()> {
        self.files.iter().try_for_each(|file| each(Piece::File(file.clone())))?;
        each(Piece::Identity(self.identity.clone()))?;
        each(Piece::Policy(self.policy.clone()))?;
        each(Piece::State { revision: self.number, due: self.due, text: self.state.clone() })?;
        each(Piece::Shut(self.is_shut))?;
        for ((plane, id), text) in &self.open {
            each(Piece::Open { plane: *plane, id: id.clone(), text: text.clone() })?;
        }
        for (work, text) in &self.plans {
            each(Piece::Plan { work: work.clone(), text: text.clone() })?;
        }
        for (key, text) in &self.inbox {
            each(Piece::Arrived(Arrival::Message { key: *key, text: text.clone() }))?;
        }
        for (id, text) in &self.hints {
            each(Piece::Arrived(Arrival::Hint { id: *id, text: text.clone() }))?;
        }
        for (kind, id, at, text) in &self.ended {
            each(Piece::Ended { kind, id: id.clone(), at: *at, text: text.clone() })?;
        }
        for (seq, at, text) in &self.events {
            each(Piece::Event { seq: *seq, at: *at, text: text.clone() })?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Locked(Rc<Known>);

impl Hold for Locked {
    fn waited(&self) -> Duration {
        Duration::ZERO
    }

    fn now(&self) -> Result<Rc<dyn Sight>> {
        Ok(Of(Rc::clone(&self.0)).now())
    }

    fn commit(&self, base: u64, pieces: &[Piece]) -> Result<()> {
        let now = self.0.texts.borrow().number;
        if now != base {
            return Err(Error::refused("stale_revision", now.to_string()));
        }
        self.0.refuse_fenced()?;
        self.0.edit(|texts| pieces.iter().for_each(|piece| texts.change(piece.clone())));
        Ok(())
    }

    fn forget_keys(&self, before: Time) -> Result<()> {
        self.0.edit(|texts| texts.keys.retain(|_, (admitted_at, _)| *admitted_at >= before));
        Ok(())
    }

    fn replace_policy(&self, policy: &str) -> Result<()> {
        self.0.refuse_fenced()?;
        self.0.edit(|texts| policy.clone_into(&mut texts.policy));
        Ok(())
    }

    fn replace_identity(&self, identity: &str) -> Result<()> {
        self.0.refuse_fenced()?;
        self.0.edit(|texts| identity.clone_into(&mut texts.identity));
        Ok(())
    }

    fn replace(&self, base: u64, pieces: Pieces<'_>) -> Result<()> {
        self.commit(base, &[])?;
        self.0.texts.replace(Rc::new(Texts::of(pieces)?));
        Ok(())
    }

    fn remove(&self) -> Result<()> {
        self.0.refuse_fenced()?;
        self.0.is_removed.set(true);
        Ok(())
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.0.is_held.set(false);
    }
}

#[derive(Debug)]
struct Taken {
    of: Rc<Known>,
    fence: u64,
}

impl Lease for Taken {
    fn fence(&self) -> u64 {
        self.fence
    }

    fn beat(&self) -> Beat {
        let is_ours = !self.of.loses_leases.get()
            && self.of.leases.borrow().iter().any(|(_, fence, _)| *fence == self.fence);
        if is_ours { Beat::Held { revision: self.of.texts.borrow().number } } else { Beat::Lost }
    }

    fn release(self: Box<Self>) -> Result<()> {
        self.of.leases.borrow_mut().retain(|(_, fence, _)| *fence != self.fence);
        Ok(())
    }
}
