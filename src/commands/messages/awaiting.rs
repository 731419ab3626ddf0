//! `await`: blocks until agents reach a posture or status, or a message is settled.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cli;
use crate::commands::words::{parse, parse_optional};
use crate::engine::load;
use crate::engine::lookup::{self, Whereabouts, matches_id, whereabouts};
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::agent::Status as AgentStatus;
use crate::model::id::{AgentName, MessageId};
use crate::model::message::{MessageStatus, Settlement};
use crate::model::posture::Posture;
use crate::model::time::Span;
use crate::model::timer::Timer;
use crate::report::output::Output;
use crate::rules::overdue::{longer_than, overdue};
use crate::rules::posture::posture;
use crate::store::{Agent, RecordWatch, Store, moved_away};

/// Condition for every agent. One of several postures or statuses suffices.
struct AwaitCondition {
    postures: Vec<Posture>,
    statuses: Vec<AgentStatus>,
    message: Option<MessageId>,
}

/// Agent that meets the condition.
#[derive(Debug, Serialize)]
struct AwaitedAgent {
    agent: AgentName,
    status: AgentStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    posture: Option<Posture>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<MessageId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_status: Option<MessageStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub fn wait_until(session: &mut Session, args: cli::AwaitArgs) -> Result<Status> {
    let store = session.store()?;
    let start = Instant::now();
    let timeout: Option<Span> = parse_optional("--timeout", args.timeout.as_deref())?;
    let until = timeout.and_then(|timeout| start.checked_add(timeout.as_std()));
    let names: Vec<AgentName> = args.agents.iter().map(|name| parse("AGENT", name)).collect::<Result<_>>()?;
    let wanted = wanted(&store, &args, &names)?;
    let mut waiting = names.iter().map(|name| store.agent(name)).collect::<Result<Vec<_>>>()?;
    let mut watch = RecordWatch::new();
    let mut status = Status::Done;
    let mut lookout = Lookout::new();
    loop {
        let mut still = Vec::new();
        for agent in waiting {
            if wanted.may_arrive() {
                watch.follow(&agent);
            } else {
                watch.follow_records(&agent);
            }
            match wanted.look(session, &agent)? {
                Some(found) => {
                    status = status.graver(found.message_status.map_or(Status::Done, verdict));
                    session.out.result(&found, |out| line(&found, out));
                }
                None => {
                    // The agent was moved away, so its records no longer change here.
                    if let Some(moved) = agent.peek()?.moved {
                        return Err(moved_away(&agent, &moved));
                    }
                    still.push(agent);
                }
            }
        }
        session.out.flush();
        waiting = still;
        if waiting.is_empty() || session.out.is_closed() {
            return Ok(status);
        }
        if let Some(agent) = waiting.first().filter(|_| wanted.message.is_some()) {
            lookout.look(session, agent)?;
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(timed_out(&waiting, timeout.unwrap_or(Span::ZERO)));
        }
        watch.wait(if wanted.message.is_some() { lookout.until(left) } else { left });
    }
}

fn wanted(store: &Store, args: &cli::AwaitArgs, names: &[AgentName]) -> Result<AwaitCondition> {
    let message = match (&args.message, names) {
        (None, _) => None,
        (Some(part), [name]) => Some(message(store, name, part)?),
        (Some(_), _) => return Err(Error::usage("--message: a message has one agent; name that one alone")),
    };
    Ok(AwaitCondition {
        postures: args.posture.iter().map(|word| parse("--posture", word)).collect::<Result<_>>()?,
        statuses: args.status.iter().map(|word| parse("--status", word)).collect::<Result<_>>()?,
        message,
    })
}

/// Finds a message in the records, or one that a timer will send.
fn message(store: &Store, name: &AgentName, part: &str) -> Result<MessageId> {
    let missing = match lookup::message(store, Some(name.clone()), part) {
        Ok(found) => return Ok(found.id),
        Err(missing @ Error::NoRecord { .. }) => missing,
        Err(error) => return Err(error),
    };
    let timers = store.agent(name)?.look(|seen, _| seen.open::<Timer>())?;
    let mut put_off = timers.iter().filter_map(|timer| timer.message.as_ref()).map(|message| message.id);
    put_off.find(|id| matches_id(&id.to_string(), part)).ok_or(missing)
}

impl AwaitCondition {
    /// True if an arrival in the inbox alone can meet the condition.
    fn may_arrive(&self) -> bool {
        !self.postures.is_empty()
    }

