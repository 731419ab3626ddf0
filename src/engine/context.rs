//! Context in which a command changes one agent's records. All commits are made here.
//!
//! Each commit collects the transitions and attentions that it makes; [`Context::notify`] reports
//! them.

use crate::error::{Error, Result};
use crate::model::preemption::Section;
use crate::model::records::{LeaseState, Records};
use crate::model::retention::Retention;
use crate::model::run::Run;
use crate::model::state::{CurrentRun, PendingTransition, State};
use crate::model::time::Time;
use crate::model::transaction::Transaction;
use crate::process::hook;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::preemption as rules;
use crate::store::{Agent, AgentTxn, Sharing, Snapshot, Store};

use super::hooks::{HookName, is_nested, program};
use super::load::{self, Loading, Purpose};
use super::owner::away;
use super::session::{Pending, Session};

/// Divisor of `retention.output`: after a run that has written more than the quotient, the next
/// step that comes to rest checks all run directories.
const OUTPUT_DIVISOR: u64 = 100;

/// Session of a command, and the agent on which it works.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub session: &'a Session,
    pub agent: &'a Agent<'a>,
}

/// Result of a change to an agent's records.
pub struct Committed<T> {
    /// Return value of the function that changed the draft.
    pub made: T,
    /// State of the agent after the change.
    pub state: State,
    /// True if the change was committed, false if there was nothing to commit.
    pub is_changed: bool,
}

/// Transaction on an agent: its lock, and the draft of its changed records.
pub struct OpenTxn<'a> {
    context: Context<'a>,
    pub locked: AgentTxn<'a>,
    pub draft: Draft,
}

impl<'a> Context<'a> {
    pub fn new(session: &'a Session, agent: &'a Agent<'a>) -> Context<'a> {
        Context { session, agent }
    }

    pub fn store(self) -> &'a Store {
        self.agent.store()
    }

    /// Takes the agent's lock and loads the records.
    pub fn open(self) -> Result<OpenTxn<'a>> {
        self.session.is_about(self.agent.name());
        self.load(self.agent.change(self.session.clock.now())?)
    }

    /// Takes the lock without waiting, and loads the records. `None`: another process has the lock.
    pub fn try_open(self) -> Result<Option<OpenTxn<'a>>> {
        self.agent.try_change(self.session.clock.now())?.map(|locked| self.load(locked)).transpose()
    }

    fn load(self, locked: AgentTxn<'a>) -> Result<OpenTxn<'a>> {
        let state = locked.state()?;
        let draft = self.draft(&locked, state)?;
        Ok(OpenTxn { context: self, locked, draft })
    }

    /// Returns a draft with `state`, which was read under the lock `locked`, and the other records.
    pub fn draft(self, locked: &AgentTxn<'_>, state: State) -> Result<Draft> {
        self.draft_of(&locked.snapshot(&state)?, state)
    }

    /// Returns a draft with `state` and the other records, read from an open snapshot.
    pub fn draft_of(self, seen: &Snapshot<'_>, state: State) -> Result<Draft> {
        let now = self.session.clock.now();
        let at = Loading { lease: LeaseState::Free, now, purpose: Purpose::Look };
        let records = load::records(self.agent, seen, state, at)?;
        let mut draft = Draft::new(records, self.session.clock.stamp()?);
        rules::close_abandoned(&mut draft, |run, section| is_abandoned(self.agent, run, section, now));
        Ok(draft)
    }

    /// Changes the records by the function `rule`, in one transaction. Commits nothing if `rule`
    /// fails or changes nothing.
    pub fn change<T, E: Into<Error>>(
        self,
        rule: impl FnOnce(&mut Draft) -> Result<T, E>,
    ) -> Result<Committed<T>> {
        self.open()?.change(rule)
    }

    /// Changes the records by the function `rule` without waiting for the lock. Returns `None` if
    /// another process has the lock.
    pub fn try_change<T, E: Into<Error>>(
        self,
        rule: impl FnOnce(&mut Draft) -> Result<T, E>,
    ) -> Result<Option<Committed<T>>> {
        self.try_open()?.map(|open| open.change(rule)).transpose()
    }

    /// Commits the draft, unless it is unchanged, and collects its transitions and attentions for
    /// [`Context::notify`]. Returns the records after the commit.
    pub fn commit(self, locked: &AgentTxn<'_>, mut draft: Draft) -> Result<Records> {
        if draft.is_empty() {
            return Ok(draft.records);
        }
        let Context { session, agent } = self;
        if let Some(waited) = locked.take_wait() {
            // A wait for the lock alone causes no commit, because an empty draft has returned
            // above.
            draft.records.state.meters.lock.add(waited);
        }
        let mut pending = session.pending.borrow_mut();
        let at = pending.iter().position(|(name, _)| name == agent.name()).unwrap_or_else(|| {
            pending.push((agent.name().clone(), Pending::default()));
            pending.len() - 1
        });
        let pending = &mut pending[at].1;
        mark_attentions(agent, &mut draft, pending)?;
        let raised = draft.raised().to_vec();
        let (mut transaction, mut records) = draft.finish_and_keep()?;
        let (transitions, is_heard) = mark_transitions(agent, &mut transaction, pending)?;
        records.state = locked.commit(transaction)?;
        pending.transitions.extend(transitions);
        pending.is_heard |= is_heard;
        pending.attentions.extend_from_slice(&raised);
        session.raised.borrow_mut().extend(raised);
        Ok(records)
    }

    /// Changes the records by the function `rule`, which can't fail, in one transaction.
    pub fn update(self, rule: impl FnOnce(&mut Draft)) -> Result<()> {
        let mut open = self.open()?;
        rule(&mut open.draft);
        open.commit().map(drop)
    }

    /// Commits the end of abandoned critical sections, if there are any and the agent's lock is
    /// free. Returns the resulting state.
    pub fn end_abandoned_sections(self, state: State) -> Result<State> {
        let now = self.session.clock.now();
        let Some(run) = &state.current_run else { return Ok(state) };
        if !run.sections.iter().any(|section| is_abandoned(self.agent, run, section, now)) {
            return Ok(state);
        }
        // `try_open` ends critical sections of dead processes in the draft; a commit is left.
        let opened = self.try_open()?;
        opened.map_or(Ok(state), |open| open.commit())
    }

    /// Removes stale files of killed commands, and part of the expired history. Errors are ignored,
    /// because stale files do no harm. Only for a step that holds the agent's lease.
    pub fn sweep(self, locked: AgentTxn<'_>, retention: Retention) {
        let has_hooks = locked.local().sweep().unwrap_or(false);
        let _ = locked.sweep_some(retention, self.session.clock.now());
        drop(locked);
        if has_hooks {
            // Runs without the lock, because ending leftover processes may take seconds.
            let _ = hook::end_abandoned(&self.agent.workdir().tmp());
        }
    }

    /// Clears the directory of a settled run. Errors are ignored, because the whole directory is
    /// removed after its retention period. Must be called after the hooks were notified of the
    /// settlement.
    pub fn clear_run(self, run: &Run, retention: Retention) {
        let _ = self.agent.workdir().run(run.id).clear(run, retention.keeps_context(run.terminal));
        let written = run.stdout_bytes.unwrap_or(0).saturating_add(run.stderr_bytes.unwrap_or(0));
        if written > retention.output.0 / OUTPUT_DIVISOR {
            let _ = self.agent.local().sweep_soon();
        }
    }
}

