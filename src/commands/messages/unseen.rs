//! `enqueue` to an agent whose records are in a database: the message and the question for its
//! agent go together.

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

use super::guests::surface;
use super::submission;

/// Puts a message into the inbox without a look at its agent first. Returns what is said of it, and
/// how the agent then stands as far as that is known.
///
/// `None`: nothing was done, because something needs a look first, or is wrong. The ordinary way
/// then does it, or says what is wrong.
pub fn enqueue(
    session: &Session,
    store: &Store,
    agent: &AgentName,
    args: &cli::Enqueue,
) -> Result<Option<(Message, Option<AgentStatus>)>> {
    if !store.is_remote() || needs_a_look(args) || session.called_in(store)?.is_some() {
        return Ok(None);
    }
    // What is wrong is said the ordinary way, after whether there is such an agent.
    let Ok(policy) = store.local().policy_from("", "") else { return Ok(None) };
    let Ok(message) = message(session, agent, &args.said, &policy) else { return Ok(None) };
    let told = store.tell(&message, message.body.bytes() as u64, policy.limits.max_message)?;
    Ok(told.map(|state| (message, state.ok().map(|state| state.status))))
}

/// Whether more has to be known of the agent than whether it takes a message of some size, or a
/// text can be read only once.
fn needs_a_look(args: &cli::Enqueue) -> bool {
    let cli::Enqueue { awaits, batch, within, at, said, .. } = args;
    let is_given =
        |word: &Option<String>| word.as_deref().is_some_and(|word| word != "-" && !word.starts_with('@'));
    let is_told = is_given(&said.text) || is_given(&said.body_json);
    let named = [&said.dedupe_key, &said.work_item, &said.wait, within, at];
    *awaits || *batch || !is_told || named.iter().any(|named| named.is_some())
}

fn message(session: &Session, agent: &AgentName, said: &cli::Said, policy: &Policy) -> Result<Message> {
    let submission = submission(said, (None, None), policy.limits.max_message)?;
    let speaker = Speaker::Outside;
    let message =
        admit(agent, submission, surface(speaker), speaker, &policy.limits, &mut session.clock.stamp()?)?;
    Ok(message)
}
