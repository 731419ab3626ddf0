//! Many arrivals at once.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::model::message::{InboxKey, Message};
use crate::model::time::Time;

use super::super::dir;
use super::super::elsewhere::Arrival;
use super::agent::Agent;
use super::pieces;
use super::remote::Remote;

/// Messages on their way into the inbox. Dropping this removes those that were not admitted.
#[derive(Debug)]
pub struct Batch<'a>(StagedBatch<'a>);

#[derive(Debug)]
enum StagedBatch<'a> {
    Dir(dir::DirBatch<'a>),
    Remote(&'a Agent<'a>, &'a Remote, BTreeMap<InboxKey, Message>),
}

impl Agent<'_> {
    /// Begins to put many messages into the inbox. `name` must be one that no other batch has.
    pub fn batch(&self, name: Uuid) -> Result<Batch<'_>> {
        Ok(Batch(match self.remote() {
            None => StagedBatch::Dir(self.local().batch(name)?),
            Some(remote) => StagedBatch::Remote(self, remote, BTreeMap::new()),
        }))
    }
}

impl Batch<'_> {
    /// Puts a message aside that will be admitted together with the others.
    pub fn stage(&mut self, message: &Message) -> Result<()> {
        match &mut self.0 {
            StagedBatch::Dir(dir) => dir.stage(message),
            StagedBatch::Remote(.., staged) => {
                staged.insert(message.key(), message.clone());
                Ok(())
            }
        }
    }

    /// Puts a message aside that will be read back and admitted in another way.
    pub fn stage_apart(&mut self, message: &Message) -> Result<()> {
        match &mut self.0 {
            StagedBatch::Dir(dir) => dir.stage_apart(message),
            StagedBatch::Remote(..) => self.stage(message),
        }
    }

    /// Makes all staged messages durable. Must be called before the first is admitted.
    pub fn sync(&mut self) -> Result<()> {
        match &mut self.0 {
            StagedBatch::Dir(dir) => dir.sync(),
            // They become durable when they are admitted, all together.
            StagedBatch::Remote(..) => Ok(()),
        }
    }

    /// Reads a message back that was staged apart.
    pub fn read(&self, key: InboxKey) -> Result<Message> {
        match &self.0 {
            StagedBatch::Dir(dir) => dir.read(key),
            StagedBatch::Remote(.., staged) => staged
                .get(&key)
                .cloned()
                .ok_or_else(|| Error::NoRecord { what: "message", id: key.id.to_string() }),
        }
    }

    /// Puts all staged messages into the inbox, for good. `keys`: theirs, in any order.
    pub fn admit(self, keys: impl Iterator<Item = InboxKey> + Clone, now: Time) -> Result<()> {
        match self.0 {
            StagedBatch::Dir(dir) => dir.admit(keys, now),
            StagedBatch::Remote(agent, remote, staged) => {
                let admitted: Vec<Arrival> =
                    keys.filter_map(|key| staged.get(&key)).map(pieces::arrival).collect();
                agent.admit_all(remote, &admitted)
            }
        }
    }
}
