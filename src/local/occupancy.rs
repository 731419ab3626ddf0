//! Locks that a tick holds during its turn: on the agent's workspace, and on a numbered slot. The
//! number of slots limits the turns that run at once.
//!
//! The kernel releases both however the tick ends. If a lock is taken, a later step tries again.

use crate::cap_fs::CapPath;
use crate::error::Result;
use crate::model::id::AgentName;
use crate::model::time::Time;

use super::anchor::Workspace;

use super::lock::{self, Holder, LockGuard, Sharing};
use super::{StateDir, layout};

/// Agent that holds a workspace or a slot (right to run a turn), or was the last to hold it.
#[derive(Debug)]
pub struct Occupant {
    pub agent: Option<AgentName>,
    /// Process of the tick, described for people.
    pub described: String,
}

impl StateDir {
    /// Locks a workspace; returns `None` if another tick has locked it. Until `sign` writes the new
    /// agent into the lock file, `occupant` returns the agent that had the workspace before.
    pub fn occupy(&self, workspace: &Workspace, sharing: Sharing) -> Result<Option<LockGuard>> {
        lock::occupy(&self.lock_of(workspace), sharing)
    }

    /// Writes the name of the agent that uses a workspace into the workspace's lock file.
    pub fn sign(&self, held: &LockGuard, agent: &AgentName, now: Time) {
        held.sign(&self.holder_for(agent, now));
    }

    /// True if `occupy` would get the workspace now. Creates no file.
    pub fn is_vacant(&self, workspace: &Workspace, sharing: Sharing) -> Result<bool> {
        lock::is_vacant(&self.lock_of(workspace), sharing)
    }

    /// Returns the agent that has a workspace, or was the last to have it.
    pub fn occupant(&self, workspace: &Workspace) -> Occupant {
        occupant(&self.lock_of(workspace))
    }

    fn lock_of(&self, workspace: &Workspace) -> CapPath {
        self.cap().join(layout::WORKSPACES).join(format!("{}.lock", workspace.key))
    }

    /// Takes one of the `slots` locks that limit concurrent turns; `None` if all are in use.
    pub fn take_slot(&self, slots: u32, agent: &AgentName, now: Time) -> Result<Option<LockGuard>> {
        let holder = self.holder_for(agent, now);
        let mut tries = (1..=slots).map(|slot| lock::try_acquire(&self.slot(slot), Some(&holder)));
        tries.find_map(Result::transpose).transpose()
    }

    /// True if one of the `slots` locks that limit concurrent turns is free. Creates no file.
    pub fn has_slot(&self, slots: u32) -> Result<bool> {
        for slot in 1..=slots {
            if !lock::is_held(&self.slot(slot))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns for each of the slots, which limit concurrent turns, its current or last agent.
    pub fn slot_holders(&self, slots: u32) -> Vec<Occupant> {
        (1..=slots).map(|slot| occupant(&self.slot(slot))).collect()
    }

    fn slot(&self, slot: u32) -> CapPath {
        self.cap().join(layout::SLOTS).join(format!("{slot}.lock"))
    }

    fn holder_for(&self, agent: &AgentName, now: Time) -> Holder {
        Holder { agent: Some(agent.clone()), ..self.holder(now) }
    }
}

fn occupant(path: &CapPath) -> Occupant {
    Occupant {
        agent: lock::holder(path).and_then(|holder| holder.agent),
        described: lock::describe_holder(path),
    }
}
