//! Path of the cache of dedupe keys. The cache is complete or missing, never partial, because
//! readers take it for complete.

use std::path::Path;

use crate::cap_fs::CapPath;
use crate::error::Result;
use crate::local::layout::{self, AgentDir};
use crate::model::time::{Span, Time};

/// Time window in which a dedupe key identifies a message.
#[derive(Debug, Clone, Copy)]
pub struct KeyWindow {
    pub now: Time,
    pub length: Span,
    /// Current revision. A cache entry of a later revision predates a restore of the records.
    pub revision: u64,
}

/// True if the agent has a cache of dedupe keys. False for a file of another kind at its path.
pub fn has_cache(agent: &AgentDir) -> Result<bool> {
    let found = agent.join(layout::DEDUPE).is_dir();
    found.or_else(|error| if error.is_of_file() { Ok(false) } else { Err(error) })
}

/// Path of the cache of dedupe keys, which may be lost as a whole but not in part.
pub fn whole(agent: &AgentDir) -> CapPath {
    let name = Path::new(layout::DEDUPE).file_name().unwrap_or_default();
    agent.join(layout::CACHE).join(name)
}

/// Removes an agent's cache of dedupe keys. The next command that needs the cache rebuilds it.
pub fn forget(agent: &AgentDir) -> Result<()> {
    whole(agent).remove_tree()
}
