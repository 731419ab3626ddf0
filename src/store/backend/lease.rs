//! Leases of runs and tasks in a store with several machines.

use std::fmt::Debug;
use std::time::Duration;

use crate::error::Result;
use crate::local::Subject;
use crate::model::id::{AgentName, RunId};

/// Lease of the turn or task that has started this process. Without it, changes are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub agent: AgentName,
    pub subject: Subject,
    pub fence: u64,
    /// Id of the run, if the lease is that of a run.
    pub run: Option<RunId>,
}

/// Lease of a run or a task, which has to be kept alive.
pub trait Lease: Debug {
    /// Returns the fencing token, which grows with each takeover. `None` if no other machine can
    /// take over.
    fn fence(&self) -> Option<u64>;

    /// Renews the lease.
    fn beat(&self) -> Beat;

    /// Releases the lease with the next change under the agent's lock, if the store can combine
    /// them. The caller must call `release` too, because that change may not happen.
    fn release_along(&self) {}

    /// Releases the lease, so that the next claimant need not wait.
    fn release(&self) -> Result<()>;
}

/// Lease of records that only this machine uses: the local lock is enough.
#[derive(Debug)]
pub struct LocalLease;

impl Lease for LocalLease {
    fn fence(&self) -> Option<u64> {
        None
    }

    fn beat(&self) -> Beat {
        Beat::Held { revision: 0 }
    }

    fn release(&self) -> Result<()> {
        Ok(())
    }
}

/// Result of the renewal of a lease.
#[cfg_attr(
    not(any(test, feature = "postgres")),
    expect(dead_code, reason = "no store that gives leases is built in")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// The lease continues. `revision`: current revision of the agent.
    Held { revision: u64 },
    /// Another process has the lease. The result of this process no longer counts.
    Lost,
    /// The store can't be reached. The run or task must end within `left`.
    Unreachable { left: Duration },
}
