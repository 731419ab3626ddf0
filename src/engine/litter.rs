//! What is of no use any more: what killed commands have left, and what a settled run has in its directory.

use crate::model::retention::Retention;
use crate::model::run::Run;
use crate::model::time::Time;
use crate::process::hook;
use crate::store::{Agent, Change};

/// Removes it, as far as that can be done, and a part of what the retention keeps no longer. What can't be removed
/// is in the way of nobody. Only for a step that holds the agent's lease.
pub fn sweep(agent: &Agent<'_>, locked: Change<'_>, retention: Retention, now: Time) {
    let has_hooks = locked.sweep().unwrap_or(false);
    let _ = locked.sweep_some(retention, now);
    drop(locked);
    if has_hooks {
        // Without the lock: to end what is left of their processes may take seconds.
        let _ = hook::end_abandoned(&agent.workdir().tmp());
    }
}

/// A run that has said more than this part of what all may have has the next step that comes to rest look at all.
const MUCH: u64 = 100;

/// Clears the directory of a run that was just settled, as far as that can be done: what is left is in the way of
/// nobody, and a step that comes to rest tries again. To be called when hooks were told of it.
pub fn clear(agent: &Agent<'_>, run: &Run, retention: Retention) {
    let _ = agent.workdir().run(run.id).clear(run, retention.keeps_context(run.terminal));
    let said = run.stdout_bytes.unwrap_or(0).saturating_add(run.stderr_bytes.unwrap_or(0));
    if said > retention.output.0 / MUCH {
        let _ = agent.sweep_soon();
    }
}
