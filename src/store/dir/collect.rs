//! `gc` for one agent: deletes run and task directories and months past their retention.

use serde::Serialize;

use crate::error::Result;
use crate::model::retention::Retention;
use crate::model::state::State;
use crate::model::time::Time;

use super::gc::MonthToDelete;
use super::sweep::{Sweeping, Swept};
use super::{DirAgent, DirTxn};

/// Result of `gc`, or of its dry run.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Collected {
    #[serde(flatten)]
    pub swept: Swept,
    pub dropped: Vec<DroppedMonth>,
    pub freed_bytes: u64,
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

    pub fn of(swept: Swept, dropped: Vec<DroppedMonth>) -> Collected {
        let freed_bytes = swept.bytes + dropped.iter().map(|month| month.bytes).sum::<u64>();
        Collected { swept, dropped, freed_bytes }
    }

    fn new(swept: Swept, dropping: &[MonthToDelete]) -> Collected {
        let dropped = |month: &MonthToDelete| DroppedMonth { month: month.month.clone(), bytes: month.bytes };
        Collected::of(swept, dropping.iter().map(dropped).collect())
    }
}

/// Months to delete, read without the lock because that may take long.
#[derive(Debug)]
pub struct Collection {
    retention: Retention,
    now: Time,
    dropping: Vec<MonthToDelete>,
}

impl DirAgent<'_> {
    /// Returns what `gc` would delete. Writes nothing.
    pub fn would_collect(&self, retention: Retention, now: Time) -> Result<Collected> {
        self.look(|seen, state| {
            let dropping = self.to_drop(&seen, retention.archive, now)?;
            let how = Sweeping { retention, now, removes: false, is_leased: false };
            Ok(Collected::new(self.sweep_all(&seen.view, &state, how)?, &dropping))
        })
    }

    /// Reads the months to delete. The caller should not hold the lock.
    pub fn collection(&self, retention: Retention, now: Time) -> Result<Collection> {
        let dropping = self.look(|seen, _| self.to_drop(&seen, retention.archive, now))?;
        Ok(Collection { retention, now, dropping })
    }
}

impl DirTxn<'_> {
    /// Deletes the directories and notes which messages ended in the months. The months' files are
    /// deleted after the next commit, which tells their readers to start over. `is_leased`: the
    /// caller holds the agent's lease.
    pub fn collect(&self, collection: &mut Collection, state: &State, is_leased: bool) -> Result<Collected> {
        // A transaction in the journal would restore the files that it names.
        self.empty_journal()?;
        let mut dropping = Vec::new();
        for month in std::mem::take(&mut collection.dropping) {
            if self.note_ended(&month, state)? {
                dropping.push(month);
            }
        }
        let how = Sweeping { retention: collection.retention, now: collection.now, removes: true, is_leased };
        let swept = self.agent.sweep_all(&self.view(), state, how)?;
        let collected = Collected::new(swept, &dropping);
        collection.dropping = dropping;
        Ok(collected)
    }

    /// Deletes the files of the months. The caller has committed since [`DirTxn::collect`] unless
    /// nothing was collected.
    pub fn remove_collected(&self, collection: &Collection) -> Result<()> {
        self.empty_journal()?;
        collection.dropping.iter().try_for_each(|month| self.remove_month(month))
    }
}
