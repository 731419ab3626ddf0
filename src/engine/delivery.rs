//! A delivery through a trigger: whether its sender has the secret, and what the delivery has come to.

use hmac::{Hmac, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::error::Result;
use crate::model::digest::sha256;
use crate::model::id::TriggerId;
use crate::model::policy::Policy;
use crate::model::trigger::{DeliveryMode, Trigger, Verify};
use crate::rules::delivery::{self, Delivery};
use crate::rules::transition::arrival::admit_hint;
use crate::store::Agent;

use super::arrivals::{Admitted, admit_each_once, repeat};
use super::desk::Desk;
use super::session::Session;

/// How a sender shows that it has the secret of a trigger.
pub enum Proof<'a> {
    /// It says the secret.
    Secret(&'a [u8]),
    /// It has signed the body.
    Signed {
        body: &'a [u8],
        /// What the sender says under the name of a header.
        header: &'a dyn Fn(&str) -> Option<String>,
    },
}

/// A hash that no secret has. A delivery to an unknown trigger is compared with it, so that the answer takes as long as for
/// a known one.
const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const NO_KEY: &[u8] = NO_HASH.as_bytes();

/// The trigger, if it is active and the sender has its secret. A wrong secret, a trigger that was revoked and one that
/// never was are all the same. `agent` is `None` if no agent has that name.
pub fn open(agent: Option<&Agent<'_>>, id: Option<TriggerId>, proof: &Proof<'_>) -> Result<Option<Trigger>> {
    let trigger = match (agent, id) {
        (Some(agent), Some(id)) => {
            let found = agent.look(|seen, _| seen.open_one::<Trigger>(id))?;
            found.filter(|trigger| trigger.is_active() && trigger.agent == *agent.name())
        }
        (None, _) | (_, None) => None,
    };
    let is_shown = match proof {
        Proof::Secret(secret) => {
            let hash = trigger.as_ref().map_or(NO_HASH, |trigger| trigger.secret_sha256.as_str());
            bool::from(sha256(secret).as_bytes().ct_eq(hash.as_bytes()))
        }
        Proof::Signed { body, header } => {
            let signed = trigger.as_ref().filter(|trigger| trigger.verify == Verify::HmacSha256);
            let key = match (agent, signed) {
                (Some(agent), Some(trigger)) => agent.key_of(trigger)?,
                (None, _) | (_, None) => None,
            };
            let said = signed.and_then(|trigger| header(trigger.signature_header.as_deref()?));
            let is_right =
                is_signature(key.as_deref().unwrap_or(NO_KEY), body, said.as_deref().unwrap_or_default());
            is_right && key.is_some()
        }
    };
    Ok(trigger.filter(|_| is_shown))
}

/// Whether `said` is the signature of a body by a key: `sha256=` and hexadecimal digits, as GitHub writes it, or the
/// digits alone.
fn is_signature(key: &[u8], body: &[u8], said: &str) -> bool {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return false };
    mac.update(body);
    let digits = said.strip_prefix("sha256=").unwrap_or(said);
    mac.verify_slice(&from_hex(digits).unwrap_or_default()).is_ok()
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let is_hex = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| pairs.map(byte).collect::<Option<Vec<u8>>>()).flatten()
}

/// Puts a delivery through an open trigger into the inbox. It is there for good when this returns.
///
/// It is one new file, and needs no lock, unless the sender has given it a key: then the lock is held for the look
/// whether it has come before.
pub fn deliver(
    session: &Session,
    agent: &Agent<'_>,
    policy: &Policy,
    trigger: &Trigger,
    delivery: Delivery,
) -> Result<Admitted> {
    let mut stamp = session.clock.stamp()?;
    let admitted = delivery::admit(trigger, delivery, &policy.limits, &mut stamp)?;
    let anew = Admitted::anew(admitted.id());
    match admitted {
        delivery::Admitted::Message(message) if message.dedupe_key.is_some() => {
            let answer = admit_each_once(session, agent, policy, vec![*message], None)?.pop();
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

/// What a sender is told of its delivery.
pub fn delivered(trigger: &Trigger, admitted: &Admitted) -> Value {
    let id = match trigger.delivery_mode {
        DeliveryMode::WakeHint => "hint_id",
        DeliveryMode::EnqueueMessage => "message_id",
    };
    json!({
        "agent": trigger.agent,
        "trigger_id": trigger.id,
        id: admitted.id,
        "status": admitted.status,
        "duplicate": admitted.duplicate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_this_body_by_this_key() {
        // From GitHub's documentation of webhooks.
        let (key, body) = (b"It's a Secret to Everybody", b"Hello, World!");
        let said = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert!(is_signature(key, body, said));
        assert!(is_signature(key, body, said.trim_start_matches("sha256=")));
        assert!(is_signature(key, body, &said.to_uppercase().replace("SHA256", "sha256")));
        for wrong in [
            "",
            "sha256=",
            "sha256=75",
            "sha1=757107",
            &said[..70],
            &format!("{said}00"),
            "sha256=zz",
            "sha256=ü",
        ] {
            assert!(!is_signature(key, body, wrong), "{wrong}");
        }
        assert!(!is_signature(b"another", body, said));
        assert!(!is_signature(key, b"Hello, World?", said));
    }
}
