//! Steps that find nothing to run: the agent rests, and the record says for what.

use serde_json::{Value, json};

use crate::model::agent::Status;
use crate::model::decision::{Decision, DecisionKind, DecisionReport};
use crate::model::event::EventKind;
use crate::model::execution::ExecutionState;

use crate::rules::advisory::{Advisory, advisories};

use super::draft::Draft;

/// Of how many advisories the record keeps that the ledger has heard of them.
const ADVISED: usize = 64;

/// Records a decision that goes on to change something.
pub fn decided(draft: &mut Draft, report: &DecisionReport) {
    draft.event(EventKind::SchedulerDecision, report.run_id, json!(report));
}

/// Records a decision after which the agent rests. The same decision twice is recorded once: a
/// step that finds everything as the last one left it writes nothing.
pub fn rest(draft: &mut Draft, decision: &Decision) {
    if matches!(decision, Decision::TurnInProgress { .. }) {
        // Another process is at work on these records; they are not this step's to change.
        return;
    }
    let mut found = advisories(&draft.records, draft.now());
    found.truncate(ADVISED);
    advise(draft, &found);
    let status = resting_status(draft, decision);
    // What the next step would find.
    let found_next = if matches!(decision, Decision::Sleep) { &Decision::StayIdle } else { decision };
    let report = found_next.report();
    let unchanged =
        status == draft.records.state.status && draft.records.state.resting.as_ref() == Some(&report);
    if unchanged && draft.is_empty() {
        // Only when it was come to is not known, or lies ahead.
        if draft.records.state.resting(draft.now()).is_none() {
            draft.rest(report);
        }
        return;
    }
    // Those that have ended are forgotten here, and make no commit of their own.
    draft.records.state.advised = found.iter().map(Advisory::key).collect();
    draft.set_status(status);
    decided(draft, &decision.report());
    draft.rest(report);
}

/// Tells the ledger of the advisories that have begun since the last step that rested.
fn advise(draft: &mut Draft, found: &[Advisory]) {
    let known = &draft.records.state.advised;
    let begun: Vec<Value> = found
        .iter()
        .filter(|advisory| !known.contains(&advisory.key()))
        .map(|advisory| json!(advisory))
        .collect();
    for advisory in begun {
        draft.event(EventKind::Advisory, None, advisory);
    }
}

fn resting_status(draft: &Draft, decision: &Decision) -> Status {
    let state = &draft.records.state;
    match decision {
        // What it is shown to rest for does not change before something wakes it.
        Decision::Rest(_) if matches!(state.status, Status::Asleep | Status::AwaitingTask) => state.status,
        Decision::Rest(_) => {
            let for_task = decision.kind() == DecisionKind::WaitForTask;
            // Only an execution that is itself `waiting` shows what it waits for.
            if for_task && state.execution.state == ExecutionState::Waiting {
                Status::AwaitingTask
            } else {
                Status::Asleep
            }
        }
        Decision::Sleep => Status::Asleep,
        Decision::Stop
        | Decision::NotStarted
        | Decision::TurnInProgress { .. }
        | Decision::StartRecovery { .. }
        | Decision::RecoveryBackoff { .. }
        | Decision::Resume { .. }
        | Decision::WaitForResources { .. }
        | Decision::Lack { .. }
        | Decision::StartTurn { .. }
        | Decision::Reduce { .. }
        | Decision::EmitTick(_)
        | Decision::Duplicate(_)
        | Decision::StayIdle => state.status,
    }
}
