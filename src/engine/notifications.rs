//! The notification outbox: transitions for `on-state-change` and `on-recovery-complete`, and
//! attentions for people and `on-attention` (contract, execution §5).
//!
//! If the hook is installed, the commit of a transition or an attention marks it as pending in
//! `state.json`. After the process has released the agent's lock, it notifies in order, and removes
//! the marks by another commit. If the process is killed before that, or was called from a hook, a
//! later step notifies. So each notification is sent at least once.

use std::collections::VecDeque;

use crate::error::Result;
use crate::model::attention::Attention;
use crate::model::id::AgentName;
use crate::model::state::PendingTransition;
use crate::report::text::one_line;
use crate::rules::transition::draft::Draft;
use crate::store::Sharing;

use super::context::Context;
use super::hooks::{self, HookEvent, HookName, InstalledHook, is_nested};
use super::session::{Pending, Session};

/// Maximum width of the text of an attention, in columns. It may come from outside and have any
/// length. The command that answers a question follows it, and is never cut.
const LINE: usize = 500;

/// Reports attentions that this process has raised, for commands without [`Context::notify`] at the
/// end.
pub fn notify_rest(session: &Session) {
    // The locks in `pending` keep other processes from reporting the same attentions.
    let pending = session.pending.take();
    let mut left: VecDeque<_> =
        pending.iter().filter(|(_, pending)| !pending.attentions.is_empty()).collect();
    let mut notify = || -> Result<()> {
        let store = if left.is_empty() { return Ok(()) } else { session.store()? };
        while let Some((name, pending)) = left.front() {
            Context::new(session, &store.agent(name)?).notify_attentions(&pending.attentions);
            left.pop_front();
        }
        Ok(())
    };
    if let Err(error) = notify() {
        for (name, pending) in left {
            pending.attentions.iter().for_each(|attention| print_attention(session, name, attention));
        }
        session.out.note(&error.to_string());
    }
}

fn print_attention(session: &Session, agent: &AgentName, attention: &Attention) {
    let mut attention = attention.clone();
    let answer = attention.answer_with.take().map(|command| format!("; answer: {command}"));
    let line = one_line(&attention.to_string(), LINE);
    session.out.alarm(&format!("{agent}: {line}{}", answer.unwrap_or_default()));
}

