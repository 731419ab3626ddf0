//! `enqueue` to an agent in a database: stores the message and queries the agent in one round trip.

use crate::cli;
use crate::engine::session::Session;
use crate::error::Result;
use crate::model::agent::Status as AgentStatus;
use crate::model::id::AgentName;
use crate::model::message::Message;
use crate::model::policy::Policy;
use crate::model::submission::Speaker;
use crate::rules::admission::admit;
use crate::store::Store;

use super::submission;

/// Stores a message without reading its agent first. Returns the message, and the status of the
/// agent if it is known.
///
/// Returns `None` without a change if the agent must be read first or something is wrong. The
/// caller then takes the ordinary path, which reports the error.
pub fn enqueue(
    session: &Session,
    store: &Store,
    agent: &AgentName,
    args: &cli::EnqueueArgs,
) -> Result<Option<(Message, Option<AgentStatus>)>> {
    if !store.is_remote() || needs_a_look(args) || session.called_in(store)?.is_some() {
        return Ok(None);
    }
    // The ordinary path reports the error, after it has checked that the agent exists.
    let Ok(policy) = store.local().policy_from("", "") else { return Ok(None) };
    let Ok(message) = message(session, agent, &args.said, &policy) else { return Ok(None) };
    let told = store.tell(&message, message.body.bytes() as u64, policy.limits.max_message)?;
    Ok(told.map(|state| (message, state.ok().map(|state| state.status))))
}

/// True if the request needs the agent's records, or its text can be read only once.
fn needs_a_look(args: &cli::EnqueueArgs) -> bool {
    let cli::EnqueueArgs { awaits, batch, within, at, said, .. } = args;
    let is_given =
        |word: &Option<String>| word.as_deref().is_some_and(|word| word != "-" && !word.starts_with('@'));
    let is_told = is_given(&said.text) || is_given(&said.body_json);
    let named = [&said.dedupe_key, &said.work_item, &said.wait, within, at];
    *awaits || *batch || !is_told || named.iter().any(|named| named.is_some())
}

fn message(
    session: &Session,
    agent: &AgentName,
    said: &cli::MessageArgs,
    policy: &Policy,
) -> Result<Message> {
    let submission = submission(said, (None, None), policy.limits.max_message)?;
    let mut stamp = session.clock.stamp()?;
    Ok(admit(agent, submission, Speaker::Outside, &policy.limits, &mut stamp)?)
}
