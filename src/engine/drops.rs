//! Files that somebody dropped into the inbox by hand: each becomes a message, or is moved aside with the reason.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::beneath::Content;
use crate::error::{Error, Result};
use crate::model::message::{DeliverySurface, Message};
use crate::model::policy::Policy;
use crate::model::records::Records;
use crate::model::state::PassedOver;
use crate::model::submission::{Speaker, Submission};
use crate::rules::admission;
use crate::rules::transition::arrival::admit_drop;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::rejected as rules;
use crate::store::drops::{Aside, LONGEST_NAME, Taken, given_name, identity, taken_name};
use crate::store::files::fault_of_file;
use crate::store::inbox::Scan;
use crate::store::view::View;
use crate::store::{Agent, Locked, authors, files, layout};

use super::desk::Desk;
use super::load::{self, Purpose};
use super::lookup::refuse_missing;
use super::session::Session;

/// Counts hand-written files as the messages that they would become: as many as a step takes in at once.
pub fn foresee(
    session: &Session,
    agent: &Agent<'_>,
    draft: &mut Draft,
    waiting: &mut VecDeque<PathBuf>,
) -> Result<()> {
    let view = agent.view()?;
    let most = at_once(&draft.records.policy);
    let (mut count, mut bytes) = (0, 0);
    while count < most && bytes < AT_ONCE {
        let Some(name) = &waiting.pop_front() else { break };
        count += 1;
        let Records { state, policy, .. } = &draft.records;
        let path = Path::new(layout::INBOX).join(name);
        let found = if is_too_long(name) { None } else { read_drop(session, agent, &view, policy, &path)? };
        let Some(Ok(message)) = found else { continue };
        let first =
            load::first_of_its_key(agent, &view, &message, state, policy, draft.now(), Purpose::Look)?;
        bytes += message.body.bytes();
        if first.is_none_or(|first| first == message.id) {
            draft.records.inbox.offer(&message);
        }
    }
    draft.records.inbox.drops = waiting.len();
    Ok(())
}

/// How many bytes of bodies a step takes in before it decides, however few files they are: all is one transaction.
const AT_ONCE: usize = 16 << 20;

/// How many files a step takes in before it decides.
fn at_once(policy: &Policy) -> usize {
    usize::try_from(policy.limits.max_drops_per_step).unwrap_or(usize::MAX)
}

/// What came of taking files in.
pub struct TakenIn {
    /// Whether anything has changed.
    pub any: bool,
    /// The paths from the inbox of what can be neither admitted nor moved.
    pub stuck: Vec<String>,
}

