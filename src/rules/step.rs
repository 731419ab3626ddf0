//! One step (contract, semantics §8): preparatory actions, then the decision.
//!
//! `tick` executes each returned action and asks again until a decision is returned. The dry runs,
//! `explain` and `next-wake` do so too, but on their own copy of the records.

use crate::model::decision::Decision;
use crate::model::execution::ExecutionState;
use crate::model::id::RunId;
use crate::model::place::Away;
use crate::model::refusal::Refusal;
use crate::model::resource::Shortage;
use crate::model::state::State;
use crate::model::time::Time;

use super::clock::lease_ends;
use super::ladder::{closed, decide, running};
use super::projection::{gate, project};
use super::transition::draft::Draft;
use super::transition::take_in::take_in;

/// Preparatory actions that this step has tried, so that a failing action is not repeated.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tried {
    pub notifying: bool,
    pub outbox: bool,
    pub tasks: bool,
    pub submissions: Submissions,
}

/// Progress of a step in admitting files that other programs put into the inbox as messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Submissions {
    #[default]
    NotYet,
    Some,
    /// The last try admitted no file, so the remaining files can't be admitted.
    NoMore,
}

/// Action of a step before it loads the records, run without the agent's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Notify hooks of committed changes, which a killed process has left pending.
    Tell,
    /// Settle a run whose tick has died.
    Settle(RunId),
    /// Deliver messages to other agents, which a killed process has left in the outbox.
    Deliver,
    /// Begin, settle, stop or end the open tasks for which that is due.
    LookAfterTasks,
}

/// Action of a step while another process owns the agent's lease.
#[derive(Debug, Clone, PartialEq)]
pub enum BusyAction {
    /// Correct the lease of a run on another machine that claimed it with a fast clock.
    SetLeaseRight(RunId),
    /// Leave the records unchanged and report this decision.
    Leave(Box<Decision>),
}

/// Returns the action for an agent whose lease another process holds. `is_elsewhere`: its run is in
/// another place (`away`: machine or state directory), or another clone steps it. The decision
/// comes from one of the first two rungs of the ladder.
pub fn when_busy(state: &State, is_elsewhere: bool, away: Option<Away>, now: Time) -> BusyAction {
    let run = state.current_run.as_ref();
    if let Some(run) = run.filter(|run| is_elsewhere && lease_ends(run, now).is_some()) {
        return BusyAction::SetLeaseRight(run.run_id);
    }
    let run_id = run.map(|run| run.run_id);
    let closed = closed(gate(state.status));
    BusyAction::Leave(Box::new(closed.unwrap_or_else(|| running(run_id, away.as_ref()))))
}

/// Returns the next action to run before the records are loaded, derived from `state.json` alone,
/// and records it as tried; `None` if none is left. A settlement is not recorded, because the run's
/// own tick may have settled the run meanwhile. The caller holds the lease, so no other process
/// works on the records.
pub fn first(state: &State, tried: &mut Tried) -> Option<Before> {
    let is_new = |tried: &mut bool| !std::mem::replace(tried, true);
    if !state.notifications.is_empty() && is_new(&mut tried.notifying) {
        Some(Before::Tell)
    } else if let Some(run) = &state.current_run {
        Some(Before::Settle(run.run_id))
    } else if !state.outbox.is_empty() && is_new(&mut tried.outbox) {
        Some(Before::Deliver)
    } else if state.open_tasks > 0 && is_new(&mut tried.tasks) {
        Some(Before::LookAfterTasks)
    } else {
        None
    }
}

/// Result of one call of [`step`], as far as the records alone determine it.
#[derive(Debug, Clone)]
pub struct Step {
    /// Records after due input was taken in, with the uncommitted changes.
    pub draft: Draft,
    pub next: Next,
    /// Failure reason of a start, recovery or held run that this step has failed.
    pub overdue: Option<String>,
}

/// Next action of a step. After every action except a decision, the step asks again.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Admit files as messages that other programs put into the inbox.
    TakeIn,
    /// Quarantine malformed inbox files.
    Quarantine,
    /// Commit the draft, which drops stale messages, and load again: the messages behind the stale
    /// ones were not loaded.
    DropStale,
    Decided(Box<Decision>),
}

/// Applies due input and due times to the records, and returns the next action. `draft` has the
/// records as loaded; no other process works on them.
pub fn step(mut draft: Draft, tried: Tried) -> Result<Step, Refusal> {
    let inbox = &draft.records.inbox;
    if inbox.submissions > 0 && tried.submissions == Submissions::NotYet {
        return Ok(Step { draft, next: Next::TakeIn, overdue: None });
    }
    if !inbox.malformed.is_empty() {
        return Ok(Step { draft, next: Next::Quarantine, overdue: None });
    }
    let only_stale = inbox.head.is_none() && !inbox.stale.is_empty();
    let before = draft.records.state.execution.state;
    take_in(&mut draft)?;
    let execution = &draft.records.state.execution;
    // `take_in` changes the state to `failed` only for an exceeded timeout or a missing message.
    let overdue = (execution.state != before && execution.state == ExecutionState::Failed)
        .then(|| execution.reason.clone().unwrap_or_default());
    // A stopped agent keeps its stale messages, so loading again would find the same messages.
    if only_stale && draft.records.inbox.stale.is_empty() {
        return Ok(Step { draft, next: Next::DropStale, overdue });
    }
    let next = decided(&draft, tried);
    Ok(Step { draft, next, overdue })
}

impl Step {
    /// Decides the step again, after the caller has found that a claim lacks a resource.
    pub fn lacking(mut self, shortage: Shortage, tried: Tried) -> Step {
        self.draft.records.shortage = Some(shortage);
        self.next = decided(&self.draft, tried);
        self
    }
}

/// Returns the next action. Before the agent rests, remaining files of other programs are admitted.
fn decided(draft: &Draft, tried: Tried) -> Next {
    let decision = decide(&project(&draft.records, draft.now()));
    if !decision.moves() && draft.records.inbox.submissions > 0 && tried.submissions != Submissions::NoMore {
        return Next::TakeIn;
    }
    Next::Decided(Box::new(decision))
}
