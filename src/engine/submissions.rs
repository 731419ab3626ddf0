//! Files that people and programs put into the inbox: each becomes a message or is quarantined.

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::model::json;
use crate::model::message::Message;
use crate::model::policy::Policy;
use crate::model::records::Records;
use crate::model::submission::{Speaker, Submission};
use crate::rules::admission;
use crate::rules::transition::arrival::admit_drop;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::inbox as rules;
use crate::store::{Agent, AgentTxn, Dropped, HandWritten, QuarantineOutcome, Snapshot, TakenFile};

use super::context::Context;
use super::load;
use super::lookup::check_named;

/// Adds the messages of files in the inbox that are not admitted yet, as many as one step admits,
/// to the records of a dry run. Changes no file.
pub fn preview(context: Context<'_>, draft: &mut Draft, waiting: &mut VecDeque<Dropped>) -> Result<()> {
    let seen = context.agent.snapshot();
    let most = at_once(&draft.records.policy);
    let (mut count, mut bytes) = (0, 0);
    while count < most && bytes < AT_ONCE {
        let Some(file) = &waiting.pop_front() else { break };
        count += 1;
        let Records { state, policy, .. } = &draft.records;
        let Some(Ok(message)) = read_submission(context, &seen, policy, file)? else { continue };
        let first = load::first_of_its_key(&seen, &message, state, policy, draft.now())?;
        bytes += message.body.bytes();
        if first.is_none_or(|first| first == message.id) {
            draft.records.inbox.offer(&message);
        }
    }
    draft.records.inbox.submissions = waiting.len();
    Ok(())
}

/// Size in bytes of message bodies at which a step admits no more files in one transaction.
const AT_ONCE: usize = 16 << 20;

/// Returns the maximum number of files that a step admits before it decides.
fn at_once(policy: &Policy) -> usize {
    usize::try_from(policy.limits.max_drops_per_step).unwrap_or(usize::MAX)
}

/// Makes messages of files that were dropped into the inbox, and quarantines invalid files: in one
/// transaction, and at most `limits.max_drops_per_step`. Returns true if records or files have
/// changed, and the names of the files that can be neither admitted nor moved.
pub fn take_in(context: Context<'_>, locked: &AgentTxn<'_>, mut draft: Draft) -> Result<(bool, Vec<String>)> {
    let agent = context.agent;
    forget_changed(agent, &mut draft);
    let most = at_once(&draft.records.policy);
    let mut admitted = Vec::new();
    let mut unmovable = Vec::new();
    let mut count = 0;
    let mut bytes = 0;
    let seen = locked.current_snapshot();
    let mut dropped = seen.dropped()?.into_iter();
    while let Some(files) = locked.files()
        && let Some(file) = dropped.next()
    {
        if count + unmovable.len() >= most || bytes >= AT_ONCE {
            break;
        }
        let taken = match files.claim_submission(&file)? {
            TakenFile::As(taken) => taken,
            TakenFile::NotNow => continue,
            TakenFile::Not(why) => {
                unmovable.push(pass_over(agent, &mut draft, &file, &why));
                continue;
            }
        };
        match read_submission(context, &seen, &draft.records.policy, &taken)? {
            None => continue,
            Some(Ok(message)) => {
                let Records { state, policy, .. } = &draft.records;
                let first = load::first_of_its_key(&seen, &message, state, policy, draft.now())?;
                bytes += message.body.bytes();
                admit_drop(&mut draft, message, first);
                admitted.push(taken);
            }
            Some(Err(reason)) => unmovable.extend(reject(agent, locked, &mut draft, &taken, &reason)?),
        }
        count += 1;
    }
    let has_changed = count > 0 || !unmovable.is_empty() || !draft.is_empty();
    context.commit(locked, draft)?;
    admitted.iter().try_for_each(|taken| agent.local().remove_submission(taken))?;
    Ok((has_changed, unmovable))
}

/// Quarantines inbox files that have the name of a message or hint but are invalid or of another
/// agent: in one transaction, and at most `limits.max_drops_per_step` of them. Returns the names of
/// files that can't be moved.
pub fn quarantine(context: Context<'_>, locked: &AgentTxn<'_>, mut draft: Draft) -> Result<Vec<String>> {
    let agent = context.agent;
    forget_changed(agent, &mut draft);
    let mut unmovable = Vec::new();
    let most = at_once(&draft.records.policy);
    for file in std::mem::take(&mut draft.records.inbox.malformed).into_iter().take(most) {
        unmovable.extend(reject(agent, locked, &mut draft, &Dropped::from(&file), &file.reason)?);
    }
    context.commit(locked, draft)?;
    Ok(unmovable)
}

/// Quarantines a file. Returns the file's name if it can't be moved.
fn reject(
    agent: &Agent<'_>,
    locked: &AgentTxn<'_>,
    draft: &mut Draft,
    file: &Dropped,
    reason: &str,
) -> Result<Option<String>> {
    Ok(match locked.quarantine(file, reason)? {
        QuarantineOutcome::Moved(name) => {
            rules::rejected(draft, &name, reason, false);
            None
        }
        QuarantineOutcome::Gone => None,
        QuarantineOutcome::Stays(why) => Some(pass_over(agent, draft, file, &format!("{reason}; {why}"))),
    })
}

/// Leaves a file that can't be moved in place, records that once, and returns the file's name.
fn pass_over(agent: &Agent<'_>, draft: &mut Draft, file: &Dropped, reason: &str) -> String {
    if agent.local().pass_over(&mut draft.records.state, file, reason) {
        rules::rejected(draft, &file.name(), reason, true);
    }
    file.name().into_owned()
}

/// Makes steps read a file again that could not be moved, once the file has changed.
fn forget_changed(agent: &Agent<'_>, draft: &mut Draft) {
    if agent.local().forget_changed(&mut draft.records.state) {
        draft.touch();
    }
}

/// Reads a file that was dropped into the inbox. Returns its message, or the reason why it is
/// invalid; `None` if it is gone. Its message id is derived from the file: a second admission has
/// no effect.
fn read_submission(
    context: Context<'_>,
    seen: &Snapshot<'_>,
    policy: &Policy,
    file: &Dropped,
) -> Result<Option<Result<Message, String>>> {
    let HandWritten { bytes, user, id } = match seen.read_dropped(file)? {
        Some(Ok(said)) => said,
        Some(Err(why)) => return Ok(Some(Err(why))),
        None => return Ok(None),
    };
    let read = std::str::from_utf8(&bytes)
        .map_err(|_| "not UTF-8".to_owned())
        .and_then(|text| json::read(json::outside(text).0.as_bytes()).map_err(|error| error.to_string()));
    let submission: Submission = match read {
        Ok(submission) => submission,
        Err(why) => return Ok(Some(Err(format!("not a message: {why}")))),
    };
    let speaker = user.as_deref().map_or(Speaker::File(&policy.inbox.drops_as.0), Speaker::User);
    let mut stamp = context.session.clock.stamp()?;
    let admitted = admission::admit(context.agent.name(), submission, speaker, &policy.limits, &mut stamp);
    let message = match admitted {
        Ok(message) => message,
        Err(refusal) => return Ok(Some(Err(refusal.message))),
    };
    match check_named(seen, (message.work_item_id, message.wait_id), message.trigger_kind) {
        Ok(()) => Ok(Some(Ok(Message { id, ..message }))),
        Err(error @ (Error::NoRecord { .. } | Error::Refused { .. })) => Ok(Some(Err(error.to_string()))),
        Err(error) => Err(error),
    }
}
