//! Triggers: capabilities by which outside systems reach an agent (contract, semantics §13). Only the hash of
//! a secret is stored.

use serde::{Deserialize, Serialize};

use super::id::{AgentName, TriggerId};
use super::record::{Extra, Record};
use super::time::Time;

names! {
    "delivery mode" DeliveryMode {
        WakeHint = "wake_hint",
        EnqueueMessage = "enqueue_message",
    }
}

names! {
    "trigger scope" TriggerScope {
        Agent = "agent",
    }
}

names! {
    "trigger status" TriggerStatus {
        Active = "active",
        Revoked = "revoked",
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Trigger {
    pub id: TriggerId,
    pub agent: AgentName,
    pub delivery_mode: DeliveryMode,
    pub scope: TriggerScope,
    pub status: TriggerStatus,
    /// The hash of the secret, in hexadecimal.
    pub secret_sha256: String,
    pub created_at: Time,
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for Trigger {
    const KIND: &'static str = "trigger";
    fn extra_mut(&mut self) -> &mut Extra {
        &mut self.extra
    }

    fn file_id(&self) -> Option<String> {
        Some(self.id.to_string())
    }
}
