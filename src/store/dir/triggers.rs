//! What the store keeps for triggers beside their records: the keys of signatures.

use crate::error::Result;
use crate::model::digest::sha256;
use crate::model::id::TriggerId;
use crate::model::trigger::Trigger;

use super::{Agent, layout};

/// Beside the keys: git never sees them, also where a state directory's own `.gitignore` is older than they are.
const IGNORE_ALL: &str = "# Keys of signatures: this machine's own, never in git.\n*\n";

/// The longest key, in bytes.
const MAX_KEY: u64 = 4096;

impl Agent<'_> {
    /// Keeps the key of a trigger's signatures, durably, before the record names its hash. The owner alone can read it.
    pub fn keep_key(&self, trigger: TriggerId, key: &str) -> Result<()> {
        let ignore = self.dir().join(layout::KEYS).join(".gitignore");
        if !ignore.exists()? {
            self.replace_file(&ignore, IGNORE_ALL.as_bytes())?;
        }
        let spot = self.dir().join(layout::key(trigger, &sha256(key.as_bytes())));
        self.replace_file(&spot, key.as_bytes())
    }

    /// The key of a trigger's signatures. `None`: this clone of the state directory does not have it.
    pub fn key_of(&self, trigger: &Trigger) -> Result<Option<Vec<u8>>> {
        let key = self.dir().join(layout::key(trigger.id, &trigger.secret_sha256)).read(MAX_KEY)?;
        Ok(key.filter(|key| sha256(key) == trigger.secret_sha256))
    }

    /// Removes every key of a trigger but the one with this hash. To be called once no record names the others.
    pub fn forget_keys(&self, trigger: TriggerId, but: Option<&str>) -> Result<()> {
        let dir = self.dir().join(layout::KEYS);
        let kept = but.map(|hash| layout::key_name(trigger, hash));
        let of_trigger = format!("{trigger}.");
        for entry in dir.entries()? {
            let Some(name) = entry.name.to_str() else { continue };
            if name.starts_with(&of_trigger) && Some(name) != kept.as_deref() {
                dir.join(name).remove()?;
            }
        }
        Ok(())
    }
}
