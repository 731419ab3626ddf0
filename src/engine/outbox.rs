//! Delivery of messages from an agent's outbox into the inboxes of other agents.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::model::id::{AgentName, MessageId};
use crate::model::message::{Message, OriginKind};
use crate::model::state::Outbox;
use crate::rules::transition::inbox::not_delivered;
use crate::store::{Agent, Store};

use super::authority;
use super::context::Context;
use super::session::Session;

/// Maximum number of messages that are delivered under one lock of the receiving agent, because
/// other commands wait for the lock.
const UNDER_ONE_LOCK: usize = 1000;

impl Context<'_> {
    /// Delivers the messages in the outbox of an agent. Must be called without the agent's lock.
    /// Idempotent: a message that the receiver has, or has had, is not delivered again.
    pub fn deliver(self) -> Result<()> {
        let Context { session, agent } = self;
        let mut outbox = agent.read(|seen, _| seen.open::<Message>())?;
        // A message that was sent before a rename of this agent contains its former name.
        for message in outbox.iter_mut().filter(|message| message.origin.kind == OriginKind::System) {
            message.origin.id = Some(agent.name().to_string());
        }
        let mut by_ends: BTreeMap<(&AgentName, Option<AgentName>), Vec<&Message>> = BTreeMap::new();
        for message in &outbox {
            by_ends.entry((&message.agent, speaker(message))).or_default().push(message);
        }
        let (mut handled, mut undeliverable) = (HashSet::new(), Vec::new());
        for ((to, _), messages) in by_ends {
            for some in messages.chunks(UNDER_ONE_LOCK) {
                match put_or_follow(session, self.store(), to, some) {
                    Ok(()) => handled.extend(some.iter().map(|message| message.id)),
                    // A retry would be refused, too, so the messages count as undeliverable.
                    Err(error @ (Error::Refused { .. } | Error::NoAgent { .. })) => {
                        undeliverable.extend(some.iter().map(|message| (*message, error.to_string())));
                    }
                    // The messages stay in the outbox, so that the next step retries.
                    Err(error) => {
                        let what = match some {
                            [one] => format!("{} is", one.id),
                            several => format!("{} and {} more are", several[0].id, several.len() - 1),
                        };
                        session.out.note(&format!("{}: {what} not delivered yet: {error}", agent.name()));
                        break;
                    }
                }
            }
        }
        if handled.is_empty() && undeliverable.is_empty() && !outbox.is_empty() {
            return Ok(());
        }
        self.update(|draft| {
            for (message, reason) in undeliverable {
                not_delivered(draft, message, &reason);
                handled.insert(message.id);
            }
            // No other process adds to this outbox, because this one holds the agent's lease.
            let left = Outbox::of(outbox.iter().filter(|message| !handled.contains(&message.id)));
            draft.forget_delivered(handled, left);
        })
    }
}

/// Puts messages into the inbox of the receiving agent, also if the agent was renamed meanwhile.
fn put_or_follow(session: &Session, store: &Store, to: &AgentName, messages: &[&Message]) -> Result<()> {
    let gone = match put(session, store, to, messages) {
        Err(error @ Error::NoAgent { .. }) => error,
        put => return put,
    };
    let Some(name) = store.successor(to)? else { return Err(gone) };
    let addressed = |message: &&Message| Message { agent: name.clone(), ..(*message).clone() };
    let messages: Vec<Message> = messages.iter().map(addressed).collect();
    put(session, store, &name, &messages.iter().collect::<Vec<_>>())
}

/// Puts messages of one sender into the inbox of their receiver, except messages that the receiver
/// has or has had. Holds the receiver's lock from the lookup until the messages have arrived, so
/// that of two processes only one delivers a message.
pub fn put(session: &Session, store: &Store, to: &AgentName, messages: &[&Message]) -> Result<()> {
    let other = store.agent(to)?;
    let speaker = messages.first().and_then(|message| speaker(message));
    let trigger = speaker.map(|speaker| authority::check_accepts(&other, &speaker)).transpose()?.flatten();
    let now = session.clock.now();
    // `change` fails for an agent that was exported with `--move`: no step here reads its inbox.
    let locked = other.change(now)?;
    if locked.any_state()?.moved.is_some_and(|moved| !moved.frees_name()) {
        // The receiver is being renamed and accepts messages afterwards, so the sender retries.
        return Err(Error::busy(other.settings(), "`dormouse rename`".to_owned(), Duration::ZERO));
    }
    locked.state()?;
    let known = known_ids(&other, messages)?;
    let unknown = messages.iter().filter(|message| !known.contains(&message.id));
    let mut unknown = unknown.map(|message| (*message).clone().triggering(trigger)).peekable();
    let Some(first) = unknown.next() else { return Ok(()) };
    if unknown.peek().is_none() {
        return other.add_message(&first);
    }
    let mut batch = other.batch(session.clock.stamp()?.mint())?;
    std::iter::once(first).chain(unknown).try_for_each(|message| batch.stage(&message))?;
    batch.sync()?;
    batch.admit(now)
}

/// Returns the agent whose turn sent the message.
fn speaker(message: &Message) -> Option<AgentName> {
    let id = message.origin.id.as_deref().filter(|_| message.origin.kind == OriginKind::System)?;
    id.parse().ok()
}

/// Returns the ids of messages that an agent has, or has had.
fn known_ids(agent: &Agent<'_>, messages: &[&Message]) -> Result<HashSet<MessageId>> {
    let ids: Vec<MessageId> = messages.iter().map(|message| message.id).collect();
    agent.read(|seen, _| {
        let mut known: HashSet<MessageId> = match messages {
            // A single message is looked up without listing the inbox, which may be long.
            [one] => seen.waiting(one.id)?.map(|waiting| waiting.key.id).into_iter().collect(),
            _ => seen.keys()?.into_iter().map(|key| key.id).collect(),
        };
        known.extend(seen.ended_among(&ids, |_| ())?.into_keys());
        Ok(known)
    })
}
