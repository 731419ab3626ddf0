//! Files that somebody dropped into the inbox by hand: each becomes a message, or is moved aside with the reason.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::model::message::{DeliverySurface, Message};
use crate::model::policy::Policy;
use crate::model::records::{Lease, Records};
use crate::model::state::State;
use crate::model::submission::Submission;
use crate::rules::admission;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::inbox as arrivals;
use crate::store::inbox::{self, Scan};
use crate::store::view::View;
use crate::store::{Agent, Locked, files, layout};

use super::admit::refuse_missing;
use super::hooks;
use super::load::{self, Purpose};
use super::session::Session;

/// The hand-written files in the inbox, in the order in which steps take them in.
pub fn waiting(agent: &Agent<'_>) -> Result<Vec<PathBuf>> {
    Ok(inbox::scan(&View::open(agent.dir())?)?.drops)
}

/// Counts hand-written files as the messages that they would become.
pub fn foresee(session: &Session, agent: &Agent<'_>, draft: &mut Draft, names: &[PathBuf]) -> Result<()> {
    let view = View::open(agent.dir())?;
    for name in names {
        draft.records.inbox.drops = draft.records.inbox.drops.saturating_sub(1);
        let Some(Ok(message)) = read_drop(session, agent, &view, draft, name)? else { continue };
        let Records { state, policy, .. } = &draft.records;
        let first =
            load::first_of_its_key(agent, &view, &message, state, policy, draft.now(), Purpose::Look)?;
        if first.is_none_or(|first| first == message.id) {
            draft.records.inbox.offer(&message);
        }
    }
    Ok(())
}

/// How many files a step takes in before it decides.
pub fn at_once(policy: &Policy) -> usize {
    usize::try_from(policy.limits.max_drops_per_step).unwrap_or(usize::MAX)
}

/// Admits the files that somebody dropped into the inbox by hand, and moves aside those that can't be: in
/// one transaction, and no more than `limits.max_drops_per_step`. Returns whether there was any.
pub fn take_in(
    session: &Session,
    agent: &Agent<'_>,
    locked: &Locked<'_>,
    state: &State,
    scan: &Scan,
) -> Result<bool> {
    let records = load::records(
        agent,
        &locked.view(),
        &Scan::default(),
        state.clone(),
        Lease::Free,
        session.clock.now(),
        Purpose::Change,
    )?;
    let mut draft = Draft::new(records, session.clock.stamp()?);
    let most = at_once(&draft.records.policy);
    let mut admitted = Vec::new();
    let mut count = 0;
    for name in &scan.drops {
        if count == most {
            break;
        }
        let Some(taken) = locked.take_drop(name)? else { continue };
        match read_drop(session, agent, &locked.view(), &draft, &taken)? {
            None => continue,
            Some(Ok(message)) => {
                let first = load::first_of_its_key(
                    agent,
                    &locked.view(),
                    &message,
                    state,
                    &draft.records.policy,
                    draft.now(),
                    Purpose::Change,
                )?;
                arrivals::admit_drop(&mut draft, message, first);
                admitted.push(taken);
            }
            Some(Err(reason)) => {
                locked.reject_drop(&taken, &reason)?;
                let name = inbox::given_name(&taken).unwrap_or(&taken);
                let file = name.to_string_lossy();
                arrivals::reject_drop(&mut draft, &file, &format!("{reason} (it is in inbox/rejected/)"));
            }
        }
        count += 1;
    }
    if !draft.is_empty() {
        hooks::commit(session, locked, draft)?;
    }
    admitted.iter().try_for_each(|taken| locked.remove_drop(taken))?;
    Ok(count > 0)
}

/// Reads a hand-written file: the message it makes, or why it makes none; nothing if it has gone away. The
/// id comes from the file itself, so that admitting it twice, after a crash in between, is admitting it once.
fn read_drop(
    session: &Session,
    agent: &Agent<'_>,
    view: &View<'_>,
    draft: &Draft,
    name: &Path,
) -> Result<Option<std::result::Result<Message, String>>> {
    let path = agent.dir().join(layout::INBOX).join(name);
    let bytes = match files::read(&path) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(Error::Damaged { message, .. }) => return Ok(Some(Err(message))),
        Err(error) => return Err(error),
    };
    let submission: Submission = match serde_json::from_slice(&bytes) {
        Ok(submission) => submission,
        Err(error) => return Ok(Some(Err(format!("not a message: {error}")))),
    };
    let admitted = admission::admit(
        agent.name(),
        submission,
        DeliverySurface::FileDrop,
        None,
        &draft.records.policy.limits,
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
    match inbox::drop_identity(&path, &bytes) {
        Ok(id) => Ok(Some(Ok(Message { id, ..message }))),
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
