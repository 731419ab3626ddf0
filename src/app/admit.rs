//! `enqueue` and `wake`: what somebody has to say becomes one new file.

use std::io::{BufRead, Read};

use serde_json::{Value, json};

use crate::cli;
use crate::error::{Error, Result, Status};
use crate::model::agent::Status as AgentStatus;
use crate::model::dedupe::DedupeEntry;
use crate::model::id::{AgentName, MessageId};
use crate::model::message::{AdmissionContext, Body, DeliverySurface, Message, MessageStatus, WakeHint};
use crate::model::policy::{Policy, Size};
use crate::model::records::Lease;
use crate::model::stamp::Stamp;
use crate::model::submission::{Caller, Submission};
use crate::rules::admission::admit;
use crate::rules::transition::draft::Draft;
use crate::store::{Agent, dedupe, inbox};

use super::load::{self, Purpose};
use super::session::Session;
use super::words::{parse, parse_optional, text};

/// The longest line of a batch, beyond what its body may have.
const LINE_MARGIN: u64 = 64 << 10;

/// How many messages of a batch are written together, so that a long batch needs little memory.
const BATCH_CHUNK: usize = 1024;

/// What became of one request.
struct Admitted {
    id: MessageId,
    status: MessageStatus,
    duplicate: bool,
}

pub fn enqueue(session: &mut Session, args: cli::Enqueue) -> Result<Status> {
    let store = session.store()?;
    let agent = store.agent(&parse("AGENT", &args.agent)?)?;
    let policy = agent.policy()?;
    let caller = session.caller(&store)?;
    if args.batch {
        return enqueue_batch(session, &agent, &policy, caller.as_ref(), &args);
    }
    let submission = submission(&args, policy.limits.max_message)?;
    let mut stamp = session.clock.stamp()?;
    let message =
        admit(agent.name(), submission, DeliverySurface::Cli, caller.as_ref(), &policy.limits, &mut stamp)?;
    let admitted = if message.dedupe_key.is_some() {
        admit_once(session, &agent, &policy, message)?
    } else {
        agent.arrive(&message)?;
        Admitted { id: message.id, status: MessageStatus::Queued, duplicate: false }
    };
    say(session, agent.name(), &admitted);
    Ok(Status::Done)
}

fn say(session: &mut Session, agent: &AgentName, admitted: &Admitted) {
    let object = json!({
        "agent": agent,
        "message_id": admitted.id,
        "status": admitted.status,
        "duplicate": admitted.duplicate,
    });
    session.out.result(&object, |_| admitted.id.to_string());
}

/// The flags as a request.
fn submission(args: &cli::Enqueue, limit: Size) -> Result<Submission> {
    let mut submission = Submission {
        kind: parse_optional("--kind", args.kind.as_deref())?,
        origin: args.origin.clone(),
        priority: parse_optional("--priority", args.priority.as_deref())?,
        dedupe_key: args.dedupe_key.clone(),
        ttl: parse_optional("--ttl", args.ttl.as_deref())?,
        resource: args.resource.clone(),
        work_item_id: parse_optional("--work-item", args.work_item.as_deref())?,
        correlation_id: args.correlation_id.clone(),
        ..Submission::default()
    };
    match &args.body_json {
        Some(word) => submission.body = Some(json_body(word, limit)?),
        None => submission.text = Some(text("TEXT", args.text.as_deref(), limit)?),
    }
    Ok(submission)
}

fn json_body(word: &str, limit: Size) -> Result<Value> {
    let text = text("--body-json", Some(word), limit)?;
    serde_json::from_str(&text).map_err(|error| Error::Usage {
        message: format!("--body-json: not JSON: {error}"),
        hint: Some("plain text goes without --body-json".to_owned()),
    })
}

/// A dedupe key needs a look first: the message that was admitted under it within the window, or
/// else this one, in one transaction with the note of the key.
fn admit_once(session: &Session, agent: &Agent<'_>, policy: &Policy, message: Message) -> Result<Admitted> {
    let now = session.clock.now();
    let window = policy.limits.dedupe_window;
    let locked = agent.lock(now)?;
    let state = locked.state()?;
    let key = message.dedupe_key.clone().unwrap_or_default();
    if let Some(entry) = dedupe::find(&locked.view(), &key, now, window, state.revision)? {
        let claimed = state.current_run.as_ref().is_some_and(|run| run.message_id == entry.message_id);
        return Ok(repeat(&entry, claimed));
    }
    dedupe::forget_old_days(&locked.view(), now, window)?;
    let admitted = Admitted { id: message.id, status: MessageStatus::Queued, duplicate: false };
    let scan = inbox::Scan::default();
    let records = load::records(agent, &locked.view(), &scan, state, Lease::Free, now, Purpose::Change)?;
    let mut draft = Draft::new(records, session.clock.stamp()?);
    crate::rules::transition::inbox::admit_drop(&mut draft, message);
    locked.commit(draft.finish()?)?;
    Ok(admitted)
}

