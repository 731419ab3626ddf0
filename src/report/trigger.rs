//! JSON of a trigger: its record without the hash of its secret, which no command shows.

use serde::Serialize;
use serde_json::{Value, json};

use crate::model::id::TriggerId;
use crate::model::settings::IngressSettings;
use crate::model::trigger::{DeliveryMode, Trigger, TriggerScope, Verify, VerifyKind};

use super::text::present;

/// Returns a trigger with the number of deliveries that steps have taken up, and the time of the
/// last such delivery.
pub fn object(trigger: &Trigger, ingress: &IngressSettings) -> Value {
    let url = ingress.url(trigger).filter(|_| trigger.is_active() && trigger.verify != Verify::Url);
    present(json!({
        "id": trigger.id,
        "target_agent_id": trigger.agent,
        "delivery_mode": trigger.delivery_mode,
        "scope": trigger.scope,
        "status": trigger.status,
        "verify": trigger.verify.kind(),
        "created_at": trigger.created_at,
        "source": trigger.source,
        "signature_header": trigger.verify.signature_header(),
        "revoked_at": trigger.revoked_at,
        "delivery_count": trigger.delivery_count,
        "last_delivered_at": trigger.last_delivered_at,
        "url": url,
    }))
}

/// Default address of an agent for outside systems.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DefaultIngress {
    id: TriggerId,
    url: String,
    delivery_mode: DeliveryMode,
    verify: VerifyKind,
}

/// Returns the oldest trigger without a resource or wait, if an ingress server is configured. A
/// trigger whose URL is its secret is not returned.
pub fn default_ingress(triggers: &[Trigger], ingress: &IngressSettings) -> Option<DefaultIngress> {
    let is_open = |trigger: &&Trigger| {
        trigger.is_active() && trigger.scope == TriggerScope::Agent && trigger.verify != Verify::Url
    };
    let trigger = triggers.iter().filter(is_open).min_by_key(|trigger| trigger.id)?;
    Some(DefaultIngress {
        id: trigger.id,
        url: ingress.url(trigger)?,
        delivery_mode: trigger.delivery_mode,
        verify: trigger.verify.kind(),
    })
}
