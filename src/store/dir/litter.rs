//! Leftovers of killed commands, and how they are told from the files of living commands.
//!
//! A process that makes something in `tmp/` either holds the agent's lock or a lock on the very
//! thing, from when it is made until it is in its place. So what no process holds, seen under the
//! agent's lock, has lost its maker, whatever its name says and wherever the maker ran. One that
//! was made and is not locked yet may be taken for that: its maker sees that it is gone once it has
//! the lock, and makes another.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use crate::beneath::{Access, Entry, Spot};
use crate::error::{Error, IoContext, Result};
use crate::model::id::AgentName;

use super::files::Disk;
use super::layout::AgentDir;
use super::{DirAgent, DirStore, DirTxn, layout, lock, moved};

/// Maximum number of leftovers that one step removes. The next step removes more.
const AT_ONCE: usize = 256;

/// Prefix of the directories in which hooks run. A leftover one may have processes, which are ended
/// before it is removed.
const HOOK: &str = "hook-";

/// Prefix of the name of an agent that is being made, and of files that a member of the sharing
/// group makes in an inbox.
const NEW: &str = ".new-";

/// Prefix of the rest of such a name if the agent is being removed. No agent's name begins like
/// this.
const GONE: &str = ".gone-";

impl Disk {
    /// Puts a file in place as a whole, for a caller that does not hold the agent's lock.
    pub fn replace_unlocked(self, temporary: &Spot, target: &Spot, bytes: &[u8]) -> Result<()> {
        let _held = self.stage_unlocked(temporary, bytes)?;
        self.place(temporary, target)
    }

    /// Makes a new file at `temporary` with this content, durably. No other command takes it for
    /// litter while the returned file is open.
    pub fn stage_unlocked(self, temporary: &Spot, bytes: &[u8]) -> Result<File> {
        loop {
            let mut file = self.stage_unsynced(temporary, b"")?;
            if !is_ours(&file, temporary)? {
                continue;
            }
            let written = file.write_all(bytes).context("write", temporary.path());
            if let Err(error) = written.and_then(|()| self.sync_file(&file, temporary.path())) {
                let _ = temporary.remove();
                return Err(error);
            }
            return Ok(file);
        }
    }
}

/// Locks what was just made. `false`: it was taken for litter meanwhile. What can't be locked goes
/// again.
fn is_ours(file: &File, spot: &Spot) -> Result<bool> {
    let links = || file.metadata().context("look at", spot.path()).map(|found| found.nlink());
    let is_ours = lock::try_hold(file, spot.path()).and_then(|is_held| Ok(is_held && links()? > 0));
    if is_ours.is_err() {
        // The first error is the one to report.
        let _ = spot.remove_tree();
    }
    is_ours
}

/// Makes a new directory, and those above it that are missing. No other command takes it for litter
/// while the returned file is open.
pub fn make_dir_unlocked(spot: &Spot, access: Access) -> Result<File> {
    loop {
        if !spot.parent().exists()? {
            spot.parent().make_dirs()?;
        }
        spot.make_dir_for(access)?;
        if let Some(dir) = spot.open_dir()?
            && is_ours(&dir, spot)?
        {
            return Ok(dir);
        }
    }
}

/// Takes something whose maker is gone. No other process takes it while the file is open.
pub fn abandoned(dir: &Spot, entry: &Entry) -> Option<(Spot, File)> {
    let spot = dir.join(&entry.name);
    let file = if entry.is_dir { spot.open_dir().ok()?? } else { spot.open_file().ok()??.0 };
    lock::try_hold(&file, spot.path()).ok()?.then_some((spot, file))
}

/// True if a name in `tmp/` can be litter. Locks are permanent.
fn can_be_left(entry: &Entry) -> bool {
    !entry.name.as_encoded_bytes().ends_with(b".lock")
}

fn is_of_hook(entry: &Entry) -> bool {
    entry.is_dir && entry.name.as_encoded_bytes().starts_with(HOOK.as_bytes())
}

