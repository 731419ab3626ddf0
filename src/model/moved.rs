//! Mark of an agent that was moved or renamed, or that is about to be.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::record::is_default;
use super::time::Time;

/// Destination of a moved agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Moved {
    /// Destination as its operator named it: a host, a URL. For a removed agent: the file with its
    /// export, or empty. For a renamed agent: its new name.
    pub to: String,
    pub at: Time,
    /// Kind of the move.
    #[serde(default, skip_serializing_if = "is_default")]
    pub by: Leave,
}

names! {
    /// Way in which an agent has left its place. Old marks without the field are moves.
    #[derive(Default)]
    "way to leave" Leave {
        #[default]
        Move = "move",
        Remove = "remove",
        /// Rename. The new agent also has the `moved` mark until the old agent is deleted.
        Rename = "rename",
    }
}

impl Moved {
    /// True if a new agent may take the name. A renamed agent still has all its records here.
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