impl<'a> OpenTxn<'a> {
    /// Changes the draft by the function `rule`, commits the draft, and releases the lock.
    pub fn change<T, E: Into<Error>>(
        mut self,
        rule: impl FnOnce(&mut Draft) -> Result<T, E>,
    ) -> Result<Committed<T>> {
        let made = rule(&mut self.draft).map_err(E::into)?;
        let is_changed = !self.draft.is_empty();
        Ok(Committed { made, state: self.commit()?, is_changed })
    }

    /// Commits the draft and releases the lock. Returns the resulting state of the agent.
    pub fn commit(self) -> Result<State> {
        Ok(self.context.commit(&self.locked, self.draft)?.state)
    }
}

/// Marks the attentions of a draft as pending, if `on-attention` is installed.
fn mark_attentions(agent: &Agent<'_>, draft: &mut Draft, pending: &mut Pending) -> Result<()> {
    if draft.raised().is_empty() || program(agent, HookName::OnAttention).is_none() {
        return Ok(());
    }
    draft.mark_pending();
    // A command called from a hook leaves the notification to a later step.
    if is_nested() { Ok(()) } else { lock_notifications(agent, pending) }
}

/// Marks the transitions of a transaction as pending, if `on-state-change` is installed. Returns
/// the transitions, and true if the hook is installed.
fn mark_transitions(
    agent: &Agent<'_>,
    transaction: &mut Transaction,
    pending: &mut Pending,
) -> Result<(Vec<PendingTransition>, bool)> {
    let transitions = std::mem::take(&mut transaction.moves);
    // Hooks are not notified of changes by a command that a hook has called.
    if transitions.is_empty() || is_nested() {
        return Ok((Vec::new(), false));
    }
    let is_heard = program(agent, HookName::OnStateChange).is_some();
    if is_heard {
        lock_notifications(agent, pending)?;
        transaction.state.transitions.extend(transitions.iter().cloned());
    } else {
        // A hook that is installed later is not notified of earlier transitions.
        transaction.state.transitions.clear();
    }
    Ok((transitions, is_heard))
}

fn lock_notifications(agent: &Agent<'_>, pending: &mut Pending) -> Result<()> {
    if pending.lock.is_none() {
        pending.lock = agent.lock_notifications(Sharing::Shared)?;
    }
    Ok(())
}

/// True if the process of a command's critical section is gone. False if that is unknown, or if the
/// process is on another machine.
fn is_abandoned(agent: &Agent<'_>, run: &CurrentRun, section: &Section, now: Time) -> bool {
    section.of_command
        && away(agent, run, now).is_ok_and(|away| away.is_none())
        && agent
            .ready_local()
            .is_ok_and(|local| matches!(local.is_section_held(run.run_id, section.number), Ok(false)))
}

/// True if a run has a critical section that ends with a process, which changes no record.
pub fn has_command_section(run: &CurrentRun) -> bool {
    run.sections.iter().any(|section| section.of_command)
}
