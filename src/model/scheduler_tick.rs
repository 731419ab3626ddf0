//! Messages of kind `system_tick` that the scheduler emits.

use serde::{Deserialize, Serialize};

use super::id::MessageId;
use super::message::Body;

/// Reason for which the scheduler emitted a tick, as far as the meaning of the tick depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulerTick {
    /// A wait's `expires_at` is past: the wait ends when the tick is taken up.
    Expiry,
    /// A wait's `recheck_at` has come.
    Recheck,
    /// Runnable work, blocked work to look at, input that was set aside, or a wait that was repaired.
    Other,
}

/// The wake hint from which a `system_tick` was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Hinted {
    pub hint_id: MessageId,
    pub source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many hints of the same scope it stands for.
    pub count: u32,
    /// What an outside system sent with the hint. It stays on record as evidence, and no turn is told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Body>,
}
