//! The locks of one agent that last longer than a transaction.

use crate::error::Result;
use crate::model::time::Time;

use super::lock::{self, Held, Sharing};
use super::{Agent, layout};

impl Agent<'_> {
    /// The lease of a run: free, and then held by the caller, or `None`.
    pub fn lease(&self, now: Time) -> Result<Option<Held>> {
        lock::try_acquire(&self.dir.join(layout::RUN_LOCK), Some(&self.store.holder(now)))
    }

    /// Held, together with others, by each process that has transitions to tell of; alone by one that tells
    /// what others have left. `None`: it is not to be had.
    pub fn telling(&self, sharing: Sharing) -> Result<Option<Held>> {
        let path = self.dir.join(layout::TELLING);
        path.parent().make_dirs()?;
        lock::occupy(&path, sharing)
    }

    /// Whether somebody holds the lease, without taking it.
    pub fn is_leased(&self) -> Result<bool> {
        lock::is_held(&self.dir.join(layout::RUN_LOCK))
    }
}
