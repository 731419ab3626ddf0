//! Record of a `dedupe_key`, which is stored until its window ends.

use serde::{Deserialize, Serialize};

use super::id::MessageId;
use super::message::MessageStatus;
use super::record::{Extra, record};
use super::time::Time;

/// Key of one agent, with the message that was admitted under it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DedupeEntry {
    pub key: String,
    pub message_id: MessageId,
    pub admitted_at: Time,
    pub status: MessageStatus,
    /// Revision of the agent that wrote this entry.
    pub revision: u64,
    #[serde(flatten)]
    pub extra: Extra,
}

record! { DedupeEntry = "dedupe" }
