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

use super::args::{answer, note_settings_fault, settings};

pub fn edit(session: &Session, store: &Store, args: cli::EditArgs) -> Result<Status> {
    let name = args.agent;
    let agent = store.agent(&name)?;
    authority::reach_records(Context::new(session, &agent), "edit")?;
    let editor = editor()?;
    let before = agent.policy_text()?;
    let mut copy = copy_of(session, &name, &before)?;
    let path = copy.path().to_owned();
    let put = edited(store, &editor, &path, &before).and_then(|text| {
        let Some(text) = text else { return Ok(false) };
        if agent.replace_policy(&before, &text, session.clock.now())? {
            return Ok(true);
        }
        Err(Error::refused("changed_meanwhile", format!("{name}: its settings have changed meanwhile")))
    });
    match put {
        Ok(is_changed) => {
            note_settings_fault(Context::new(session, &agent))?;
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
fn copy_of(session: &Session, name: &AgentName, text: &str) -> Result<NewFile> {
    let id = session.clock.stamp()?.mint().simple();
    let path = env::temp_dir().join(format!("dormouse-{name}-{id}.toml"));
    let copy = NewFile::write(&path, 0o600, text.as_bytes())?;
    copy.ok_or_else(|| Error::failed(format!("{} exists already", path.display())))
}

/// Returns the edited and validated settings; `None` if they are unchanged.
fn edited(store: &Store, editor: &OsString, path: &Path, before: &str) -> Result<Option<String>> {
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
    store.local().policy_from(&path.to_string_lossy(), &text)?;
    Ok(Some(text))
}
