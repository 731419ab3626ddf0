//! Data of triggers outside their records: the keys of signatures, and the uses of the last minute.
//! They belong to this machine if the records are files; in a database all machines share them.

use std::num::NonZeroU32;

use crate::error::Result;
use crate::model::digest::sha256;
use crate::model::id::TriggerId;
use crate::model::time::Time;
use crate::model::trigger::Trigger;

use super::super::backend::{Op, UseOutcome};
use super::agent::Agent;
use super::change::AgentTxn;

impl AgentTxn<'_> {
    /// Stores the key of a trigger's signatures with the next commit, which has the record that
    /// names the key's hash.
    pub fn keep_key(&self, trigger: TriggerId, key: &str) {
        let (key, digest) = (key.as_bytes().to_vec(), sha256(key.as_bytes()));
        self.change_along(vec![Op::TriggerKey { trigger, digest, key }]);
    }
}

impl Agent<'_> {
    /// Returns the key of a trigger's signatures. `None` if this clone of the state directory lacks
    /// the key, or a stream has brought the agent into its store.
    pub fn key_of(&self, trigger: &Trigger) -> Result<Option<Vec<u8>>> {
        let key = self.source().records().trigger_key(trigger.id, &trigger.secret_sha256)?;
        Ok(key.filter(|key| sha256(key) == trigger.secret_sha256))
    }

    /// True if the key of a trigger's signatures is stored.
    pub fn has_key(&self, trigger: &Trigger) -> Result<bool> {
        self.source().records().has_trigger_key(trigger.id, &trigger.secret_sha256)
    }

    /// Removes every key of a trigger except that with this hash. Called once no record names the
    /// others. A database has removed them with the commit.
    pub fn forget_keys(&self, trigger: TriggerId, but: Option<&str>) -> Result<()> {
        self.source().records().forget_trigger_keys(trigger, but)
    }

    /// Counts one use of a trigger, if it has not been used `most` times in this minute. The inner
    /// `Err` is the time until the next permitted use.
    pub fn use_trigger(&self, id: TriggerId, most: NonZeroU32, now: Time) -> Result<UseOutcome> {
        self.source().records().use_trigger(id, most, now)
    }
}
