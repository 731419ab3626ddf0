//! Notifications of the commits of this process that are pending: each commit marks them in the
//! records before, and adds them here after.

use crate::error::Result;
use crate::model::attention::Attention;
use crate::model::id::AgentName;
use crate::model::records::InstalledHooks;
use crate::model::state::PendingTransition;
use crate::model::transaction::Transaction;
use crate::rules::transition::draft::Draft;
use crate::store::{Agent, LockGuard, Sharing};

use super::installed::{ON_ATTENTION, ON_STATE_CHANGE, is_nested, program};

/// Notifications of the commits of this process that were not sent yet, by agent.
#[derive(Debug, Default)]
pub struct Notifications {
    agents: Vec<(AgentName, Pending)>,
}

/// Pending notifications about one agent.
#[derive(Debug, Default)]
pub struct Pending {
    pub attentions: Vec<Attention>,
    pub transitions: Vec<PendingTransition>,
    /// True if `on-state-change` was installed at a commit of these transitions.
    pub is_heard: bool,
    /// While this is held, no other process treats the notifications as abandoned.
    pub lock: Option<LockGuard>,
}

impl Notifications {
    fn of(&mut self, name: &AgentName) -> &mut Pending {
        let at = self.agents.iter().position(|(other, _)| other == name).unwrap_or_else(|| {
            self.agents.push((name.clone(), Pending::default()));
            self.agents.len() - 1
        });
        &mut self.agents[at].1
    }

    /// Takes the notifications about one agent. Those about others remain: a parent starts and
    /// stops children while its own are pending.
    pub fn take(&mut self, name: &AgentName) -> Pending {
        let at = self.agents.iter().position(|(other, _)| other == name);
        at.map(|at| self.agents.remove(at).1).unwrap_or_default()
    }

    fn lock(&mut self, agent: &Agent<'_>) -> Result<()> {
        let pending = self.of(agent.name());
        if pending.lock.is_none() {
            pending.lock = agent.telling(Sharing::Shared)?;
        }
        Ok(())
    }

    /// Marks the attentions of a draft as pending, before its commit.
    pub fn mark_attentions(&mut self, agent: &Agent<'_>, draft: &mut Draft) -> Result<()> {
        if draft.raised().is_empty() || program(agent, ON_ATTENTION).is_none() {
            return Ok(());
        }
        draft.is_to_be_told();
        // A command that a hook has called leaves the notification to a later step.
        if is_nested() { Ok(()) } else { self.lock(agent) }
    }

    /// Marks the transitions of a transaction as pending, before its commit. Returns them, and
    /// whether `on-state-change` is installed, for `add` after the commit.
    pub fn mark_transitions(
        &mut self,
        agent: &Agent<'_>,
        transaction: &mut Transaction,
        installed_hooks: InstalledHooks,
    ) -> Result<(Vec<PendingTransition>, bool)> {
        let transitions = std::mem::take(&mut transaction.moves);
        // No hook is notified of the changes of a command that a hook has called.
        if transitions.is_empty() || is_nested() {
            return Ok((Vec::new(), false));
        }
        let is_heard = installed_hooks.on_state_change || program(agent, ON_STATE_CHANGE).is_some();
        if is_heard {
            self.lock(agent)?;
            transaction.state.untold.extend(transitions.iter().cloned());
        } else {
            // A hook that is installed later is not notified of earlier transitions.
            transaction.state.untold.clear();
        }
        Ok((transitions, is_heard))
    }

    /// Adds the transitions of a commit.
    pub fn add_transitions(&mut self, agent: &AgentName, (made, is_heard): (Vec<PendingTransition>, bool)) {
        if !made.is_empty() {
            let pending = self.of(agent);
            pending.transitions.extend(made);
            pending.is_heard |= is_heard;
        }
    }

    /// Adds the attentions that a commit has raised.
    pub fn add_attentions(&mut self, agent: &AgentName, raised: &[Attention]) {
        if !raised.is_empty() {
            self.of(agent).attentions.extend_from_slice(raised);
        }
    }

    /// Takes the attentions of one agent.
    pub fn take_attentions(&mut self, name: &AgentName) -> Vec<Attention> {
        std::mem::take(&mut self.of(name).attentions)
    }

    /// Returns all attentions that were not reported, with their agents.
    pub fn attentions(&self) -> impl Iterator<Item = (&AgentName, &Attention)> {
        self.agents.iter().flat_map(|(name, pending)| pending.attentions.iter().map(move |one| (name, one)))
    }

    /// Returns the first agent with attentions that were not reported.
    pub fn next_with_attentions(&self) -> Option<AgentName> {
        let (name, _) = self.agents.iter().find(|(_, pending)| !pending.attentions.is_empty())?;
        Some(name.clone())
    }
}
