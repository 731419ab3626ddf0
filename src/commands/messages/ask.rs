//! `ask`: one message from its admission to its verdict, in one command.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cli;
use crate::commands::words::{parse, parse_optional};
use crate::engine::authority;
use crate::engine::authority::refuse_from_inside;
use crate::engine::desk::Desk;
use crate::engine::log::Log;
use crate::engine::session::Session;
use crate::engine::step::step;
use crate::error::{Error, Result, Status};
use crate::model::agent::Status as AgentStatus;
use crate::model::decision::DecisionKind;
use crate::model::id::{AgentName, MessageId, RunId};
use crate::model::message::{MessageStatus, Settlement};
use crate::model::state::State;
use crate::model::time::Span;
use crate::process::signals::Signals;
use crate::report::output::{Listener, listener};
use crate::report::step::StepReport;
use crate::store::watch::Watch;
use crate::store::{Agent, Store, evidence, layout};

use super::awaiting::{settled, verdict};

/// How long a wait lasts at most while somebody else's tick runs the turn: its output raises no event.
const LISTENS: Duration = Duration::from_millis(500);

/// The shortest wait. What is due may not be found due by a step at the same moment.
const PAUSE: Duration = Duration::from_millis(20);

/// What came of a message.
#[derive(Serialize)]
struct Answer {
    agent: AgentName,
    message_id: MessageId,
    message_status: MessageStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    brief: Option<String>,
}

pub fn ask(session: &mut Session, args: cli::Ask) -> Result<Status> {
    let store = session.store()?;
    let agent = store.agent(&parse("AGENT", &args.agent)?)?;
    session.is_about(agent.name());
    let timeout: Option<Span> = parse_optional("--timeout", args.timeout.as_deref())?;
    refuse_from_inside(session, &store, &agent, "ask")?;
    authority::reach(session, &store, &agent, "ask")?;
    refuse_closed(&agent.peek()?, None)?;
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout.as_std()));
    let id = super::take(session, &store, &agent, &args.said, None)?.id;
    if !session.out.is_json() && !session.out.is_quiet() {
        session.listens_to.set(Some(id));
    }
    let mut question = Question { store: &store, agent: &agent, id, until, timeout, live: None };
    let end = question.follow(session).inspect_err(|_| {
        session.out.note(&format!(
            "{id} stays queued; `dormouse await {} --message {id}` waits for it",
            agent.name()
        ));
    })?;
    answer(session, &agent, id, end)
}

/// Behind a closed gate a message waits for ever.
fn refuse_closed(state: &State, queued: Option<MessageId>) -> Result<()> {
    let how = match state.status {
        AgentStatus::Booting => "was never started",
        AgentStatus::Stopped => "is stopped",
        AgentStatus::AwakeIdle
        | AgentStatus::AwakeRunning
        | AgentStatus::AwaitingTask
        | AgentStatus::Asleep => {
            return Ok(());
        }
    };
    let said = if queued.is_some() { "" } else { ", and nothing was said to it" };
    Err(Error::Refused {
        kind: "not_started",
        message: format!("`{}` {how}: it can't answer{said}", state.agent),
        hint: Some(format!("start it with `dormouse start {}`", state.agent)),
    })
}

/// A message whose end is waited for.
struct Question<'a> {
    store: &'a Store,
    agent: &'a Agent<'a>,
    id: MessageId,
    until: Option<Instant>,
    timeout: Option<Span>,
    /// The run of it that another tick is at, with its logs.
    live: Option<(RunId, [(Log, Listener); 2])>,
}

