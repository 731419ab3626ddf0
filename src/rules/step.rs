//! One step (contract, semantics §8): the preparations, and the decision.
//!
//! `tick` executes each answer and asks again, until there is a decision. `tick --dry-run`,
//! `explain` and `next-wake` ask the same, and apply each answer to their own copy of the records.

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

/// Preparations that this step has tried already. It tries none twice that may fail.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tried {
    pub telling: bool,
    pub outbox: bool,
    pub tasks: bool,
    pub drops: Drops,
}

impl Tried {
    /// Records a preparation. A settlement is not recorded if the run's own tick settles it
    /// meanwhile.
    pub fn note(&mut self, before: Before) {
        match before {
            Before::Tell => self.telling = true,
            Before::Settle(_) => {}
            Before::Deliver => self.outbox = true,
            Before::LookAfterTasks => self.tasks = true,
        }
    }
}

/// Progress of taking in dropped files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Drops {
    #[default]
    NotYet,
    Some,
    /// The last try changed nothing: the remaining files can't be taken in.
    NoMore,
}

/// Preparation before the records are loaded. The step does it without the lock, and asks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Notify hooks of changes, because a process was killed before it had.
    Tell,
    /// Settle a run, because its tick has died.
    Settle(RunId),
    /// Deliver a turn's messages to other agents, because a process was killed before it had.
    Deliver,
    /// Handle what is due with open tasks.
    LookAfterTasks,
}

/// Action of a step while another process works on the records.
#[derive(Debug, Clone, PartialEq)]
pub enum Beside {
    /// Correct the lease of a run on another machine that a fast clock claimed.
    SetLeaseRight(RunId),
    /// Leave the records unchanged, with this decision.
    Leave(Decision),
}

/// Returns the action for an agent whose lease another process holds, or which another clone steps.
/// `away` is the place of its run, if that is another machine or state directory. The decision is
/// that of the first two rungs.
pub fn beside(state: &State, is_elsewhere: bool, away: Option<Away>, now: Time) -> Beside {
    let run = state.current_run.as_ref();
    if let Some(run) = run.filter(|run| is_elsewhere && lease_ends(run, now).is_some()) {
        return Beside::SetLeaseRight(run.run_id);
    }
    let run_id = run.map(|run| run.run_id);
    Beside::Leave(closed(gate(state.status)).unwrap_or_else(|| running(run_id, away)))
}

/// Returns the preparation before the records are loaded, derived from `state.json` alone. No other
/// process works on the records.
pub fn first(state: &State, tried: Tried) -> Option<Before> {
    if state.is_to_be_told() && !tried.telling {
        Some(Before::Tell)
    } else if let Some(run) = &state.current_run {
        Some(Before::Settle(run.run_id))
    } else if !state.outbox.is_empty() && !tried.outbox {
        Some(Before::Deliver)
    } else if state.open_tasks > 0 && !tried.tasks {
        Some(Before::LookAfterTasks)
    } else {
        None
    }
}

/// Result of a step, as far as the records determine it.
#[derive(Debug, Clone)]
pub struct Step {
    /// Records after taking in due input, and the changes.
    pub draft: Draft,
    pub next: Next,
    /// Reason of a recovery or a held run that failed because it exceeded its timeout.
    pub overdue: Option<String>,
}

/// Next action of a step. After any action but a decision it asks again.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Admit dropped files as messages.
    TakeInDrops,
    /// Quarantine malformed inbox files.
    SetAside,
    /// Commit the draft, which drops stale messages: no others were loaded, so the messages after
    /// them are still unread.
    DropStale,
    Decided(Decision),
}

/// Takes in what is due, and decides. The draft holds the records as they were loaded; no other
/// process works on them.
pub fn step(mut draft: Draft, tried: Tried) -> Result<Step, Refusal> {
    let inbox = &draft.records.inbox;
    if inbox.drops > 0 && tried.drops == Drops::NotYet {
        return Ok(Step { draft, next: Next::TakeInDrops, overdue: None });
    }
    if !inbox.misfits.is_empty() {
        return Ok(Step { draft, next: Next::SetAside, overdue: None });
    }
    let only_stale = inbox.head.is_none() && !inbox.stale.is_empty();
    let before = draft.records.state.execution.state;
    take_in(&mut draft)?;
    let execution = &draft.records.state.execution;
    // Taking in fails nothing else.
    let overdue = (execution.state != before && execution.state == ExecutionState::Failed)
        .then(|| execution.reason.clone().unwrap_or_default());
    // A stopped agent takes in nothing, so there is nothing more to load.
    if only_stale && draft.records.inbox.stale.is_empty() {
        return Ok(Step { draft, next: Next::DropStale, overdue });
    }
    let next = decided(&draft, tried);
    Ok(Step { draft, next, overdue })
}

impl Step {
    /// Returns the step with a claim that lacks a resource.
    pub fn lacking(mut self, shortage: Shortage, tried: Tried) -> Step {
        self.draft.records.shortage = Some(shortage);
        self.next = decided(&self.draft, tried);
        self
    }
}

/// A dropped file that was left for later is work where the agent would rest.
fn decided(draft: &Draft, tried: Tried) -> Next {
    let decision = decide(&project(&draft.records, draft.now()));
    if !decision.moves() && draft.records.inbox.drops > 0 && tried.drops != Drops::NoMore {
        return Next::TakeInDrops;
    }
    Next::Decided(decision)
}
