//! Caller of a command, and the rights of a turn or task over other agents (contract, semantics
//! §14).

use crate::error::{Error, Result, Status};
use crate::model::agent::Identity;
use crate::model::continuation::TriggerKind;
use crate::model::id::AgentName;
use crate::model::message::Origin;
use crate::model::policy::Reach;
use crate::model::refusal::Refusal;
use crate::model::submission::CalledBy;
use crate::rules::authority;
use crate::store::{Agent, Store};

use super::context::Context;
use super::hooks::is_nested;
use super::session::{Session, agents};

/// Returns the agent whose turn or task has called this command, even if the turn or task has
/// ended. `None` in a hook, which acts for the operator.
pub fn inside(session: &Session, store: &Store) -> Result<Option<AgentName>> {
    if is_nested() { Ok(None) } else { session.called_in(store) }
}

/// Returns the origin (operator or agent) to record when this command starts or stops an agent.
pub fn actor(session: &Session, store: &Store) -> Result<Origin> {
    Ok(inside(session, store)?.map_or(authority::OPERATOR, |name| authority::agent(&name)))
}

/// Error when a turn or task acts on an agent that is not a child of its own agent, unless its
/// policy has `authority.lifecycle = "all"`. `verb` names the action in the message.
pub fn reach(context: Context<'_>, verb: &str) -> Result<()> {
    let store = context.store();
    match inside(context.session, store)? {
        None => Ok(()),
        Some(caller) => reach_from(store, &caller, &context.agent.identity()?, verb),
    }
}

/// Error when a turn or task changes the records of an agent that is neither its own agent nor a
/// child of its own agent. `verb` names the action in the message.
pub fn reach_records(context: Context<'_>, verb: &str) -> Result<()> {
    let agent = context.agent;
    let store = context.store();
    match inside(context.session, store)? {
        Some(caller) if caller != *agent.name() => reach_from(store, &caller, &agent.identity()?, verb),
        Some(_) | None => Ok(()),
    }
}

fn reach_from(store: &Store, caller: &AgentName, target: &Identity, verb: &str) -> Result<()> {
    Ok(authority::reaches(caller, store.agent(caller)?.policy()?.authority.lifecycle, target, verb)?)
}

/// Returns the parent of an agent to create. A turn or task may only create children of its own
/// agent, unless its policy has `authority.lifecycle = "all"`.
pub fn parent(session: &Session, store: &Store, named: Option<AgentName>) -> Result<Option<AgentName>> {
    let Some(caller) = inside(session, store)? else { return Ok(named) };
    if store.agent(&caller)?.policy()?.authority.lifecycle == Reach::All {
        return Ok(named);
    }
    match named {
        Some(other) if other != caller => Err(Error::refused(
            "not_own_child",
            format!("this is a turn or task of `{caller}`: it can't make a child of `{other}`"),
        )
        .with_hint("leave out --parent: the new agent becomes its own child")),
        Some(_) | None => Ok(Some(caller)),
    }
}

/// Error when a turn or task acts on the whole state directory, unless its policy has
/// `authority.lifecycle = "all"`. `verb` names the action in the message.
pub fn outside(session: &Session, store: &Store, verb: &str) -> Result<()> {
    match inside(session, store)? {
        Some(caller) if store.agent(&caller)?.policy()?.authority.lifecycle != Reach::All => {
            let message = format!("a turn or task of `{caller}` may not {verb} the whole state directory");
            Err(Error::refused("not_its_own", message)
                .with_hint("`authority.lifecycle = \"all\"` in its agent.toml lets it"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the agents on which a command acts: the named agents, or with `all` every agent on which
/// the calling turn, task or operator may act.
pub fn governed(session: &Session, store: &Store, named: &[AgentName], all: bool) -> Result<Vec<AgentName>> {
    governed_among(session, store, agents(store, named, all)?, all)
}

/// If `all` is set, removes from `names` the agents on which the calling turn or task may not act.
pub fn governed_among(
    session: &Session,
    store: &Store,
    mut names: Vec<AgentName>,
    all: bool,
) -> Result<Vec<AgentName>> {
    if all
        && let Some(caller) = inside(session, store)?
        && store.agent(&caller)?.policy()?.authority.lifecycle == Reach::Children
    {
        // An unreadable agent counts as no child of the caller.
        names.retain(|name| {
            let identity = store.agent(name).and_then(|agent| agent.identity());
            identity.is_ok_and(|identity| identity.parent.as_ref() == Some(&caller))
        });
    }
    Ok(names)
}

/// Error when a private agent does not accept messages from a turn or task of `speaker`. Returns
/// the trigger kind of accepted messages; `None` for the default of their message kind.
pub fn check_accepts(agent: &Agent<'_>, speaker: &AgentName) -> Result<Option<TriggerKind>> {
    if agent.name() == speaker {
        return Ok(None);
    }
    Ok(authority::check_accepts(&agent.identity()?, speaker)?)
}

/// Reports the agents that the calling turn or task may not tick, and removes them from `names`.
pub fn leave_out_others(
    session: &Session,
    store: &Store,
    names: &mut Vec<AgentName>,
    are_all: bool,
) -> Status {
    let mut reached = Vec::with_capacity(names.len());
    let status = session.each_agent(store, names, are_all, |context| {
        reach(context, "tick")?;
        reached.push(context.agent.name().clone());
        Ok(Status::Done)
    });
    *names = reached;
    status
}

/// Maximum number of generations that are searched for an ancestor of an agent.
const DESCENDANTS: usize = 1000;

/// Error when a turn or task stops its own agent or an ancestor: the stop would wait for the end of
/// its caller, and the caller for the stop. `verb` names the action in the message.
pub fn refuse_from_inside(context: Context<'_>, verb: &str) -> Result<()> {
    let agent = context.agent;
    let store = context.store();
    // A turn or task that has ended may stop any agent, because no stop waits for it.
    let Ok(Some(caller)) = context.session.caller(store) else { return Ok(()) };
    let (kind, what) = match caller.by {
        CalledBy::Turn { .. } => ("own_turn", "turn"),
        CalledBy::Task { .. } => ("own_task", "task"),
    };
    let mut name = Some(caller.agent.clone());
    for _ in 0..DESCENDANTS {
        let Some(next) = name.filter(|name| name != agent.name()) else {
            break;
        };
        name = store.agent(&next).and_then(|agent| agent.identity()).ok().and_then(|found| found.parent);
        if name.is_none() {
            return Ok(());
        }
    }
    let whose = if caller.agent == *agent.name() { "" } else { "a child of " };
    let message =
        format!("this is a {what} of {whose}`{}` itself: it can't {verb} its own agent", agent.name());
    Err(Error::refused(kind, message)
        .with_hint(format!("end the {what}; then {verb} the agent from outside")))
}

/// Error when the caller is a member of the sharing group, who may only write to the inbox. `what`
/// names the flag or field that needs more rights in the message.
pub fn owners(store: &Store, what: &str) -> Result<()> {
    if store.guest().is_some() { Err(owners_only(what).into()) } else { Ok(()) }
}

/// Returns the refusal of `what`, a flag or field, to a member of the sharing group.
pub fn owners_only(what: &str) -> Refusal {
    let message =
        format!("{what}: that needs the agent's records, and of these only the inbox is shared with you");
    Refusal::new("owners_only", message).hint("leave it out, or ask the owner of the state directory")
}