impl Question<'_> {
    /// Makes steps, and waits where there is none to make, until the message is settled.
    fn follow(&mut self, session: &mut Session) -> Result<Settlement> {
        let mut watch = Watch::new();
        watch.add(self.agent.dir().path());
        loop {
            // It may have been exchanged for another one.
            watch.add(&self.agent.dir().join(layout::INBOX));
            let end = settled(self.agent, self.id)?;
            self.listen(session)?;
            if let Some(end) = end {
                return Ok(end);
            }
            if let Some(signal) = session.cancelled_by.get() {
                return Err(interrupted(signal));
            }
            refuse_closed(&self.agent.peek()?, Some(self.id))?;
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                let waited = self.timeout.unwrap_or(Span::ZERO);
                return Err(Error::TimedOut { message: format!("waited {waited} in vain for {}", self.id) });
            }
            let report = step(session, self.store, self.agent)?;
            if report.did_something() {
                Desk::new(session, self.agent).tell_parent();
                tell_of_failure(session, &report);
                continue;
            }
            wait(session, &watch, self.how_long(session, &report, left))?;
        }
    }

    /// Until the next step may find something, a change apart.
    fn how_long(&self, session: &Session, report: &StepReport, left: Option<Duration>) -> Option<Duration> {
        let due = report.next_due_at.map(|due| due.since(session.clock.now()).as_std().max(PAUSE));
        let is_live = report.decision.decision == DecisionKind::Noop;
        [left, due, is_live.then_some(LISTENS)].into_iter().flatten().min()
    }

    /// Passes on what a turn of the message has said that another tick runs.
    fn listen(&mut self, session: &Session) -> Result<()> {
        if session.listens_to.get().is_none() {
            return Ok(());
        }
        let run = self.agent.peek()?.current_run.filter(|run| run.message_id == self.id);
        let current = run.map(|run| run.run_id);
        if let Some((_, streams)) = &mut self.live {
            for (log, hear) in streams {
                hear(&log.news()?);
            }
        }
        if self.live.as_ref().map(|(run_id, _)| *run_id) != current {
            self.live = current.map(|run_id| {
                let dir = self.agent.dir().run_dir(run_id);
                let stream = |name| (Log::open(dir.join(name), None), listener());
                (run_id, [layout::STDOUT, layout::STDERR].map(stream))
            });
        }
        Ok(())
    }
}

/// Says that a turn failed and is tried again: what is given up says so itself.
fn tell_of_failure(session: &Session, report: &StepReport) {
    if report.failed() {
        let reason = report.terminal_reason.as_ref().or(report.failure.as_ref());
        let reason = reason.map(String::as_str).unwrap_or_default();
        let attempt = report.attempt.unwrap_or(1);
        session.out.note(&format!("{}: attempt {attempt} failed: {reason}", report.agent));
    }
}

/// Waits for a change of the agent's records, or until something is due. A signal ends it.
fn wait(session: &Session, watch: &Watch, left: Option<Duration>) -> Result<()> {
    let signals = Signals::hold()?;
    watch.wait(left);
    session.cancelled_by.set(session.cancelled_by.get().or(signals.release()));
    Ok(())
}

fn interrupted(signal: i32) -> Error {
    Error::Failed { message: format!("ended by signal {signal}"), hint: None }
}

fn answer(session: &mut Session, agent: &Agent<'_>, id: MessageId, end: Settlement) -> Result<Status> {
    let run = match end.run_id {
        Some(run_id) => agent.consistently(|view, _| evidence::run(view, run_id))?,
        None => None,
    };
    let completed = end.status == MessageStatus::Processed;
    let answer = Answer {
        agent: agent.name().clone(),
        message_id: id,
        message_status: end.status,
        reason: end.reason,
        run_id: end.run_id,
        brief: run.and_then(|run| run.brief).filter(|_| completed),
    };
    if session.out.is_json() {
        session.out.json_line(&answer);
    } else if let Some(brief) = &answer.brief {
        let brief = session.out.whole(brief);
        session.out.line(&brief);
    } else if !is_told(session, id) {
        let why = answer.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        session.out.note(&format!("{}: {id} {}{why}", answer.agent, end.status));
    }
    let needs_attention = !session.raised.borrow().is_empty();
    let status = verdict(end.status);
    Ok(if needs_attention { status.graver(Status::TurnFailed) } else { status })
}

/// Whether the step that gave the message up was ours, and has said so.
fn is_told(session: &Session, id: MessageId) -> bool {
    session.raised.borrow().iter().any(|attention| attention.about.message_id == Some(id))
}
