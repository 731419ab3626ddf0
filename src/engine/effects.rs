//! Effects outside the records of an agent, as values: due after a commit, or found by a step.

use std::collections::VecDeque;

use crate::error::Result;
use crate::model::agent::Status;
use crate::model::id::RunId;
use crate::model::retention::Retention;
use crate::model::run::{Run, Terminal};
use crate::model::state::State;
use crate::model::task::{Task, TaskJob, TaskStatus};
use crate::model::time::Time;
use crate::rules::step::Before;
use crate::rules::transition::task::TaskEnding;
use crate::store::{Agent, Snapshot, Subject};

use super::context::Context;
use super::delegate;
use super::recover::settle_abandoned;
use super::stop::{end_tasks, stop_child};
use super::tasks::{self, SUPERVISOR_GONE, TaskAction};

/// Effect outside the records. If its process is killed, the next step finds the effect again.
#[derive(Debug)]
pub enum Effect {
    /// Notify the hooks of the commits of this process.
    Tell,
    /// Notify the hooks of commits of killed processes.
    TellAbandoned,
    /// Settle the parent's task if this child has completed it.
    TellParent,
    /// Settle a run whose tick is gone. The caller holds the lease.
    Settle(RunId),
    /// Deliver the messages in the outbox to other agents.
    Deliver,
    /// Run the action that an open task needs.
    Task(Box<Task>, TaskAction),
    /// End the tasks of an agent that stopped itself after a failure.
    EndTasks,
    /// Clear the directory of a settled run, after the hooks were notified of the settlement.
    Clear(Box<Run>, Retention),
}

/// Returns the effects of a preparation, which run before a step loads the records.
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
            let found = tasks::due(agent, seen, state, now)?;
            found.into_iter().map(|(task, due)| Effect::Task(Box::new(task), due)).collect()
        }
    })
}

/// Returns the effects that follow the end of a turn. `run`: record of the run, if this process has
/// settled it.
pub fn after_turn(state: &State, tasks: &[Task], run: Option<Run>, retention: Retention) -> Vec<Effect> {
    let mut effects = Vec::new();
    if !state.outbox.is_empty() {
        effects.push(Effect::Deliver);
    }
    // A stopped agent starts no tasks that its last outcome requested.
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
    effects.extend(after_settlement(state, run, retention));
    effects
}

/// Returns the effects that follow the settlement of a run, after which a step loads the records.
pub fn after_settlement(state: &State, run: Option<Run>, retention: Retention) -> Vec<Effect> {
    let clear = run.map(|run| Effect::Clear(Box::new(run), retention));
    [Effect::Tell].into_iter().chain(clear).chain(after_failure(state)).collect()
}

/// Returns the effect that ends the tasks of an agent that stopped itself after a failure. A `stop`
/// command ends the tasks itself.
pub fn after_failure(state: &State) -> Option<Effect> {
    let by_stop = |terminal| matches!(terminal, Terminal::Aborted | Terminal::Completed);
    let was_stopped = state.last_turn.as_ref().is_some_and(|turn| by_stop(turn.terminal));
    let is_left = state.status == Status::Stopped && state.open_tasks > 0 && !was_stopped;
    is_left.then_some(Effect::EndTasks)
}

impl Context<'_> {
    /// Runs effects in order; effects that an effect causes run right after it. Must be called
    /// without the lock. Returns the run that was settled, if any.
    ///
    /// An error of a task is printed, and the next step retries, so that it does not block other
    /// work of the agent. Any other error ends the loop.
    pub fn run_effects(self, effects: impl IntoIterator<Item = Effect>) -> Result<Option<RunId>> {
        let (out, name) = (&self.session.out, self.agent.name());
        let mut left: VecDeque<Effect> = effects.into_iter().collect();
        let mut settled = None;
        while let Some(effect) = left.pop_front() {
            match effect {
                Effect::Tell => self.notify(),
                Effect::TellAbandoned => self.notify_abandoned(),
                Effect::TellParent => self.settle_parent(),
                Effect::Settle(run_id) => {
                    if let Some(after) = settle_abandoned(self, run_id)? {
                        settled = Some(run_id);
                        after.into_iter().rev().for_each(|effect| left.push_front(effect));
                    }
                }
                Effect::Deliver => self.deliver()?,
                Effect::Task(task, due) => {
                    let id = task.id;
                    if let Err(error) = self.see_to(*task, due) {
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

    fn see_to(self, task: Task, due: TaskAction) -> Result<()> {
        match due {
            TaskAction::Begin => tasks::begin(self, task.id),
            TaskAction::Settle => match self.agent.lease(Subject::Task(task.id), self.session.clock.now())? {
                Some(held) => tasks::settle(self, task.id, &held, SUPERVISOR_GONE).map(drop),
                None => Ok(()),
            },
            TaskAction::HandOver => delegate::hand_over(self, task.id),
            TaskAction::End(end) => tasks::finish(self, task.id, TaskEnding::Child(end)).map(drop),
            TaskAction::StopChild(end) => stop_child(self, task, end),
        }
    }
}
