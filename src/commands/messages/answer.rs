//! Waits for the end of a message and shows the result, for `ask` and `enqueue --await`.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::id::{AgentName, MessageId, RunId};
use crate::model::message::{MessageStatus, Settlement};
use crate::model::state::State;
use crate::model::time::Span;
use crate::process::signals::Signals;
use crate::store::{Agent, RecordWatch};

use super::awaiting::{Lookout, settled, verdict};
use super::{AdmittedArrival, closed};

/// Result of a message.
#[derive(Serialize)]
struct MessageResult {
    agent: AgentName,
    message_id: MessageId,
    duplicate: bool,
    message_status: MessageStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    brief: Option<String>,
}

/// Time limit for an answer.
pub struct AnswerDeadline {
    timeout: Option<Span>,
    until: Option<Instant>,
}

impl AnswerDeadline {
    /// Starts the limit now. `None` sets no limit.
    pub fn after(timeout: Option<Span>) -> AnswerDeadline {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout.as_std()));
        AnswerDeadline { timeout, until }
    }

    /// Returns the remaining time; `None` without a limit. Fails after the limit.
    pub fn left(&self, id: MessageId) -> Result<Option<Duration>> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            let waited = self.timeout.unwrap_or(Span::ZERO);
            return Err(Error::TimedOut { message: format!("waited {waited} in vain for {id}") });
        }
        Ok(left)
    }
}

/// Waits until each of the messages has ended, and shows the results in their order. Other
/// processes run the steps. Returns the most severe verdict.
pub fn await_all(
    session: &mut Session,
    agent: &Agent<'_>,
    messages: &[AdmittedArrival],
    deadline: &AnswerDeadline,
) -> Result<Status> {
    let mut watch = RecordWatch::new();
    let mut status = Status::Done;
    let mut lookout = Lookout::new();
    for message in messages {
        let end = loop {
            watch.follow_records(agent);
            if let Some(end) = settled(agent, message.id)? {
                break end;
            }
            let left = go_on(session, agent, message.id, deadline)
                .inspect_err(|_| stays(session, agent, message.id))?;
            lookout.look(session, agent)?;
            wait(session, &mut watch, lookout.until(left))?;
        };
        status = status.graver(say(session, agent, message, end)?);
        session.out.flush();
        if session.out.is_closed() {
            break;
        }
    }
    Ok(status)
}

/// Returns the remaining time. Fails if a signal has arrived or the agent takes up no messages.
pub fn go_on(
    session: &Session,
    agent: &Agent<'_>,
    id: MessageId,
    deadline: &AnswerDeadline,
) -> Result<Option<Duration>> {
    if let Some(signal) = session.cancelled_by.get() {
        return Err(Error::failed(format!("ended by signal {signal}")));
    }
    refuse_closed(&agent.peek()?, Some(id))?;
    deadline.left(id)
}

/// Reports that a message stays queued after the wait for it ended.
pub fn stays(session: &Session, agent: &Agent<'_>, id: MessageId) {
    session
        .out
        .note(&format!("{id} stays queued; `dormouse await {} --message {id}` waits for it", agent.name()));
}

/// Fails for a stopped or unstarted agent, which takes up no messages.
pub fn refuse_closed(state: &State, queued: Option<MessageId>) -> Result<()> {
    let Some(how) = closed(state.status) else { return Ok(()) };
    let said = if queued.is_some() { "" } else { ", and nothing was said to it" };
    Err(Error::refused("not_started", format!("`{}` {how}: it can't answer{said}", state.agent))
        .with_hint(format!("start it with `dormouse start {}`", state.agent)))
}

/// Waits for a change of the agent's records, at most for `left`. A signal ends the wait.
pub fn wait(session: &Session, watch: &mut RecordWatch, left: Option<Duration>) -> Result<()> {
    let signals = Signals::hold()?;
    watch.wait(left);
    session.cancelled_by.set(session.cancelled_by.get().or(signals.release()));
    Ok(())
}

/// Shows the result of a message, and returns the exit status for it.
pub fn say(
    session: &mut Session,
    agent: &Agent<'_>,
    message: &AdmittedArrival,
    end: Settlement,
) -> Result<Status> {
    let run = match end.run_id {
        Some(run_id) => agent.look(|seen, _| seen.run(run_id))?,
        None => None,
    };
    let completed = end.status == MessageStatus::Processed;
    let answer = MessageResult {
        agent: agent.name().clone(),
        message_id: message.id,
        duplicate: message.duplicate,
        message_status: end.status,
        reason: end.reason,
        run_id: end.run_id,
        brief: run.and_then(|run| run.brief).filter(|_| completed),
    };
    if session.out.is_json() {
        session.out.json_line(&answer);
    } else if let Some(brief) = &answer.brief {
        let brief = session.out.whole(brief);
        session.out.line_unless_said(&brief);
    } else if is_told(session, message.id) {
        session.out.note(&format!("once that is mended: dormouse queue requeue {}", message.id));
    } else {
        let why = answer.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        session.out.note(&format!("{}: {} {}{why}", answer.agent, message.id, end.status));
    }
    let needs_attention = session.has_raised_failure();
    let status = verdict(end.status);
    Ok(if needs_attention { status.graver(Status::TurnFailed) } else { status })
}

/// True if an earlier step of this process has reported the failure of the message.
pub fn is_told(session: &Session, id: MessageId) -> bool {
    session.raised.borrow().iter().any(|attention| attention.about.message_id == Some(id))
}
