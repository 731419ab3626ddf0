//! Files of a renamed or replaced agent that an export leaves out: they are moved to its successor.

use std::path::Path;

use crate::cap_fs::CapPath;
use crate::error::{Error, Result};
use crate::model::id::AgentName;

use super::travel::{FileKind, place, walk};
use super::{DirAgent, files, layout};

/// Moves files that an export leaves out to the successor: signature keys, files of people, links
/// in directories of turns, and late inbox files of programs. Late messages and hints stay, because
/// the commands that sent them get an error. Can be repeated after a kill at any point.
pub fn transfer(from: &DirAgent<'_>, successor: &DirAgent<'_>) -> Result<()> {
    transfer_files(from.dir.cap(), successor.dir.cap())?;
    let (inbox, other) = (from.dir.join(layout::INBOX), successor.dir.join(layout::INBOX));
    for path in from.late()? {
        if let Some(name) = path.file_name().filter(|name| !name.to_str().is_some_and(layout::is_arrival)) {
            inbox.join(&path).rename_if_free(&files::free_place(&other, name)?)?;
        }
    }
    Ok(())
}

/// Moves files of turns, tasks, hooks and people from one agent's directory to another, unless the
/// other has a file of that name.
pub fn transfer_files(from: &CapPath, to: &CapPath) -> Result<()> {
    walk(from, Path::new(""), &mut |path, entry| match place(path) {
        FileKind::Local => Ok(false),
        FileKind::Records { .. } => Ok(true),
        FileKind::Evidence if entry.is_dir => Ok(true),
        FileKind::Evidence | FileKind::Unknown => {
            let other = to.join(path);
            if !other.exists()? {
                other.parent().make_dirs()?;
                from.join(path).rename_if_free(&other)?;
            }
            Ok(false)
        }
    })
}

/// Error for a name that another agent has.
pub(in crate::store) fn agent_exists(name: &AgentName) -> Error {
    Error::refused("agent_exists", format!("there is an agent `{name}` already"))
        .with_hint(format!("see it with `dormouse get {name}`, or change it with `dormouse edit {name}`"))
}
