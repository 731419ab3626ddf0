//! Files that people and programs have dropped into the inbox: each becomes a message, or is moved
//! aside with the reason.

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::model::json;
use crate::model::message::{DeliverySurface, Message};
use crate::model::policy::Policy;
use crate::model::records::Records;
use crate::model::submission::{Speaker, Submission};
use crate::rules::admission;
use crate::rules::transition::arrival::admit_drop;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::rejected as rules;
use crate::store::{Agent, Aside, Change, Dropped, Said, Snapshot, Taken};

use super::desk::Desk;
use super::load;
use super::lookup::check_named;
use super::session::Session;

/// Counts hand-written files as the messages that they would become: as many as a step takes in at
/// once.
pub fn foresee(
    session: &Session,
    agent: &Agent<'_>,
    draft: &mut Draft,
    waiting: &mut VecDeque<Dropped>,
) -> Result<()> {
    let seen = agent.snapshot()?;
    let most = at_once(&draft.records.policy);
    let (mut count, mut bytes) = (0, 0);
    while count < most && bytes < AT_ONCE {
        let Some(file) = &waiting.pop_front() else { break };
        count += 1;
        let Records { state, policy, .. } = &draft.records;
        let Some(Ok(message)) = read_drop(session, agent, &seen, policy, file)? else { continue };
        let first = load::first_of_its_key(&seen, &message, state, policy, draft.now())?;
        bytes += message.body.bytes();
        if first.is_none_or(|first| first == message.id) {
            draft.records.inbox.offer(&message);
        }
    }
    draft.records.inbox.drops = waiting.len();
    Ok(())
}

/// How many bytes of bodies a step takes in before it decides, however few files they are: all is
/// one transaction.
const AT_ONCE: usize = 16 << 20;

/// How many files a step takes in before it decides.
fn at_once(policy: &Policy) -> usize {
    usize::try_from(policy.limits.max_drops_per_step).unwrap_or(usize::MAX)
}

/// What came of taking files in.
pub struct TakenIn {
    /// Whether anything has changed.
    pub any: bool,
    /// The names of what can be neither admitted nor moved.
    pub stuck: Vec<String>,
}

/// Admits the files that were dropped into the inbox, and moves aside those that can't be admitted:
/// in one transaction, and no more than `limits.max_drops_per_step`.
pub fn take_in(
    session: &Session,
    agent: &Agent<'_>,
    locked: &Change<'_>,
    mut draft: Draft,
) -> Result<TakenIn> {
    forget_changed(agent, &mut draft);
    let most = at_once(&draft.records.policy);
    let mut admitted = Vec::new();
    let mut stuck = Vec::new();
    let mut count = 0;
    let mut bytes = 0;
    let seen = locked.look_again()?;
    for file in seen.dropped()? {
        if count + stuck.len() >= most || bytes >= AT_ONCE {
            break;
        }
        let taken = match locked.local().take_drop(&file)? {
            Taken::As(taken) => taken,
            Taken::NotNow => continue,
            Taken::Not(why) => {
                stuck.push(pass_over(agent, &mut draft, &file, &why));
                continue;
            }
        };
        match read_drop(session, agent, &seen, &draft.records.policy, &taken)? {
            None => continue,
            Some(Ok(message)) => {
                let Records { state, policy, .. } = &draft.records;
                let first = load::first_of_its_key(&seen, &message, state, policy, draft.now())?;
                bytes += message.body.bytes();
                admit_drop(&mut draft, message, first);
                admitted.push(taken);
            }
            Some(Err(reason)) => stuck.extend(reject(agent, locked, &mut draft, &taken, &reason)?),
        }
        count += 1;
    }
    let any = count > 0 || !stuck.is_empty() || !draft.is_empty();
    Desk::new(session, agent).commit(locked, draft)?;
    admitted.iter().try_for_each(|taken| locked.local().remove_drop(taken))?;
    Ok(TakenIn { any, stuck })
}

/// Moves aside what lies in the inbox under the name of a message or a hint and is none of this
/// agent's: in one transaction, and no more than `limits.max_drops_per_step`. Returns the names of
/// what can't be moved.
pub fn set_aside(
    session: &Session,
    agent: &Agent<'_>,
    locked: &Change<'_>,
    mut draft: Draft,
) -> Result<Vec<String>> {
    forget_changed(agent, &mut draft);
    let mut stuck = Vec::new();
    let most = at_once(&draft.records.policy);
    for misfit in std::mem::take(&mut draft.records.inbox.misfits).into_iter().take(most) {
        stuck.extend(reject(agent, locked, &mut draft, &Dropped::from(&misfit), &misfit.reason)?);
    }
    Desk::new(session, agent).commit(locked, draft)?;
    Ok(stuck)
}

/// Moves something aside. Returns its name where it stays.
fn reject(
    agent: &Agent<'_>,
    locked: &Change<'_>,
    draft: &mut Draft,
    file: &Dropped,
    reason: &str,
) -> Result<Option<String>> {
    Ok(match locked.set_aside(file, reason)? {
        Aside::Moved(name) => {
            rules::rejected(draft, &name, reason);
            None
        }
        Aside::Gone => None,
        Aside::Stays(why) => Some(pass_over(agent, draft, file, &format!("{reason}; {why}"))),
    })
}

/// Leaves something where it is, and says so once. Returns its name.
fn pass_over(agent: &Agent<'_>, draft: &mut Draft, file: &Dropped, reason: &str) -> String {
    if agent.local().pass_over(&mut draft.records.state, file, reason) {
        rules::stays(draft, &file.name(), reason);
    }
    file.name().into_owned()
}

/// What was passed over and has changed since is looked at like anything new.
fn forget_changed(agent: &Agent<'_>, draft: &mut Draft) {
    if agent.local().forget_changed(&mut draft.records.state) {
        draft.touch();
    }
}

/// Reads a hand-written file: the message it makes, or why it makes none; nothing if it has gone
/// away. The id comes from the file itself, so that admitting it twice, after a crash in between,
/// is admitting it once.
pub fn read_drop(
    session: &Session,
    agent: &Agent<'_>,
    seen: &Snapshot<'_>,
    policy: &Policy,
    file: &Dropped,
) -> Result<Option<std::result::Result<Message, String>>> {
    let Said { bytes, user, id } = match seen.read_dropped(file)? {
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
    let admitted = admission::admit(
        agent.name(),
        submission,
        DeliverySurface::FileDrop,
        speaker,
        &policy.limits,
        &mut session.clock.stamp()?,
    );
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
