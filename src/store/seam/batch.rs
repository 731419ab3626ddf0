//! Batches of messages for an inbox.

use uuid::Uuid;

use crate::error::Result;
use crate::model::message::Message;
use crate::model::time::Time;

use super::super::backend::Arrival;
use super::super::dir;
use super::agent::Agent;
use super::ops;

/// Batch of messages for the inbox. Dropping the batch removes the messages that were not admitted.
#[derive(Debug)]
pub enum Batch<'a> {
    Dir(dir::DirBatch<'a>),
    Remote(&'a Agent<'a>, Vec<Arrival>),
}

impl Agent<'_> {
    /// Begins a batch of messages for the inbox. `name` must be unique among batches.
    pub fn batch(&self, name: Uuid) -> Result<Batch<'_>> {
        Ok(match self.files() {
            Some(files) => Batch::Dir(files.batch(name)?),
            None => Batch::Remote(self, Vec::new()),
        })
    }
}

impl Batch<'_> {
    /// Adds a message, which `admit` puts into the inbox.
    pub fn stage(&mut self, message: &Message) -> Result<()> {
        match self {
            Batch::Dir(dir) => dir.stage(message)?,
            Batch::Remote(.., staged) => staged.push(ops::arrival(message)),
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

    /// Puts the staged messages durably into the inbox.
    pub fn admit(self, now: Time) -> Result<()> {
        match self {
            Batch::Dir(dir) => dir.admit(now),
            Batch::Remote(agent, staged) => agent.admit_all(&staged),
        }
    }
}
