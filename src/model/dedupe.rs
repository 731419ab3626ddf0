//! Record of a message's `dedupe_key`, which is stored until `limits.dedupe_window` has passed.

use serde::{Deserialize, Serialize};

use super::id::MessageId;
use super::message::{Message, MessageStatus};
use super::record::{Extra, record};
use super::time::Time;

/// `dedupe_key` of a message, and the message that the agent admitted under this key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DedupeEntry {
    pub key: String,
    pub message_id: MessageId,
    pub admitted_at: Time,
    pub status: MessageStatus,
    /// Revision of the agent's `state.json` in the transaction that wrote this entry.
    pub revision: u64,
    #[serde(flatten)]
    pub extra: Extra,
}

record! { DedupeEntry = "dedupe" }

impl DedupeEntry {
    /// Returns the entry of a message; `None` if the message has no `dedupe_key`.
    pub fn of(message: &Message, status: MessageStatus, revision: u64) -> Option<DedupeEntry> {
        let (message_id, admitted_at) = (message.id, message.created_at);
        let key = message.dedupe_key.clone()?;
        Some(DedupeEntry { key, message_id, admitted_at, status, revision, extra: Extra::default() })
    }
}
