//! Applies changes of another clone (a git remote) to the files of this clone.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use crate::cap_fs::{CapPath, Root};
use crate::error::{IoContext, Result};
use crate::local::lock::{self, LockGuard};
use crate::local::{LocalAgent, StateDir, files, layout, machine};
use crate::model::id::AgentName;
use crate::model::place::PlaceId;
use crate::model::time::Time;

use super::change::DirTxn;
use super::changes::{Append, Write};
use super::merge_trees::{agent_of, dir_of};
use super::{DirAgent, DirStore};

/// File that another clone has changed, made or removed.
#[derive(Debug)]
pub struct RemoteFile {
    /// Path relative to the state directory, or to the agent's directory within changes of one
    /// agent.
    pub path: String,
    /// Content of the file in this clone's commit; `None` if the commit lacks the file.
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
    pub is_program: bool,
}

/// Maximum total bytes of changes for which new messages are written through the journal. If the
/// total is larger, new messages are written directly to their files.
const MOST_JOURNALLED: usize = 512 << 10;

impl RemoteFile {
    /// True if the file has the content of this clone's commit, or already that of the other clone.
    fn is_as_known(&self, dir: &CapPath) -> Result<bool> {
        let now = dir.join(&self.path).read(files::MAX_LINES)?;
        Ok(now == self.before || now == self.after)
    }

    fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.after.as_deref()?).ok()
    }

    /// Returns the offset and text of lines that were added at the end; `None` for other changes.
    fn added(&self) -> Option<(u64, &str)> {
        let before = self.before.as_deref()?;
        let is_line = before.is_empty() || before.ends_with(b"\n");
        let rest = self.text()?.get(before.len()..).filter(|_| is_line)?;
        self.after.as_deref()?.starts_with(before).then_some((before.len() as u64, rest))
    }
}

impl DirAgent<'_> {
    /// Applies another clone's changes to this agent's files, the records in one transaction.
    /// Returns `false`, with nothing changed, if a file differs from this clone's commit.
    fn bring_in(&self, changes: &[RemoteFile], now: Time) -> Result<bool> {
        let locked = self.change(now)?;
        locked.empty_journal()?;
        for change in changes {
            if !change.is_as_known(self.local.dir.cap())? {
                return Ok(false);
            }
        }
        let is_record = changes.iter().any(|change| change.path == layout::STATE);
        let size: usize = changes.iter().filter_map(|change| Some(change.after.as_ref()?.len())).sum();
        let (mut writes, mut appends, mut deletes) = (Vec::new(), Vec::new(), Vec::new());
        let mut last = Vec::new();
        for change in changes {
            let path = change.path.clone();
            let is_message = path.starts_with(layout::INBOX) && change.before.is_none();
            let is_journalled = is_record && !(is_message && size > MOST_JOURNALLED);
            match &change.after {
                None if is_journalled && layout::may_delete(&path) => deletes.push(path),
                None => last.push(path),
                Some(bytes) => {
                    if is_journalled
                        && layout::may_write(&path)
                        && let Some(text) = change.text()
                    {
                        writes.push(Write { path, content: text.to_owned() });
                    } else if is_journalled
                        && layout::may_append(&path)
                        && let Some((offset, lines)) = change.added()
                    {
                        appends.push(Append { path, offset, content: lines.to_owned() });
                    } else {
                        self.local.state_dir.put_brought(self.local.dir.cap(), change, bytes)?;
                    }
                }
            }
        }
        if is_record {
            locked.replace(writes, appends, deletes)?;
        }
        for path in last {
            self.local.dir.join(path).remove()?;
        }
        self.local.disk().sync_file_system(self.local.dir.cap())?;
        Ok(true)
    }
}

impl LocalAgent<'_> {
    /// True if a file outside git records that only this clone steps the agent with this id. An
    /// entry that was copied with the directory names the original clone, and does not count.
    pub fn has_taken(&self, id: &str) -> Result<bool> {
        let (here, boot) = (self.state_dir.state_place()?.id, machine::boot().unwrap_or_default());
        let known = files::read(&self.dir.join(layout::TICKED_BY))?.unwrap_or_default();
        let is_it = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let is_named = words.next() == Some(id);
            let place = words.next().and_then(|word| word.parse::<PlaceId>().ok());
            let is_same_boot = words.next() == Some(boot);
            is_named && place.is_some_and(|place| place.is_same(here, is_same_boot))
        };
        Ok(String::from_utf8_lossy(&known).lines().any(is_it))
    }

    /// Records that this clone steps the agent; called before any push. Keeps the last 8 entries.
    pub fn note_ticked(&self, id: &str) -> Result<()> {
        let cap = self.dir.join(layout::TICKED_BY);
        let known = files::read(&cap)?.unwrap_or_default();
        let known = String::from_utf8_lossy(&known).into_owned();
        let mut lines: Vec<&str> = known.lines().rev().take(7).collect();
        lines.reverse();
        let (here, boot) = (self.state_dir.state_place()?.id, machine::boot().unwrap_or_default());
        let own = format!("{id} {here} {boot}");
        lines.push(&own);
        cap.parent().make_dirs()?;
        let staged = self.dir.join(layout::TMP).join(format!("taken-{}", std::process::id()));
        staged.parent().make_dirs()?;
        self.disk().replace(&staged, &cap, format!("{}\n", lines.join("\n")).as_bytes())
    }
}