impl Context<'_> {
    /// Notifies people and hooks of everything that this process has committed about the agent
    /// since the last call. Must be called without the agent's lock.
    pub fn notify(self) {
        let pending = {
            let mut all = self.session.pending.borrow_mut();
            let own = all.extract_if(.., |(name, _)| name == self.agent.name());
            own.map(|(_, pending)| pending).next().unwrap_or_default()
        };
        // Attentions come first, because the hooks of transitions may take long or be killed.
        self.notify_attentions(&pending.attentions);
        if !pending.transitions.is_empty()
            && let Err(error) = self.notify_transitions(pending)
        {
            self.session.out.note(&error.to_string());
        }
    }

    /// Notifies people and hooks of commits that killed processes, or commands called from hooks,
    /// have left pending. Does nothing while a live process has notifications to send. Must be
    /// called without the agent's lock.
    pub fn notify_abandoned(self) {
        if !is_nested()
            && let Err(error) = self.try_notify_abandoned()
        {
            self.session.out.note(&error.to_string());
        }
    }

    fn try_notify_abandoned(self) -> Result<()> {
        let Some(_alone) = self.agent.lock_notifications(Sharing::Exclusive)? else { return Ok(()) };
        let state = self.agent.peek()?;
        let marked = state.attention.into_iter().flat_map(|mark| mark.newest).chain(state.asked);
        let attentions: Vec<Attention> =
            marked.filter(|one| one.pending).map(|one| one.shown(self.agent.name())).collect();
        self.notify_attentions(&attentions);
        self.session.raised.borrow_mut().extend(attentions);
        match hooks::find(self, HookName::OnStateChange) {
            Some(hook) => self.run_hooks(&state.transitions, Some(&hook), None),
            // The hook was removed after the commit, so the transitions are only cleared.
            None => {
                self.clear_transitions(&state.transitions.iter().map(|one| one.seq).collect::<Vec<_>>(), None)
            }
        }
    }

    fn notify_attentions(self, attentions: &[Attention]) {
        let Context { session, agent } = self;
        if attentions.is_empty() {
            return;
        }
        attentions.iter().for_each(|attention| print_attention(session, agent.name(), attention));
        let hook = hooks::find(self, HookName::OnAttention);
        // Without a hook, a commit is needed only for attentions that are still marked as pending.
        // A command called from a hook leaves these to a later step.
        let is_due = hook.is_some() || (attentions.iter().any(|one| one.pending) && !is_nested());
        let mut notified = Vec::new();
        // A process that got a signal ends soon, so a later step sends the other notifications.
        for attention in attentions.iter().take_while(|_| session.cancelled_by.get().is_none()) {
            let ran = hook.as_ref().map(|hook| hook.run(&HookEvent::about(agent.name(), attention)));
            // If the hook could not be started, for instance on a full disk, the attention stays
            // pending for a later step.
            if !matches!(ran, Some(Err(_))) {
                notified.push(attention.seq);
            }
            if let Some(ran) = ran {
                hooks::report_failure(session, ran);
            }
        }
        let clear = |draft: &mut Draft| draft.clear_pending(|attention| notified.contains(&attention.seq));
        if is_due && let Err(error) = self.update(clear) {
            session.out.note(&format!("{}: {error}", agent.name()));
        }
    }

    /// Notifies the hooks of this process's transitions, and before them of earlier ones that
    /// killed processes have left pending.
    fn notify_transitions(self, pending: Pending) -> Result<()> {
        let Pending { transitions, is_heard, mut lock, .. } = pending;
        let changed = is_heard.then(|| hooks::find(self, HookName::OnStateChange)).flatten();
        let has_recovered =
            transitions.iter().any(|one| HookEvent::end_of_recovery(self.agent.name(), one).is_some());
        let recovered = has_recovered.then(|| hooks::find(self, HookName::OnRecoveryComplete)).flatten();
        let first = transitions.first().map_or(0, |one| one.seq);
        if changed.is_some() && self.agent.peek()?.transitions.iter().any(|one| one.seq < first) {
            drop(lock);
            lock = self.agent.lock_notifications(Sharing::Exclusive)?;
            if lock.is_some() {
                let mut left = self.agent.peek()?.transitions;
                left.retain(|one| one.seq < first);
                self.run_hooks(&left, changed.as_ref(), None)?;
            } else {
                lock = self.agent.lock_notifications(Sharing::Shared)?;
            }
        }
        let notified = self.run_hooks(&transitions, changed.as_ref(), recovered.as_ref());
        drop(lock);
        notified
    }

    /// Runs the hooks for each transition, and clears the pending marks of the transitions for
    /// which the hook `changed` has run. If this process is killed, the next step repeats the
    /// interrupted notification and continues.
    fn run_hooks(
        self,
        transitions: &[PendingTransition],
        changed: Option<&InstalledHook<'_>>,
        recovered: Option<&InstalledHook<'_>>,
    ) -> Result<()> {
        let Context { session, agent } = self;
        let (mut notified, mut killed_at) = (Vec::new(), None);
        // A process that got a signal ends soon, so a later step sends the other notifications.
        for transition in transitions.iter().take_while(|_| session.cancelled_by.get().is_none()) {
            if let Some(hook) = changed.filter(|_| killed_at.is_none()) {
                let ran = hook.run(&HookEvent::transition(agent.name(), transition));
                let was_killed = match &ran {
                    Ok(failure) => failure.as_ref().is_some_and(|failure| failure.was_killed),
                    Err(_) => true,
                };
                hooks::report_failure(session, ran);
                if was_killed && session.cancelled_by.get().is_some() {
                    break;
                }
                if was_killed && !transition.again {
                    killed_at = Some(transition.seq);
                } else {
                    notified.push(transition.seq);
                }
            }
            if let (Some(hook), Some(event)) =
                (recovered, HookEvent::end_of_recovery(agent.name(), transition))
            {
                hooks::report_failure(session, hook.run(&event));
            }
        }
        self.clear_transitions(&notified, killed_at)
    }

    fn clear_transitions(self, notified: &[u64], killed_at: Option<u64>) -> Result<()> {
        if notified.is_empty() && killed_at.is_none() {
            return Ok(());
        }
        self.update(|draft| draft.strike_off(|one| notified.contains(&one.seq), killed_at))
    }
}
