//! Admission of messages at most once: a dedupe key is looked up under the agent's lock, and stored
//! with the id of the message that it stands for.

use std::collections::HashMap;

use crate::error::Result;
use crate::model::dedupe::DedupeEntry;
use crate::model::id::MessageId;
use crate::model::message::{Message, MessageStatus};
use crate::model::policy::Policy;
use crate::model::time::Time;
use crate::rules::transition::arrival::admit_drop;
use crate::rules::transition::inbox as rules;
use crate::store::Agent;

use super::context::Context;
use super::session::Session;

/// Result of admitting one message.
pub struct AdmittedArrival {
    pub id: MessageId,
    pub status: MessageStatus,
    pub duplicate: bool,
}

impl AdmittedArrival {
    pub fn anew(id: MessageId) -> AdmittedArrival {
        AdmittedArrival { id, status: MessageStatus::Queued, duplicate: false }
    }
}

/// Admits each message, unless its dedupe key was admitted within the window: then the id of the
/// earlier message is returned. New messages and their keys are committed in one transaction. With
/// `later`, the new messages become timers.
pub fn admit_each_once(
    session: &Session,
    agent: &Agent<'_>,
    policy: &Policy,
    messages: Vec<Message>,
    later: Option<Time>,
) -> Result<Vec<AdmittedArrival>> {
    let now = session.clock.now();
    let window = policy.limits.dedupe_window;
    let locked = agent.change(now)?;
    let state = locked.state()?;
    let seen = locked.look_past_inbox();
    let mut answers = Vec::with_capacity(messages.len());
    let mut new = Vec::with_capacity(messages.len());
    let mut keys: HashMap<String, MessageId> = HashMap::new();
    for message in messages {
        if let Some(key) = &message.dedupe_key {
            if let Some(id) = keys.get(key) {
                answers.push(AdmittedArrival { duplicate: true, ..AdmittedArrival::anew(*id) });
                continue;
            }
            if let Some(entry) = seen.admitted_under(key, now, window, state.revision)? {
                let claimed =
                    state.current_run.as_ref().is_some_and(|run| run.message_id == entry.message_id);
                answers.push(repeat(&entry, claimed));
                continue;
            }
            keys.insert(key.clone(), message.id);
        }
        answers.push(AdmittedArrival::anew(message.id));
        new.push(message);
    }
    if new.is_empty() {
        return Ok(answers);
    }
    locked.forget_old_keys(now, window)?;
    let context = Context::new(session, agent);
    let mut draft = context.draft_of(&seen, state)?;
    for message in new {
        match later {
            Some(at) => rules::put_off(&mut draft, message, at)?,
            None => admit_drop(&mut draft, message, None),
        }
    }
    context.commit(&locked, draft)?;
    Ok(answers)
}

pub fn repeat(entry: &DedupeEntry, claimed: bool) -> AdmittedArrival {
    let status = if claimed { MessageStatus::Dequeued } else { entry.status };
    AdmittedArrival { id: entry.message_id, status, duplicate: true }
}
