//! Leases, as a store answers that keeps the records elsewhere: who works on a run or a task, and
//! for how long without a word.

use std::fmt::Debug;
use std::time::Duration;

use crate::error::Result;
use crate::model::id::{AgentName, RunId};
use crate::model::time::Span;

use super::super::dir::Subject;

/// A lease in whose name a command speaks that a turn or a task has called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub agent: AgentName,
    pub subject: Subject,
    pub fence: u64,
    /// The run, if the lease is of one.
    pub run: Option<RunId>,
}

/// Process that asks for a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimant {
    /// The machine, for people.
    pub host: String,
    /// The state directory of the machine: a process with the same one, which has the local lock of
    /// the run or task, knows that whoever had the lease before is dead.
    pub anchor: String,
    pub pid: u32,
    /// Duration of the lease without a beat.
    pub lasts: Span,
}

/// The right to work on a run or a task for as long as it is kept alive.
pub trait Lease: Debug {
    /// Fencing token: grows with each takeover.
    fn fence(&self) -> u64;

    /// Keeps the lease alive.
    fn beat(&self) -> Beat;

    /// Has the next change under the agent's lock give the lease back, where the store can do both
    /// at once. Whoever calls this releases the lease all the same: the change may not take place.
    fn release_along(&self) {}

    /// Gives the lease back, so that the next one need not wait.
    fn release(self: Box<Self>) -> Result<()>;
}

/// Result of a beat.
#[cfg_attr(
    not(any(test, feature = "postgres")),
    expect(dead_code, reason = "no store that gives leases is built in")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// The lease continues. `revision`: the agent's.
    Held { revision: u64 },
    /// Somebody else has it. Nothing that is settled now counts.
    Lost,
    /// The store can't be reached. The work must have ended after `left`.
    Unreachable { left: Duration },
}
