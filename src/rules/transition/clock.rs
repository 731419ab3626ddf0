//! Correction of times that a fast clock has written (contract, execution §4).

use serde_json::json;

use crate::model::event::EventKind;
use crate::model::id::RunId;
use crate::model::time::Time;
use crate::model::timer::Timer;

use crate::rules::clock::{Ahead, correct_state, correct_timer, lease_ends};

use super::draft::Draft;

/// Replaces each stored time that is too far in the future, and logs each correction.
pub fn set_right(draft: &mut Draft) {
    let now = draft.now();
    let recovery = &draft.records.policy.recovery;
    let mut found = correct_state(&mut draft.records.state, recovery, now);
    let is_ahead = |timer: &Timer| correct_timer(&mut timer.clone(), now).is_some();
    draft.change_each(is_ahead, |timer| found.extend(correct_timer(timer, now)));
    for Ahead { field, stored, corrected } in found {
        repaired(draft, None, &field, stored, corrected);
    }
}

fn repaired(draft: &mut Draft, run_id: Option<RunId>, field: &str, was: Time, is: Time) {
    let data = json!({ "moment": field, "was": was, "is": is, "reason": "clock_in_future" });
    draft.event(EventKind::RecordRepaired, run_id, data);
}

/// Corrects the lease of a run on another machine. Returns `false` if the lease is not too far in
/// the future.
pub fn set_lease_right(draft: &mut Draft, run_id: RunId) -> bool {
    let now = draft.now();
    let Some(run) = draft.records.state.current_run.as_mut().filter(|run| run.run_id == run_id) else {
        return false;
    };
    let Some(taken) = lease_ends(run, now) else { return false };
    let was = run.lease_expires_at;
    (run.claimed_at, run.lease_expires_at) = (now, taken);
    repaired(draft, Some(run_id), "current_run.lease_expires_at", was, taken);
    true
}
