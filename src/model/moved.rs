//! Mark of an agent that was moved or renamed, or that is about to be.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::record::is_default;
use super::time::Time;

/// Mark of an agent that leaves its store or its name, or has left: destination, time, operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Moved {
    /// Destination as the operator named it: a host, a URL. For a removed agent: the file with its
    /// export, or empty. For a renamed agent: its new name.
    pub to: String,
    pub at: Time,
    /// Kind of departure: a move, a removal or a rename.
    #[serde(default, skip_serializing_if = "is_default")]
    pub by: Leave,
}

names! {
    /// Operation by which an agent leaves its store or name. A `Moved` without `by` means a move.
    #[derive(Default)]
    "way to leave" Leave {
        #[default]
        Move = "move",
        Remove = "remove",
        /// Rename. The mark stays under the new name until agents that refer to it are updated.
        Rename = "rename",
    }
}

impl Moved {
    /// True if an import may replace this agent. During a rename its records are still needed.
    pub fn frees_name(&self) -> bool {
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
