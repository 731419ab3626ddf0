//! A delivery through a trigger: whether its sender has the secret, and what the delivery has come to.

use subtle::ConstantTimeEq;

use crate::error::Result;
use crate::model::digest::sha256;
use crate::model::id::TriggerId;
use crate::model::trigger::Trigger;
use crate::rules::delivery::{self, Delivery};
use crate::rules::transition::arrival::admit_hint;
use crate::store::Agent;

use super::arrivals::{Admitted, admit_each_once, repeat};
use super::desk::Desk;
use super::session::Session;

/// What nobody has a secret for: what is unknown is compared with it, so that it takes as long as what is known.
const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The trigger, if it is active and the sender has its secret. A wrong secret, a trigger that was revoked and one that
/// never was are all the same. `agent` is absent where nobody has that name.
pub fn open(agent: Option<&Agent<'_>>, id: Option<TriggerId>, secret: &[u8]) -> Result<Option<Trigger>> {
    let trigger = match (agent, id) {
        (Some(agent), Some(id)) => {
            let found = agent.look(|seen, _| seen.open_one::<Trigger>(id))?;
            found.filter(|trigger| trigger.is_active() && trigger.agent == *agent.name())
        }
        (None, _) | (_, None) => None,
    };
    let hash = trigger.as_ref().map_or(NO_HASH, |trigger| trigger.secret_sha256.as_str());
    let is_shown = bool::from(sha256(secret).as_bytes().ct_eq(hash.as_bytes()));
    Ok(trigger.filter(|_| is_shown))
}

/// Puts a delivery through an open trigger into the inbox. It is there for good when this returns.
///
/// It is one new file, and needs no lock, unless the sender has given it a key: then the lock is held for the look
/// whether it has come before.
pub fn deliver(
    session: &Session,
    agent: &Agent<'_>,
    trigger: &Trigger,
    delivery: Delivery,
) -> Result<Admitted> {
    let policy = agent.policy()?;
    let mut stamp = session.clock.stamp()?;
    let admitted = delivery::admit(trigger, delivery, &policy.limits, &mut stamp)?;
    let anew = Admitted::anew(admitted.id());
    match admitted {
        delivery::Admitted::Message(message) if message.dedupe_key.is_some() => {
            let answer = admit_each_once(session, agent, &policy, vec![*message], None)?.pop();
            Ok(answer.unwrap_or(anew))
        }
        delivery::Admitted::Message(message) => agent.arrive(&message).map(|()| anew),
        delivery::Admitted::Hint { hint, dedupe_key: None } => agent.arrive_hint(&hint).map(|()| anew),
        delivery::Admitted::Hint { hint, dedupe_key: Some(key) } => {
            let (now, window) = (session.clock.now(), policy.limits.dedupe_window);
            let locked = agent.change(now)?;
            let state = locked.state()?;
            let seen = locked.look_past_inbox();
            if let Some(entry) = seen.admitted_under(&key, now, window, state.revision)? {
                return Ok(repeat(&entry, false));
            }
            locked.forget_old_keys(now, window)?;
            let desk = Desk::new(session, agent);
            let mut draft = desk.draft_of(&seen, state)?;
            admit_hint(&mut draft, *hint, key);
            desk.commit(&locked, draft)?;
            Ok(anew)
        }
    }
}
