//! When a turn should yield because its machine is low on memory or disk (contract, execution §6).

use crate::model::critical::{Critical, Percent};

use super::priority::Occupying;

/// What is left of the machine, in percent; `None` where that is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Left {
    pub memory: Option<f64>,
    pub disk: Option<f64>,
}

/// The reason why the machine counts as low on something; `None` if it does not.
pub fn lacks(critical: &Critical, left: &Left) -> Option<String> {
    let low = |what: &str, least: Option<Percent>, left: Option<f64>| {
        let (least, left) = (least?, left?);
        (left < least.0).then(|| {
            format!("the machine is low on {what}: {left:.1}% is left (preemption.critical.{what} = {least})")
        })
    };
    low("memory", critical.memory, left.memory).or_else(|| low("disk", critical.disk, left.disk))
}

/// The turn that makes way first on a machine that is low on something: the least urgent one, and
/// among equals the one that began last. `None` while another turn is about to end: that may be
/// enough.
pub fn first_to_go(turns: &[Occupying]) -> Option<&Occupying> {
    if turns.iter().any(|turn| turn.leaves) {
        return None;
    }
    turns.iter().max_by_key(|turn| (turn.priority, turn.claimed_at, turn.run_id))
}
