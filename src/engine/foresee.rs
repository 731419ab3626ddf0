//! What the next step would do, for `tick --dry-run`, `tick --follow`, `explain` and `next-wake`.

use std::collections::VecDeque;

use crate::error::Result;
use crate::model::decision::{Decision, DecisionReport};
use crate::model::id::RunId;
use crate::model::records::Lease;
use crate::model::state::State;
use crate::model::time::Time;
use crate::rules::due::next_due;
use crate::rules::step::{self, Before, Beside, Drops, Next, Tried};
use crate::rules::transition::clock::set_lease_right;
use crate::rules::transition::draft::Draft;
use crate::store::{Agent, Store, moved_away};

use super::drops;
use super::due;
use super::load;
use super::owner::{TICK_GONE, given_up_at, is_elsewhere};
use super::recover::account_for;
use super::resources;
use super::session::Session;

/// The decision that the last step came to, if it still holds: nothing was committed, nothing
/// arrived and nothing is due. One small read and one look into the inbox tell. Refused for an
/// agent that was moved away.
pub fn at_rest(store: &Store, agent: &Agent<'_>, now: Time) -> Result<Option<(State, DecisionReport)>> {
    let state = agent.peek()?;
    if let Some(moved) = &state.moved {
        return Err(moved_away(agent, moved));
    }
    let Some(resting) = state.resting(now).cloned() else { return Ok(None) };
    // What is due with tasks is looked for below.
    let comes_first = step::first(&state, Tried { tasks: true, ..Tried::default() }).is_some();
    let is_due = state.next_due_at.is_some_and(|due| due <= now);
    if comes_first || is_due || !agent.is_quiet(&state)? {
        return Ok(None);
    }
    let nothing_is_due = due::due(store, agent, &agent.glimpse(), &state, now)?.is_empty();
    Ok(nothing_is_due.then_some((state, resting)))
}

/// What is to be expected of an agent.
pub struct Outlook {
    /// When the next step has something to do: at once if it would do something now.
    pub due: Option<Time>,
    /// What the last step came to still holds.
    pub is_at_rest: bool,
    /// Another process runs a turn of it. If that is killed, no file changes.
    pub is_beside: bool,
    /// Other processes look after tasks of it. If one is killed, no file changes.
    pub has_tasks: bool,
}

/// Looks ahead without a lock, and without changing a file.
pub fn outlook(session: &Session, store: &Store, agent: &Agent<'_>, now: Time) -> Result<Outlook> {
    if let Some((state, _)) = at_rest(store, agent, now)? {
        let has_tasks = state.open_tasks > 0;
        return Ok(Outlook { due: state.next_due_at, is_at_rest: true, is_beside: false, has_tasks });
    }
    let foreseen = foresee(session, store, agent, now)?;
    let records = &foreseen.draft.records;
    let given_up_at = given_up_at(agent, &records.state, now)?;
    let due = next_due(records).or(given_up_at);
    Ok(Outlook {
        due: if foreseen.is_due() { Some(now) } else { due },
        is_at_rest: false,
        is_beside: records.lease == Lease::Held || given_up_at.is_some(),
        has_tasks: records.state.open_tasks > 0,
    })
}

/// A step that was not made.
pub struct Foreseen {
    pub decision: Decision,
    /// The records as the decision would find them.
    pub draft: Draft,
    /// The run that would be settled before.
    pub recovered: Option<RunId>,
    /// Why something that has lasted too long would fail.
    pub overdue: Option<String>,
    /// There is something to do before the decision, or along with it.
    pub has_errands: bool,
}

impl Foreseen {
    /// Whether the step would do something that has to be done.
    pub fn is_due(&self) -> bool {
        // A claim that lacks something is a step to be made once: then it is known when to look
        // again.
        let lacks = matches!(self.decision, Decision::Lack { .. }) && self.draft.records.state.held.is_none();
        self.decision.moves() || lacks || self.has_errands
    }
}

/// Makes a step on a copy of the records: without a lock, and without changing a file.
pub fn foresee(session: &Session, store: &Store, agent: &Agent<'_>, now: Time) -> Result<Foreseen> {
    let (records, waiting) = load::foresee(agent, now)?;
    let mut waiting = VecDeque::from(waiting);
    let mut draft = Draft::new(records, session.clock.stamp()?);
    let mut tried = Tried::default();
    let (mut recovered, mut overdue, mut has_errands) = (None, None, false);
    loop {
        draft.look_ahead();
        let state = &draft.records.state;
        let is_elsewhere = is_elsewhere(agent, state, now)?;
        if draft.records.lease == Lease::Held || is_elsewhere {
            match step::beside(state, is_elsewhere, draft.records.away.clone(), now) {
                Beside::SetLeaseRight(run_id) => has_errands |= set_lease_right(&mut draft, run_id),
                Beside::Leave(decision) => {
                    return Ok(Foreseen { decision, draft, recovered, overdue, has_errands });
                }
            }
            continue;
        }
        if let Some(before) = step::first(state, tried) {
            tried.note(before);
            match before {
                Before::Tell => has_errands = true,
                Before::Settle(run_id) => {
                    let noted = agent.workdir().run(run_id).noted_end()?;
                    let seen = agent.snapshot()?;
                    account_for(session, store, agent, &seen, &mut draft, (run_id, noted), TICK_GONE)?;
                    recovered = Some(run_id);
                }
                // What could not be delivered before the agent came to rest asks for no step of its
                // own.
                Before::Deliver => has_errands |= state.resting.is_none(),
                Before::LookAfterTasks => has_errands |= due::foresee(store, agent, &mut draft)?,
            }
            continue;
        }
        // What is taken in later comes to records in which no decision was looked for.
        let untouched = (draft.records.inbox.drops > 0).then(|| draft.clone());
        let (step, _) = resources::step(store, agent, draft, tried, resources::Intent::Look)?;
        draft = step.draft;
        overdue = step.overdue.or(overdue);
        match step.next {
            Next::TakeInDrops => {
                tried.drops = Drops::Some;
                draft = untouched.unwrap_or(draft);
                drops::foresee(session, agent, &mut draft, &mut waiting)?;
            }
            Next::SetAside => draft.records.inbox.misfits.clear(),
            Next::DropStale => {}
            Next::Decided(decision) => {
                draft.look_ahead();
                has_errands |= !draft.is_empty();
                return Ok(Foreseen { decision, draft, recovered, overdue, has_errands });
            }
        }
        has_errands = true;
    }
}
