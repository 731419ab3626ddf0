//! Context in which a command changes one agent's records. All commits are made here.
//!
//! Each commit collects the attentions and transitions that it makes, and [`Context::notify`] tells
//! people and the hooks `on-attention`, `on-state-change` and `on-recovery-complete` of them
//! (contract, execution §5). If `on-attention` or `on-state-change` is installed, the commit also
//! adds them to the outbox in `state.json`, and another commit removes them after the hook has run.
//! If the process is killed before that, or was called from a hook, a later step runs the hook. So
//! each of these notifications is sent at least once.

use crate::error::{Error, Result, Status};
use crate::local::{LockGuard, Sharing};
use crate::model::attention::{Attention, Notification, PendingTransition};
use crate::model::execution::ExecutionState;
use crate::model::id::AgentName;
use crate::model::preemption::Section;
use crate::model::records::{LeaseState, Records};
use crate::model::retention::Retention;
use crate::model::run::Run;
use crate::model::state::{CurrentRun, State};
use crate::model::time::Time;
use crate::report::progress::Unit;
use crate::report::text::one_line;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::preemption as rules;
use crate::store::{Agent, AgentTxn, Snapshot, Store};

use super::hooks::{self, HookEvent, HookName, is_nested, program};
use super::load::{self, Loading, Purpose};
use super::owner::away;
use super::session::{Chosen, Pending, Session};

/// Divisor of `retention.output`: after a run that has written more than the quotient, the next
/// step without work checks all run directories for expired output.
const OUTPUT_DIVISOR: u64 = 100;

/// Maximum width of an attention's text, in columns. A longer text, which may come from outside, is
/// cut. The command that answers a question is printed after the text, and is never cut.
const LINE: usize = 500;

/// Session of a command, and the agent on which it works.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub session: &'a Session,
    pub agent: &'a Agent<'a>,
}

/// Result of a change to an agent's records.
pub struct Committed<T> {
    /// Return value of the function that made the change.
    pub made: T,
    /// State of the agent after the change.
    pub state: State,
    /// True if the change was committed, false if there was nothing to commit.
    pub is_changed: bool,
}

