//! The mark of an agent that has left its place, or is about to.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::time::Time;

/// Where an agent has gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Moved {
    /// In the words of the person who moved it: a host, a URL. Of an agent that is being removed:
    /// the file with its stream, or nothing. Of one that is being renamed: its new name.
    pub to: String,
    pub at: Time,
    /// How it goes.
    #[serde(default, skip_serializing_if = "Leave::is_by_move")]
    pub by: Leave,
}

names! {
    /// How an agent leaves its place.
    "way to leave" Leave {
        Move = "move",
        Remove = "remove",
        /// To another name. The agent of the new name has the same mark until there is none of the
        /// old name any more.
        Rename = "rename",
    }
}

impl Default for Leave {
    /// The only way that there was before the others.
    fn default() -> Leave {
        Leave::Move
    }
}

impl Leave {
    fn is_by_move(&self) -> bool {
        *self == Leave::Move
    }
}

impl Moved {
    /// Whether another agent may take the name. One that is being renamed has all that there is of
    /// it here.
    pub fn makes_room(&self) -> bool {
        match self.by {
            Leave::Move | Leave::Remove => true,
            Leave::Rename => false,
        }
    }
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            Leave::Move => write!(f, "moved to {}", self.to),
            Leave::Remove => f.write_str("marked for removal"),
            Leave::Rename => write!(f, "marked for its new name `{}`", self.to),
        }
    }
}
