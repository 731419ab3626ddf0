//! Effects: actions outside the records of an agent, which follow a commit or which a step finds
//! due. Settlement of runs whose tick has died, and recovery from failure (contract, execution §9).

use crate::error::Result;
use crate::local::Subject;
use crate::model::agent::Status;
use crate::model::execution::ExecutionState;
use crate::model::id::RunId;
use crate::model::records::Records;
use crate::model::retention::Retention;
use crate::model::run::{Run, Terminal};
use crate::model::state::State;
use crate::model::task::{Task, TaskJob, TaskStatus};
use crate::model::time::Time;
use crate::model::turn::TurnEnd;
use crate::process::ProcessMark;
use crate::process::leftover::LeftoverProcesses;
use crate::rules::execution::overdue;
use crate::rules::step::Before;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::recovery;
use crate::rules::transition::task::TaskEnding;
use crate::store::{Agent, AgentTxn, HeldLease, Snapshot};

use super::context::{Context, OpenTxn};
use super::delegate;
use super::hooks::{self, HookEvent, HookFailure, HookName};
use super::lookup::existing;
use super::monitor::{KILL_GRACE, LeaseKeeper, of_state};
use super::owner::TICK_GONE;
use super::stop::{end_tasks, stop_child};
use super::tasks::{self, SUPERVISOR_GONE, TaskAction, due_with_child};
use super::turn::{before_suspension, settle_in_draft, settle_refusable};

/// Action outside an agent's records. If this process is killed, the next step finds the action.
#[derive(Debug)]
pub enum Effect {
    /// Notify people and hooks of the commits of this process.
    Tell,
    /// Notify people and hooks of earlier commits of which other processes have not notified them.
    TellAbandoned,
    /// Settle the parent's task if this child has completed, failed or stopped.
    TellParent,
    /// Settle a run whose tick has died. The caller holds the run's lease.
    Settle(RunId),
    /// Deliver the messages in the outbox to other agents.
    Deliver,
    /// Do what a task that has not ended needs.
    Task(Box<Task>, TaskAction),
    /// End the tasks of an agent that stopped itself after a failure.
    EndTasks,
    /// Clear the directory of a settled run, after the hooks were notified of the settlement.
    Clear(Box<Run>, Retention),
}

/// Returns the effects that carry out `before`, which a step does before it loads the records.
pub fn before(
    agent: &Agent<'_>,
    seen: &Snapshot<'_>,
    state: &State,
    now: Time,
    before: Before,
) -> Result<Vec<Effect>> {
    Ok(match before {
        Before::Tell => vec![Effect::TellAbandoned],
        Before::Settle(run_id) => vec![Effect::Settle(run_id)],
        Before::Deliver => vec![Effect::Deliver],
        Before::LookAfterTasks => {
            let found = tasks::due(agent, seen.open()?, state, now)?;
            found.into_iter().map(|(task, due)| Effect::Task(Box::new(task), due)).collect()
        }
    })
}

/// Returns the effects that follow the end of a turn. `run`: record of the run, if this process has
/// settled it.
pub fn after_turn(Records { state, tasks, policy, .. }: &Records, run: Option<Run>) -> Vec<Effect> {
    let mut effects = Vec::new();
    if !state.outbox.is_empty() {
        effects.push(Effect::Deliver);
    }
    // A stopped agent starts no tasks that the outcome of its last turn has requested.
    if state.status != Status::Stopped {
        let queued = tasks.iter().filter(|task| task.status == TaskStatus::Queued);
        effects.extend(queued.map(|task| {
            let due = match task.job {
                TaskJob::Command { .. } => TaskAction::Begin,
                TaskJob::ChildAgent { .. } => TaskAction::HandOver,
            };
            Effect::Task(Box::new(task.clone()), due)
        }));
    }
    effects.extend(after_settlement(state, run, policy.retention));
    effects
}

