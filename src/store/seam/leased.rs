//! The lease of a run or a task: a lock of this machine, and where the records are elsewhere a lease of that store as well.

use std::cell::Cell;
use std::ops::Deref;

use std::fs::File;

use crate::error::Result;

use super::super::dir::Guard;
use super::super::elsewhere::{Beat, Lease};

/// A lease that this process has. Dropping it gives it back.
#[derive(Debug)]
pub struct Leased {
    guard: Guard,
    lease: Option<Box<dyn Lease>>,
    /// Whether another process of this machine holds it as well by now, and takes it over by its name.
    is_shared: Cell<bool>,
}

impl Leased {
    pub(super) fn new(guard: Guard, lease: Option<Box<dyn Lease>>) -> Leased {
        Leased { guard, lease, is_shared: Cell::new(false) }
    }

    /// A number that grows with every lease of the agent. `None`: the lock of this machine is all that there is.
    pub fn fence(&self) -> Option<u64> {
        self.lease.as_ref().map(|lease| lease.fence())
    }

    /// Keeps the lease alive. `None`: nothing is needed for that.
    pub fn beat(&self) -> Option<Beat> {
        self.lease.as_ref().map(|lease| lease.beat())
    }

    /// The lock of this machine once more, for a process that is to hold the lease after this one. This one then does not
    /// give it back.
    pub fn share(&self) -> Result<File> {
        let shared = self.guard.share()?;
        self.is_shared.set(true);
        Ok(shared)
    }
}

impl Deref for Leased {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        // The lock of this machine goes after this, so that whoever gets it finds the lease free. A lease that could not
        // be given back ends by itself.
        if let Some(lease) = self.lease.take()
            && !self.is_shared.get()
        {
            let _ = lease.release();
        }
    }
}
