//! Data of triggers outside their records: the keys of signatures, and counters of recent uses.

use std::io::{Read, Seek, Write};
use std::num::NonZeroU32;

use crate::error::{Error, IoContext, Result};
use crate::model::id::TriggerId;
use crate::model::time::Time;
use crate::model::trigger::Uses;

use super::super::backend::UseOutcome;
use super::{DirAgent, layout, lock};

/// Content of `.gitignore` next to the keys. With it git ignores them, even if the `.gitignore` of
/// the state directory is older than the keys.
const IGNORE_ALL: &str = "# Keys of signatures: this machine's own, never in git.\n*\n";

/// Maximum bytes of a key.
const MAX_KEY: u64 = 4096;

impl DirAgent<'_> {
    /// Stores the key of a trigger's signatures, durably. Must be called before the record names
    /// the key's hash. Only the owner can read the file.
    pub(super) fn keep_key(&self, trigger: TriggerId, digest: &str, key: &[u8]) -> Result<()> {
        let ignore = self.dir().join(layout::KEYS).join(".gitignore");
        if !ignore.exists()? {
            self.replace_file(&ignore, IGNORE_ALL.as_bytes())?;
        }
        self.replace_file(&self.dir().join(layout::key(trigger, digest)), key)
    }

    /// Returns the key with this hash, if this clone of the state directory has it.
    pub(super) fn read_key(&self, trigger: TriggerId, digest: &str) -> Result<Option<Vec<u8>>> {
        self.dir().join(layout::key(trigger, digest)).read(MAX_KEY)
    }

    /// Removes every key of a trigger except that with this hash. Called once no record names the
    /// others.
    pub(super) fn forget_keys(&self, trigger: TriggerId, but: Option<&str>) -> Result<()> {
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

    /// Counts one use of a trigger, if it has not been used `most` times in this minute. The inner
    /// `Err` is the time until the next permitted use. The counter belongs to this state directory,
    /// and is lost with it.
    pub(super) fn count_use(&self, id: TriggerId, most: NonZeroU32, now: Time) -> Result<UseOutcome> {
        let spot = self.dir().join(layout::uses(id));
        spot.parent().make_dirs()?;
        let (mut file, _) = spot.open_in_place(true)?.ok_or_else(|| Error::gone("open", &spot))?;
        lock::hold(&file, &spot)?;
        let mut text = String::new();
        // An incomplete file counts as the beginning of a new minute.
        let _ = (&file).take(64).read_to_string(&mut text);
        let found = text.split_once(' ').and_then(|(since, count)| {
            let since = Time::from_millis(since.parse().ok()?);
            Some(Uses { since, count: count.trim().parse().ok()? })
        });
        let uses = match Uses::with_one(found, most, now) {
            Ok(uses) => uses,
            Err(pause) => return Ok(Err(pause)),
        };
        let line = format!("{:<15} {:<10}\n", uses.since.as_millis(), uses.count);
        file.rewind().and_then(|()| file.write_all(line.as_bytes())).context("write", &spot)?;
        Ok(Ok(()))
    }
}