/// Returns the effects that follow the settlement of a run. `run`: record of the settled run.
pub fn after_settlement(state: &State, run: Option<Run>, retention: Retention) -> Vec<Effect> {
    let clear = run.map(|run| Effect::Clear(Box::new(run), retention));
    [Effect::Tell].into_iter().chain(clear).chain(after_failure(state)).collect()
}

/// Returns the effect that ends the tasks of an agent that stopped itself after a failure. `None`
/// after a `stop` command, which ends the tasks itself.
pub fn after_failure(state: &State) -> Option<Effect> {
    let by_stop = |terminal| matches!(terminal, Terminal::Aborted | Terminal::Completed);
    let was_stopped = state.last_turn.as_ref().is_some_and(|turn| by_stop(turn.terminal));
    let is_left = state.status == Status::Stopped && state.open_tasks > 0 && !was_stopped;
    is_left.then_some(Effect::EndTasks)
}

impl Context<'_> {
    /// Runs effects in order; effects that an effect causes run right after that effect. Must be
    /// called without the agent's lock. Returns the run that was settled, if any.
    ///
    /// An error of a task is printed, and the next step retries, so that the task does not block
    /// other work of the agent. Any other error ends the loop.
    pub fn run_effects(self, effects: impl IntoIterator<Item = Effect>) -> Result<Option<RunId>> {
        let (out, name) = (&self.session.out, self.agent.name());
        let mut settled = None;
        for effect in effects {
            match effect {
                Effect::Tell => self.notify(),
                Effect::TellAbandoned => self.notify_abandoned(),
                Effect::TellParent => self.settle_parent(),
                Effect::Settle(run_id) => {
                    if let Some(after) = settle_abandoned(self, run_id)? {
                        settled = Some(run_id);
                        self.run_effects(after)?;
                    }
                }
                Effect::Deliver => self.deliver()?,
                Effect::Task(task, due) => {
                    let id = task.id;
                    if let Err(error) = self.run_task_action(*task, due) {
                        out.note(&format!("{name}: {id}: {error}"));
                    }
                }
                Effect::EndTasks => {
                    if let Err(error) = end_tasks(self) {
                        out.note(&format!("{name}: its tasks have not all ended: {error}"));
                    }
                }
                Effect::Clear(run, retention) => self.clear_run(&run, retention),
            }
        }
        Ok(settled)
    }

    /// Settles the parent's task at once if this child has completed, failed or stopped. Errors are
    /// only reported, because the parent's next step also settles the task.
    pub fn settle_parent(self) {
        if let Err(error) = try_to_settle(self) {
            let name = self.agent.name();
            self.session.out.note(&format!("{name}: its parent does not know it yet: {error}"));
        }
    }

    fn run_task_action(self, task: Task, due: TaskAction) -> Result<()> {
        match due {
            TaskAction::Begin => tasks::begin(self, task.id),
            TaskAction::Settle => match self.agent.lease(Subject::Task(task.id), self.session.clock.now())? {
                Some(held) => tasks::settle(self, task.id, &held, SUPERVISOR_GONE).map(drop),
                None => Ok(()),
            },
            TaskAction::HandOver => delegate::hand_over(self, task.id),
            TaskAction::End(end) => tasks::finish(self, task.id, TaskEnding::Child(end)).map(drop),
            TaskAction::StopChild(end) => stop_child(self, &task, end),
        }
    }
}

fn try_to_settle(context: Context<'_>) -> Result<()> {
    let Context { session, agent: child } = context;
    let store = child.store();
    let Some(name) = child.identity()?.parent else { return Ok(()) };
    let Some(parent) = existing(store, &name)? else { return Ok(()) };
    if parent.peek()?.open_tasks == 0 {
        return Ok(());
    }
    // Tasks of other children are left to the steps of those children.
    let tasks = parent.unchecked_snapshot().open::<Task>()?;
    for task in tasks.into_iter().filter(|task| task.child() == Some(child.name())) {
        if let Some(TaskAction::End(end)) = due_with_child(store, &task, session.clock.now())? {
            tasks::finish(Context::new(session, &parent), task.id, TaskEnding::Child(end))?;
        }
    }
    Ok(())
}

