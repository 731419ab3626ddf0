//! A delivery through a trigger: whether its sender has the secret, and what the delivery has come
//! to.

use serde_json::{Value, json};

use crate::error::Result;
use crate::model::continuation::Runs;
use crate::model::id::{AgentName, TriggerId};
use crate::model::message::WakeHint;
use crate::model::policy::Policy;
use crate::model::records::Lease;
use crate::model::time::{Span, Time};
use crate::model::trigger::{DeliveryMode, Trigger, Verify};
use crate::rules::delivery::{self, Delivery};
use crate::rules::forecast::{Forecast, of_hint};
use crate::rules::signature::{self, Capability, Request, Shown};
use crate::rules::transition::arrival::admit_hint;
use crate::store::Agent;

use super::arrivals::{Admitted, admit_each_once, repeat};
use super::desk::Desk;
use super::load::{self, Purpose};
use super::session::Session;

/// Proof of a sender that it has the secret of a trigger.
pub enum Proof<'a> {
    /// The secret itself.
    Secret(&'a [u8]),
    /// A request over HTTP. A moment that its signature names is at most `tolerance` from `now`.
    Request { request: Request<'a>, now: Time, tolerance: Span },
}

/// A hash that no secret has. A delivery to an unknown trigger is compared with it, so that the
/// answer takes as long as for a known one.
const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Returns the trigger, and how the sender has shown its secret, if the trigger is active and the
/// sender has its secret. A wrong secret, a trigger that was revoked and one that never was are all
/// the same. `agent` is `None` if no agent has that name.
pub fn open(
    agent: Option<&Agent<'_>>,
    id: Option<TriggerId>,
    proof: &Proof<'_>,
) -> Result<Option<(Trigger, Shown)>> {
    let trigger = match (agent, id) {
        (Some(agent), Some(id)) => {
            let found = agent.look(|seen, _| seen.open_one::<Trigger>(id))?;
            found.filter(|trigger| trigger.is_active() && trigger.agent == *agent.name())
        }
        (None, _) | (_, None) => None,
    };
    let key = match (agent, trigger.as_ref().filter(|trigger| trigger.verify.needs_key())) {
        (Some(agent), Some(trigger)) => agent.key_of(trigger)?,
        (None, _) | (_, None) => None,
    };
    let known = Capability {
        verify: trigger.as_ref().map_or(&Verify::Secret, |trigger| &trigger.verify),
        secret_sha256: trigger.as_ref().map_or(NO_HASH, |trigger| trigger.secret_sha256.as_str()),
        key: key.as_deref(),
    };
    let shown = match proof {
        Proof::Secret(secret) => signature::is_secret(&known, secret).then_some(Shown::Said),
        Proof::Request { request, now, tolerance } => signature::shown(&known, request, *now, *tolerance),
    };
    Ok(trigger.zip(shown))
}

/// Puts a delivery through an open trigger into the inbox. It is there for good when this returns.
///
/// It is one new file, and needs no lock, unless the sender has given it a key: then the lock is
/// held for the look whether it has come before.
pub fn deliver(
    session: &Session,
    agent: &Agent<'_>,
    policy: &Policy,
    trigger: &Trigger,
    delivery: Delivery,
) -> Result<Delivered> {
    let mut stamp = session.clock.stamp()?;
    let admitted = delivery::admit(trigger, delivery, &policy.limits, &mut stamp)?;
    let forecast = match &admitted {
        delivery::Admitted::Message(_) => None,
        delivery::Admitted::Hint { hint, .. } => forecast(session, agent, hint),
    };
    Ok(Delivered { admitted: arrive(session, agent, policy, admitted)?, forecast })
}

fn arrive(
    session: &Session,
    agent: &Agent<'_>,
    policy: &Policy,
    admitted: delivery::Admitted,
) -> Result<Admitted> {
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

/// What a new hint will lead to. `None` if the caller may not read the agent's records, or they are
/// damaged: the hint is admitted all the same.
pub fn forecast(session: &Session, agent: &Agent<'_>, hint: &WakeHint) -> Option<Forecast> {
    if agent.store().guest().is_some() {
        return None;
    }
    let now = session.clock.now();
    let records = agent.look(|seen, state| {
        let seen = seen.without_passed_over(&state);
        load::records(agent, &seen, state, Lease::Free, now, Purpose::Look)
    });
    records.ok().map(|records| of_hint(&records, hint))
}

/// Adds to an answer what a hint will lead to.
pub fn foretell(answer: &mut Value, forecast: &Forecast) {
    answer["runs"] = json!(forecast.runs);
    answer["why"] = json!(forecast.why);
}

/// Says on stderr that no turn will run for a hint, unless the answer is JSON, which says so
/// itself.
pub fn note_if_in_vain(session: &Session, name: &AgentName, forecast: &Forecast) {
    if forecast.runs == Runs::Nothing && !session.out.is_json() {
        session.out.note(&format!("{name}: no turn will run: {}", forecast.why));
    }
}

/// A delivery that is in the inbox, and for a hint what it will lead to.
pub struct Delivered {
    pub admitted: Admitted,
    pub forecast: Option<Forecast>,
}

/// What a sender is told of its delivery.
pub fn delivered(trigger: &Trigger, Delivered { admitted, forecast }: &Delivered) -> Value {
    let id = match trigger.delivery_mode {
        DeliveryMode::WakeHint => "hint_id",
        DeliveryMode::EnqueueMessage => "message_id",
    };
    let mut answer = json!({
        "agent": trigger.agent,
        "trigger_id": trigger.id,
        id: admitted.id,
        "status": admitted.status,
        "duplicate": admitted.duplicate,
    });
    if let Some(forecast) = forecast.as_ref().filter(|_| !admitted.duplicate) {
        foretell(&mut answer, forecast);
    }
    answer
}
