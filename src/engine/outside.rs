//! The loop that runs effects.

use std::collections::VecDeque;

use crate::error::Result;
use crate::model::id::RunId;
use crate::model::task::Task;
use crate::rules::transition::task::TaskEnding;
use crate::store::Subject;

use super::background;
use super::context::Context;
use super::delegate;
use super::due::{SUPERVISOR_GONE, TaskAction};
use super::effects::Effect;
use super::litter;
use super::recover::settle_abandoned;
use super::stop::{end_tasks, stop_child};

impl Context<'_> {
    /// Runs effects in order; effects that one of them causes come right after it. Must be called
    /// without the lock. Returns the run that was settled, if one was.
    ///
    /// The error of a task is printed and left to the next step, so that it does not block the
    /// agent's other work. Any other error ends the loop.
    pub fn carry_out(self, effects: impl IntoIterator<Item = Effect>) -> Result<Option<RunId>> {
        let Context { session, agent } = self;
        let name = agent.name();
        let mut left: VecDeque<Effect> = effects.into_iter().collect();
        let mut settled = None;
        while let Some(effect) = left.pop_front() {
            match effect {
                Effect::Tell => self.tell(),
                Effect::TellAbandoned => self.tell_abandoned(),
                Effect::TellParent => self.tell_parent(),
                Effect::Settle(run_id) => {
                    if let Some(after) = settle_abandoned(session, self.store(), agent, run_id)? {
                        settled = Some(run_id);
                        after.into_iter().rev().for_each(|effect| left.push_front(effect));
                    }
                }
                Effect::Deliver => self.deliver()?,
                Effect::Task(task, due) => {
                    let id = task.id;
                    if let Err(error) = self.see_to(*task, due) {
                        session.out.note(&format!("{name}: {id}: {error}"));
                    }
                }
                Effect::EndTasks => {
                    if let Err(error) = end_tasks(session, self.store(), agent) {
                        session.out.note(&format!("{name}: its tasks have not all ended: {error}"));
                    }
                }
                Effect::Clear(run, retention) => litter::clear(agent, &run, retention),
            }
        }
        Ok(settled)
    }

    fn see_to(self, task: Task, due: TaskAction) -> Result<()> {
        let Context { session, agent } = self;
        match due {
            TaskAction::Begin => background::begin(session, self.store(), agent, task.id),
            TaskAction::Settle => match agent.lease(Subject::Task(task.id), session.clock.now())? {
                Some(held) => background::settle(session, agent, task.id, &held, SUPERVISOR_GONE).map(drop),
                None => Ok(()),
            },
            TaskAction::HandOver => delegate::hand_over(session, self.store(), agent, task.id),
            TaskAction::End(end) => {
                background::finish(session, agent, task.id, TaskEnding::Child(end)).map(drop)
            }
            TaskAction::StopChild(end) => stop_child(session, self.store(), agent, task, end),
        }
    }
}
