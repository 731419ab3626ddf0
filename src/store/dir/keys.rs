//! The place of the cache of dedupe keys. It is there as a whole or not at all: a part of it would
//! pass for all of it.

use std::path::Path;

use crate::beneath::Spot;
use crate::error::Result;
use crate::model::time::{Span, Time};

use super::layout::{self, AgentDir};

/// Time within which a dedupe key stands for a message.
#[derive(Debug, Clone, Copy)]
pub struct KeyWindow {
    pub now: Time,
    pub length: Span,
    /// The revision of the agent. Entries of a later one are left from before a restore.
    pub revision: u64,
}

/// True if something lies at the place of the cache that can be read as one.
pub fn is_there(dir: &Spot) -> Result<bool> {
    dir.is_dir().or_else(|error| if error.is_of_file() { Ok(false) } else { Err(error) })
}

/// True if the agent has the cache.
pub fn has_cache(agent: &AgentDir) -> Result<bool> {
    is_there(&agent.join(layout::DEDUPE))
}

/// The place of the cache as a whole, which may be lost. Of what lies in it nothing may be lost
/// alone.
pub fn whole(agent: &AgentDir) -> Spot {
    let name = Path::new(layout::DEDUPE).file_name().unwrap_or_default();
    agent.join(layout::CACHE).join(name)
}

/// Removes the cache of an agent. The next command that needs it makes it again.
pub fn forget(agent: &AgentDir) -> Result<()> {
    whole(agent).remove_tree()
}
