//! Store in the memory of one process, for tests: a minimal implementation of the traits of
//! `backend`.

mod texts;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::local::{LeaseClaimant, Subject};
use crate::model::id::{AgentName, TriggerId};
use crate::model::pool::Pool;
use crate::model::preemption::Checkpoint;
use crate::model::state::State;
use crate::model::time::{Span, Time};
use crate::model::trigger::Uses;

use super::backend::{
    AgentRecords, Arrival, AskClaimant, Backend, Beat, Claim, DueAgent, DueAgents, InSlot, Lease, Op, Ops,
    ReadView, RemoteBackend, RemoteRecords, RemoteTxn, StoreFault, StoreProperties, Subscription, Txn,
    UseOutcome,
};
use texts::Texts;

/// Agent with its current records, and the owners of its lock and its leases.
#[derive(Debug, Default)]
struct MemoryAgent {
    /// Current records. A reader keeps its version, because a change copies them first.
    texts: RefCell<Rc<Texts>>,
    is_held: Cell<bool>,
    fence: Cell<u64>,
    leases: RefCell<Vec<(Subject, u64, LeaseClaimant)>>,
    /// Fencing token of the lease whose run has a slot for concurrent turns.
    slot: Cell<Option<u64>>,
    claim: RefCell<Option<Claim>>,
    loses_leases: Cell<bool>,
    is_cut_off: Cell<bool>,
    commits: Cell<u64>,
    uses: RefCell<BTreeMap<TriggerId, Uses>>,
}

impl MemoryAgent {
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

type All = Rc<RefCell<BTreeMap<AgentName, Rc<MemoryAgent>>>>;

const SHOWN: &str = "memory";

/// Store that exists as long as the process.
#[derive(Debug, Default)]
pub struct Memory(All);

impl Memory {
    /// Makes the next renewal of every lease of the agent find the lease lost.
    pub fn lose_leases(&self, name: &AgentName) {
        self.0.borrow()[name].loses_leases.set(true);
    }

    /// Makes every renewal of the agent's leases fail as unreachable, with no time left to expiry.
    pub fn cut_off(&self, name: &AgentName) {
        self.0.borrow()[name].is_cut_off.set(true);
    }
}

impl Backend for Memory {
    fn named_local_dirs(&self, names: &[String]) -> Result<Vec<String>> {
        let agents = self.0.borrow();
        let named = agents.values().filter_map(|known| known.texts.borrow().local_dir.clone());
        Ok(named.filter(|name| names.contains(name)).collect())
    }

    fn shown(&self) -> String {
        SHOWN.to_owned()
    }

    fn agents(&self, beginning: &str) -> Result<Vec<AgentName>> {
        let agents = self.0.borrow();
        Ok(agents.keys().filter(|name| name.as_str().starts_with(beginning)).cloned().collect())
    }

    fn due(&self, now: Time, pools: &[Pool], _: Option<AskClaimant<'_>>) -> Result<Option<DueAgents>> {
        let mut due = DueAgents::default();
        for (name, known) in self.0.borrow().iter() {
            let texts = known.texts.borrow();
            if !pools.contains(&texts.policy.pool) {
                continue;
            }
            let has_arrivals = !texts.inbox.is_empty() || !texts.hints.is_empty();
            if has_arrivals || texts.due.is_some_and(|due| due <= now) {
                let (name, policy) = (name.clone(), texts.policy.text.clone());
                let arrived = texts.inbox.keys().map(|key| key.id).chain(texts.hints.keys().copied());
                let since = arrived.filter_map(|id| id.minted_at()).min();
                due.agents.push(DueAgent { name, policy, since, due: texts.due });
            }
            due.next = due.next.into_iter().chain(texts.due.filter(|due| *due > now)).min();
        }
        Ok(Some(due))
    }

    fn is_taken(&self, name: &AgentName) -> Result<bool> {
        Ok(self.0.borrow().contains_key(name))
    }

    fn formerly_named(&self, _: &AgentName) -> Result<Vec<(AgentName, String)>> {
        let agents = self.0.borrow();
        let all = agents.iter();
        Ok(all.map(|(name, known)| (name.clone(), known.texts.borrow().identity.clone())).collect())
    }

    fn guest(&self) -> Option<&str> {
        None
    }

    fn claim(&self, claim: Claim) {
        if let Some(known) = self.0.borrow().get(&claim.agent) {
            known.claim.replace(Some(claim));
        }
    }

