//! Batches of messages for an inbox.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::model::message::{InboxKey, Message};
use crate::model::time::Time;

use super::super::dir;
use super::agent::Agent;
use super::ops;

/// Batch of messages for the inbox. Dropping the batch removes the messages that were not admitted.
#[derive(Debug)]
pub enum Batch<'a> {
    Dir(dir::DirBatch<'a>),
    Remote(&'a Agent<'a>, BTreeMap<InboxKey, Message>),
}

impl Agent<'_> {
    /// Begins a batch of messages for the inbox. `name` must be unique among batches.
    pub fn batch(&self, name: Uuid) -> Result<Batch<'_>> {
        Ok(match self.remote() {
            None => Batch::Dir(self.local().batch(name)?),
            Some(_) => Batch::Remote(self, BTreeMap::new()),
        })
    }
}

impl Batch<'_> {
    /// Adds a message, which `read` returns and `admit` puts into the inbox.
    pub fn stage(&mut self, message: &Message) -> Result<()> {
        match self {
            Batch::Dir(dir) => dir.stage(message)?,
            Batch::Remote(.., staged) => drop(staged.insert(message.key(), message.clone())),
        }
        Ok(())
    }

    /// Makes all staged messages durable. Must be called before the first message is admitted.
    pub fn sync(&mut self) -> Result<()> {
        match self {
            Batch::Dir(dir) => dir.sync(),
            // The messages become durable together when they are admitted.
            Batch::Remote(..) => Ok(()),
        }
    }

    /// Reads back a staged message.
    pub fn read(&self, key: InboxKey) -> Result<Message> {
        match self {
            Batch::Dir(dir) => dir.read(key),
            Batch::Remote(.., staged) => {
                let missing = || Error::NoRecord { what: "message", id: key.id.to_string() };
                staged.get(&key).cloned().ok_or_else(missing)
            }
        }
    }

    /// Puts the staged messages with these keys durably into the inbox. The keys have any order.
    pub fn admit(self, keys: impl Iterator<Item = InboxKey> + Clone, now: Time) -> Result<()> {
        match self {
            Batch::Dir(dir) => dir.admit(keys, now),
            Batch::Remote(agent, staged) => agent
                .admit_all(&keys.filter_map(|key| staged.get(&key)).map(ops::arrival).collect::<Vec<_>>()),
        }
    }
}
