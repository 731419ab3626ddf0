//! Failed attempts of a message, and its setbacks: turns and claims that cost no attempt.

use serde::{Deserialize, Serialize};

use super::id::RunId;
use super::run::Terminal;
use super::time::Time;

/// The row of turns and claims of one message that neither completed it nor used up an attempt. An
/// attempt that fails ends the row, and so does the operator who has the message tried again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Setbacks {
    /// Runs in a row that something outside of their turn has ended.
    #[serde(skip_serializing_if = "is_zero")]
    pub interruptions: u32,
    /// How often a turn or a claim has put the message off. Waiting for a live holder that is
    /// known, or for an own limit, is not counted.
    #[serde(skip_serializing_if = "is_zero")]
    pub deferrals: u32,
    /// How often a turn of the message has yielded.
    #[serde(skip_serializing_if = "is_zero")]
    pub suspensions: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Setbacks {
    pub fn is_nothing(&self) -> bool {
        *self == Setbacks::default()
    }

    /// The row with one more interruption.
    pub const fn interrupted(self) -> Setbacks {
        Setbacks { interruptions: self.interruptions.saturating_add(1), ..self }
    }

    /// The row with one more deferral by a turn. The turn ended by itself, so no interruption goes
    /// before it.
    pub const fn deferred(self) -> Setbacks {
        Setbacks { interruptions: 0, ..self.lacking() }
    }

    /// The row with one more deferral by a claim that lacked a resource.
    pub const fn lacking(self) -> Setbacks {
        Setbacks { deferrals: self.deferrals.saturating_add(1), ..self }
    }

    /// The row with one more suspension.
    pub const fn suspended(self) -> Setbacks {
        Setbacks { interruptions: 0, suspensions: self.suspensions.saturating_add(1), ..self }
    }
}

/// An attempt that did not go well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Failure {
    pub attempt: u32,
    /// Its last run; absent if none had begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    pub terminal: Terminal,
    pub at: Time,
    pub reason: String,
}
