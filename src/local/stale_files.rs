//! Stale files of killed commands, which are distinguished from files of running commands.
//!
//! A process that makes a file or directory in `tmp/` holds the agent's lock, or a lock on the new
//! file itself, until the file is in its final place. So a file without a lock, found under the
//! agent's lock, has no living maker, whatever its name and the machine of its maker. A file that
//! was made and is not locked yet may be removed as stale: once its maker has the lock, the maker
//! finds the file gone, and makes another.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use crate::cap_fs::{Access, CapPath, Entry};
use crate::error::{IoContext, Result};
use crate::model::id::AgentName;

use super::files::{self, Disk};
use super::{LocalAgent, StateDir, layout, lock, machine};

/// Maximum number of files of killed commands that one step removes. The next step removes more.
const AT_ONCE: usize = 256;

/// Prefix of the directories in which hooks run. A stale directory may have leftover processes,
/// which are ended before it is removed.
const HOOK: &str = "hook-";

/// Prefix of the name of an agent directory that is being made or removed, and of files that a
/// member of the sharing group makes in an inbox.
pub const NEW: &str = ".new-";

/// Second prefix, after [`NEW`], of an agent directory that is being removed. No agent's name
/// begins with this prefix.
const GONE: &str = ".gone-";

impl Disk {
    /// Replaces a file as a whole: stage, rename, sync the directory. A reader finds either the old
    /// content or the new content, even after a power cut.
    pub fn replace(self, temporary: &CapPath, target: &CapPath, bytes: &[u8]) -> Result<()> {
        let _held = self.stage(temporary, bytes)?;
        self.place(temporary, target)
    }

    /// Makes a new file at `temporary` with this content, durably. On any failure it is removed
    /// again. While the returned file is open, no other command removes the new file as stale.
    pub fn stage(self, temporary: &CapPath, bytes: &[u8]) -> Result<File> {
        loop {
            let mut file = self.stage_unsynced(temporary, b"")?;
            if is_ours(&file, temporary)? {
                let written = file.write_all(bytes).context("write", temporary.path());
                let synced = written.and_then(|()| self.sync_file(&file, temporary.path()));
                return files::or_remove(temporary, synced.map(|()| file));
            }
        }
    }
}

/// Locks a file or directory that was just made. Returns `false` if another command has removed it
/// as stale. Removes a file that can't be locked.
fn is_ours(file: &File, cap: &CapPath) -> Result<bool> {
    let links = || file.metadata().context("look at", cap.path()).map(|found| found.nlink());
    let is_ours = lock::try_hold(file, cap.path()).and_then(|is_held| Ok(is_held && links()? > 0));
    if is_ours.is_err() {
        // The error of the lock is reported, not an error of this removal.
        let _ = cap.remove_tree();
    }
    is_ours
}

/// Makes a new directory and its missing parents. While the returned file is open, no other command
/// removes the directory as stale.
pub fn make_dir_unlocked(cap: &CapPath, access: Access) -> Result<File> {
    loop {
        files::in_new_parent(cap, || cap.make_dir_for(access))?;
        if let Some(dir) = cap.open_dir()?
            && is_ours(&dir, cap)?
        {
            return Ok(dir);
        }
    }
}

/// Locks a file or directory whose maker is gone. `None` if it is locked, missing or unreadable.
pub fn abandoned(dir: &CapPath, entry: &Entry) -> Option<(CapPath, File)> {
    let cap = dir.join(&entry.name);
    let file = if entry.is_dir { cap.open_dir().ok()?? } else { cap.open_file().ok()??.0 };
    let is_held = lock::try_hold(&file, cap.path()).ok()?;
    // A removed directory may have the path of a new one, which a living command uses.
    (is_held && file.metadata().ok()?.nlink() > 0).then_some((cap, file))
}

/// Scratch directory of one hook, in `tmp/`, under a random name. The command that runs the hook
/// keeps the directory locked, and removes it when the hook has ended.
pub struct HookScratch {
    pub cap: CapPath,
    _lock: File,
}

impl HookScratch {
    pub fn make(tmp: &CapPath) -> Result<HookScratch> {
        let cap = tmp.join(format!("{HOOK}{}", machine::random().context("draw a name in", tmp)?));
        Ok(HookScratch { _lock: make_dir_unlocked(&cap, Access::Owner)?, cap })
    }

    /// Locks and returns the scratch directories of hooks whose commands were killed.
    pub fn abandoned(tmp: &CapPath) -> Result<impl Iterator<Item = HookScratch>> {
        let entries = tmp.entries()?.into_iter().filter(is_of_hook);
        let scratches = entries.filter_map(move |entry| abandoned(tmp, &entry));
        Ok(scratches.map(|(cap, _lock)| HookScratch { cap, _lock }))
    }
}

impl Drop for HookScratch {
    fn drop(&mut self) {
        // A directory that can't be removed is harmless.
        let _ = self.cap.remove_tree();
    }
}

fn is_of_hook(entry: &Entry) -> bool {
    entry.is_dir && entry.name.as_encoded_bytes().starts_with(HOOK.as_bytes())
}

/// True if an entry of `tmp/` may be left by a killed command. Lock files are permanent.
fn can_be_left(entry: &Entry) -> bool {
    !entry.name.as_encoded_bytes().ends_with(b".lock")
}

