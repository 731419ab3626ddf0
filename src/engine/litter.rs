//! Removal of stale files: those of killed commands, and those in the directory of a settled run.

use crate::model::retention::Retention;
use crate::model::run::Run;
use crate::model::time::Time;
use crate::process::hook;
use crate::store::{Agent, AgentTxn};

/// Removes stale files of killed commands, and a part of the expired history, as far as possible.
/// Errors are ignored, because stale files do no harm. Only for a step that holds the agent's
/// lease.
pub fn sweep(agent: &Agent<'_>, locked: AgentTxn<'_>, retention: Retention, now: Time) {
    let has_hooks = locked.local().sweep().unwrap_or(false);
    let _ = locked.sweep_some(retention, now);
    drop(locked);
    if has_hooks {
        // Runs without the lock, because ending leftover processes may take seconds.
        let _ = hook::end_abandoned(&agent.workdir().tmp());
    }
}

/// If a run has written more than this fraction of the limit for all runs, the next step that comes
/// to rest checks all run directories.
const MUCH: u64 = 100;

/// Clears the directory of a settled run, as far as possible. A step that comes to rest retries.
/// Must be called after the hooks were notified of the settlement.
pub fn clear(agent: &Agent<'_>, run: &Run, retention: Retention) {
    let _ = agent.workdir().run(run.id).clear(run, retention.keeps_context(run.terminal));
    let said = run.stdout_bytes.unwrap_or(0).saturating_add(run.stderr_bytes.unwrap_or(0));
    if said > retention.output.0 / MUCH {
        let _ = agent.local().sweep_soon();
    }
}
