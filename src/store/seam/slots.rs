//! Slots, which limit the number of concurrent turns. A slot is a lock of the state directory; in a
//! database it belongs to the lease of a run, and counts for all machines.

use crate::error::Result;
use crate::local::{LockGuard, Occupant, Subject};
use crate::model::id::AgentName;
use crate::model::time::Time;

use super::super::backend::InSlot;
use super::Store;

/// Slot of a turn. Free when this value is dropped, or when the run's lease in a database ends.
#[derive(Debug)]
pub struct Slot(#[expect(dead_code, reason = "it is held, and not asked for anything")] Option<LockGuard>);

impl Store {
    /// Takes one of `slots` slots for a turn of an agent whose lock this process has; in a
    /// database, with the agent's next change. Returns `None` if all are in use.
    pub fn take_slot(&self, slots: u32, agent: &AgentName, now: Time) -> Result<Option<Slot>> {
        let Some(remote) = self.records.remote() else {
            return Ok(self.local.take_slot(slots, agent, now)?.map(|guard| Slot(Some(guard))));
        };
        let is_free = self.living(remote.slots(Some(agent))?, Some(agent))?.count() < slots as usize;
        if is_free {
            remote.take_slot(agent)?;
        }
        Ok(is_free.then_some(Slot(None)))
    }

    /// True if `take_slot` would get a slot.
    pub fn has_slot(&self, slots: u32, agent: &AgentName) -> Result<bool> {
        match self.records.remote() {
            None => self.local.has_slot(slots),
            Some(remote) => Ok(self.living(remote.slots(None)?, Some(agent))?.count() < slots as usize),
        }
    }

    /// Returns the agents that have slots, and without a database the last agents of free slots.
    pub fn slot_holders(&self, slots: u32) -> Vec<Occupant> {
        let Some(remote) = self.records.remote() else { return self.local.slot_holders(slots) };
        let found = remote.slots(None).unwrap_or_default();
        let occupant = |slot: InSlot| Occupant { agent: Some(slot.agent), described: slot.host };
        self.living(found, None).map(|living| living.map(occupant).collect()).unwrap_or_default()
    }

    /// Returns the slots whose process may be alive: for a run of this machine, the local lock
    /// shows a death at once. Leaves out the slot of `but`, whose lease this process took over.
    fn living(&self, slots: Vec<InSlot>, but: Option<&AgentName>) -> Result<impl Iterator<Item = InSlot>> {
        let here = self.local.claimant()?.anchor;
        Ok(slots.into_iter().filter(move |slot| {
            let is_gone =
                || self.local.agent(&slot.agent).is_leased(Subject::Run).is_ok_and(|is_leased| !is_leased);
            Some(&slot.agent) != but && (slot.anchor != here || !is_gone())
        }))
    }
}
