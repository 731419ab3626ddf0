//! Batches of messages for an inbox.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::model::message::{InboxKey, Message};
use crate::model::time::Time;

use super::super::backend::Arrival;
use super::super::dir;
use super::agent::Agent;
use super::pieces;

/// Batch of messages for the inbox. Dropping the batch removes the messages that were not admitted.
#[derive(Debug)]
pub struct Batch<'a>(StagedBatch<'a>);

#[derive(Debug)]
enum StagedBatch<'a> {
    Dir(dir::DirBatch<'a>),
    Remote(&'a Agent<'a>, BTreeMap<InboxKey, Message>),
}

impl Agent<'_> {
    /// Begins a batch of messages for the inbox. `name` must be unique among batches.
    pub fn batch(&self, name: Uuid) -> Result<Batch<'_>> {
        Ok(Batch(match self.remote() {
            None => StagedBatch::Dir(self.local().batch(name)?),
            Some(_) => StagedBatch::Remote(self, BTreeMap::new()),
        }))
    }
}

impl Batch<'_> {
    /// Writes a message into the batch, to be admitted together with the others.
    pub fn stage(&mut self, message: &Message) -> Result<()> {
        match &mut self.0 {
            StagedBatch::Dir(dir) => dir.stage(message),
            StagedBatch::Remote(.., staged) => {
                staged.insert(message.key(), message.clone());
                Ok(())
            }
        }
    }

    /// Writes a message into the batch that will be read back and admitted separately.
    pub fn stage_apart(&mut self, message: &Message) -> Result<()> {
        match &mut self.0 {
            StagedBatch::Dir(dir) => dir.stage_apart(message),
            StagedBatch::Remote(..) => self.stage(message),
        }
    }

    /// Makes all staged messages durable. Must be called before the first message is admitted.
    pub fn sync(&mut self) -> Result<()> {
        match &mut self.0 {
            StagedBatch::Dir(dir) => dir.sync(),
            // The messages become durable together when they are admitted.
            StagedBatch::Remote(..) => Ok(()),
        }
    }

    /// Reads back a message that was staged by `stage_apart`.
    pub fn read(&self, key: InboxKey) -> Result<Message> {
        match &self.0 {
            StagedBatch::Dir(dir) => dir.read(key),
            StagedBatch::Remote(.., staged) => staged
                .get(&key)
                .cloned()
                .ok_or_else(|| Error::NoRecord { what: "message", id: key.id.to_string() }),
        }
    }

    /// Puts all staged messages durably into the inbox. `keys`: the keys of the messages, in any
    /// order.
    pub fn admit(self, keys: impl Iterator<Item = InboxKey> + Clone, now: Time) -> Result<()> {
        match self.0 {
            StagedBatch::Dir(dir) => dir.admit(keys, now),
            StagedBatch::Remote(agent, staged) => {
                let admitted: Vec<Arrival> =
                    keys.filter_map(|key| staged.get(&key)).map(pieces::arrival).collect();
                agent.admit_all(&admitted)
            }
        }
    }
}
