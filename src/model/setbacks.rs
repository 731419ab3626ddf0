//! Failed attempts of a message, and setbacks: turns and claims that use up no attempt.

use serde::{Deserialize, Serialize};

use super::id::RunId;
use super::record::is_default;
use super::run::Terminal;
use super::time::Time;

/// Numbers of turns and claims of one message that neither completed it nor used up an attempt. A
/// failed attempt resets them to 0, and so does an operator's request to try the message again.
#[serde_with::apply(_ => #[serde(skip_serializing_if = "is_default")])]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Setbacks {
    /// Number of consecutive runs that ended because of something outside of their turn.
    pub interruptions: u32,
    /// Number of deferrals by a turn, or by a claim that lacked a resource. Not counted: waiting
    /// for a resource that a known agent has, or for the agent's own usage limit.
    pub deferrals: u32,
    /// Number of the message's turns that yielded.
    pub suspensions: u32,
}

impl Setbacks {
    /// Returns the counts with one more interruption.
    pub const fn interrupted(self) -> Setbacks {
        Setbacks { interruptions: self.interruptions.saturating_add(1), ..self }
    }

    /// Returns the counts with one more deferral by a turn. Interruptions count from 0 again,
    /// because the turn ended by itself.
    pub const fn deferred(self) -> Setbacks {
        Setbacks { interruptions: 0, ..self.lacking() }
    }

    /// Returns the counts with one more deferral by a claim that lacked a resource.
    pub const fn lacking(self) -> Setbacks {
        Setbacks { deferrals: self.deferrals.saturating_add(1), ..self }
    }

    /// Returns the counts with one more suspension. Interruptions count from 0 again.
    pub const fn suspended(self) -> Setbacks {
        Setbacks { interruptions: 0, suspensions: self.suspensions.saturating_add(1), ..self }
    }
}

/// Failed attempt of a message, with its terminal kind and the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailedAttempt {
    pub attempt: u32,
    /// Last run of the attempt; absent if none had begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    pub terminal: Terminal,
    pub at: Time,
    pub reason: String,
}
