//! Command `await`: blocks until agents reach a posture or status, or a message is settled; and the
//! wait of `ask` and `enqueue --await` for the end of a message.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::cli;
use crate::engine::context::Context;
use crate::engine::follow::output_end;
use crate::engine::load;
use crate::engine::lookup::{self, matches_id, settled};
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::agent::Status as AgentStatus;
use crate::model::id::{AgentName, MessageId};
use crate::model::message::{MessageStatus, Settlement};
use crate::model::posture::Posture;
use crate::model::state::State;
use crate::model::time::Span;
use crate::model::timer::Timer;
use crate::process::signals::Signals;
use crate::report::output::listener;
use crate::report::text::present;
use crate::rules::due::{longer_than, overdue};
use crate::rules::posture::posture;
use crate::store::{Agent, RecordWatch, Store, moved_away};

use super::{AdmittedArrival, closed};

pub fn wait_until(session: &Session, store: &Store, args: cli::AwaitArgs) -> Result<Status> {
    let deadline = WaitLimit::after(args.timeout);
    if let Some(part) = &args.message {
        let [name] = args.agents.as_slice() else {
            return Err(Error::usage("--message: a message has one agent; name that one alone"));
        };
        let (agent, id) = (store.agent(name)?, message(store, name, part)?);
        return await_all(Context::new(session, &agent), &[AdmittedArrival::queued(id)], &deadline, false);
    }
    let mut waiting = args.agents.iter().map(|name| store.agent(name)).collect::<Result<Vec<_>>>()?;
    let mut watch = RecordWatch::new();
    loop {
        let mut still = Vec::new();
        for agent in waiting {
            // Only the posture depends on inbox files; the rest depends on records.
            if args.posture.is_empty() {
                watch.follow_records(&agent);
            } else {
                watch.follow(&agent);
            }
            match awaited(Context::new(session, &agent), &args)? {
                Some((status, posture)) => {
                    let object = json!({ "agent": agent.name(), "status": status, "posture": posture });
                    session.out.result(&present(object), |_| {
                        let posture = posture.map(|posture| format!("  {}", posture.words()));
                        format!("{}  {status}{}", agent.name(), posture.unwrap_or_default())
                    });
                }
                None => {
                    refuse_moved(&agent, &agent.peek()?)?;
                    still.push(agent);
                }
            }
        }
        session.out.flush();
        waiting = still;
        if waiting.is_empty() || session.out.is_closed() {
            return Ok(Status::Done);
        }
        let names: Vec<&str> = waiting.iter().map(|agent| agent.name().as_str()).collect();
        watch.wait(deadline.left(names[0], names.join(", "))?);
    }
}

/// Returns the id of a message in the records, or of a message that a timer will send.
fn message(store: &Store, name: &AgentName, part: &str) -> Result<MessageId> {
    let missing = match lookup::message(store, Some(name.clone()), "message", part) {
        Ok((_, id)) => return Ok(id),
        Err(missing @ Error::NoRecord { .. }) => missing,
        Err(error) => return Err(error),
    };
    let timers = store.agent(name)?.read(|snapshot, _| snapshot.open::<Timer>())?;
    let mut delayed = timers.iter().filter_map(|timer| timer.message.as_ref()).map(|message| message.id);
    delayed.find(|id| matches_id(&id.to_string(), part)).ok_or(missing)
}

/// Returns the agent's status, and its posture if the arguments name any, if the agent meets every
/// condition of the arguments. Of several postures or statuses one suffices.
fn awaited(context: Context<'_>, args: &cli::AwaitArgs) -> Result<Option<(AgentStatus, Option<Posture>)>> {
    let Context { session, agent } = context;
    let status = agent.read(|_, state| Ok(state.status))?;
    if !args.status.is_empty() && !args.status.contains(&status) {
        return Ok(None);
    }
    if args.posture.is_empty() {
        return Ok(Some((status, None)));
    }
    let records = load::load_unlocked(agent, session.clock.now())?;
    let posture = posture(&records).posture;
    Ok(args.posture.contains(&posture).then_some((records.state.status, Some(posture))))
}

