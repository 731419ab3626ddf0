//! Files that belong to this machine, whichever store has the records.
//!
//! `anchor` finds the state directory, `workdir` has the directories of runs and tasks. `layout`
//! has all names and paths, `files` durable writes, `lock` file locks.

pub mod anchor;
pub mod authors;
pub mod config;
pub mod files;
pub mod layout;
pub mod lock;
pub mod machine;
pub mod owner;
pub mod travel;
pub mod workdir;

pub use lock::{LockGuard, Sharing};
