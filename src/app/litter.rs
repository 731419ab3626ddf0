//! What killed commands have left: a step that comes to rest takes it away.

use crate::process::hook;
use crate::store::{Agent, Locked};

/// Removes it, as far as that can be done. What can't be removed is in the way of nobody.
pub fn sweep(agent: &Agent<'_>, locked: Locked<'_>) {
    let has_hooks = locked.sweep().unwrap_or(false);
    drop(locked);
    if has_hooks {
        // Without the lock: to end what is left of their processes may take seconds.
        let _ = hook::end_abandoned(&agent.tmp());
    }
}
