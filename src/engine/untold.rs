//! What this process has committed and not told of yet: transitions, and what needs attention.
//!
//! A commit notes it in the records too, where there is a hook for it: should this process be
//! killed before it has told, a later step does.

use crate::error::Result;
use crate::model::attention::Attention;
use crate::model::id::AgentName;
use crate::model::records::Onlookers;
use crate::model::state::Untold;
use crate::model::transaction::Transaction;
use crate::rules::transition::draft::Draft;
use crate::store::{Agent, Guard, Sharing};

use super::installed::{ON_ATTENTION, ON_STATE_CHANGE, is_nested, program};

/// The transitions that this process has committed and not told of yet.
#[derive(Debug, Default)]
pub struct Moves {
    moves: Vec<Move>,
    /// As long as one is held, no other process takes the transitions of that agent for abandoned.
    held: Vec<(AgentName, Guard)>,
}

/// One of them.
#[derive(Debug)]
pub struct Move {
    agent: AgentName,
    pub untold: Untold,
    /// `on-state-change` was there when it was committed.
    pub is_heard: bool,
}

impl Moves {
    pub fn add(&mut self, moves: Vec<Move>) {
        self.moves.extend(moves);
    }

    /// Those of one agent. The others stay: a parent begins and stops its children while its own
    /// transitions are still to be told.
    pub fn take(&mut self, agent: &AgentName) -> (Vec<Move>, Option<Guard>) {
        let (ours, others) =
            std::mem::take(&mut self.moves).into_iter().partition(|one: &Move| one.agent == *agent);
        self.moves = others;
        let at = self.held.iter().position(|(name, _)| name == agent);
        (ours, at.map(|at| self.held.remove(at).1))
    }

    /// Notes the transitions of a transaction that is about to be committed. Returns them, for
    /// `add` once it is.
    pub fn note(
        &mut self,
        agent: &Agent<'_>,
        transaction: &mut Transaction,
        onlookers: Onlookers,
    ) -> Result<Vec<Move>> {
        let moves = std::mem::take(&mut transaction.moves);
        // What a command changes that a hook has called is told to no hook.
        if moves.is_empty() || is_nested() {
            return Ok(Vec::new());
        }
        let is_heard = onlookers.on_state_change || program(agent, ON_STATE_CHANGE).is_some();
        if is_heard {
            if !self.held.iter().any(|(name, _)| name == agent.name()) {
                self.held.extend(agent.telling(Sharing::Shared)?.map(|lock| (agent.name().clone(), lock)));
            }
            transaction.state.untold.extend(moves.iter().cloned());
        } else {
            // A hook that is installed later is not told of what was before.
            transaction.state.untold.clear();
        }
        let named = |untold| Move { agent: agent.name().clone(), untold, is_heard };
        Ok(moves.into_iter().map(named).collect())
    }
}

/// What this process has raised and not told yet.
#[derive(Default)]
pub struct ToTell {
    pub attentions: Vec<(AgentName, Attention)>,
    /// As long as one is held, no other process takes what is to be told of that agent for
    /// abandoned.
    pub held: Vec<(AgentName, Guard)>,
}

impl ToTell {
    /// Notes in a draft that is about to be committed that the hook is to be told of what it
    /// raises.
    pub fn note(&mut self, agent: &Agent<'_>, draft: &mut Draft) -> Result<()> {
        if draft.raised().is_empty() || program(agent, ON_ATTENTION).is_none() {
            return Ok(());
        }
        draft.is_to_be_told();
        // A command that a hook has called leaves it to a step outside.
        if !is_nested() {
            self.held.extend(agent.telling(Sharing::Shared)?.map(|lock| (agent.name().clone(), lock)));
        }
        Ok(())
    }

    /// Remembers what a commit has raised, for the process to tell of it.
    pub fn add(&mut self, agent: &AgentName, raised: &[Attention]) {
        self.attentions.extend(raised.iter().map(|attention| (agent.clone(), attention.clone())));
    }
}
