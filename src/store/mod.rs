//! The seam: what steps and commands ask of a store. It names agents, ids, records and times, and
//! never a file.
//!
//! - [`Store`]: which agents there are, and the seats that turns share (workspaces and slots).
//! - [`Agent`]: one agent's records. [`Agent::peek`] glances, [`Agent::look`] reads one consistent
//!   revision, [`Agent::arrive`] admits, [`Agent::change`] takes the lock, [`Agent::lease`] says
//!   who lives.
//! - [`Snapshot`]: one revision, and what can be asked of it.
//! - [`AgentTxn`]: the only way to change records. [`Change::commit`] does it whole or not at all.
//! - [`HeldLease`]: the right to work on a run or a task, for as long as this process keeps it.
//! - [`Checkup`]: looks at the files of one agent for `doctor`, [`Finding`] by finding;
//!   [`Collected`]: what `gc` has done.
//! - [`DirExport`] and [`AgentImport`]: an agent on its way to another store, as a [`stream`].
//! - [`RecordWatch`]: waits for a change of some agents; `News` tells which of all agents have
//!   changed.
//!
//! Two rooms beside it are about files: [`anchor`], where the state directory lies on this machine,
//! and [`git`].
//!
//! These types are in `seam`. Behind them stands the state directory (`dir`), which nothing outside
//! names, or a store that keeps the records elsewhere and answers the traits of `elsewhere`. The
//! first of these is for tests: it keeps records in memory (`memory`).

pub mod anchor;
mod dir;
pub mod elsewhere;
#[cfg(test)]
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
mod seam;
mod settings;
pub mod stream;
#[cfg(test)]
pub mod tests;

/// Versions of a state directory in git trees: how two of them merge, and how those of another
/// clone come in.
pub mod git {
    pub use super::dir::bringing::{RemoteFile, ScratchStore, alone_in_clone};
    pub use super::dir::converge::{
        Around, MergedFile, agent_of, converge, dir_of, is_settings, read_state, refuse_foreign, state_of,
        write_state,
    };
    pub use super::dir::merge::{InWorkTree, MERGED, Merged, merge};
}

pub use dir::{
    Appeared, Aside, Checkup, DirExport, Dropped, Finding, FindingSubject, HandWritten, HookFile, LockGuard,
    NewAgent, Occupant, Opener, ReadableRecords, Reads, Rejected, Remedy, Sharing, Subject, Swept, TakenFile,
    Touched, Waiting,
};
pub use dir::{News, Told};
pub use elsewhere::{DatabaseRole, DueAgents, at_once};
pub use seam::{
    Agent, AgentImport, AgentTxn, AsFiles, Collected, HeldLease, RecordWatch, Slot, Snapshot, Store,
    StoreVersion, is_url, moved_away,
};
