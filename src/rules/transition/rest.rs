//! Steps that find nothing to run: the agent rests, and its record has the reason.

use serde_json::{Value, json};

use crate::model::agent::Status;
use crate::model::decision::{Decision, DecisionReport};
use crate::model::event::{Boundary, EventKind};

use crate::rules::advisory::{Advisory, advisories};
use crate::rules::execution;
use crate::rules::projection::closure;

use super::draft::Draft;

/// Maximum number of stored advisories that are in the ledger already.
const ADVISED: usize = 64;

/// Records a decision after which the step changes something.
pub fn decided(draft: &mut Draft, report: &DecisionReport) {
    draft.event(EventKind::SchedulerDecision, report.run_id, json!(report));
    draft.records.state.stepped_at = Some(draft.now());
}

/// Records a decision after which the agent rests. The same decision is not recorded twice: a step
/// that finds everything as the last one left it writes nothing.
pub fn rest(draft: &mut Draft, decision: &Decision) {
    if matches!(decision, Decision::TurnInProgress { .. } | Decision::TurnElsewhere { .. }) {
        // Another process works on these records; this step must not change them.
        return;
    }
    draft.ask();
    let mut found = advisories(&draft.records, draft.now());
    found.truncate(ADVISED);
    advise(draft, &found);
    let status = status_after(draft, decision);
    // The decision that the next step would make.
    let found_next = if matches!(decision, Decision::Sleep) { &Decision::StayIdle } else { decision };
    let report = found_next.report();
    let unchanged =
        status == draft.records.state.status && draft.records.state.resting.as_ref() == Some(&report);
    if unchanged && draft.is_empty() {
        // The decision is the same; only its time is missing, or in the future.
        if draft.records.state.resting(draft.now()).is_none() {
            draft.rest(report);
        }
        return;
    }
    // Advisories that have ended are removed here. That alone makes no commit.
    draft.records.state.advised = found.iter().map(Advisory::key).collect();
    decided(draft, &decision.report());
    draft.set_status(status, Boundary::LifecycleSleep);
    draft.rest(report);
}

/// Records in the ledger the advisories that have begun since the last step that rested.
fn advise(draft: &mut Draft, found: &[Advisory]) {
    let known = &draft.records.state.advised;
    let is_new = |advisory: &&Advisory| !known.contains(&advisory.key());
    let begun: Vec<Value> = found.iter().filter(is_new).map(|advisory| json!(advisory)).collect();
    for advisory in begun {
        draft.event(EventKind::Advisory, None, advisory);
    }
}

/// Returns the status after a decision. It may change from `asleep` to `awaiting_task` or back,
/// because the agent's waits can change while it rests.
fn status_after(draft: &Draft, decision: &Decision) -> Status {
    let records = &draft.records;
    if matches!(decision, Decision::Rest(_) | Decision::Sleep | Decision::StayIdle) {
        execution::resting_status(records, &closure(records), Some(decision.kind()))
    } else {
        records.state.status
    }
}
