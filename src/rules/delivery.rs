//! What a delivery through a trigger becomes: a message or a wake hint (contract, semantics §13).

use crate::model::id::MessageId;
use crate::model::message::{AdmissionContext, Body, DeliverySurface, Message, WakeHint};
use crate::model::policy::Limits;
use crate::model::record::Extra;
use crate::model::refusal::Refusal;
use crate::model::stamp::Stamp;
use crate::model::trigger::{DeliveryMode, Trigger};

use super::admission::{New, check_size, kinds, message, one_further};

/// What an outside system has to say, once it has shown that it may.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// Absent: nothing but that something has changed.
    pub body: Option<Body>,
    /// What the sender calls this delivery: the same key means the same delivery once more.
    pub key: Option<String>,
    /// How it came.
    pub source_refs: Vec<String>,
    pub surface: DeliverySurface,
    /// The hops of the turn or task that delivers, if one does.
    pub hops: Option<Option<u32>>,
}

/// What is to be put into the inbox.
#[derive(Debug, Clone, PartialEq)]
pub enum Admitted {
    Message(Box<Message>),
    Hint {
        hint: Box<WakeHint>,
        /// A hint has no place for it.
        dedupe_key: Option<String>,
    },
}

impl Admitted {
    pub fn id(&self) -> MessageId {
        match self {
            Admitted::Message(message) => message.id,
            Admitted::Hint { hint, .. } => hint.id,
        }
    }
}

/// The longest key that a sender may give a delivery, in bytes.
pub const KEY_MAX: usize = 200;

/// Admits a delivery through an active trigger whose secret the sender has shown. It is an
/// `integration_signal` about what the trigger is scoped to, and nothing that the sender says
/// changes that.
pub fn admit(
    trigger: &Trigger,
    delivery: Delivery,
    limits: &Limits,
    stamp: &mut Stamp,
) -> Result<Admitted, Refusal> {
    let Delivery { body, key, source_refs, surface, hops } = delivery;
    let origin = trigger.origin().map_err(|reason| Refusal::new("invalid_trigger", reason))?;
    if let Some(body) = &body {
        check_size(body, limits)?;
    }
    if let Some(key) = key.as_ref().filter(|key| key.is_empty() || key.len() > KEY_MAX) {
        let message = format!("the key of a delivery has {} bytes, and 1 to {KEY_MAX} are meant", key.len());
        return Err(Refusal::new("invalid_dedupe_key", message));
    }
    // One sender's keys have nothing to do with another's, or with the operator's.
    let dedupe_key = key.map(|key| format!("{}:{key}", trigger.id));
    let hops = match hops {
        Some(of_turn) => one_further(of_turn, limits)?,
        None => 0,
    };
    let resource = trigger.scope.resource().map(str::to_owned);
    let wait_id = trigger.scope.wait_id();
    let admission_context = AdmissionContext::ExternalTriggerCapability;
    match trigger.delivery_mode {
        DeliveryMode::WakeHint => Ok(Admitted::Hint {
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
            Ok(Admitted::Message(Box::new(Message {
                wait_id,
                trigger_id: Some(trigger.id),
                resource,
                source_refs,
                dedupe_key,
                hops,
                ..message(New {
                    id: MessageId(stamp.mint()),
                    agent: trigger.agent.clone(),
                    kind: kinds(origin.kind)[0],
                    origin,
                    delivery_surface: surface,
                    admission_context,
                    body,
                    created_at: stamp.now,
                })
            })))
        }
    }
}