    fn properties(&self) -> StoreProperties {
        StoreProperties { is_shared: true, ..StoreProperties::default() }
    }
}

impl RemoteBackend for Memory {
    fn agent(&self, name: &AgentName) -> Result<Option<Rc<dyn RemoteRecords>>> {
        let agents = self.0.borrow();
        Ok(agents.get(name).map(|known| Rc::new(Of(Rc::clone(known), Rc::clone(&self.0))) as _))
    }

    fn create(&self, name: &AgentName, ops: Ops<'_>) -> Result<bool> {
        if self.is_taken(name)? {
            return Ok(false);
        }
        let known = MemoryAgent { texts: RefCell::new(Rc::new(Texts::of(ops)?)), ..MemoryAgent::default() };
        self.0.borrow_mut().insert(name.clone(), Rc::new(known));
        Ok(true)
    }

    fn slots(&self, _: Option<&AgentName>) -> Result<Vec<InSlot>> {
        let mut slots = Vec::new();
        for (agent, known) in self.0.borrow().iter() {
            let leases = known.leases.borrow();
            let taken = leases.iter().find(|(_, fence, _)| Some(*fence) == known.slot.get());
            slots.extend(taken.map(|(_, _, by)| InSlot {
                agent: agent.clone(),
                anchor: by.anchor.clone(),
                host: by.host.clone(),
            }));
        }
        Ok(slots)
    }

    fn take_slot(&self, under: &AgentName) -> Result<()> {
        if let Some(known) = self.0.borrow().get(under) {
            let leases = known.leases.borrow();
            let run = leases.iter().find(|(subject, ..)| *subject == Subject::Run);
            known.slot.set(run.map(|(_, fence, _)| *fence));
        }
        Ok(())
    }

    fn faults(&self, _: Time, _: Option<Span>, _: bool) -> Result<Vec<StoreFault>> {
        Ok(Vec::new())
    }

    fn subscribe(&self) -> Box<dyn Subscription> {
        Box::new(MemorySubscription { of: self.0.borrow().clone(), commits: Vec::new() })
    }

    fn with_new_caches(&self) -> Rc<dyn RemoteBackend> {
        Rc::new(Memory(Rc::clone(&self.0)))
    }
}

#[derive(Debug)]
struct Of(Rc<MemoryAgent>, All);

impl Of {
    fn now(&self) -> Rc<Texts> {
        Rc::clone(&self.0.texts.borrow())
    }
}

impl AgentRecords for Of {
    fn identity(&self) -> Result<String> {
        Ok(self.now().identity.clone())
    }

    fn policy(&self) -> Result<String> {
        Ok(self.now().policy.text.clone())
    }

    fn is_quiet(&self, _: &State) -> Result<bool> {
        let now = self.now();
        Ok(now.inbox.is_empty() && now.hints.is_empty())
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
                    texts.change(Op::Arrived(arrival.clone()), 0);
                }
            }
        });
        Ok(true)
    }

    fn read_view(&self) -> Result<Rc<dyn ReadView + '_>> {
        Ok(self.now())
    }

    fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        Ok(self.now().checkpoints())
    }

    fn saved(&self, checkpoint: Checkpoint, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let now = self.now();
        let saved = now.saved(checkpoint);
        saved.iter().for_each(|bytes| each(bytes));
        Ok(saved.is_some())
    }

    fn trigger_key(&self, trigger: TriggerId, digest: &str) -> Result<Option<Vec<u8>>> {
        let now = self.now();
        let known = now.trigger_keys.get(&trigger).filter(|(known, _)| known == digest);
        Ok(known.map(|(_, key)| key.clone()))
    }

    fn use_trigger(&self, trigger: TriggerId, most: NonZeroU32, now: Time) -> Result<UseOutcome> {
        let mut uses = self.0.uses.borrow_mut();
        let counted = Uses::with_one(uses.get(&trigger).copied(), most, now);
        Ok(counted.map(|counted| {
            uses.insert(trigger, counted);
        }))
    }

    fn state(&self) -> Result<String> {
        Ok(self.now().state.clone())
    }

    fn lease(&self, subject: Subject, who: AskClaimant<'_>) -> Result<Option<Box<dyn Lease>>> {
        let claimant = who()?;
        let mut leases = self.0.leases.borrow_mut();
        if leases.iter().any(|(other, _, by)| *other == subject && by.anchor != claimant.anchor) {
            return Ok(None);
        }
        leases.retain(|(other, ..)| *other != subject);
        let fence = self.0.fence.get() + 1;
        self.0.fence.set(fence);
        leases.push((subject, fence, claimant));
        Ok(Some(Box::new(TakenLease { of: Rc::clone(&self.0), fence })))
    }

    fn is_leased(&self, subject: Subject, who: AskClaimant<'_>) -> Result<Option<bool>> {
        let anchor = who()?.anchor;
        Ok(Some(self.0.leases.borrow().iter().any(|(other, _, by)| *other == subject && by.anchor != anchor)))
    }

    fn is_fenced(&self) -> Result<bool> {
        Ok(self.0.is_fenced())
    }
}

