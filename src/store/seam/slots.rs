//! Slots: how many turns may run at once. Each is a lock of the state directory; where the records
//! are elsewhere it goes with the lease of a run, and counts for all machines.

use crate::error::Result;
use crate::model::id::AgentName;
use crate::model::time::Time;

use super::super::dir::{LockGuard, Occupant, Subject};
use super::super::elsewhere::InSlot;
use super::Store;

/// A slot of a turn. Dropping this gives it back, or the lease of the run does that.
#[derive(Debug)]
pub struct Slot(#[expect(dead_code, reason = "it is held, and not asked for anything")] Option<LockGuard>);

impl Store {
    /// Takes one of `slots` slots for an agent whose lock this process has, with its next change:
    /// `None` if all are in use.
    pub fn take_slot(&self, slots: u32, agent: &AgentName, now: Time) -> Result<Option<Slot>> {
        let Some(elsewhere) = &self.elsewhere else {
            return Ok(self.local.take_slot(slots, agent, now)?.map(|guard| Slot(Some(guard))));
        };
        let is_free = self.living(elsewhere.slots(Some(agent))?, Some(agent))?.count() < slots as usize;
        if is_free {
            elsewhere.take_slot(agent)?;
        }
        Ok(is_free.then_some(Slot(None)))
    }

    /// True if `take_slot` would get one.
    pub fn has_slot(&self, slots: u32, agent: &AgentName) -> Result<bool> {
        match &self.elsewhere {
            None => self.local.has_slot(slots),
            Some(elsewhere) => Ok(self.living(elsewhere.slots(None)?, Some(agent))?.count() < slots as usize),
        }
    }

    /// The agents that have the slots, or were the last to have each.
    pub fn slot_holders(&self, slots: u32) -> Vec<Occupant> {
        let Some(elsewhere) = &self.elsewhere else { return self.local.slot_holders(slots) };
        let found = elsewhere.slots(None).unwrap_or_default();
        let occupant = |slot: InSlot| Occupant { agent: Some(slot.agent), described: slot.host };
        self.living(found, None).map(|living| living.map(occupant).collect()).unwrap_or_default()
    }

    /// Those whose process is not known to be gone. Of the runs of this machine its locks tell that
    /// at once. A lease that `but` has left is its own by now.
    fn living(&self, slots: Vec<InSlot>, but: Option<&AgentName>) -> Result<impl Iterator<Item = InSlot>> {
        let here = self.local.claimant()?.anchor;
        Ok(slots.into_iter().filter(move |slot| {
            let is_gone =
                || self.local.room(&slot.agent).is_leased(Subject::Run).is_ok_and(|is_leased| !is_leased);
            Some(&slot.agent) != but && (slot.anchor != here || !is_gone())
        }))
    }
}
