//! What `gc` does for one agent: what is kept no longer goes, and months that are over are packed.

use serde::Serialize;

use crate::error::Result;
use crate::model::retention::Retention;
use crate::model::state::State;
use crate::model::time::Time;

use super::gc::{Dropping, Old, Staged};
use super::snapshot::Snapshot;
use super::sweep::{Sweeping, Swept};
use super::{Agent, Change};

/// What came of it, or would.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Collected {
    #[serde(flatten)]
    pub swept: Swept,
    pub packed: Vec<PackedFile>,
    pub dropped: Vec<DroppedMonth>,
    /// What was on the disk and is not any more; before anything is packed that is not known of it.
    pub freed_bytes: u64,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct PackedFile {
    path: String,
    pub bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    packed_bytes: Option<u64>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct DroppedMonth {
    pub month: String,
    pub bytes: u64,
}

impl Collected {
    pub fn is_nothing(&self) -> bool {
        *self == Collected::default()
    }

    /// What of it is about nothing that was packed.
    pub fn of(swept: Swept, dropped: Vec<DroppedMonth>) -> Collected {
        let freed_bytes = swept.bytes + dropped.iter().map(|month| month.bytes).sum::<u64>();
        Collected { swept, packed: Vec::new(), dropped, freed_bytes }
    }

    fn new(swept: Swept, dropped: &[Dropping], packed: &[(&Old, Option<u64>)]) -> Collected {
        let saved = packed.iter().filter_map(|(old, after)| Some(old.bytes.saturating_sub((*after)?)));
        let dropped_bytes = dropped.iter().map(|month| month.bytes);
        let packed_file = |(old, packed_bytes): &(&Old, _)| PackedFile {
            path: old.path.clone(),
            bytes: old.bytes,
            packed_bytes: *packed_bytes,
        };
        let dropped_month =
            |month: &Dropping| DroppedMonth { month: month.month.clone(), bytes: month.bytes };
        Collected {
            swept,
            packed: packed.iter().map(packed_file).collect(),
            dropped: dropped.iter().map(dropped_month).collect(),
            freed_bytes: swept.bytes + dropped_bytes.sum::<u64>() + saved.sum::<u64>(),
        }
    }
}

/// What is to be collected. It needed no lock to be read and packed, and may have taken its time.
#[derive(Debug)]
pub struct Collection {
    retention: Retention,
    now: Time,
    dropping: Vec<Dropping>,
    staged: Vec<Staged>,
}

impl Agent<'_> {
    /// What would be collected. Nothing is written.
    pub fn would_collect(&self, retention: Retention, now: Time) -> Result<Collected> {
        self.look(|seen, state| {
            let (dropping, old) = self.over(&seen, retention, now, false)?;
            let how = Sweeping { retention, now, removes: false, is_leased: false };
            let swept = self.sweep_all(&seen.view, &state, how)?;
            let packed: Vec<_> = old.iter().map(|old| (old, None)).collect();
            Ok(Collected::new(swept, &dropping, &packed))
        })
    }

    /// Reads and packs what can be collected. To be done without a lock.
    pub fn collection(&self, retention: Retention, now: Time) -> Result<Collection> {
        let (dropping, old) = self.look(|seen, _| self.over(&seen, retention, now, true))?;
        let stage = |old: &Old| self.look(|seen, _| self.stage_packed(&seen, old.clone()));
        let staged = old.iter().map(stage).collect::<Result<_>>()?;
        Ok(Collection { retention, now, dropping, staged })
    }

    /// The months that go, and the files of others that can be packed.
    fn over(
        &self,
        seen: &Snapshot<'_>,
        retention: Retention,
        now: Time,
        is_staged: bool,
    ) -> Result<(Vec<Dropping>, Vec<Old>)> {
        let dropping = self.to_drop(seen, retention.archive, now, is_staged)?;
        let mut old = self.to_pack(seen, now)?;
        old.retain(|old| !dropping.iter().any(|month| month.has(old)));
        Ok((dropping, old))
    }
}

impl Change<'_> {
    /// Collects all but what readers may be at: that goes after the next commit, for a reader sees
    /// meanwhile by the revision that it was overtaken. `is_leased`: the caller holds the agent's
    /// lease.
    pub fn collect(&self, collection: &mut Collection, state: &State, is_leased: bool) -> Result<Collected> {
        // What it names would be put back by it.
        self.empty_journal()?;
        let mut dropping = Vec::new();
        for month in std::mem::take(&mut collection.dropping) {
            if self.place_ended(&month, state)? {
                dropping.push(month);
            }
        }
        let mut staged = Vec::new();
        for packed in std::mem::take(&mut collection.staged) {
            if self.place_packed(&packed)? {
                staged.push(packed);
            }
        }
        let how = Sweeping { retention: collection.retention, now: collection.now, removes: true, is_leased };
        let swept = self.agent.sweep_all(&self.view(), state, how)?;
        let packed: Vec<_> = staged.iter().map(|staged| (&staged.old, Some(staged.bytes()))).collect();
        let collected = Collected::new(swept, &dropping, &packed);
        (collection.dropping, collection.staged) = (dropping, staged);
        Ok(collected)
    }

    /// Removes what was collected. Only after a commit since, if anything was.
    pub fn remove_collected(&self, collection: &Collection) -> Result<()> {
        self.empty_journal()?;
        collection.staged.iter().try_for_each(|staged| self.remove_packed(staged))?;
        collection.dropping.iter().try_for_each(|month| self.remove_month(month))
    }
}
