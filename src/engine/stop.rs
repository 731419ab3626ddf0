//! Stop of an agent with its tasks and its children. One loop stops children at any depth.

use std::collections::VecDeque;

use crate::error::Result;
use crate::model::id::TaskId;
use crate::model::task::{ChildEnd, Task, TaskStatus};
use crate::model::time::Span;
use crate::rules::authority as rights;
use crate::rules::transition::task::TaskEnding;
use crate::store::Agent;

use super::context::Context;
use super::delegate::{self, Withdrawn};
use super::gate::{Stop, Stopped, halt};
use super::monitor::KILL_GRACE;
use super::owner::away_task;
use super::session::Session;
use super::{resources, tasks};

/// Stops an agent: ends its run and tasks, and stops the children of its delegations.
pub fn stop_agent(context: Context<'_>, how: &Stop) -> Result<Stopped> {
    let agent = context.store().agent(context.agent.name())?;
    let (ending, stopped) = begin_stop(context.session, agent, how)?;
    ending.end_children().conclude(stopped).map(|(_, stopped)| stopped)
}

/// Ends open tasks: commands in parallel, then the children. Returns errors after trying all.
pub fn stop_tasks(context: Context<'_>, tasks: &[Task], grace: Span) -> Result<()> {
    let mut ending = EndingTasks::of(context, grace)?;
    ending.begin(tasks);
    ending.end_children().ended
}

/// Stops the child of a delegation, and ends the delegation with `end`.
pub fn stop_child(context: Context<'_>, task: Task, end: ChildEnd) -> Result<()> {
    let mut ending = EndingTasks::of(context, Span::from_secs(KILL_GRACE.as_secs()))?;
    ending.children.push_back((task, end));
    ending.end_children().ended
}

/// Ends every task of an agent that stopped itself after a failure.
pub fn end_tasks(context: Context<'_>) -> Result<()> {
    let mut ending = EndingTasks::of(context, context.agent.policy()?.timeouts.shutdown)?;
    ending.begin_all()?;
    ending.end_children().ended
}

/// Tasks of an agent that are being ended.
struct EndingTasks<'s> {
    session: &'s Session,
    agent: Agent<'s>,
    grace: Span,
    tasks: Vec<TaskId>,
    /// Delegations whose children are still to be stopped, each with its end for the record.
    children: VecDeque<(Task, ChildEnd)>,
    /// First error that occurred.
    ended: Result<()>,
}

/// Delegation that waits for the stop of its child.
struct Awaited {
    task: TaskId,
    end: ChildEnd,
    withdrawn: Withdrawn,
    stopped: Stopped,
}

/// Stops an agent, except for its children: ends its run and the commands of its tasks.
fn begin_stop<'s>(session: &'s Session, agent: Agent<'s>, how: &Stop) -> Result<(EndingTasks<'s>, Stopped)> {
    let (stopped, grace) = halt(Context::new(session, &agent), how)?;
    let mut ending = EndingTasks::new(session, agent, grace);
    if stopped.is_stopped() {
        ending.begin_all()?;
    }
    Ok((ending, stopped))
}

impl<'s> EndingTasks<'s> {
    fn of(context: Context<'s>, grace: Span) -> Result<EndingTasks<'s>> {
        let agent = context.store().agent(context.agent.name())?;
        Ok(EndingTasks::new(context.session, agent, grace))
    }

    fn new(session: &'s Session, agent: Agent<'s>, grace: Span) -> EndingTasks<'s> {
        EndingTasks { session, agent, grace, tasks: Vec::new(), children: VecDeque::new(), ended: Ok(()) }
    }

