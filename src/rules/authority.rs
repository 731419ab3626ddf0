//! Rights of turns over other agents, and rights to send messages to an agent (contract, semantics
//! §14). The checks prevent mistakes of turns, not attacks: a process of the same user can write
//! the files directly.

use crate::model::agent::{Identity, Visibility};
use crate::model::continuation::TriggerKind;
use crate::model::id::AgentName;
use crate::model::message::{Origin, OriginKind};
use crate::model::policy::Reach;
use crate::model::refusal::Refusal;
use crate::model::state::State;
use crate::model::wait::{Wait, WaitKind};

/// Origin of the operator's messages, and of starts and stops by the operator.
pub const OPERATOR: Origin = Origin { kind: OriginKind::Operator, id: None };

/// Returns the origin of messages, starts and stops by a turn or task of agent `name`.
pub fn agent(name: &AgentName) -> Origin {
    Origin { kind: OriginKind::System, id: Some(name.to_string()) }
}

/// Refuses the action `verb` to a turn or task of `caller`, unless the target is a child of
/// `caller` or `reach` allows every agent.
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

/// Refuses to let `by` start an agent. The operator may start every agent; an agent may start one
/// that it has stopped, and one that has stopped itself.
pub fn may_start(state: &State, by: &Origin) -> Result<(), Refusal> {
    if *by == OPERATOR {
        return Ok(());
    }
    // Records of earlier versions lack `stopped_by`; then the operator may have stopped the agent.
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

/// Refuses messages from a turn or task of `speaker` to a private agent, which accepts only the
/// operator, its parent, its triggers and itself. Returns the trigger kind of an accepted message
/// if it differs from the default of the message kind: input from the parent counts as operator
/// input.
pub fn check_accepts(target: &Identity, speaker: &AgentName) -> Result<Option<TriggerKind>, Refusal> {
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

/// Refuses a message or hint that names an operator wait without being operator input.
pub fn may_name(wait: &Wait, trigger: Option<TriggerKind>) -> Result<(), Refusal> {
    if wait.kind != WaitKind::Operator || trigger == Some(TriggerKind::OperatorInput) {
        return Ok(());
    }
    let message = format!("{} asks the operator: only the operator can answer it", wait.id);
    Err(Refusal::new("operators_answer", message)
        .hint("leave out the wait: your message then counts as what it is"))
}
