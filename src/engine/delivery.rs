//! Deliveries through a trigger: authentication of the sender, admission, and the answer.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::error::Result;
use crate::model::continuation::Runs;
use crate::model::dedupe::DedupeEntry;
use crate::model::id::{AgentName, MessageId, TriggerId};
use crate::model::message::{Message, MessageStatus, WakeHint};
use crate::model::policy::Policy;
use crate::model::time::{Span, Time};
use crate::model::trigger::{DeliveryMode, Trigger, Verify};
use crate::rules::delivery::{self, Delivery};
use crate::rules::forecast::{Forecast, of_hint};
use crate::rules::signature::{self, Capability, Shown, SignedRequest};
use crate::rules::transition::arrival::{admit_drop, admit_hint};
use crate::rules::transition::inbox::requeue;
use crate::rules::transition::timer::put_off;
use crate::store::Agent;

use super::context::Context;
use super::load;
use super::session::Session;

/// Proof that a sender has the secret of a trigger.
pub enum DeliveryProof<'a> {
    /// The secret itself.
    Secret(&'a [u8]),
    /// An HTTP request. The time in its signature may differ from `now` by `tolerance` at most.
    Request { request: SignedRequest<'a>, now: Time, tolerance: Span },
}

/// Hash that no secret has. A delivery to an unknown trigger is compared with this hash, so that
/// the answer takes as long as for a known trigger.
const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Returns the trigger, and the way in which the sender was authenticated. `None` for a wrong
/// secret, a revoked or unknown trigger, or without an `agent`, because no agent has the name.
pub fn open(
    agent: Option<&Agent<'_>>,
    id: Option<TriggerId>,
    proof: &DeliveryProof<'_>,
) -> Result<Option<(Trigger, Shown)>> {
    let trigger = match (agent, id) {
        (Some(agent), Some(id)) => {
            let found = agent.read(|seen, _| seen.open_one::<Trigger>(id))?;
            found.filter(Trigger::is_active)
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
        DeliveryProof::Secret(secret) => signature::is_secret(&known, secret).then_some(Shown::Said),
        DeliveryProof::Request { request, now, tolerance } => {
            signature::shown(&known, request, *now, *tolerance)
        }
    };
    Ok(trigger.zip(shown))
}

/// Puts an authenticated delivery into the inbox. The delivery is durable when this returns.
///
/// Without a dedupe key, writes one new file and takes no lock. With a key, takes the agent's lock
/// to look for an earlier message.
pub fn deliver(
    context: Context<'_>,
    policy: &Policy,
    trigger: &Trigger,
    delivery: Delivery,
) -> Result<Delivered> {
    let mut stamp = context.session.clock.stamp()?;
    let admitted = delivery::admit(trigger, delivery, &policy.limits, &mut stamp)?;
    let forecast = match &admitted {
        delivery::AdmittedDelivery::Message(_) => None,
        delivery::AdmittedDelivery::Hint { hint, .. } => forecast(context, hint),
    };
    Ok(Delivered { admitted: arrive(context, policy, admitted)?, forecast })
}

fn arrive(
    context: Context<'_>,
    policy: &Policy,
    admitted: delivery::AdmittedDelivery,
) -> Result<AdmittedArrival> {
    let agent = context.agent;
    let queued = AdmittedArrival::queued(admitted.id());
    match admitted {
        delivery::AdmittedDelivery::Message(message) if message.dedupe_key.is_some() => {
            let answer = admit_each_once(context, policy, vec![*message], OnRepeat::Answer, None)?.pop();
            Ok(answer.unwrap_or(queued))
        }
        delivery::AdmittedDelivery::Message(message) => agent.add_message(&message).map(|()| queued),
        delivery::AdmittedDelivery::Hint { hint, dedupe_key: None } => agent.add_hint(&hint).map(|()| queued),
        delivery::AdmittedDelivery::Hint { hint, dedupe_key: Some(key) } => {
            let (now, window) = (context.session.clock.now(), policy.limits.dedupe_window);
            let locked = agent.change(now)?;
            let state = locked.state()?;
            let seen = locked.records_snapshot();
            if let Some(entry) = seen.admitted_under(&key, now, window, state.revision)? {
                return Ok(duplicate_of(&entry, false));
            }
            locked.forget_old_keys(now, window);
            let mut draft = context.draft_of(&seen, state)?;
            admit_hint(&mut draft, *hint, key);
            context.commit(&locked, draft)?;
            Ok(queued)
        }
    }
}

/// Returns the expected effect of a new wake hint. `None` if the caller can't read the agent's
/// records or they are damaged; the hint is admitted anyway.
pub fn forecast(context: Context<'_>, hint: &WakeHint) -> Option<Forecast> {
    let agent = context.agent;
    if agent.store().guest().is_some() {
        return None;
    }
    let records = load::load_unlocked(agent, context.session.clock.now());
    records.ok().map(|records| of_hint(&records, hint))
}

/// Adds the expected effect of a wake hint to a JSON answer.
pub fn add_forecast(answer: &mut Value, forecast: &Forecast) {
    answer["runs"] = json!(forecast.runs);
    answer["why"] = json!(forecast.why);
}

/// Warns on stderr if a wake hint starts no turn. With --json no warning is needed, because the
/// output has the field `runs`.
pub fn note_without_effect(session: &Session, name: &AgentName, forecast: &Forecast) {
    if forecast.runs == Runs::Nothing && !session.out.is_json() {
        session.out.note(&format!("{name}: no turn will run: {}", forecast.why));
    }
}

/// Admitted delivery, and for a wake hint its expected effect.
pub struct Delivered {
    pub admitted: AdmittedArrival,
    pub forecast: Option<Forecast>,
}

/// Returns the JSON answer to a delivery.
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
        add_forecast(&mut answer, forecast);
    }
    answer
}

