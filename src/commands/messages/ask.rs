//! Command `ask`: sends one message and waits for its result.

use std::time::Duration;

use crate::cli;
use crate::engine::authority::{self, refuse_from_inside};
use crate::engine::context::Context;
use crate::engine::lookup::settled;
use crate::engine::session::Session;
use crate::engine::step::step;
use crate::error::{Result, Status};
use crate::local::workdir::{GrowingLog, Stream};
use crate::model::decision::DecisionKind;
use crate::model::id::{MessageId, RunId};
use crate::model::message::Settlement;
use crate::report::output::{OutputListener, listener};
use crate::report::step::StepReport;
use crate::store::{RecordWatch, Store};

use super::awaiting::{WaitLimit, is_reported, note_queued, print_result, refuse_closed, time_left, wait};

/// Poll interval for output of a turn that another process runs; `ask` does not watch output files.
const OUTPUT_POLL: Duration = Duration::from_millis(500);

/// Minimum wait for a due time, because a step exactly at its due time may find nothing to do.
const PAUSE: Duration = Duration::from_millis(20);

pub fn ask(session: &Session, store: &Store, args: cli::AskArgs) -> Result<Status> {
    let agent = store.agent(&args.agent)?;
    session.is_about(agent.name());
    refuse_from_inside(Context::new(session, &agent), "ask")?;
    authority::reach(Context::new(session, &agent), "ask")?;
    refuse_closed(&agent.peek()?, None)?;
    let deadline = WaitLimit::after(args.timeout);
    let message = super::take(Context::new(session, &agent), &args.said, None)?;
    let id = message.id;
    if !session.out.is_json() && !session.out.is_quiet() {
        session.listens_to.set(Some(id));
    }
    let context = Context::new(session, &agent);
    let mut question = PendingAnswer { context, id, deadline, live: None };
    let end = question.follow().inspect_err(|_| note_queued(context, id))?;
    print_result(context, &message, end)
}

/// Message that `ask` waits for.
struct PendingAnswer<'a> {
    context: Context<'a>,
    id: MessageId,
    deadline: WaitLimit,
    /// Run of the message that another process executes, with readers of its stdout and stderr.
    live: Option<(RunId, [(GrowingLog, OutputListener); 2])>,
}

impl PendingAnswer<'_> {
    /// Runs steps until the message is settled, and waits while no step is due.
    fn follow(&mut self) -> Result<Settlement> {
        let Context { session, agent } = self.context;
        let mut watch = RecordWatch::new();
        loop {
            watch.follow(agent);
            let end = settled(agent, self.id)?;
            self.print_new_output()?;
            if let Some(end) = end {
                return Ok(end);
            }
            let left = time_left(self.context, self.id, &self.deadline)?;
            let report = step(self.context)?;
            if report.did_something() {
                self.context.settle_parent();
                note_failed_attempt(session, &report);
                continue;
            }
            let due = report.next_due_at.map(|due| due.since(session.clock.now()).as_std().max(PAUSE));
            let is_live = report.decision.decision == DecisionKind::Noop && self.can_read_output();
            let next = [left, due, is_live.then_some(OUTPUT_POLL)].into_iter().flatten().min();
            wait(session, &mut watch, next)?;
        }
    }

    /// True if the output of the live turn is on this machine, so that polling can find new output.
    fn can_read_output(&self) -> bool {
        let is_here = |run_id: &RunId| self.context.agent.local().run(*run_id).exists();
        self.live.as_ref().is_some_and(|(run_id, _)| is_here(run_id))
    }

    /// Prints new output of a turn for the message, if another process runs that turn.
    fn print_new_output(&mut self) -> Result<()> {
        let Context { session, agent } = self.context;
        if session.listens_to.get().is_none() {
            return Ok(());
        }
        let run = agent.peek()?.current_run.filter(|run| run.message_id == self.id);
        let current = run.map(|run| run.run_id);
        if let Some((_, streams)) = &mut self.live {
            for (log, print) in streams {
                print(&log.news()?);
            }
        }
        if self.live.as_ref().map(|(run_id, _)| *run_id) != current {
            self.live = current.map(|run_id| {
                let dir = agent.local().run(run_id);
                let stream = |stream| (dir.follow(stream, None), listener());
                (run_id, [Stream::Stdout, Stream::Stderr].map(stream))
            });
        }
        Ok(())
    }
}

/// Reports a failed attempt that is retried. An attention has reported the end of the last one.
fn note_failed_attempt(session: &Session, report: &StepReport) {
    let is_given_up = report.decision.message_id.is_some_and(|id| is_reported(session, id));
    if report.failed() && !is_given_up {
        let reason = report.terminal_reason.as_ref().or(report.failure.as_ref());
        let reason = reason.map(String::as_str).unwrap_or_default();
        let attempt = report.attempt.unwrap_or(1);
        session.out.note(&format!("{}: attempt {attempt} failed: {reason}", report.agent));
    }
}
