//! Notification of people about attentions: a line on stderr, an exit status, and the hook
//! `on-attention`.
//!
//! The transition that raises an attention marks it in the agent's state. The command that commits
//! the transition notifies after the commit. If that command was killed, or was called from a hook,
//! a later step notifies.

use crate::error::Result;
use crate::model::attention::Attention;
use crate::model::id::AgentName;
use crate::report::text::one_line;
use crate::store::{Agent, Sharing, Store};

use super::context::Context;
use super::hooks::{self, HookEvent};
use super::installed::{ON_ATTENTION, is_nested};
use super::session::Session;
use super::untold::ToTell;

/// Maximum length of the line in bytes. The reason may come from outside and be of any length.
const LINE: usize = 500;

/// Notifies of the attentions that this process has raised about an agent since the last call. Must
/// be called without the agent's lock.
pub fn tell(session: &Session, store: &Store, agent: &Agent<'_>) {
    let is_ours = |name: &AgentName| name == agent.name();
    let ToTell { attentions, held } = session.to_tell.take();
    let (ours, others): (Vec<_>, Vec<_>) = attentions.into_iter().partition(|(name, _)| is_ours(name));
    let (_held, held): (Vec<_>, Vec<_>) = held.into_iter().partition(|(name, _)| is_ours(name));
    session.to_tell.replace(ToTell { attentions: others, held });
    let ours: Vec<Attention> = ours.into_iter().map(|(_, attention)| attention).collect();
    if !ours.is_empty() {
        tell_these(session, store, agent, &ours);
    }
}

/// Notifies of the attentions of all agents that this process has raised and `tell` has not
/// reported, because some commands end without a call of it.
pub fn tell_rest(session: &Session) {
    let Some(first) = next_agent(session) else { return };
    let told = session.store().and_then(|store| {
        let mut next = Some(first);
        while let Some(name) = next {
            tell(session, &store, &store.agent(&name)?);
            next = next_agent(session);
        }
        Ok(())
    });
    if let Err(error) = told {
        session.to_tell.take().attentions.iter().for_each(|(name, attention)| say(session, name, attention));
        session.out.note(&error.to_string());
    }
}

/// Notifies of the attentions that a process left pending because it was killed or was called from
/// a hook.
pub fn tell_abandoned(session: &Session, store: &Store, agent: &Agent<'_>) {
    if is_nested() {
        return;
    }
    let abandoned = agent.telling(Sharing::Exclusive).and_then(|alone| {
        let Some(alone) = alone else { return Ok((Vec::new(), None)) };
        let state = agent.peek()?;
        let marked = state.attention.into_iter().flat_map(|mark| mark.newest);
        let untold = marked.chain(state.asked).filter(|attention| attention.untold);
        Ok((untold.map(|attention| attention.shown(agent.name())).collect(), Some(alone)))
    });
    match abandoned {
        Ok((abandoned, _alone)) => {
            tell_these(session, store, agent, &abandoned);
            session.raised.borrow_mut().extend(abandoned);
        }
        Err(error) => session.out.note(&error.to_string()),
    }
}

fn next_agent(session: &Session) -> Option<AgentName> {
    session.to_tell.borrow().attentions.first().map(|(name, _)| name.clone())
}

fn tell_these(session: &Session, store: &Store, agent: &Agent<'_>, these: &[Attention]) {
    these.iter().for_each(|attention| say(session, agent.name(), attention));
    let hook = hooks::find(store, agent, ON_ATTENTION);
    // Without a hook no mark has to be cleared. A command that was called from a hook leaves the
    // notification to a later step.
    let is_due = hook.is_some() || (these.iter().any(|attention| attention.untold) && !is_nested());
    let mut told = Vec::new();
    for attention in these {
        // A process that got a signal to end leaves the rest to a later step.
        if session.cancelled_by.get().is_some() {
            break;
        }
        let ran = hook.as_ref().map(|hook| hook.run(session, &HookEvent::about(agent.name(), attention)));
        // A hook that could not be started, on a full disk for instance, stays pending for a later
        // step.
        if !matches!(ran, Some(Err(_))) {
            told.push(attention.seq);
        }
        if let Some(ran) = ran {
            hooks::recorded(session, ran);
        }
    }
    if is_due && let Err(error) = record(session, agent, &told) {
        session.out.note(&format!("{}: {error}", agent.name()));
    }
}

fn say(session: &Session, agent: &AgentName, attention: &Attention) {
    session.out.alarm(&format!("{agent}: {}", one_line(&attention.to_string(), LINE)));
}

/// Clears the pending marks of these attentions.
fn record(session: &Session, agent: &Agent<'_>, told: &[u64]) -> Result<()> {
    let mut open = Context::new(session, agent).open()?;
    open.draft.told(|attention| told.contains(&attention.seq));
    open.commit().map(drop)
}
