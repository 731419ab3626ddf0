//! Import of agents from a stream: each is staged under a hidden name, and appears by one rename.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use serde_json::Value;

use crate::cap_fs::{Access, CapPath};
use crate::error::{Error, IoContext, Result};
use crate::local::layout::{self, AgentDir};
use crate::local::prepared::PreparedDir;
use crate::local::travel::{FileKind, place};
use crate::local::{LocalAgent, StateDir, git, lock, stale_files};
use crate::model::id::AgentName;
use crate::model::json;
use crate::model::time::Time;
use crate::store::stream::{Meta, StreamReader};

use super::view::View;
use super::{DirAgent, copying, moved};

/// Staged agent that no other command sees yet. Dropping this removes the agent.
#[derive(Debug)]
pub struct DirImport<'s> {
    pub(super) agent: DirAgent<'s>,
    /// Names of the agent in the export stream, present and former, if it gets another name here.
    former: Vec<String>,
    /// Directory of the agent, open and locked, so that no command removes it as stale.
    pub(super) held: File,
    files: usize,
    bytes: u64,
    /// True if the agent is at its final path, so that the drop of this value keeps the agent.
    pub(super) is_placed: bool,
}

/// Outcome of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appeared {
    New,
    /// The agent has replaced one that had left this store by `export --move` or `rm`.
    Back,
}

impl StateDir {
    /// Starts staging a new or imported agent. `former`: name in the export stream, or else `name`.
    pub(in crate::store) fn stage<'s>(
        &'s self,
        name: &AgentName,
        former: &AgentName,
    ) -> Result<DirImport<'s>> {
        self.sweep_stale();
        let mut staged = self.stage_copy(name)?;
        staged.former.extend((former != name).then(|| former.to_string()));
        Ok(staged)
    }

    /// Creates an empty agent under a hidden name, to be renamed later or to hold record copies.
    pub(in crate::store) fn stage_copy<'s>(&'s self, name: &AgentName) -> Result<DirImport<'s>> {
        let dir = AgentDir::at(self.staging_of(name));
        let held = stale_files::make_dir_unlocked(dir.cap(), Access::Owner)?;
        let agent = DirAgent { local: LocalAgent { state_dir: self, name: name.clone(), dir } };
        Ok(DirImport { agent, former: Vec::new(), held, files: 0, bytes: 0, is_placed: false })
    }
}

