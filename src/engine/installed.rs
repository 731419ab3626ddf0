//! Installed hooks: executable files in `hooks/` of the agent or of the state directory.

use std::path::PathBuf;

use serde::Serialize;

use crate::model::execution::ExecutionState;
use crate::model::names;
use crate::model::records::InstalledHooks;
use crate::model::state::State;
use crate::process::{HOOK, hook};
use crate::store::Agent;

names! {
    /// Hooks, in the order in which an agent meets their events.
    "hook" HookName {
        OnStartup = "on-startup",
        OnScheduled = "on-scheduled",
        OnPreemptRequest = "on-preempt-request",
        OnSuspend = "on-suspend",
        OnResume = "on-resume",
        OnShutdown = "on-shutdown",
        OnRecoveryStart = "on-recovery-start",
        OnRecoveryComplete = "on-recovery-complete",
        OnStateChange = "on-state-change",
        OnAttention = "on-attention",
    }
}

/// Returns the files that have the name of a hook but are not executable, so that they never run.
pub fn no_programs(agent: &Agent<'_>) -> Vec<PathBuf> {
    let places = agent.workdir().hooks().into_iter();
    let paths = places.flat_map(|(_, place)| HookName::ALL.iter().map(move |hook| place.join(hook.name())));
    paths.filter(|path| path.is_file() && !hook::is_executable(path)).collect()
}

/// Returns which of the hooks that run between claim and start of a turn are installed.
pub fn hooks(agent: &Agent<'_>, state: &State) -> InstalledHooks {
    let is_there = |name| !is_nested() && program(agent, name).is_some();
    let goes_on = state.execution.state == ExecutionState::Suspended
        || state.held.as_ref().is_some_and(|held| held.entered == Some(ExecutionState::Resumed));
    InstalledHooks {
        on_scheduled: !goes_on && is_there(HookName::OnScheduled),
        on_resume: goes_on && is_there(HookName::OnResume),
        on_state_change: is_there(HookName::OnStateChange),
    }
}

/// True if this command was called from a hook, so that it must not run hooks.
pub fn is_nested() -> bool {
    std::env::var_os(HOOK).is_some_and(|outer| !outer.is_empty())
}

/// Returns the path of an agent's hook: its own file, else that of the state directory.
pub fn program(agent: &Agent<'_>, hook: HookName) -> Option<PathBuf> {
    let paths = agent.workdir().hooks().map(|(_, place)| place.join(hook.name()));
    paths.into_iter().find(|path| hook::is_executable(path))
}

/// Hook file found for an agent. If it never runs, `in_effect` is false and `why_not` says why.
#[derive(Debug, Serialize)]
pub struct Installed {
    pub hook: HookName,
    /// `agent`, or `shared` for a hook of the state directory.
    pub place: &'static str,
    pub path: PathBuf,
    pub in_effect: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<&'static str>,
}

/// Returns the hook files of an agent, in the order of [`HookName`].
pub fn installed(agent: &Agent<'_>) -> Vec<Installed> {
    let mut found = Vec::new();
    for &hook in HookName::ALL {
        let program = program(agent, hook);
        for (place, dir) in agent.workdir().hooks() {
            let path = dir.join(hook.name());
            let why_not = match &program {
                Some(program) if *program == path => None,
                _ if path.symlink_metadata().is_err() => continue,
                _ if !hook::is_executable(&path) => Some("not an executable file"),
                _ => Some("the agent's own runs instead"),
            };
            found.push(Installed { hook, place, path, in_effect: why_not.is_none(), why_not });
        }
    }
    found
}
