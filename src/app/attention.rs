//! What needs attention reaches a person: a line on stderr, an exit status, and the hook `on-attention`.
//!
//! The transition that raises an attention marks the agent; whoever commits it tells of it here. What
//! was not told, because its teller was killed or is itself called from a hook, a later step tells.

use crate::error::Result;
use crate::model::attention::Attention;
use crate::model::id::AgentName;
use crate::model::records::Records;
use crate::model::time::Time;
use crate::report::text::one_line;
use crate::rules::attention::tell_at;
use crate::store::{Agent, Store};

use super::hooks::{self, Occasion};
use super::load::begin;
use super::session::Session;

/// How long the line may be: a reason from outside may be of any length.
const LINE: usize = 500;

/// Remembers what a commit has raised, for whoever tells of it and for the exit status.
pub fn note(session: &Session, agent: &AgentName, raised: &[Attention]) {
    let raised = raised.iter().map(|attention| (agent.clone(), attention.clone()));
    session.to_tell.borrow_mut().extend(raised.clone());
    session.raised.borrow_mut().extend(raised.map(|(_, attention)| attention));
}

/// Tells of what was raised about an agent since the last time. To be called without the lock.
pub fn tell(session: &Session, store: &Store, agent: &Agent<'_>) {
    let (ours, others): (Vec<_>, Vec<_>) =
        session.to_tell.take().into_iter().partition(|(name, _)| name == agent.name());
    session.to_tell.replace(others);
    let ours: Vec<Attention> = ours.into_iter().map(|(_, attention)| attention).collect();
    if !ours.is_empty() {
        tell_these(session, store, agent, &ours);
    }
}

/// Tells of what the commands of one process have raised and nobody has told of: not every command
/// ends with that.
pub fn tell_rest(session: &Session) {
    let Some((first, _)) = session.to_tell.borrow().first().cloned() else { return };
    let told = session.store().and_then(|store| {
        let mut next = Some(first);
        while let Some(name) = next {
            tell(session, &store, &store.agent(&name)?);
            next = session.to_tell.borrow().first().map(|(name, _)| name.clone());
        }
        Ok(())
    });
    if let Err(error) = told {
        session.to_tell.take().iter().for_each(|(name, attention)| say(session, name, attention));
        session.out.note(&error.to_string());
    }
}

/// What a step finds that was raised long enough ago and not told.
pub fn late(records: &Records, now: Time) -> Vec<Attention> {
    let newest = records.state.attention.iter().flat_map(|mark| &mark.newest);
    let untold = newest.filter(|attention| attention.untold);
    // By a clock that ran ahead it may have been raised in what is now the future.
    let due = tell_at(records).is_some_and(|at| at <= now);
    untold.filter(|attention| due || attention.at > now).cloned().collect()
}

/// Tells of what a step has found that nobody has told of: it is new to people.
pub fn tell_late(session: &Session, store: &Store, agent: &Agent<'_>, late: Vec<Attention>) {
    if hooks::is_nested() {
        return;
    }
    tell_these(session, store, agent, &late);
    session.raised.borrow_mut().extend(late);
}

fn tell_these(session: &Session, store: &Store, agent: &Agent<'_>, these: &[Attention]) {
    these.iter().for_each(|attention| say(session, agent.name(), attention));
    let hook = hooks::find(store, agent, hooks::ON_ATTENTION);
    // Where it has gone since there is nobody to be told, and where this is itself called from a hook it
    // is for a step outside.
    let is_due = hook.is_some() || (these.iter().any(|attention| attention.untold) && !hooks::is_nested());
    let mut told = Vec::new();
    for attention in these {
        // Who is told to end has no time for more: a later step tells.
        if session.cancelled_by.get().is_some() {
            break;
        }
        if let Some(hook) = &hook {
            hooks::recorded(session, hook.run(session, &Occasion::about(agent.name(), attention)));
        }
        told.push(attention.seq);
    }
    if is_due && let Err(error) = record(session, agent, &told) {
        session.out.note(&format!("{}: {error}", agent.name()));
    }
}

fn say(session: &Session, agent: &AgentName, attention: &Attention) {
    session.out.alarm(&format!("{agent}: {}", one_line(&attention.to_string(), LINE)));
}

/// Records that the hook was told.
fn record(session: &Session, agent: &Agent<'_>, told: &[u64]) -> Result<()> {
    let (mut draft, locked) = begin(session, agent)?;
    draft.told(|attention| told.contains(&attention.seq));
    if !draft.is_empty() {
        hooks::commit(session, &locked, draft)?;
    }
    Ok(())
}