impl RemoteRecords for Of {
    fn shown(&self) -> String {
        SHOWN.to_owned()
    }

    fn local_dir_name(&self) -> Option<String> {
        self.now().local_dir.clone()
    }

    fn lock(&self, _: Duration) -> Result<Option<Box<dyn RemoteTxn>>> {
        if self.0.is_held.replace(true) {
            return Ok(None);
        }
        Ok(Some(Box::new(MemoryTxn(Rc::clone(&self.0), Rc::clone(&self.1)))))
    }
}

/// Subscription without a descriptor to wait for, because only this process changes the records.
#[derive(Debug)]
struct MemorySubscription {
    of: BTreeMap<AgentName, Rc<MemoryAgent>>,
    /// Number of commits of each agent when the subscription began.
    commits: Vec<(AgentName, u64)>,
}

impl MemorySubscription {
    fn commits_of(&self, name: &AgentName) -> u64 {
        self.of.get(name).map_or(0, |known| known.commits.get())
    }
}

impl Subscription for MemorySubscription {
    fn listen(&mut self, agents: &[AgentName]) {
        for name in agents.iter().skip(self.commits.len()) {
            self.commits.push((name.clone(), self.commits_of(name)));
        }
    }

    fn notifies(&self) -> bool {
        !self.commits.is_empty()
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn was_notified(&mut self) -> bool {
        let now = self.commits.iter().map(|(name, _)| (name.clone(), self.commits_of(name))).collect();
        let before = std::mem::replace(&mut self.commits, now);
        before != self.commits
    }
}

#[derive(Debug)]
struct MemoryTxn(Rc<MemoryAgent>, All);

impl Txn for MemoryTxn {
    fn now(&self) -> Result<Rc<dyn ReadView + '_>> {
        Ok(Rc::<Texts>::clone(&self.0.texts.borrow()))
    }

    fn commit(&self, base: u64, ops: &[Op]) -> Result<()> {
        let now = self.0.texts.borrow().number;
        if now != base {
            return Err(Error::refused("stale_revision", now.to_string()));
        }
        self.0.refuse_fenced()?;
        let made = ops.iter().find_map(|op| match op {
            Op::State { revision, .. } => Some(*revision),
            _ => None,
        });
        let revision = made.unwrap_or(base);
        self.0.edit(|texts| ops.iter().for_each(|op| texts.change(op.clone(), revision)));
        self.0.commits.set(self.0.commits.get() + 1);
        Ok(())
    }

    fn put(&self, op: Op) -> Result<()> {
        self.0.refuse_fenced()?;
        self.0.edit(|texts| texts.change(op, texts.number));
        Ok(())
    }
}

impl RemoteTxn for MemoryTxn {
    fn replace(&self, base: u64, ops: Ops<'_>) -> Result<()> {
        self.commit(base, &[])?;
        self.0.texts.replace(Rc::new(Texts::of(ops)?));
        Ok(())
    }

    fn remove(&self) -> Result<()> {
        self.0.refuse_fenced()?;
        self.1.borrow_mut().retain(|_, known| !Rc::ptr_eq(known, &self.0));
        Ok(())
    }

    fn rename(&self, name: &AgentName) -> Result<()> {
        self.remove()?;
        self.1.borrow_mut().insert(name.clone(), Rc::clone(&self.0));
        Ok(())
    }
}

impl Drop for MemoryTxn {
    fn drop(&mut self) {
        self.0.is_held.set(false);
    }
}

#[derive(Debug)]
struct TakenLease {
    of: Rc<MemoryAgent>,
    fence: u64,
}

impl Lease for TakenLease {
    fn fence(&self) -> Option<u64> {
        Some(self.fence)
    }

    fn beat(&self) -> Beat {
        if self.of.is_cut_off.get() {
            return Beat::Unreachable { left: Duration::ZERO };
        }
        let is_ours = !self.of.loses_leases.get()
            && self.of.leases.borrow().iter().any(|(_, fence, _)| *fence == self.fence);
        if is_ours { Beat::Held { revision: self.of.texts.borrow().number } } else { Beat::Lost }
    }

    fn release(&self) -> Result<()> {
        self.of.leases.borrow_mut().retain(|(_, fence, _)| *fence != self.fence);
        Ok(())
    }
}
