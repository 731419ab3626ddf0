//! Stop of an agent with its tasks and its children.

use crate::error::{Error, Result};
use crate::model::id::TaskId;
use crate::model::task::{ChildEnd, Task, TaskStatus};
use crate::model::time::Span;
use crate::rules::authority as rights;
use crate::rules::transition::task::TaskEnding;

use super::context::Context;
use super::delegate;
use super::gate::{Stop, Stopped, stop_run};
use super::monitor::KILL_GRACE;
use super::owner::out_of_reach;
use super::{resources, tasks};

/// Maximum number of generations that one command stops, which bounds the depth of the stack. Later
/// generations are stopped by the next step of the last agent that was stopped.
const GENERATIONS: usize = 50;

/// Stops an agent: ends its run and tasks, and stops the children of its delegations.
pub fn stop_agent(context: Context<'_>, how: &Stop) -> Result<Stopped> {
    stop(context, how, 0)
}

/// Ends tasks: first commands, in parallel, then children. Returns an error after trying all.
pub fn stop_tasks(context: Context<'_>, tasks: &[Task], grace: Span) -> Result<()> {
    end(context, tasks, grace, 0)
}

/// Stops the child of a delegation, and ends the delegation with `end`.
pub fn stop_child(context: Context<'_>, task: &Task, end: ChildEnd) -> Result<()> {
    end_delegation(context, (task, end), Span::from_secs(KILL_GRACE.as_secs()), 0)
}

/// Ends every task of an agent that stopped itself after a failure.
pub fn end_tasks(context: Context<'_>) -> Result<()> {
    end(context, &open_tasks(context)?, context.agent.policy()?.timeouts.shutdown, 0)
}

/// Stops an agent that is `depth` generations below the agent of the command.
fn stop(context: Context<'_>, how: &Stop, depth: usize) -> Result<Stopped> {
    let (stopped, grace) = stop_run(context, how)?;
    let is_stopped = stopped.is_stopped();
    let tasks = if is_stopped { open_tasks(context)? } else { Vec::new() };
    let ended = end(context, &tasks, grace, depth);
    // Hooks run only now, because earlier they would use up the grace period of the turn, and
    // other processes could start work meanwhile.
    context.notify();
    if !is_stopped {
        return Ok(Stopped { cleared: Ok(()), ..stopped });
    }
    let state = if tasks.is_empty() { stopped.state } else { context.agent.peek()? };
    let released = stopped.run.as_ref().map_or(Ok(()), |run| resources::release(context, run.id));
    let cleared = stopped.cleared.and(ended).and(released);
    Ok(Stopped { state, tasks: ids(&tasks), cleared, ..stopped })
}

/// Returns the agent's tasks that have not ended and that this machine may end.
fn open_tasks(context: Context<'_>) -> Result<Vec<Task>> {
    let Context { session, agent } = context;
    let mut ours = Vec::new();
    for task in agent.read(|seen, _| seen.open::<Task>())? {
        match out_of_reach(agent, &task, session.clock.now())? {
            None => ours.push(task),
            Some(away) => {
                session.out.note(&format!("{}: {} continues: it runs {away}", agent.name(), task.id));
            }
        }
    }
    Ok(ours)
}

fn ids(tasks: &[Task]) -> Vec<TaskId> {
    tasks.iter().map(|task| task.id).collect()
}

fn end(context: Context<'_>, tasks: &[Task], grace: Span, depth: usize) -> Result<()> {
    if tasks.is_empty() {
        return Ok(());
    }
    tasks::cancel(context, &ids(tasks))?;
    let (children, commands): (Vec<Task>, Vec<Task>) =
        tasks.iter().cloned().partition(|task| task.child().is_some());
    let mut ended = tasks::end(context, &ids(&commands), grace.as_std());
    for task in &children {
        let end = ChildEnd::without_brief(TaskStatus::Cancelled, None);
        let done = end_delegation(context, (task, end), grace, depth);
        ended = ended.and(done);
    }
    ended
}

/// Stops the child of a delegation if it has received the message, and records the end of the task.
fn end_delegation(
    context: Context<'_>,
    (task, end): (&Task, ChildEnd),
    grace: Span,
    depth: usize,
) -> Result<()> {
    let agent = context.agent;
    if depth == GENERATIONS {
        let name = agent.name();
        let message = format!("{} of `{name}` goes on: one command stops {GENERATIONS} generations", task.id);
        return Err(Error::failed(message).with_hint(format!("`dormouse tick {name}` stops its child")));
    }
    let reason = Some(format!("its parent has stopped {}", task.id));
    let by = rights::agent(agent.name());
    let how = Stop { grace: Some(grace), now: false, requeue: false, reason, by };
    let stopped = delegate::withdraw_delegation(context, task, |child| stop(child, &how, depth + 1))?;
    let cleared = stopped.map_or(Ok(()), |stopped| stopped.cleared);
    tasks::finish(context, task.id, TaskEnding::Child(end)).map(drop).and(cleared)
}
