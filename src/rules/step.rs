//! One step (contract, semantics §8): what comes before anything is decided, and what is decided
//! then.
//!
//! `tick` carries out each answer and asks again, until there is a decision. `tick --dry-run`,
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

/// What this step has seen to already. It tries nothing twice that may fail.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tried {
    pub telling: bool,
    pub outbox: bool,
    pub tasks: bool,
    pub drops: Drops,
}

impl Tried {
    /// Notes what the step sees to now. A run that its own tick settles meanwhile is asked for
    /// again.
    pub fn note(&mut self, before: Before) {
        match before {
            Before::Tell => self.telling = true,
            Before::Settle(_) => {}
            Before::Deliver => self.outbox = true,
            Before::LookAfterTasks => self.tasks = true,
        }
    }
}

/// Whether this step has taken in hand-written files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Drops {
    #[default]
    NotYet,
    Some,
    /// The last try changed nothing: what is left can't be taken in.
    NoMore,
}

/// What comes before the records are loaded. The step does it without the lock, and looks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// A process was killed before it had told the hooks of its changes: the step tells them.
    Tell,
    /// The tick of a run is gone: the run is settled.
    Settle(RunId),
    /// A process was killed before it had delivered what a turn says to other agents: the step
    /// delivers it.
    Deliver,
    /// Tasks are open: what is due with them is done.
    LookAfterTasks,
}

/// What a step does while another process is at work on the records.
#[derive(Debug, Clone, PartialEq)]
pub enum Beside {
    /// The lease of a run on another machine was claimed by a clock that ran ahead: it is set
    /// right.
    SetLeaseRight(RunId),
    /// The records are not this step's to change: this is its decision.
    Leave(Decision),
}

/// The step of an agent whose lease another process holds, or which is stepped elsewhere. `away` is
/// the place of its run, if that is another machine or state directory. The decision is that of the
/// first two rungs.
pub fn beside(state: &State, is_elsewhere: bool, away: Option<Away>, now: Time) -> Beside {
    let run = state.current_run.as_ref();
    if let Some(run) = run.filter(|run| is_elsewhere && lease_ends(run, now).is_some()) {
        return Beside::SetLeaseRight(run.run_id);
    }
    let run_id = run.map(|run| run.run_id);
    Beside::Leave(closed(gate(state.status)).unwrap_or_else(|| running(run_id, away)))
}

/// What comes before the records are loaded, as `state.json` alone tells it. No other process is at
/// work on them.
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

/// A step as far as it can be told from the records.
#[derive(Debug, Clone)]
pub struct Step {
    /// The records with what is due taken in, and what that changes.
    pub draft: Draft,
    pub next: Next,
    /// Why a recovery or a held run was failed by taking in: it had lasted too long.
    pub overdue: Option<String>,
}

/// What a step does with the records. After everything but a decision it looks again.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Hand-written files become messages.
    TakeInDrops,
    /// What lies in the inbox under the name of a message and is none is set aside.
    SetAside,
    /// Only stale messages were loaded. The draft drops them; what lies behind them is still to be
    /// looked at.
    DropStale,
    Decided(Decision),
}

/// Takes in what is due, and decides. The draft holds the records as they were loaded; no other
/// process is at work on them.
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
    // Nothing else fails while it is taken in.
    let overdue = (execution.state != before && execution.state == ExecutionState::Failed)
        .then(|| execution.reason.clone().unwrap_or_default());
    // Behind a closed gate nothing is taken in, and there is nothing more to look for.
    if only_stale && draft.records.inbox.stale.is_empty() {
        return Ok(Step { draft, next: Next::DropStale, overdue });
    }
    let next = decided(&draft, tried);
    Ok(Step { draft, next, overdue })
}

impl Step {
    /// The same step, where the claim that was decided lacks a resource.
    pub fn lacking(mut self, shortage: Shortage, tried: Tried) -> Step {
        self.draft.records.shortage = Some(shortage);
        self.next = decided(&self.draft, tried);
        self
    }
}

/// Files that were left for later are what there is to do where the agent would rest.
fn decided(draft: &Draft, tried: Tried) -> Next {
    let decision = decide(&project(&draft.records, draft.now()));
    if !decision.moves() && draft.records.inbox.drops > 0 && tried.drops != Drops::NoMore {
        return Next::TakeInDrops;
    }
    Next::Decided(decision)
}
