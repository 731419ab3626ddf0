//! The notification outbox: transitions for `on-state-change` and `on-recovery-complete`, and
//! attentions for people and `on-attention` (contract, execution §5).
//!
//! If the hook is installed, the commit of a transition or an attention marks it as pending in
//! `state.json`. The process that made the commit notifies after it has released the agent's lock,
//! in order, and another commit removes the mark. If the process is killed in between, or a hook
//! has called it, a later step notifies. So each notification is sent at least once.

use crate::error::Result;
use crate::model::attention::Attention;
use crate::model::id::AgentName;
use crate::model::records::InstalledHooks;
use crate::model::state::PendingTransition;
use crate::model::transaction::Transaction;
use crate::report::text::one_line;
use crate::rules::transition::draft::Draft;
use crate::store::{Agent, LockGuard, Sharing};

use super::context::Context;
use super::hooks::{
    self, HookEvent, HookFailure, InstalledHook, ON_ATTENTION, ON_RECOVERY_COMPLETE, ON_STATE_CHANGE,
    is_nested, program,
};
use super::session::Session;

/// Maximum length of the line about an attention, in bytes. The reason may come from outside and be
/// of any length.
const LINE: usize = 500;

/// Notifications of the commits of this process that were not sent yet, by agent.
#[derive(Debug, Default)]
pub struct Notifications {
    agents: Vec<(AgentName, Pending)>,
}

/// Pending notifications about one agent.
#[derive(Debug, Default)]
struct Pending {
    attentions: Vec<Attention>,
    transitions: Vec<PendingTransition>,
    /// True if `on-state-change` was installed at a commit of these transitions.
    is_heard: bool,
    /// While this is held, no other process treats the notifications as abandoned.
    lock: Option<LockGuard>,
}

impl Notifications {
    fn of(&mut self, name: &AgentName) -> &mut Pending {
        let at = self.agents.iter().position(|(other, _)| other == name).unwrap_or_else(|| {
            self.agents.push((name.clone(), Pending::default()));
            self.agents.len() - 1
        });
        &mut self.agents[at].1
    }

    /// Takes the notifications about one agent. Those about others remain: a parent starts and
    /// stops children while its own are pending.
    fn take(&mut self, name: &AgentName) -> Pending {
        let at = self.agents.iter().position(|(other, _)| other == name);
        at.map(|at| self.agents.remove(at).1).unwrap_or_default()
    }

    fn lock(&mut self, agent: &Agent<'_>) -> Result<()> {
        let pending = self.of(agent.name());
        if pending.lock.is_none() {
            pending.lock = agent.telling(Sharing::Shared)?;
        }
        Ok(())
    }

    /// Marks the attentions of a draft as pending, before its commit.
    pub fn mark_attentions(&mut self, agent: &Agent<'_>, draft: &mut Draft) -> Result<()> {
        if draft.raised().is_empty() || program(agent, ON_ATTENTION).is_none() {
            return Ok(());
        }
        draft.is_to_be_told();
        // A command that a hook has called leaves the notification to a later step.
        if is_nested() { Ok(()) } else { self.lock(agent) }
    }

    /// Marks the transitions of a transaction as pending, before its commit. Returns them, and
    /// whether `on-state-change` is installed, for `add` after the commit.
    pub fn mark_transitions(
        &mut self,
        agent: &Agent<'_>,
        transaction: &mut Transaction,
        onlookers: InstalledHooks,
    ) -> Result<(Vec<PendingTransition>, bool)> {
        let transitions = std::mem::take(&mut transaction.moves);
        // No hook is notified of the changes of a command that a hook has called.
        if transitions.is_empty() || is_nested() {
            return Ok((Vec::new(), false));
        }
        let is_heard = onlookers.on_state_change || program(agent, ON_STATE_CHANGE).is_some();
        if is_heard {
            self.lock(agent)?;
            transaction.state.untold.extend(transitions.iter().cloned());
        } else {
            // A hook that is installed later is not notified of earlier transitions.
            transaction.state.untold.clear();
        }
        Ok((transitions, is_heard))
    }

