//! Dry run of the next step, for `tick --dry-run`, `tick --follow`, `explain` and `next-wake`.

use std::collections::VecDeque;
use std::time::Instant;

use crate::error::Result;
use crate::model::decision::{Decision, StepAction};
use crate::model::id::RunId;
use crate::model::records::LeaseState;
use crate::model::time::Time;
use crate::report::step::StepReport;
use crate::rules::due::next_due;
use crate::rules::posture::posture;
use crate::rules::step::{self, Before, BusyAction, Drops, Next, Tried};
use crate::rules::transition::clock::set_lease_right;
use crate::rules::transition::draft::Draft;
use crate::store::moved_away;

use super::context::Context;
use super::owner::{TICK_GONE, given_up_at, is_elsewhere};
use super::recover::account_for;
use super::step::{at_rest, report_busy};
use super::{load, resources, submissions, tasks};

/// Expected next step of an agent.
pub struct NextStep {
    /// Time at which the next step has something to do; `now` if that is at once.
    pub due: Option<Time>,
    /// True if the decision of the last step at rest is still valid.
    pub is_at_rest: bool,
    /// True if another process runs a turn of the agent. A kill of it changes no file.
    pub is_beside: bool,
    /// True if other processes supervise tasks of the agent. A kill of them changes no file.
    pub has_tasks: bool,
}

/// Returns the expected next step, without a lock and without changing a file.
pub fn forecast(context: Context<'_>, now: Time) -> Result<NextStep> {
    let agent = context.agent;
    if let Some((state, _)) = at_rest(agent, now)? {
        let has_tasks = state.open_tasks > 0;
        return Ok(NextStep { due: state.next_due_at, is_at_rest: true, is_beside: false, has_tasks });
    }
    let expected = preview(context, now)?;
    let records = &expected.draft.records;
    let given_up_at = given_up_at(agent, &records.state, now)?;
    let due = next_due(records).or(given_up_at);
    Ok(NextStep {
        due: if expected.is_due() { Some(now) } else { due },
        is_at_rest: false,
        is_beside: records.lease == LeaseState::Held || given_up_at.is_some(),
        has_tasks: records.state.open_tasks > 0,
    })
}

/// Makes a dry run of a step, and returns its report.
pub fn report_preview(context: Context<'_>) -> Result<StepReport> {
    let agent = context.agent;
    context.store().refuse_other_pool(agent)?;
    let started = Instant::now();
    let now = context.session.clock.now();
    let Preview { decision, draft, recovered, overdue, .. } = preview(context, now)?;
    if let Some(moved) = &draft.records.state.moved {
        return Err(moved_away(agent, moved));
    }
    let mut report = report_busy(agent, &draft.records.state, &decision, now, started)?;
    report.posture = Some(posture(&draft.records).posture);
    report.recovered_run_id = recovered;
    report.failure = overdue;
    Ok(report)
}

/// Result of a dry run.
pub struct Preview {
    pub decision: Decision,
    /// Records that the decision was made from, with the uncommitted changes.
    pub draft: Draft,
    /// Run that the step would settle before its decision.
    pub recovered: Option<RunId>,
    /// Failure reason of a start, recovery or held run whose timeout is exceeded.
    pub overdue: Option<String>,
    /// True if the step would have effects, or change records, before or with its decision.
    pub has_effects: bool,
}

impl Preview {
    /// True if a step has something to do now.
    pub fn is_due(&self) -> bool {
        // A claim that lacks a resource needs one step, which holds the message.
        let lacks = matches!(self.decision.action, StepAction::Hold { .. })
            && self.draft.records.state.held.is_none();
        self.decision.moves() || lacks || self.has_effects
    }
}

/// Runs a step on a copy of the records, without a lock and without changing a file.
pub fn preview(context: Context<'_>, now: Time) -> Result<Preview> {
    let agent = context.agent;
    let (records, waiting) = load::preview(agent, now)?;
    let mut waiting = VecDeque::from(waiting);
    let mut draft = Draft::new(records, context.session.clock.stamp()?);
    let mut tried = Tried::default();
    let (mut recovered, mut overdue, mut has_effects) = (None, None, false);
    loop {
        draft.look_ahead();
        let state = &draft.records.state;
        let is_elsewhere = is_elsewhere(agent, state, now)?;
        if draft.records.lease == LeaseState::Held || is_elsewhere {
            match step::when_busy(state, is_elsewhere, draft.records.away.clone(), now) {
                BusyAction::SetLeaseRight(run_id) => has_effects |= set_lease_right(&mut draft, run_id),
                BusyAction::Leave(decision) => {
                    return Ok(Preview { decision: *decision, draft, recovered, overdue, has_effects });
                }
            }
            continue;
        }
        if let Some(before) = step::first(state, tried) {
            tried.note(before);
            match before {
                Before::Tell => has_effects = true,
                Before::Settle(run_id) => {
                    let noted = agent.workdir().run(run_id).noted_end()?;
                    let seen = agent.snapshot();
                    account_for(context, &seen, &mut draft, (run_id, noted), TICK_GONE)?;
                    recovered = Some(run_id);
                }
                // A message that was not delivered before the agent came to rest makes no step due.
                Before::Deliver => has_effects |= state.resting.is_none(),
                Before::LookAfterTasks => has_effects |= tasks::preview(agent, &mut draft)?,
            }
            continue;
        }
        // Files are admitted to the records as they were before the step changed the draft.
        let untouched = (draft.records.inbox.drops > 0).then(|| draft.clone());
        let (step, _) = resources::step(agent, draft, tried, resources::Intent::Look)?;
        draft = step.draft;
        overdue = step.overdue.or(overdue);
        match step.next {
            Next::TakeInDrops => {
                tried.drops = Drops::Some;
                draft = untouched.unwrap_or(draft);
                submissions::preview(context, &mut draft, &mut waiting)?;
            }
            Next::SetAside => draft.records.inbox.misfits.clear(),
            Next::DropStale => {}
            Next::Decided(decision) => {
                if !decision.moves() {
                    draft.ask();
                }
                draft.look_ahead();
                has_effects |= !draft.is_empty();
                return Ok(Preview { decision: *decision, draft, recovered, overdue, has_effects });
            }
        }
        has_effects = true;
    }
}
