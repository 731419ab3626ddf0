//! Storage of agents, as steps and commands use it. The interface shows agents, ids, records and
//! times, and no paths except in [`git`].
//!
//! - [`Store`]: the agents, and the shared locks of turns (workspaces and slots).
//! - [`Agent`]: the records of one agent. [`Agent::peek`] reads the state, [`Agent::read`] reads
//!   one consistent revision, [`Agent::add_message`] adds to the inbox, [`Agent::change`] takes the
//!   lock, [`Agent::lease`] takes the lease of a run or task.
//! - [`Snapshot`]: one revision, and the queries on it.
//! - [`AgentTxn`]: the only way to change records. [`AgentTxn::commit`] applies all or nothing.
//! - [`HeldLease`]: the right of this process to work on a run or a task.
//! - [`Checkup`]: checks the files of one agent for `doctor`; each problem is a [`Finding`].
//!   [`Collected`]: result of `gc`.
//! - [`DirExport`] and [`AgentImport`]: an agent in transit to another store, as a [`stream`].
//! - [`RecordWatch`]: waits for a change of some agents; `News` reports which of all agents have
//!   changed.
//!
//! These types are in `seam`. They use the traits of `backend`, which the state directory (`dir`,
//! which no code outside of `store` names), a database and, for tests, `memory` implement.

pub mod backend;
mod dir;
#[cfg(test)]
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
mod seam;
mod settings;
pub mod stream;
#[cfg(test)]
pub mod tests;

/// Versions of a state directory in git trees: merging two versions, and applying the changes of
/// another clone.
pub mod git {
    pub use super::dir::apply_remote::{RemoteFile, ScratchStore, alone_in_clone};
    pub use super::dir::merge::{InWorkTree, MERGED, Merged, merge};
    pub use super::dir::merge_trees::{
        CONFIG, MergeContext, MergedFile, agent_of, correct_base, dir_of, merge_trees, refuse_foreign,
        state_of,
    };
    pub use super::dir::record::{decode, encode};
}

pub use backend::{DatabaseRole, DueAgents, due_now};
pub use dir::{
    Appeared, Checkup, DirExport, DirStore, Dropped, Finding, FindingSubject, HandWritten, NewAgent, News,
    QuarantineOutcome, ReadableRecords, Rejected, Remedy, Swept, TakenFile, Told, Waiting,
};
pub use seam::{
    Agent, AgentImport, AgentTxn, AsFiles, Collected, HeldLease, RecordWatch, Slot, Snapshot, Store, grant,
    is_url, moved_away, shown_url,
};