/// Transaction on an agent: its lock, and a draft, which holds the uncommitted changes.
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

    /// Takes the agent's lock without waiting, and loads the records. `None` if it is taken.
    pub fn try_open(self) -> Result<Option<OpenTxn<'a>>> {
        self.agent.try_change(self.session.clock.now())?.map(|locked| self.load(locked)).transpose()
    }

    fn load(self, locked: AgentTxn<'a>) -> Result<OpenTxn<'a>> {
        let state = locked.state()?;
        let draft = self.draft(&locked, state)?;
        Ok(OpenTxn { context: self, locked, draft })
    }

    /// Returns the records with `state`, which was read under the lock `locked`, as an empty draft.
    pub fn draft(self, locked: &AgentTxn<'_>, state: State) -> Result<Draft> {
        self.draft_of(&locked.snapshot(&state)?, state)
    }

    /// Returns `state` and the other records, read from a snapshot, as a draft for changes.
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

    /// Changes the records by the function `rule` without waiting for the agent's lock. Returns
    /// `None` if another process has the lock.
    pub fn try_change<T, E: Into<Error>>(
        self,
        rule: impl FnOnce(&mut Draft) -> Result<T, E>,
    ) -> Result<Option<Committed<T>>> {
        self.try_open()?.map(|open| open.change(rule)).transpose()
    }

    /// Commits the changes of a draft, if there are any, and collects its transitions and
    /// attentions for [`Context::notify`]. Returns the records after the commit.
    pub fn commit(self, locked: &AgentTxn<'_>, mut draft: Draft) -> Result<Records> {
        if draft.is_empty() {
            return Ok(draft.records);
        }
        let Context { session, agent } = self;
        if let Some(waited) = locked.take_wait() {
            // A wait for the lock alone causes no commit: an unchanged draft has returned above.
            draft.records.state.meters.lock.add(waited);
        }
        let mut pending = session.pending.borrow_mut();
        let at = pending.iter().position(|(name, _)| name == agent.name()).unwrap_or_else(|| {
            pending.push((agent.name().clone(), Pending::default()));
            pending.len() - 1
        });
        let pending = &mut pending[at].1;
        let raised = draft.raised().to_vec();
        let (mut transaction, mut records) = draft.finish_and_keep()?;
        // A command that a hook has called tells no hook of its transitions.
        let is_nested = is_nested();
        let moves = if is_nested { Vec::new() } else { std::mem::take(&mut transaction.moves) };
        let heard = heard(agent, &raised, &moves);
        transaction.state.notifications.extend(heard.iter().cloned());
        // A command called from a hook leaves its attentions to a later step.
        let sends = !heard.is_empty() && !is_nested;
        if sends && pending.lock.is_none() {
            pending.lock = agent.lock_notifications(Sharing::Shared)?;
        }
        records.state = locked.commit(transaction)?;
        pending.outbox.extend(heard.into_iter().filter(|_| sends));
        pending.raised.extend_from_slice(&raised);
        pending.recovered.extend(moves.into_iter().filter(|one| one.from == ExecutionState::Recovering));
        session.raised.borrow_mut().extend(raised);
        Ok(records)
    }

    /// Changes the records by the function `rule`, which can't fail, in one transaction.
    pub fn update(self, rule: impl FnOnce(&mut Draft)) -> Result<()> {
        let mut open = self.open()?;
        rule(&mut open.draft);
        open.commit().map(drop)
    }

    /// Commits the end of critical sections whose command has died, if there are any and the
    /// agent's lock is free. Returns the resulting state.
    pub fn end_abandoned_sections(self, state: State) -> Result<State> {
        let now = self.session.clock.now();
        let Some(run) = &state.current_run else { return Ok(state) };
        if !run.sections.iter().any(|section| is_abandoned(self.agent, run, section, now)) {
            return Ok(state);
        }
        // `try_open` has already ended these sections in its draft, so a commit is enough.
        let opened = self.try_open()?;
        opened.map_or(Ok(state), |open| open.commit())
    }

    /// Removes stale files of killed commands, and part of the expired history. Errors are ignored,
    /// because stale files do no harm. Only for a step that holds the agent's lease.
    pub fn sweep(self, locked: AgentTxn<'_>, retention: Retention) {
        let has_hooks = self.agent.local().sweep().unwrap_or(false);
        let _ = locked.sweep_some(retention, self.session.clock.now());
        drop(locked);
        if has_hooks {
            // Runs without the agent's lock, because ending leftover processes may take seconds.
            let _ = hooks::end_abandoned(&self.agent.local().tmp());
        }
    }

    /// Clears the directory of a settled run. Errors are ignored, because the whole directory is
    /// removed after its retention period. Must be called after [`Context::notify`] has told hooks
    /// of the settlement.
    pub fn clear_run(self, run: &Run, retention: Retention) {
        let _ = self.agent.local().run(run.id).clear(run, retention.keeps_context(run.terminal));
        let written = run.stdout_bytes.unwrap_or(0).saturating_add(run.stderr_bytes.unwrap_or(0));
        if written > retention.output.0 / OUTPUT_DIVISOR {
            let _ = self.agent.local().sweep_soon();
        }
    }

    /// Notifies people and hooks of everything that this process has committed about the agent
    /// since the last call. Must be called without the agent's lock.
    pub fn notify(self) {
        let Context { session, agent } = self;
        let mut all = session.pending.borrow_mut();
        let Some(at) = all.iter().position(|(name, _)| name == agent.name()) else { return };
        let Pending { raised, recovered, outbox, lock } = all.swap_remove(at).1;
        drop(all);
        // People are told first, because hooks may take long or be killed.
        print_attentions(session, agent.name(), &raised);
        if !outbox.is_empty()
            && let Err(error) = self.send_own(&outbox, lock)
        {
            session.out.note(&format!("{}: {error}", agent.name()));
        }
        for end in recovered.iter().take_while(|_| session.cancelled_by.get().is_none()) {
            if let Some(event) = HookEvent::end_of_recovery(agent.name(), end)
                && let Some(hook) = hooks::find(self, HookName::OnRecoveryComplete)
            {
                hooks::report_failure(session, hook.run(&event));
            }
        }
    }

    /// Notifies people and hooks of commits that killed processes, or commands called from hooks,
    /// have left in the outbox. Does nothing while a live process has notifications to send. Must
    /// be called without the agent's lock.
    pub fn notify_abandoned(self) {
        let send = || -> Result<()> {
            let Some(_alone) = self.agent.lock_notifications(Sharing::Exclusive)? else { return Ok(()) };
            self.send_abandoned(&self.agent.peek()?.notifications)
        };
        if !is_nested()
            && let Err(error) = send()
        {
            self.session.out.note(&error.to_string());
        }
    }

    fn send_abandoned(self, left: &[Notification]) -> Result<()> {
        let attentions: Vec<Attention> = left.iter().filter_map(Notification::attention).cloned().collect();
        print_attentions(self.session, self.agent.name(), &attentions);
        self.session.raised.borrow_mut().extend(attentions);
        self.send(left)
    }

    /// Sends this process's notifications, and before them earlier ones that killed processes have
    /// left in the outbox.
    fn send_own(self, own: &[Notification], mut lock: Option<LockGuard>) -> Result<()> {
        let agent = self.agent;
        let is_earlier = |one: &Notification| own.iter().all(|other| one.seq() < other.seq());
        if agent.peek()?.notifications.iter().any(is_earlier) {
            drop(lock);
            lock = agent.lock_notifications(Sharing::Exclusive)?;
            if lock.is_some() {
                let mut left = agent.peek()?.notifications;
                left.retain(is_earlier);
                self.send_abandoned(&left)?;
            } else {
                lock = agent.lock_notifications(Sharing::Shared)?;
            }
        }
        let sent = self.send(own);
        drop(lock);
        sent
    }

    /// Runs the hook for each notification. Then removes from the outbox those for which the hook
    /// has run or is no longer installed. After a kill of this process the next step runs the
    /// interrupted hook again and continues.
    fn send(self, news: &[Notification]) -> Result<()> {
        let Context { session, agent } = self;
        let alarmed = hooks::find(self, HookName::OnAttention);
        let changed = hooks::find(self, HookName::OnStateChange);
        let (mut sent, mut killed) = (Vec::new(), Vec::new());
        let mut is_interrupted = false;
        // A process that got a signal ends soon, so a later step sends the other notifications.
        for one in news.iter().take_while(|_| session.cancelled_by.get().is_none()) {
            let (hook, event, again) = match one {
                Notification::Attention(attention) => {
                    (&alarmed, HookEvent::about(agent.name(), attention), attention.again)
                }
                // Transitions must reach the hook in order: those after an interrupted one wait.
                Notification::Transition(_) if is_interrupted => continue,
                Notification::Transition(change) => {
                    (&changed, HookEvent::transition(agent.name(), change), change.again)
                }
            };
            if let Some(hook) = hook {
                let ran = hook.run(&event);
                let (has_started, was_killed) = match &ran {
                    Ok(failure) => (true, failure.as_ref().is_some_and(|failure| failure.was_killed)),
                    Err(_) => (false, true),
                };
                hooks::report_failure(session, ran);
                if was_killed && session.cancelled_by.get().is_some() {
                    break;
                }
                let is_attention = one.attention().is_some();
                if was_killed && !again {
                    is_interrupted |= !is_attention;
                    killed.extend((has_started || !is_attention).then(|| one.seq()));
                    continue;
                }
            }
            sent.push(one.seq());
        }
        if sent.is_empty() && killed.is_empty() {
            return Ok(());
        }
        self.update(|draft| draft.strike_off(&sent, &killed))
    }
}

