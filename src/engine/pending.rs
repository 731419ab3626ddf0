//! Pending notifications of this process's commits. A commit marks them in the records; after the
//! commit they are added here.

use crate::error::Result;
use crate::model::attention::Attention;
use crate::model::id::AgentName;
use crate::model::records::InstalledHooks;
use crate::model::state::PendingTransition;
use crate::model::transaction::Transaction;
use crate::rules::transition::draft::Draft;
use crate::store::{Agent, LockGuard, Sharing};

use super::installed::{ON_ATTENTION, ON_STATE_CHANGE, is_nested, program};

/// Notifications of this process's commits that were not sent yet, by agent.
#[derive(Debug, Default)]
pub struct Notifications {
    agents: Vec<(AgentName, Pending)>,
}

/// Pending notifications about one agent.
#[derive(Debug, Default)]
pub struct Pending {
    pub attentions: Vec<Attention>,
    pub transitions: Vec<PendingTransition>,
    /// True if `on-state-change` was installed when the transitions were committed.
    pub is_heard: bool,
    /// Lock that keeps other processes from treating the notifications as abandoned.
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

    /// Removes and returns the notifications about one agent. Notifications about other agents
    /// stay: a parent starts and stops children while its own notifications are pending.
    pub fn take(&mut self, name: &AgentName) -> Pending {
        let at = self.agents.iter().position(|(other, _)| other == name);
        at.map(|at| self.agents.remove(at).1).unwrap_or_default()
    }

    fn lock(&mut self, agent: &Agent<'_>) -> Result<()> {
        let pending = self.of(agent.name());
        if pending.lock.is_none() {
            pending.lock = agent.lock_notifications(Sharing::Shared)?;
        }
        Ok(())
    }

    /// Marks the attentions of a draft as pending, before its commit.
    pub fn mark_attentions(&mut self, agent: &Agent<'_>, draft: &mut Draft) -> Result<()> {
        if draft.raised().is_empty() || program(agent, ON_ATTENTION).is_none() {
            return Ok(());
        }
        draft.mark_pending();
        // A command called from a hook leaves the notification to a later step.
        if is_nested() { Ok(()) } else { self.lock(agent) }
    }

    /// Marks the transitions of a transaction as pending, before the commit. Returns them, and if
    /// `on-state-change` is installed, for `add` after the commit.
    pub fn mark_transitions(
        &mut self,
        agent: &Agent<'_>,
        transaction: &mut Transaction,
        installed_hooks: InstalledHooks,
    ) -> Result<(Vec<PendingTransition>, bool)> {
        let transitions = std::mem::take(&mut transaction.moves);
        // Hooks are not notified of changes by a command that a hook has called.
        if transitions.is_empty() || is_nested() {
            return Ok((Vec::new(), false));
        }
        let is_heard = installed_hooks.on_state_change || program(agent, ON_STATE_CHANGE).is_some();
        if is_heard {
            self.lock(agent)?;
            transaction.state.transitions.extend(transitions.iter().cloned());
        } else {
            // A hook that is installed later is not notified of earlier transitions.
            transaction.state.transitions.clear();
        }
        Ok((transitions, is_heard))
    }

    /// Adds the transitions and attentions of a commit to the pending notifications.
    pub fn add(
        &mut self,
        agent: &AgentName,
        (made, is_heard): (Vec<PendingTransition>, bool),
        raised: &[Attention],
    ) {
        if !made.is_empty() || !raised.is_empty() {
            let pending = self.of(agent);
            pending.transitions.extend(made);
            pending.is_heard |= is_heard;
            pending.attentions.extend_from_slice(raised);
        }
    }

    /// Returns all attentions that were not reported yet, by agent.
    pub fn with_attentions(&self) -> Vec<(&AgentName, &[Attention])> {
        let agents = self.agents.iter().map(|(name, pending)| (name, pending.attentions.as_slice()));
        agents.filter(|(_, attentions)| !attentions.is_empty()).collect()
    }
}
