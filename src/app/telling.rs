//! `on-state-change` is told of every transition at least once, and in order (contract, execution §5).
//!
//! Where the hook is installed, each transition is noted in `state.json` by the commit that makes it, and
//! struck off there when the hook has been told. What a process leaves that was killed is told by the next step.

use crate::error::Result;
use crate::model::id::AgentName;
use crate::model::records::Onlookers;
use crate::model::state::Untold;
use crate::model::transaction::Transaction;
use crate::rules::telling::transitions;
use crate::store::lock::{self, Sharing};
use crate::store::{Agent, Store};

use super::hooks::{self, Failure, Hook, ON_RECOVERY_COMPLETE, ON_STATE_CHANGE, Occasion, find, is_nested};
use super::load::begin;
use super::session::Session;

/// The transitions that this process has committed and not told of yet.
#[derive(Debug, Default)]
pub struct Moves {
    moves: Vec<Move>,
    /// As long as one is held, no other process takes the transitions of that agent for abandoned.
    held: Vec<(AgentName, lock::Held)>,
}

/// One of them.
#[derive(Debug)]
pub struct Move {
    agent: AgentName,
    untold: Untold,
    /// `on-state-change` was there when it was committed.
    is_heard: bool,
}

impl Moves {
    pub fn add(&mut self, moves: Vec<Move>) {
        self.moves.extend(moves);
    }

    /// Those of one agent. The others stay: a parent begins and stops its children while its own transitions
    /// are still to be told.
    fn take(&mut self, agent: &AgentName) -> (Vec<Move>, Option<lock::Held>) {
        let (ours, others) =
            std::mem::take(&mut self.moves).into_iter().partition(|one: &Move| one.agent == *agent);
        self.moves = others;
        let at = self.held.iter().position(|(name, _)| name == agent);
        (ours, at.map(|at| self.held.remove(at).1))
    }
}

/// Notes the transitions of a transaction that is about to be committed. Returns them, for `Moves` once it is.
pub fn note(
    session: &Session,
    agent: &Agent<'_>,
    transaction: &mut Transaction,
    onlookers: Onlookers,
) -> Result<Vec<Move>> {
    let moves = transitions(transaction);
    // What a command changes that a hook has called is told to no hook.
    if moves.is_empty() || is_nested() {
        return Ok(Vec::new());
    }
    let is_heard = onlookers.on_state_change || find(agent.store(), agent, ON_STATE_CHANGE).is_some();
    if is_heard {
        let held = &mut session.moves.borrow_mut().held;
        if !held.iter().any(|(name, _)| name == agent.name()) {
            held.extend(agent.telling(Sharing::Shared)?.map(|lock| (agent.name().clone(), lock)));
        }
        transaction.state.untold.extend(moves.iter().cloned());
    } else {
        // A hook that is installed later is not told of what was before.
        transaction.state.untold.clear();
    }
    let named = |untold| Move { agent: agent.name().clone(), untold, is_heard };
    Ok(moves.into_iter().map(named).collect())
}

/// Tells the hooks of every transition of an agent that this process has committed and not told of yet, and
/// before those of what killed processes have left. To be called without the lock.
pub fn tell(session: &Session, store: &Store, agent: &Agent<'_>) {
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
    mut held: Option<lock::Held>,
) -> Result<()> {
    let is_heard = moves.iter().any(|one| one.is_heard);
    let moves: Vec<Untold> = moves.into_iter().map(|one| one.untold).collect();
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

/// Tells of what killed processes have left. Nothing is told that belongs to a process which is still at it.
pub fn tell_abandoned(session: &Session, store: &Store, agent: &Agent<'_>) {
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
        // It was taken away meanwhile.
        None => {
            strike_off(session, agent, &abandoned.iter().map(|untold| untold.seq).collect::<Vec<_>>(), None)
        }
    }
}

/// Runs the hooks for each transition, and strikes off what `changed` has been told. The first that it is
/// killed at is told again by the next step, and so is what comes after it.
fn tell_each(
    session: &Session,
    agent: &Agent<'_>,
    moves: &[Untold],
    changed: Option<&Hook<'_>>,
    recovered: Option<&Hook<'_>>,
) -> Result<()> {
    let (mut told, mut killed_at) = (Vec::new(), None);
    for untold in moves {
        // A process that is told to end has no time for more.
        if session.cancelled_by.get().is_some() {
            break;
        }
        if let Some(hook) = changed.filter(|_| killed_at.is_none()) {
            let ran = hook.run(session, &Occasion::transition(agent.name(), untold));
            let was_killed =
                ran.as_ref().map_or(true, |ran| ran.failure.as_ref().is_some_and(Failure::was_killed));
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
        if let (Some(hook), Some(occasion)) = (recovered, end_of_recovery(agent, untold)) {
            hooks::recorded(session, hook.run(session, &occasion));
        }
    }
    strike_off(session, agent, &told, killed_at)
}

fn end_of_recovery(agent: &Agent<'_>, untold: &Untold) -> Option<Occasion> {
    Occasion::transition(agent.name(), untold).end_of_recovery()
}

fn strike_off(session: &Session, agent: &Agent<'_>, told: &[u64], killed_at: Option<u64>) -> Result<()> {
    if told.is_empty() && killed_at.is_none() {
        return Ok(());
    }
    let (mut draft, locked) = begin(session, agent)?;
    draft.strike_off(|untold| told.contains(&untold.seq), killed_at);
    hooks::commit(session, &locked, draft)?;
    Ok(())
}
