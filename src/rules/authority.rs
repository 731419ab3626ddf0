//! Rights of a turn over other agents, and of agents to send each other messages (contract,
//! semantics §14). They protect against mistakes of turns, not against attacks: a process of the
//! same user can write the files directly.

use crate::model::agent::{Identity, Visibility};
use crate::model::authority::Reach;
use crate::model::continuation::TriggerKind;
use crate::model::id::AgentName;
use crate::model::message::{Origin, OriginKind};
use crate::model::refusal::Refusal;
use crate::model::state::State;
use crate::model::wait::{Wait, WaitKind};

/// Operator, as the origin of a start or stop.
pub const OPERATOR: Origin = Origin { kind: OriginKind::Operator, id: None };

/// Returns an agent as the origin of a start or stop: by its turn, its task or its delegation.
pub fn agent(name: &AgentName) -> Origin {
    Origin { kind: OriginKind::System, id: Some(name.to_string()) }
}

/// Refuses `verb` by a turn or task of `caller` unless the target is a child of its agent or
/// `reach` allows every agent.
pub fn reaches(caller: &AgentName, reach: Reach, target: &Identity, verb: &str) -> Result<(), Refusal> {
    if reach == Reach::All || target.parent.as_ref() == Some(caller) {
        return Ok(());
    }
    let whom = if target.name == *caller {
        "its own agent".to_owned()
    } else {
        format!("`{}`, which is not its child", target.name)
    };
    let message = format!("this is a turn or task of `{caller}`: it can't {verb} {whom}");
    let hint = format!("`lifecycle = \"all\"` below [authority] in the agent.toml of `{caller}` lets it");
    Err(Refusal::new("not_own_child", message).hint(hint))
}

/// Refuses to let `by` start an agent. Only the operator starts an agent that the operator stopped.
/// A turn may start an agent that its own agent stopped, or that stopped itself.
pub fn may_start(state: &State, by: &Origin) -> Result<(), Refusal> {
    if *by == OPERATOR {
        return Ok(());
    }
    // Older records do not name the stopper.
    let stopped_by = state.stopped_by.as_ref().unwrap_or(&OPERATOR);
    if *stopped_by == *by || *stopped_by == agent(&state.agent) {
        return Ok(());
    }
    let who = if stopped_by.kind == OriginKind::Operator {
        "the operator".to_owned()
    } else {
        format!("`{}`", stopped_by.id.as_deref().unwrap_or(stopped_by.kind.name()))
    };
    Err(Refusal::new("stopped_by_other", format!("`{}` was stopped by {who}: it stays stopped", state.agent))
        .hint(format!("the operator starts it with `dormouse start {}`", state.agent)))
}

/// Refuses messages from a turn or task of `speaker` to a private agent, which accepts them only
/// from the operator, its parent, its triggers and itself. For an accepted message returns its
/// trigger kind, if it differs from the default of its kind: a message of the parent counts as the
/// operator's.
pub fn hears(target: &Identity, speaker: &AgentName) -> Result<Option<TriggerKind>, Refusal> {
    let is_parent = target.parent.as_ref() == Some(speaker);
    let is_open = match target.visibility {
        Visibility::Public => true,
        Visibility::Private => target.name == *speaker || is_parent,
    };
    if is_open {
        return Ok(is_parent.then_some(TriggerKind::OperatorInput));
    }
    let parent = target.parent.as_ref().map(|parent| format!(", its parent `{parent}`")).unwrap_or_default();
    let message = format!(
        "`{}` is private: it takes no messages from `{speaker}`, only from the operator{parent} and its triggers",
        target.name
    );
    Err(Refusal::new("private", message))
}

/// Refuses a message or hint that names a question to the operator, and that is no operator input.
pub fn may_name(wait: &Wait, trigger: Option<TriggerKind>) -> Result<(), Refusal> {
    if wait.kind != WaitKind::Operator || trigger == Some(TriggerKind::OperatorInput) {
        return Ok(());
    }
    let message = format!("{} asks the operator: only the operator can answer it", wait.id);
    Err(Refusal::new("operators_answer", message)
        .hint("leave out the wait: the agent then takes what you say for what it is"))
}