    /// Returns the agent if it meets the condition.
    fn look(&self, session: &Session, agent: &Agent<'_>) -> Result<Option<AwaitedAgent>> {
        let state = agent.look(|_, state| Ok(state))?;
        let mut found = AwaitedAgent {
            agent: agent.name().clone(),
            status: state.status,
            posture: None,
            message_id: self.message,
            message_status: None,
            reason: None,
        };
        if !self.statuses.is_empty() && !self.statuses.contains(&state.status) {
            return Ok(None);
        }
        if let Some(id) = self.message {
            let Some(end) = settled(agent, id)? else { return Ok(None) };
            found.message_status = Some(end.status);
            found.reason = end.reason;
        }
        if !self.postures.is_empty() {
            let records = load::look(agent, session.clock.now())?;
            let now = posture(&records).posture;
            if !self.postures.contains(&now) {
                return Ok(None);
            }
            found.posture = Some(now);
            found.status = records.state.status;
        }
        Ok(Some(found))
    }
}

/// Returns the settlement of a message, if it has ended.
pub fn settled(agent: &Agent<'_>, id: MessageId) -> Result<Option<Settlement>> {
    Ok(match whereabouts(agent, id)? {
        Whereabouts::Archived(message) => message.settlement,
        Whereabouts::Unknown | Whereabouts::InInbox => None,
    })
}

/// Returns the exit status for a message that has ended. A message that was delivered to a turn
/// counts as completed.
pub fn verdict(status: MessageStatus) -> Status {
    match status {
        MessageStatus::Processed | MessageStatus::Interjected => Status::Done,
        MessageStatus::Aborted | MessageStatus::Dropped => Status::TurnFailed,
        MessageStatus::Queued | MessageStatus::Dequeued => Status::Done,
    }
}

/// Checks of a waiting command that some process ticks the agent.
pub struct Lookout {
    begun: Instant,
    next: Option<Duration>,
}

impl Lookout {
    /// Time of the first check, and the pause between later ones.
    const FIRST: Duration = Duration::from_secs(5);
    const PAUSE: Duration = Duration::from_secs(60);

    pub fn new() -> Lookout {
        Lookout { begun: Instant::now(), next: Some(Lookout::FIRST) }
    }

    /// Warns once if no step takes the message up: at once for an agent that is stopped or not
    /// started, otherwise at the next check.
    pub fn look(&mut self, session: &Session, agent: &Agent<'_>) -> Result<()> {
        let Some(next) = self.next else { return Ok(()) };
        let is_due = self.begun.elapsed() >= next;
        if warn(session, agent, is_due)? {
            self.next = None;
        } else if is_due {
            self.next = Some(next + Lookout::PAUSE);
        }
        Ok(())
    }

    /// Returns the time until the next check, limited by `left`.
    pub fn until(&self, left: Option<Duration>) -> Option<Duration> {
        let next = self.next.map(|next| next.saturating_sub(self.begun.elapsed()));
        left.into_iter().chain(next).min()
    }
}

/// Warns if no step takes a message up. Returns true if it did. `has_waited`: a step that is due
/// for seconds counts as overdue, because the caller waits for it.
fn warn(session: &Session, agent: &Agent<'_>, has_waited: bool) -> Result<bool> {
    let name = agent.name();
    let now = session.clock.now();
    let records = load::look(agent, now)?;
    let why = match records.state.status {
        AgentStatus::Stopped => format!("{name} is stopped: nothing is taken up before `dormouse start`"),
        AgentStatus::Booting => {
            format!("{name} was never started: nothing is taken up before `dormouse start`")
        }
        AgentStatus::AwakeIdle
        | AgentStatus::AwakeRunning
        | AgentStatus::AwaitingTask
        | AgentStatus::Asleep => {
            let seconds = Span::from_secs(Lookout::FIRST.as_secs() - 1);
            let late = if has_waited { longer_than(&records, now, seconds) } else { overdue(&records, now) };
            let Some(late) = late else { return Ok(false) };
            format!("{name}: nobody ticks: {}; `dormouse tick {name}` makes one", late.describe(now))
        }
    };
    session.out.note(&why);
    Ok(true)
}

fn line(found: &AwaitedAgent, out: &Output) -> String {
    let mut words = vec![found.agent.to_string(), found.status.to_string()];
    words.extend(found.posture.map(|posture| posture.to_string()));
    words.extend(found.message_status.map(|status| status.to_string()));
    words.extend(found.reason.as_ref().map(|reason| format!("({})", out.safe(reason))));
    words.join("  ")
}

fn timed_out(waiting: &[Agent<'_>], timeout: Span) -> Error {
    let names: Vec<&str> = waiting.iter().map(|agent| agent.name().as_str()).collect();
    Error::TimedOut { message: format!("waited {timeout} in vain for {}", names.join(", ")) }
}
