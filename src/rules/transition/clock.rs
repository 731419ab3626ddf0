//! Correction of times that a fast clock has written (contract, execution §4).

use serde_json::json;

use crate::model::event::EventKind;
use crate::model::id::RunId;
use crate::model::transaction::Put;

use crate::model::timer::Schedule;
use crate::rules::clock::{Ahead, TimeField, ahead, lease_ends};

use super::draft::Draft;

/// Replaces each stored time that is too far in the future, and records it in the ledger.
pub fn set_right(draft: &mut Draft) {
    let now = draft.now();
    for Ahead { place, stored, taken } in ahead(&draft.records, now) {
        let state = &mut draft.records.state;
        match place {
            TimeField::Entered => state.execution.since = taken,
            TimeField::Retry => state.retry.iter_mut().for_each(|retry| retry.not_before = taken),
            TimeField::Held => state.held.iter_mut().for_each(|held| held.not_before = Some(taken)),
            TimeField::Known => {
                let deferred = state.held.iter_mut().filter_map(|held| held.deferred.as_mut());
                deferred.for_each(|deferred| deferred.until = Some(taken));
            }
            TimeField::Row => state.held.iter_mut().for_each(|held| held.deferred_since = Some(taken)),
            TimeField::Hour => state.spending.hour.iter_mut().for_each(|spent| spent.since = taken),
            TimeField::Day => state.spending.day.iter_mut().for_each(|spent| spent.since = taken),
            TimeField::Timer(id) => {
                let Some(timer) = draft.records.timers.iter_mut().find(|timer| timer.id == id) else {
                    continue;
                };
                timer.next_at = taken;
                if let Schedule::Every { from, .. } = &mut timer.schedule {
                    *from = (*from).min(now);
                }
                let timer = Box::new(timer.clone());
                draft.put(Put::Timer(timer));
            }
        }
        let data = json!({ "moment": place.name(), "was": stored, "is": taken, "reason": "clock_in_future" });
        draft.event(EventKind::RecordRepaired, None, data);
    }
}

/// Corrects the lease of a run on another machine. Returns `false` if its time was not too far in
/// the future.
pub fn set_lease_right(draft: &mut Draft, run_id: RunId) -> bool {
    let now = draft.now();
    let Some(run) = draft.records.state.current_run.as_mut().filter(|run| run.run_id == run_id) else {
        return false;
    };
    let Some(taken) = lease_ends(run, now) else { return false };
    let was = run.lease_expires_at;
    (run.claimed_at, run.lease_expires_at) = (now, taken);
    let data = json!({ "moment": "current_run.lease_expires_at", "was": was, "is": taken, "reason": "clock_in_future" });
    draft.event(EventKind::RecordRepaired, Some(run_id), data);
    true
}