/// Settles a run whose tick has died. The caller must hold the run's lease. Ends leftover processes
/// first, because the message may be claimed again after the settlement. Uses the end of the turn
/// that the tick noted, if any. Returns the effects that follow; `None` if already settled.
pub fn settle_abandoned(context: Context<'_>, run_id: RunId) -> Result<Option<Vec<Effect>>> {
    let agent = context.agent;
    let leader = agent.local().run(run_id).leader();
    LeftoverProcesses::find(&ProcessMark::run(run_id), &leader)?.end(KILL_GRACE)?;
    before_suspension(context, run_id, None)?;
    let locked = agent.change(context.session.clock.now())?;
    let state = locked.state()?;
    if state.current_run.as_ref().is_none_or(|run| run.run_id != run_id) {
        return Ok(None);
    }
    let noted = agent.local().run(run_id).read_end()?;
    let make = |noted: Option<TurnEnd>| {
        let mut draft = context.draft(&locked, locked.state()?)?;
        settle_in_draft(context, &locked.records_snapshot(), &mut draft, (run_id, noted), TICK_GONE)?;
        let (run, retention) = (draft.settled_run().cloned(), draft.records.policy.retention);
        Ok((context.commit(&locked, draft)?.state, run, retention))
    };
    let (state, run, retention) = match noted {
        None => make(None),
        Some(end) => settle_refusable(end, |end| make(Some(end))),
    }?;
    Ok(Some(after_settlement(&state, run, retention)))
}

/// Recovers a failed agent, or continues a recovery. If the hook `on-recovery-start` is installed,
/// the hook runs without the agent's lock and must succeed, and the caller must hold the run's
/// lease. Returns the records after the recovery, and the reason if the recovery has failed.
pub fn recover(
    context: Context<'_>,
    locked: AgentTxn<'_>,
    mut draft: Draft,
    cause: &str,
    lease: Option<&HeldLease>,
) -> Result<(Records, Option<String>)> {
    let Some(hook) = hooks::find(context, HookName::OnRecoveryStart) else {
        recovery::recover(&mut draft, cause)?;
        return Ok((ended(context, locked, draft)?, None));
    };
    recovery::begin(&mut draft, cause)?;
    let limit = Some(draft.records.policy.timeouts.recovery);
    let begun = context.commit(&locked, draft)?.state;
    drop(locked);
    context.notify();
    let event = HookEvent::of(&begun, ExecutionState::Runnable, Some(cause.to_owned()));
    // A `stop` changes the execution state, and so ends the recovery and its hook.
    let is_over = |state: &State| state.execution != begun.execution;
    let mut monitor = (LeaseKeeper(lease), of_state(context, is_over));
    let failure = hook.run_within(&event, limit, &mut monitor)?;
    lease.map_or(Ok(()), |lease| lease.refuse_lost("the recovery"))?;
    let OpenTxn { locked, mut draft, .. } = context.open()?;
    if draft.records.state.execution != begun.execution {
        return Ok((draft.records, None));
    }
    let overdue = overdue(&draft.records.state, &draft.records.policy.timeouts, draft.now());
    let reason = overdue.or(failure.as_ref().map(HookFailure::reason));
    match reason {
        None => recovery::complete(&mut draft)?,
        Some(reason) => recovery::fail(&mut draft, reason)?,
    }
    let failure = reason.map(str::to_owned);
    Ok((ended(context, locked, draft)?, failure))
}

/// Commits the end of a recovery, releases the agent's lock, and notifies the hooks.
fn ended(context: Context<'_>, locked: AgentTxn<'_>, draft: Draft) -> Result<Records> {
    let records = context.commit(&locked, draft)?;
    drop(locked);
    context.notify();
    Ok(records)
}
