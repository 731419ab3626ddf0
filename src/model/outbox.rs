//! Size of an agent's outbox, as stored in the agent's state.

use serde::{Deserialize, Serialize};

use super::message::Message;
use super::record::size;

/// Number and size of the messages that are still to be delivered to other agents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Outbox {
    pub messages: u64,
    /// Size of their files.
    pub bytes: u64,
}

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    pub fn add(&mut self, message: &Message) {
        self.messages += 1;
        self.bytes = self.bytes.saturating_add(size(message));
    }

    /// Returns the size of an outbox that contains these messages.
    pub fn of<'m>(messages: impl IntoIterator<Item = &'m Message>) -> Outbox {
        let mut outbox = Outbox::default();
        messages.into_iter().for_each(|message| outbox.add(message));
        outbox
    }
}