    fn context(&self) -> Context<'_> {
        Context::new(self.session, &self.agent)
    }

    /// Stops the children in `children` one at a time. Each child's own run is ended first, then
    /// the child's children are stopped, and then the stop of the child is completed.
    fn end_children(self) -> EndingTasks<'s> {
        let mut current = self;
        let mut parents: Vec<(EndingTasks<'s>, Awaited)> = Vec::new();
        loop {
            if let Some((task, end)) = current.children.pop_front() {
                match current.begin_child(&task) {
                    Ok(Some((child, withdrawn, stopped))) => {
                        let parent = std::mem::replace(&mut current, child);
                        parents.push((parent, Awaited { task: task.id, end, withdrawn, stopped }));
                    }
                    Ok(None) => current.finish(task.id, end, Ok(())),
                    Err(error) => current.note(Err(error)),
                }
                continue;
            }
            let Some((parent, Awaited { task, end, withdrawn, stopped })) = parents.pop() else {
                return current;
            };
            let child = std::mem::replace(&mut current, parent);
            let stopped = child.conclude(stopped).and_then(|(child, stopped)| {
                withdrawn.end(Context::new(current.session, &child))?;
                Ok(stopped.cleared)
            });
            match stopped {
                Ok(cleared) => current.finish(task, end, cleared),
                Err(error) => current.note(Err(error)),
            }
        }
    }

    /// Completes a stop after the children have stopped: notifies hooks, releases the workspace.
    fn conclude(self, mut stopped: Stopped) -> Result<(Agent<'s>, Stopped)> {
        let is_stopped = stopped.is_stopped();
        // Hooks run only now, because earlier they would use up the grace period of the turn, and
        // other processes could start work meanwhile.
        self.context().notify();
        if is_stopped && !self.tasks.is_empty() {
            stopped.state = self.agent.peek()?;
        }
        let released = match &stopped.run {
            Some(run) if is_stopped => resources::release(self.context(), run.id),
            Some(_) | None => Ok(()),
        };
        let EndingTasks { agent, tasks, ended, .. } = self;
        let cleared = if is_stopped { stopped.cleared.and(ended).and(released) } else { Ok(()) };
        Ok((agent, Stopped { tasks, cleared, ..stopped }))
    }

    /// Begins to end every open task of the agent that this machine may end.
    fn begin_all(&mut self) -> Result<()> {
        let open = self.agent.read(|seen, _| seen.open::<Task>())?;
        let is_shared = self.agent.store().is_remote();
        let mut ours = Vec::new();
        for task in open {
            match away_task(&self.agent, &task, self.session.clock.now())?.filter(|_| !is_shared) {
                None => ours.push(task),
                Some(away) => {
                    let (name, id) = (self.agent.name(), task.id);
                    self.session.out.note(&format!("{name}: {id} continues: it runs {away}"));
                }
            }
        }
        self.begin(&ours);
        Ok(())
    }

    /// Ends the commands among these tasks, and queues the delegations for `end_children`.
    fn begin(&mut self, tasks: &[Task]) {
        self.tasks = tasks.iter().map(|task| task.id).collect();
        if tasks.is_empty() {
            return;
        }
        if let Err(error) = tasks::cancel(self.context(), &self.tasks) {
            return self.note(Err(error));
        }
        let (children, commands): (Vec<&Task>, Vec<&Task>) =
            tasks.iter().partition(|task| task.child().is_some());
        let commands: Vec<TaskId> = commands.iter().map(|task| task.id).collect();
        self.note(tasks::end(self.context(), &commands, self.grace.as_std()));
        let cancelled = || ChildEnd::without_brief(TaskStatus::Cancelled, None);
        self.children = children.into_iter().map(|task| (task.clone(), cancelled())).collect();
    }

    /// Begins to stop the child of a delegation. `None` if no child has to be stopped.
    fn begin_child(&self, task: &Task) -> Result<Option<(EndingTasks<'s>, Withdrawn, Stopped)>> {
        let Some((child, withdrawn)) = delegate::begin_withdrawal(self.session, &self.agent, task)? else {
            return Ok(None);
        };
        let reason = Some(format!("its parent has stopped {}", task.id));
        let by = rights::agent(self.agent.name());
        let how = Stop { grace: Some(self.grace), now: false, requeue: false, reason, by };
        let (ending, stopped) = begin_stop(self.session, child, &how)?;
        Ok(Some((ending, withdrawn, stopped)))
    }

    /// Ends a delegation whose child has stopped. `cleared`: error of the child's stop, if any.
    fn finish(&mut self, task: TaskId, end: ChildEnd, cleared: Result<()>) {
        let finished = tasks::finish(self.context(), task, TaskEnding::Child(end));
        self.note(finished.and(cleared));
    }

    fn note(&mut self, done: Result<()>) {
        if self.ended.is_ok() {
            self.ended = done;
        }
    }
}
