//! Triggers: capabilities by which outside systems reach an agent (contract, semantics §13). The
//! record has only the hash of the secret.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};

use super::id::{AgentName, TriggerId, WaitId};
use super::message::{Origin, OriginKind};
use super::record::{Extra, Plane, ensure, is_default, record};
use super::time::{Span, Time};
use super::unknown_name;

names! {
    "delivery mode" DeliveryMode {
        WakeHint = "wake_hint",
        EnqueueMessage = "enqueue_message",
    }
}

/// Uses of a trigger since the first of them: up to one minute later, uses are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uses {
    pub since: Time,
    pub count: u32,
}

impl Uses {
    /// Duration, from the first use of a trigger, for which uses are counted together.
    pub const WINDOW: Span = Span::from_secs(60);

    /// Returns the count with one more use. `Err`: the present minute has `most` uses already; the
    /// value is the span until the next use is allowed.
    pub fn with_one(known: Option<Uses>, most: NonZeroU32, now: Time) -> Result<Uses, Span> {
        // A minute that starts in the future was stored by a wrong clock, and is ignored.
        let current = known.filter(|uses| uses.since <= now && now.since(uses.since) < Uses::WINDOW);
        let Uses { since, count } = current.unwrap_or(Uses { since: now, count: 0 });
        if count >= most.get() {
            return Err(since.after(Uses::WINDOW).since(now));
        }
        Ok(Uses { since, count: count.saturating_add(1) })
    }
}

/// Subject of all deliveries of a trigger, written as `agent`, `resource:REF` or `wait:ID`.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub enum TriggerScope {
    /// The deliveries are about the agent as a whole, not about a certain resource or wait.
    Agent,
    /// Resource that every delivery is about, as if the delivery had named it.
    Resource(String),
    /// Wait that a delivery ends. When the wait has ended, the trigger is revoked.
    Wait(WaitId),
}

impl TriggerScope {
    pub fn resource(&self) -> Option<&str> {
        match self {
            TriggerScope::Resource(resource) => Some(resource),
            TriggerScope::Agent | TriggerScope::Wait(_) => None,
        }
    }

    pub fn wait_id(&self) -> Option<WaitId> {
        match self {
            TriggerScope::Wait(id) => Some(*id),
            TriggerScope::Agent | TriggerScope::Resource(_) => None,
        }
    }
}

impl fmt::Display for TriggerScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TriggerScope::Agent => f.write_str("agent"),
            TriggerScope::Resource(resource) => write!(f, "resource:{resource}"),
            TriggerScope::Wait(id) => write!(f, "wait:{id}"),
        }
    }
}

impl FromStr for TriggerScope {
    type Err = String;

    fn from_str(word: &str) -> Result<TriggerScope, String> {
        let unknown = || unknown_name("trigger scope", word, &["agent", "resource:REF", "wait:ID"]);
        match word.split_once(':') {
            None if word == "agent" => Ok(TriggerScope::Agent),
            Some(("resource", resource)) if !resource.trim().is_empty() => {
                Ok(TriggerScope::Resource(resource.to_owned()))
            }
            Some(("wait", id)) => id.parse().map(TriggerScope::Wait).map_err(|_| unknown()),
            Some(_) | None => Err(unknown()),
        }
    }
}

names! {
    "trigger status" TriggerStatus {
        Active = "active",
        Revoked = "revoked",
    }
}

names! {
    /// Name of a verification scheme, see [`Verify`].
    #[derive(Default)]
    "way to verify" VerifyKind {
        #[default]
        Secret = "secret",
        HmacSha256 = "hmac_sha256",
        StandardWebhooks = "standard_webhooks",
        Stripe = "stripe",
        Slack = "slack",
        Url = "url",
    }
}

/// Scheme by which a delivery proves that its sender has the secret of the trigger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "VerifyFields", into = "VerifyFields")]
pub enum Verify {
    /// The delivery contains the secret: as bearer token, as password, or in `X-Gitlab-Token`.
    #[default]
    Secret,
    /// The delivery has an HMAC-SHA256 of its body in the header `header`, as GitHub sends it.
    HmacSha256 { header: String },
    /// The delivery is signed by Standard Webhooks: id, time and body.
    StandardWebhooks,
    /// The delivery is signed by Stripe's scheme: time and body.
    Stripe,
    /// The delivery is signed by Slack's scheme: time and body.
    Slack,
    /// The delivery's URL contains the secret.
    Url,
}

impl Verify {
    pub fn kind(&self) -> VerifyKind {
        match self {
            Verify::Secret => VerifyKind::Secret,
            Verify::HmacSha256 { .. } => VerifyKind::HmacSha256,
            Verify::StandardWebhooks => VerifyKind::StandardWebhooks,
            Verify::Stripe => VerifyKind::Stripe,
            Verify::Slack => VerifyKind::Slack,
            Verify::Url => VerifyKind::Url,
        }
    }

    pub fn signature_header(&self) -> Option<&str> {
        match self {
            Verify::HmacSha256 { header } => Some(header),
            Verify::Secret | Verify::StandardWebhooks | Verify::Stripe | Verify::Slack | Verify::Url => None,
        }
    }

    /// True if the secret itself has to be stored, because a hash can't check signatures.
    pub fn needs_key(&self) -> bool {
        match self {
            Verify::Secret | Verify::Url => false,
            Verify::HmacSha256 { .. } | Verify::StandardWebhooks | Verify::Stripe | Verify::Slack => true,
        }
    }
}