impl Session {
    /// Runs `each` for each agent, even after an error. `are_all`: no agent was named, so an agent
    /// that was removed or exported with `--move` meanwhile is skipped.
    pub fn each_agent(
        &self,
        store: &Store,
        names: &[AgentName],
        are_all: bool,
        mut each: impl FnMut(Context<'_>) -> Result<Status>,
    ) -> Status {
        let mut status = Status::Done;
        let mut progress = self.out.progress(Unit::Agents, Some(names.len() as u64));
        for name in names {
            if self.out.is_closed() {
                break;
            }
            let done = store.agent(name).and_then(|agent| each(Context::new(self, &agent)));
            status = status.graver(match done.map_err(|error| self.explained(error, Some(name))) {
                Ok(reached) => reached,
                Err(error) if are_all && error.has_left() => Status::Done,
                Err(error) => {
                    self.out.failure(&error, Some(name.as_str()), Some(name.as_str()));
                    error.exit_status()
                }
            });
            progress.advance(1);
        }
        status
    }

    /// Runs `each` for each agent of a command that lists. Results are printed without the name of
    /// the agent if only one agent was named.
    pub fn each_chosen(
        &self,
        store: &Store,
        chosen: &Chosen,
        mut each: impl FnMut(Context<'_>) -> Result<Status>,
    ) -> Result<Status> {
        if let ([name], false) = (chosen.names.as_slice(), chosen.are_told_apart) {
            return each(Context::new(self, &store.agent(name)?));
        }
        let status = self.each_agent(store, &chosen.names, chosen.are_all, |context| {
            self.out.is_about(chosen.are_told_apart.then(|| context.agent.name().to_string()));
            each(context)
        });
        self.out.is_about(None);
        Ok(status)
    }
}

impl<'a> OpenTxn<'a> {
    /// Changes the records by the function `rule`, commits the changes, and releases the lock.
    pub fn change<T, E: Into<Error>>(
        mut self,
        rule: impl FnOnce(&mut Draft) -> Result<T, E>,
    ) -> Result<Committed<T>> {
        let made = rule(&mut self.draft).map_err(E::into)?;
        let is_changed = !self.draft.is_empty();
        Ok(Committed { made, state: self.commit()?, is_changed })
    }

    /// Commits the changes and releases the lock. Returns the resulting state of the agent.
    pub fn commit(self) -> Result<State> {
        Ok(self.context.commit(&self.locked, self.draft)?.state)
    }
}

/// Returns the notifications for which a hook is installed. Attentions come first, because the hook
/// for transitions may take long or be killed.
fn heard(agent: &Agent<'_>, raised: &[Attention], moves: &[PendingTransition]) -> Vec<Notification> {
    let mut heard = Vec::new();
    if !raised.is_empty() && program(agent, HookName::OnAttention).is_some() {
        heard.extend(raised.iter().cloned().map(Notification::Attention));
    }
    if !moves.is_empty() && program(agent, HookName::OnStateChange).is_some() {
        heard.extend(moves.iter().cloned().map(Notification::Transition));
    }
    heard
}

/// True if a critical section belongs to a command whose process has died. False if that is
/// unknown, or if the process is on another machine.
fn is_abandoned(agent: &Agent<'_>, run: &CurrentRun, section: &Section, now: Time) -> bool {
    section.of_command
        && away(agent, run, now).is_ok_and(|away| away.is_none())
        && agent
            .ready_local()
            .is_ok_and(|local| matches!(local.is_section_held(run.run_id, section.number), Ok(false)))
}

/// True if a critical section of a run belongs to a command: its end is not written to a record.
pub fn has_command_section(run: &CurrentRun) -> bool {
    run.sections.iter().any(|section| section.of_command)
}

/// Sends the notifications of this process, for commands without [`Context::notify`] at the end.
pub fn notify_rest(session: &Session) {
    let pending = session.pending.borrow();
    let told = pending.iter().filter(|(_, pending)| !pending.raised.is_empty());
    let names: Vec<AgentName> = told.map(|(name, _)| name.clone()).collect();
    drop(pending);
    let notify = || -> Result<()> {
        let store = if names.is_empty() { return Ok(()) } else { session.store()? };
        names.iter().try_for_each(|name| {
            Context::new(session, &store.agent(name)?).notify();
            Ok(())
        })
    };
    if let Err(error) = notify() {
        for (name, pending) in session.pending.take() {
            print_attentions(session, &name, &pending.raised);
        }
        session.out.note(&error.to_string());
    }
}

fn print_attentions(session: &Session, agent: &AgentName, attentions: &[Attention]) {
    for attention in attentions {
        let mut attention = attention.clone();
        let answer = attention.answer_with.take().map(|command| format!("; answer: {command}"));
        let line = one_line(&attention.to_string(), LINE);
        session.out.alarm(&format!("{agent}: {line}{}", answer.unwrap_or_default()));
    }
}
