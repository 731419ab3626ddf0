//! Workspaces and slots: locks of the state directory that a tick holds for as long as its turn
//! lasts.
//!
//! The kernel releases them however the tick ends. No tick waits for one: if it is taken, a later
//! step tries again.

use std::num::NonZeroU32;

use crate::beneath::Spot;
use crate::error::Result;
use crate::model::id::AgentName;
use crate::model::pool::Pools;
use crate::model::time::Time;

use crate::store::anchor::Workspace;

use super::lock::{self, Holder, LockGuard, Sharing};
use super::{DirStore, layout};

/// The agent that holds a workspace or slot that another agent needs.
#[derive(Debug)]
pub struct Occupant {
    pub agent: Option<AgentName>,
    /// The process, in words.
    pub described: String,
}

impl DirStore {
    /// Occupies a workspace: `None` if another tick has it. Until the lock is signed, `occupant`
    /// names the agent that had it before.
    pub fn occupy(&self, workspace: &Workspace, sharing: Sharing) -> Result<Option<LockGuard>> {
        let lock = self.lock_of(workspace);
        lock.parent().make_dirs()?;
        lock::occupy(&lock, sharing)
    }

    /// Says for which agent a workspace is occupied.
    pub fn sign(&self, held: &LockGuard, agent: &AgentName, now: Time) {
        held.sign(&self.holder_for(agent, now));
    }

    /// True if `occupy` would get it. Makes no file.
    pub fn is_vacant(&self, workspace: &Workspace, sharing: Sharing) -> Result<bool> {
        lock::is_vacant(&self.lock_of(workspace), sharing)
    }

    /// The agent that has a workspace, or was the last to have it.
    pub fn occupant(&self, workspace: &Workspace) -> Occupant {
        occupant(&self.lock_of(workspace))
    }

    fn lock_of(&self, workspace: &Workspace) -> Spot {
        self.spot().join(layout::WORKSPACES).join(format!("{}.lock", workspace.key()))
    }

    /// Maximum number of turns that run at once; `None`: any number.
    pub fn max_running(&self) -> Option<u32> {
        self.config.scheduler.max_running.map(NonZeroU32::get)
    }

    /// Difference in priority from which on an agent asks a turn for its slot; `None`: no agent
    /// asks.
    pub fn preempt_margin(&self) -> Option<u32> {
        self.config.scheduler.preempt_margin.map(NonZeroU32::get)
    }

    /// The pools whose agents this machine ticks, where it shares them with others.
    pub fn pools(&self) -> &Pools {
        &self.config.scheduler.pool
    }

    /// Takes one of `slots` slots for an agent: `None` if all are in use.
    pub fn take_slot(&self, slots: u32, agent: &AgentName, now: Time) -> Result<Option<LockGuard>> {
        self.spot().join(layout::SLOTS).make_dirs()?;
        lock::occupy_any((1..=slots).map(|slot| self.slot(slot)), &self.holder_for(agent, now))
    }

    /// True if `take_slot` would get one. Makes no file.
    pub fn has_slot(&self, slots: u32) -> Result<bool> {
        for slot in 1..=slots {
            if !lock::is_held(&self.slot(slot))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The agents that have the slots, or were the last to have each.
    pub fn slot_holders(&self, slots: u32) -> Vec<Occupant> {
        (1..=slots).map(|slot| occupant(&self.slot(slot))).collect()
    }

    fn slot(&self, slot: u32) -> Spot {
        self.spot().join(layout::SLOTS).join(format!("{slot}.lock"))
    }

    fn holder_for(&self, agent: &AgentName, now: Time) -> Holder {
        Holder { agent: Some(agent.clone()), ..self.holder(now) }
    }
}

fn occupant(path: &Spot) -> Occupant {
    Occupant {
        agent: lock::holder(path).and_then(|holder| holder.agent),
        described: lock::describe_holder(path),
    }
}
