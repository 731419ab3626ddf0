//! Pending notifications of this process: committed transitions and attentions.
//!
//! If a hook is installed, the commit notes them in the records too, so that a later step sends
//! them if this process is killed.

use crate::error::Result;
use crate::model::attention::Attention;
use crate::model::id::AgentName;
use crate::model::records::InstalledHooks;
use crate::model::state::PendingTransition;
use crate::model::transaction::Transaction;
use crate::rules::transition::draft::Draft;
use crate::store::{Agent, LockGuard, Sharing};

use super::installed::{ON_ATTENTION, ON_STATE_CHANGE, is_nested, program};

/// Committed transitions of which the hooks were not notified yet.
#[derive(Debug, Default)]
pub struct Moves {
    moves: Vec<Move>,
    /// While this is held, no other process treats the agent's transitions as abandoned.
    held: Vec<(AgentName, LockGuard)>,
}

/// One transition.
#[derive(Debug)]
pub struct Move {
    agent: AgentName,
    pub untold: PendingTransition,
    /// True if `on-state-change` was installed when it was committed.
    pub is_heard: bool,
}

impl Moves {
    pub fn add(&mut self, moves: Vec<Move>) {
        self.moves.extend(moves);
    }

    /// Takes the transitions of one agent. Those of others remain: a parent starts and stops
    /// children while its own are pending.
    pub fn take(&mut self, agent: &AgentName) -> (Vec<Move>, Option<LockGuard>) {
        let (ours, others) =
            std::mem::take(&mut self.moves).into_iter().partition(|one: &Move| one.agent == *agent);
        self.moves = others;
        let at = self.held.iter().position(|(name, _)| name == agent);
        (ours, at.map(|at| self.held.remove(at).1))
    }

    /// Notes the transitions of a transaction that is about to be committed. Returns them, for
    /// `add` after the commit.
    pub fn note(
        &mut self,
        agent: &Agent<'_>,
        transaction: &mut Transaction,
        onlookers: InstalledHooks,
    ) -> Result<Vec<Move>> {
        let moves = std::mem::take(&mut transaction.moves);
        // No hook is notified of the changes of a command that a hook has called.
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
            // A hook that is installed later is not notified of earlier transitions.
            transaction.state.untold.clear();
        }
        let named = |untold| Move { agent: agent.name().clone(), untold, is_heard };
        Ok(moves.into_iter().map(named).collect())
    }
}

/// Attentions that this process has raised and not reported yet.
#[derive(Default)]
pub struct ToTell {
    pub attentions: Vec<(AgentName, Attention)>,
    /// While these are held, no other process treats the attentions of their agents as abandoned.
    pub held: Vec<(AgentName, LockGuard)>,
}

impl ToTell {
    /// Marks in a draft that is about to be committed that the hook is to be notified of what it
    /// raises.
    pub fn note(&mut self, agent: &Agent<'_>, draft: &mut Draft) -> Result<()> {
        if draft.raised().is_empty() || program(agent, ON_ATTENTION).is_none() {
            return Ok(());
        }
        draft.is_to_be_told();
        // A command that a hook has called leaves the notification to a later step.
        if !is_nested() {
            self.held.extend(agent.telling(Sharing::Shared)?.map(|lock| (agent.name().clone(), lock)));
        }
        Ok(())
    }

    /// Stores what a commit has raised, until the process reports it.
    pub fn add(&mut self, agent: &AgentName, raised: &[Attention]) {
        self.attentions.extend(raised.iter().map(|attention| (agent.clone(), attention.clone())));
    }
}
