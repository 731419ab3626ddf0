//! Command `edit`: opens the settings of an agent in an editor.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::Path;

use serde_json::json;

use crate::cli;
use crate::engine::authority;
use crate::engine::context::Context;
use crate::engine::new_file::NewFile;
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::id::AgentName;
use crate::process::foreground;
use crate::process::turn::NoMonitor;
use crate::store::Store;

use super::args::{answer, ask_user, note_settings_fault, settings};

pub fn edit(session: &mut Session, args: cli::EditArgs) -> Result<Status> {
    let store = session.store()?;
    let name = args.agent;
    let agent = store.agent(&name)?;
    authority::reach_records(Context::new(session, &agent), "edit")?;
    let editor = editor()?;
    let before = agent.policy_text()?;
    let mut copy = copy_of(&name, &before)?;
    let path = copy.path().to_owned();
    let put = edited(session, &store, &editor, &path, &before).and_then(|text| {
        let Some(text) = text else { return Ok(false) };
        if agent.replace_policy(&before, &text, session.clock.now())? {
            return Ok(true);
        }
        Err(Error::refused("changed_meanwhile", format!("{name}: its settings have changed meanwhile")))
    });
    match put {
        Ok(is_changed) => {
            note_settings_fault(session, &agent)?;
            let object = json!({ "agent": name, "changed": is_changed });
            answer(session, &object, |_| match is_changed {
                true => format!("{name}  settings changed"),
                false => format!("{name}  nothing was changed"),
            })
        }
        // Keeps the edited copy on failure, so that the user does not lose changes.
        Err(error) if copy.has_become_other_than(before.as_bytes()) => {
            copy.keep();
            let kept = format!("what you have written is in {}", path.display());
            // The hint of the error is followed by the path of the copy.
            let hint = error.hint().map_or(kept.clone(), |hint| format!("{hint}; {kept}"));
            let error = error.with_hint(hint);
            if error.hint().is_none_or(|hint| !hint.ends_with(&kept)) {
                session.out.alarm(&kept);
            }
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// Returns the editor as a shell command line, which may contain options.
fn editor() -> Result<OsString> {
    let named = ["VISUAL", "EDITOR"].into_iter().filter_map(env::var_os).find(|word| !word.is_empty());
    match named {
        Some(editor) => Ok(editor),
        None if io::stdin().is_terminal() && io::stdout().is_terminal() => Ok("vi".into()),
        None => Err(Error::usage("no editor: this is no terminal")
            .with_hint("set VISUAL or EDITOR, or change agent.toml itself")),
    }
}

/// Creates a copy with a file extension by which editors recognize TOML.
fn copy_of(name: &AgentName, text: &str) -> Result<NewFile> {
    let process = std::process::id();
    // A killed `edit` may have left a copy with the same process id in its name.
    for number in 0..MOST_LEFT {
        let number = if number == 0 { String::new() } else { format!("-{number}") };
        let path = env::temp_dir().join(format!("dormouse-{name}-{process}{number}.toml"));
        if let Some(copy) = NewFile::write(&path, 0o600, text.as_bytes())? {
            return Ok(copy);
        }
    }
    let dir = env::temp_dir();
    Err(Error::failed(format!("{}: this directory has too many copies of edits", dir.display()))
        .with_hint(format!("remove dormouse-{name}-*.toml there")))
}

/// Maximum number of temporary copies of one agent and process id. A larger number must have
/// another cause than killed `edit` commands.
const MOST_LEFT: u32 = 100;

/// Returns the edited and validated settings; `None` if they are unchanged.
fn edited(
    session: &Session,
    store: &Store,
    editor: &OsString,
    path: &Path,
    before: &str,
) -> Result<Option<String>> {
    loop {
        let mut line = editor.clone();
        line.push(" \"$@\"");
        let argv = ["sh".into(), "-c".into(), line, "sh".into(), path.into()];
        let ran = foreground::run(&argv, &mut NoMonitor, &foreground::EndOptions::default())?;
        if let Some(trouble) = ran.trouble {
            return Err(Error::failed(trouble));
        }
        if ran.status != 0 {
            let message = format!("the editor ended with exit status {}: nothing was changed", ran.status);
            return Err(Error::failed(message).with_hint("set VISUAL or EDITOR to the editor that you use"));
        }
        let text = settings("agent.toml", path)?;
        if text == before {
            return Ok(None);
        }
        if text.trim().is_empty() {
            return Err(Error::failed("the editor has left an empty file: nothing was changed"));
        }
        match store.local().policy_from(&path.to_string_lossy(), &text) {
            Ok(_) => return Ok(Some(text)),
            Err(error) if !wants_retry(session, &error)? => return Err(error),
            Err(_) => {}
        }
    }
}

/// Shows the error and asks if the user wants to edit again.
fn wants_retry(session: &Session, error: &Error) -> Result<bool> {
    let answer = ask_user(session, &format!("{error}. Edit again? [Y/n]"))?;
    Ok(answer.is_some_and(|answer| !answer.is_empty() && !answer.trim_start().starts_with(['n', 'N'])))
}
