//! Steps that find nothing to run: the agent comes to rest, with the reason in its record.

use serde_json::{Value, json};

use crate::model::decision::{Decision, DecisionKind, DecisionReport, StepAction};
use crate::model::event::{Boundary, EventKind};

use crate::rules::advisory::{Advisory, advisories};
use crate::rules::execution;
use crate::rules::ladder::stay_idle;
use crate::rules::projection::closure;

use super::draft::Draft;

/// Maximum number of warnings whose keys the state stores, because they are logged already.
const ADVISED: usize = 64;

/// Records the decision of a step that changes something, and the time of the step.
pub fn decided(draft: &mut Draft, report: &DecisionReport) {
    draft.event(EventKind::SchedulerDecision, report.run_id, json!(report));
    draft.records.state.stepped_at = Some(draft.now());
}

/// Records a decision after which the agent rests. A decision equal to the stored one is not
/// recorded again, so that a step without news writes nothing.
pub fn rest(draft: &mut Draft, decision: &Decision) {
    if decision.action == StepAction::Leave {
        return;
    }
    draft.ask();
    let mut found = advisories(&draft.records, draft.now());
    found.truncate(ADVISED);
    // Only warnings that are new since the last step at which the agent came to rest are logged.
    let known = &draft.records.state.advised;
    let is_new = |advisory: &&Advisory| !known.contains(&advisory.key());
    let new: Vec<Value> = found.iter().filter(is_new).map(|advisory| json!(advisory)).collect();
    new.into_iter().for_each(|advisory| draft.event(EventKind::Advisory, None, advisory));
    let records = &draft.records;
    // The waits of an agent at rest can change, and then its status may change with them.
    let status = if decision.action == StepAction::Rest {
        execution::resting_status(records, &closure(records), Some(decision.kind()))
    } else {
        records.state.status
    };
    // The stored decision is the one that the next step would make.
    let sleeps = decision.kind() == DecisionKind::Sleep;
    let next = if sleeps { stay_idle().report } else { decision.report.clone() };
    let unchanged =
        status == draft.records.state.status && draft.records.state.resting.as_ref() == Some(&next);
    if unchanged && draft.is_empty() {
        // If a wrong clock dated the stored decision, the decision is stored again with this time.
        if draft.records.state.resting(draft.now()).is_none() {
            draft.rest(next);
        }
        return;
    }
    // Warnings that no longer hold are removed from the state, which alone causes no commit.
    draft.records.state.advised = found.iter().map(Advisory::key).collect();
    decided(draft, &decision.report);
    draft.set_status(status, Boundary::LifecycleSleep);
    draft.rest(next);
}
