//! An agent that is removed: it vanishes by one rename, and its files go after that.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::beneath::{Number, Spot};
use crate::error::{Error, IoContext, Result};
use crate::model::id::AgentName;

use super::layout::AgentDir;
use super::travel::{self, FileKind};
use super::{DirAgent, DirStore, DirTxn, layout, lock, moved, successor};

impl DirStore {
    /// Replaces an error by "no such agent" if its path is in the directory of an agent that no
    /// longer exists.
    pub fn unless_removed(&self, name: &AgentName, error: Error) -> Error {
        if self.is_remote() {
            return error;
        }
        let dir = AgentDir::new(&self.root, name);
        let is_of_agent = error.path().is_some_and(|path| path.starts_with(dir.path()));
        if is_of_agent { DirAgent::new(self, name.clone(), dir).blame(error) } else { error }
    }
}

impl DirAgent<'_> {
    /// Which directory the agent has. Fails if there is no such agent any more.
    pub(super) fn here(&self) -> Result<Number> {
        self.dir.spot().number()?.ok_or_else(|| self.gone())
    }

    /// Whatever a command has failed at: if the agent has been removed meanwhile, that is why.
    pub(in crate::store) fn unless_gone<T>(&self, done: Result<T>) -> Result<T> {
        done.map_err(|error| self.blame(error))
    }

    fn blame(&self, error: Error) -> Error {
        match self.dir.spot().number() {
            Ok(None) => self.gone(),
            Ok(Some(_)) | Err(_) => error,
        }
    }

    fn gone(&self) -> Error {
        Error::NoAgent { agent: self.name.to_string(), known: None, renamed: None }
    }
}

/// True if only files of this machine remain of an agent: git removes the files that it tracks, and
/// no more.
pub fn is_husk(dir: &Spot) -> Result<bool> {
    has_only_own(dir, Path::new(""))
}

fn has_only_own(dir: &Spot, below: &Path) -> Result<bool> {
    for entry in dir.join(below).entries()? {
        let path = below.join(&entry.name);
        let is_own = match travel::place(&path) {
            FileKind::Local => true,
            FileKind::Evidence | FileKind::Unknown | FileKind::Records { .. } if entry.is_dir => {
                has_only_own(dir, &path)?
            }
            FileKind::Evidence => path.starts_with(layout::RUNS) || path.starts_with(layout::TASKS),
            FileKind::Unknown => path.starts_with(layout::KEYS),
            FileKind::Records { .. } => false,
        };
        if !is_own {
            return Ok(false);
        }
    }
    Ok(true)
}

impl DirTxn<'_> {
    /// Lets an agent vanish that is marked as moved, and removes its files. Its lock, which is held
    /// here, goes with it: a command that has waited for that finds no agent. Returns the names of
    /// what was in the inbox and in no stream: a program that has put it there asked for no answer.
    pub(in crate::store) fn vanish(&self) -> Result<Vec<String>> {
        self.vanish_leaving(|_| Ok(()))
    }

    /// Removes an agent that exists under another name; files that no stream carries go to that
    /// one.
    pub(in crate::store) fn vanish_into(&self, heir: &DirAgent<'_>) -> Result<Vec<String>> {
        self.agent.store.files_only("`dormouse rename`")?;
        let hand_on = |from: &AgentDir| {
            successor::hand_on(&DirAgent::new(self.agent.store, self.agent.name.clone(), from.clone()), heir)
        };
        hand_on(&self.agent.dir)?;
        self.agent.store.disk.sync_file_system(heir.dir.spot())?;
        // Another program may have put something there in between.
        self.vanish_leaving(hand_on)
    }

    fn vanish_leaving(&self, leave: impl FnOnce(&AgentDir) -> Result<()>) -> Result<Vec<String>> {
        let (gone, _held) = self.step_aside()?;
        leave(&gone)?;
        let late = DirAgent::new(self.agent.store, self.agent.name.clone(), gone.clone()).late()?;
        remove(&gone);
        Ok(late.into_iter().map(|path| path.to_string_lossy().into_owned()).collect())
    }

    /// Removes an agent without a mark. `is_known`: true if a file of its inbox, by its path from
    /// the agent's directory, may be removed. Returns false, and keeps the agent, if another file
    /// has arrived.
    pub(super) fn vanish_unless_more(&self, is_known: impl Fn(&Path) -> bool) -> Result<bool> {
        let (gone, _held) = self.step_aside()?;
        let mut has_more = false;
        let inbox = Path::new(layout::INBOX);
        moved::each_file(&gone.join(inbox), Path::new(""), &mut |path| {
            has_more |= !is_known(&inbox.join(path))
        })?;
        if has_more {
            gone.spot().rename(self.agent.dir.spot())?;
        } else {
            remove(&gone);
        }
        Ok(!has_more)
    }

    /// Takes the agent's name from its directory. The file keeps commands from taking the directory
    /// for litter.
    fn step_aside(&self) -> Result<(AgentDir, File)> {
        let DirAgent { store, name, dir } = self.agent;
        let own = dir.spot().open_dir()?.ok_or_else(|| Error::gone("open directory", dir.path()))?;
        if !lock::try_hold(&own, dir.path())? {
            return Err(Error::busy(dir.path(), "another command".to_owned(), Duration::ZERO));
        }
        let gone = AgentDir::at(store.vanishing(name));
        gone.spot().remove_tree()?;
        dir.spot().try_rename(gone.spot())?.context("remove", dir.path())?;
        store.disk.sync_dir(&gone.spot().parent())?;
        Ok((gone, own))
    }
}

/// Removes a directory. If that fails, it is litter: later commands try again, and `doctor` reports
/// it.
fn remove(gone: &AgentDir) {
    let _ = gone.spot().remove_tree();
}