/// Result of admitting one message.
#[derive(Clone, Copy)]
pub struct AdmittedArrival {
    pub id: MessageId,
    pub status: MessageStatus,
    /// True if an earlier message has the dedupe key. `id` is then the id of the earlier message.
    pub duplicate: bool,
    /// True if the earlier message has another body.
    pub differs: bool,
}

impl AdmittedArrival {
    pub fn queued(id: MessageId) -> AdmittedArrival {
        AdmittedArrival { id, status: MessageStatus::Queued, duplicate: false, differs: false }
    }
}

/// Treatment of a message whose dedupe key was admitted before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OnRepeat {
    /// Returns the id of the earlier message with the dedupe key, and changes nothing.
    Answer,
    /// Like `Answer`, but puts the earlier message back into the queue if it has failed.
    RetryFailed,
}

/// Admits each message, unless its dedupe key was admitted within `limits.dedupe_window`; then
/// returns the id of the earlier message. All new messages and their keys are committed in one
/// transaction. With `later`, timers keep the new messages until that time.
pub fn admit_each_once(
    context: Context<'_>,
    policy: &Policy,
    messages: Vec<Message>,
    on_repeat: OnRepeat,
    later: Option<Time>,
) -> Result<Vec<AdmittedArrival>> {
    let now = context.session.clock.now();
    let window = policy.limits.dedupe_window;
    let locked = context.agent.change(now)?;
    let state = locked.state()?;
    let seen = locked.records_snapshot();
    let mut answers = Vec::with_capacity(messages.len());
    let (mut new, mut retried) = (Vec::with_capacity(messages.len()), Vec::new());
    let mut keys: HashMap<String, MessageId> = HashMap::new();
    for message in messages {
        if let Some(key) = &message.dedupe_key {
            if let Some(id) = keys.get(key) {
                answers.push(AdmittedArrival { duplicate: true, ..AdmittedArrival::queued(*id) });
                continue;
            }
            if let Some(entry) = seen.admitted_under(key, now, window, state.revision)? {
                let claimed =
                    state.current_run.as_ref().is_some_and(|run| run.message_id == entry.message_id);
                let mut answer = duplicate_of(&entry, claimed);
                if on_repeat == OnRepeat::RetryFailed
                    && answer.status.has_failed()
                    && let Some(failed) = seen.ended_one::<Message>(entry.message_id)?
                {
                    answer.status = MessageStatus::Queued;
                    retried.push(failed);
                }
                answers.push(answer);
                continue;
            }
            keys.insert(key.clone(), message.id);
        }
        answers.push(AdmittedArrival::queued(message.id));
        new.push(message);
    }
    if new.is_empty() && retried.is_empty() {
        return Ok(answers);
    }
    locked.forget_old_keys(now, window);
    let mut draft = context.draft_of(&seen, state)?;
    retried.into_iter().try_for_each(|failed| requeue(&mut draft, failed))?;
    for message in new {
        match later {
            Some(at) => put_off(&mut draft, message, at),
            None => admit_drop(&mut draft, message, None),
        }
    }
    context.commit(&locked, draft)?;
    Ok(answers)
}

pub fn duplicate_of(entry: &DedupeEntry, claimed: bool) -> AdmittedArrival {
    let status = if claimed { MessageStatus::Dequeued } else { entry.status };
    AdmittedArrival { id: entry.message_id, status, duplicate: true, differs: false }
}
