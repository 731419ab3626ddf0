//! Files of a state directory on this machine, which exist even if the records are in a database.
//!
//! - [`StateDir`]: the state directory: settings, workspaces, limit of turns. [`anchor`] finds it.
//! - [`LocalAgent`]: the directory of an agent: locks, hooks, quarantined files. `workdir`: the
//!   directory of a run or a task.
//! - `layout` has all names and paths, `files` durable writes, `lock` file locks.

mod agent;
pub mod anchor;
pub mod authors;
pub mod config;
pub mod files;
pub mod git;
mod hooks;
mod init;
pub mod layout;
mod lease;
pub mod lock;
pub mod machine;
mod occupancy;
mod owner;
pub mod prepared;
pub mod sharing;
pub mod stale_files;
mod state_dir;
pub mod travel;
pub mod workdir;

pub use agent::LocalAgent;
pub use hooks::HookFile;
pub use lease::{LeaseClaimant, Subject};
pub use lock::{LockGuard, Sharing};
pub use occupancy::Occupant;
pub use state_dir::{Opener, StateDir};