    /// Adds the transitions of a commit.
    pub fn add_transitions(&mut self, agent: &AgentName, (made, is_heard): (Vec<PendingTransition>, bool)) {
        if !made.is_empty() {
            let pending = self.of(agent);
            pending.transitions.extend(made);
            pending.is_heard |= is_heard;
        }
    }

    /// Adds the attentions that a commit has raised.
    pub fn add_attentions(&mut self, agent: &AgentName, raised: &[Attention]) {
        if !raised.is_empty() {
            self.of(agent).attentions.extend_from_slice(raised);
        }
    }

    /// Returns the first agent with attentions that were not reported.
    fn next_with_attentions(&self) -> Option<AgentName> {
        let (name, _) = self.agents.iter().find(|(_, pending)| !pending.attentions.is_empty())?;
        Some(name.clone())
    }
}

/// Reports the attentions of all agents that this process has raised and `Context::tell` has not
/// reported, because some commands end without a call of it.
pub fn tell_rest(session: &Session) {
    let next = || session.pending.borrow().next_with_attentions();
    let Some(first) = next() else { return };
    let told = session.store().and_then(|store| {
        let mut name = Some(first);
        while let Some(known) = name {
            let agent = store.agent(&known)?;
            let attentions = std::mem::take(&mut session.pending.borrow_mut().of(&known).attentions);
            Context::new(session, &agent).tell_attentions(&attentions);
            name = next();
        }
        Ok(())
    });
    if let Err(error) = told {
        for (name, pending) in session.pending.take().agents {
            pending.attentions.iter().for_each(|attention| say(session, &name, attention));
        }
        session.out.note(&error.to_string());
    }
}

fn say(session: &Session, agent: &AgentName, attention: &Attention) {
    session.out.alarm(&format!("{agent}: {}", one_line(&attention.to_string(), LINE)));
}

