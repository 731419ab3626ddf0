//! Delivery of messages of a turn from the outbox into the inboxes of other agents.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::model::id::{AgentName, MessageId};
use crate::model::message::{Message, OriginKind};
use crate::model::outbox::Outbox;
use crate::rules::transition::inbox::not_delivered;
use crate::store::{Agent, Store};

use super::authority;
use super::context::Context;
use super::session::Session;

/// Maximum number of messages that are delivered under one lock. The lock is the receiving agent's,
/// and other commands wait for it.
const UNDER_ONE_LOCK: usize = 1000;

impl Context<'_> {
    /// Delivers the messages in the outbox of an agent to other agents. Must be called without the
    /// lock. Idempotent: a message that the receiver has or had is not delivered again.
    pub fn deliver(self) -> Result<()> {
        let Context { session, agent } = self;
        let outbox = agent.look(|seen, _| seen.open::<Message>())?;
        let mut by_ends: BTreeMap<(&AgentName, Option<AgentName>), Vec<&Message>> = BTreeMap::new();
        for message in &outbox {
            by_ends.entry((&message.agent, speaker(message))).or_default().push(message);
        }
        let (mut dealt_with, mut unheard) = (HashSet::new(), Vec::new());
        for ((to, _), messages) in by_ends {
            for some in messages.chunks(UNDER_ONE_LOCK) {
                match put_or_follow(session, self.store(), to, some) {
                    Ok(()) => dealt_with.extend(some.iter().map(|message| message.id)),
                    // Another try would be refused in the same way.
                    Err(error @ (Error::Refused { .. } | Error::NoEdge { .. } | Error::NoAgent { .. })) => {
                        unheard.extend(some.iter().map(|message| (*message, error.to_string())));
                    }
                    // The messages stay in the outbox, and the next step retries.
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
        if dealt_with.is_empty() && unheard.is_empty() && !outbox.is_empty() {
            return Ok(());
        }
        self.update(|draft| {
            for (message, reason) in unheard {
                not_delivered(draft, message, &reason);
                dealt_with.insert(message.id);
            }
            // Only the process that holds the lease adds to the outbox, and that is this one.
            let left = Outbox::of(outbox.iter().filter(|message| !dealt_with.contains(&message.id)));
            draft.forget_delivered(dealt_with, left);
        })
    }
}

/// Puts messages into the inbox of the agent to which they are addressed, or of the one that was
/// renamed from it.
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

/// Puts messages of one sender into the inbox of their receiver, unless it has or had them. The
/// lock is held from the look-up to the arrival, so that of two processes only one delivers a
/// message.
pub fn put(session: &Session, store: &Store, to: &AgentName, messages: &[&Message]) -> Result<()> {
    let other = store.agent(to)?;
    let speaker = messages.first().and_then(|message| speaker(message));
    let trigger = speaker.map(|speaker| authority::hears(&other, &speaker)).transpose()?.flatten();
    let now = session.clock.now();
    // An agent that was moved away is refused here, because messages that are put into its inbox
    // under the lock are not checked later.
    let locked = other.change(now)?;
    if locked.any_state()?.moved.is_some_and(|moved| !moved.makes_room()) {
        // The receiver accepts messages again after the rename.
        return Err(Error::busy(other.settings(), "`dormouse rename`".to_owned(), Duration::ZERO));
    }
    locked.state()?;
    let known = known(&other, messages)?;
    let unknown = messages.iter().filter(|message| !known.contains(&message.id));
    let mut unknown = unknown.map(|message| (*message).clone().triggering(trigger)).peekable();
    let Some(first) = unknown.next() else { return Ok(()) };
    if unknown.peek().is_none() {
        return other.arrive(&first);
    }
    let mut batch = other.batch(session.clock.stamp()?.mint())?;
    let mut staged = Vec::with_capacity(messages.len());
    for message in std::iter::once(first).chain(unknown) {
        batch.stage(&message)?;
        staged.push(message.key());
    }
    batch.sync()?;
    batch.admit(staged.into_iter(), now)
}

/// Returns the agent whose turn has sent the message.
fn speaker(message: &Message) -> Option<AgentName> {
    let id = message.origin.id.as_deref().filter(|_| message.origin.kind == OriginKind::System)?;
    id.parse().ok()
}

/// Returns the ids of those messages that an agent has, or had.
fn known(agent: &Agent<'_>, messages: &[&Message]) -> Result<HashSet<MessageId>> {
    let ids: HashSet<MessageId> = messages.iter().map(|message| message.id).collect();
    agent.look(|seen, _| {
        let mut known: HashSet<MessageId> = match messages {
            // A single message can be looked up without listing a long inbox.
            [one] => seen.waiting(one.id)?.map(|waiting| waiting.key.id).into_iter().collect(),
            _ => seen.keys()?.into_iter().map(|key| key.id).collect(),
        };
        known.extend(seen.ended_among(&ids)?);
        Ok(known)
    })
}
