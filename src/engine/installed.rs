//! Installed hooks: executable files in `hooks/` of the agent or of the state directory.

use std::path::PathBuf;

use serde::Serialize;

use crate::model::execution::ExecutionState;
use crate::model::records::InstalledHooks;
use crate::model::state::State;
use crate::process::{HOOK, hook};
use crate::store::Agent;

pub const ON_STARTUP: &str = "on-startup";
pub const ON_SCHEDULED: &str = "on-scheduled";
pub const ON_PREEMPT_REQUEST: &str = "on-preempt-request";
pub const ON_SUSPEND: &str = "on-suspend";
pub const ON_RESUME: &str = "on-resume";
pub const ON_SHUTDOWN: &str = "on-shutdown";
pub const ON_RECOVERY_START: &str = "on-recovery-start";
pub const ON_RECOVERY_COMPLETE: &str = "on-recovery-complete";
pub const ON_STATE_CHANGE: &str = "on-state-change";
pub const ON_ATTENTION: &str = "on-attention";

/// Names of all hooks, in the order in which an agent meets their events.
const NAMES: [&str; 10] = [
    ON_STARTUP,
    ON_SCHEDULED,
    ON_PREEMPT_REQUEST,
    ON_SUSPEND,
    ON_RESUME,
    ON_SHUTDOWN,
    ON_RECOVERY_START,
    ON_RECOVERY_COMPLETE,
    ON_STATE_CHANGE,
    ON_ATTENTION,
];

/// Returns the files that have the name of a hook but are not executable, so that they never run.
pub fn no_programs(agent: &Agent<'_>) -> Vec<PathBuf> {
    let places =
        agent.workdir().hooks().into_iter().flat_map(|(_, place)| NAMES.map(|name| place.join(name)));
    places.filter(|path| path.is_file() && !hook::is_there(path)).collect()
}

/// Returns which of the hooks that run between claim and start of a turn are installed.
pub fn hooks(agent: &Agent<'_>, state: &State) -> InstalledHooks {
    let is_there = |name| !is_nested() && program(agent, name).is_some();
    let goes_on = state.execution.state == ExecutionState::Suspended
        || state.held.as_ref().is_some_and(|held| held.entered == Some(ExecutionState::Resumed));
    InstalledHooks {
        on_scheduled: !goes_on && is_there(ON_SCHEDULED),
        on_resume: goes_on && is_there(ON_RESUME),
        on_state_change: is_there(ON_STATE_CHANGE),
    }
}

/// True if this command was called from a hook, so that it must not run hooks.
pub fn is_nested() -> bool {
    std::env::var_os(HOOK).is_some_and(|outer| !outer.is_empty())
}

/// Returns the path of a hook that is installed for an agent; its own hook takes precedence.
pub fn program(agent: &Agent<'_>, name: &str) -> Option<PathBuf> {
    agent.workdir().hooks().map(|(_, place)| place.join(name)).into_iter().find(|path| hook::is_there(path))
}

/// Hook file found for an agent. If it never runs, `in_effect` is false and `why_not` says why.
#[derive(Debug, Serialize)]
pub struct Installed {
    pub hook: &'static str,
    /// `agent`, or `shared` for a hook of the state directory.
    pub place: &'static str,
    pub path: PathBuf,
    pub in_effect: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<&'static str>,
}

/// Returns the hook files of an agent, in the order of `NAMES`.
pub fn installed(agent: &Agent<'_>) -> Vec<Installed> {
    let mut found = Vec::new();
    for hook in NAMES {
        let program = program(agent, hook);
        for (place, dir) in agent.workdir().hooks() {
            let path = dir.join(hook);
            let why_not = match &program {
                Some(program) if *program == path => None,
                _ if path.symlink_metadata().is_err() => continue,
                _ if !hook::is_there(&path) => Some("not an executable file"),
                _ => Some("the agent's own runs instead"),
            };
            found.push(Installed { hook, place, path, in_effect: why_not.is_none(), why_not });
        }
    }
    found
}