fn repeat(entry: &DedupeEntry, claimed: bool) -> Admitted {
    let status = if claimed { MessageStatus::Dequeued } else { entry.status };
    Admitted { id: entry.message_id, status, duplicate: true }
}

/// One message per line. Every line is looked at before the first is admitted; a bad one admits none.
fn enqueue_batch(
    session: &mut Session,
    agent: &Agent<'_>,
    policy: &Policy,
    caller: Option<&Caller>,
    args: &cli::Enqueue,
) -> Result<Status> {
    let mut stamp = session.clock.stamp()?;
    let mut messages = Vec::new();
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        let most = policy.limits.max_message.0.saturating_mul(2).saturating_add(LINE_MARGIN);
        let read = input.by_ref().take(most).read_until(b'\n', &mut line).map_err(|source| Error::Io {
            action: "read",
            path: "stdin".into(),
            source,
        })?;
        if read == 0 {
            break;
        }
        number += 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        messages.push(batch_message(agent, policy, caller, args, number, &line, &mut stamp)?);
    }
    let answers = admit_batch(session, agent, policy, messages)?;
    for admitted in &answers {
        say(session, agent.name(), admitted);
    }
    Ok(Status::Done)
}

fn batch_message(
    agent: &Agent<'_>,
    policy: &Policy,
    caller: Option<&Caller>,
    args: &cli::Enqueue,
    number: usize,
    line: &[u8],
    stamp: &mut Stamp,
) -> Result<Message> {
    let mut submission: Submission = serde_json::from_slice(line).map_err(|error| Error::Usage {
        message: format!("line {number} of the batch: {error}"),
        hint: Some("nothing was admitted".to_owned()),
    })?;
    // What the flags say holds for every line that says nothing else.
    submission.origin = submission.origin.or_else(|| args.origin.clone());
    submission.resource = submission.resource.or_else(|| args.resource.clone());
    submission.correlation_id = submission.correlation_id.or_else(|| args.correlation_id.clone());
    submission.priority = match submission.priority {
        None => parse_optional("--priority", args.priority.as_deref())?,
        some => some,
    };
    submission.ttl = match submission.ttl {
        None => parse_optional("--ttl", args.ttl.as_deref())?,
        some => some,
    };
    admit(agent.name(), submission, DeliverySurface::Cli, caller, &policy.limits, stamp).map_err(|refusal| {
        Error::Refused {
            kind: refusal.kind,
            message: format!("line {number} of the batch: {}", refusal.message),
            hint: Some(refusal.hint.map_or_else(
                || "nothing was admitted".to_owned(),
                |hint| format!("{hint}; nothing was admitted"),
            )),
        }
    })
}

/// Admits in order; runs of messages without a key go together.
fn admit_batch(
    session: &Session,
    agent: &Agent<'_>,
    policy: &Policy,
    messages: Vec<Message>,
) -> Result<Vec<Admitted>> {
    let mut answers = Vec::with_capacity(messages.len());
    let mut together = Vec::new();
    for message in messages {
        if message.dedupe_key.is_none() {
            answers.push(Admitted { id: message.id, status: MessageStatus::Queued, duplicate: false });
            together.push(message);
            if together.len() == BATCH_CHUNK {
                agent.arrive_all(&std::mem::take(&mut together))?;
            }
            continue;
        }
        agent.arrive_all(&std::mem::take(&mut together))?;
        answers.push(admit_once(session, agent, policy, message)?);
    }
    agent.arrive_all(&together)?;
    Ok(answers)
}

pub fn wake(session: &mut Session, args: cli::Wake) -> Result<Status> {
    let store = session.store()?;
    let agent = store.agent(&parse("AGENT", &args.agent)?)?;
    let mut stamp = session.clock.stamp()?;
    let limit = agent.policy()?.limits.max_message;
    let body = match &args.text {
        Some(word) => Some(Body::Text { text: text("TEXT", Some(word), limit)? }),
        None => None,
    };
    if let Some(Body::Text { text }) = &body
        && text.len() as u64 > limit.0
    {
        return Err(Error::Refused {
            kind: "message_too_large",
            message: format!("the hint has {} bytes, more than limits.max_message = {limit}", text.len()),
            hint: None,
        });
    }
    let hint = WakeHint {
        id: MessageId(stamp.mint()),
        agent: agent.name().clone(),
        source: args.source,
        reason: args.reason,
        resource: args.resource,
        trigger_id: None,
        wait_id: parse_optional("--wait", args.wait.as_deref())?,
        body,
        delivery_surface: DeliverySurface::Cli,
        admission_context: AdmissionContext::LocalProcess,
        created_at: stamp.now,
        count: 1,
        extra: Default::default(),
    };
    agent.arrive_hint(&hint)?;
    if agent.peek()?.status == AgentStatus::Stopped {
        session.out.note(&format!("{} is stopped: the hint will be ignored", agent.name()));
    }
    session.out.result(&json!({ "agent": agent.name(), "hint_id": hint.id }), |_| hint.id.to_string());
    Ok(Status::Done)
}
