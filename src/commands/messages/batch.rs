//! `enqueue --batch`: one message per line of stdin.

use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::path::Path;

use crate::cli;
use crate::engine::context::Context;
use crate::engine::delivery::{AdmittedArrival, OnRepeat, admit_each_once};
use crate::engine::lookup::check_named;
use crate::error::{Error, IoContext, Result};
use crate::model::bound::Bound;
use crate::model::id::MessageId;
use crate::model::json;
use crate::model::message::Message;
use crate::model::policy::Policy;
use crate::model::stamp::Stamp;
use crate::model::submission::Submission;
use crate::report::progress::Unit;
use crate::rules::admission::admit as make;
use crate::store::Agent;

use super::sender::{self, Sender};

/// Number of bytes that a batch line may have beyond twice the maximum size of a message.
const LINE_MARGIN: u64 = 64 << 10;

/// Maximum number of messages with a dedupe key in one transaction.
const TOGETHER: usize = 32;

/// Admits one message per line. All lines are checked before the first is admitted, so that a batch
/// with an invalid line admits no message.
pub fn admit(context: Context<'_>, args: &cli::MessageArgs) -> Result<Vec<AdmittedArrival>> {
    let Context { session, agent } = context;
    let sender = Sender::of(context, args)?;
    let mut stamp = session.clock.stamp()?;
    let mut batch = agent.batch(stamp.mint())?;
    // Only the ids, and the messages whose dedupe key must be looked up, stay in memory.
    let (mut ids, mut keyed): (Vec<MessageId>, Vec<Message>) = (Vec::new(), Vec::new());
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    let mut progress = session.out.progress(Unit::Messages, None);
    for number in 1.. {
        if !read_line(&mut input, &mut line, number, &sender.policy)? {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let submission = read_submission(&line, number, args)?;
        let message =
            batch_message(agent, &sender, submission, &mut stamp).map_err(|error| in_line(number, error))?;
        ids.push(message.id);
        if message.dedupe_key.is_some() && sender.user.is_none() {
            keyed.push(message);
        } else {
            batch.stage(&message)?;
        }
        progress.advance(1);
    }
    drop(progress);
    batch.sync()?;
    let mut answers = HashMap::new();
    let mut progress = session.out.progress(Unit::Messages, Some(keyed.len() as u64));
    for some in keyed.chunks(TOGETHER) {
        let admitted = admit_each_once(context, &sender.policy, some.to_vec(), OnRepeat::Answer, None)?;
        answers.extend(some.iter().map(|message| message.id).zip(admitted));
        progress.advance(some.len() as u64);
    }
    drop(progress);
    batch.admit(session.clock.now())?;
    let mut admitted = |id| answers.remove(&id).unwrap_or(AdmittedArrival::queued(id));
    Ok(ids.into_iter().map(&mut admitted).collect())
}

/// Reads the next line, of at most twice `max_message` plus `LINE_MARGIN`. Returns false at end.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>, number: usize, policy: &Policy) -> Result<bool> {
    line.clear();
    let limit = policy.limits.max_message;
    let most = limit.0.saturating_mul(2).saturating_add(LINE_MARGIN);
    let read = input.take(most.saturating_add(1)).read_until(b'\n', line);
    let read = read.context("read", Path::new("stdin"))?;
    if read as u64 > most && line.last() != Some(&b'\n') {
        let refusal = Bound::message("it", limit).refuse(&format!("at least {read}"));
        return Err(in_line(number, refusal.into()));
    }
    Ok(read > 0)
}

/// Adds the line number of the batch to a refusal.
fn in_line(number: usize, error: Error) -> Error {
    let Error::Refused { kind, .. } = error else { return error };
    let hint = error.hint().map(|hint| format!("{hint}; ")).unwrap_or_default();
    Error::refused(kind, format!("line {number} of the batch: {error}"))
        .with_hint(format!("{hint}nothing was admitted"))
}

/// Parses a line of a batch. Flags are the defaults for fields that the line does not have.
fn read_submission(line: &[u8], number: usize, args: &cli::MessageArgs) -> Result<Submission> {
    let wrong = |place: String, what: &str| {
        Error::usage(format!("line {number} of the batch{place}: {what}")).with_hint("nothing was admitted")
    };
    let text = std::str::from_utf8(line).map_err(|_| wrong(String::new(), "not UTF-8"))?;
    let read = json::read(json::outside(text).0.as_bytes());
    let mut submission: Submission = read.map_err(|error| {
        let text = error.to_string();
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        let what =
            if error.is_syntax() || error.is_eof() { format!("not JSON: {what}") } else { what.to_owned() };
        wrong(format!(", column {}", error.column()), &what)
    })?;
    submission.origin = submission.origin.or_else(|| args.origin.clone());
    submission.resource = submission.resource.or_else(|| args.resource.clone());
    submission.correlation_id = submission.correlation_id.or_else(|| args.correlation_id.clone());
    submission.priority = submission.priority.or(args.priority);
    submission.ttl = submission.ttl.or(args.ttl);
    submission.allow_empty |= args.allow_empty;
    Ok(submission)
}

/// Makes the message of a line, but does not store it. Fails if a record that it names is missing.
fn batch_message(
    agent: &Agent<'_>,
    sender: &Sender,
    submission: Submission,
    stamp: &mut Stamp,
) -> Result<Message> {
    let needs =
        [("work_item_id", submission.work_item_id.is_some()), ("wait_id", submission.wait_id.is_some())];
    sender::judge(agent.store().guest(), submission.origin.as_deref(), submission.kind, needs)?;
    let speaker = sender.speaker();
    let message =
        make(agent.name(), submission, speaker, &sender.policy.limits, stamp)?.triggering(sender.trigger);
    let named = (message.work_item_id, message.wait_id);
    if named != (None, None) {
        let checked = agent.read(|seen, _| check_named(&seen, named, message.trigger_kind));
        checked.map_err(|error| {
            let is_missing = matches!(error, Error::NoRecord { .. });
            if is_missing { Error::refused(error.kind(), error.to_string()) } else { error }
        })?;
    }
    Ok(message)
}
