//! Dry run of the next step, for `tick --dry-run`, `tick --follow`, `explain` and `next-wake`.

use std::collections::VecDeque;

use crate::error::Result;
use crate::model::decision::{Decision, DecisionReport};
use crate::model::id::RunId;
use crate::model::records::LeaseState;
use crate::model::state::State;
use crate::model::time::Time;
use crate::rules::due::next_due;
use crate::rules::step::{self, Before, Beside, Drops, Next, Tried};
use crate::rules::transition::clock::set_lease_right;
use crate::rules::transition::draft::Draft;
use crate::store::{Agent, Store, moved_away};

use super::due;
use super::load;
use super::owner::{TICK_GONE, given_up_at, is_elsewhere};
use super::recover::account_for;
use super::resources;
use super::session::Session;
use super::submissions;

/// Returns the decision of the last step if it is still valid: nothing was committed, nothing has
/// arrived and nothing is due. Costs one small read and one look into the inbox. Error when the
/// agent was moved away.
pub fn at_rest(store: &Store, agent: &Agent<'_>, now: Time) -> Result<Option<(State, DecisionReport)>> {
    let state = agent.peek()?;
    if let Some(moved) = &state.moved {
        return Err(moved_away(agent, moved));
    }
    let Some(resting) = state.resting(now).cloned() else { return Ok(None) };
    // Due tasks are looked for below.
    let comes_first = step::first(&state, Tried { tasks: true, ..Tried::default() }).is_some();
    let is_due = state.next_due_at.is_some_and(|due| due <= now);
    if comes_first || is_due || !agent.is_quiet(&state)? {
        return Ok(None);
    }
    let nothing_is_due = due::due(store, agent, &agent.glimpse(), &state, now)?.is_empty();
    Ok(nothing_is_due.then_some((state, resting)))
}

/// Expected next step of an agent.
pub struct NextStep {
    /// Time of the next step that has something to do; `now` if it has something to do at once.
    pub due: Option<Time>,
    /// True if the decision of the last step is still valid.
    pub is_at_rest: bool,
    /// True if another process runs a turn of the agent. Its death changes no file.
    pub is_beside: bool,
    /// True if other processes supervise tasks of the agent. If one is killed, no file changes.
    pub has_tasks: bool,
}

/// Returns the expected next step, without a lock and without changing a file.
pub fn forecast(session: &Session, store: &Store, agent: &Agent<'_>, now: Time) -> Result<NextStep> {
    if let Some((state, _)) = at_rest(store, agent, now)? {
        let has_tasks = state.open_tasks > 0;
        return Ok(NextStep { due: state.next_due_at, is_at_rest: true, is_beside: false, has_tasks });
    }
    let expected = preview(session, store, agent, now)?;
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

/// Result of a dry run.
pub struct Preview {
    pub decision: Decision,
    /// Records that the decision was made from.
    pub draft: Draft,
    /// Run that the step would settle first.
    pub recovered: Option<RunId>,
    /// Reason for which an expired wait or grace would fail.
    pub overdue: Option<String>,
    /// True if there are effects before the decision, or with it.
    pub has_effects: bool,
}

impl Preview {
    /// True if a step is due.
    pub fn is_due(&self) -> bool {
        // A claim with a missing resource needs one step, which stores the time of the next look.
        let lacks = matches!(self.decision, Decision::Lack { .. }) && self.draft.records.state.held.is_none();
        self.decision.moves() || lacks || self.has_effects
    }
}

/// Runs a step on a copy of the records, without a lock and without changing a file.
pub fn preview(session: &Session, store: &Store, agent: &Agent<'_>, now: Time) -> Result<Preview> {
    let (records, waiting) = load::preview(agent, now)?;
    let mut waiting = VecDeque::from(waiting);
    let mut draft = Draft::new(records, session.clock.stamp()?);
    let mut tried = Tried::default();
    let (mut recovered, mut overdue, mut has_effects) = (None, None, false);
    loop {
        draft.look_ahead();
        let state = &draft.records.state;
        let is_elsewhere = is_elsewhere(agent, state, now)?;
        if draft.records.lease == LeaseState::Held || is_elsewhere {
            match step::beside(state, is_elsewhere, draft.records.away.clone(), now) {
                Beside::SetLeaseRight(run_id) => has_effects |= set_lease_right(&mut draft, run_id),
                Beside::Leave(decision) => {
                    return Ok(Preview { decision, draft, recovered, overdue, has_effects });
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
                    let seen = agent.snapshot()?;
                    account_for(session, store, agent, &seen, &mut draft, (run_id, noted), TICK_GONE)?;
                    recovered = Some(run_id);
                }
                // A message that was not delivered before the agent came to rest needs no own step.
                Before::Deliver => has_effects |= state.resting.is_none(),
                Before::LookAfterTasks => has_effects |= due::preview(store, agent, &mut draft)?,
            }
            continue;
        }
        // Files must be taken into the records as they were before the decision changed the draft.
        let untouched = (draft.records.inbox.drops > 0).then(|| draft.clone());
        let (step, _) = resources::step(store, agent, draft, tried, resources::Intent::Look)?;
        draft = step.draft;
        overdue = step.overdue.or(overdue);
        match step.next {
            Next::TakeInDrops => {
                tried.drops = Drops::Some;
                draft = untouched.unwrap_or(draft);
                submissions::preview(session, agent, &mut draft, &mut waiting)?;
            }
            Next::SetAside => draft.records.inbox.misfits.clear(),
            Next::DropStale => {}
            Next::Decided(decision) => {
                if !decision.moves() {
                    draft.ask();
                }
                draft.look_ahead();
                has_effects |= !draft.is_empty();
                return Ok(Preview { decision, draft, recovered, overdue, has_effects });
            }
        }
        has_effects = true;
    }
}
