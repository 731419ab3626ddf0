//! Conversion of a trigger's delivery into a message or a wake hint (contract, semantics §13).

use crate::model::id::MessageId;
use crate::model::message::{AdmissionContext, Body, DeliverySurface, Message, WakeHint};
use crate::model::policy::Limits;
use crate::model::record::Extra;
use crate::model::refusal::Refusal;
use crate::model::stamp::Stamp;
use crate::model::trigger::{DeliveryMode, Trigger};

use super::admission::{Provenance, check_size, kinds, message, one_further};

/// Delivery from an outside system that has proved knowledge of the trigger's secret.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// Content. Absent: the delivery only reports that something has changed.
    pub body: Option<Body>,
    /// Sender's key of this delivery; a repeated delivery has the same key.
    pub key: Option<String>,
    /// Facts about the request and its sender, such as chosen headers, to be stored as evidence.
    pub source_refs: Vec<String>,
    pub surface: DeliverySurface,
    /// Hops of the turn or task that sends the delivery; absent for other senders.
    pub hops: Option<u32>,
}

/// Admitted delivery, to be put into the inbox.
#[derive(Debug, Clone, PartialEq)]
pub enum AdmittedDelivery {
    Message(Box<Message>),
    Hint {
        hint: Box<WakeHint>,
        /// Key for deduplication, kept here because a hint record has no field for it.
        dedupe_key: Option<String>,
    },
}

impl AdmittedDelivery {
    pub fn id(&self) -> MessageId {
        match self {
            AdmittedDelivery::Message(message) => message.id,
            AdmittedDelivery::Hint { hint, .. } => hint.id,
        }
    }
}

/// Maximum length of a delivery's deduplication key, in bytes.
pub const KEY_MAX: usize = 200;

/// Converts a delivery through an active trigger. The result has the scope of the trigger and the
/// authority `integration_signal`, whatever the sender names.
pub fn admit(
    trigger: &Trigger,
    delivery: Delivery,
    limits: &Limits,
    stamp: &mut Stamp,
) -> Result<AdmittedDelivery, Refusal> {
    let Delivery { body, key, source_refs, surface, hops } = delivery;
    let origin = trigger.origin().map_err(|reason| Refusal::new("invalid_trigger", reason))?;
    if let Some(body) = &body {
        check_size(body, limits)?;
    }
    if let Some(key) = key.as_ref().filter(|key| key.is_empty() || key.len() > KEY_MAX) {
        let message = format!("the key of a delivery has {} bytes, and 1 to {KEY_MAX} are meant", key.len());
        return Err(Refusal::new("invalid_dedupe_key", message));
    }
    // The prefix keeps a sender's keys distinct from those of other senders and of the operator.
    let dedupe_key = key.map(|key| format!("{}:{key}", trigger.id));
    let hops = one_further(hops, limits)?;
    let resource = trigger.scope.resource().map(str::to_owned);
    let wait_id = trigger.scope.wait_id();
    let admission_context = AdmissionContext::ExternalTriggerCapability;
    match trigger.delivery_mode {
        DeliveryMode::WakeHint => Ok(AdmittedDelivery::Hint {
            hint: Box::new(WakeHint {
                id: MessageId(stamp.mint()),
                agent: trigger.agent.clone(),
                source: origin.to_string(),
                reason: None,
                resource,
                trigger_id: Some(trigger.id),
                wait_id,
                body,
                delivery_surface: surface,
                admission_context,
                source_refs,
                created_at: stamp.now,
                count: 1,
                hops,
                extra: Extra::new(),
            }),
            dedupe_key,
        }),
        DeliveryMode::EnqueueMessage => {
            let body = body.filter(Body::is_contentful).ok_or_else(|| {
                Refusal::new("blank_message", "the message is blank")
                    .hint("a trigger whose mode is `wake_hint` takes a delivery without a body")
            })?;
            let from = Provenance { origin, delivery_surface: surface, admission_context };
            Ok(AdmittedDelivery::Message(Box::new(Message {
                wait_id,
                trigger_id: Some(trigger.id),
                resource,
                source_refs,
                dedupe_key,
                hops,
                ..message(trigger.agent.clone(), kinds(from.origin.kind)[0], from, body, stamp)
            })))
        }
    }
}
