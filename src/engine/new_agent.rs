//! Creation of an agent with all its files, by `create` or for a delegation to a new child.

use crate::error::Result;
use crate::local::HookFile;
use crate::model::agent::{AgentKind, Identity, Visibility};
use crate::model::id::{AgentName, TriggerId};
use crate::model::trigger::{Trigger, TriggerScope};
use crate::rules::transition::lifecycle;
use crate::store::{NewAgent, Store};

use super::session::Session;

/// Name that errors use for the settings of an agent that does not exist yet.
pub const SETTINGS: &str = "agent.toml";

/// Request to create an agent.
pub struct AgentRequest {
    pub name: AgentName,
    /// Parent of the new agent; absent: the agent is no child.
    pub parent: Option<AgentName>,
    /// Visibility of the agent; absent: a child is private, any other agent public.
    pub visibility: Option<Visibility>,
    /// Text of the agent's `agent.toml`.
    pub policy: String,
    /// Hooks to install for this agent.
    pub hooks: Vec<HookFile>,
    /// SHA-256 of the secret of the agent's first trigger.
    pub secret_sha256: String,
}

/// Creates an agent with all its files, atomically. Returns the id of its first trigger.
pub fn make(session: &Session, store: &Store, new: AgentRequest) -> Result<TriggerId> {
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
    // This transaction is never committed: the new directory is made with its records as content.
    let first = lifecycle::create(name.clone(), policy, stamp)?;
    let (state, events) = (first.state, first.events);
    store.create(&NewAgent { identity, policy: text, state, events, trigger, hooks })?;
    Ok(id)
}
