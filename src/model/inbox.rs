//! `[inbox]` of `agent.toml`: policy for arriving messages.

use std::str::FromStr;

use serde::Deserialize;
use serde_with::DeserializeFromStr;

use super::message::{Origin, OriginKind};

names! {
    /// Policy for input with content for which the agent does not wait.
    #[derive(Default)]
    "way with unmatched input" Unmatched {
        /// The input is settled without a turn, and the next turn is told of it.
        #[default]
        Reduce = "reduce",
        /// The input gets a turn of its own at once.
        Run = "run",
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InboxPolicy {
    pub unmatched: Unmatched,
    /// Origin of a message that another program drops as a file, if the file names none. The file
    /// may name another origin with no more authority.
    pub drops_as: DropsAs,
}

/// Origin of dropped files: `operator`, `channel`, `webhook` or `callback`, or one with `:ID`.
#[derive(Debug, Clone, PartialEq, DeserializeFromStr)]
pub struct DropsAs(pub Origin);

impl Default for DropsAs {
    /// Returns `channel:file`, an external origin, because a file does not prove who wrote it.
    fn default() -> Self {
        DropsAs(Origin { kind: OriginKind::Channel, id: Some("file".to_owned()) })
    }
}

impl FromStr for DropsAs {
    type Err = String;

    fn from_str(word: &str) -> Result<DropsAs, String> {
        let origin: Origin = word.parse()?;
        if origin.is_of_user() {
            return Err(format!(
                "inbox.drops_as = \"{word}\": a user's origin comes from the owner of the file; name another origin"
            ));
        }
        match origin.kind {
            OriginKind::Operator | OriginKind::Channel | OriginKind::Webhook | OriginKind::Callback => {
                Ok(DropsAs(origin))
            }
            OriginKind::Timer | OriginKind::System | OriginKind::Task => Err(format!(
                "inbox.drops_as = \"{word}\": a file can speak as operator, channel, webhook or callback"
            )),
        }
    }
}