/// True if these changes of another clone remove the agent.
fn is_removal(changes: &[RemoteFile]) -> bool {
    let is_essential = |change: &&RemoteFile| [layout::STATE, layout::IDENTITY].contains(&&*change.path);
    changes.iter().filter(is_essential).count() == 2 && changes.iter().all(|change| change.after.is_none())
}

impl DirTxn<'_> {
    /// Deletes an agent that another clone has removed. Returns `false`, and keeps the agent, if a
    /// file differs from this clone's commit or is new in the inbox.
    fn delete_as_known(&self, changes: &[RemoteFile]) -> Result<bool> {
        self.empty_journal()?;
        let dir = &self.agent.local.dir;
        for change in changes {
            if !change.is_as_known(dir.cap())? {
                return Ok(false);
            }
        }
        let is_known = |path: &Path| changes.iter().any(|change| Path::new(&change.path) == path);
        self.delete_unless_more(is_known)
    }
}

impl DirStore {
    /// Applies the changes of another clone, one agent after another. Returns `false` if a file
    /// differs from the version that this clone has committed; its agent was not changed.
    pub fn bring(&self, changes: Vec<RemoteFile>, now: Time) -> Result<bool> {
        let mut by_agent: BTreeMap<Option<AgentName>, Vec<RemoteFile>> = BTreeMap::new();
        for mut change in changes {
            let name = agent_of(&change.path).and_then(|name| name.parse().ok());
            if let Some(name) = &name {
                change.path.drain(..dir_of(name).len() + 1);
            }
            by_agent.entry(name).or_default().push(change);
        }
        for (name, changes) in by_agent {
            let is_done = match name {
                None => self.state_dir.bring_in(&changes)?,
                Some(name) => match self.find(&name)? {
                    Some(agent) if is_removal(&changes) => agent.change(now)?.delete_as_known(&changes)?,
                    Some(agent) => agent.bring_in(&changes, now)?,
                    None => self.bring_agent(&name, &changes)?,
                },
            };
            if !is_done {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Creates an agent that another clone has made. Returns `false` if the name is taken.
    fn bring_agent(&self, name: &AgentName, files: &[RemoteFile]) -> Result<bool> {
        if self.state_dir.agent(name).dir.cap().exists()? {
            return Ok(false);
        }
        let mut staged = self.state_dir.stage_copy(name)?;
        for file in files {
            staged.append(&file.path, file.after.as_deref().unwrap_or_default())?;
            if file.is_program {
                staged.agent().local.dir.join(&file.path).set_mode(0o700)?;
            }
        }
        staged.furnish()?;
        staged.place_if_free()
    }
}

impl StateDir {
    /// Applies the changes of another clone to files outside the agents: settings and shared hooks.
    /// Returns `false`, with nothing changed, if a file differs from the version that was
    /// committed.
    fn bring_in(&self, changes: &[RemoteFile]) -> Result<bool> {
        for change in changes {
            if !change.is_as_known(&self.cap())? {
                return Ok(false);
            }
        }
        for change in changes {
            match &change.after {
                Some(bytes) => self.put_brought(&self.cap(), change, bytes)?,
                None => self.cap().join(&change.path).remove()?,
            }
        }
        Ok(true)
    }

    fn put_brought(&self, dir: &CapPath, change: &RemoteFile, bytes: &[u8]) -> Result<()> {
        let target = dir.join(&change.path);
        target.parent().make_dirs()?;
        let name = format!(".brought.new-{}", std::process::id());
        let staged = target.parent().join(name);
        let _held = self.disk.stage(&staged, bytes)?;
        if change.is_program {
            staged.set_mode(0o700)?;
        }
        self.disk.place(&staged, &target)
    }
}

/// Takes the lock file in this clone's git directory, so that one process at a time syncs commits.
pub fn alone_in_clone(store: &StateDir, git_dir: &Path, now: Time) -> Result<LockGuard> {
    let root = Root::open(git_dir).context("open", git_dir)?;
    lock::acquire(&root.cap().join("dormouse.lock"), &store.holder(now), store.opener.patience)
}

/// Temporary state directory with the files of a remote, for inspection. No agent runs in it.
#[derive(Debug)]
pub struct ScratchStore {
    cap: CapPath,
}

impl ScratchStore {
    /// Creates the directory `name` below `git_dir`, replacing an earlier one.
    pub fn make(git_dir: &Path, name: &str) -> Result<ScratchStore> {
        let root = Root::open(git_dir).context("open", git_dir)?;
        let cap = root.cap().join(name);
        cap.remove_tree()?;
        cap.make_dirs()?;
        Ok(ScratchStore { cap })
    }

    pub fn path(&self) -> &Path {
        self.cap.path()
    }

    pub fn put(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let cap = self.cap.join(path);
        cap.parent().make_dirs()?;
        cap.create()?.write_all(bytes).context("write", &cap)
    }
}

impl Drop for ScratchStore {
    fn drop(&mut self) {
        let _ = self.cap.remove_tree();
    }
}
