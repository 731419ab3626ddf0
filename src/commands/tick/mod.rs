//! Command `tick`: runs one step of each agent, or steps until the agent is idle.

mod committing;
mod follow;
mod many;
mod pushing;

use std::collections::BTreeSet;
use std::time::Instant;

use crate::cli;
use crate::engine::authority;
use crate::engine::context::Context;
use crate::engine::session::Session;
use crate::engine::step::{busy_step, quiet_step, report_preview};
use crate::engine::sync::{RemoteSync, repository};
use crate::error::{Error, Result, Status};
use crate::model::id::AgentName;
use crate::process::jobs::{self, Relay};
use crate::report::output::relay;
use crate::report::progress::{Unit, is_watched};
use crate::report::step::{self as shown, StepReport};
use crate::store::Store;

use many::Urgencies;

pub fn tick(session: &Session, args: cli::TickArgs) -> Result<Status> {
    let store = session.store()?;
    if args.follow {
        return follow::follow(session, store, &args);
    }
    if args.push.is_some() && args.jobs > 1 {
        return Err(Error::usage("--push steps one agent after the other: leave out --jobs"));
    }
    if args.by_line {
        return by_line(session, store, &args);
    }
    let exchange = args.push.as_deref().map(|remote| pushing::begin(session, &store, remote)).transpose()?;
    let mut round = Round { store: &store, args: &args, exchange: exchange.as_ref(), has_moved: false };
    let (mut status, mut done) = (Status::Done, BTreeSet::new());
    loop {
        let line = to_step(session, &store, &args, &done)?;
        let are_due = line.urgencies.is_some();
        if are_due && line.names.is_empty() {
            break;
        }
        done.extend(line.names.iter().cloned());
        status = status.graver(round.each(session, line)?);
        if !are_due || session.cancelled_by.get().is_some() {
            break;
        }
    }
    if args.exit_code && !round.has_moved && status == Status::Done {
        return Ok(Status::NothingDone);
    }
    Ok(status)
}

/// Steps the agents that the parent process names on stdin, one by one. An error ends this process.
fn by_line(session: &Session, mut store: Store, args: &cli::TickArgs) -> Result<Status> {
    for line in jobs::lines()? {
        let name = line?.parse().map_err(|error| Error::in_word("AGENT", error))?;
        // The wait for a name may have been long, so the store is reopened with current settings.
        store = store.with_new_caches()?;
        let mut round = Round { store: &store, args, exchange: None, has_moved: false };
        let status = round.each(session, AgentsToStep { names: vec![name], urgencies: None })?;
        let status = if !round.has_moved && status == Status::Done { Status::NothingDone } else { status };
        let is_well = matches!(status, Status::Done | Status::NothingDone | Status::TurnFailed);
        if !is_well || session.cancelled_by.get().is_some() {
            return Ok(status);
        }
        session.raised.take();
        session.out.errors();
        session.out.raw(format!("{}{}\n", jobs::OVER, status.code()).as_bytes());
        session.out.flush();
    }
    Ok(Status::Done)
}

/// Agents to step, in this order unless `--all` sorts them by urgency.
struct AgentsToStep {
    names: Vec<AgentName>,
    /// Urgencies of the due agents, if `--all` has asked a database for them.
    urgencies: Option<Urgencies>,
}

/// Returns the agents to step. With a database, `--all` steps only the due agents. Messages make
/// other agents due, so the caller repeats the query until all returned agents are in `done`.
fn to_step(
    session: &Session,
    store: &Store,
    args: &cli::TickArgs,
    done: &BTreeSet<AgentName>,
) -> Result<AgentsToStep> {
    let due = if args.all { store.due(session.clock.now(), true)? } else { None };
    let Some(mut due) = due else {
        let names = authority::governed(session, store, &args.agents, args.all)?;
        return Ok(AgentsToStep { names, urgencies: None });
    };
    due.agents.retain(|agent| !done.contains(&agent.name));
    let names = authority::governed_among(session, store, due.names().cloned().collect(), true)?;
    Ok(AgentsToStep { names, urgencies: Some(many::urgencies(store, due)) })
}

/// Steps that one `tick` command runs.
struct Round<'a> {
    store: &'a Store,
    args: &'a cli::TickArgs,
    exchange: Option<&'a RemoteSync<'a>>,
    /// True after a step that changed something.
    has_moved: bool,
}