impl LocalAgent<'_> {
    /// Removes a bounded number of files of killed commands from `tmp/`, and of those of sharing
    /// group members from the inbox. Returns true if `tmp/` has directories of hooks, which stay.
    /// The caller holds the agent's lock.
    pub fn sweep(&self) -> Result<bool> {
        let tmp = self.tmp();
        let mut has_hooks = false;
        for entry in tmp.entries()?.iter().filter(|entry| can_be_left(entry)).take(AT_ONCE) {
            if is_of_hook(entry) {
                has_hooks = true;
            } else if let Some((cap, _held)) = abandoned(&tmp, entry) {
                cap.remove_tree()?;
            }
        }
        for (cap, _held) in self.left_by_guests()?.take(AT_ONCE) {
            // Files that another user has closed to the owner stay; no command needs their paths.
            let _ = cap.remove_tree();
        }
        Ok(has_hooks)
    }

    /// Locks and returns the stale files of killed commands of the sharing group's members.
    fn left_by_guests(&self) -> Result<impl Iterator<Item = (CapPath, File)>> {
        let inbox = self.dir.join(layout::INBOX);
        let mut staged = Vec::new();
        if self.state_dir.is_shared() {
            staged = inbox.entries()?;
            staged.retain(|entry| entry.name.as_encoded_bytes().starts_with(NEW.as_bytes()));
        }
        Ok(staged.into_iter().filter_map(move |entry| abandoned(&inbox, &entry)))
    }

    /// Returns the number of files and hook directories left by killed commands of the agent.
    pub fn stale_files(&self) -> Result<usize> {
        let tmp = self.tmp();
        let entries = tmp.entries()?;
        let left = entries.iter().filter(|entry| can_be_left(entry) && abandoned(&tmp, entry).is_some());
        Ok(left.count() + self.left_by_guests()?.count())
    }

    /// Directory for new files of the agent's commands until they are renamed to their final paths.
    pub fn tmp(&self) -> CapPath {
        self.dir.join(layout::TMP)
    }

    /// Path at which a new inbox entry of this name is staged: in `tmp/`, or for a sharing group
    /// member, who may write only to the inbox, there under a name that readers ignore.
    pub fn staging(&self, name: &str) -> CapPath {
        match &self.state_dir.guest {
            None => self.tmp().join(name),
            Some(_) => self.dir.join(layout::INBOX).join(format!("{NEW}{name}")),
        }
    }
}

impl StateDir {
    /// Returns the stale directories of agents whose creation or removal was killed, and stale
    /// temporary files of the state directory itself.
    pub fn stale_files(&self) -> Result<Vec<CapPath>> {
        let agents = self.cap().join(layout::AGENTS);
        let mut left = Vec::new();
        let is_new =
            |entry: &&Entry| entry.is_dir && entry.name.as_encoded_bytes().starts_with(NEW.as_bytes());
        for entry in agents.entries()?.iter().filter(is_new) {
            left.extend(abandoned(&agents, entry).map(|(cap, _)| cap));
        }
        for entry in self.cap().entries()?.iter().filter(|entry| !entry.is_dir) {
            if entry.name.to_string_lossy().contains(NEW) {
                left.extend(abandoned(&self.cap(), entry).map(|(cap, _)| cap));
            }
        }
        Ok(left)
    }

    /// Path at which this process builds the directory of a new agent of this name.
    pub fn staging_of(&self, name: &AgentName) -> CapPath {
        self.cap().join(layout::AGENTS).join(format!("{NEW}{name}-{}", std::process::id()))
    }

    /// Path to which this process moves an agent that it removes.
    pub fn vanishing(&self, name: &AgentName) -> CapPath {
        self.cap().join(layout::AGENTS).join(format!("{NEW}{GONE}{name}-{}", std::process::id()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cap_fs::at;

    fn remove_abandoned(tmp: &CapPath) {
        HookScratch::abandoned(tmp).unwrap().for_each(drop);
    }

    #[test]
    fn a_locked_hook_directory_is_not_deleted_as_abandoned() {
        let dir = tempfile::tempdir().unwrap();
        let tmp = at(dir.path());
        let held = HookScratch::make(&tmp).unwrap();
        // Only the lock counts, because a process of another container may be invisible.
        let renamed = tmp.join("hook-1-1");
        held.cap.rename(&renamed).unwrap();
        remove_abandoned(&tmp);
        assert!(renamed.exists().unwrap());
        drop(held);
        remove_abandoned(&tmp);
        assert_eq!(tmp.entries().unwrap(), []);
    }

    #[test]
    fn the_cleanup_of_a_hook_never_removes_the_directory_of_a_later_hook() {
        let dir = tempfile::tempdir().unwrap();
        let tmp = at(dir.path());
        let first = HookScratch::make(&tmp).unwrap();
        let (cap, opened) = (first.cap.clone(), first.cap.open_dir().unwrap().unwrap());
        drop(first);
        // Another command that found the directory before its removal can lock it only now. That
        // command must not remove the directory of a later hook.
        assert!(lock::try_hold(&opened, &cap).unwrap());
        let second = HookScratch::make(&tmp).unwrap();
        assert_ne!(second.cap.path(), cap.path());
        drop(HookScratch { cap, _lock: opened });
        assert!(second.cap.exists().unwrap());
    }
}
