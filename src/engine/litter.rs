//! Removes what is no longer needed: what killed commands have left, and files in the directory of
//! a settled run.

use crate::model::retention::Retention;
use crate::model::run::Run;
use crate::model::time::Time;
use crate::process::hook;
use crate::store::{Agent, Change};

/// Removes what killed commands have left, as far as that is possible, and a part of what the
/// retention keeps no longer. What can't be removed does no harm. Only for a step that holds the
/// agent's lease.
pub fn sweep(agent: &Agent<'_>, locked: Change<'_>, retention: Retention, now: Time) {
    let has_hooks = locked.local().sweep().unwrap_or(false);
    let _ = locked.sweep_some(retention, now);
    drop(locked);
    if has_hooks {
        // This is done without the lock, because ending what is left of their processes may take
        // seconds.
        let _ = hook::end_abandoned(&agent.workdir().tmp());
    }
}

/// If a run has written more than this fraction of what all runs may have, the next step that comes
/// to rest looks at all of them.
const MUCH: u64 = 100;

/// Clears the directory of a run that was just settled, as far as that is possible. What is left
/// does no harm, and a step that comes to rest tries again. To be called when the hooks have been
/// told of the settlement.
pub fn clear(agent: &Agent<'_>, run: &Run, retention: Retention) {
    let _ = agent.workdir().run(run.id).clear(run, retention.keeps_context(run.terminal));
    let said = run.stdout_bytes.unwrap_or(0).saturating_add(run.stderr_bytes.unwrap_or(0));
    if said > retention.output.0 / MUCH {
        let _ = agent.local().sweep_soon();
    }
}
