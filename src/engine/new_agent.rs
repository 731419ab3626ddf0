//! Creation of an agent with all its files: by `create`, or for a delegation to a new child.

use crate::error::Result;
use crate::model::agent::{AgentKind, Identity, Status as AgentStatus, Visibility};
use crate::model::id::{AgentName, TriggerId};
use crate::model::trigger::{Trigger, TriggerScope};
use crate::rules::transition::lifecycle;
use crate::store::{HookFile, NewAgent, Store};

use super::session::Session;

/// Name of an agent's settings in errors before the agent exists.
pub const SETTINGS: &str = "agent.toml";

/// An agent to create.
pub struct AgentRequest {
    pub name: AgentName,
    /// Parent, of which the agent becomes a child.
    pub parent: Option<AgentName>,
    /// `None`: a child is private, any other agent public.
    pub visibility: Option<Visibility>,
    /// Text of its `agent.toml`.
    pub policy: String,
    /// Its own hooks.
    pub hooks: Vec<HookFile>,
    /// SHA-256 of the secret of its trigger.
    pub secret_sha256: String,
}

/// Result of the creation.
pub struct Made {
    pub status: AgentStatus,
    pub trigger_id: TriggerId,
}

/// Creates an agent with all its files, atomically.
pub fn make(session: &Session, store: &Store, new: AgentRequest) -> Result<Made> {
    let AgentRequest { name, parent, visibility, policy: text, hooks, secret_sha256 } = new;
    let policy = store.local().policy_from(SETTINGS, &text)?;
    let default = if parent.is_some() { Visibility::Private } else { Visibility::Public };
    let mut stamp = session.clock.stamp()?;
    let id = TriggerId(stamp.mint());
    let trigger = Trigger::new(id, name.clone(), TriggerScope::Agent, secret_sha256, stamp.now);
    let identity = Identity {
        name: name.clone(),
        kind: if parent.is_some() { AgentKind::Child } else { AgentKind::Named },
        visibility: visibility.unwrap_or(default),
        owner: parent.clone(),
        parent,
        profile: policy.profile.clone(),
        created_at: stamp.now,
        former_names: Vec::new(),
        extra: Default::default(),
    };
    // The first transaction is not committed to the directory, but becomes its content.
    let first = lifecycle::create(name.clone(), policy, stamp)?;
    let made = Made { status: first.state.status, trigger_id: trigger.id };
    let (state, events) = (first.state, first.events);
    store.create(&NewAgent { identity, policy: text, state, events, trigger, hooks })?;
    Ok(made)
}
