//! Leases of runs and tasks in a store with several machines.

use std::fmt::Debug;
use std::time::Duration;

use crate::error::Result;
use crate::model::id::{AgentName, RunId, TaskId};
use crate::model::time::Span;

/// Subject of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The agent's run, of which there is one at a time.
    Run,
    /// A task: its supervisor, or the process that gives it to a child.
    Task(TaskId),
}

/// The lease under which a command acts that a turn or a task has called.
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
pub struct LeaseClaimant {
    /// The machine, for people.
    pub host: String,
    /// The state directory of the machine. A process with the same one, which has the local lock of
    /// the run or task, knows that the former owner of the lease is dead.
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

    /// Releases the lease with the next change under the agent's lock, if the store can do both at
    /// once. The caller must release it as well: that change may not take place.
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
    /// Another process has it. A result of this one no longer counts.
    Lost,
    /// The store can't be reached. The work must have ended after `left`.
    Unreachable { left: Duration },
}