impl DirTxn<'_> {
    /// Removes what killed commands have left in `tmp/`, a bounded part of it. Returns whether
    /// directories of hooks are among it, which are not removed here.
    pub fn sweep(&self) -> Result<bool> {
        let tmp = self.agent.tmp();
        let mut has_hooks = false;
        for entry in tmp.entries()?.iter().filter(|entry| can_be_left(entry)).take(AT_ONCE) {
            if is_of_hook(entry) {
                has_hooks = true;
            } else if let Some((spot, _held)) = abandoned(&tmp, entry) {
                spot.remove_tree()?;
            }
        }
        for (spot, _held) in self.left_by_guests()?.take(AT_ONCE) {
            // Files that another user has closed to the owner stay, and disturb no command.
            let _ = spot.remove_tree();
        }
        Ok(has_hooks)
    }

    /// Takes the leftovers of killed commands of the sharing group's members.
    fn left_by_guests(&self) -> Result<impl Iterator<Item = (Spot, File)>> {
        let inbox = self.agent.dir.join(layout::INBOX);
        let mut staged = Vec::new();
        if self.agent.store.is_shared() {
            staged = inbox.entries()?;
            staged.retain(|entry| entry.name.as_encoded_bytes().starts_with(NEW.as_bytes()));
        }
        Ok(staged.into_iter().filter_map(move |entry| abandoned(&inbox, &entry)))
    }

    /// Number of leftovers, leftover hook directories included.
    pub(super) fn litter(&self) -> Result<usize> {
        let tmp = self.agent.tmp();
        let entries = tmp.entries()?;
        let left = entries.iter().filter(|entry| can_be_left(entry) && abandoned(&tmp, entry).is_some());
        Ok(left.count() + self.left_by_guests()?.count())
    }
}

impl DirAgent<'_> {
    /// Where its commands put what is not in its place yet.
    pub(super) fn tmp(&self) -> Spot {
        self.dir.join(layout::TMP)
    }

    /// Where an arrival of this name is made: in `tmp/`. A member of the sharing group may write to
    /// the inbox alone, so there it is made in the inbox under a name that no reader looks at.
    pub(super) fn staging(&self, name: &str) -> Spot {
        match self.store.guest() {
            None => self.tmp().join(name),
            Some(_) => self.dir.join(layout::INBOX).join(format!("{NEW}{name}")),
        }
    }
}

impl DirStore {
    /// Agents whose making was killed, and files of the state directory itself that never came to
    /// their place.
    pub(super) fn litter(&self) -> Result<Vec<Spot>> {
        let is_new = |name: &str, entry: &Entry| entry.name.as_encoded_bytes().starts_with(name.as_bytes());
        let agents = self.spot().join(layout::AGENTS);
        let mut left = Vec::new();
        let is_left = |entry: &&Entry| entry.is_dir && is_new(NEW, entry);
        for entry in agents.entries()?.iter().filter(is_left) {
            left.extend(abandoned(&agents, entry).map(|(spot, _)| spot));
        }
        for entry in self.spot().entries()?.iter().filter(|entry| !entry.is_dir) {
            if entry.name.to_string_lossy().contains(NEW) {
                left.extend(abandoned(&self.spot(), entry).map(|(spot, _)| spot));
            }
        }
        Ok(left)
    }

    /// Removes all of these that can be removed. The others are in no command's way.
    pub(in crate::store) fn sweep_litter(&self) {
        for left in self.litter().unwrap_or_default() {
            let _ = self.sweep(&left);
        }
    }

    /// Where this process makes an agent that gets this name.
    pub(super) fn staging_of(&self, name: &AgentName) -> Spot {
        self.spot().join(layout::AGENTS).join(format!("{NEW}{name}-{}", std::process::id()))
    }

    /// Where this process puts an agent that it removes.
    pub(super) fn vanishing(&self, name: &AgentName) -> Spot {
        self.spot().join(layout::AGENTS).join(format!("{NEW}{GONE}{name}-{}", std::process::id()))
    }

    /// Removes one of these, if it still has no maker. What an import has left of an agent that is
    /// back may have arrivals: these go to the agent.
    pub(in crate::store) fn sweep(&self, spot: &Spot) -> Result<()> {
        let entry = Entry { name: spot.name().to_owned(), is_dir: spot.is_dir()? };
        match abandoned(&spot.parent(), &entry) {
            Some((spot, _held)) => {
                if let Some(name) = self.name_of_staged(&spot) {
                    moved::carry_over(&AgentDir::at(spot.clone()), &AgentDir::new(&self.root, &name))?;
                }
                spot.remove_tree()
            }
            None => Err(Error::busy(spot.path(), "its maker".to_owned(), std::time::Duration::ZERO)),
        }
    }

    /// The agent that something was to be.
    fn name_of_staged(&self, spot: &Spot) -> Option<AgentName> {
        let name = spot.name().to_str()?.strip_prefix(NEW)?;
        name.rsplit_once('-')?.0.parse().ok()
    }
}