impl Context<'_> {
    /// Notifies people and hooks of everything that this process has committed about the agent
    /// since the last call. Must be called without the agent's lock.
    pub fn tell(self) {
        let pending = self.session.pending.borrow_mut().take(self.agent.name());
        // Attentions come first, because the hooks that follow may take long, or be killed.
        self.tell_attentions(&pending.attentions);
        if !pending.transitions.is_empty()
            && let Err(error) = self.tell_transitions(pending)
        {
            self.session.out.note(&error.to_string());
        }
    }

    /// Notifies people and hooks of what killed processes, and commands that hooks have called,
    /// left pending. A living process sends its own notifications. Must be called without the
    /// agent's lock.
    pub fn tell_abandoned(self) {
        if !is_nested()
            && let Err(error) = self.try_to_tell_abandoned()
        {
            self.session.out.note(&error.to_string());
        }
    }

    fn try_to_tell_abandoned(self) -> Result<()> {
        let Some(_alone) = self.agent.telling(Sharing::Exclusive)? else { return Ok(()) };
        let state = self.agent.peek()?;
        let marked = state.attention.into_iter().flat_map(|mark| mark.newest).chain(state.asked);
        let attentions: Vec<Attention> = marked
            .filter(|attention| attention.untold)
            .map(|attention| attention.shown(self.agent.name()))
            .collect();
        self.tell_attentions(&attentions);
        self.session.raised.borrow_mut().extend(attentions);
        match hooks::find(self, ON_STATE_CHANGE) {
            Some(hook) => self.run_hooks(&state.untold, Some(&hook), None),
            // The hook was removed meanwhile.
            None => self.clear_transitions(&state.untold.iter().map(|one| one.seq).collect::<Vec<_>>(), None),
        }
    }

    fn tell_attentions(self, attentions: &[Attention]) {
        let Context { session, agent } = self;
        if attentions.is_empty() {
            return;
        }
        attentions.iter().for_each(|attention| say(session, agent.name(), attention));
        let hook = hooks::find(self, ON_ATTENTION);
        // Without a hook no mark has to be cleared. A command that was called from a hook leaves
        // the notification to a later step.
        let is_due = hook.is_some() || (attentions.iter().any(|one| one.untold) && !is_nested());
        let mut told = Vec::new();
        for attention in attentions {
            // A process that got a signal to end leaves the rest to a later step.
            if session.cancelled_by.get().is_some() {
                break;
            }
            let ran = hook.as_ref().map(|hook| hook.run(&HookEvent::about(agent.name(), attention)));
            // A hook that could not be started, on a full disk for instance, stays pending for a
            // later step.
            if !matches!(ran, Some(Err(_))) {
                told.push(attention.seq);
            }
            if let Some(ran) = ran {
                hooks::report_failure(session, ran);
            }
        }
        let clear = |draft: &mut Draft| draft.told(|attention| told.contains(&attention.seq));
        if is_due && let Err(error) = self.update(clear) {
            session.out.note(&format!("{}: {error}", agent.name()));
        }
    }

    /// Notifies the hooks of the transitions of this process, and before them of those that killed
    /// processes left.
    fn tell_transitions(self, pending: Pending) -> Result<()> {
        let Pending { transitions, is_heard, mut lock, .. } = pending;
        let changed = is_heard.then(|| hooks::find(self, ON_STATE_CHANGE)).flatten();
        let has_recovered = transitions.iter().any(|one| self.end_of_recovery(one).is_some());
        let recovered = has_recovered.then(|| hooks::find(self, ON_RECOVERY_COMPLETE)).flatten();
        let first = transitions.first().map_or(0, |one| one.seq);
        if changed.is_some() && self.agent.peek()?.untold.iter().any(|one| one.seq < first) {
            drop(lock);
            lock = self.agent.telling(Sharing::Exclusive)?;
            if lock.is_some() {
                let mut left = self.agent.peek()?.untold;
                left.retain(|one| one.seq < first);
                self.run_hooks(&left, changed.as_ref(), None)?;
            } else {
                lock = self.agent.telling(Sharing::Shared)?;
            }
        }
        let told = self.run_hooks(&transitions, changed.as_ref(), recovered.as_ref());
        drop(lock);
        told
    }

    /// Runs the hooks for each transition, and clears the marks of those of which `changed` was
    /// notified. If this process is killed, the next step repeats the interrupted one and
    /// continues.
    fn run_hooks(
        self,
        transitions: &[PendingTransition],
        changed: Option<&InstalledHook<'_>>,
        recovered: Option<&InstalledHook<'_>>,
    ) -> Result<()> {
        let Context { session, agent } = self;
        let (mut told, mut killed_at) = (Vec::new(), None);
        for transition in transitions {
            // A process that got a signal to end leaves the rest to a later step.
            if session.cancelled_by.get().is_some() {
                break;
            }
            if let Some(hook) = changed.filter(|_| killed_at.is_none()) {
                let ran = hook.run(&HookEvent::transition(agent.name(), transition));
                let was_killed = ran
                    .as_ref()
                    .map_or(true, |failure| failure.as_ref().is_some_and(HookFailure::was_killed));
                hooks::report_failure(session, ran);
                if was_killed && session.cancelled_by.get().is_some() {
                    break;
                }
                if was_killed && !transition.again {
                    killed_at = Some(transition.seq);
                } else {
                    told.push(transition.seq);
                }
            }
            if let (Some(hook), Some(event)) = (recovered, self.end_of_recovery(transition)) {
                hooks::report_failure(session, hook.run(&event));
            }
        }
        self.clear_transitions(&told, killed_at)
    }

    fn end_of_recovery(self, transition: &PendingTransition) -> Option<HookEvent> {
        HookEvent::transition(self.agent.name(), transition).end_of_recovery()
    }

    fn clear_transitions(self, told: &[u64], killed_at: Option<u64>) -> Result<()> {
        if told.is_empty() && killed_at.is_none() {
            return Ok(());
        }
        self.update(|draft| draft.strike_off(|one| told.contains(&one.seq), killed_at))
    }
}