/// Returns exit status 7 for a message that ended `aborted` or `dropped`, else 0.
pub fn exit_status(status: MessageStatus) -> Status {
    if status.has_failed() { Status::TurnFailed } else { Status::Done }
}

/// Time until a waiting command first checks that some process ticks the agent, and interval
/// between later checks.
const FIRST_CHECK: Duration = Duration::from_secs(5);
const CHECK_PAUSE: Duration = Duration::from_secs(60);

/// Warns if no process ticks the agent. Returns true after a warning. `has_waited`: the caller has
/// waited for seconds, so a step that was due all that time is overdue.
fn warn(Context { session, agent }: Context<'_>, has_waited: bool) -> Result<bool> {
    let name = agent.name();
    let now = session.clock.now();
    let records = load::load_unlocked(agent, now)?;
    let seconds = Span::from_secs(FIRST_CHECK.as_secs() - 1);
    let late = if has_waited { longer_than(&records, now, seconds) } else { overdue(&records, now) };
    let Some(late) = late else { return Ok(false) };
    let late = late.describe(now);
    session.out.note(&format!("{name}: no process ticks it: {late}; `dormouse tick {name}` runs a step"));
    Ok(true)
}

/// Time limit of a command that waits.
pub struct WaitLimit {
    timeout: Option<Span>,
    until: Option<Instant>,
}

impl WaitLimit {
    /// Starts the limit now. `None` sets no limit.
    pub fn after(timeout: Option<Span>) -> WaitLimit {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout.as_std()));
        WaitLimit { timeout, until }
    }

    /// Returns the remaining time; `None` without a limit. Fails after the limit. `what` describes
    /// the expected event in the error, and `agent` is the agent of that event.
    pub fn left(&self, agent: &str, what: impl std::fmt::Display) -> Result<Option<Duration>> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            let waited = self.timeout.unwrap_or(Span::ZERO);
            let message = format!("timed out after {waited}, waiting for {what}");
            let hint = format!(
                "`dormouse explain {agent}` shows what would wake it, `dormouse tick {agent}` runs its next step"
            );
            return Err(Error::failed_as(Status::TimedOut, "timed_out", message).with_hint(hint));
        }
        Ok(left)
    }
}

/// Waits until each message has ended, and prints the results in the order of the messages. Other
/// processes run the steps. Returns the most severe exit status. `has_sent`: the command has sent
/// the messages, and says after an error that they are still queued.
pub fn await_all(
    context: Context<'_>,
    messages: &[AdmittedArrival],
    deadline: &WaitLimit,
    has_sent: bool,
) -> Result<Status> {
    let Context { session, agent } = context;
    let mut watch = RecordWatch::new();
    let mut status = Status::Done;
    let begun = Instant::now();
    // Time from `begun` to the next check that a process ticks the agent; `None` after a warning.
    let mut next_check = Some(FIRST_CHECK);
    for message in messages {
        let end = loop {
            watch.follow_records(agent);
            if let Some(end) = settled(agent, message.id)? {
                break end;
            }
            let left = time_left(context, message.id, deadline).inspect_err(|_| {
                if has_sent {
                    note_queued(context, message.id);
                }
            })?;
            if let Some(next) = next_check {
                // Before the check only a step overdue by policy is reported, then any late step.
                let is_due = begun.elapsed() >= next;
                let later = if is_due { next + CHECK_PAUSE } else { next };
                next_check = (!warn(context, is_due)?).then_some(later);
            }
            let check = next_check.map(|next| next.saturating_sub(begun.elapsed()));
            wait(session, &mut watch, left.into_iter().chain(check).min())?;
        };
        status = status.graver(print_result(context, message, end)?);
        session.out.flush();
        if session.out.is_closed() {
            break;
        }
    }
    Ok(status)
}