impl<'s> DirImport<'s> {
    /// Returns the staged agent, for checks and changes before it appears.
    pub fn agent(&self) -> &DirAgent<'s> {
        &self.agent
    }

    /// Returns the number of the agent's files, and of their bytes.
    pub fn size(&self) -> (usize, u64) {
        (self.files, self.bytes)
    }

    /// Adds the next file of a stream. Refuses a path that no agent has, and a file larger than the
    /// maximum of its kind.
    pub fn add(&mut self, meta: &Meta, from: &mut StreamReader<impl Read>) -> Result<()> {
        let found = place(&meta.path);
        let Some(most) = found.most() else {
            return Err(
                from.damaged(format_args!("{}: no file of an agent that travels", meta.path.display()))
            );
        };
        if meta.length > most {
            let message = format!("{}: {} bytes, of at most {most}", meta.path.display(), meta.length);
            return Err(from.damaged(message));
        }
        let cap = self.agent.local.dir.join(&meta.path);
        cap.parent().make_dirs()?;
        // An export stream names each file once, so an existing file is an error.
        if cap.exists()? {
            return Err(Error::damaged(cap.path(), "the stream has something else of this name"));
        }
        let file = cap.create()?;
        let mut length = 0;
        let mut put = |bytes: &[u8]| {
            length += bytes.len() as u64;
            (&file).write_all(bytes).context("write", &cap)
        };
        let is_record = meta.path.extension().is_some_and(|ending| ending == "json")
            && matches!(found, FileKind::Records { .. });
        // An outbox message names its receiver. In archive lines, readers replace the former name.
        if !self.former.is_empty() && is_record && !meta.path.starts_with(layout::OUTBOX) {
            let mut bytes = Vec::new();
            from.copy(|some| {
                bytes.extend_from_slice(some);
                Ok(())
            })?;
            put(self.renamed(&bytes).as_deref().map_or(&bytes, str::as_bytes))?;
        } else {
            from.copy(put)?;
        }
        finish(&file, &cap, meta)?;
        self.files += 1;
        self.bytes += length;
        Ok(())
    }

    /// Returns the text of a record with the new name of its agent. `None` if it is no record.
    /// Removes `former_names`: a search for a former name must find only the original agent.
    fn renamed(&mut self, bytes: &[u8]) -> Option<String> {
        let mut value = json::value(bytes).ok()?;
        let schema = value.get("schema")?.as_str()?.strip_prefix("dormouse/")?;
        let own = if schema.starts_with("identity/") { "name" } else { "agent" };
        // In a stream, `identity.json` comes before all other records that name the agent.
        if let Some(Value::Array(had)) = value.as_object_mut()?.shift_remove("former_names") {
            self.former.extend(had.iter().filter_map(|had| Some(had["name"].as_str()?.to_owned())));
        }
        let places = [
            &[own][..],
            &["target_agent_id"],
            &["message", "agent"],
            &["pending_wake_hint", "agent"],
            &["stopped_by", "id"],
        ];
        for place in places {
            let found = place.iter().try_fold(&mut value, |within, field| within.get_mut(*field));
            if let Some(name) = found.filter(|name| self.former.iter().any(|former| *former == **name)) {
                *name = Value::from(self.agent.local.name.as_str());
            }
        }
        serde_json::to_string_pretty(&value).ok().map(|text| text + "\n")
    }

    /// Adds bytes at the end of a file, which may not exist yet.
    pub(in crate::store) fn append(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let cap = self.agent.local.dir.join(path);
        cap.parent().make_dirs()?;
        let (file, length) = cap.create_in_place()?;
        file.write_all_at(bytes, length).context("write", &cap)
    }

    /// Adds the directories and files that every agent has and that no export contains.
    pub(in crate::store) fn furnish(&self) -> Result<()> {
        let dir = &self.agent.local.dir;
        for below in layout::AGENT_DIRS {
            dir.join(below).make_dirs()?;
        }
        let disk = self.agent.local.disk();
        for (path, bytes) in [(layout::KEPT, git::KEPT.as_bytes()), (layout::JOURNAL, b"")] {
            if !dir.join(path).exists()? {
                disk.stage_unsynced(&dir.join(path), bytes)?;
            }
        }
        Ok(())
    }

    /// Adds the directories and files that no export has, and makes all files durable.
    pub fn complete(&self) -> Result<()> {
        self.furnish()?;
        let (dir, disk) = (&self.agent.local.dir, self.agent.local.disk());
        self.agent.local.state_dir.share([dir])?;
        disk.sync_file_system(dir.cap())
    }

    /// Renames the staged agent to its final path. Returns `false` if any agent has the name, even
    /// one that is marked as moved.
    pub fn place_if_free(&mut self) -> Result<bool> {
        let LocalAgent { state_dir, name, dir } = &self.agent.local;
        let target = AgentDir::new(&state_dir.root, name);
        let from = dir.cap();
        state_dir.disk.sync_file_system(from)?;
        match from.try_rename(target.cap())? {
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(false),
            renamed => renamed.context("make", target.path())?,
        }
        self.is_placed = true;
        state_dir.disk.sync_dir(&target.cap().parent())?;
        Ok(true)
    }

    /// Renames the staged agent to its final path. Replaces an agent of this name that has left by
    /// `export --move` or `rm`, and moves later arrivals in its inbox into the new inbox.
    pub fn place(mut self, now: Time) -> Result<Appeared> {
        if self.place_if_free()? {
            return Ok(Appeared::New);
        }
        let LocalAgent { state_dir, name, dir: from } = &self.agent.local;
        let disk = state_dir.disk;
        let there = DirAgent { local: state_dir.agent(name) };
        let target = &there.local.dir;
        let agents = target.cap().parent();
        let locked = there.change(now)?;
        if !there.peek()?.moved.is_some_and(|moved| moved.frees_name()) {
            return Err(super::agent_exists(name));
        }
        // After the swap the old agent has the hidden name, and this lock keeps it from removal.
        let former = target.cap().open_existing_dir()?;
        if !lock::try_hold(&former, target.path())? {
            return Err(Error::busy(target.path(), "another command".to_owned(), Duration::ZERO));
        }
        from.cap().try_exchange(target.cap())?.context("import", target.path())?;
        self.is_placed = true;
        disk.sync_dir(&agents)?;
        moved::carry_over(from, target)?;
        disk.sync_file_system(target.cap())?;
        from.cap().remove_tree()?;
        drop(locked);
        Ok(Appeared::Back)
    }
}

impl DirImport<'_> {
    /// Renames the staged directory to the hidden name of a prepared local agent directory, which
    /// the records in the database will contain. Error if a file can't be stored in a database.
    pub(in crate::store) fn prepare(&mut self, now: Time) -> Result<PreparedDir> {
        copying::refuse_unfit(&View::settled(&self.agent.local.dir))?;
        self.agent.local.hide(&self.held, now)
    }

    /// Keeps the staged directory when this value is dropped, if `is_so`: records may name it.
    pub(in crate::store) fn may_be_named(&mut self, is_so: bool) {
        self.is_placed = is_so;
    }
}

impl Drop for DirImport<'_> {
    fn drop(&mut self) {
        if !self.is_placed {
            // If the removal fails, a later command removes the staged agent.
            let _ = self.agent.local.dir.cap().remove_tree();
        }
    }
}

/// Gives a file the mode in its stream header, and the time if the header has one.
fn finish(file: &File, cap: &CapPath, meta: &Meta) -> Result<()> {
    if meta.is_executable {
        rustix::fs::fchmod(file.as_fd(), rustix::fs::Mode::RWXU).context("change the mode of", cap)?;
    }
    if meta.written_at == 0 {
        return Ok(());
    }
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(meta.written_at));
    let at = at.ok_or_else(|| Error::damaged(cap.path(), "its time is too late"))?;
    file.set_modified(at).context("set the time of", cap)
}
