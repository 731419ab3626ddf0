//! Check whether a machine is low on memory or disk, so that a turn should yield (contract,
//! execution §6).

use crate::model::critical::{Critical, Percent};

use super::priority::Occupying;

/// Free memory and disk space of the machine, in percent; `None` if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FreeResources {
    pub memory: Option<f64>,
    pub disk: Option<f64>,
}

/// Returns text about a resource of which too little is free; `None` if all suffice.
pub fn lacks(critical: &Critical, left: &FreeResources) -> Option<String> {
    let low = |what: &str, least: Option<Percent>, left: Option<f64>| {
        let (least, left) = (least?, left?);
        (left < least.0).then(|| {
            format!("the machine is low on {what}: {left:.1}% is left (preemption.critical.{what} = {least})")
        })
    };
    low("memory", critical.memory, left.memory).or_else(|| low("disk", critical.disk, left.disk))
}

/// Returns the turn that yields first on a machine that is low on a resource: the least urgent
/// turn, and among equals the latest. `None` while another turn is about to end, because its end
/// may free enough.
pub fn first_to_go(turns: &[Occupying]) -> Option<&Occupying> {
    if turns.iter().any(|turn| turn.leaves) {
        return None;
    }
    turns.iter().max_by_key(|turn| (turn.priority, turn.claimed_at, turn.run_id))
}