/// Returns the remaining time. Error after a signal or timeout, or for a stopped or moved agent.
pub fn time_left(context: Context<'_>, id: MessageId, deadline: &WaitLimit) -> Result<Option<Duration>> {
    let Context { session, agent } = context;
    if let Some(signal) = session.cancelled_by.get() {
        return Err(Error::failed(format!("ended by signal {signal}")));
    }
    let state = agent.peek()?;
    refuse_moved(agent, &state)?;
    refuse_closed(&state, Some(id))?;
    deadline.left(agent.name().as_str(), id)
}

/// Fails for a moved agent, whose records no longer change here, so that no wait would end.
fn refuse_moved(agent: &Agent<'_>, state: &State) -> Result<()> {
    state.moved.as_ref().map_or(Ok(()), |moved| Err(moved_away(agent, moved)))
}

/// Reports that the message is still queued although the wait has ended.
pub fn note_queued(Context { session, agent }: Context<'_>, id: MessageId) {
    let name = agent.name();
    session.out.note(&format!("{id} stays queued; `dormouse await {name} --message {id}` waits for it"));
}

/// Fails for a stopped or unstarted agent, because no step claims its messages.
pub fn refuse_closed(state: &State, queued: Option<MessageId>) -> Result<()> {
    let Some(how) = closed(state.status) else { return Ok(()) };
    let said = if queued.is_some() { "" } else { ", and nothing was said to it" };
    Err(Error::refused("not_started", format!("`{}` {how}: it can't answer{said}", state.agent))
        .with_hint(format!("start it with `dormouse start {}`", state.agent)))
}

/// Waits for a change of the agent's records, at most for `left`. A signal ends the wait.
pub fn wait(session: &Session, watch: &mut RecordWatch, left: Option<Duration>) -> Result<()> {
    let signals = Signals::catch()?;
    watch.wait(left);
    session.cancelled_by.set(session.cancelled_by.get().or(signals.release()));
    Ok(())
}

/// Prints the result of a message, and returns the exit status for the result.
pub fn print_result(context: Context<'_>, message: &AdmittedArrival, end: Settlement) -> Result<Status> {
    let Context { session, agent } = context;
    let run = end.run_id.map_or(Ok(None), |id| agent.read(|snapshot, _| snapshot.run(id)))?;
    let attention = if session.has_raised_failure() { Status::TurnFailed } else { Status::Done };
    let status = exit_status(end.status).graver(attention);
    let completed = end.status == MessageStatus::Processed;
    let brief = run.and_then(|run| run.brief).filter(|_| completed);
    // `ask` has shown the output of this turn on stderr, except for a duplicate message.
    let is_shown = session.listens_to.get() == Some(message.id) && !message.duplicate;
    let failed = end.run_id.filter(|_| end.status.has_failed() && !is_shown);
    let output = failed.map(|run| output_end(agent, run)).transpose()?.flatten();
    if session.out.is_json() {
        session.out.json_line(&present(json!({
            "agent": agent.name(),
            "message_id": message.id,
            "duplicate": message.duplicate,
            "differs": message.differs.then_some(true),
            "status": end.status,
            "reason": end.reason,
            "run_id": end.run_id,
            "brief": brief,
            "output": output,
        })));
        return Ok(status);
    }
    if let Some(output) = output.filter(|_| !session.out.is_quiet()) {
        let mut show = listener();
        output.lines().for_each(|line| show(format!("| {line}\n").as_bytes()));
    }
    if let Some(brief) = &brief {
        let brief = session.out.whole(brief);
        session.out.line_unless_said(&brief);
    } else if is_reported(session, message.id) {
        session.out.note(&format!("when the cause is corrected: dormouse queue requeue {}", message.id));
    } else {
        let why = end.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        session.out.note(&format!("{}: {} {}{why}", agent.name(), message.id, end.status));
    }
    Ok(status)
}

/// True if this process has already reported the failure of the message.
pub fn is_reported(session: &Session, id: MessageId) -> bool {
    session.raised.borrow().iter().any(|attention| attention.about.message_id == Some(id))
}
