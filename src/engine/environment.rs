//! Environment of an agent's commands: turns, hooks and tasks.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::error::Result;
use crate::local::machine;
use crate::model::policy::{CommandSpec, Policy};
use crate::model::state::CurrentRun;
use crate::model::turn::RunClaimant;
use crate::process::git::is_caller_var;
use crate::process::{self, host, program};
use crate::store::{Agent, Store};

/// Returns the host, boot, directory and pid of this process, as it claims a run or task.
pub fn claimant(store: &Store) -> Result<RunClaimant> {
    let (host, boot_id) = (machine::name(), host::boot_id());
    Ok(RunClaimant { host, boot_id, place: store.local().state_place()?, pid: std::process::id() })
}

/// Returns the path of the workspace, without symbolic links if the workspace exists.
pub fn workspace_path(store: &Store, policy: &Policy) -> PathBuf {
    let path = &policy.workspace.path;
    let anchor = store.anchor();
    anchor.workspace(path).map_or_else(|_| anchor.leads_to(path), |found| found.path)
}

/// Returns the environment of a command: inherited variables, the policy's variables, the agent's
/// name, variables about the run, if the command acts for a run, and the fencing token of its
/// lease.
pub fn environment(
    agent: &Agent<'_>,
    policy: &Policy,
    run: Option<&CurrentRun>,
    fence: Option<u64>,
) -> Vec<(OsString, OsString)> {
    let store = agent.store();
    let mut env = inherited(store, policy);
    let mut set = |name: &str, value: OsString| set(&mut env, name, value);
    set("DORMOUSE_DIR", store.anchor().path().into());
    set("DORMOUSE_AGENT", agent.name().as_str().into());
    if let Some(fence) = fence {
        set(process::FENCE, fence.to_string().into());
    }
    let Some(run) = run else { return env };
    set(process::RUN, run.run_id.to_string().into());
    set("DORMOUSE_ATTEMPT", run.attempt.to_string().into());
    set("DORMOUSE_MESSAGE", run.message_id.to_string().into());
    if let Some(item) = run.work_item_id {
        set("DORMOUSE_WORK_ITEM", item.to_string().into());
    }
    if let Some(checkpoint) = run.checkpoint {
        set("DORMOUSE_CHECKPOINT", agent.local().checkpoint(checkpoint).path().into());
    }
    env
}

/// Returns the inherited variables and those of the policy, which take precedence. Inherited
/// variables of dormouse are removed, and so are those by which a git hook names its repository,
/// unless the policy inherits or sets them. A tick does not pass on the password of its store
/// (FLEET, location).
fn inherited(store: &Store, policy: &Policy) -> Vec<(OsString, OsString)> {
    let is_secret = |name: &OsString| store.properties().secret_variables.iter().any(|secret| name == secret);
    let inherited = |name: &OsString| match &policy.turn.inherit_env {
        Some(names) => names.iter().any(|allowed| name == allowed.as_str()),
        None => !is_caller_var(name),
    };
    let own = |name: &OsString| name.to_str().is_some_and(|name| name.starts_with("DORMOUSE_"));
    let mut env: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| inherited(name) && !is_secret(name) && (!own(name) || name == "DORMOUSE_NOW"))
        .collect();
    for (name, value) in &policy.turn.env {
        set(&mut env, name, value.into());
    }
    // A PATH that the policy sets is not changed.
    if !policy.turn.env.contains_key("PATH")
        && let Some((_, path)) = env.iter_mut().find(|(name, _)| name == "PATH")
        && let Some(longer) = host::with_own_directory(path)
    {
        *path = longer;
    }
    env
}

/// Sets a variable, replacing an existing value.
pub fn set(env: &mut Vec<(OsString, OsString)>, name: &str, value: OsString) {
    env.retain(|(other, _)| other != name);
    env.push((name.into(), value));
}

/// Returns the reason why the turn command can't be started, with a hint. `None` if no fault is
/// known, or if no command is set, which another check reports.
pub fn fault(agent: &Agent<'_>, policy: &Policy) -> Option<String> {
    let argv: Vec<OsString> = match policy.turn.command.as_ref()? {
        CommandSpec::Argv(argv) => argv.iter().map(OsString::from).collect(),
        // Only a shell can find the commands of a line, but a path as first word can be checked.
        CommandSpec::Line(line) => {
            let first = line.split_whitespace().next().filter(|word| is_path(word))?;
            vec![OsString::from(first)]
        }
    };
    let env = environment(agent, policy, None, None);
    let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_os_str());
    program::fault(&argv, &agent.store().anchor().leads_to(&policy.turn.workdir), path)
}

/// True if a word has a slash and nothing that a shell would expand, so that it is a path.
fn is_path(word: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+".contains(c);
    word.contains('/') && word.chars().all(is_plain)
}
