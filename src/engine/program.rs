//! Check of an agent's turn command before a turn needs it.

use std::ffi::OsString;

use crate::model::policy::{CommandSpec, Policy};
use crate::process::program;
use crate::store::{Agent, Store};

use super::environment::environment;

/// Returns the reason for which the turn command can't be started, with a hint. `None` if no error
/// is known, or no command is set, which is reported elsewhere.
pub fn fault(store: &Store, agent: &Agent<'_>, policy: &Policy) -> Option<String> {
    let argv: Vec<OsString> = match policy.turn.command.as_ref()? {
        CommandSpec::Argv(argv) => argv.iter().map(OsString::from).collect(),
        // Only a shell can tell which words of a line are commands, but a path at its beginning is
        // one.
        CommandSpec::Line(line) => {
            let first = line.split_whitespace().next().filter(|word| is_path(word))?;
            vec![OsString::from(first)]
        }
    };
    let env = environment(store, agent, policy, None);
    let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_os_str());
    program::fault(&argv, &store.anchor().leads_to(&policy.turn.workdir), path)
}

/// True if a shell takes the word literally as the path of a program.
fn is_path(word: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+".contains(c);
    word.contains('/') && word.chars().all(is_plain)
}
