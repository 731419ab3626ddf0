//! Notification of `on-state-change` of every transition, at least once and in order (contract,
//! execution §5).
//!
//! If the hook is installed, the commit of a transition adds it to the outbox in `state.json`;
//! another commit removes it after the hook has run. If a process is killed in between, the next
//! step runs the hook.

use crate::error::Result;
use crate::model::state::PendingTransition;
use crate::store::{Agent, LockGuard, Sharing, Store};

use super::attention;
use super::context::Context;
use super::hooks::{self, HookEvent, HookFailure, InstalledHook, find};
use super::installed::{ON_RECOVERY_COMPLETE, ON_STATE_CHANGE, is_nested};
use super::session::Session;
use super::untold::Move;

impl Context<'_> {
    /// Notifies the hooks of all transitions since the last call, and people of attentions. Must be
    /// called without the lock.
    pub fn tell(self) {
        let Context { session, agent } = self;
        // Attentions come first, because the hooks that follow may take long, or be killed.
        attention::tell(session, self.store(), agent);
        tell(session, self.store(), agent);
    }

    /// Notifies the hooks of the pending transitions of killed processes. Must be called without
    /// the lock.
    pub fn tell_abandoned(self) {
        let Context { session, agent } = self;
        attention::tell_abandoned(session, self.store(), agent);
        tell_abandoned(session, self.store(), agent);
    }
}

/// Notifies the hooks of the pending transitions of an agent: first those of killed processes, then
/// those of this process. Must be called without the lock.
fn tell(session: &Session, store: &Store, agent: &Agent<'_>) {
    let (moves, held) = session.moves.borrow_mut().take(agent.name());
    if moves.is_empty() {
        return;
    }
    if let Err(error) = tell_in_order(session, store, agent, moves, held) {
        session.out.note(&error.to_string());
    }
}

fn tell_in_order(
    session: &Session,
    store: &Store,
    agent: &Agent<'_>,
    moves: Vec<Move>,
    mut held: Option<LockGuard>,
) -> Result<()> {
    let is_heard = moves.iter().any(|one| one.is_heard);
    let moves: Vec<PendingTransition> = moves.into_iter().map(|one| one.untold).collect();
    let changed = is_heard.then(|| find(store, agent, ON_STATE_CHANGE)).flatten();
    let has_recovered = moves.iter().any(|untold| end_of_recovery(agent, untold).is_some());
    let recovered = has_recovered.then(|| find(store, agent, ON_RECOVERY_COMPLETE)).flatten();
    let first = moves.first().map_or(0, |untold| untold.seq);
    if changed.is_some() && agent.peek()?.untold.iter().any(|untold| untold.seq < first) {
        drop(held);
        held = agent.telling(Sharing::Exclusive)?;
        if held.is_some() {
            let mut left = agent.peek()?.untold;
            left.retain(|untold| untold.seq < first);
            tell_each(session, agent, &left, changed.as_ref(), None)?;
        } else {
            held = agent.telling(Sharing::Shared)?;
        }
    }
    let told = tell_each(session, agent, &moves, changed.as_ref(), recovered.as_ref());
    drop(held);
    told
}

/// Notifies the hooks of pending transitions of killed processes. A living process handles its own.
fn tell_abandoned(session: &Session, store: &Store, agent: &Agent<'_>) {
    if is_nested() {
        return;
    }
    if let Err(error) = tell_left(session, store, agent) {
        session.out.note(&error.to_string());
    }
}

fn tell_left(session: &Session, store: &Store, agent: &Agent<'_>) -> Result<()> {
    let Some(_alone) = agent.telling(Sharing::Exclusive)? else { return Ok(()) };
    let abandoned = agent.peek()?.untold;
    match find(store, agent, ON_STATE_CHANGE) {
        Some(hook) => tell_each(session, agent, &abandoned, Some(&hook), None),
        // The hook was removed meanwhile.
        None => {
            strike_off(session, agent, &abandoned.iter().map(|untold| untold.seq).collect::<Vec<_>>(), None)
        }
    }
}

/// Runs the hooks for each transition, and removes from the outbox those of which `changed` was
/// notified. If this process is killed, the next step repeats the interrupted one and continues.
fn tell_each(
    session: &Session,
    agent: &Agent<'_>,
    moves: &[PendingTransition],
    changed: Option<&InstalledHook<'_>>,
    recovered: Option<&InstalledHook<'_>>,
) -> Result<()> {
    let (mut told, mut killed_at) = (Vec::new(), None);
    for untold in moves {
        // A process that got a signal to end leaves the rest to a later step.
        if session.cancelled_by.get().is_some() {
            break;
        }
        if let Some(hook) = changed.filter(|_| killed_at.is_none()) {
            let ran = hook.run(session, &HookEvent::transition(agent.name(), untold));
            let was_killed =
                ran.as_ref().map_or(true, |ran| ran.failure.as_ref().is_some_and(HookFailure::was_killed));
            hooks::recorded(session, ran);
            if was_killed && session.cancelled_by.get().is_some() {
                break;
            }
            if was_killed && !untold.again {
                killed_at = Some(untold.seq);
            } else {
                told.push(untold.seq);
            }
        }
        if let (Some(hook), Some(event)) = (recovered, end_of_recovery(agent, untold)) {
            hooks::recorded(session, hook.run(session, &event));
        }
    }
    strike_off(session, agent, &told, killed_at)
}

fn end_of_recovery(agent: &Agent<'_>, untold: &PendingTransition) -> Option<HookEvent> {
    HookEvent::transition(agent.name(), untold).end_of_recovery()
}

fn strike_off(session: &Session, agent: &Agent<'_>, told: &[u64], killed_at: Option<u64>) -> Result<()> {
    if told.is_empty() && killed_at.is_none() {
        return Ok(());
    }
    let mut open = Context::new(session, agent).open()?;
    open.draft.strike_off(|untold| told.contains(&untold.seq), killed_at);
    open.commit().map(drop)
}
