//! What is left to do outside the records of an agent, as values: after a commit, or as a step
//! finds it.

use crate::error::Result;
use crate::model::agent::Status;
use crate::model::id::RunId;
use crate::model::retention::Retention;
use crate::model::run::{Run, Terminal};
use crate::model::state::State;
use crate::model::task::{Task, TaskJob, TaskStatus};
use crate::model::time::Time;
use crate::rules::step::Before;
use crate::store::{Agent, Snapshot, Store};

use super::due::{self, Due};

/// One thing to do outside. A process that is killed at it leaves it to the next step, which finds
/// it again.
#[derive(Debug)]
pub enum Errand {
    /// The hooks are told of what this process has committed.
    Tell,
    /// The hooks are told of what a killed process has committed.
    TellAbandoned,
    /// The parent hears of it if this child has come to an end.
    TellParent,
    /// A run whose tick is gone is settled. The step that finds it holds the lease.
    Settle(RunId),
    /// The messages in the outbox go into the inboxes of the other agents.
    Deliver,
    /// What is due with an open task is done.
    Task(Box<Task>, Due),
    /// The tasks of an agent that its own failure has stopped are ended.
    EndTasks,
    /// The directory of a run that was settled is cleared, after the hooks were told of it.
    Clear(Box<Run>, Retention),
}

/// What comes before a step loads the records. Empty: nothing is due with the open tasks.
pub fn before(
    store: &Store,
    agent: &Agent<'_>,
    seen: &Snapshot<'_>,
    state: &State,
    now: Time,
    before: Before,
) -> Result<Vec<Errand>> {
    Ok(match before {
        Before::Tell => vec![Errand::TellAbandoned],
        Before::Settle(run_id) => vec![Errand::Settle(run_id)],
        Before::Deliver => vec![Errand::Deliver],
        Before::LookAfterTasks => {
            let found = due::due(store, agent, seen, state, now)?;
            found.into_iter().map(|(task, due)| Errand::Task(Box::new(task), due)).collect()
        }
    })
}

/// What the end of a turn leaves to do. `run`: its record, if this process has settled it.
pub fn after_turn(state: &State, tasks: &[Task], run: Option<Run>, retention: Retention) -> Vec<Errand> {
    let mut errands = Vec::new();
    if !state.outbox.is_empty() {
        errands.push(Errand::Deliver);
    }
    // What a stopped agent has asked for with its last word is not begun: its stop ends it.
    if state.status != Status::Stopped {
        let queued = tasks.iter().filter(|task| task.status == TaskStatus::Queued);
        errands.extend(queued.map(|task| {
            let due = match task.job {
                TaskJob::Command { .. } => Due::Begin,
                TaskJob::ChildAgent { .. } => Due::HandOver,
            };
            Errand::Task(Box::new(task.clone()), due)
        }));
    }
    errands.extend(after_settlement(state, run, retention));
    errands
}

/// What the settlement of a run leaves to do for a step that looks again at everything else.
pub fn after_settlement(state: &State, run: Option<Run>, retention: Retention) -> Vec<Errand> {
    let clear = run.map(|run| Errand::Clear(Box::new(run), retention));
    [Errand::Tell].into_iter().chain(clear).chain(after_failure(state)).collect()
}

/// The end of the tasks of an agent that its own failure has stopped. Where `stop` has ended the
/// run, `stop` ends the tasks as well.
pub fn after_failure(state: &State) -> Option<Errand> {
    let by_stop = |terminal| matches!(terminal, Terminal::Aborted | Terminal::Completed);
    let was_stopped = state.last_turn.as_ref().is_some_and(|turn| by_stop(turn.terminal));
    let is_left = state.status == Status::Stopped && state.open_tasks > 0 && !was_stopped;
    is_left.then_some(Errand::EndTasks)
}