impl Round<'_> {
    fn each(&mut self, session: &Session, line: AgentsToStep) -> Result<Status> {
        let AgentsToStep { mut names, urgencies } = line;
        let urgencies = urgencies.unwrap_or_default();
        let is_free = self.args.dry_run || authority::inside(session, self.store)?.is_none();
        let refused = if is_free {
            Status::Done
        } else {
            authority::leave_out_others(session, self.store, &mut names, self.args.all)
        };
        let status = if self.args.jobs > 1 && names.len() > 1 && !self.args.dry_run {
            self.in_parallel(session, &names, &urgencies)
        } else if self.args.all {
            self.in_line(session, names, &urgencies)
        } else {
            self.one_by_one(session, &names)
        };
        // A child's step may raise a failure of its parent, which no status above includes.
        let raised = session.has_raised_failure();
        let status = if raised { status.graver(Status::TurnFailed) } else { status };
        Ok(status.graver(refused))
    }

    /// Runs one step of an agent, or with --until-idle up to --max-steps steps.
    fn steps(&mut self, context: Context<'_>) -> Result<Status> {
        let Round { store, args, exchange, .. } = *self;
        let Context { session, agent } = context;
        let name = agent.name();
        let repository = args.commit.then(|| repository(store, "`dormouse tick --commit`")).transpose()?;
        let mut status = Status::Done;
        let most = if args.until_idle { args.max_steps } else { 1 };
        for _ in 0..most {
            let mut before = None;
            let mut has_taken = false;
            let mut report = if args.dry_run {
                report_preview(context)?
            } else if let Some(exchange) = exchange {
                let (report, is_taken) = pushing::step(session, agent, exchange)?;
                has_taken = is_taken;
                report
            } else if let Some(report) = quiet_step(context, Instant::now())? {
                report
            } else {
                if let Some(repository) = &repository {
                    before = Some((repository, committing::before_step(repository, agent)?));
                }
                busy_step(context)?
            };
            let raised_failure = session.has_raised_failure();
            report.attention = session.raised.take();
            // A failure in the forecast of a dry run has not happened.
            if !args.dry_run && (report.failed() || raised_failure) {
                status = status.graver(Status::TurnFailed);
            }
            let did = report.did_something();
            self.has_moved |= did;
            // With --push another clone may tick the parent, and settle its task in that step.
            if did && !args.dry_run && exchange.is_none() {
                context.settle_parent();
            }
            session.out.result(&report, |out| shown::text(&report, out));
            if let Some(error) = session.lacked.take() {
                session.out.failure(&error, Some(name.as_str()), Some(name.as_str()));
                status = status.graver(error.exit_status());
            }
            session.out.flush();
            if let Some(continuation) = &report.decision.continuation {
                let evidence = continuation.evidence.join(", ");
                session.out.detail(&format!("{name}: {}: {evidence}", continuation.class));
            }
            // The result is printed before the commit, because git can fail.
            if let Some((repository, before)) = before
                && let Some(left_out) =
                    committing::commit(repository, before, agent, &report, session.clock.now())?
            {
                session.out.note(&format!("{}: not in git: {left_out}", agent.name()));
            }
            if let Some(exchange) = exchange.filter(|_| has_taken) {
                let (subject, body) = committing::message(&report);
                pushing::publish(session, exchange, (&subject, &body))?;
            }
            if !did || session.cancelled_by.get().is_some() {
                break;
            }
        }
        Ok(status)
    }

    fn one_by_one(&mut self, session: &Session, names: &[AgentName]) -> Status {
        // `--unless-moved` marks a process that `--all` has started for one agent.
        let is_skipped = self.args.all || self.args.unless_moved;
        session.each_agent(self.store, names, is_skipped, |context| {
            if session.cancelled_by.get().is_some() {
                return Ok(Status::Done);
            }
            self.steps(context)
        })
    }

    /// Ticks the agents with something to do, most urgent first. Then ticks the idle agents, which
    /// may have received messages from the busy ones.
    fn in_line(&mut self, session: &Session, names: Vec<AgentName>, urgencies: &Urgencies) -> Status {
        let (mut busy, resting) = self.split(session, &names);
        if busy.is_empty() && !self.args.dry_run {
            // No step has run since the reports were made, so the reports are still valid.
            show_all(session, &resting);
            return Status::Done;
        }
        many::by_urgency(self.store, &mut busy, urgencies, session.clock.now());
        busy.extend(resting.into_iter().map(|report| report.agent));
        self.one_by_one(session, &busy)
    }

    /// Returns the agents with something to do or an error, and the reports of the idle agents.
    /// With --all leaves out moved agents, which have no steps in this store.
    fn split(&self, session: &Session, names: &[AgentName]) -> (Vec<AgentName>, Vec<StepReport>) {
        let (mut busy, mut resting) = (Vec::new(), Vec::new());
        for name in names {
            let looked = self.store.agent(name);
            match looked.and_then(|agent| quiet_step(Context::new(session, &agent), Instant::now())) {
                Ok(Some(report)) => resting.push(report),
                Err(error) if self.args.all && error.has_left() => {}
                Ok(None) | Err(_) => busy.push(name.clone()),
            }
        }
        (busy, resting)
    }

    /// Ticks each agent in its own process, so that leftover processes of a turn are never taken
    /// for those of another turn.
    fn in_parallel(&mut self, session: &Session, names: &[AgentName], urgencies: &Urgencies) -> Status {
        let Round { store, args, .. } = *self;
        let mut status = Status::Done;
        // An idle agent needs no process.
        let (mut busy, resting) = self.split(session, names);
        show_all(session, &resting);
        let mut progress = session.out.progress(Unit::Agents, Some(names.len() as u64));
        progress.advance((names.len() - busy.len()) as u64);
        if args.all {
            many::by_urgency(store, &mut busy, urgencies, session.clock.now());
        }
        session.out.flush();
        let works = busy.iter().map(|name| many::own_tick(session, store, name, args)).collect::<Vec<_>>();
        let out = &session.out;
        // While a progress bar may be drawn, this process relays the stderr of its child processes.
        let relay: Option<Relay> = (!out.is_quiet() && is_watched()).then_some(relay);
        let ran = jobs::run(works, args.jobs as usize, relay, |ended| {
            progress.advance(1);
            let reached = many::print_tick(out, &busy[ended.of], &ended.lines, ended.end);
            if reached != Status::NothingDone {
                self.has_moved = true;
                status = status.graver(reached);
            }
        });
        match ran {
            Ok(cancelled_by) => session.cancelled_by.set(cancelled_by),
            Err(error) => status = status.graver(session.fail(error)),
        }
        status
    }
}

fn show_all(session: &Session, reports: &[StepReport]) {
    for report in reports {
        session.out.result(report, |out| shown::text(report, out));
    }
}