/// Fields of a trigger that define the verification of its deliveries.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerifyFields {
    #[serde(default)]
    pub verify: VerifyKind,
    /// Header with the signature, where `verify` is `hmac_sha256`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature_header: Option<String>,
}

impl From<Verify> for VerifyFields {
    fn from(verify: Verify) -> VerifyFields {
        let signature_header = verify.signature_header().map(str::to_owned);
        VerifyFields { verify: verify.kind(), signature_header }
    }
}

impl TryFrom<VerifyFields> for Verify {
    type Error = String;

    fn try_from(fields: VerifyFields) -> Result<Verify, String> {
        let VerifyFields { verify, signature_header } = fields;
        match (verify, signature_header) {
            (VerifyKind::HmacSha256, Some(header)) => Ok(Verify::HmacSha256 { header }),
            (VerifyKind::HmacSha256, None) => {
                Err("a trigger that verifies by `hmac_sha256` needs a `signature_header`".to_owned())
            }
            (other, Some(_)) => {
                Err(format!("a trigger that verifies by `{other}` has no `signature_header`"))
            }
            (VerifyKind::Secret, None) => Ok(Verify::Secret),
            (VerifyKind::StandardWebhooks, None) => Ok(Verify::StandardWebhooks),
            (VerifyKind::Stripe, None) => Ok(Verify::Stripe),
            (VerifyKind::Slack, None) => Ok(Verify::Slack),
            (VerifyKind::Url, None) => Ok(Verify::Url),
        }
    }
}

/// Header in which GitHub and many other systems send the signature.
pub const SIGNATURE_HEADER: &str = "X-Hub-Signature-256";

// `Trigger::new` makes an active trigger with deliveries as messages, verified by its secret.
#[serde_with::skip_serializing_none]
#[serde_with::apply(Option => #[new(default)], u64 => #[new(default)], Verify => #[new(default)])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, derive_new::new)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Trigger {
    pub id: TriggerId,
    #[serde(rename = "target_agent_id")]
    pub agent: AgentName,
    #[new(value = "DeliveryMode::EnqueueMessage")]
    pub delivery_mode: DeliveryMode,
    pub scope: TriggerScope,
    /// Origin of the deliveries: `webhook:github`. Absent: `webhook`, or `callback` where the scope
    /// is a wait.
    pub source: Option<String>,
    #[new(value = "TriggerStatus::Active")]
    pub status: TriggerStatus,
    #[serde(flatten)]
    #[cfg_attr(test, schemars(with = "VerifyFields"))]
    pub verify: Verify,
    /// SHA-256 of the trigger's secret, in hexadecimal.
    pub secret_sha256: String,
    /// Number of deliveries that steps have taken up. Deliveries in the inbox are not counted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub delivery_count: u64,
    /// Arrival time of the last delivery that a step has taken up.
    pub last_delivered_at: Option<Time>,
    pub created_at: Time,
    pub revoked_at: Option<Time>,
    #[new(default)]
    #[serde(flatten)]
    pub extra: Extra,
}

impl Trigger {
    pub fn is_active(&self) -> bool {
        self.status == TriggerStatus::Active
    }

    /// Returns the origin of the trigger's deliveries. `Err`: the record names an origin that
    /// outside systems can't have.
    pub fn origin(&self) -> Result<Origin, String> {
        let default = match self.scope {
            TriggerScope::Agent | TriggerScope::Resource(_) => OriginKind::Webhook,
            TriggerScope::Wait(_) => OriginKind::Callback,
        };
        let Some(source) = &self.source else { return Ok(Origin { kind: default, id: None }) };
        let origin: Origin = source.parse()?;
        if matches!(origin.kind, OriginKind::Webhook | OriginKind::Callback) {
            return Ok(origin);
        }
        Err(format!(
            "`{source}` is not what a trigger can speak as: that is `webhook:NAME` or `callback:NAME`"
        ))
    }

    /// Counts the deliveries that a step takes up. `last`: arrival time of the last delivery.
    pub fn count(&mut self, deliveries: u64, last: Time) {
        self.delivery_count = self.delivery_count.saturating_add(deliveries);
        self.last_delivered_at = self.last_delivered_at.max(Some(last));
    }
}

record! { Trigger of agent = "trigger", TriggerId in Plane::Triggers; check }

impl Trigger {
    fn fault(&self) -> Result<(), String> {
        let is_blank = self.scope.resource().is_some_and(|resource| resource.trim().is_empty());
        ensure(!is_blank, "the resource of a trigger is blank")?;
        self.origin().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_counted_from_the_first_for_a_minute() {
        let at = |millis: i64| Time::from_millis(1_790_000_000_000 + millis);
        let uses = |since: i64, count| Uses { since: at(since), count };
        let most = NonZeroU32::new(2).unwrap();
        for (known, now, expected) in [
            (None, 0, Ok(uses(0, 1))),
            (Some(uses(0, 1)), 59_999, Ok(uses(0, 2))),
            (Some(uses(0, 2)), 59_999, Err(Span::from_millis(1))),
            (Some(uses(0, 9)), 0, Err(Span::from_secs(60))),
            (Some(uses(0, 2)), 60_000, Ok(uses(60_000, 1))),
            // A minute in the future was written by a wrong clock, and is ignored.
            (Some(uses(1, 2)), 0, Ok(uses(0, 1))),
        ] {
            assert_eq!(Uses::with_one(known, most, at(now)), expected, "{known:?} {now}");
        }
    }
}