/// Admits the files that somebody dropped into the inbox by hand, and moves aside those that can't be: in
/// one transaction, and no more than `limits.max_drops_per_step`.
pub fn take_in(
    session: &Session,
    agent: &Agent<'_>,
    locked: &Locked<'_>,
    mut draft: Draft,
    scan: &Scan,
) -> Result<TakenIn> {
    forget_changed(agent, &mut draft);
    let most = at_once(&draft.records.policy);
    let mut admitted = Vec::new();
    let mut stuck = Vec::new();
    let mut count = 0;
    let mut bytes = 0;
    // What lies in the place of `rejected/` comes first: the others may have to go there.
    let in_its_place = |name: &&PathBuf| name.as_path() == Path::new(layout::REJECTED);
    let others = scan.drops.iter().filter(|name| !in_its_place(name));
    for name in scan.drops.iter().filter(in_its_place).chain(others) {
        if count + stuck.len() >= most || bytes >= AT_ONCE {
            break;
        }
        let taken = match locked.take_drop(name)? {
            Taken::As(taken) => taken,
            Taken::Gone => continue,
            // The one that is in its way comes first, if it can be taken in.
            Taken::InTheWay if scan.drops.contains(&taken_name(name)) => continue,
            Taken::InTheWay => {
                let why = "another file of its name lies in its way";
                stuck.push(pass_over(agent, &mut draft, &name.to_string_lossy(), why));
                continue;
            }
            Taken::Not(why) => {
                stuck.push(pass_over(agent, &mut draft, &name.to_string_lossy(), &why));
                continue;
            }
        };
        let path = Path::new(layout::INBOX).join(&taken);
        let policy = &draft.records.policy;
        let found = if is_too_long(&taken) {
            Some(Err(format!("its name is too long: a name may have {LONGEST_NAME} bytes")))
        } else {
            read_drop(session, agent, &locked.view(), policy, &path)?
        };
        match found {
            None => continue,
            Some(Ok(message)) => {
                let first = load::first_of_its_key(
                    agent,
                    &locked.view(),
                    &message,
                    &draft.records.state,
                    &draft.records.policy,
                    draft.now(),
                    Purpose::Change,
                )?;
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
    admitted.iter().try_for_each(|taken| locked.remove_drop(taken))?;
    Ok(TakenIn { any, stuck })
}

/// Moves aside what lies in the inbox under the name of a message or a hint and is none of this agent's: in
/// one transaction, and no more than `limits.max_drops_per_step`. Returns the paths from the inbox of what can't be moved.
pub fn set_aside(
    session: &Session,
    agent: &Agent<'_>,
    locked: &Locked<'_>,
    mut draft: Draft,
) -> Result<Vec<String>> {
    forget_changed(agent, &mut draft);
    let mut stuck = Vec::new();
    let most = at_once(&draft.records.policy);
    for misfit in std::mem::take(&mut draft.records.inbox.misfits).into_iter().take(most) {
        stuck.extend(reject(agent, locked, &mut draft, Path::new(&misfit.path), &misfit.reason)?);
    }
    Desk::new(session, agent).commit(locked, draft)?;
    Ok(stuck)
}

/// Whether the name of a dropped file has no room for what the program puts before and behind it.
fn is_too_long(name: &Path) -> bool {
    given_name(name).unwrap_or(name).as_os_str().len() > LONGEST_NAME
}

/// Moves something aside. Returns its path where it stays.
fn reject(
    agent: &Agent<'_>,
    locked: &Locked<'_>,
    draft: &mut Draft,
    path: &Path,
    reason: &str,
) -> Result<Option<String>> {
    Ok(match locked.set_aside(path, reason)? {
        Aside::Moved(name) => {
            rules::rejected(draft, &name.to_string_lossy(), reason);
            None
        }
        Aside::Gone => None,
        Aside::Stays(why) => {
            Some(pass_over(agent, draft, &path.to_string_lossy(), &format!("{reason}; {why}")))
        }
    })
}

/// Leaves something where it is, and says so once. Returns its path.
fn pass_over(agent: &Agent<'_>, draft: &mut Draft, file: &str, reason: &str) -> String {
    let changed_at = agent.changed_in_inbox(file);
    rules::pass_over(draft, PassedOver { file: file.to_owned(), reason: reason.to_owned(), changed_at });
    file.to_owned()
}

/// What was passed over and has changed since is looked at like anything new.
fn forget_changed(agent: &Agent<'_>, draft: &mut Draft) {
    if !draft.records.state.passed_over.is_empty() {
        let still = agent.passed_over(&draft.records.state);
        rules::look_again(draft, |file| still.iter().any(|one| one == file));
    }
}

/// Reads a hand-written file, by its path from the agent's directory: the message it makes, or why it makes
/// none; nothing if it has gone away. The id comes from the file itself, so that admitting it twice, after a
/// crash in between, is admitting it once.
pub fn read_drop(
    session: &Session,
    agent: &Agent<'_>,
    view: &View<'_>,
    policy: &Policy,
    path: &Path,
) -> Result<Option<std::result::Result<Message, String>>> {
    let path = agent.dir().join(path);
    let Content { bytes, owner, .. } = match files::read_owned(&path) {
        Ok(Some(content)) => content,
        Ok(None) => return Ok(None),
        Err(error) => return fault_of_file(error).map(|why| Some(Err(why))),
    };
    let submission: Submission = match serde_json::from_slice(&bytes) {
        Ok(submission) => submission,
        Err(error) => return Ok(Some(Err(format!("not a message: {error}")))),
    };
    let user = authors::other(&path, owner)?;
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
    match refuse_missing(view, message.work_item_id, message.wait_id) {
        Ok(()) => {}
        Err(error @ Error::NoRecord { .. }) => return Ok(Some(Err(error.to_string()))),
        Err(error) => return Err(error),
    }
    match identity(&path, &bytes) {
        Ok(id) => Ok(Some(Ok(Message { id, ..message }))),
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
