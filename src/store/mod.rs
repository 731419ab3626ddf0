//! The seam: what steps and commands ask of a store. It names agents, ids, records and times, and never a file.
//!
//! - [`Store`]: which agents there are, and the seats that turns share (workspaces and slots).
//! - [`Agent`]: one agent's records. [`Agent::peek`] glances, [`Agent::look`] reads one consistent revision,
//!   [`Agent::arrive`] admits, [`Agent::change`] takes the lock, [`Agent::lease`] says who lives.
//! - [`Snapshot`]: one revision, and what can be asked of it.
//! - [`Change`]: the only way to change records. [`Change::commit`] does it whole or not at all.
//! - [`Leaving`] and [`Arriving`]: an agent on its way to another store, as a [`stream`].
//! - [`Watch`]: waits for a change of some agents; `News` tells which of all agents have changed.
//!
//! Behind it stands the state directory (`dir`). Only its upkeep (`doctor`, `gc`, git) names what it is made of. Test
//! builds have a second store, which keeps records in memory (`memory`).

pub mod dir;
#[cfg(test)]
mod memory;
pub mod stream;

#[cfg(not(test))]
pub use crate::beneath::Version;
#[cfg(not(test))]
pub use dir::{Agent, Arriving, Change, Snapshot, Store};
pub use dir::{
    Appeared, Aside, Dropped, Guard, Leaving, NewAgent, Occupant, Opener, Place, Reads, Rejected, Said,
    Sharing, Subject, Taken, Touched, Waiting, Watch, moved_away,
};
#[cfg(target_os = "linux")]
pub use dir::{News, Told};
#[cfg(test)]
pub use memory::{Agent, Arriving, Change, Snapshot, Store, Version};
