//! From where a command is called, and what a turn may do to other agents (contract, semantics
//! §14).

use std::env;

use crate::error::{Error, Result, Status};
use crate::model::agent::Identity;
use crate::model::authority::Reach;
use crate::model::continuation::TriggerKind;
use crate::model::id::AgentName;
use crate::model::message::Origin;
use crate::model::refusal::Refusal;
use crate::model::submission::CalledBy;
use crate::process;
use crate::rules::authority;
use crate::store::{Agent, Store};

use super::session::{Session, agents};

/// The agent from inside whose turn or task this is called, whether that still runs or not. A hook
/// speaks for the operator who installed it, not for the turn that it is about.
pub fn inside(session: &Session, store: &Store) -> Result<Option<AgentName>> {
    if env::var_os(process::HOOK).is_some_and(|hook| !hook.is_empty()) {
        return Ok(None);
    }
    session.called_in(store)
}

/// The origin that is recorded if this command starts or stops an agent.
pub fn actor(session: &Session, store: &Store) -> Result<Origin> {
    Ok(inside(session, store)?.map_or(authority::OPERATOR, |name| authority::agent(&name)))
}

/// Refuses what a turn or task may not do to an agent that is not its own child. `verb` is what it
/// wants to do.
pub fn reach(session: &Session, store: &Store, agent: &Agent<'_>, verb: &str) -> Result<()> {
    match inside(session, store)? {
        None => Ok(()),
        Some(caller) => reach_from(store, &caller, &agent.identity()?, verb),
    }
}

/// Refuses the same for changes of an agent's records, except that a turn or task may change those
/// of its own agent.
pub fn reach_records(session: &Session, store: &Store, agent: &Agent<'_>, verb: &str) -> Result<()> {
    match inside(session, store)? {
        Some(caller) if caller != *agent.name() => reach_from(store, &caller, &agent.identity()?, verb),
        Some(_) | None => Ok(()),
    }
}

fn reach_from(store: &Store, caller: &AgentName, target: &Identity, verb: &str) -> Result<()> {
    Ok(authority::reaches(caller, store.agent(caller)?.policy()?.authority.lifecycle, target, verb)?)
}

/// The parent of an agent that is being made. A turn or task makes children of its own agent.
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

/// Refuses to a turn or task what concerns the whole state directory, unless its agent may reach
/// all others.
pub fn outside(session: &Session, store: &Store, verb: &str) -> Result<()> {
    match inside(session, store)? {
        Some(caller) if store.agent(&caller)?.policy()?.authority.lifecycle != Reach::All => {
            Err(Error::refused(
                "not_its_own",
                format!("a turn or task of `{caller}` may not {verb} the whole state directory"),
            )
            .with_hint("`authority.lifecycle = \"all\"` in its agent.toml lets it"))
        }
        Some(_) | None => Ok(()),
    }
}

/// The agents on which a command acts: those that are named, or with `all` every one on which the
/// caller may act.
pub fn governed(session: &Session, store: &Store, named: &[String], all: bool) -> Result<Vec<AgentName>> {
    governed_among(session, store, agents(store, named, all)?, all)
}

/// Those of the agents on which the caller may act, if they were not named one by one.
pub fn governed_among(
    session: &Session,
    store: &Store,
    mut names: Vec<AgentName>,
    all: bool,
) -> Result<Vec<AgentName>> {
    if let Some(caller) = inside(session, store)?.filter(|_| all)
        && store.agent(&caller)?.policy()?.authority.lifecycle == Reach::Children
    {
        // An agent that can't be read counts as no child of the caller.
        names.retain(|name| {
            let identity = store.agent(name).and_then(|agent| agent.identity());
            identity.is_ok_and(|identity| identity.parent.as_ref() == Some(&caller))
        });
    }
    Ok(names)
}

/// Refuses a message that a private agent does not hear from a turn or task of `speaker`. Returns
/// the trigger kind of such messages, if it differs from that of their kind.
pub fn hears(agent: &Agent<'_>, speaker: &AgentName) -> Result<Option<TriggerKind>> {
    if agent.name() == speaker {
        return Ok(None);
    }
    Ok(authority::hears(&agent.identity()?, speaker)?)
}

/// Inside a turn or task: says which of the agents it may not tick, and leaves them out.
pub fn leave_out_others(
    session: &mut Session,
    store: &Store,
    names: &mut Vec<AgentName>,
    are_all: bool,
) -> Status {
    let mut reached = Vec::with_capacity(names.len());
    let status = session.each_agent(names, are_all, |session, name| {
        reach(session, store, &store.agent(name)?, "tick")?;
        reached.push(name.clone());
        Ok(Status::Done)
    });
    *names = reached;
    status
}

/// How many parents up a chain are looked at.
const DESCENDANTS: usize = 1000;

/// Refuses to stop an agent from inside its own work, or that of a child: the stop would wait for
/// the turn or task from which it is called, and that for the stop. `verb`: what is refused.
pub fn refuse_from_inside(session: &Session, store: &Store, agent: &Agent<'_>, verb: &str) -> Result<()> {
    // A turn or task that is over may stop any agent.
    let Ok(Some(caller)) = session.caller(store) else { return Ok(()) };
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
    Err(Error::refused(
        kind,
        format!("this is a {what} of {whose}`{}` itself: it can't {verb} its own agent", agent.name()),
    )
    .with_hint(format!("end the {what}; then {verb} the agent from outside")))
}

/// Refuses to a member of the sharing group what needs more of the agent than its inbox. `what` is
/// the flag or field.
pub fn owners(store: &Store, what: &str) -> Result<()> {
    if store.guest().is_some() { Err(owners_only(what).into()) } else { Ok(()) }
}

/// The refusal of what a member of the sharing group may not ask for.
pub fn owners_only(what: &str) -> Refusal {
    let message =
        format!("{what}: that needs the agent's records, and of these only the inbox is shared with you");
    Refusal::new("owners_only", message).hint("leave it out, or ask the owner of the state directory")
}
