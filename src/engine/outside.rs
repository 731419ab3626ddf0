//! The loop that runs effects.

use std::collections::VecDeque;

use crate::error::Result;
use crate::model::id::RunId;
use crate::model::task::Task;
use crate::rules::transition::task::End;
use crate::store::Subject;

use super::background;
use super::delegate;
use super::desk::Desk;
use super::due::{Due, SUPERVISOR_GONE};
use super::errand::Errand;
use super::litter;
use super::recover::settle_abandoned;
use super::stop::{end_tasks, stop_child};

impl Desk<'_> {
    /// Runs effects in order; effects that one of them causes come right after it. Must be called
    /// without the lock. Returns the run that was settled, if one was.
    ///
    /// The error of a task is printed and left to the next step, so that it does not block the
    /// agent's other work. Any other error ends the loop.
    pub fn carry_out(self, errands: impl IntoIterator<Item = Errand>) -> Result<Option<RunId>> {
        let Desk { session, agent } = self;
        let name = agent.name();
        let mut left: VecDeque<Errand> = errands.into_iter().collect();
        let mut settled = None;
        while let Some(errand) = left.pop_front() {
            match errand {
                Errand::Tell => self.tell(),
                Errand::TellAbandoned => self.tell_abandoned(),
                Errand::TellParent => self.tell_parent(),
                Errand::Settle(run_id) => {
                    if let Some(after) = settle_abandoned(session, self.store(), agent, run_id)? {
                        settled = Some(run_id);
                        after.into_iter().rev().for_each(|errand| left.push_front(errand));
                    }
                }
                Errand::Deliver => self.deliver()?,
                Errand::Task(task, due) => {
                    let id = task.id;
                    if let Err(error) = self.see_to(*task, due) {
                        session.out.note(&format!("{name}: {id}: {error}"));
                    }
                }
                Errand::EndTasks => {
                    if let Err(error) = end_tasks(session, self.store(), agent) {
                        session.out.note(&format!("{name}: its tasks have not all ended: {error}"));
                    }
                }
                Errand::Clear(run, retention) => litter::clear(agent, &run, retention),
            }
        }
        Ok(settled)
    }

    fn see_to(self, task: Task, due: Due) -> Result<()> {
        let Desk { session, agent } = self;
        match due {
            Due::Begin => background::begin(session, self.store(), agent, task.id),
            Due::Settle => match agent.lease(Subject::Task(task.id), session.clock.now())? {
                Some(held) => background::settle(session, agent, task.id, &held, SUPERVISOR_GONE).map(drop),
                None => Ok(()),
            },
            Due::HandOver => delegate::hand_over(session, self.store(), agent, task.id),
            Due::End(end) => background::finish(session, agent, task.id, End::Child(end)).map(drop),
            Due::StopChild(end) => stop_child(session, self.store(), agent, task, end),
        }
    }
}
